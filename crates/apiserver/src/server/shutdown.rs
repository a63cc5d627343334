//! How a server ends: it is not ready first, may refuse requests then, and drains last.

use super::{ApiServer, Inner};
use crate::body::Body;
use crate::filter::audit_id;
use crate::respond;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Version, header};
use setpoint_serve::GoAway;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Beginnings of paths that are answered until the end: health and metrics.
const EXEMPT_PATHS: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];
/// The beginning of the user agent of other API servers.
const EXEMPT_AGENT: &str = "kube-apiserver/";
/// The message of a refusal.
const ENDING: &str = "The apiserver is shutting down, please try again later.\n";
/// After how many seconds a refused client tries again, as the reference says.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// The state of a shutdown.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    has_begun: AtomicBool,
    refuses: AtomicBool,
    in_progress: TaskTracker,
}

impl Shutdown {
    /// A request in progress, as long as the value lives.
    pub(crate) fn request(&self) -> TaskTrackerToken {
        self.in_progress.token()
    }
}

impl Inner {
    /// Whether the server is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.shutdown.has_begun.load(Ordering::Relaxed) || self.drain.is_cancelled()
    }
}

impl ApiServer {
    /// Begins shutdown: `/readyz` fails from now on, so that load balancers choose other servers.
    /// Everything else is answered as before.
    pub fn begin_shutdown(&self) {
        self.inner.shutdown.has_begun.store(true, Ordering::Relaxed);
    }

    /// Has listeners answer new requests with 429, so that clients connect to other servers. Health
    /// and metrics are still served, as are requests of other API servers.
    pub fn refuse_requests(&self) {
        self.inner.shutdown.refuses.store(true, Ordering::Relaxed);
    }

    /// Waits until no request is in progress, except long-running ones, at most for the
    /// [timeout of requests](super::ApiServerBuilder::request_timeout). Dropping the future has no
    /// effect.
    pub async fn requests_ended(&self) {
        let Shutdown { in_progress, .. } = &self.inner.shutdown;
        in_progress.close();
        if tokio::time::timeout(self.inner.request_timeout, in_progress.wait()).await.is_err() {
            tracing::warn!(left = in_progress.len(), "requests did not end in time");
        }
    }

    /// The answer to a new request while they are refused.
    pub(crate) fn refusal(&self, request: &Parts) -> Option<Response<Body>> {
        if !self.inner.shutdown.refuses.load(Ordering::Relaxed) {
            return None;
        }
        let agent = request.headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
        let is_exempt = EXEMPT_PATHS.iter().any(|path| request.uri.path().starts_with(path))
            || agent.is_some_and(|agent| agent.starts_with(EXEMPT_AGENT.as_bytes()));
        if is_exempt {
            return None;
        }
        let mut refusal = respond::plain(StatusCode::TOO_MANY_REQUESTS, ENDING);
        refusal.headers_mut().insert(header::RETRY_AFTER, RETRY_SECONDS);
        let audit_id = audit_id::of(&request.headers, &self.inner.rng);
        refusal.headers_mut().insert(audit_id::HEADER, audit_id);
        // The connection ends with this answer.
        match request.version {
            Version::HTTP_2 => _ = refusal.extensions_mut().insert(GoAway),
            _ => {
                let close = HeaderValue::from_static("close");
                refusal.headers_mut().insert(header::CONNECTION, close);
            }
        }
        Some(refusal)
    }
}
