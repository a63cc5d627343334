//! Webhooks of servers that this one aggregates. Their configuration names the Service `kubernetes`
//! and a path below a group version of such a server (`/apis/admission.ex.io/v1/reviews`). The
//! server calls itself for them as `system:apiserver`, as kube-apiserver does, so that the review
//! is proxied with that user, wherever the server can be reached.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint_apiserver::{ApiServer, Identity};
use setpoint_object::GroupVersion;
use setpoint_registry::{WebhookClient, WebhookError};
use setpoint_spans::SpanContext;
use setpoint_webhook_client::RESPONSE_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;

/// The port of the Service `kubernetes`, and of one whose configuration names none.
const PORT: u16 = 443;
/// The longest failure that is parsed for its message: 64 KiB.
const FAILURE_BYTES_MAX: usize = 64 << 10;

/// The server, while it runs. What it makes is part of the server, which it must not keep alive.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnServer(Arc<Mutex<Option<ApiServer>>>);

impl OwnServer {
    /// The server can be called until the result is dropped.
    pub(crate) fn serve(&self, server: ApiServer) -> Running {
        *self.0.lock() = Some(server);
        Running(self.clone())
    }

    /// A client for this `clientConfig`, if it names the server itself. `other` calls what is not
    /// below a group version of an aggregated server: a request for an object of this server would
    /// be admitted by webhooks again, within the call.
    pub(super) fn client(&self, config: &Value, other: &Arc<dyn WebhookClient>) -> Option<Own> {
        let service = &config["service"];
        let port = service.get("port").filter(|port| !port.is_null());
        let is_own = config["url"].is_null()
            && service["namespace"] == "default"
            && service["name"] == "kubernetes"
            && port.is_none_or(|port| *port == PORT);
        let path = service["path"].as_str().filter(|_| is_own)?;
        let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
        let (group, version) = (parts.next()?, parts.next()?);
        let group_version = GroupVersion::new(group, version);
        let (server, other) = (self.clone(), other.clone());
        Some(Own { server, group_version, path: path.into(), other })
    }
}

/// Ends the calls of a server when it is dropped.
#[derive(Debug)]
pub(crate) struct Running(OwnServer);

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped without the lock.
        let server = self.0.0.lock().take();
        drop(server);
    }
}

/// The client of one webhook.
#[derive(Debug)]
pub(super) struct Own {
    server: OwnServer,
    group_version: GroupVersion,
    path: Arc<str>,
    other: Arc<dyn WebhookClient>,
}

impl WebhookClient for Own {
    fn call(
        &self,
        review: Bytes,
        timeout: Duration,
        caller: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        let server = self.server.0.lock().clone();
        let is_aggregated =
            |server: &ApiServer| server.backends().get(&self.group_version).is_some();
        let Some(server) = server.filter(is_aggregated) else {
            return self.other.call(review, timeout, caller);
        };
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let uri = format!("{}?timeout={seconds}s", self.path);
        async move {
            let url = format!("https://kubernetes.default.svc:{PORT}{uri}");
            let failed = |why: String| WebhookError::Call(format!("Post {url:?}: {why}"));
            let request =
                request(&uri, review, caller).map_err(|error| failed(error.to_string()))?;
            match tokio::time::timeout(timeout, answer(&server, request)).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(Failure::Broken(why))) => Err(failed(why)),
                Ok(Err(Failure::Http(message))) => Err(WebhookError::Call(message)),
                Err(_) => Err(failed("context deadline exceeded".to_owned())),
            }
        }
        .boxed()
    }
}

/// Why there is no review in an answer.
enum Failure {
    /// The answer could not be read.
    Broken(String),
    /// It is an HTTP error with this message.
    Http(String),
}

fn request(
    uri: &str,
    review: Bytes,
    caller: Option<SpanContext>,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::post(uri)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .extension(Identity::loopback());
    let parent = caller.and_then(|caller| HeaderValue::try_from(caller.to_string()).ok());
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    request.body(Full::new(review))
}

async fn answer(server: &ApiServer, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
    let (head, body) = server.serve(request).await.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| Failure::Broken(error.to_string()))?.to_bytes();
    let code = head.status.as_u16();
    if !head.status.is_success() {
        let short = Some(&body).filter(|body| body.len() <= FAILURE_BYTES_MAX);
        let status: Option<Status> = short.and_then(|body| serde_json::from_slice(body).ok());
        let message = status.map(|status| status.message).filter(|message| !message.is_empty());
        let unknown = || {
            format!(
                "the server responded with the status code {code} but did not return more details"
            )
        };
        return Err(Failure::Http(message.unwrap_or_else(unknown)));
    }
    if body.is_empty() {
        return Err(Failure::Http(format!("0-length response with status code: {code}")));
    }
    Ok(body)
}

/// What counts of the `Status` of a failure.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}
