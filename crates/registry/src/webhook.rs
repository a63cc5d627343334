//! Calls of webhooks. The registry knows no HTTP: an implementation of these traits sends them.
mod answer;

pub(crate) use answer::read;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_spans::SpanContext;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// For whom a webhook is called: each may have credentials of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookCaller {
    /// The admission plugin `MutatingAdmissionWebhook`.
    Mutating,
    /// The admission plugin `ValidatingAdmissionWebhook`.
    Validating,
    /// The conversion of custom resources.
    Conversion,
}

/// Makes the clients of webhooks. Set by
/// [`RegistryBuilder::webhooks`](crate::RegistryBuilder::webhooks), and for a control plane by
/// `ControlPlaneBuilder::webhooks`, whose page has an example.
pub trait WebhookClients: Debug + Send + Sync {
    /// The client of a webhook, from its `clientConfig` (`url` or `service`, `caBundle`). Called
    /// once per change of an object that configures webhooks.
    ///
    /// Must be fast and free of side effects: connect later. A wrong configuration is the error of
    /// each call.
    fn client(&self, caller: WebhookCaller, config: &Value) -> Arc<dyn WebhookClient>;
}

/// Calls one webhook.
pub trait WebhookClient: Debug + Send + Sync {
    /// Posts a review, encoded as JSON, and returns the unchanged body of a successful answer.
    /// `timeout` covers everything; it is also in the query: `?timeout=10s`. `caller` is the span
    /// of the call, if it is traced: the webhook gets it as its parent.
    ///
    /// # Errors
    ///
    /// No answer, or an HTTP error.
    ///
    /// Dropping the future ends the call.
    fn call(
        &self,
        review: Bytes,
        timeout: Duration,
        caller: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>>;
}

/// Why a webhook was not called, or has not answered. Clients see the texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// Its configuration cannot be used: `unable to load root certificates: …`.
    #[error("{0}")]
    Config(String),
    /// The call failed: `Post "https://…": context deadline exceeded`.
    #[error("{0}")]
    Call(String),
}
