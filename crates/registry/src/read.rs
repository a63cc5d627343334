//! GET, LIST and WATCH.
//!
//! # Theory
//!
//! | read                                         | served from                                                     |
//! |----------------------------------------------|-----------------------------------------------------------------|
//! | GET                                          | the store, live                                                 |
//! | LIST, newest                                 | the cache, once it has reached the store's revision             |
//! | LIST, any (`0`) or not older than            | the cache, for the latter once it has reached the revision      |
//! | LIST, exact, and all pages but the first     | the store at that revision                                      |
//! | WATCH                                        | the cache: its index for initial events, then its window        |
//!
//! Objects go out as the bytes they are stored as, with the resourceVersion spliced in; a tree is made only for versions
//! other than the stored one. A LIST before the cache is filled reads the store.
mod field;
mod list;
mod options;
mod scope;
mod token;

pub(crate) use field::Field;
pub(crate) use options::{Fresh, WatchStart};
pub(crate) use scope::Scope;

use crate::attributes::Attributes;
use crate::convert;
use crate::request::*;
use crate::shared::Registry;
use crate::subresource::Subresource;
use crate::verb::Verb;
use crate::watch::WatchStream;
use crate::write;
use setpoint_object::{ApiError, encode, name};
use setpoint_store::{At, StoreError};

impl Registry {
    /// GET of an object or of a readable subresource (`status`, `scale`).
    ///
    /// Dropping the future does nothing.
    ///
    /// # Errors
    ///
    /// 404; 500 for a resourceVersion that is no number; 504 for one that the store does not reach within three seconds.
    pub async fn get(
        &self,
        attributes: &Attributes,
        resource_version: &str,
    ) -> Result<Object, ApiError> {
        let target = attributes.target()?;
        let resource = &*target.resource;
        if let Some(fault) = name::path_segment(&target.name).first() {
            let text = format!("Name parameter invalid: \"{}\": {fault}", target.name);
            return Err(ApiError::bad_request(text));
        }
        let asked = options::parse_revision(resource_version).map_err(ApiError::unclassified)?;
        let key = resource.key(&target.namespace, &target.name);
        let store = &*self.inner.store;
        let mut found = store.get(&key, At::Latest).await.map_err(read_error)?;
        if asked > found.revision.0 {
            self.inner.cache.wait_fresh(asked).await?;
            found = store.get(&key, At::Latest).await.map_err(read_error)?;
        }
        let Some(stored) = found.value else {
            return Err(ApiError::not_found(&resource.group_resource(), &target.name));
        };
        if setpoint_store::is_sealed(&stored.value) {
            return Err(unreadable(&key, NOT_ENCRYPTING));
        }
        let bytes = convert::serve(resource, &stored.value, stored.modified.0)?;
        let name = match &target.subresource {
            None => return Ok(Object { bytes }),
            Some(Subresource::Scale) => {
                let scale = write::scale_of(resource, &write::tree(&bytes)?)?;
                return Ok(Object { bytes: encode::to_bytes(&scale) });
            }
            Some(name) => name,
        };
        let subresource = resource.subresource(name).ok_or_else(|| {
            if resource.custom {
                ApiError::not_found(&resource.group_resource(), &target.name)
            } else {
                ApiError::no_route()
            }
        })?;
        if !subresource.verbs.contains(&Verb::Get) {
            return Err(ApiError::method_not_allowed());
        }
        // What has the object's own kind shows the object; the rest (`log`, `exec`, …) is a node's to answer.
        if subresource.gvk.kind == resource.gvk.kind && !write::is_connected(resource, target) {
            return Ok(Object { bytes });
        }
        Err(write::no_agent(&resource.resource, &target.name, &write::tree(&bytes)?))
    }
    /// LIST.
    ///
    /// Dropping the future does nothing.
    ///
    /// # Errors
    ///
    /// 400 and 422 for options that cannot be, 410 for history that is gone, 504 for a revision that the store does not
    /// reach within three seconds.
    pub async fn list(
        &self,
        attributes: &Attributes,
        options: &ListOptions,
    ) -> Result<List, ApiError> {
        list::List::new(&self.inner, attributes.target()?, options)?.run().await
    }
    /// WATCH. Refusals come as `Err` (before the stream), a too old start as the stream's first `Err`.
    ///
    /// The stream has its place when this returns: it misses no change that happens later, whenever it is polled.
    ///
    /// # Errors
    ///
    /// 400, 422 and 500 for options that cannot be; 429 while the cache is not filled.
    pub async fn watch(
        &self,
        attributes: &Attributes,
        options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        let start = WatchStart::of(options)?;
        let scope = Scope::new(attributes.target()?, options)?;
        WatchStream::start(&self.inner, scope, start, options).await
    }
}

/// A read's failure as clients see it.
fn read_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted { .. } => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        StoreError::Future { asked, current } => {
            ApiError::too_large_resource_version(asked.0, current.0)
        }
        other => write::store_error(other),
    }
}

/// Why a store that encrypts nothing cannot tell what a value holds. The words are those of Kubernetes' API server.
pub(crate) const NOT_ENCRYPTING: &str = "identity transformer tried to read encrypted data";

/// Why a value could not be made out: the store says it when the key is asked for by itself.
async fn sealed_error(inner: &crate::shared::Inner, key: &[u8]) -> ApiError {
    match inner.store.get(key, At::Latest).await {
        Err(error) => read_error(error),
        Ok(_) => unreadable(key, NOT_ENCRYPTING),
    }
}
/// A value that could not be made out.
pub(crate) fn unreadable(key: &[u8], reason: &str) -> ApiError {
    let (key, reason) = (String::from_utf8_lossy(key).into_owned(), reason.to_owned());
    read_error(StoreError::Unreadable { key, reason })
}

#[cfg(test)]
mod tests;
