//! The calls on a subresource: status, scale, eviction, token, and any other (CLI-7).

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

/// The calls on one subresource of a type, whose bodies are `B`; from [`Api::status`],
/// [`Api::scale`], [`Api::subresource`] …
///
/// Every call asks the server. Which of them a subresource has is the server's to say: a 405 is an
/// error as any other.
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
    /// The calls on objects' status: bodies are whole objects, of which only the status counts.
    pub fn status(&self) -> Subresource<K, K> {
        self.subresource("status")
    }

    /// The calls on how many there are to be, for types that have such a number.
    pub fn scale(&self) -> Subresource<K, Scale> {
        self.subresource("scale")
    }

    /// The calls that ask a pod to go, if its disruption budget allows: [`Subresource::create`]
    /// alone; a 429 says "not now".
    pub fn eviction(&self) -> Subresource<K, Eviction> {
        self.subresource("eviction")
    }

    /// The calls that make a service account's token: [`Subresource::create`] alone.
    pub fn token(&self) -> Subresource<K, TokenRequest> {
        self.subresource("token")
    }

    /// The calls on the subresource `name`, whose bodies are `B`.
    pub fn subresource<B>(&self, name: impl Into<Arc<str>>) -> Subresource<K, B> {
        Subresource { api: self.clone(), name: name.into(), body: PhantomData }
    }
}

impl<K: Cacheable, B: DeserializeOwned> Subresource<K, B> {
    /// What the server has now; `None` if there is no such object.
    ///
    /// # Errors
    ///
    /// Anything but the object's absence.
    pub async fn get(&self, key: &Request) -> Result<Option<B>, ClientError> {
        let call = self.call("get", key)?;
        let path = self.api.path_of(&call, key)?;
        self.api.note_read(key, ReadFrom::Server);
        match self.api.send(call.clone(), path.get_subresource(&self.name, &key.name)).await {
            Err(error) if is_absent(&error) => Ok(None),
            answer => decode(call, &answer?).map(Some),
        }
    }

    /// Patches it, in any of the four ways. Gives it as the server then has it.
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

    /// [`patch`](Self::patch), with parameters; what they leave open is the client's.
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
    /// Replaces it. Gives it as the server then has it.
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
    /// Asks for something to be done by creating it: an eviction, a token, a binding. The answer's
    /// type is the subresource's: the same body with its status, or a `Status`.
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
    /// The call, if the subresource's name can be part of a path.
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
