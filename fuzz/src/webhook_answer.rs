//! What admission webhooks answer.
use crate::plane::{ADMISSION, create, create_map, with_registry};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_registry::{WebhookCaller, WebhookClient, WebhookClients, WebhookError};
use setpoint_spans::SpanContext;
use std::sync::Arc;
use std::time::Duration;

/// A webhook that answers each call with the same bytes, in which `UID` is that of the call.
#[derive(Debug, Clone)]
struct Answers(String);

impl WebhookClients for Answers {
    fn client(&self, _: WebhookCaller, _config: &Value) -> Arc<dyn WebhookClient> {
        Arc::new(self.clone())
    }
}

impl WebhookClient for Answers {
    fn call(
        &self,
        review: Bytes,
        _timeout: Duration,
        _caller: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let answer = self.0.replace("UID", review["request"]["uid"].as_str().unwrap());
        async move { Ok(Bytes::from(answer)) }.boxed()
    }
}

/// Any answer of a mutating and of a validating webhook lets a write through or refuses it. What is
/// stored is an object of the kind that was sent, with the name that was sent unless a patch
/// changed it.
pub fn check(input: &[u8]) {
    let answers = Answers(String::from_utf8_lossy(input).into_owned());
    with_registry(
        |builder| builder.webhooks(Arc::new(answers)),
        async |registry| {
            for (resource, kind) in [
                ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
                ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
            ] {
                let configuration = json!({
                    "apiVersion": format!("{ADMISSION}/v1"), "kind": kind,
                    "metadata": {"name": "all"},
                    "webhooks": [{
                        "name": "any.example.com", "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                        "clientConfig": {"url": "https://127.0.0.1/"},
                        "rules": [{
                            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                            "resources": ["configmaps"],
                        }],
                    }],
                });
                let configuration = configuration.to_string();
                create(registry, (ADMISSION, resource), "", configuration).await.unwrap();
            }
            match create_map(registry).await {
                Ok(map) => assert_eq!(map["kind"], "ConfigMap"),
                Err(error) => assert!(error.code() >= 400 && !error.0.message.is_empty()),
            }
        },
    );
}
