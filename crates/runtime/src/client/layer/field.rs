//! Layers that set options of writes: field manager, field validation, dry run.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::client::Body;
use serde_json::{Value, json};
use tower::Layer;

use super::{ApiCall, Each, LayerError, RequestService, Verb, Wrapped, pass_on, query};
use crate::{
    client::{BODY_BYTES_MAX, FieldValidation},
    error::BoxError,
};

/// Sets the field manager of writes that have none.
///
/// Overrides a [`Client`](crate::Client)'s default field manager, which is the controller's name.
/// Does not override one set by [`field_manager`](crate::Client::field_manager) or by a call.
#[derive(Debug, Clone)]
pub struct FieldOwner(Arc<str>);

/// A request extension: the field manager is the client's default.
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

/// Sets the field validation of creates, updates and patches that have none. Apply is always
/// strict.
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
        let is_validated = ApiCall::of(&request)
            .is_some_and(|call| matches!(call.verb, Verb::Create | Verb::Update | Verb::Patch));
        if is_validated && query::value(request.uri(), "fieldValidation").is_none_or(str::is_empty)
        {
            query::set(&mut request, "fieldValidation", self.0.as_str());
        }
        pass_on(&mut inner, request).await
    }
}

/// Turns every write into a dry run: the server validates and answers it, and nothing changes.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct DryRun;

/// An extension of answers to requests that a [`DryRun`] layer has sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WasDryRun;

impl DryRun {
    /// The layer.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for DryRun {
    type Service = Wrapped<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Wrapped { inner, each: *self }
    }
}

impl Each for DryRun {
    async fn send<S: RequestService>(
        self,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        if !ApiCall::of(&request).is_some_and(|call| call.verb.is_write()) {
            return pass_on(&mut inner, request).await;
        }
        if request.method() == Method::DELETE {
            let (parts, body) = request.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
            // A server reads the options of a deletion from the body if there is one, otherwise
            // from the query.
            let body = if body.is_empty() { body } else { options(&body)? };
            request = Request::from_parts(parts, Body::from(body));
        }
        query::set(&mut request, "dryRun", "All");
        let mut response = pass_on(&mut inner, request).await?;
        response.extensions_mut().insert(WasDryRun);
        Ok(response)
    }
}

/// The options of a deletion, with `dryRun` added.
fn options(body: &[u8]) -> Result<Bytes, LayerError> {
    let mut options: Value = serde_json::from_slice(body).map_err(|_| LayerError::Options)?;
    let Some(members) = options.as_object_mut() else { return Err(LayerError::Options) };
    members.insert("dryRun".to_owned(), json!(["All"]));
    Ok(options.to_string().into())
}
