//! Conversion webhooks: `ConversionReview` (spec: crd §10).
use super::{CALL_TIMEOUT, Conversion, ConversionError, ConversionProvider, ConversionRequest};
use crate::threads::Threads;
use crate::uid::uid;
use crate::webhook::{self, WebhookCaller, WebhookClient, WebhookClients};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use setpoint_object::GroupKind;
use setpoint_schema::{builtin, encode};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Group of the review.
const GROUP: &str = "apiextensions.k8s.io";
/// Bytes of an answer from which on it is read on another thread: about a millisecond.
const INLINE_BYTES_MAX: usize = 1 << 20;

/// Calls the webhooks that definitions name.
#[derive(Debug)]
pub(crate) struct WebhookConversions {
    clients: Arc<dyn WebhookClients>,
    /// Source of the reviews' uids.
    rng: Arc<Mutex<SmallRng>>,
    /// For long answers.
    threads: Threads,
}
impl WebhookConversions {
    pub(crate) fn new(clients: Arc<dyn WebhookClients>, rng: SmallRng, threads: Threads) -> Self {
        Self { clients, rng: Arc::new(Mutex::new(rng)), threads }
    }
}
impl ConversionProvider for WebhookConversions {
    fn conversion(&self, _kind: &GroupKind, spec: &Value) -> Option<Arc<dyn Conversion>> {
        let webhook = &spec["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array()?;
        let version = versions.iter().find_map(|version| match version.as_str()? {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        })?;
        let client = self.clients.client(WebhookCaller::Conversion, &webhook["clientConfig"]);
        let (rng, threads) = (self.rng.clone(), self.threads.clone());
        Some(Arc::new(Review { client, version, rng, threads }))
    }
}

/// One webhook.
#[derive(Debug)]
struct Review {
    client: Arc<dyn WebhookClient>,
    /// The version of the review that it understands.
    version: &'static str,
    rng: Arc<Mutex<SmallRng>>,
    threads: Threads,
}
impl Conversion for Review {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        let uid = uid(&self.rng);
        let review = encode(self.version, &uid, &request);
        let (call, version) = (self.client.call(review, CALL_TIMEOUT, None), self.version);
        let threads = self.threads.clone();
        Box::pin(async move {
            let answer = call.await.map_err(|error| ConversionError::Call(Box::new(error)))?;
            let is_long = answer.len() > INLINE_BYTES_MAX;
            let decoded = threads.run_if(is_long, async move { decode(version, &uid, &answer) });
            decoded.await.map_err(|error| ConversionError::Call(Box::new(error)))?
        })
    }
}

/// The review as kube-apiserver writes it, with an empty response.
fn encode(version: &str, uid: &str, request: &ConversionRequest) -> Bytes {
    let n_bytes: usize = request.objects.iter().map(|object| object.len() + 1).sum();
    let mut review = Vec::with_capacity(n_bytes + 512);
    // The version of a kind has no characters that need an escape.
    let head = format!(
        r#"{{"kind":"ConversionReview","apiVersion":"{GROUP}/{version}","request":{{"uid":"{uid}","desiredAPIVersion":"{}","objects":["#,
        request.api_version
    );
    review.extend_from_slice(head.as_bytes());
    for (n, object) in request.objects.iter().enumerate() {
        if n > 0 {
            review.push(b',');
        }
        review.extend_from_slice(object);
    }
    review.extend_from_slice(
        br#"]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#,
    );
    review.into()
}

/// An answer as most webhooks write it: what has other members is read by its type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(rename = "request", default)]
    _request: Option<Object<Echo>>,
    #[serde(borrow)]
    response: Option<Object<Response<'a>>>,
}
/// What the webhook was sent.
#[derive(Deserialize)]
struct Echo {}
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response<'a> {
    #[serde(default)]
    uid: Option<String>,
    #[serde(borrow, default)]
    converted_objects: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    result: Option<Object<Outcome>>,
}
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    #[serde(rename = "metadata", default)]
    _metadata: Option<Object<Nothing>>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    message: Option<String>,
}
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A struct that is no list of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The converted objects of an answer. Objects are slices of its bytes.
fn decode(version: &str, uid: &str, bytes: &Bytes) -> Result<Vec<Bytes>, ConversionError> {
    let expected = format!("{GROUP}/{version}");
    // Most answers are right, and their objects are left as they are.
    let is_right =
        |answer: &Answer<'_>| answer.kind == "ConversionReview" && answer.api_version == expected;
    match serde_json::from_slice(bytes).ok().filter(is_right) {
        Some(answer) => objects(version, uid, answer, bytes),
        None => decode_other(version, uid, bytes),
    }
}

/// The objects of an answer of the right type, which was read from these bytes.
fn objects(
    version: &str,
    uid: &str,
    answer: Answer<'_>,
    bytes: &Bytes,
) -> Result<Vec<Bytes>, ConversionError> {
    let refused = ConversionError::Refused;
    let Some(Object(response)) = answer.response else {
        return Err(refused("no response provided".to_owned()));
    };
    let got = response.uid.unwrap_or_default();
    // Servers of v1beta1 need not repeat it.
    if version == "v1" && got != uid {
        return Err(refused(format!("expected response.uid={uid:?}, got {got:?}")));
    }
    let result = response.result.map(|Object(outcome)| outcome);
    let Outcome { status, message, .. } = result.unwrap_or_default();
    let status = status.unwrap_or_default();
    if status != "Success" {
        let message = message.filter(|message| !message.is_empty());
        let was = || format!("response.result.status was '{status}', not 'Success'");
        return Err(refused(message.unwrap_or_else(was)));
    }
    let objects = response.converted_objects.unwrap_or_default();
    Ok(objects.into_iter().map(|object| bytes.slice_ref(object.get().as_bytes())).collect())
}

/// The same of an answer that is not as it should be, or not in JSON.
fn decode_other(version: &str, uid: &str, bytes: &Bytes) -> Result<Vec<Bytes>, ConversionError> {
    let refused = ConversionError::Refused;
    let mut answer = webhook::read(bytes, builtin::Review::Conversion, version).map_err(refused)?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let (found, kind) = (text("apiVersion"), text("kind"));
    let expected = format!("{GROUP}/{version}");
    // Servers of v1beta1 need not repeat the type either.
    if version == "v1" && (kind != "ConversionReview" || found != expected) {
        let found = if found.contains('/') { found.to_owned() } else { format!("/{found}") };
        return Err(refused(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {found}, Kind={kind}"
        )));
    }
    // Nothing else of it is looked at.
    if let Some(members) = answer.as_object_mut() {
        members.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "response"));
    }
    if let Some(result) = answer.pointer_mut("/response/result").and_then(Value::as_object_mut) {
        result.retain(|name, _| matches!(name.as_str(), "status" | "message"));
    }
    let bytes = encode::to_bytes(&answer);
    match serde_json::from_slice(&bytes) {
        Ok(answer) => objects(version, uid, answer, &bytes),
        Err(error) => Err(refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request() -> ConversionRequest {
        ConversionRequest {
            kind: GroupKind { group: "ex.io".into(), kind: "Foo".into() },
            api_version: "ex.io/v2".to_owned(),
            objects: vec![Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"{\"b\":2}")],
        }
    }

    #[test]
    fn a_review_has_the_objects_and_an_empty_response() {
        let review: Value = serde_json::from_slice(&encode("v1", "u-1", &request())).unwrap();
        let expected = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "u-1", "desiredAPIVersion": "ex.io/v2", "objects": [{"a": 1}, {"b": 2}]},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        assert_eq!(review, expected);
    }

    #[test]
    fn only_a_successful_answer_to_the_review_has_objects() {
        let answer = |response: Value| {
            let mut review =
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"});
            review["response"] = response;
            let decoded = decode("v1", "u-1", &review.to_string().into());
            decoded.map(|objects| objects.len()).map_err(|error| error.to_string())
        };
        let success = json!({"status": "Success"});
        let objects = json!([{"a": 1}]);
        let full = json!({"uid": "u-1", "convertedObjects": objects, "result": success});
        assert_eq!(answer(full.clone()), Ok(1));
        assert_eq!(answer(json!({"uid": "u-1", "result": success})), Ok(0));
        let mut more = full.clone();
        more["x"] = 1.into();
        more["result"]["metadata"] = json!({});
        assert_eq!(answer(more.clone()), Ok(1));
        more["result"]["details"] = json!({"name": "n"});
        assert_eq!(answer(more), Ok(1));
        let wrong = "json: cannot unmarshal";
        for (response, error) in [
            (
                json!([]),
                &*format!(
                    "{wrong} array into Go struct field ConversionReview.response of type v1.ConversionResponse"
                ),
            ),
            (
                json!({"uid": "u-1", "result": {"status": "Success", "code": "x"}}),
                &*format!(
                    "{wrong} string into Go struct field Status.response.result.code of type int32"
                ),
            ),
            (Value::Null, "no response provided"),
            (json!({"uid": "x", "result": success}), "expected response.uid=\"u-1\", got \"x\""),
            (
                json!({"uid": "u-1", "result": {"status": "Failed"}}),
                "response.result.status was 'Failed', not 'Success'",
            ),
            (json!({"uid": "u-1", "result": {"status": "Failed", "message": "no"}}), "no"),
            (json!({"uid": "u-1"}), "response.result.status was '', not 'Success'"),
        ] {
            assert_eq!(answer(response), Err(error.to_owned()));
        }
        let other = json!({"kind": "Pod", "apiVersion": "v1", "response": full});
        let refused = |answer: String| decode("v1", "u-1", &answer.into()).unwrap_err().to_string();
        assert_eq!(
            refused(other.to_string()),
            "no kind \"Pod\" is registered for version \"v1\" in scheme \
             \"k8s.io/apiserver/pkg/util/webhook/client.go:71\""
        );
        assert!(refused("<html>".to_owned()).starts_with("couldn't get version/kind"));
        let bare = json!({"response": full});
        assert!(
            refused(bare.to_string()).ends_with("got /, Kind="),
            "{}",
            refused(bare.to_string())
        );
        let yaml = format!(
            "kind: ConversionReview\napiVersion: apiextensions.k8s.io/v1\nresponse: {full}\n"
        );
        assert_eq!(decode("v1", "u-1", &yaml.into()).unwrap(), [r#"{"a":1}"#]);
    }
}
