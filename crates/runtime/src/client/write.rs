//! Writes of whole objects, and patches. Each returns the server's object (CLI-3).

use bytes::Bytes;
use http::{HeaderValue, header};
use kube_core::{
    Resource,
    params::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::Value;
use setpoint_informer::Cacheable;

use super::{
    Api, Call, ClientError,
    api::{decode, encode},
    live::accept_one,
};
use crate::request::Request;

const JSON_PATCH: HeaderValue = HeaderValue::from_static("application/json-patch+json");

/// Writes of whole objects.
impl<K: Cacheable + Serialize> Api<K> {
    /// Creates an object in its namespace.
    ///
    /// # Errors
    ///
    /// The server refuses, such as when the object exists, or cannot be reached. Metadata-only
    /// objects cannot be created.
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        let meta = object.meta();
        let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
        let namespace = meta.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let key = Request::new(namespace.unwrap_or_default(), name);
        let call = whole::<K>(self.call("create", key.to_string()))?;
        let path = self.path(&call, namespace)?;
        let request = path.create(&self.client.options.post_params(), encode(&call, object)?);
        let request = request.map(|request| self.client.options.validate(request));
        decode(call.clone(), &self.write(call, &key, request).await?)
    }

    /// Replaces an object's spec and metadata. With a resourceVersion, it fails if the object was
    /// changed since.
    ///
    /// # Errors
    ///
    /// The server refuses, such as with a conflict, or cannot be reached. Metadata-only objects
    /// cannot be replaced.
    pub async fn replace(&self, object: &K) -> Result<K, ClientError> {
        let key = Request::of(object);
        let call = whole::<K>(self.call("update", key.to_string()))?;
        let path = self.path_of(&call, &key)?;
        let body = encode(&call, object)?;
        let request = path.replace(&key.name, &self.client.options.post_params(), body);
        let request = request.map(|request| self.client.options.validate(request));
        decode(call.clone(), &self.write(call, &key, request).await?)
    }

    /// Replaces an object's status, and nothing else.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub async fn replace_status(&self, object: &K) -> Result<K, ClientError> {
        self.status().replace(&Request::of(object), object).await
    }
}

/// Refuses metadata-only objects.
pub(super) fn whole<K: Resource>(call: Call) -> Result<Call, ClientError> {
    if K::metadata_api() { Err(ClientError::MetadataOnly { call }) } else { Ok(call) }
}

/// Writes that need not serialize the whole object.
impl<K: Cacheable> Api<K> {
    /// Patches an object, with any patch type.
    ///
    /// # Errors
    ///
    /// The server refuses, such as when a JSON patch's test fails, or cannot be reached.
    pub async fn patch<P: Serialize>(
        &self,
        key: &Request,
        patch: &Patch<P>,
    ) -> Result<K, ClientError> {
        self.patch_with(key, patch, &PatchParams::default()).await
    }

    /// [`patch`](Self::patch) with parameters, completed with the client's defaults.
    ///
    /// # Errors
    ///
    /// As [`patch`](Self::patch).
    pub async fn patch_with<P: Serialize>(
        &self,
        key: &Request,
        patch: &Patch<P>,
        params: &PatchParams,
    ) -> Result<K, ClientError> {
        let (call, body) = self.patch_at("patch", key, None, patch, params).await?;
        decode(call, &body)
    }

    /// Patches an object's status, and nothing else.
    ///
    /// # Errors
    ///
    /// As [`patch`](Self::patch).
    pub async fn patch_status<P: Serialize>(
        &self,
        key: &Request,
        patch: &Patch<P>,
    ) -> Result<K, ClientError> {
        self.status().patch(key, patch).await
    }

    /// Patches with a JSON patch, given as its operations.
    pub(crate) async fn json_patch(
        &self,
        key: &Request,
        operations: &Value,
    ) -> Result<K, ClientError> {
        let call = self.call("patch", key.to_string());
        // Path and parameters are those of a merge patch; body and content type are a JSON patch's.
        let params = self.client.options.patch_params(&PatchParams::default(), false);
        let request = self
            .path_of(&call, key)?
            .patch(&key.name, &params, &Patch::Merge(operations))
            .map(|mut request| {
                request.headers_mut().insert(header::CONTENT_TYPE, JSON_PATCH);
                accept_one::<K, _>(request)
            });
        decode(call.clone(), &self.write(call, key, request).await?)
    }

    /// Patches an object or one of its subresources.
    pub(super) async fn patch_at<P: Serialize>(
        &self,
        verb: &'static str,
        key: &Request,
        subresource: Option<&str>,
        patch: &Patch<P>,
        params: &PatchParams,
    ) -> Result<(Call, Bytes), ClientError> {
        let call = self.call(verb, key.to_string());
        let params = self.client.options.patch_params(params, matches!(patch, Patch::Apply(_)));
        let path = self.path_of(&call, key)?;
        let request = match subresource {
            Some(subresource) => path.patch_subresource(subresource, &key.name, &params, patch),
            None => path.patch(&key.name, &params, patch).map(accept_one::<K, _>),
        };
        let body = self.write(call.clone(), key, request).await?;
        Ok((call, body))
    }
}
