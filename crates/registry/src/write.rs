//! Create, update, patch and delete: the one write path.
//!
//! # Theory
//!
//! Every write ends in one compare-and-commit of one object's bytes.
//!
//! ```text
//! create  body → decode, default → system metadata → managedFields → admission (mutate)
//!              → name, uid, times → prepare → validate → admission (validate) → commit if absent
//! update  ┌─▶ stored bytes → old ─┬▶ new = body │ patch(old) │ apply(old)
//!         │                       └▶ managedFields → admission → resourceVersion → prepare → validate → admission
//!         └── lost the race ◀── commit if unchanged ◀── same bytes? nothing is written
//! delete      preconditions → grace, finalizers → an update, or commit of a removal
//! ```
//!
//! A patch that loses a race is applied again to what won; a PUT that carries a resourceVersion is refused instead. Two trees exist
//! in a request, the stored one and the new one; neither outlives it. What was stored and what is answered are the same bytes.
mod apply;
mod binding;
mod body;
mod collection;
mod connect;
mod create;
mod delete;
mod eviction;
mod generate;
mod grant;
mod metadata;
mod ownership;
mod patch;
mod persist;
mod repeat;
mod scale;
mod status;
mod update;
mod version;

use crate::attributes::{Attributes, Target};
use crate::catalog::Resource;
use crate::kind::Action;
use crate::request::*;
use crate::shared::{Inner, Registry};
use repeat::{AtFence, Turns};
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;

/// One write on its way: who asks for what, and what it is done with.
#[derive(Debug, Clone, Copy)]
struct Write<'a> {
    inner: &'a Inner,
    attributes: &'a Attributes,
    target: &'a Target,
    resource: &'a Resource,
    options: &'a WriteOptions,
    at_fence: &'a AtFence,
    now: Timestamp,
}
impl Registry {
    /// POST to a collection, or to a connect-like subresource (`binding`, `eviction`, `token`).
    ///
    /// # Errors
    /// The `Status` that a Kubernetes API server answers in the same case. When the future is dropped, the object may or may not exist.
    pub async fn create(
        &self,
        attributes: &Attributes,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let target = attributes.target()?;
        let mut turns = Turns::new(self, attributes, target, options);
        loop {
            let write = turns.write();
            let action = target.resource.kind.action(target.subresource_name());
            let written = match (action, &target.subresource) {
                (Some(Action::Bind), _) => write.bind(&body).await,
                (Some(Action::Evict), _) => write.evict(&body).await,
                (None, None) => write.create(&body).await,
                (None, Some(_)) => write.connect().await,
            };
            if let Some(written) = turns.settle(written).await {
                return written;
            }
        }
    }
    /// PUT.
    ///
    /// # Errors
    /// As [`create`](Self::create); a stale resourceVersion is a 409.
    pub async fn update(
        &self,
        attributes: &Attributes,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let mut turns = Turns::new(self, attributes, attributes.target()?, options);
        loop {
            let write = turns.write();
            let written = match write.is_connect() {
                true => write.connect().await,
                false => write.replace(&body).await,
            };
            if let Some(written) = turns.settle(written).await {
                return written;
            }
        }
    }
    /// PATCH.
    ///
    /// # Errors
    /// As [`create`](Self::create); conflicts of an apply are a 409 with a cause for each field.
    pub async fn patch(
        &self,
        attributes: &Attributes,
        patch_type: PatchType,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let mut turns = Turns::new(self, attributes, attributes.target()?, options);
        loop {
            let write = turns.write();
            let written = match write.is_connect() {
                true => write.connect().await,
                false => write.patch(patch_type, &body).await,
            };
            if let Some(written) = turns.settle(written).await {
                return written;
            }
        }
    }
    /// DELETE of one object.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn delete(
        &self,
        attributes: &Attributes,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let none = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        let turns = Turns::new(self, attributes, attributes.target()?, &none);
        if turns.write().is_connect() {
            let written = turns.write().connect().await?;
            return Ok(Deleted::Object { object: written.object, remains: true });
        }
        turns.delete(options).await
    }
    /// DELETE of a collection: the objects that matched, as they were.
    ///
    /// # Errors
    /// The first one that is not "not found"; objects before it are gone by then.
    pub async fn delete_collection(
        &self,
        attributes: &Attributes,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<List, ApiError> {
        collection::delete(self, attributes, list, options).await
    }
}
