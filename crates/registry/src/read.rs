//! GET, LIST and WATCH.
//!
//! # Theory
//!
//! | read | served from |
//! |---|---|
//! | GET | the store |
//! | LIST, newest | the cache, once it has reached the store's revision |
//! | LIST, any (`0`) | the cache |
//! | LIST, not older than | the cache, once it has reached the revision |
//! | LIST, exact, and all pages but the first | the store at that revision |
//! | WATCH | the cache: its index for initial events, then its window |
//!
//! Objects are served as their stored bytes with the resourceVersion spliced in. Only versions
//! other than the stored one need a tree. A LIST before the cache is filled reads the store.
mod list;
mod listed;
mod options;
mod scope;
mod token;

pub use listed::{List, Listed};
pub(crate) use options::{Fresh, WatchStart};
pub(crate) use scope::Scope;

use crate::attributes::check_name;
use crate::cache::LONG_BYTES_MIN;
use crate::connect::{is_connected, no_agent, object_name};
use crate::conversion::ObjectVersion;
use crate::convert;
use crate::request::*;
use crate::routed::Attributes;
use crate::scale::scale_of;
use crate::shared::Registry;
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::unreadable::sealed;
use crate::verb::Verb;
use setpoint_object::{ApiError, encode};
use setpoint_schema::INLINE_BYTES_MAX;
use setpoint_schema::encode::to_bytes;
use setpoint_store::At;

impl Registry {
    /// GET of an object or of a readable subresource (`status`, `scale`).
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// 404; 500 for a resourceVersion that is not a number; 504 for one that the store does not
    /// reach within three seconds.
    pub async fn get(
        &self,
        attributes: &Attributes,
        resource_version: &str,
    ) -> Result<Object, ApiError> {
        let target = attributes.target()?;
        let resource = &*target.resource;
        self.inner.compile(resource).await?;
        check_name(&target.name)?;
        let asked = options::parse_revision(resource_version).map_err(ApiError::unclassified)?;
        let name = object_name(target)?;
        let key = resource.key(&target.namespace, name);
        let store = &*self.inner.store;
        let unread = |error| self.inner.error_of_one(error);
        let mut found = store.get(&key, At::Latest).await.map_err(unread)?;
        if asked > found.revision.0 {
            self.inner.cache.wait_fresh(asked).await?;
            found = store.get(&key, At::Latest).await.map_err(unread)?;
        }
        let Some(stored) = found.value else {
            return Err(ApiError::not_found(&resource.group_resource(), name));
        };
        if setpoint_store::is_sealed(&stored.value) {
            return Err(self.inner.error_of_one(sealed(&key)));
        }
        let (value, revision) = (stored.value, stored.modified.0);
        let is_long = |object: &[u8]| object.len() > INLINE_BYTES_MAX;
        let row = target.resource.clone();
        let bytes = match self.inner.served(resource) {
            Some(converter) => {
                let object = ObjectVersion { key: stored.key, revision, value };
                let served = converter.serve_one(&row, object).await?;
                let n_bytes = served.len();
                let splice = async move { encode::with_resource_version(&served, revision) };
                self.inner.threads.run_if(n_bytes > LONG_BYTES_MIN, splice).await?
            }
            None if value.len() > LONG_BYTES_MIN
                || is_long(&value) && !convert::is_served_as_stored(resource, &value, revision) =>
            {
                let serve = async move { convert::serve(&row, &value, revision) };
                self.inner.threads.run(serve).await??
            }
            None => convert::serve(resource, &value, revision)?,
        };
        let is_long = is_long(&bytes);
        let word = match &target.subresource {
            None => return Ok(Object { bytes }),
            Some(Subresource::Scale) => {
                let row = target.resource.clone();
                let scale = async move { scale_of(&row, &tree(&bytes)?) };
                let scale = self.inner.threads.run_if(is_long, scale).await??;
                return Ok(Object { bytes: to_bytes(&scale) });
            }
            Some(word) => word,
        };
        let subresource =
            resource.subresource(word).ok_or_else(|| resource.no_subresource(&target.name))?;
        if !subresource.verbs.contains(&Verb::Get) {
            return Err(ApiError::method_not_allowed());
        }
        // A subresource of the object's own kind returns the object. A node serves the others
        // (`log`, `exec`, …).
        if subresource.gvk.kind == resource.gvk.kind && !is_connected(target) {
            return Ok(Object { bytes });
        }
        let object = self.inner.threads.run_if(is_long, async move { tree(&bytes) }).await??;
        Err(no_agent(target, name, &object))
    }
    /// LIST.
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// 400 and 422 for invalid options, 410 for a compacted revision, 504 for a revision that the
    /// store does not reach within three seconds.
    pub async fn list(
        &self,
        attributes: &Attributes,
        options: &ListOptions,
    ) -> Result<List, ApiError> {
        let target = attributes.target()?;
        let list = list::List::new(&self.inner, target, options)?;
        self.inner.compile(&target.resource).await?;
        list.run().await
    }
}

#[cfg(test)]
mod tests;
