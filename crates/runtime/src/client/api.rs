//! The calls on one type.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use kube_core::{
    Resource,
    params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams},
    request::{Error as RequestError, Request as RequestPath},
};
use serde::{Serialize, de::DeserializeOwned};
use setpoint_informer::{Cacheable, Lister, ResourceType};
use setpoint_object::label::Selector;

use super::{Call, Client, ClientError};
use crate::request::Request;

/// Reads and writes of one type; from [`Client::api`]. Cheap to clone.
///
/// Keys of cluster-scoped objects have an empty namespace. Dropping a write's future leaves it open whether the server did it.
pub struct Api<K: Resource> {
    client: Client,
    dynamic_type: Arc<K::DynamicType>,
    resource: Arc<str>,
}

impl<K: Resource> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            dynamic_type: self.dynamic_type.clone(),
            resource: self.resource.clone(),
        }
    }
}

impl<K: Resource> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Reads from the cache: they never wait, and reach no server.
impl<K: Cacheable> Api<K> {
    pub(super) fn new(client: Client, dynamic_type: K::DynamicType) -> Self {
        let resource = ResourceType::of::<K>(&dynamic_type).to_string().into();
        Self { client, dynamic_type: Arc::new(dynamic_type), resource }
    }

    /// The type's run-time part.
    pub fn dynamic_type(&self) -> &K::DynamicType {
        &self.dynamic_type
    }

    /// The object as the cache has it; `None` if the cache has none.
    ///
    /// # Errors
    ///
    /// The type is not watched or has not synced, or the object does not fit it.
    pub fn get(&self, key: &Request) -> Result<Option<Arc<K>>, ClientError> {
        Ok(self.lister()?.get_key(key)?)
    }

    /// The objects in the cache whose labels match, by key. No namespace is all of them.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn list(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<K>>, ClientError> {
        let lister = self.lister()?;
        Ok(match namespace {
            Some(namespace) => lister.namespaced(namespace).list(selector)?,
            None => lister.list(selector)?,
        })
    }

    /// The cache itself, for reads by index and of objects that are not decoded.
    ///
    /// # Errors
    ///
    /// The type is not watched, or has not synced.
    pub fn lister(&self) -> Result<Lister<K>, ClientError> {
        let Some(informer) = self.client.cache.known::<K>(&self.dynamic_type) else {
            return Err(ClientError::NotCached { resource: self.resource.clone() });
        };
        if !informer.has_synced() {
            return Err(ClientError::NotSynced { resource: self.resource.clone() });
        }
        Ok(informer.lister())
    }
}

/// Reads that ask the server.
impl<K: Cacheable> Api<K> {
    /// The object as the server has it now; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Anything but the object's absence; that the resource itself is not served is an error too.
    pub async fn get_live(&self, key: &Request) -> Result<Option<K>, ClientError> {
        let request = self.path(key.namespace_opt()).get(&key.name, &GetParams::default());
        match self.ask("get", key.to_string(), request).await {
            // The object is named where it is missing, and not where the whole resource is.
            Err(ClientError::Api { source, .. })
                if source.code() == 404
                    && source
                        .0
                        .details
                        .as_ref()
                        .is_some_and(|details| !details.name.is_empty()) =>
            {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// The objects that the server has now, as `params` select them. No namespace is all of them.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn list_live(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<K>, ClientError> {
        #[derive(serde::Deserialize)]
        struct Items<K> {
            #[serde(default = "Vec::new")]
            items: Vec<K>,
        }
        let request = self.path(namespace).list(params);
        let object = namespace.unwrap_or_default().to_owned();
        Ok(self.ask::<Items<K>>("list", object, request).await?.items)
    }
}

/// Writes. Each gives the object as the server then has it.
impl<K: Cacheable + Serialize> Api<K> {
    /// Creates an object, in the namespace it names.
    ///
    /// # Errors
    ///
    /// The server refuses, as when there is one already, or cannot be reached.
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        let name = object
            .meta()
            .name
            .clone()
            .unwrap_or_else(|| object.meta().generate_name.clone().unwrap_or_default());
        let call = self.call("create", key_text(object.meta().namespace.as_deref(), &name));
        let body = self.encode(&call, object)?;
        let request =
            self.path(object.meta().namespace.as_deref()).create(&self.post_params(), body);
        self.write(call, request).await
    }

    /// Replaces an object's spec and metadata; with its resourceVersion only if nobody wrote in between.
    ///
    /// # Errors
    ///
    /// The server refuses, as with a conflict, or cannot be reached.
    pub async fn replace(&self, object: &K) -> Result<K, ClientError> {
        let (call, name, body) = self.named("update", object)?;
        let request =
            self.path(object.meta().namespace.as_deref()).replace(&name, &self.post_params(), body);
        self.write(call, request).await
    }

    /// Replaces an object's status, and nothing else.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub async fn replace_status(&self, object: &K) -> Result<K, ClientError> {
        let (call, name, body) = self.named("update status of", object)?;
        let path = self.path(object.meta().namespace.as_deref());
        let request = path.replace_subresource("status", &name, &self.post_params(), body);
        self.write(call, request).await
    }

    /// Server-side apply: the fields that `object` names are this client's, and become what it says.
    ///
    /// With `force`, fields of other managers are taken over; without, they are a conflict.
    ///
    /// # Errors
    ///
    /// The server refuses, as with a conflict, or cannot be reached.
    pub async fn apply<P: Serialize>(
        &self,
        key: &Request,
        object: &P,
        force: bool,
    ) -> Result<K, ClientError> {
        let params = PatchParams { force, ..PatchParams::default() };
        self.patch_with(key, &Patch::Apply(object), &params).await
    }
}

/// Writes that need not encode the whole object.
impl<K: Cacheable> Api<K> {
    /// Patches an object. Gives it as the server then has it.
    ///
    /// # Errors
    ///
    /// The server refuses, as when a JSON patch's test fails, or cannot be reached.
    pub async fn patch<P: Serialize>(
        &self,
        key: &Request,
        patch: &Patch<P>,
    ) -> Result<K, ClientError> {
        self.patch_with(key, patch, &PatchParams::default()).await
    }

    /// [`patch`](Self::patch), with parameters; the field manager is the client's unless they name one.
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
        let request =
            self.path(key.namespace_opt()).patch(&key.name, &self.patch_params(params), patch);
        self.write(self.call("patch", key.to_string()), request).await
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
        let params = self.patch_params(&PatchParams::default());
        let request =
            self.path(key.namespace_opt()).patch_subresource("status", &key.name, &params, patch);
        self.write(self.call("patch status of", key.to_string()), request).await
    }

    /// Patches with a JSON patch that is given as its operations.
    pub(crate) async fn json_patch(
        &self,
        key: &Request,
        operations: &serde_json::Value,
    ) -> Result<K, ClientError> {
        let params = self.patch_params(&PatchParams::default());
        // The path and its parameters are those of a merge patch; body and type are this patch's.
        let request = self
            .path(key.namespace_opt())
            .patch(&key.name, &params, &Patch::Merge(operations))
            .map(|mut request| {
                let json_patch = http::HeaderValue::from_static("application/json-patch+json");
                request.headers_mut().insert(http::header::CONTENT_TYPE, json_patch);
                request
            });
        self.write(self.call("patch", key.to_string()), request).await
    }

    /// Deletes an object; with finalizers or a grace period it may stay for a while. An object that is gone already is no error.
    ///
    /// # Errors
    ///
    /// The server refuses, as when a precondition fails, or cannot be reached.
    pub async fn delete(&self, key: &Request, params: &DeleteParams) -> Result<(), ClientError> {
        let call = self.call("delete", key.to_string());
        let request = self.path(key.namespace_opt()).delete(&key.name, params);
        match self.send(call, request).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }
}

impl<K: Resource> Api<K> {
    fn path(&self, namespace: Option<&str>) -> RequestPath {
        RequestPath::new(K::url_path(&self.dynamic_type, namespace))
    }

    fn call(&self, verb: &'static str, object: String) -> Call {
        Call { verb, resource: self.resource.clone(), object }
    }

    fn post_params(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.client.field_manager.to_string()),
            ..PostParams::default()
        }
    }

    fn patch_params(&self, params: &PatchParams) -> PatchParams {
        let mut params = params.clone();
        params.field_manager.get_or_insert_with(|| self.client.field_manager.to_string());
        params
    }

    fn encode<T: Serialize>(&self, call: &Call, object: &T) -> Result<Vec<u8>, ClientError> {
        serde_json::to_vec(object)
            .map_err(|source| ClientError::Request { call: call.clone(), source: source.into() })
    }

    /// The call, name and body of a write to an object that must have a name.
    fn named(&self, verb: &'static str, object: &K) -> Result<(Call, String, Vec<u8>), ClientError>
    where
        K: Serialize,
    {
        let name = object.meta().name.clone().unwrap_or_default();
        let call = self.call(verb, key_text(object.meta().namespace.as_deref(), &name));
        let body = self.encode(&call, object)?;
        Ok((call, name, body))
    }

    /// A write: the caches that show it later are known by its version.
    async fn write(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<K, ClientError>
    where
        K: DeserializeOwned,
    {
        let object: K = self.ask_for(call, request).await?;
        self.client.note_written(&self.resource, object.meta().resource_version.as_deref());
        Ok(object)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        object: String,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<T, ClientError> {
        self.ask_for(self.call(verb, object), request).await
    }

    async fn ask_for<T: DeserializeOwned>(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<T, ClientError> {
        let body = self.send(call.clone(), request).await?;
        serde_json::from_slice(&body).map_err(|source| ClientError::Decode { call, source })
    }

    async fn send(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<Bytes, ClientError> {
        match request {
            Ok(request) => self.client.send(call, request).await,
            Err(source) => Err(ClientError::Request { call, source: source.into() }),
        }
    }
}

fn key_text(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}
