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
//!         └── conflict ◀── commit if unchanged ◀── same bytes? nothing is written
//! delete      preconditions → grace, finalizers → an update, or commit of a removal
//! ```
//!
//! After a conflict, a patch is applied again to the new state, when it is its turn
//! ([`crate::turns`]). A PUT with a resourceVersion is refused instead. A request has at most two
//! trees, the stored one and the new one; both are dropped at its end. The stored bytes and the
//! answer are the same bytes.
mod access_review;
mod apply;
mod binding;
mod body;
mod cbor;
mod change;
mod collection;
mod connect;
mod create;
mod delete;
mod eviction;
mod execute;
mod generate;
mod grant;
mod metadata;
mod needs;
mod order;
mod other_versions;
mod ownership;
mod param_access;
mod patch;
mod persist;
mod retry;
mod review_selector;
mod scale;
mod status;
mod token;
mod update;
mod version;

use crate::catalog::Resource;
use crate::read::List;
use crate::request::*;
use crate::routed::{Attributes, Target};
use crate::shared::{Inner, Registry};
use crate::threads::ServingThread;
pub(crate) use collection::several_deletes;
use execute::{Connect, Create, Delete, Patch, Update};
use other_versions::Conversions;
use retry::AtFence;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;

/// One write in progress: the request and what it needs.
#[derive(Debug, Clone, Copy)]
struct Write<'a> {
    inner: &'a Inner,
    attributes: &'a Attributes,
    target: &'a Target,
    resource: &'a Resource,
    options: &'a WriteOptions,
    at_fence: &'a AtFence,
    /// Of its objects, between the versions of their kind.
    conversions: &'a Conversions,
    /// The size of the request's body.
    body_bytes: usize,
    /// Left before costly work.
    thread: &'a ServingThread,
    /// Whether admission sees it. Not the parts of a request that admission has seen as a whole.
    is_reviewed: bool,
    now: Timestamp,
}
impl Registry {
    /// POST to a collection, or to a connect-like subresource (`binding`, `eviction`, `token`).
    ///
    /// # Errors
    /// The `Status` that a Kubernetes API server returns in the same case. If the future is
    /// dropped, the object may or may not exist.
    pub async fn create(
        &self,
        attributes: &Attributes,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        execute::run(self, attributes, attributes.target()?, options, Create(body)).await
    }
    /// A stream to another server, such as `exec`: admission of `options`, such as PodExecOptions,
    /// with the operation `CONNECT`. Returns the object that the stream is about. The caller serves
    /// the stream.
    ///
    /// # Errors
    /// 404 if there is no such object, and the errors of admission.
    pub async fn connect(
        &self,
        attributes: &Attributes,
        options: Value,
    ) -> Result<Value, ApiError> {
        let connect = Connect(options);
        let options = WriteOptions { dry_run: attributes.dry_run, ..WriteOptions::default() };
        execute::run(self, attributes, attributes.target()?, &options, connect).await
    }
    /// The error for a stream that no server serves. `object`: from [`connect`](Self::connect).
    pub fn not_connected(attributes: &Attributes, object: &Value) -> ApiError {
        match attributes.target() {
            Ok(target) => connect::not_connected(target, object),
            Err(error) => error,
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
        execute::run(self, attributes, attributes.target()?, options, Update(body)).await
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
        execute::run(self, attributes, attributes.target()?, options, Patch(patch_type, body)).await
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
        let request = Delete { options: options.clone(), place: None };
        execute::run(self, attributes, attributes.target()?, &none, request).await
    }
    /// DELETE of a collection. Returns the matching objects as they were.
    ///
    /// # Errors
    /// The first error other than "not found". Objects before it are deleted by then. Objects after
    /// it are not, if it is a refusal; if it is an error of the store, up to 31 of them are.
    pub async fn delete_collection(
        &self,
        attributes: &Attributes,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<List, ApiError> {
        collection::delete(self, attributes, list, options).await
    }
}
