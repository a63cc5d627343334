//! Webhook reviews.
use base64::Engine as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_webhook::{
    AdmissionRequest, AdmissionResponse, Authenticated, Call, KindConversion, Mutating, Operation,
    Refusal, TokenRequest, UserInfo, Webhooks, path,
};
use std::collections::BTreeMap;

/// The paths; the first byte of an input selects one.
const PATHS: [&str; 4] = ["/mutate", "/raw", "/token", path::CONVERT];

/// A type that knows some fields, and always writes one of its own.
#[derive(Serialize, Deserialize)]
struct Thing {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    #[serde(default)]
    status: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct Part {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default)]
    size: u8,
}

/// Changes almost every field.
async fn mutate(mut thing: Thing, _: Call) -> Result<Thing, Refusal> {
    thing.labels.insert("a/b~c".into(), "d".into());
    thing.parts.iter_mut().step_by(2).for_each(|part| part.size = part.size.wrapping_add(1));
    thing.parts.insert(0, Part { name: Some("first".into()), size: 0 });
    if thing.parts.len() > 3 {
        thing.parts.swap(1, 2);
        thing.parts.pop();
    }
    Ok(thing)
}

/// A kind with one typed and one untyped version.
fn conversion() -> KindConversion {
    let to_hub = |tree: Value| serde_json::from_value::<ConfigMap>(tree).map_err(Refusal::from);
    let from_hub = |map: ConfigMap| serde_json::to_value(map).map_err(Refusal::from);
    let v2 = GroupVersionKind::new("", "v2", "ConfigMap");
    KindConversion::hub::<ConfigMap>().spoke_of(v2, to_hub, from_hub).build().unwrap()
}

fn webhooks() -> Webhooks {
    let raw = async |call: Call| match call.request().object.as_ref().map(|object| object.len()) {
        Some(0..7) => AdmissionResponse::denied("too short"),
        _ => AdmissionResponse::allowed().with_warning(&*call.request().name),
    };
    let token = async |request: TokenRequest| {
        let user = UserInfo { username: request.token, ..UserInfo::default() };
        Ok(Some(Authenticated { user, audiences: request.audiences }))
    };
    let webhooks = Webhooks::builder()
        .admission("/mutate", Mutating::<Thing, _>::new(mutate))
        .admission("/raw", raw)
        .authenticate("/token", token)
        .convert(conversion())
        .build();
    webhooks.unwrap()
}

/// Every body is answered with a review with its UID or with a `Status` (WHK-3). A patch applies to
/// the object of the request, leads to the mutator's result, and leaves fields alone that its type
/// does not know (WHK-6).
pub fn check(input: &[u8]) {
    let Some((first, body)) = input.split_first() else { return };
    let path = PATHS[usize::from(first & 3)];
    let reply = webhooks().handle(path, body.to_vec()).now_or_never().unwrap();
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    if answer["kind"] == "Status" {
        assert_eq!(answer["code"], reply.code);
        assert!(reply.code >= 400 && answer["message"].is_string());
        return;
    }
    assert_eq!(reply.code, 200);
    let review = serde_json::from_slice::<Value>(body).unwrap_or_default();
    if path == "/token" {
        assert!(answer["status"].is_object());
        return;
    }
    let response = &answer["response"];
    assert!(response["uid"].is_string(), "{answer}");
    let n_objects = response["convertedObjects"].as_array().map(Vec::len);
    match response["result"]["status"].as_str() {
        None => assert!(response["allowed"].is_boolean(), "{answer}"),
        Some("Failure") => assert_eq!(n_objects, Some(0), "{answer}"),
        // The request may be a list of its members, or invalid UTF-8 in unread parts.
        Some(_) if review.is_object() && review["request"]["objects"].is_array() => {
            assert_eq!(n_objects, review["request"]["objects"].as_array().map(Vec::len));
        }
        Some(_) => {}
    }
    if review.is_object() {
        assert_eq!(response["uid"], review["request"]["uid"].as_str().unwrap_or_default());
        check_patch(&review["request"]["object"], response);
    }
}

fn check_patch(object: &Value, response: &Value) {
    let Some(patch) = response["patch"].as_str() else { return };
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    let kind = GroupVersionKind::new("", "v1", "Thing");
    let resource = kind.group_version().resource("things");
    let call = Call::new(AdmissionRequest::new(Operation::Create, kind, resource));
    let thing: Thing = serde_json::from_value(object.clone()).unwrap();
    let wanted = mutate(thing, call).now_or_never().unwrap().unwrap();
    let decoded: Thing = serde_json::from_value(patched.clone()).unwrap();
    assert_eq!(serde_json::to_value(decoded).unwrap(), serde_json::to_value(wanted).unwrap());
    let known = ["labels", "parts", "status"];
    let unknown = |tree: &Value| {
        let mut tree = tree.as_object().cloned().unwrap_or_default();
        known.iter().for_each(|field| drop(tree.remove(*field)));
        tree
    };
    assert_eq!(unknown(&patched), unknown(object));
}
