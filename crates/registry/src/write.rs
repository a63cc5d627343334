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
//! A patch that loses a race is applied again to what won; a PUT that carries a resourceVersion is
//! refused instead. Two trees exist in a request, the stored one and the new one; neither outlives
//! it. What was stored and what is answered are the same bytes.
mod apply;
mod ask;
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
use crate::read::List;
use crate::request::*;
use crate::shared::{Inner, Registry};
use ask::{Create, Delete, Inline, Patch, Update};
use repeat::AtFence;
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
    /// `None`: however much it takes.
    inline: Option<&'a Inline>,
    now: Timestamp,
}
impl Registry {
    /// POST to a collection, or to a connect-like subresource (`binding`, `eviction`, `token`).
    ///
    /// # Errors
    /// The `Status` that a Kubernetes API server answers in the same case. When the future is
    /// dropped, the object may or may not exist.
    pub async fn create(
        &self,
        attributes: &Attributes,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        ask::run(self, attributes, attributes.target()?, options, Create(body)).await
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
        ask::run(self, attributes, attributes.target()?, options, Update(body)).await
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
        ask::run(self, attributes, attributes.target()?, options, Patch(patch_type, body)).await
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
        let ask = Delete(options.clone());
        ask::run(self, attributes, attributes.target()?, &none, ask).await
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
