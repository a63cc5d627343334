//! Conversion webhooks: `ConversionReview` (spec: crd §10).
use super::{CALL_TIMEOUT, Conversion, ConversionError, ConversionProvider, ConversionRequest};
use crate::threads::Threads;
use crate::uid::uid;
use crate::webhook::{WebhookCaller, WebhookClient, WebhookClients, undecodable};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use setpoint_object::GroupKind;
use std::borrow::Cow;
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    response: Option<Response<'a>>,
}
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(default)]
    uid: Option<String>,
    #[serde(borrow, default)]
    converted_objects: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    result: Option<Outcome>,
}
#[derive(Default, Deserialize)]
struct Outcome {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// The converted objects of an answer. Objects are slices of its bytes.
fn decode(version: &str, uid: &str, bytes: &Bytes) -> Result<Vec<Bytes>, ConversionError> {
    let refused = ConversionError::Refused;
    let answer: Answer<'_> =
        serde_json::from_slice(bytes).map_err(|error| refused(undecodable(&error)))?;
    let expected = format!("{GROUP}/{version}");
    if answer.kind != "ConversionReview" || answer.api_version != expected {
        return Err(refused(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {}, Kind={}",
            answer.api_version, answer.kind
        )));
    }
    let Some(response) = answer.response else {
        return Err(refused("no response provided".to_owned()));
    };
    let got = response.uid.unwrap_or_default();
    // Servers of v1beta1 need not repeat it.
    if version == "v1" && got != uid {
        return Err(refused(format!("expected response.uid={uid:?}, got {got:?}")));
    }
    let Outcome { status, message } = response.result.unwrap_or_default();
    let status = status.unwrap_or_default();
    if status != "Success" {
        let message = message.filter(|message| !message.is_empty());
        let was = || format!("response.result.status was '{status}', not 'Success'");
        return Err(refused(message.unwrap_or_else(was)));
    }
    let objects = response.converted_objects.unwrap_or_default();
    Ok(objects.into_iter().map(|object| bytes.slice_ref(object.get().as_bytes())).collect())
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
        for (response, error) in [
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
        assert!(decode("v1", "u-1", &other.to_string().into()).is_err());
        assert!(decode("v1", "u-1", &Bytes::from_static(b"<html>")).is_err());
    }
}
