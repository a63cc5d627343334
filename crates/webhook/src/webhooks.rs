//! The table of webhooks, and the processing of a body.

mod builder;

pub use builder::{RegisterError, WebhooksBuilder};

use crate::Refusal;
use crate::admission::{AdmissionRequest, AdmissionResponse, Call, ErasedHandler};
use crate::authentication::{self, ErasedAuthenticator, TokenReview};
use crate::conversion::{self, Conversions};
use crate::metrics::{InFlight, Metrics};
use crate::panic::caught;
use crate::review::{Envelope, Form, ReviewError};
use bytes::Bytes;
use setpoint_object::status::ApiError;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Maximum body size of an admission or token review in bytes: 7 MiB (WHK-3). An API server accepts
/// objects of up to 3 MiB, and a review has two.
pub const BODY_BYTES_MAX: usize = 7 * 1024 * 1024;

/// Maximum body size of a conversion review in bytes: 128 MiB. An API server that lists a kind in
/// another version than the stored one sends all objects in one review. controller-runtime has no
/// limit.
pub const CONVERSION_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The media type of every review and response.
pub(crate) const JSON: &str = "application/json";

/// A response: an HTTP code and a JSON body, which is a review or a `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP code: 200 with a review, whatever its verdict; otherwise the code of the `Status`.
    pub code: u16,
    /// The review or `Status`; always `application/json`.
    pub body: Bytes,
}

impl Reply {
    pub(crate) fn ok(body: Bytes) -> Self {
        Self { code: 200, body }
    }

    /// For requests that cannot be answered with a review. API servers show the message: `failed to
    /// call webhook: <message>`.
    pub(crate) fn error(error: &ApiError) -> Self {
        Self { code: error.code(), body: error.to_json().into() }
    }
}

/// Webhooks by their paths. Cheap to clone.
///
/// Answers requests in process with [`handle`](Self::handle), or over HTTPS with `WebhookServer`.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

struct Inner {
    endpoints: HashMap<Arc<str>, Endpoint>,
    recovers_panics: bool,
    metrics: Arc<dyn Metrics>,
}

/// The webhook at a path.
enum Endpoint {
    Admission(Arc<dyn ErasedHandler>),
    Conversion(Conversions),
    Authentication(Arc<dyn ErasedAuthenticator>),
}

impl Endpoint {
    fn body_bytes_max(&self) -> usize {
        match self {
            Self::Admission(_) | Self::Authentication(_) => BODY_BYTES_MAX,
            Self::Conversion(_) => CONVERSION_BYTES_MAX,
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.inner.endpoints.keys()).finish()
    }
}

impl Webhooks {
    /// An empty table.
    pub fn builder() -> WebhooksBuilder {
        WebhooksBuilder::default()
    }

    /// The paths that are served, sorted.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = self.inner.endpoints.keys().map(|path| &**path).collect();
        paths.sort_unstable();
        paths
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<dyn Metrics> {
        &self.inner.metrics
    }

    #[cfg(feature = "server")]
    pub(crate) fn recovers_panics(&self) -> bool {
        self.inner.recovers_panics
    }

    /// Maximum body size at a path; zero if nothing is served there.
    #[cfg(feature = "server")]
    pub(crate) fn body_bytes_max(&self, path: &str) -> usize {
        self.inner.endpoints.get(path).map_or(0, Endpoint::body_bytes_max)
    }

    /// Answers a JSON body that was posted to `path`, as the server does. For use in the API
    /// server's process, and for tests. A query after the path (`?timeout=10s`) is ignored.
    ///
    /// There is always an answer: a review with the UID of the request, or a `Status` with an HTTP
    /// error if the body has no UID. Dropping the future drops the handler.
    pub async fn handle(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.answer(path, Some(JSON), body.into()).await
    }

    /// As [`handle`](Self::handle), with the request's `Content-Type`.
    pub async fn answer(&self, path: &str, content_type: Option<&str>, body: Bytes) -> Reply {
        self.respond(path, content_type, async { Ok(body) }).await
    }

    /// As [`answer`](Self::answer), with a body that is still to be read.
    pub(crate) async fn respond(
        &self,
        path: &str,
        content_type: Option<&str>,
        body: impl Future<Output = Result<Bytes, ApiError>>,
    ) -> Reply {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let Some((webhook, endpoint)) = self.inner.endpoints.get_key_value(path) else {
            return Reply::error(&ApiError::no_route());
        };
        let in_flight = InFlight::begin(self.inner.metrics.clone(), webhook.clone());
        let reply = match body.await {
            Ok(body) if body.len() > endpoint.body_bytes_max() => {
                Err(ApiError::too_large(endpoint.body_bytes_max()))
            }
            Ok(body) => self.dispatch(webhook, endpoint, content_type, body).await,
            Err(error) => Err(error),
        };
        let reply = reply.unwrap_or_else(|error| Reply::error(&error));
        in_flight.answered(reply.code);
        reply
    }

    async fn dispatch(
        &self,
        webhook: &str,
        endpoint: &Endpoint,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Reply, ApiError> {
        let wrong_type = check_content_type(content_type).err();
        let answered = match endpoint {
            Endpoint::Admission(handler) => {
                self.admission(webhook, &**handler, wrong_type, body).await
            }
            Endpoint::Conversion(conversions) => {
                self.conversion(webhook, conversions, wrong_type, &body).await
            }
            Endpoint::Authentication(authenticator) => {
                self.authentication(webhook, &**authenticator, wrong_type, &body).await
            }
        };
        answered.map_err(ApiError::bad_request)
    }

    async fn admission(
        &self,
        webhook: &str,
        handler: &dyn ErasedHandler,
        wrong_type: Option<String>,
        body: Bytes,
    ) -> Result<Reply, String> {
        let envelope = Envelope::open(Form::ADMISSION, &body);
        let envelope = envelope.map_err(|error| first(wrong_type.as_ref(), &error))?;
        let response = match (wrong_type, envelope.request()) {
            (Some(wrong), _) => AdmissionResponse::errored(400, wrong),
            (None, Err(error)) => {
                AdmissionResponse::errored(400, format!("decode the request: {error}"))
            }
            (None, Ok(wire)) => {
                let call = Call::new(AdmissionRequest::from_wire(wire, &body));
                // Called inside the future, because a function may panic before it returns its
                // future.
                let admitted = async { handler.admit_boxed(call.clone()).await };
                let admitted = self.guarded(webhook, admitted);
                call.settle(admitted.await.unwrap_or_else(|panic| {
                    AdmissionResponse::errored(500, format!("panic: {panic} [recovered]"))
                }))
            }
        };
        Ok(Reply::ok(response.write(envelope.version, &envelope.uid)))
    }

    async fn conversion(
        &self,
        webhook: &str,
        conversions: &Conversions,
        wrong_type: Option<String>,
        body: &Bytes,
    ) -> Result<Reply, String> {
        let envelope = Envelope::open(Form::CONVERSION, body);
        let envelope = envelope.map_err(|error| first(wrong_type.as_ref(), &error))?;
        let outcome = match wrong_type {
            Some(wrong) => Err(Refusal::errored(400, wrong)),
            None => {
                let converted = async { conversion::convert(conversions, &envelope, body).await };
                self.guarded(webhook, converted).await.unwrap_or_else(|_| {
                    Err(Refusal::errored(500, "internal error occurred during conversion"))
                })
            }
        };
        Ok(Reply::ok(conversion::write(envelope.version, &envelope.uid, &outcome)))
    }

    async fn authentication(
        &self,
        webhook: &str,
        authenticator: &dyn ErasedAuthenticator,
        wrong_type: Option<String>,
        body: &Bytes,
    ) -> Result<Reply, String> {
        let review = TokenReview::open(body);
        let TokenReview { version, uid, request } =
            review.map_err(|error| first(wrong_type.as_ref(), &error))?;
        let answer = if let Some(wrong) = wrong_type {
            Err(Refusal::errored(400, wrong))
        } else if request.token.is_empty() {
            Err(Refusal::errored(400, "token is empty"))
        } else {
            let answer = async { authenticator.authenticate_boxed(request).await };
            self.guarded(webhook, answer).await.unwrap_or_else(|panic| {
                Err(Refusal::errored(500, format!("panic: {panic} [recovered]")))
            })
        };
        Ok(Reply::ok(authentication::write(version, &uid, &answer)))
    }

    /// Runs a handler. A panic becomes an error with its message, or is resumed if the table does
    /// not recover panics.
    async fn guarded<T>(
        &self,
        webhook: &str,
        handler: impl Future<Output = T>,
    ) -> Result<T, String> {
        if !self.inner.recovers_panics {
            return Ok(handler.await);
        }
        caught(handler).await.inspect_err(|panic| {
            self.inner.metrics.panicked(webhook);
            tracing::error!(webhook, panic, "a webhook's handler panicked");
        })
    }
}

/// The error for a body that cannot be read: the content type if that is wrong, otherwise the
/// body's error.
fn first(wrong_type: Option<&String>, error: &ReviewError) -> String {
    wrong_type.cloned().unwrap_or_else(|| error.to_string())
}

/// Accepts `application/json`, with or without parameters (WHK-3).
fn check_content_type(content_type: Option<&str>) -> Result<(), String> {
    let content_type = content_type.unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    Err(format!("contentType={content_type}, expected {JSON}"))
}
