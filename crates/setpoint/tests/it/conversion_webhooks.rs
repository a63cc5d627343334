//! Conversion webhooks: a control plane calls real HTTPS servers.

use crate::https::{Answered, Ca, Hooks, Reviews, User, with_user};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::CustomResource;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::object::GroupVersionKind;
use setpoint::webhook::{KindConversion, Refusal, Webhooks};
use std::sync::Arc;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/ex.io/v1/namespaces/default/foos";
const V2: &str = "/apis/ex.io/v2/namespaces/default/foos";

/// The hub. The field is `size` in v1.
#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(group = "ex.io", version = "v2", kind = "Foo", namespaced)]
struct FooSpec {
    length: i64,
}

fn conversion() -> Webhooks {
    let to_hub = |mut object: Value| {
        let size = object["spec"]["size"].as_i64().unwrap_or_default();
        if size == 13 {
            return Err(Refusal::denied("thirteen is not converted"));
        }
        object["spec"] = json!({"length": size});
        object["apiVersion"] = "ex.io/v2".into();
        serde_json::from_value::<Foo>(object).map_err(Refusal::from)
    };
    let from_hub = |hub: Foo| {
        let size = hub.spec.length;
        Ok(json!({"metadata": hub.metadata, "spec": {"size": size}}))
    };
    let v1 = GroupVersionKind::new("ex.io", "v1", "Foo");
    let kind = KindConversion::hub::<Foo>().spoke_of(v1, to_hub, from_hub).build().unwrap();
    Webhooks::builder().convert(kind).build().unwrap()
}

fn definition(config: Value, storage: &str) -> Value {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec":
                {"type": "object", "properties": {field: {"type": "integer"}}}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", "size"), version("v2", "length")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": config, "conversionReviewVersions": ["v1", "v1beta1"]}},
        },
    })
}
fn foo(version: &str, name: &str, size: i64) -> Value {
    let field = if version == "v1" { "size" } else { "length" };
    json!({"apiVersion": format!("ex.io/{version}"), "kind": "Foo", "metadata": {"name": name},
        "spec": {field: size}})
}
async fn define(user: &User, config: Value) {
    user.create(DEFINITIONS, &definition(config, "v1")).await;
    user.until("GET", V1, &Value::Null, |answer| answer.code == 200).await;
}
/// Changes the definition and waits until requests see it.
async fn redefine(
    user: &User,
    change: impl Fn(&mut Value),
    path: &str,
    is_done: impl Fn(&Answered) -> bool,
) {
    let own = format!("{DEFINITIONS}/foos.ex.io");
    let mut stored = user.send("GET", &own, &Value::Null).await.ok();
    change(&mut stored);
    user.send("PUT", &own, &stored).await.ok();
    user.until("GET", path, &Value::Null, is_done).await;
}

#[tokio::test]
async fn functions_convert_reads_writes_lists_and_applies() {
    let ca = Ca::new();
    let hooks = ca.serve(conversion()).await;
    with_user(ControlPlane::builder(), async |user, _| {
        define(&user, hooks.config("/convert")).await;
        let made = user.create(V2, &foo("v2", "a", 1)).await;
        assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("ex.io/v2"), &json!({"length": 1})));
        user.create(V1, &foo("v1", "b", 2)).await;
        let a = |path: &str| format!("{path}/a");
        let as_v1 = user.send("GET", &a(V1), &Value::Null).await.ok();
        assert_eq!(as_v1["spec"], json!({"size": 1}));
        assert_eq!(as_v1["metadata"]["uid"], made["metadata"]["uid"]);
        let list = user.send("GET", V2, &Value::Null).await.ok();
        let lengths: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|foo| &foo["spec"]["length"]).collect();
        assert_eq!(lengths, [1, 2]);
        user.send("PATCH", &a(V2), &json!({"spec": {"length": 5}})).await.ok();
        let as_v1 = user.send("GET", &a(V1), &Value::Null).await.ok();
        assert_eq!((&as_v1["spec"], &as_v1["metadata"]["generation"]), (&json!({"size": 5}), &json!(2)));
        let apply = format!("{}?fieldManager=me&force=true", a(V2));
        let applied = user.send("APPLY", &apply, &foo("v2", "a", 6)).await.ok();
        assert_eq!(applied["spec"], json!({"length": 6}));
        let again = user.send("APPLY", &apply, &foo("v2", "a", 6)).await.ok();
        assert_eq!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"]);

        // The storage version changes: stored objects are converted on read until they are written.
        let to_v2 = |definition: &mut Value| {
            definition["spec"]["versions"][0]["storage"] = false.into();
            definition["spec"]["versions"][1]["storage"] = true.into();
        };
        redefine(&user, to_v2, &format!("{DEFINITIONS}/foos.ex.io"), |answer| {
            answer.body["status"]["storedVersions"] == json!(["v1", "v2"])
        })
        .await;
        user.send("PATCH", &a(V1), &json!({"spec": {"size": 7}})).await.ok();
        for (path, spec) in [(V1, json!({"size": 7})), (V2, json!({"length": 7}))] {
            assert_eq!(user.send("GET", &a(path), &Value::Null).await.ok()["spec"], spec);
        }
        let b = user.send("GET", &format!("{V2}/b"), &Value::Null).await.ok();
        assert_eq!(b["spec"], json!({"length": 2}));

        // A refusal is the answer of exactly those who need the conversion.
        user.create(V2, &foo("v2", "unlucky", 12)).await;
        let unlucky = foo("v1", "thirteen", 13);
        let refused = user.send("POST", V1, &unlucky).await;
        assert_eq!(
            refused.shown(),
            "500 conversion webhook for ex.io/v1, Kind=Foo failed: object 0: thirteen is not converted"
        );
        assert_eq!((&refused.body["reason"], &refused.body["details"]), (&Value::Null, &Value::Null));
        user.send("GET", &a(V1), &Value::Null).await.ok();
    })
    .await;
}

/// How the raw server answers.
type Spoil = fn(&Value, &mut Value) -> Option<(u16, String)>;

async fn raw(ca: &Ca, spoil: Arc<Mutex<Option<Spoil>>>, reviews: Reviews) -> Hooks {
    let answer = move |path: &str, review: Value| {
        reviews.add(path, &review);
        let request = &review["request"];
        let desired = request["desiredAPIVersion"].clone();
        let convert = |object: &Value| {
            let mut object = object.clone();
            let spec = object["spec"].clone();
            object["spec"] = match desired.as_str() {
                Some("ex.io/v2") => json!({"length": spec["size"]}),
                _ => json!({"size": spec["length"]}),
            };
            object["apiVersion"] = desired.clone();
            object
        };
        let objects: Vec<Value> =
            request["objects"].as_array().unwrap().iter().map(convert).collect();
        let mut response = json!({"uid": request["uid"], "convertedObjects": objects,
            "result": {"status": "Success"}});
        if let Some(spoil) = *spoil.lock()
            && let Some(answer) = spoil(&review, &mut response)
        {
            return answer;
        }
        let review = json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"],
            "response": response});
        (200, review.to_string())
    };
    ca.serve_raw(answer).await
}

#[tokio::test]
async fn wrong_answers_and_dead_servers_fail_the_requests_that_need_them() {
    let (ca, spoil, reviews) = (Ca::new(), Arc::new(Mutex::new(None)), Reviews::default());
    let hooks = raw(&ca, spoil.clone(), reviews.clone()).await;
    with_user(ControlPlane::builder(), async |user, _| {
        define(&user, hooks.config("/c")).await;
        for n in 0..12 {
            user.create(V1, &foo("v1", &format!("a{n}"), n)).await;
        }
        assert!(reviews.take().is_empty());
        let failed = "500 conversion webhook for ex.io/v1, Kind=Foo ";
        let cases: [(Spoil, &str); 9] = [
            (|_, _| Some((500, "on fire".into())), "failed: an error on the server (\"on fire\") has prevented the request from succeeding"),
            (|_, _| Some((200, "<html>".into())), "failed: couldn't get version/kind; json parse error: "),
            (|_, r| { r["uid"] = "x".into(); None }, "failed: expected response.uid="),
            (|_, r| { *r = Value::Null; None }, "failed: no response provided"),
            (|_, r| { r["result"] = json!({"status": "Failed"}); None }, "failed: response.result.status was 'Failed', not 'Success'"),
            (|_, r| { r["convertedObjects"] = json!([]); None }, "returned 0 objects, expected 1"),
            (|_, r| { r["convertedObjects"][0]["kind"] = "Bar".into(); None }, "returned invalid object at index 0: invalid kind (expected Foo, received Bar)"),
            (|_, r| { r["convertedObjects"][0]["metadata"]["name"] = "z".into(); None }, "returned invalid object: must have the same name: "),
            (|_, r| { r["convertedObjects"][0]["metadata"]["labels"] = json!({"?": "x"}); None }, "returned invalid metadata: metadata.labels: Invalid value: \"?\": "),
        ];
        for (n, (answer, text)) in cases.into_iter().enumerate() {
            *spoil.lock() = Some(answer);
            let refused = user.send("GET", &format!("{V2}/a{n}"), &Value::Null).await;
            assert!(refused.shown().starts_with(&format!("{failed}{text}")), "{}", refused.shown());
            // The stored version needs no conversion.
            user.send("GET", &format!("{V1}/a{n}"), &Value::Null).await.ok();
        }
        // Only labels and annotations may change.
        *spoil.lock() = Some(|_, response| {
            let metadata = &mut response["convertedObjects"][0]["metadata"];
            metadata["labels"] = json!({"a": "b"});
            metadata["finalizers"] = json!(["x/y"]);
            None
        });
        let changed = user.send("GET", &format!("{V2}/a10"), &Value::Null).await.ok();
        let metadata = &changed["metadata"];
        assert_eq!((&metadata["labels"], &metadata["finalizers"]), (&json!({"a": "b"}), &Value::Null));
        *spoil.lock() = None;
        reviews.take();
        let list = user.send("GET", V2, &Value::Null).await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), 12);
        let n_objects: usize = reviews
            .take()
            .iter()
            .map(|(_, request)| request["objects"].as_array().unwrap().len())
            .sum();
        // Failures are not remembered, the one success is.
        assert!((11..=12).contains(&n_objects), "{n_objects}");

        // A wrong CA fails the next conversions; the right one repairs them.
        let bundle = |bundle: String| {
            move |definition: &mut Value| {
                let webhook = &mut definition["spec"]["conversion"]["webhook"];
                webhook["clientConfig"]["caBundle"] = bundle.clone().into();
            }
        };
        let path = format!("{V2}/a11");
        redefine(&user, bundle(Ca::new().bundle()), &path, |answer| {
            answer.shown().ends_with("x509: certificate signed by unknown authority")
        })
        .await;
        user.send("GET", &format!("{V1}/a11"), &Value::Null).await.ok();
        redefine(&user, bundle(hooks.bundle.clone()), &path, |answer| answer.code == 200).await;
        // Nothing listens there.
        let elsewhere = |definition: &mut Value| {
            let config = &mut definition["spec"]["conversion"]["webhook"]["clientConfig"];
            *config = json!({"service": {"namespace": "default", "name": "nosvc", "port": 443}});
        };
        redefine(&user, elsewhere, &path, |answer| {
            answer.shown()
                == format!("{failed}failed: Post \"https://nosvc.default.svc:443/?timeout=30s\": service \"nosvc\" not found")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn admission_webhooks_get_the_version_of_their_rule() {
    let ca = Ca::new();
    let conversions = ca.serve(conversion()).await;
    let reviews = Reviews::default();
    let seen = reviews.clone();
    let answer = move |path: &str, review: Value| {
        seen.add(path, &review);
        let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
        if path == "/grow" && review["request"]["object"]["spec"]["size"] == 3 {
            let patch = json!([{"op": "replace", "path": "/spec/size", "value": 30}]);
            response["patch"] = STANDARD.encode(patch.to_string()).into();
            response["patchType"] = "JSONPatch".into();
        }
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": response});
        (200, review.to_string())
    };
    let hooks = ca.serve_raw(answer).await;
    with_user(ControlPlane::builder(), async |user, _| {
        define(&user, conversions.config("/convert")).await;
        let configuration = |kind: &str, path: &str, policy: &str| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "foos"},
                "webhooks": [{
                    "name": "foos.example.com", "clientConfig": hooks.config(path),
                    "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "matchPolicy": policy,
                    "rules": [{"operations": ["*"], "apiGroups": ["ex.io"],
                        "apiVersions": ["v1"], "resources": ["foos"]}],
                }],
            })
        };
        let path = "/apis/admissionregistration.k8s.io/v1";
        let mutating = configuration("MutatingWebhookConfiguration", "/grow", "Equivalent");
        user.create(&format!("{path}/mutatingwebhookconfigurations"), &mutating).await;
        let exact = configuration("ValidatingWebhookConfiguration", "/exact", "Exact");
        user.create(&format!("{path}/validatingwebhookconfigurations"), &exact).await;
        let probe = format!("{V1}?dryRun=All");
        let is_called = |_: &Answered| reviews.take().iter().any(|(path, _)| path == "/exact");
        user.until("POST", &probe, &foo("v1", "probe", 1), is_called).await;
        let made = user.create(V2, &foo("v2", "a", 3)).await;
        assert_eq!(made["spec"], json!({"length": 30}));
        let taken = reviews.take();
        let [(path, request)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(path, "/grow");
        let kind = |version: &str| json!({"group": "ex.io", "version": version, "kind": "Foo"});
        assert_eq!((&request["kind"], &request["requestKind"]), (&kind("v1"), &kind("v2")));
        assert_eq!(request["resource"]["version"], "v1");
        assert_eq!(
            (&request["object"]["apiVersion"], &request["object"]["spec"]),
            (&json!("ex.io/v1"), &json!({"size": 3}))
        );
        let stored = user.send("GET", &format!("{V1}/a"), &Value::Null).await.ok();
        assert_eq!(stored["spec"], json!({"size": 30}));
    })
    .await;
}
