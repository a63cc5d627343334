//! In whose name writes are recorded, and how strictly they are read.

use std::sync::Arc;

use http::{Request, Response};
use kube_client::client::Body;
use tower::Layer;

use super::{ApiCall, Each, RequestService, Verb, Wrapped, pass_on, query};
use crate::{client::FieldValidation, error::BoxError};

/// Records writes that name no field manager in this name.
///
/// It wins over the name that a [`Client`](crate::Client) gives unasked, which is the controller's,
/// and not over one that [`field_manager`](crate::Client::field_manager) or a call gave it.
#[derive(Debug, Clone)]
pub struct FieldOwner(Arc<str>);

/// An extension of requests whose field manager nobody asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefaultOwner;

impl FieldOwner {
    /// The layer.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl<S> Layer<S> for FieldOwner {
    type Service = Wrapped<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Wrapped { inner, each: self.clone() }
    }
}

impl Each for FieldOwner {
    async fn send<S: RequestService>(
        self,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let is_owned = ApiCall::of(&request).is_some_and(|call| {
            matches!(call.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Apply)
        });
        let is_open = query::value(request.uri(), "fieldManager").is_none_or(str::is_empty)
            || request.extensions().get::<DefaultOwner>().is_some();
        if is_owned && is_open {
            query::set(&mut request, "fieldManager", &self.0);
            request.extensions_mut().remove::<DefaultOwner>();
        }
        pass_on(&mut inner, request).await
    }
}

/// Has the server read creates, updates and patches that do not say how as strictly as this. Apply
/// is always strict.
#[derive(Debug, Clone, Copy)]
pub struct ValidateFields(FieldValidation);

impl ValidateFields {
    /// The layer.
    pub fn new(validation: FieldValidation) -> Self {
        Self(validation)
    }
}

impl<S> Layer<S> for ValidateFields {
    type Service = Wrapped<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Wrapped { inner, each: *self }
    }
}

impl Each for ValidateFields {
    async fn send<S: RequestService>(
        self,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let is_read = ApiCall::of(&request)
            .is_some_and(|call| matches!(call.verb, Verb::Create | Verb::Update | Verb::Patch));
        if is_read && query::value(request.uri(), "fieldValidation").is_none_or(str::is_empty) {
            query::set(&mut request, "fieldValidation", self.0.as_str());
        }
        pass_on(&mut inner, request).await
    }
}
