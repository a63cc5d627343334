//! Admission webhooks: a control plane calls real HTTPS servers.

use crate::https::{Answered, Ca, Hooks, Reviews, User, with_user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{AuditQueue, Stage};
use setpoint::webhook::{Call, Change, Refusal, Webhooks};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

pub(crate) fn plane() -> setpoint::ControlPlaneBuilder {
    ControlPlane::builder()
}
pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "1"}})
}
pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "a"}]}})
}
/// A webhook for all operations on some resources of the core group.
pub(crate) fn hook(name: &str, config: Value, resources: &[&str]) -> Value {
    json!({
        "name": format!("{name}.example.com"), "clientConfig": config, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": resources}],
    })
}
pub(crate) fn configuration(path: &str, name: &str, webhooks: &[Value]) -> Value {
    let kind = match path {
        MUTATING => "MutatingWebhookConfiguration",
        _ => "ValidatingWebhookConfiguration",
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": webhooks})
}
/// Writes a configuration and waits until it has an effect: a config map with the label `probe` is
/// refused by a hook of its own, and not seen by hooks without an object selector.
pub(crate) async fn configure(
    user: &User,
    probe: &Hooks,
    path: &str,
    name: &str,
    webhooks: &[Value],
) {
    let mut webhooks = webhooks.to_vec();
    for webhook in webhooks.iter_mut().filter(|webhook| webhook["objectSelector"].is_null()) {
        let unlabelled = json!([{"key": "probe", "operator": "DoesNotExist"}]);
        webhook["objectSelector"] = json!({"matchExpressions": unlabelled});
    }
    let mut marker = hook(&format!("probe-{name}"), probe.config("/probe"), &["configmaps"]);
    marker["objectSelector"] = json!({"matchLabels": {"probe": name}});
    webhooks.push(marker);
    user.create(path, &configuration(path, name, &webhooks)).await;
    let mut object = map("probe");
    object["metadata"]["labels"] = json!({"probe": name});
    let dry = format!("{MAPS}?dryRun=All");
    let is_refused = |answer: &Answered| answer.shown().contains(&format!("probe-{name}"));
    user.until("POST", &dry, &object, is_refused).await;
}
pub(crate) fn review(request: &Value, response: Value) -> (u16, String) {
    let mut review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"});
    review["response"] = response;
    review["response"]["uid"] = request["request"]["uid"].clone();
    (200, review.to_string())
}
pub(crate) fn patched(request: &Value, operations: Value) -> (u16, String) {
    let patch = STANDARD.encode(operations.to_string());
    review(request, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}
/// A server that records reviews: `/allow`, `/deny`, `/label/<key>` and others.
pub(crate) async fn server(ca: &Ca) -> (Hooks, Reviews) {
    let reviews = Reviews::default();
    let seen = reviews.clone();
    let answer = move |path: &str, request: Value| {
        if path == "/probe" {
            return review(&request, json!({"allowed": false}));
        }
        seen.add(path, &request);
        let labels = &request["request"]["object"]["metadata"]["labels"];
        match path {
            "/allow" => review(&request, json!({"allowed": true})),
            "/warn" => review(
                &request,
                json!({
                "allowed": true, "warnings": ["careful", "two\nlines"],
                "auditAnnotations": {"why": "because", "not valid!": "x"}}),
            ),
            "/deny" => review(
                &request,
                json!({
                "allowed": false, "warnings": ["really"],
                "status": {"code": 422, "reason": "Invalid", "message": "not today"}}),
            ),
            "/count" => {
                let n = labels["count"].as_str().map_or(0, |n| n.parse::<u32>().unwrap()) + 1;
                let labels = json!({"count": n.to_string()});
                patched(
                    &request,
                    json!([{"op": "add", "path": "/metadata/labels", "value": labels}]),
                )
            }
            "/once" if labels.is_null() => {
                let labels = json!({"once": "yes"});
                patched(
                    &request,
                    json!([{"op": "add", "path": "/metadata/labels", "value": labels}]),
                )
            }
            "/once" => review(&request, json!({"allowed": true})),
            "/test" => patched(&request, json!([{"op": "test", "path": "/data/x", "value": "2"}])),
            "/kind" => {
                patched(&request, json!([{"op": "replace", "path": "/kind", "value": "Pod"}]))
            }
            "/noise" => patched(&request, json!([{"op": "add", "path": "/extra", "value": 1}])),
            "/scale" => {
                patched(&request, json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]))
            }
            "/type" => review(&request, json!({"allowed": true, "patch": STANDARD.encode("[]")})),
            "/uid" => (
                200,
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": "x", "allowed": true}})
                .to_string(),
            ),
            "/garbage" => (200, "<html>".to_owned()),
            "/empty" => (200, String::new()),
            "/redirect" => (302, String::new()),
            "/huge" => (200, " ".repeat((16 << 20) + 1)),
            "/no-patch" => review(
                &request,
                json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("[{")}),
            ),
            "/large" => patched(
                &request,
                json!([{"op": "add", "path": "/data/y", "value": "y".repeat(2 << 20)}]),
            ),
            "/slow" => (0, String::new()),
            _ => (500, "on fire".to_owned()),
        }
    };
    (ca.serve_raw(answer).await, reviews)
}
const FAILED: &str = "500 Internal error occurred: failed calling webhook";

// ---- webhooks from Rust functions

async fn inject(mut pod: Pod, _call: Call) -> Result<Pod, Refusal> {
    let spec = pod.spec.get_or_insert_default();
    if !spec.containers.iter().any(|container| container.name == "sidecar") {
        let image = Some("proxy:1".to_owned());
        spec.containers.push(Container { name: "sidecar".into(), image, ..Container::default() });
    }
    Ok(pod)
}
async fn refuse_host_network(change: Change<Pod>, call: Call) -> Result<(), Refusal> {
    let spec = change.after().and_then(|pod| pod.spec.as_ref());
    if spec.and_then(|spec| spec.host_network) == Some(true) {
        return Err(Refusal::denied("host network is not allowed"));
    }
    call.warn("pods are seldom created by hand");
    Ok(())
}

#[tokio::test]
async fn functions_inject_a_container_and_refuse_pods() {
    let webhooks =
        Webhooks::builder().mutate(inject).validate(refuse_host_network).build().unwrap();
    let ca = Ca::new();
    let (hooks, (probe, _)) = (ca.serve(webhooks).await, server(&ca).await);
    with_user(plane(), async |user, _| {
        let mutating = [hook("inject", hooks.config("/mutate--v1-pod"), &["pods"])];
        configure(&user, &probe, MUTATING, "inject", &mutating).await;
        let validating = [hook("check", hooks.config("/validate--v1-pod"), &["pods"])];
        configure(&user, &probe, VALIDATING, "check", &validating).await;

        let made = user.send("POST", PODS, &pod("a")).await;
        assert_eq!(made.warnings, ["pods are seldom created by hand"]);
        let made = made.ok();
        let injected = &made["spec"]["containers"][1];
        // The container has the API's defaults, and is owned by nobody.
        assert_eq!(
            (&injected["name"], &injected["image"], &injected["imagePullPolicy"]),
            (&json!("sidecar"), &json!("proxy:1"), &json!("IfNotPresent"))
        );
        assert!(!made["metadata"]["managedFields"].to_string().contains("sidecar"));
        assert!(made["metadata"]["managedFields"].to_string().contains("main"));

        let mut host = pod("b");
        host["spec"]["hostNetwork"] = true.into();
        let refused = user.send("POST", PODS, &host).await;
        assert_eq!(
            refused.shown(),
            "403 admission webhook \"check.example.com\" denied the request: host network is not allowed"
        );
        assert!(user.send("GET", &format!("{PODS}/b"), &Value::Null).await.code == 404);
    })
    .await;
}

#[tokio::test]
async fn a_review_has_every_field_of_the_request() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let all = |name: &str| hook(name, hooks.config("/allow"), &["*/*"]);
        configure(&user, &hooks, MUTATING, "m", &[all("m")]).await;
        configure(&user, &hooks, VALIDATING, "v", &[all("v")]).await;
        reviews.take();
        let path = format!("{MAPS}?fieldManager=me&dryRun=All");
        let mut generated = map("");
        generated["metadata"] = json!({"generateName": "a-"});
        user.create(&path, &generated).await;
        let taken = reviews.take();
        let [(_, mutating), (_, validating)] = &taken[..] else { panic!("{taken:?}") };
        let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
        let expected = json!({
            "uid": mutating["uid"], "kind": kind, "requestKind": kind, "resource": resource,
            "requestResource": resource, "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["system:masters", "system:authenticated"]},
            "object": mutating["object"], "oldObject": null, "dryRun": true,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1",
                "fieldManager": "me", "dryRun": ["All"]},
        });
        assert_eq!(*mutating, expected);
        // The name, the uid and the time are given after the mutating webhooks.
        let object = &mutating["object"];
        assert_eq!(
            (&object["metadata"]["uid"], &object["metadata"]["name"], &object["data"]),
            (&Value::Null, &Value::Null, &json!({"x": "1"}))
        );
        assert_eq!(object["metadata"]["managedFields"][0]["manager"], "me");
        assert!(validating["name"].as_str().unwrap().starts_with("a-"));
        assert!(validating["object"]["metadata"]["uid"].is_string());
        assert_ne!(validating["uid"], mutating["uid"]);

        let made = user.create(MAPS, &map("b")).await;
        reviews.take();
        let b = format!("{MAPS}/b");
        user.send("PATCH", &b, &json!({"data": {"x": "2"}})).await.ok();
        for (_, request) in reviews.take() {
            assert_eq!((&request["operation"], &request["name"]), (&json!("UPDATE"), &json!("b")));
            assert_eq!(request["options"]["kind"], "UpdateOptions");
            assert_eq!(request["object"]["data"], json!({"x": "2"}));
            assert_eq!(request["oldObject"]["data"], json!({"x": "1"}));
            let version = &request["oldObject"]["metadata"]["resourceVersion"];
            assert_eq!(*version, made["metadata"]["resourceVersion"]);
        }
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": "Background"});
        user.send("DELETE", &b, &options).await.ok();
        let taken = reviews.take();
        assert_eq!(taken.len(), 2);
        for (_, request) in taken {
            assert_eq!(
                (&request["operation"], &request["object"]),
                (&json!("DELETE"), &Value::Null)
            );
            assert_eq!(request["oldObject"]["data"], json!({"x": "2"}));
            assert_eq!(request["options"]["propagationPolicy"], "Background");
        }
        // One review per object of a collection, without a name.
        user.create(MAPS, &map("c")).await;
        user.create(MAPS, &map("d")).await;
        reviews.take();
        user.send("DELETE", MAPS, &Value::Null).await.ok();
        let taken = reviews.take();
        assert_eq!(taken.len(), 4);
        assert!(taken.iter().all(|(_, request)| request["name"].is_null()));
        // Configurations are never sent.
        user.send("DELETE", &format!("{VALIDATING}/v"), &Value::Null).await.ok();
        assert!(reviews.take().is_empty());
    })
    .await;
}

#[tokio::test]
async fn failures_follow_the_failure_policy_and_refusals_do_not() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    let audit = AuditQueue::new(1000);
    with_user(plane().audit(audit.clone()), async |user, _| {
        // Held, so that no other program gets the port, and not listening.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = silent.local_addr().unwrap();
        let gone = json!({"url": format!("https://{dead}/gone"), "caBundle": hooks.bundle});
        let mut wrong_ca = hooks.config("/allow");
        wrong_ca["caBundle"] = Ca::new().bundle().into();
        let service = json!({"service": {"name": "svc", "namespace": "default", "path": "/p"},
            "caBundle": hooks.bundle});
        let mut cases = vec![
            (gone, format!("failed to call webhook: Post \"https://{dead}/gone?timeout=30s\": dial tcp {dead}: connect: connection refused")),
            (wrong_ca, format!("failed to call webhook: Post \"{}?timeout=30s\": tls: failed to verify certificate: x509: certificate signed by unknown authority", hooks.url("/allow"))),
            (service, "failed to call webhook: Post \"https://svc.default.svc:443/p?timeout=30s\": service \"svc\" not found".to_owned()),
        ];
        for (path, text) in [
            ("/slow", format!("failed to call webhook: Post \"{}?timeout=1s\": context deadline exceeded", hooks.url("/slow"))),
            ("/fire", "failed to call webhook: an error on the server (\"on fire\") has prevented the request from succeeding".to_owned()),
            ("/garbage", "failed to call webhook: couldn't get version/kind; json parse error: ".to_owned()),
            ("/type", "received invalid webhook response: webhook returned response.patch but not response.patchType".to_owned()),
            ("/uid", "received invalid webhook response: expected response.uid=".to_owned()),
            ("/redirect", "failed to call webhook: the server responded with the status code 302 but did not return more information".to_owned()),
            ("/empty", "failed to call webhook: 0-length response with status code: 200 and content type: ".to_owned()),
            ("/huge", "failed to call webhook: the response is larger than 16777216 bytes".to_owned()),
            ("/no-patch", String::new()),
        ] {
            cases.push((hooks.config(path), text));
        }
        for (n, (config, text)) in cases.into_iter().enumerate() {
            let name = format!("c{n}");
            let mut closed = hook(&name, config, &["configmaps"]);
            // Only one of them waits for the end of its time.
            let is_slow = text.contains("context deadline exceeded");
            closed["timeoutSeconds"] = if is_slow { 1.into() } else { 30.into() };
            let mut open = closed.clone();
            closed["objectSelector"] = json!({"matchLabels": {"policy": "fail"}});
            open["name"] = format!("open-{name}.example.com").into();
            open["failurePolicy"] = "Ignore".into();
            open["objectSelector"] = json!({"matchLabels": {"policy": "ignore"}});
            configure(&user, &hooks, MUTATING, &name, &[closed, open]).await;
            let labelled = |policy: &str| {
                let mut object = map("a");
                object["metadata"]["labels"] = json!({"policy": policy});
                object
            };
            let dry = format!("{MAPS}?dryRun=All");
            let refused = user.send("POST", &dry, &labelled("fail")).await;
            let shown = refused.shown();
            assert!(shown.starts_with(&format!("{FAILED} \"{name}.example.com\": {text}")), "{shown}");
            assert_eq!(refused.body["reason"], "InternalError");
            let cause = refused.body["details"]["causes"][0]["message"].as_str().unwrap();
            assert!(cause.starts_with("failed calling webhook"), "{cause}");
            user.create(&dry, &labelled("ignore")).await;
            user.send("DELETE", &format!("{MUTATING}/{name}"), &Value::Null).await.ok();
        }
        // Refusals and patches that do not apply are errors with both policies.
        for (path, shown) in [
            ("/deny", "422 admission webhook \"d.example.com\" denied the request: not today"),
            ("/test", "500 Internal error occurred: testing value /data/x failed: test failed"),
            ("/kind", "500 Internal error occurred: admission webhook \"d.example.com\" changed kind from \"ConfigMap\" to \"Pod\""),
            // More than a ConfigMap may have.
            ("/large", "422 ConfigMap \"a\" is invalid: []: Too long: may not be more than 1048576 bytes"),
        ] {
            let mut refuses = hook("d", hooks.config(path), &["configmaps"]);
            refuses["failurePolicy"] = "Ignore".into();
            configure(&user, &hooks, MUTATING, "d", &[refuses]).await;
            let refused = user.send("POST", MAPS, &map("a")).await;
            assert_eq!(refused.shown(), shown);
            if path == "/deny" {
                assert_eq!(refused.warnings, ["really"]);
                assert_eq!(refused.body["reason"], "Invalid");
            }
            user.send("DELETE", &format!("{MUTATING}/d"), &Value::Null).await.ok();
        }
        reviews.take();
    })
    .await;
    let mut opened = 0;
    while let Some(event) = futures::FutureExt::now_or_never(audit.next()) {
        let annotations = event.request.audit_annotations();
        let key = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1";
        opened +=
            usize::from(event.stage == Stage::ResponseComplete && annotations.contains_key(key));
    }
    assert_eq!(opened, 12);
}

#[tokio::test]
async fn a_refused_update_and_one_without_effect_are_reviewed_once() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        user.create(MAPS, &map("a")).await;
        let mut refuses = hook("deny", hooks.config("/deny"), &["configmaps"]);
        refuses["matchConditions"] =
            json!([{"name": "two", "expression": "object != null && object.data.x == '2'"}]);
        let allows = hook("allow", hooks.config("/allow"), &["configmaps"]);
        configure(&user, &hooks, VALIDATING, "v", &[refuses, allows]).await;
        reviews.take();
        let path = format!("{MAPS}/a");
        let same = user.send("PATCH", &path, &json!({"data": {"x": "1"}})).await.ok();
        assert_eq!(reviews.take().len(), 1);
        let refused = user.send("PATCH", &path, &json!({"data": {"x": "2"}})).await;
        assert_eq!(refused.code, 422);
        let mut paths: Vec<String> = reviews.take().into_iter().map(|(path, _)| path).collect();
        paths.sort();
        assert_eq!(paths, ["/allow", "/deny"]);
        let now = user.send("GET", &path, &Value::Null).await.ok();
        assert_eq!(now["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
    })
    .await;
}

#[tokio::test]
async fn mutating_webhooks_see_earlier_patches_and_are_reinvoked_if_needed() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    let audit = AuditQueue::new(1000);
    with_user(plane().audit(audit.clone()), async |user, _| {
        let count = |name: &str, policy: &str| {
            let mut hook = hook(name, hooks.config("/count"), &["configmaps"]);
            hook["reinvocationPolicy"] = policy.into();
            hook["rules"][0]["operations"] = json!(["CREATE"]);
            hook
        };
        // Two that change the object on every call run A B A B; one alone runs once.
        let both = [count("a", "IfNeeded"), count("b", "IfNeeded")];
        configure(&user, &hooks, MUTATING, "both", &both).await;
        reviews.take();
        let made = user.create(MAPS, &map("m")).await;
        assert_eq!(made["metadata"]["labels"], json!({"count": "4"}));
        assert_eq!(reviews.take().len(), 4);
        user.send("DELETE", &format!("{MUTATING}/both"), &Value::Null).await.ok();
        configure(&user, &hooks, MUTATING, "one", &[count("a", "IfNeeded")]).await;
        let made = user.create(MAPS, &map("n")).await;
        assert_eq!(made["metadata"]["labels"], json!({"count": "1"}));
        user.send("DELETE", &format!("{MUTATING}/one"), &Value::Null).await.ok();
        // `Never` and a change of a later one.
        let never = [count("a", "Never"), count("b", "Never")];
        configure(&user, &hooks, MUTATING, "never", &never).await;
        let made = user.create(MAPS, &map("o")).await;
        assert_eq!(made["metadata"]["labels"], json!({"count": "2"}));
    })
    .await;
    let mut annotations = Vec::new();
    while let Some(event) = futures::FutureExt::now_or_never(audit.next()) {
        if event.stage == Stage::ResponseComplete {
            annotations.push(event.request.audit_annotations());
        }
    }
    let key = "mutation.webhook.admission.k8s.io/round_1_index_1";
    let second = annotations.iter().find_map(|a| a.get(key)).unwrap();
    let text = r#"{"configuration":"both","webhook":"b.example.com","mutated":true}"#;
    assert_eq!(second, text);
    let key = "patch.webhook.admission.k8s.io/round_0_index_0";
    let patch = annotations.iter().find_map(|a| a.get(key)).unwrap();
    let text = r#"{"configuration":"both","webhook":"a.example.com","patch":[{"op":"add","path":"/metadata/labels","value":{"count":"1"}}],"patchType":"JSONPatch"}"#;
    assert_eq!(patch, text);
}

#[tokio::test]
async fn a_webhook_is_told_how_long_the_request_waits() {
    let ca = Ca::new();
    let (hooks, _) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let mut config = hooks.config("/allow");
        config["caBundle"] = Ca::new().bundle().into();
        let mut hook = hook("h", config, &["configmaps"]);
        hook["timeoutSeconds"] = 20.into();
        configure(&user, &hooks, VALIDATING, "v", &[hook]).await;
        for (query, seconds) in [("?timeout=7s", 7), ("?timeout=25s", 20), ("", 20)] {
            let failed = user.send("POST", &format!("{MAPS}{query}"), &map("a")).await.shown();
            assert!(failed.contains(&format!("/allow?timeout={seconds}s\"")), "{failed}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_conditions_of_a_webhook_share_a_budget() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        // Costs between 250,000 and 1,000,000, so that one alone is allowed.
        let nested = "lists.range(250).all(a, lists.range(250).all(b, a + b >= 0))";
        let costs = |name: &str, n_conditions: usize| {
            let mut hook = hook(name, hooks.config("/allow"), &["configmaps"]);
            let condition = |n| json!({"name": format!("c{n}"), "expression": nested});
            hook["matchConditions"] = (0..n_conditions).map(condition).collect();
            hook
        };
        configure(&user, &hooks, VALIDATING, "within", &[costs("w", 2)]).await;
        user.create(MAPS, &map("a")).await;
        assert_eq!(reviews.take().len(), 1);
        let mut skipped = costs("s", 10);
        skipped["failurePolicy"] = "Ignore".into();
        configure(&user, &hooks, VALIDATING, "open", &[skipped]).await;
        user.create(MAPS, &map("b")).await;
        assert_eq!(reviews.take().len(), 1);
        configure(&user, &hooks, VALIDATING, "closed", &[costs("c", 10)]).await;
        let out = "validation failed due to running out of cost budget, no further validation rules will be run";
        let refused = user.send("POST", MAPS, &map("c")).await.shown();
        assert_eq!(refused, format!("403 configmaps \"c\" is forbidden: {out}"));
    })
    .await;
}

#[tokio::test]
async fn selectors_conditions_scopes_and_dry_runs_decide_who_is_called() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    let audit = AuditQueue::new(1000);
    with_user(plane().audit(audit.clone()), async |user, _| {
        let mut labelled = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "labels": {"team": "a"}}});
        user.create("/api/v1/namespaces", &labelled).await;
        let allow = |name: &str| hook(name, hooks.config("/warn"), &["*"]);
        let mut by_namespace = allow("namespace");
        by_namespace["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
        let mut by_condition = allow("condition");
        by_condition["matchConditions"] = json!([
            {"name": "who", "expression": "request.userInfo.username == 'alice' && !request.dryRun"},
            {"name": "may", "expression":
                "authorizer.group('').resource('secrets').namespace('shop').check('get').allowed()"},
            {"name": "what", "expression": "has(object.data) && 'y' in object.data"},
        ]);
        let mut cluster = allow("cluster");
        cluster["rules"][0]["scope"] = "Cluster".into();
        let webhooks = [by_namespace, by_condition, cluster];
        configure(&user, &hooks, VALIDATING, "v", &webhooks).await;
        let hooks_of = |reviews: &Reviews| reviews.take().len();
        reviews.take();
        user.create(MAPS, &map("a")).await;
        assert_eq!(hooks_of(&reviews), 0);
        let mut with_y = map("b");
        with_y["data"] = json!({"y": "1"});
        let made = user.send("POST", MAPS, &with_y).await;
        // Texts with control characters are dropped.
        assert_eq!(made.warnings, ["careful"]);
        made.ok();
        assert_eq!(hooks_of(&reviews), 1);
        user.create("/api/v1/namespaces/shop/configmaps", &map("a")).await;
        assert_eq!(hooks_of(&reviews), 1);
        // A Namespace has its own labels, and is cluster-scoped.
        labelled["metadata"]["name"] = "other".into();
        user.create("/api/v1/namespaces", &labelled).await;
        let taken = reviews.take();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].1["namespace"], "other");

        // An expression that fails is an error, or skips the webhook.
        let mut fails = allow("fails");
        fails["matchConditions"] = json!([{"name": "c", "expression": "object.absent == 'x'"}]);
        let mut skips = fails.clone();
        skips["name"] = "skips.example.com".into();
        skips["failurePolicy"] = "Ignore".into();
        fails["objectSelector"] = json!({"matchLabels": {"policy": "fail"}});
        configure(&user, &hooks, VALIDATING, "w", &[fails, skips]).await;
        let mut object = map("c");
        object["metadata"]["labels"] = json!({"policy": "fail"});
        assert_eq!(
            user.send("POST", MAPS, &object).await.shown(),
            "403 configmaps \"c\" is forbidden: expression 'object.absent == 'x'' resulted in error: no such key: absent"
        );
        user.create(MAPS, &map("c")).await;
    })
    .await;
    let mut noted = None;
    while let Some(event) = futures::FutureExt::now_or_never(audit.next()) {
        let annotations = event.request.audit_annotations();
        noted = noted.or(annotations.get("condition.example.com/why").cloned());
        assert!(!annotations.contains_key("condition.example.com/not valid!"));
    }
    assert_eq!(noted.as_deref(), Some("because"));
}

#[tokio::test]
async fn a_service_is_found_by_its_endpoints_and_a_new_bundle_is_used_at_once() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let service = json!({"service": {"name": "hook", "namespace": "default", "port": 8443,
            "path": "/allow"}});
        let mut config = service.clone();
        config["caBundle"] = Ca::new().bundle().into();
        configure(&user, &hooks, VALIDATING, "v", &[hook("s", config, &["configmaps"])]).await;
        let failed = user.send("POST", MAPS, &map("a")).await.shown();
        assert!(failed.ends_with("?timeout=10s\": service \"hook\" not found"), "{failed}");
        // An ExternalName reaches a local server; slices refuse loopback addresses.
        let external = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        user.create("/api/v1/namespaces/default/services", &external).await;
        let path = format!("{VALIDATING}/v");
        let mut stored = user.send("GET", &path, &Value::Null).await.ok();
        stored["webhooks"][0]["clientConfig"]["service"]["port"] = hooks.address.port().into();
        let stored = user.send("PUT", &path, &stored).await.ok();
        let unknown = |answer: &Answered| answer.shown().contains("signed by unknown authority");
        user.until("POST", MAPS, &map("a"), unknown).await;
        assert!(reviews.take().is_empty());
        let mut trusted = stored;
        trusted["webhooks"][0]["clientConfig"]["caBundle"] = hooks.bundle.clone().into();
        user.send("PUT", &path, &trusted).await.ok();
        user.until("POST", MAPS, &map("a"), |answer| answer.code == 201).await;
        assert_eq!(reviews.take().len(), 1);
    })
    .await;
}
