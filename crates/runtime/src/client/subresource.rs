//! Calls on a subresource: status, scale, eviction, token, and any other (CLI-7).

use std::{fmt, marker::PhantomData, sync::Arc};

use k8s_openapi::api::{
    authentication::v1::TokenRequest, autoscaling::v1::Scale, policy::v1::Eviction,
};
use kube_core::{
    Resource,
    params::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use setpoint_informer::Cacheable;

use super::{
    Api, ClientError, ReadFrom,
    api::{check_part, decode, encode},
    live::is_absent,
};
use crate::request::Request;

/// Calls on one subresource of a type, with bodies of type `B`; from [`Api::status`],
/// [`Api::scale`], [`Api::subresource`] …
///
/// Every call is a request. The server decides which calls a subresource supports; a 405 is an
/// ordinary error.
pub struct Subresource<K: Resource, B> {
    pub(super) api: Api<K>,
    pub(super) name: Arc<str>,
    body: PhantomData<fn() -> B>,
}

impl<K: Resource, B> Clone for Subresource<K, B> {
    fn clone(&self) -> Self {
        Self { api: self.api.clone(), name: self.name.clone(), body: PhantomData }
    }
}

impl<K: Resource, B> fmt::Debug for Subresource<K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subresource")
            .field("resource", &self.api.resource)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<K: Cacheable> Api<K> {
    /// The status. Bodies are whole objects, of which only the status is used.
    pub fn status(&self) -> Subresource<K, K> {
        self.subresource("status")
    }

    /// The scale, for types that have one.
    pub fn scale(&self) -> Subresource<K, Scale> {
        self.subresource("scale")
    }

    /// The eviction of a pod, subject to its disruption budget: only [`Subresource::create`]. A 429
    /// means "not now".
    pub fn eviction(&self) -> Subresource<K, Eviction> {
        self.subresource("eviction")
    }

    /// Tokens of a service account: only [`Subresource::create`].
    pub fn token(&self) -> Subresource<K, TokenRequest> {
        self.subresource("token")
    }

    /// The subresource `name`, with bodies of type `B`.
    pub fn subresource<B>(&self, name: impl Into<Arc<str>>) -> Subresource<K, B> {
        Subresource { api: self.clone(), name: name.into(), body: PhantomData }
    }
}

impl<K: Cacheable, B: DeserializeOwned> Subresource<K, B> {
    /// The subresource on the server; `None` if the object does not exist.
    ///
    /// # Errors
    ///
    /// Any failure except that the object is absent.
    pub async fn get(&self, key: &Request) -> Result<Option<B>, ClientError> {
        let call = self.call("get", key)?;
        let path = self.api.path_of(&call, key)?;
        self.api.note_read(key, ReadFrom::Server);
        match self.api.send(call.clone(), path.get_subresource(&self.name, &key.name)).await {
            Err(error) if is_absent(&error) => Ok(None),
            answer => decode(call, &answer?).map(Some),
        }
    }

    /// Patches it, with any patch type. Returns the server's result.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn patch<P: Serialize>(
        &self,
        key: &Request,
        patch: &Patch<P>,
    ) -> Result<B, ClientError> {
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
    ) -> Result<B, ClientError> {
        let call = self.call("patch", key)?;
        let (_, body) = self.api.patch_at(call.verb, key, Some(&self.name), patch, params).await?;
        decode(call, &body)
    }
}

impl<K: Cacheable, B: DeserializeOwned + Serialize> Subresource<K, B> {
    /// Replaces it. Returns the server's result.
    ///
    /// # Errors
    ///
    /// The server refuses, as with a conflict, or cannot be reached.
    pub async fn replace(&self, key: &Request, body: &B) -> Result<B, ClientError> {
        let call = self.call("update", key)?;
        let options = &self.api.client.options;
        let path = self.api.path_of(&call, key)?;
        let body = encode(&call, body)?;
        let request = path.replace_subresource(&self.name, &key.name, &options.post_params(), body);
        let request = request.map(|request| options.validate(request));
        decode(call.clone(), &self.api.write(call, key, request).await?)
    }
}

impl<K: Cacheable, B: Serialize> Subresource<K, B> {
    /// Creates it: an eviction, a token, a binding. The answer's type depends on the subresource:
    /// the same body with its status, or a `Status`.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn create<A: DeserializeOwned>(
        &self,
        key: &Request,
        body: &B,
    ) -> Result<A, ClientError> {
        let call = self.call("create", key)?;
        let options = &self.api.client.options;
        let path = self.api.path_of(&call, key)?;
        let body = encode(&call, body)?;
        let request = path.create_subresource(&self.name, &key.name, &options.post_params(), body);
        let request = request.map(|request| options.validate(request));
        decode(call.clone(), &self.api.write(call, key, request).await?)
    }
}

impl<K: Resource, B> Subresource<K, B> {
    /// The call; fails if the subresource's name cannot be part of a path.
    pub(super) fn call(
        &self,
        verb: &'static str,
        key: &Request,
    ) -> Result<super::Call, ClientError> {
        let verb = match (verb, &*self.name) {
            ("get", "status") => "get status of",
            ("update", "status") => "update status of",
            ("patch", "status") => "patch status of",
            ("apply", "status") => "apply status of",
            ("get", _) => "get a subresource of",
            ("update", _) => "update a subresource of",
            ("patch", _) => "patch a subresource of",
            ("apply", _) => "apply a subresource of",
            (_, _) => "create a subresource of",
        };
        let call = self.api.call(verb, key.to_string());
        check_part(&call, &self.name)?;
        Ok(call)
    }
}
