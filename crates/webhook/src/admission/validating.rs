//! Validating admission: checks changes of objects before they are stored.

use super::request::DecodeError;
use super::{AdmissionHandler, AdmissionRequest, AdmissionResponse, Call, Operation, Refusal};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<K> {
    /// The object is created.
    Create(K),
    /// The object is updated.
    Update {
        /// The stored object.
        old: K,
        /// The new object.
        new: K,
    },
    /// The object is deleted; the stored object (WHK-7).
    Delete(K),
}

impl<K> Change<K> {
    /// The new object; `None` for a deletion.
    pub fn after(&self) -> Option<&K> {
        match self {
            Self::Create(new) | Self::Update { new, .. } => Some(new),
            Self::Delete(_) => None,
        }
    }

    /// The stored object; `None` for a creation.
    pub fn before(&self) -> Option<&K> {
        match self {
            Self::Update { old, .. } | Self::Delete(old) => Some(old),
            Self::Create(_) => None,
        }
    }
}

/// Validates changes of objects.
///
/// Every `Fn(Change<K>, Call) -> impl Future<Output = Result<(), Refusal>>` implements it. Warnings
/// added with [`Call::warn`] reach the client in either case.
pub trait Validator<K>: Send + Sync + 'static {
    /// Checks whether the change is allowed.
    ///
    /// # Errors
    ///
    /// A refusal: the client receives its status, and nothing is stored.
    fn validate(
        &self,
        change: Change<K>,
        call: Call,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
}

impl<K, F, Fut> Validator<K> for F
where
    F: Fn(Change<K>, Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Refusal>> + Send,
{
    fn validate(
        &self,
        change: Change<K>,
        call: Call,
    ) -> impl Future<Output = Result<(), Refusal>> + Send {
        self(change, call)
    }
}

/// Adapts a [`Validator`] to a handler (WHK-7): decodes the objects of the operation and calls the
/// validator.
///
/// | operation | decoded | on failure |
/// |---|---|---|
/// | `CREATE` | the object | 400 |
/// | `UPDATE` | the object and the old one | 400 |
/// | `DELETE` | the old object | 400 |
/// | `CONNECT` | nothing: admitted without a call of the validator | |
/// | any other | | 400 |
#[derive(Debug)]
pub struct Validating<K, V> {
    validator: V,
    kind: PhantomData<fn() -> K>,
}

impl<K, V: Validator<K>> Validating<K, V> {
    /// Creates a handler that calls `validator`.
    pub fn new(validator: V) -> Self {
        Self { validator, kind: PhantomData }
    }
}

impl<K, V> AdmissionHandler for Validating<K, V>
where
    K: DeserializeOwned + Send + 'static,
    V: Validator<K>,
{
    async fn admit(&self, call: Call) -> AdmissionResponse {
        let change = match change(call.request()) {
            Ok(Some(change)) => change,
            Ok(None) => return AdmissionResponse::allowed(),
            Err(error) => return AdmissionResponse::errored(400, error.to_string()),
        };
        match self.validator.validate(change, call).await {
            Ok(()) => AdmissionResponse::allowed(),
            Err(refusal) => refusal.into(),
        }
    }
}

/// The change that a request makes; `None` for `CONNECT`.
fn change<K: DeserializeOwned>(
    request: &AdmissionRequest,
) -> Result<Option<Change<K>>, ChangeError> {
    Ok(Some(match &request.operation {
        Operation::Create => Change::Create(request.decode_object()?),
        Operation::Update => {
            Change::Update { new: request.decode_object()?, old: request.decode_old_object()? }
        }
        Operation::Delete => Change::Delete(request.decode_old_object()?),
        Operation::Connect => return Ok(None),
        Operation::Other(verb) => return Err(ChangeError::Verb(verb.clone())),
    }))
}

#[derive(Debug, thiserror::Error)]
enum ChangeError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("unknown operation {0:?}")]
    Verb(String),
}
