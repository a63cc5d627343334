//! Every body gets a well-formed answer (runtime spec §15, property 9).

use crate::review::{admission, tree};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint_webhook::{AdmissionResponse, Call, Refusal, TokenRequest, Webhooks, path};

fn webhooks() -> Webhooks {
    let moody = async |call: Call| -> AdmissionResponse {
        match call.request().object.as_ref().map_or(0, |object| object.len()) % 3 {
            // A panic that is not printed.
            0 => std::panic::resume_unwind(Box::new("a multiple of three")),
            1 => AdmissionResponse::denied("no"),
            _ => AdmissionResponse::allowed(),
        }
    };
    let grow = async |mut map: ConfigMap, _: Call| {
        map.data.get_or_insert_default().insert("a".into(), "b".into());
        Ok(map)
    };
    let nobody = async |_: TokenRequest| Err(Refusal::denied("nobody"));
    let builder = Webhooks::builder().admission("/moody", moody).mutate::<ConfigMap>(grow);
    let builder = builder.convert(crate::conversion::thing()).authenticate("/token", nobody);
    builder.build().unwrap()
}

/// Asserts that `body` is answered, and well: by a review with its UID, or a `Status`.
fn check(webhooks: &Webhooks, path: &str, body: &[u8]) {
    // No handler waits.
    let reply = webhooks.handle(path, body.to_vec()).now_or_never().unwrap();
    let answer = tree(&reply);
    let asked = serde_json::from_slice::<Value>(body).ok();
    if answer["kind"] == "Status" {
        assert!(reply.code >= 400);
        assert_eq!((&answer["status"], &answer["code"]), (&"Failure".into(), &reply.code.into()));
        assert!(answer["message"].is_string());
        return;
    }
    assert_eq!(reply.code, 200);
    // Unread members need not be valid text: the UID is found nevertheless.
    let Some(asked) = asked else {
        assert!(answer["response"]["uid"].is_string() || path == "/token", "{answer}");
        return;
    };
    if let Some(version) = asked["apiVersion"].as_str().filter(|version| !version.is_empty()) {
        assert_eq!((&answer["apiVersion"], &answer["kind"]), (&version.into(), &asked["kind"]));
    }
    if path == "/token" {
        assert_eq!(answer["status"]["authenticated"], Value::Null);
        return;
    }
    let uid = asked["request"]["uid"].as_str().unwrap_or_default();
    assert_eq!(answer["response"]["uid"], uid);
    let verdict = match path {
        path::CONVERT => answer["response"]["result"]["status"].is_string(),
        _ => answer["response"]["allowed"].is_boolean(),
    };
    assert!(verdict, "{answer}");
}

const PATHS: [&str; 4] = ["/moody", "/mutate--v1-configmap", path::CONVERT, "/token"];

fn arb_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![
            Just("metadata".to_owned()),
            Just("apiVersion".to_owned()),
            Just("kind".to_owned()),
            Just("data".to_owned()),
            ".{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A review with a defect.
fn arb_review() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        Just("AdmissionReview"),
        Just("ConversionReview"),
        Just("TokenReview"),
        Just("")
    ];
    let group = prop_oneof![
        Just("admission.k8s.io/v1"),
        Just("admission.k8s.io/v1beta1"),
        Just("apiextensions.k8s.io/v1"),
        Just("authentication.k8s.io/v1"),
        Just(""),
    ];
    let field = prop::sample::select(vec![
        "uid",
        "kind",
        "resource",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
        "objects",
        "desiredAPIVersion",
        "name",
        "extra",
    ]);
    let verb = prop::sample::select(vec!["CREATE", "UPDATE", "DELETE", "CONNECT", "JUMP"]);
    (kind, group, verb, prop::collection::vec((field, arb_value()), 0..3), arb_value()).prop_map(
        |(kind, group, verb, fields, object)| {
            let mut review = admission(verb, &object, &object);
            review["kind"] = kind.into();
            review["apiVersion"] = group.into();
            review["request"]["desiredAPIVersion"] = "example.com/v1".into();
            review["request"]["objects"] = json!([object]);
            review["spec"] = review["request"].clone();
            for (field, value) in fields {
                review["request"][field] = value;
            }
            review
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_answered_whk_3(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let webhooks = webhooks();
        PATHS.iter().for_each(|path| check(&webhooks, path, &body));
    }

    #[test]
    fn any_review_is_answered_with_its_uid_whk_3(review in arb_review(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
        let webhooks = webhooks();
        let whole = review.to_string().into_bytes();
        let at = cut.index(whole.len());
        let mut flipped = whole.clone();
        flipped[at] ^= flip;
        for path in PATHS {
            check(&webhooks, path, &whole);
            check(&webhooks, path, &whole[..at]);
            check(&webhooks, path, &flipped);
        }
    }
}

#[test]
fn depth_and_repetition_are_answered() {
    let webhooks = webhooks();
    let deep = "[".repeat(100_000);
    let closed = format!("{deep}{}", "]".repeat(100_000));
    let twice = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","uid":"b"}}"#;
    let object = |object: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{object}}}}}"#
        )
    };
    for body in [deep.clone(), closed.clone(), twice.to_owned(), object(&closed), object(&deep)] {
        PATHS.iter().for_each(|path| {
            let reply = webhooks.handle(path, body.clone()).now_or_never().unwrap();
            let answer = tree(&reply);
            assert!(answer["kind"] == "Status" || answer["response"]["uid"] == "u", "{answer}");
        });
    }
}
