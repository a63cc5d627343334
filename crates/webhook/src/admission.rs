//! Admission requests and responses: the calls that an API server makes before it stores an object.

mod chain;
mod mutating;
mod refusal;
mod request;
mod response;
mod validating;

pub use chain::Chain;
pub use mutating::{Mutating, Mutator};
pub use refusal::Refusal;
pub use request::{AdmissionRequest, Operation, UserInfo};
pub use response::{AdmissionResponse, Verdict};
pub use validating::{Change, Validating, Validator};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Answers admission requests.
///
/// The lowest-level interface: [`Mutating`] and [`Validating`] are built on it. Every `Fn(Call) ->
/// impl Future<Output = AdmissionResponse>` implements it. Warnings and annotations added to the
/// call ([`Call::warn`], [`Call::annotate`]) are merged into the returned response.
pub trait AdmissionHandler: Send + Sync + 'static {
    /// Answers one request. The future is dropped if the client gives up.
    fn admit(&self, call: Call) -> impl Future<Output = AdmissionResponse> + Send;
}

impl<F, Fut> AdmissionHandler for F
where
    F: Fn(Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = AdmissionResponse> + Send,
{
    fn admit(&self, call: Call) -> impl Future<Output = AdmissionResponse> + Send {
        self(call)
    }
}

/// Object-safe form of [`AdmissionHandler`].
pub(crate) trait ErasedHandler: Send + Sync {
    fn admit_boxed(&self, call: Call) -> BoxFuture<'_, AdmissionResponse>;
}

impl<H: AdmissionHandler> ErasedHandler for H {
    fn admit_boxed(&self, call: Call) -> BoxFuture<'_, AdmissionResponse> {
        Box::pin(self.admit(call))
    }
}

/// One admission call: the request, plus the warnings and annotations collected for the response.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Call {
    request: Arc<AdmissionRequest>,
    notes: Arc<Mutex<Notes>>,
}

/// Warnings and annotations, sent whether or not the request is admitted.
#[derive(Debug, Default)]
struct Notes {
    warnings: Vec<String>,
    audit_annotations: BTreeMap<String, String>,
}

impl Call {
    /// Creates a call for a request. For tests of a mutator or validator by itself.
    pub fn new(request: AdmissionRequest) -> Self {
        Self { request: Arc::new(request), notes: Arc::default() }
    }

    /// The request.
    pub fn request(&self) -> &AdmissionRequest {
        &self.request
    }

    /// Warns the client, whether its request is admitted or not (WHK-7). One line of printable
    /// text: API servers drop other texts, and cut texts to 256 bytes if all warnings of a request
    /// exceed 4096 bytes.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes.lock().warnings.push(text.into());
    }

    /// Adds an annotation to the API server's audit event. The server prefixes the key with the
    /// webhook's name and a `/`; the result must be a valid annotation key, otherwise the server
    /// drops the annotation. The last value of a key wins.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.notes.lock().audit_annotations.insert(key.into(), value.into());
    }

    /// The warnings so far, in order.
    pub fn warnings(&self) -> Vec<String> {
        self.notes.lock().warnings.clone()
    }

    /// The audit annotations so far.
    pub fn audit_annotations(&self) -> BTreeMap<String, String> {
        self.notes.lock().audit_annotations.clone()
    }

    /// The same call with a changed object.
    fn with_object(&self, object: Bytes) -> Self {
        let request = AdmissionRequest { object: Some(object), ..(*self.request).clone() };
        Self { request: Arc::new(request), notes: self.notes.clone() }
    }

    /// Moves the collected warnings and annotations into the response, before its own.
    pub(crate) fn settle(&self, mut response: AdmissionResponse) -> AdmissionResponse {
        let notes = std::mem::take(&mut *self.notes.lock());
        let own = std::mem::replace(&mut response.warnings, notes.warnings);
        response.warnings.extend(own);
        let own = std::mem::replace(&mut response.audit_annotations, notes.audit_annotations);
        response.audit_annotations.extend(own);
        response
    }
}
