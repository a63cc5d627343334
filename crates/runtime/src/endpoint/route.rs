//! Which handler answers.

use std::{collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, header};

use super::{EndpointError, HEALTHZ_PATH, METRICS_PATH, READYZ_PATH};
use crate::error::panic_message;

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

    /// Adds a handler of a path that nobody else can take, and of all paths below it.
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

    /// The answer, whatever the handler does.
    pub(super) async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        let Some(handler) = self.find(request.uri().path()).cloned() else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        let path = request.uri().path().to_owned();
        // The call itself may panic, as well as the future it gives.
        let answer = AssertUnwindSafe(async { handler(request).await }).catch_unwind().await;
        answer.unwrap_or_else(|panic| {
            tracing::error!(path, panic = panic_message(&*panic), "a handler panicked");
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

/// An answer in plain text, as Go's servers give it.
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
