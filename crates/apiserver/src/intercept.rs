//! Interceptors: an embedder's code that delays, fails or changes requests over HTTP, for tests.

use crate::body::Body;
use futures::future::BoxFuture;
use http::Response;
use http::request::Parts;
use setpoint_object::ApiError;
use setpoint_registry::Attributes;
use std::fmt;

/// Changes an answer before it is sent.
pub type ChangeAnswer = Box<dyn FnOnce(Response<Body>) -> Response<Body> + Send>;

/// What becomes of a request.
pub enum Intercepted {
    /// It is processed as always.
    Continue,
    /// It fails with this error, before it is authorized.
    Fail(ApiError),
    /// It is processed, and its answer changed.
    Change(ChangeAnswer),
}

/// Without the function.
impl fmt::Debug for Intercepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continue => f.write_str("Continue"),
            Self::Fail(error) => f.debug_tuple("Fail").field(error).finish(),
            Self::Change(_) => f.write_str("Change(..)"),
        }
    }
}

/// Sees each request over HTTP when its user is known, before flow control and authorization. It
/// may wait, within the deadline of the request; dropping the future drops the request.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use http::request::Parts;
/// use setpoint_apiserver::{Attributes, Intercepted, Interceptor, Verb};
/// use setpoint_object::ApiError;
///
/// /// Fails the writes of `jane`.
/// #[derive(Debug)]
/// struct Broken;
///
/// impl Interceptor for Broken {
///     fn intercept<'a>(
///         &'a self,
///         _parts: &'a Parts,
///         request: &'a Attributes,
///     ) -> BoxFuture<'a, Intercepted> {
///         let intercepted = match (&*request.identity.user, &request.verb) {
///             ("jane", Verb::Create | Verb::Update | Verb::Patch) => {
///                 Intercepted::Fail(ApiError::internal("out of order"))
///             }
///             _ => Intercepted::Continue,
///         };
///         async { intercepted }.boxed()
///     }
/// }
/// ```
pub trait Interceptor: fmt::Debug + Send + Sync {
    /// Decides about one request. `parts` is the head of the request, `request` its attributes.
    fn intercept<'a>(
        &'a self,
        parts: &'a Parts,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Intercepted>;
}
