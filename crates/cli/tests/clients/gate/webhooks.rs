//! Admission webhooks that are processes of their own.

use super::process::{Certificate, Place};
use super::writers::{Answered, ask, create, name, object, stored, until, write_while};
use crate::server::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
/// How much later than its timeouts a request may end on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

fn hooks() -> Place {
    let mut place = Place::new("hook");
    place.start(Certificate::Good);
    place
}

/// A webhook for config maps other than `marker`.
fn hook(place: &Place, name: &str, path: &str) -> Value {
    json!({
        "name": format!("{name}.example.com"), "sideEffects": "None",
        "clientConfig": {"url": format!("{}{path}", place.url()),
            "caBundle": STANDARD.encode(place.pem())},
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}],
        "matchConditions": [{"name": "others",
            "expression": "object == null || object.metadata.name != 'marker'"}],
    })
}

fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> Value {
    let kind = if kind == MUTATING { "Mutating" } else { "Validating" };
    json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": name},
        "webhooks": webhooks})
}

/// Writes configurations, and waits until they and all former writes have an effect.
fn configure(server: &Server, place: &Place, configurations: &[(&str, &str, Vec<Value>)]) {
    for (kind, name, webhooks) in configurations {
        let written = configuration(kind, name, webhooks);
        create(server, &format!("{GROUP}/{kind}"), &written);
    }
    // The last one refuses a marker; when it counts, those before it do.
    let mut marker = hook(place, "marker", "/deny");
    marker["matchConditions"] =
        json!([{"name": "marker", "expression": "object.metadata.name == 'marker'"}]);
    marker["rules"][0]["operations"] = json!(["CREATE"]);
    let path = format!("{GROUP}/{VALIDATING}");
    create(server, &path, &configuration(VALIDATING, "marker", &[marker]));
    let dry = format!("{MAPS}?dryRun=All");
    let is_refused = |answer: &Answered| answer.shown().contains("\"marker.example.com\" denied");
    until(server, "POST", &dry, &object("ConfigMap", "marker"), is_refused);
    let deleted = ask(server, "DELETE", &format!("{path}/marker"), &Value::Null);
    assert_eq!(deleted.code, 200);
}

fn remove(server: &Server, kind: &str, name: &str) {
    let path = format!("{GROUP}/{kind}/{name}");
    assert_eq!(ask(server, "DELETE", &path, &Value::Null).code, 200);
}

/// A patch may leave out the type of a built-in object, and an answer may be YAML.
#[test]
fn answers_are_taken_as_the_original_takes_them() {
    let place = hooks();
    let server = Server::start();
    let webhooks = [hook(&place, "type", "/patch-without-type"), hook(&place, "yaml", "/yaml")];
    configure(&server, &place, &[(MUTATING, "lenient", webhooks.to_vec())]);
    let created = ask(&server, "POST", MAPS, &object("ConfigMap", "lenient"));
    assert_eq!(created.code, 201, "{}", created.shown());
    assert_eq!(created.body["kind"], "ConfigMap");
}

/// What is wrong with a webhook, by its path or by its process.
enum Fault {
    Path(&'static str),
    /// Only for those that may patch.
    Patch(&'static str),
    /// Only for those that may not.
    Refused(&'static str),
    Dead,
    Frozen,
    Shows(Certificate),
}

#[test]
fn a_failed_call_ends_in_time_and_loses_nothing() {
    let mut place = hooks();
    let server = Server::start();
    let labelled = |name: &str, policy: &str| {
        let mut map = object("ConfigMap", name);
        map["metadata"]["labels"] = json!({"policy": policy});
        map
    };
    create(&server, MAPS, &labelled("kept", "Fail"));
    let kept = ask(&server, "GET", &format!("{MAPS}/kept"), &Value::Null).body;
    let rows = [
        (Fault::Path("/never"), "context deadline exceeded"),
        (Fault::Path("/sleep/5000"), "context deadline exceeded"),
        (Fault::Path("/endless"), "context deadline exceeded"),
        (Fault::Path("/fire"), "an error on the server (\"unknown\")"),
        (Fault::Path("/garbage"), "couldn't get version/kind"),
        (Fault::Path("/empty"), "0-length response"),
        (Fault::Path("/huge"), "the response is larger than 16777216 bytes"),
        (Fault::Path("/redirect"), "the server responded with the status code 302"),
        (Fault::Path("/uid"), "expected response.uid="),
        (Fault::Patch("/half-a-patch"), "received undecodable patch in webhook response"),
        (Fault::Patch("/other-patch"), "unsupported patch type \"MergePatch\""),
        (Fault::Refused("/half-a-patch"), "validating webhook may not return response.patch"),
        (Fault::Dead, "connect: connection refused"),
        (Fault::Frozen, "context deadline exceeded"),
        (Fault::Shows(Certificate::OtherAuthority), "certificate signed by unknown authority"),
        (Fault::Shows(Certificate::OtherName), "x509: cannot validate certificate for 127.0.0.1"),
        (Fault::Shows(Certificate::Expired), "certificate has expired"),
    ];
    for kind in [MUTATING, VALIDATING] {
        for (n, (fault, text)) in rows.iter().enumerate() {
            let path = match fault {
                Fault::Patch(_) if kind == VALIDATING => continue,
                Fault::Refused(_) if kind == MUTATING => continue,
                Fault::Path(path) | Fault::Patch(path) | Fault::Refused(path) => path,
                _ => "/allow",
            };
            // Only what ends by its timeout has a short one: the machine may be busy.
            let seconds = if text.contains("deadline") { 1 } else { 30 };
            let longest = Duration::from_secs(seconds) + SLACK;
            let webhook = |policy: &str| {
                let mut webhook = hook(&place, &format!("{}-{n}", policy.to_lowercase()), path);
                webhook["timeoutSeconds"] = seconds.into();
                webhook["failurePolicy"] = policy.into();
                webhook["objectSelector"] = json!({"matchLabels": {"policy": policy}});
                webhook
            };
            configure(&server, &place, &[(kind, "row", vec![webhook("Fail"), webhook("Ignore")])]);
            match fault {
                Fault::Path(_) | Fault::Patch(_) | Fault::Refused(_) => {}
                Fault::Dead => place.kill(),
                Fault::Frozen => place.freeze(),
                Fault::Shows(certificate) => place.start(*certificate),
            }
            // Nothing is stored, changed or deleted that the webhook has not allowed.
            let own = format!("{MAPS}/kept");
            let requests = [
                ("POST", MAPS, labelled("new", "Fail")),
                ("PATCH", &*own, json!({"data": {"x": "eQ=="}})),
                ("DELETE", &*own, Value::Null),
                ("DELETE", MAPS, Value::Null),
            ];
            let start = format!("500 Internal error occurred: failed calling webhook \"fail-{n}.");
            std::thread::scope(|scope| {
                for (method, path, body) in &requests {
                    let (server, start) = (&server, &start);
                    scope.spawn(move || {
                        let refused = ask(server, method, path, body);
                        let (shown, took) = (refused.shown(), refused.took);
                        assert!(
                            shown.starts_with(start) && shown.contains(text),
                            "{method} {n}: {shown}\n{text}"
                        );
                        assert!(took < longest, "{took:?}: {shown}");
                    });
                }
            });
            assert_eq!(ask(&server, "GET", &own, &Value::Null).body, kept);
            let new = format!("{MAPS}/new");
            assert_eq!(ask(&server, "GET", &new, &Value::Null).code, 404);
            // With the other policy, all of it happens, no later.
            let open = format!("{MAPS}/open");
            for (method, path, body) in [
                ("POST", MAPS, labelled("open", "Ignore")),
                ("PATCH", &*open, json!({"data": {"x": "eQ=="}})),
                ("DELETE", &*open, Value::Null),
            ] {
                let done = ask(&server, method, path, &body);
                assert!(done.code < 300, "{text}: {}", done.shown());
                assert!(done.took < longest, "{:?}: {text}", done.took);
            }
            match fault {
                Fault::Path(_) | Fault::Patch(_) | Fault::Refused(_) => {}
                Fault::Frozen => place.thaw(),
                Fault::Dead | Fault::Shows(_) => place.start(Certificate::Good),
            }
            remove(&server, kind, "row");
        }
    }
}

#[test]
fn a_patch_that_does_not_apply_or_makes_too_large_an_object_is_refused_with_both_policies() {
    let place = hooks();
    let server = Server::start();
    for (path, text) in [
        (
            "/patch-of-nothing",
            "500 Internal error occurred: error in remove for path: '/data/absent': Unable to remove nonexistent key: absent: missing value",
        ),
        ("/huge-patch", "422 ConfigMap \"a\" is invalid: []: Too long"),
    ] {
        for policy in ["Fail", "Ignore"] {
            let mut webhook = hook(&place, "patch", path);
            webhook["failurePolicy"] = policy.into();
            configure(&server, &place, &[(MUTATING, "row", vec![webhook])]);
            let refused = ask(&server, "POST", MAPS, &object("ConfigMap", "a")).shown();
            assert!(refused.starts_with(text), "{path}, {policy}: {refused}");
            assert_eq!(ask(&server, "GET", &format!("{MAPS}/a"), &Value::Null).code, 404);
            remove(&server, MUTATING, "row");
        }
    }
}

#[test]
fn webhooks_are_called_in_order_and_again_if_a_later_one_changes_the_object() {
    let place = hooks();
    let server = Server::start();
    let order = |word: &str, policy: &str| {
        let mut webhook = hook(&place, word, &format!("/order/{word}"));
        webhook["reinvocationPolicy"] = policy.into();
        webhook
    };
    // By the names of the configurations, then as they are written down.
    let configurations = [
        (MUTATING, "z", vec![order("e", "Never")]),
        (VALIDATING, "a", vec![hook(&place, "v", "/allow"), hook(&place, "w", "/sleep/1")]),
        (MUTATING, "a", vec![order("b", "IfNeeded"), order("a", "Never")]),
        (MUTATING, "m", vec![order("d", "Never"), order("c", "IfNeeded")]),
    ];
    configure(&server, &place, &configurations);
    let made = create(&server, MAPS, &object("ConfigMap", "ordered"));
    assert_eq!(made["metadata"]["annotations"]["order"], "badcebc");
    // Controllers write config maps, too.
    let mut calls = place.journal();
    calls.retain(|call| call["name"] == "ordered");
    let path = |call: &Value| call["path"].as_str().unwrap().to_owned();
    let (mutating, validating) = calls.split_at(7);
    let paths: Vec<String> = mutating.iter().map(path).collect();
    let expected = ["b", "a", "d", "c", "e", "b", "c"].map(|word| format!("/order/{word}"));
    assert_eq!(paths, expected);
    // Each sees what those before it have written; the validating ones see the whole.
    assert_eq!(mutating[4]["annotations"]["order"], "badc");
    let paths: BTreeSet<String> = validating.iter().map(path).collect();
    assert_eq!(paths, BTreeSet::from(["/allow".to_owned(), "/sleep/1".to_owned()]));
    assert!(validating.iter().all(|call| call["annotations"]["order"] == "badcebc"));
    let uids: BTreeSet<&str> = calls.iter().map(|call| call["uid"].as_str().unwrap()).collect();
    assert_eq!(uids.len(), calls.len());
}

#[test]
fn no_request_outlives_its_time() {
    let place = hooks();
    let server = Server::start();
    let never = |name: &str, seconds: u32| {
        let mut webhook = hook(&place, name, "/never");
        webhook["failurePolicy"] = "Ignore".into();
        webhook["timeoutSeconds"] = seconds.into();
        webhook
    };
    // Mutating ones take their time one after the other, validating ones together.
    let validating: Vec<Value> = ["c", "d", "e", "f"].iter().map(|name| never(name, 1)).collect();
    let mutating = vec![never("a", 1), never("b", 1)];
    configure(&server, &place, &[(MUTATING, "short", mutating), (VALIDATING, "short", validating)]);
    let made = ask(&server, "POST", MAPS, &object("ConfigMap", "short"));
    assert_eq!(made.code, 201, "{}", made.shown());
    let seconds = made.took.as_secs_f64();
    assert!((2.9..3.0 + SLACK.as_secs_f64()).contains(&seconds), "{seconds} s");
    remove(&server, MUTATING, "short");
    remove(&server, VALIDATING, "short");

    // The time of the request ends all of them.
    configure(&server, &place, &[(MUTATING, "long", vec![never("a", 30), never("b", 30)])]);
    let path = format!("{MAPS}?timeout=2s");
    let late = ask(&server, "POST", &path, &object("ConfigMap", "late"));
    assert!(late.code >= 500, "{}", late.shown());
    assert!(late.took < Duration::from_secs(2) + SLACK, "{:?}", late.took);
    remove(&server, MUTATING, "long");
    // It was not stored then, and is not later: what the request has begun has ended with it.
    configure(&server, &place, &[]);
    assert_eq!(ask(&server, "GET", &format!("{MAPS}/late"), &Value::Null).code, 404);
}

#[test]
fn with_fail_everything_that_is_stored_was_seen_by_a_webhook_that_comes_and_goes() {
    let mut place = hooks();
    let server = Server::start();
    let create_only = |mut webhook: Value| {
        webhook["rules"][0]["operations"] = json!(["CREATE"]);
        webhook
    };
    let configurations = |place: &Place, policy: &str| {
        let with_policy = |mut webhook: Value| {
            webhook["failurePolicy"] = policy.into();
            webhook["timeoutSeconds"] = 1.into();
            create_only(webhook)
        };
        [
            (MUTATING, "seen", vec![with_policy(hook(place, "seen", "/seen"))]),
            (VALIDATING, "seen", vec![with_policy(hook(place, "allow", "/allow"))]),
        ]
    };
    for policy in ["Fail", "Ignore"] {
        configure(&server, &place, &configurations(&place, policy));
        let answers = write_while(&server, MAPS, ("ConfigMap", &policy.to_lowercase()), || {
            let wait = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
            for _ in 0..3 {
                wait(300);
                place.kill();
                wait(300);
                place.start(Certificate::Good);
                wait(300);
                place.freeze();
                wait(1500);
                place.thaw();
            }
            wait(300);
        });
        let longest = answers.iter().map(|(_, answer)| answer.took).max().unwrap();
        assert!(longest < Duration::from_secs(2) + SLACK, "{longest:?}");
        let series = format!("w-{}-", policy.to_lowercase());
        let maps = stored(&server, MAPS);
        let maps: Vec<_> = maps.iter().filter(|map| name(map).starts_with(&series)).collect();
        let names: BTreeSet<&str> = maps.iter().map(|map| name(map)).collect();
        let made = answers.iter().filter(|(_, answer)| answer.code == 201);
        let made: BTreeSet<&str> = made.map(|(name, _)| &**name).collect();
        assert_eq!(names, made, "what was answered with success is what is stored");
        let failed = |(_, answer): &&(String, Answered)| {
            answer.shown().starts_with("500 Internal error occurred: failed calling webhook")
        };
        let n_failed = answers.iter().filter(failed).count();
        assert_eq!(made.len() + n_failed, answers.len(), "there is no other answer");
        let seen = |map: &Value| map["metadata"]["annotations"]["seen"].as_str().map(str::to_owned);
        let n_seen = maps.iter().filter(|map| seen(map).is_some()).count();
        assert!(n_seen > 0);
        if policy == "Ignore" {
            assert_eq!(n_failed, 0);
            assert!(n_seen < maps.len(), "some were not seen");
        } else {
            assert!(n_failed > 0);
            let journal = place.journal();
            let of = |path: &str, member: &str| -> BTreeSet<String> {
                let calls = journal.iter().filter(|call| call["path"] == path);
                calls.filter_map(|call| call[member].as_str().map(str::to_owned)).collect()
            };
            let (uids, validated) = (of("/seen", "uid"), of("/allow", "name"));
            for map in &maps {
                assert!(seen(map).is_some_and(|uid| uids.contains(&uid)), "{map}");
                assert!(validated.contains(name(map)), "{map}");
            }
        }
        for kind in [MUTATING, VALIDATING] {
            remove(&server, kind, "seen");
        }
    }
}
