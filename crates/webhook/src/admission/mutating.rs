//! Changing objects before they are stored.

use super::{AdmissionHandler, AdmissionResponse, Call, Operation, Refusal};
use crate::patch;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::marker::PhantomData;

/// Changes objects before they are stored: sets defaults, adds what is missing.
///
/// Every `Fn(K, Call) -> impl Future<Output = Result<K, Refusal>>` is one. It may be called several
/// times for one write, also with an object that it has changed already, so what it does must be
/// idempotent; and without side effects when [`dry_run`](super::AdmissionRequest::dry_run) is set.
pub trait Mutator<K>: Send + Sync + 'static {
    /// The object as it shall be.
    ///
    /// # Errors
    ///
    /// A refusal: the client gets its status, and nothing is stored.
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

/// A [`Mutator`] as a handler (WHK-6): decodes, calls, and makes a patch of what has changed.
///
/// `K` is any type that serde reads and writes: a type of `k8s-openapi` or `kube-derive`,
/// `kube_core::DynamicObject`, `serde_json::Value`.
///
/// - `DELETE` is admitted and the mutator not called.
/// - An object that does not decode is refused with 400.
/// - The patch applies to the *request's bytes*, not to what `K` makes of them. Only what the
///   mutator changed is in it: fields that `K` does not know stay, and fields that `K` writes on
///   its own account are not added. [`remove_unknown_fields`](Self::remove_unknown_fields) makes it
///   whatever turns the request's bytes into `K`'s.
#[derive(Debug)]
pub struct Mutating<K, M> {
    mutator: M,
    removes_unknown: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K, M: Mutator<K>> Mutating<K, M> {
    /// A handler that calls `mutator`.
    pub fn new(mutator: M) -> Self {
        Self { mutator, removes_unknown: false, kind: PhantomData }
    }

    /// Whether what `K` does not know is removed from objects. Off by default: a webhook older than
    /// the type it sees would otherwise delete the fields that came later.
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
