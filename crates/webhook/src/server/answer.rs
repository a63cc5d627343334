//! Routes a request to the webhooks and returns the response.

use super::body::{Budget, Held};
use crate::panic::caught;
use crate::webhooks::{BODY_BYTES_MAX, JSON, Reply, Webhooks};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use setpoint_object::status::{ApiError, Reason};
use setpoint_serve::Received;
use std::time::Duration;
use tokio::sync::watch;

/// Maximum time of a request, from its head to its response: 30 s, the longest that an API server
/// waits for a webhook. Then the handler is dropped, and the response is a 504.
pub const REQUEST_MAX: Duration = Duration::from_secs(30);

/// State shared by all connections of a server.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    webhooks: Webhooks,
    budget: Budget,
    /// Of conversions, whose large bodies must not delay writes.
    conversion_budget: Budget,
    /// The message of a handler's panic that was not recovered.
    panicked: watch::Sender<Option<String>>,
}

impl Serving {
    pub(super) fn new(webhooks: Webhooks) -> Self {
        let (budget, conversion_budget) = (Budget::new(), Budget::new());
        Self { webhooks, budget, conversion_budget, panicked: watch::Sender::new(None) }
    }

    /// Waits for a panic that was not recovered; returns its message.
    pub(super) async fn panicked(&self) -> String {
        let mut panicked = self.panicked.subscribe();
        let message = panicked.wait_for(Option::is_some).await.map(|message| message.clone());
        // The sender is in `self`, and the value is set, because that is the awaited state.
        message.ok().flatten().unwrap_or_default()
    }

    pub(super) async fn respond(self, request: Request<Received>) -> Response<Full<Bytes>> {
        let mut held = Held::default();
        let answer = caught(tokio::time::timeout(REQUEST_MAX, self.answer(request, &mut held)));
        let reply = match answer.await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_elapsed)) => {
                let message = "the webhook did not answer in time";
                Reply::error(&ApiError::new(504, Reason::Timeout, message))
            }
            // If panics are recovered, only a panic of the metrics gets here.
            Err(panic) if self.webhooks.recovers_panics() => {
                tracing::error!(panic, "answering a review panicked");
                Reply::error(&ApiError::internal("the webhook panicked"))
            }
            Err(panic) => {
                self.panicked.send_replace(Some(panic));
                Reply::error(&ApiError::internal("the webhook panicked"))
            }
        };
        let mut response = Response::new(Full::new(reply.body));
        let code = StatusCode::from_u16(reply.code);
        *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        response
    }

    async fn answer(&self, request: Request<Received>, held: &mut Held) -> Reply {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Reply::error(&ApiError::method_not_allowed());
        }
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let path = head.uri.path();
        let bytes_max = self.webhooks.body_bytes_max(path);
        let budget = match bytes_max > BODY_BYTES_MAX {
            true => &self.conversion_budget,
            false => &self.budget,
        };
        self.webhooks.respond(path, content_type, budget.read(body, bytes_max, held)).await
    }
}
