//! A layer that calls a closure for every request.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube_client::client::Body;
use setpoint_object::ApiError;
use tower::Layer;

use super::{ApiCall, Each, RequestService, Wrapped, pass_on};
use crate::error::BoxError;

/// Passes every request for a resource to a closure, which decides how to answer it (TST-8): for
/// fault injection, counting, delays, fakes.
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
    /// The layer. The closure gets the parsed path, the request, and the service to forward it to.
    /// If it returns an error, the caller sees a broken connection. To simulate a lost answer,
    /// forward the request and return an error.
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

/// The service behind an [`Interceptor`]; forwards one request.
pub struct Next(Box<dyn FnOnce(Request<Body>) -> Answering + Send>);

impl Next {
    /// Forwards the request, changed or not.
    ///
    /// # Errors
    ///
    /// The errors of the inner service.
    pub async fn run(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        (self.0)(request).await
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// An answer with this code and a JSON body.
pub fn answer(code: StatusCode, json: impl Into<Vec<u8>>) -> Response<Body> {
    let mut response = Response::new(Body::from(json.into()));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An error answer, as a server would send it.
pub fn refuse(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(code, error.to_json())
}
