//! Mutators, validators, chains, raw handlers.

use crate::figures::Figures;
use crate::review::{admission, ask, patch, tree};
use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use kube_core::DynamicObject;
use serde_json::{Value, json};
use setpoint_object::status::{ApiError, Reason};
use setpoint_object::{GroupVersionKind, GroupVersionResource};
use setpoint_webhook::{
    AdmissionHandler as _, AdmissionRequest, AdmissionResponse, Call, Chain, Change, Mutating,
    Operation, Refusal, RegisterError, Validating, Webhooks,
};
use std::sync::Arc;

const MUTATE: &str = "/mutate--v1-configmap";
const VALIDATE: &str = "/validate--v1-configmap";

async fn paint(mut map: ConfigMap, _: Call) -> Result<ConfigMap, Refusal> {
    map.data.get_or_insert_default().entry("color".into()).or_insert("blue".into());
    Ok(map)
}

fn painting() -> Webhooks {
    Webhooks::builder().mutate(paint).build().unwrap()
}

/// A map with a field that its type does not know.
fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "later": [1]}, "later": {"x": 1.5}})
}

#[tokio::test]
async fn patch_has_only_the_changes_of_the_mutator_whk_6() {
    let webhooks = painting();
    let response = ask(&webhooks, MUTATE, &admission("CREATE", &map(), &Value::Null)).await;
    assert_eq!(response["allowed"], true);
    let wanted = json!([{"op": "add", "path": "/data", "value": {"color": "blue"}}]);
    assert_eq!(patch(&response), wanted);

    let mut painted = map();
    painted["data"] = json!({"color": "red"});
    let response = ask(&webhooks, MUTATE, &admission("UPDATE", &painted, &map())).await;
    assert_eq!(response, json!({"uid": "u", "allowed": true}));
}

#[tokio::test]
async fn inserted_sidecar_does_not_change_other_containers_whk_6() {
    let inject = async |mut pod: Pod, _: Call| {
        let sidecar = Container { name: "proxy".into(), ..Container::default() };
        pod.spec.get_or_insert_default().containers.insert(0, sidecar);
        Ok(pod)
    };
    let webhooks = Webhooks::builder().mutate(inject).build().unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": null},
    "spec": {"later": {"x": 1}, "containers": [
        {"name": "b", "image": "b", "fromTheFuture": [1]},
        {"name": "c", "resources": {"limits": {"cpu": "1000m"}}, "fromTheFuture": [2]},
    ]}});
    let review = admission("CREATE", &pod, &Value::Null);
    let response = ask(&webhooks, "/mutate--v1-pod", &review).await;
    let mut changed = pod.clone();
    let operations: json_patch::Patch = serde_json::from_value(patch(&response)).unwrap();
    json_patch::patch(&mut changed, &operations).unwrap();
    let mut wanted = pod;
    let containers = wanted["spec"]["containers"].as_array_mut().unwrap();
    containers.insert(0, json!({"name": "proxy"}));
    assert_eq!(changed, wanted);
}

#[tokio::test]
async fn unknown_fields_are_removed_if_configured_whk_6() {
    let mutating = Mutating::<ConfigMap, _>::new(paint).remove_unknown_fields(true);
    let webhooks = Webhooks::builder().admission("/strict", mutating).build().unwrap();
    let response = ask(&webhooks, "/strict", &admission("CREATE", &map(), &Value::Null)).await;
    let mut changed = map();
    let operations: json_patch::Patch = serde_json::from_value(patch(&response)).unwrap();
    json_patch::patch(&mut changed, &operations).unwrap();
    let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"color": "blue"}});
    assert_eq!(changed, wanted);
}

#[tokio::test]
async fn deletion_is_unchanged_and_undecodable_objects_are_refused_whk_6() {
    let webhooks = painting();
    let response = ask(&webhooks, MUTATE, &admission("DELETE", &Value::Null, &map())).await;
    assert_eq!(response, json!({"uid": "u", "allowed": true}));
    let unfit = json!({"metadata": {"name": 7}});
    for object in [&unfit, &Value::Null] {
        let response = ask(&webhooks, MUTATE, &admission("CREATE", object, &Value::Null)).await;
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&false.into(), &400.into())
        );
    }
}

#[tokio::test]
async fn error_is_a_403_or_the_status_it_carries_whk_6() {
    #[derive(Debug, thiserror::Error)]
    #[error("the quota of {0} is used up")]
    struct Spent(&'static str, #[source] ApiError);

    let plain =
        async |_: ConfigMap, _: Call| Err::<ConfigMap, _>(std::io::Error::other("no").into());
    let carried = async |_: ConfigMap, _: Call| {
        let status = ApiError::new(422, Reason::Invalid, "too many");
        Err::<ConfigMap, _>(Spent("anna", status).into())
    };
    let webhooks = Webhooks::builder()
        .admission("/plain", Mutating::new(plain))
        .admission("/carried", Mutating::new(carried))
        .build()
        .unwrap();
    let review = admission("CREATE", &map(), &Value::Null);
    let status = |message: &str, reason: &str, code: u16| json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code});
    let response = ask(&webhooks, "/plain", &review).await;
    assert_eq!(response["status"], status("no", "Forbidden", 403));
    let response = ask(&webhooks, "/carried", &review).await;
    assert_eq!(response["status"], status("too many", "Invalid", 422));
}

#[tokio::test]
async fn validator_receives_the_change_and_warns_in_either_case_whk_7() {
    let validate = async |change: Change<ConfigMap>, call: Call| {
        let color = |map: Option<&ConfigMap>| {
            let map = map.and_then(|map| map.data.as_ref()?.get("color"));
            map.cloned().unwrap_or("none".into())
        };
        let verb = call.request().operation.to_string();
        call.warn(format!("{verb} {} -> {}", color(change.before()), color(change.after())));
        call.annotate("seen", verb);
        match color(change.after()).as_str() {
            "red" => Err(Refusal::denied("red is out")),
            _ => Ok(()),
        }
    };
    let webhooks = Webhooks::builder().validate(validate).build().unwrap();
    let color = |color: &str| json!({"metadata": {"name": "a"}, "data": {"color": color}});
    let none = Value::Null;
    for (verb, object, old, allowed, warned) in [
        ("CREATE", color("blue"), none.clone(), true, "CREATE none -> blue"),
        ("UPDATE", color("red"), color("blue"), false, "UPDATE blue -> red"),
        ("DELETE", none.clone(), color("red"), true, "DELETE red -> none"),
    ] {
        let response = ask(&webhooks, VALIDATE, &admission(verb, &object, &old)).await;
        assert_eq!(response["allowed"], allowed, "{verb}");
        assert_eq!(response["warnings"], json!([warned]));
        assert_eq!(response["auditAnnotations"], json!({"seen": verb}));
    }
    let response =
        ask(&webhooks, VALIDATE, &admission("CONNECT", &json!({"stdin": true}), &none)).await;
    assert_eq!(response, json!({"uid": "u", "allowed": true}));
    // An update without the stored object is rejected, and so is an unknown verb.
    for (verb, old) in [("UPDATE", &none), ("DELETE", &none), ("JUMP", &color("blue"))] {
        let response = ask(&webhooks, VALIDATE, &admission(verb, &color("blue"), old)).await;
        assert_eq!(response["status"]["code"], 400, "{verb}: {response}");
    }
}

#[tokio::test]
async fn panic_is_a_denial_with_the_uid_and_counted_whk_4() {
    let figures = Figures::default();
    let webhooks = Webhooks::builder()
        .metrics(Arc::new(figures.clone()))
        .admission("/late", async |call: Call| -> AdmissionResponse {
            call.warn("before");
            tokio::task::yield_now().await;
            panic!("on fire")
        })
        .admission("/early", |_: Call| -> std::future::Ready<AdmissionResponse> { panic!("{}", 7) })
        .build()
        .unwrap();
    let review = admission("CREATE", &map(), &Value::Null);
    for (path, message, warnings) in [
        ("/late", "panic: on fire [recovered]", json!(["before"])),
        ("/early", "panic: 7 [recovered]", Value::Null),
    ] {
        let response = ask(&webhooks, path, &review).await;
        assert_eq!(response["status"]["code"], 500);
        assert_eq!(response["status"]["message"], message);
        assert_eq!(response["warnings"], warnings);
        assert_eq!(figures.get(&format!("panics {path}")), 1);
        assert_eq!(figures.get(&format!("in flight {path}")), 0);
    }
}

#[tokio::test]
#[should_panic(expected = "on fire")]
async fn panic_unwinds_if_recovery_is_off_whk_4() {
    let burn = async |_: Call| -> AdmissionResponse { panic!("on fire") };
    let webhooks = Webhooks::builder().recover_panics(false).admission("/a", burn).build().unwrap();
    let review = admission("CREATE", &map(), &Value::Null);
    _ = webhooks.handle("/a", review.to_string()).await;
}

#[tokio::test]
async fn chain_joins_patches_and_ends_with_the_first_denial_whk_8() {
    let label = |key: &'static str| {
        Mutating::<ConfigMap, _>::new(move |mut map: ConfigMap, call: Call| async move {
            let n_before = map.metadata.labels.as_ref().map_or(0, |labels| labels.len());
            call.warn(format!("{key} after {n_before}"));
            map.metadata.labels.get_or_insert_default().insert(key.into(), "x".into());
            Ok(map)
        })
    };
    let refuse = Validating::<ConfigMap, _>::new(async |change: Change<ConfigMap>, _: Call| {
        match change.after().and_then(|map| map.metadata.labels.as_ref()).map(|l| l.len()) {
            Some(3..) => Err(Refusal::denied("enough")),
            _ => Ok(()),
        }
    });
    let chain = Chain::new().then(label("a")).then(label("b")).then(refuse).then(label("c"));
    let webhooks = Webhooks::builder().admission("/chain", chain).build().unwrap();
    // Both add `labels` to an object without labels. If the patches were just concatenated, the
    // second would undo the first.
    let response = ask(&webhooks, "/chain", &admission("CREATE", &map(), &Value::Null)).await;
    let mut changed = map();
    let operations: json_patch::Patch = serde_json::from_value(patch(&response)).unwrap();
    json_patch::patch(&mut changed, &operations).unwrap();
    assert_eq!(
        changed["metadata"],
        json!({"name": "a", "later": [1], "labels": {"a": "x", "b": "x", "c": "x"}})
    );
    assert_eq!(response["warnings"], json!(["a after 0", "b after 1", "c after 2"]));

    let mut labelled = map();
    labelled["metadata"]["labels"] = json!({"z": "x"});
    let response = ask(&webhooks, "/chain", &admission("CREATE", &labelled, &Value::Null)).await;
    let (allowed, patch) = (&response["allowed"], &response["patch"]);
    assert_eq!((allowed, patch), (&false.into(), &Value::Null));
    assert_eq!(response["warnings"], json!(["a after 1", "b after 2"]));
}

#[tokio::test]
async fn raw_handler_gets_the_bytes_of_the_request() {
    let echo = async |call: Call| {
        let request = call.request();
        let raw = request.object.clone().unwrap_or_default();
        let seen = format!(
            "{} {} {:?} {} {} {} {}",
            request.kind,
            request.resource.resource,
            request.operation,
            request.user.username,
            request.dry_run,
            request.name,
            String::from_utf8_lossy(&raw),
        );
        AdmissionResponse::allowed().with_warning(seen)
    };
    let webhooks = Webhooks::builder().admission("/", echo).build().unwrap();
    let review = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u",
        "kind":{"group":"g","version":"v","kind":"K"},"resource":{"group":"g","version":"v","resource":"ks"},
        "operation":"CREATE","userInfo":{"username":"anna","groups":null},"dryRun":true,"name":null,
        "object": {"b":1.0,  "a":"\u0041"},"oldObject":null}}"#;
    let reply = webhooks.handle("/", review).await;
    expect![[r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"u","allowed":true,"warnings":["g/v, Kind=K ks Create anna true  {\"b\":1.0,  \"a\":\"\\u0041\"}"]}}"#]]
        .assert_eq(std::str::from_utf8(&reply.body).unwrap());
}

#[tokio::test]
async fn dynamic_and_untyped_objects_are_changed_too() {
    let dynamic = async |mut object: DynamicObject, _: Call| {
        object.data["spec"]["size"] = json!(3);
        Ok(object)
    };
    let untyped = async |mut object: Value, _: Call| {
        object["metadata"]["labels"] = json!({"a": "b"});
        Ok(object)
    };
    let chain = Chain::new().then(Mutating::new(dynamic)).then(Mutating::new(untyped));
    let webhooks = Webhooks::builder().admission("/any", chain).build().unwrap();
    let object = json!({"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"hue": 1}});
    let response = ask(&webhooks, "/any", &admission("CREATE", &object, &Value::Null)).await;
    expect![[r#"[{"op":"add","path":"/spec/size","value":3},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#]]
        .assert_eq(&patch(&response).to_string());
}

#[tokio::test]
async fn mutator_can_be_tested_by_itself() {
    let kind = GroupVersionKind::new("", "v1", "ConfigMap");
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let mut request = AdmissionRequest::new(Operation::Create, kind, resource);
    request.object = Some(map().to_string().into());
    let raw: ConfigMap = request.decode_object().unwrap();
    let painted = paint(raw, Call::new(request.clone())).await.unwrap();
    assert_eq!(painted.data.unwrap()["color"], "blue");
    let response = Mutating::<ConfigMap, _>::new(paint).admit(Call::new(request)).await;
    assert_eq!((response.is_allowed(), response.patch.0.len()), (true, 1));
}

#[tokio::test]
async fn body_and_content_type_are_checked_whk_3() {
    let webhooks = painting();
    let review = admission("CREATE", &map(), &Value::Null).to_string();
    let post = async |content_type: Option<&str>, body: &str| {
        webhooks.answer(MUTATE, content_type, body.to_owned().into()).await
    };
    for good in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
        let reply = post(Some(good), &review).await;
        assert_eq!(
            (reply.code, &tree(&reply)["response"]["allowed"]),
            (200, &true.into()),
            "{good}"
        );
    }
    // The UID is known, so the answer is a review.
    for bad in [Some("text/plain"), Some(""), None] {
        let response = &tree(&post(bad, &review).await)["response"];
        assert_eq!((&response["uid"], &response["status"]["code"]), (&"u".into(), &400.into()));
    }
    let reply = post(Some("text/plain"), "x").await;
    assert_eq!(
        (reply.code, &tree(&reply)["message"]),
        (400, &"contentType=text/plain, expected application/json".into())
    );
    let reply = post(Some("application/json"), "").await;
    assert_eq!((reply.code, &tree(&reply)["message"]), (400, &"request body is empty".into()));
    let reply =
        post(Some("application/json"), &" ".repeat(setpoint_webhook::BODY_BYTES_MAX + 1)).await;
    assert_eq!((reply.code, &tree(&reply)["reason"]), (413, &"RequestEntityTooLarge".into()));
    let reply = webhooks.handle("/elsewhere", review).await;
    assert_eq!((reply.code, &tree(&reply)["kind"]), (404, &"Status".into()));
}

#[test]
fn same_path_twice_and_bad_paths_are_errors_whk_1() {
    let allow = async |_: Call| AdmissionResponse::allowed();
    let taken = Webhooks::builder().mutate(paint).admission(MUTATE, allow).build();
    assert_eq!(taken.unwrap_err(), RegisterError::PathTaken { path: MUTATE.into() });
    let invalid = Webhooks::builder().admission("/a/", allow).build();
    assert_eq!(invalid.unwrap_err(), RegisterError::PathInvalid { path: "/a/".into() });
    let figures = Figures::default();
    let webhooks = Webhooks::builder().metrics(Arc::new(figures.clone())).admission("/b", allow);
    let webhooks = webhooks.admission("/a", allow).build().unwrap();
    assert_eq!(webhooks.paths(), ["/a", "/b"]);
    assert_eq!(figures.all(), [("registered /a".into(), 1), ("registered /b".into(), 1)].into());
}

#[tokio::test]
async fn abandoned_request_is_no_longer_in_flight() {
    let figures = Figures::default();
    let hang = async |_: Call| std::future::pending::<AdmissionResponse>().await;
    let webhooks = Webhooks::builder()
        .metrics(Arc::new(figures.clone()))
        .admission("/a", hang)
        .build()
        .unwrap();
    let review = admission("CREATE", &map(), &Value::Null).to_string();
    let mut request = Box::pin(webhooks.handle("/a", review));
    assert!(futures::poll!(request.as_mut()).is_pending());
    assert_eq!(figures.get("in flight /a"), 1);
    drop(request);
    assert_eq!(figures.get("in flight /a"), 0);
    assert_eq!(figures.get("answered /a 200"), 0);
}
