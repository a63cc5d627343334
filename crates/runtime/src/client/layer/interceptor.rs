//! A closure that every request goes through.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube_client::client::Body;
use setpoint_object::ApiError;
use tower::Layer;

use super::{ApiCall, Each, RequestService, Wrapped, pass_on};
use crate::error::BoxError;

/// Gives every request for a resource to a closure, which decides what comes of it (TST-8): fault
/// injection, counting, lag, fakes.
///
/// ```no_run
/// # use setpoint_runtime::client::layer::{Interceptor, Verb, refuse};
/// # use setpoint_object::ApiError;
/// let impatient = Interceptor::new(|call, request, next| async move {
///     if call.verb == Verb::Create && &*call.resource == "pods" {
///         return Ok(refuse(&ApiError::too_many_requests("not now", 1)));
///     }
///     next.run(request).await
/// });
/// ```
#[derive(Clone)]
pub struct Interceptor(Arc<Intercept>);

type Intercept = dyn Fn(ApiCall, Request<Body>, Next) -> Answering + Send + Sync;
type Answering = BoxFuture<'static, Result<Response<Body>, BoxError>>;

impl Interceptor {
    /// The layer. The closure is given what the request is about, the request, and what sends it
    /// on; an error of its is what the caller sees as a broken connection. A lost answer is one
    /// that was sent on, and is then not given out.
    pub fn new<F, Fut>(intercept: F) -> Self
    where
        F: Fn(ApiCall, Request<Body>, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Body>, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |call, request, next| intercept(call, request, next).boxed()))
    }
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Interceptor {
    type Service = Wrapped<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Wrapped { inner, each: self.clone() }
    }
}

impl Each for Interceptor {
    async fn send<S: RequestService>(
        self,
        mut inner: S,
        request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let Some(call) = ApiCall::of(&request) else { return pass_on(&mut inner, request).await };
        let send = move |request| {
            let mut inner = inner;
            async move { pass_on(&mut inner, request).await }.boxed()
        };
        (self.0)(call, request, Next(Box::new(send))).await
    }
}

/// What is behind an [`Interceptor`]: it sends a request on, once.
pub struct Next(Box<dyn FnOnce(Request<Body>) -> Answering + Send>);

impl Next {
    /// Sends the request on, this or another.
    ///
    /// # Errors
    ///
    /// As what is behind it.
    pub async fn run(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        (self.0)(request).await
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// An answer with this code, and JSON as its body.
pub fn answer(code: StatusCode, json: impl Into<Vec<u8>>) -> Response<Body> {
    let mut response = Response::new(Body::from(json.into()));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The answer that refuses a request for this reason, as a server would.
pub fn refuse(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(code, error.to_json())
}
