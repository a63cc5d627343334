//! Serves an endpoint: connections, bodies, routes.

use std::{
    collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use setpoint_object::panic;
use setpoint_serve::{Limits, Received, STREAMS_MAX, Server};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    BearerAuth, CONNECTIONS_MAX, DRAIN_MAX, Endpoint, EndpointError, HEAD_MAX, HEALTHZ_PATH,
    IDLE_MAX, METRICS_PATH, READYZ_PATH, REQUEST_BODY_BYTES_MAX,
};
use crate::error::BoxError;

/// How much of an unread body is read: 256 KiB, as Go's server.
const LEFTOVER_BYTES_MAX: usize = 256 * 1024;

/// The limits of an endpoint.
pub(super) const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: None,
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    streams_max: STREAMS_MAX,
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
    pace: 1,
};

/// Serves until `stop`, and then until connections have finished or [`DRAIN_MAX`] has passed.
/// Dropping the future drops all connections.
pub(super) async fn serve(endpoint: Endpoint, stop: CancellationToken) -> Result<(), BoxError> {
    let Endpoint { socket, address, certificates, bearer, routes } = endpoint;
    let answerer = Arc::new(Answerer { routes, bearer });
    let mut server = Server::new(TcpListener::from_std(socket)?, LIMITS);
    tracing::info!(%address, tls = certificates.is_some(), "serving");
    // Dropped with the endpoint.
    let mut background = JoinSet::new();
    if let Some(certificates) = certificates {
        server = server.tls(Arc::new(certificates.server_config()?));
        background.spawn(certificates.keep_fresh(stop.clone()));
    }
    server.run(move |request| answerer.clone().answer(request), stop).await;
    Ok(())
}

/// The time-out of a request's body.
const BODY_MAX: Duration = HEAD_MAX;

/// Authenticates and routes requests.
#[derive(Debug)]
pub(super) struct Answerer {
    pub(super) routes: Routes,
    pub(super) bearer: Option<BearerAuth>,
}

impl Answerer {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Received>,
    ) -> Response<Full<Bytes>> {
        self.respond(request).await.map(Full::new)
    }

    async fn respond(&self, request: Request<Received>) -> Response<Bytes> {
        let (parts, body) = request.into_parts();
        if let Some(bearer) = &self.bearer
            && let Err(refused) = bearer.admit(&parts).await
        {
            return refused;
        }
        let too_large = || text(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
        if body.size_hint().lower() > REQUEST_BODY_BYTES_MAX as u64 {
            return too_large();
        }
        let body = Limited::new(body, REQUEST_BODY_BYTES_MAX).collect();
        let body = match tokio::time::timeout(BODY_MAX, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return too_large();
            }
            Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body cannot be read\n"),
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body takes too long\n"),
        };
        self.routes.answer(Request::from_parts(parts, body)).await
    }
}

type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The handlers of an endpoint, by path.
#[derive(Default)]
pub(super) struct Routes(BTreeMap<String, Handler>);

impl Routes {
    pub(super) fn add<Fut>(
        &mut self,
        path: String,
        handler: impl Fn(Request<Bytes>) -> Fut + Send + Sync + 'static,
    ) -> Result<(), EndpointError>
    where
        Fut: Future<Output = Response<Bytes>> + Send + 'static,
    {
        if !path.starts_with('/') || path.contains(['?', '#']) {
            return Err(EndpointError::Path { path });
        }
        let is_reserved = [METRICS_PATH, HEALTHZ_PATH, READYZ_PATH].into_iter().any(|reserved| {
            path.strip_prefix(reserved).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if is_reserved {
            return Err(EndpointError::Reserved { path });
        }
        if self.0.contains_key(&path) {
            return Err(EndpointError::DuplicatePath { path });
        }
        self.0.insert(path, erased(handler));
        Ok(())
    }

    /// Adds a handler of a reserved path.
    pub(super) fn reserve<Fut>(
        &mut self,
        path: &'static str,
        handler: impl Fn(Request<Bytes>) -> Fut + Send + Sync + 'static,
    ) where
        Fut: Future<Output = Response<Bytes>> + Send + 'static,
    {
        self.0.insert(path.to_owned(), erased(handler));
    }

    fn find(&self, path: &str) -> Option<&Handler> {
        self.0.get(path).or_else(|| {
            let below = [HEALTHZ_PATH, READYZ_PATH].into_iter().find(|reserved| {
                path.strip_prefix(reserved).is_some_and(|rest| rest.starts_with('/'))
            })?;
            self.0.get(below)
        })
    }

    /// Calls the handler; a panic becomes a 500.
    pub(super) async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        let Some(handler) = self.find(request.uri().path()).cloned() else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        let path = request.uri().path().to_owned();
        // Both the call and its future may panic.
        let answer = AssertUnwindSafe(async { handler(request).await }).catch_unwind().await;
        answer.unwrap_or_else(|panic| {
            tracing::error!(path, panic = panic::message(&*panic), "a handler panicked");
            text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
        })
    }
}

fn erased<Fut>(handler: impl Fn(Request<Bytes>) -> Fut + Send + Sync + 'static) -> Handler
where
    Fut: Future<Output = Response<Bytes>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handler(request)))
}

/// A plain-text answer, with the headers of Go's servers.
pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    let nosniff = http::HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
