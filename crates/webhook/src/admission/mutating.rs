//! Mutating admission: changes objects before they are stored.

use super::{AdmissionHandler, AdmissionResponse, Call, Operation, Refusal};
use crate::patch;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::marker::PhantomData;

/// Changes objects before they are stored, for example to set defaults.
///
/// Every `Fn(K, Call) -> impl Future<Output = Result<K, Refusal>>` implements it. It may be called
/// several times for one write, also with an object that it has already changed, so it must be
/// idempotent. It must have no side effects when [`dry_run`](super::AdmissionRequest::dry_run) is
/// set.
pub trait Mutator<K>: Send + Sync + 'static {
    /// Returns the object to store.
    ///
    /// # Errors
    ///
    /// A refusal: the client receives its status, and nothing is stored.
    fn mutate(&self, object: K, call: Call) -> impl Future<Output = Result<K, Refusal>> + Send;
}

impl<K, F, Fut> Mutator<K> for F
where
    F: Fn(K, Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<K, Refusal>> + Send,
{
    fn mutate(&self, object: K, call: Call) -> impl Future<Output = Result<K, Refusal>> + Send {
        self(object, call)
    }
}

/// Adapts a [`Mutator`] to a handler (WHK-6): decodes the object, calls the mutator, and makes a
/// patch of the changes.
///
/// `K` is any type that serde can read and write: a type of `k8s-openapi` or `kube-derive`,
/// `kube_core::DynamicObject`, `serde_json::Value`.
///
/// - `DELETE` is admitted without a call of the mutator.
/// - An object that cannot be decoded is refused with 400.
/// - The patch applies to the *bytes of the request*, not to the bytes that `K` serializes to. It
///   contains only the mutator's changes: fields unknown to `K` stay, and fields that `K` always
///   writes are not added. With [`remove_unknown_fields`](Self::remove_unknown_fields) the patch
///   turns the request's bytes into `K`'s.
#[derive(Debug)]
pub struct Mutating<K, M> {
    mutator: M,
    removes_unknown: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K, M: Mutator<K>> Mutating<K, M> {
    /// Creates a handler that calls `mutator`.
    pub fn new(mutator: M) -> Self {
        Self { mutator, removes_unknown: false, kind: PhantomData }
    }

    /// Whether fields unknown to `K` are removed from objects. Default: false, because a webhook
    /// older than the type's definition would delete newer fields.
    #[must_use]
    pub fn remove_unknown_fields(mut self, removes_unknown: bool) -> Self {
        self.removes_unknown = removes_unknown;
        self
    }
}

impl<K, M> AdmissionHandler for Mutating<K, M>
where
    K: DeserializeOwned + Serialize + Send + 'static,
    M: Mutator<K>,
{
    async fn admit(&self, call: Call) -> AdmissionResponse {
        if call.request().operation == Operation::Delete {
            return AdmissionResponse::allowed();
        }
        let raw = call.request().object.clone().unwrap_or_default();
        let object: K = match call.request().decode_object() {
            Ok(object) => object,
            Err(error) => return AdmissionResponse::errored(400, error.to_string()),
        };
        let written = |object: &K| serde_json::to_value(object);
        let before = if self.removes_unknown { None } else { Some(written(&object)) };
        let after = match self.mutator.mutate(object, call).await {
            Ok(after) => written(&after),
            Err(refusal) => return refusal.into(),
        };
        difference(&raw, before, after).unwrap_or_else(|error| {
            AdmissionResponse::errored(500, format!("cannot write the object: {error}"))
        })
    }
}

type Written = Result<Value, serde_json::Error>;

fn difference(
    raw: &Bytes,
    before: Option<Written>,
    after: Written,
) -> Result<AdmissionResponse, serde_json::Error> {
    let after = after?;
    let raw: Value = serde_json::from_slice(raw)?;
    let target = match before.transpose()? {
        Some(before) => patch::overlay(&raw, &before, after),
        None => after,
    };
    Ok(AdmissionResponse::patched(patch::between(&raw, &target)))
}
