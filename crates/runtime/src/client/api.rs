//! The calls on one type.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use kube_core::{
    Resource,
    request::{Error as RequestError, Request as RequestPath},
};
use serde::{Serialize, de::DeserializeOwned};
use setpoint_informer::{Cacheable, Lister, SharedInformer, from_json};
use setpoint_object::{Head, label::Selector, name::path_segment};

use super::{Call, Client, ClientError, ReadFrom, WriteOutcome};
use crate::{
    cache::{CacheInformer, CacheLister},
    pass::Place,
    request::Request,
};

/// Reads and writes of one type; from [`Client::api`]. Cheap to clone.
///
/// | call | asks | equivalent |
/// |---|---|---|
/// | [`get_own`](Self::get_own), [`get_at_least`](Self::get_at_least), [`lister_own`](Self::lister_own) | the cache, once it shows a write | – |
/// | [`get`](Self::get), [`list`](Self::list), [`select`](Self::select), [`lister`](Self::lister) | the cache, at once | the cached reader |
/// | [`get_live`](Self::get_live), [`list_live`](Self::list_live), [`page_live`](Self::page_live) | the server | the API reader |
/// | [`watch_live`](Self::watch_live) | the server, by a watch | the client with watch |
/// | [`create`](Self::create), [`replace`](Self::replace), [`patch`](Self::patch), [`merge`](Self::merge), [`apply`](Self::apply), [`delete`](Self::delete) … | the server | the writer |
/// | [`update_with_retry`](Self::update_with_retry) | the server, by a patch, again after a conflict | `retry.RetryOnConflict` |
/// | [`status`](Self::status), [`scale`](Self::scale), [`subresource`](Self::subresource) … | the server | the sub-resource client |
///
/// Keys of cluster-scoped objects have an empty namespace. If a write's future is dropped, the
/// server may or may not have done the write.
pub struct Api<K: Resource> {
    pub(super) client: Client,
    pub(super) dynamic_type: Arc<K::DynamicType>,
    pub(super) resource: Arc<str>,
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

/// Reads from the cache. They never wait and send no request.
impl<K: Cacheable> Api<K> {
    pub(super) fn new(client: Client, dynamic_type: K::DynamicType) -> Self {
        let resource = client.cache.resource_name::<K>(&dynamic_type);
        Self { client, dynamic_type: Arc::new(dynamic_type), resource }
    }

    /// The type's run-time part.
    pub fn dynamic_type(&self) -> &K::DynamicType {
        &self.dynamic_type
    }

    /// The object in the cache; `None` if there is none. It may be older than the last write:
    /// [`get_own`](Self::get_own) waits for that.
    ///
    /// # Errors
    ///
    /// The type or the namespace is not cached or has not synced, or the object does not fit the
    /// type.
    pub fn get(&self, key: &Request) -> Result<Option<Arc<K>>, ClientError> {
        let object = self.lister_of(&key.namespace)?.get_key(key)?;
        self.note_read(key, ReadFrom::Cache);
        Ok(object)
    }

    /// The objects in the cache whose labels match, by key. Without a namespace: all that are
    /// cached. If each namespace has its own informer (CCH-4), these are not read at a single
    /// moment. [`select`](Self::select) has more criteria.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get): one object that does not fit the type fails the whole list.
    /// [`Select::readable`](crate::client::Select::readable) returns the others.
    pub fn list(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<K>>, ClientError> {
        let objects = match namespace {
            Some(namespace) => self.lister_of(namespace)?.namespaced(namespace).list(selector),
            None => self.lister()?.list(selector),
        };
        self.note_list(namespace, ReadFrom::Cache);
        Ok(objects?)
    }

    /// The cache itself, to read objects without decoding them.
    ///
    /// # Errors
    ///
    /// The type is not watched, or one of its namespaces has not synced.
    pub fn lister(&self) -> Result<CacheLister<K>, ClientError> {
        let informer = self.known()?;
        if !informer.has_synced() {
            return Err(ClientError::NotSynced { resource: self.resource.clone() });
        }
        Ok(informer.lister())
    }

    /// The cache of one namespace, and possibly others. Other namespaces need not have synced.
    ///
    /// # Errors
    ///
    /// The type is not watched, or the namespace is not cached or has not synced.
    pub fn lister_of(&self, namespace: &str) -> Result<Lister<K>, ClientError> {
        let informer = self.known()?;
        let informer: &SharedInformer<K> = informer.of_namespace(namespace)?;
        if !informer.has_synced() {
            return Err(ClientError::NotSynced { resource: self.resource.clone() });
        }
        Ok(informer.lister())
    }

    pub(super) fn known(&self) -> Result<CacheInformer<K>, ClientError> {
        let known = self.client.cache.known::<K>(&self.dynamic_type);
        known.ok_or_else(|| ClientError::NotCached { resource: self.resource.clone() })
    }
}

/// Building blocks of the calls.
impl<K: Cacheable> Api<K> {
    /// Sends a write of `key`; returns the server's answer as bytes. Remembers the version, so that
    /// reads can wait until the caches show it.
    pub(super) async fn write(
        &self,
        call: Call,
        key: &Request,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<Bytes, ClientError> {
        let verb = call.verb;
        let answer = self.send_and_look(call, request).await;
        let was_dry_run = self.client.options.is_dry_run || matches!(answer, Ok((_, true)));
        let answer = answer.map(|(body, _)| body);
        let mut key = key.clone();
        let (mut version, mut gone) = (None, None);
        // A dry run has no version to wait for.
        if let Ok(body) = &answer
            && !was_dry_run
            && let Ok(head) = Head::of(body)
            && let name = head.name(body)
            && !name.is_empty()
        {
            // The answer has the generated name, and the namespace.
            let namespace = head.namespace(body);
            if *name != *key.name || *namespace != *key.namespace {
                key = Request::new(&*namespace, &*name);
            }
            gone = self.note_answer(&key, body);
            version = Some(head.resource_version(body));
        }
        if let Some(pass) = self.client.pass() {
            let outcome = WriteOutcome::of(&answer);
            let written = version.as_deref().zip(answer.as_ref().ok());
            pass.note_written(self.place(), &key, verb, written, outcome);
            if let Some(uid) = gone {
                pass.note_gone(self.place(), &key, uid, None);
            }
        }
        answer
    }
}

impl<K: Resource> Api<K> {
    /// The path of the collection.
    pub(super) fn path(
        &self,
        call: &Call,
        namespace: Option<&str>,
    ) -> Result<RequestPath, ClientError> {
        if let Some(namespace) = namespace {
            check_part(call, namespace)?;
        }
        Ok(RequestPath::new(K::url_path(&self.dynamic_type, namespace)))
    }

    /// The path of the collection of an object, whose name is checked.
    pub(super) fn path_of(&self, call: &Call, key: &Request) -> Result<RequestPath, ClientError> {
        check_part(call, &key.name)?;
        self.path(call, key.namespace_opt())
    }

    pub(super) fn call(&self, verb: &'static str, object: impl Into<String>) -> Call {
        Call { verb, resource: self.resource.clone(), object: object.into() }
    }

    pub(super) async fn send(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<Bytes, ClientError> {
        self.send_and_look(call, request).await.map(|(body, _)| body)
    }

    /// [`send`](Self::send), and whether a layer turned it into a dry run.
    pub(super) async fn send_and_look(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<(Bytes, bool), ClientError> {
        match request {
            Ok(request) => self.client.send_and_look(call, request).await,
            Err(source) => Err(ClientError::Request { call, source: source.into() }),
        }
    }
}

/// Records reads and writes for the pass, if any.
impl<K: Resource> Api<K> {
    pub(super) fn place(&self) -> Place<'_> {
        let cluster = self.client.cluster.as_ref();
        Place { cache: self.client.cache.id(), resource: &self.resource, cluster }
    }

    pub(super) fn note_read(&self, key: &Request, from: ReadFrom) {
        if let Some(pass) = self.client.pass() {
            pass.note_read(self.place(), key, from);
        }
    }

    pub(super) fn note_list(&self, namespace: Option<&str>, from: ReadFrom) {
        if let Some(pass) = self.client.pass() {
            pass.note_list(self.place(), namespace, from);
        }
    }
}

/// Refuses a part that would lead to another path.
pub(super) fn check_part(call: &Call, part: &str) -> Result<(), ClientError> {
    if part.is_empty() || !path_segment(part).is_empty() {
        return Err(ClientError::Key { call: call.clone(), part: part.to_owned() });
    }
    Ok(())
}

pub(super) fn encode<T: Serialize + ?Sized>(
    call: &Call,
    object: &T,
) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(object)
        .map_err(|source| ClientError::Request { call: call.clone(), source: source.into() })
}

pub(super) fn decode<T: DeserializeOwned>(call: Call, body: &[u8]) -> Result<T, ClientError> {
    from_json(body).map_err(|source| ClientError::Decode { call, source })
}
