//! Writes that are checked and answered, and change nothing.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::client::Body;
use serde_json::{Value, json};
use tower::Layer;

use super::{ApiCall, Each, LayerError, RequestService, Wrapped, pass_on, query};
use crate::{client::BODY_BYTES_MAX, error::BoxError};

/// Makes a dry run of every write: the server checks it and answers as if, and nothing changes.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct DryRun;

/// An extension of answers to what a [`DryRun`] layer has sent.
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
            // A server reads the options of a deletion from the body if there is one, and from the
            // query if not.
            let body = if body.is_empty() { body } else { options(&body)? };
            request = Request::from_parts(parts, Body::from(body));
        }
        query::set(&mut request, "dryRun", "All");
        let mut response = pass_on(&mut inner, request).await?;
        response.extensions_mut().insert(WasDryRun);
        Ok(response)
    }
}

/// The options of a deletion, with one more.
fn options(body: &[u8]) -> Result<Bytes, LayerError> {
    let mut options: Value = serde_json::from_slice(body).map_err(|_| LayerError::Options)?;
    let Some(members) = options.as_object_mut() else { return Err(LayerError::Options) };
    members.insert("dryRun".to_owned(), json!(["All"]));
    Ok(options.to_string().into())
}
