//! Conversion that may wait: the versions of a custom resource whose definition has the strategy
//! `Webhook`.
//!
//! # Theory
//!
//! ```text
//!  stored bytes ──▶ Converter (one per served version) ──▶ Conversion (a webhook, or an
//!  embedder's)
//!                     │  claims, batches, checks, caches
//!     GET, writes ◀───┤
//!     LIST, WATCH ◀── view (`cache::View`): an index and a window of converted objects
//! ```
//!
//! - Built-in kinds and the strategy `None` are not converted here: `convert` converts them on
//!   read.
//! - A version of an object (key and revision) is converted once per served version, however many
//!   requests need it. Requests that need it during the conversion wait for the same answer. If the
//!   converting request is dropped, the next one takes over.
//! - Objects are converted in batches, several at a time, and returned in the order of the request.
//! - No lock is held across an await. Objects in flight are bounded by [`BATCH_OBJECTS_MAX`],
//!   [`BATCH_BYTES_MAX`] and
//!   `CALLS_MAX`; cached objects besides those of a view by `RECENT_OBJECTS_MAX` and
//!   `RECENT_BYTES_MAX`.
//! - With [`RegistryBuilder::webhooks`](crate::RegistryBuilder::webhooks), a conversion is a call
//!   of the webhook that the definition names, with a `ConversionReview` (`review`).
//! - An answer may change only what a conversion may change: the kind's own fields, labels and
//!   annotations (spec: crd §10).
mod check;
mod converter;
mod list_bytes;
mod review;
mod single_flight;
mod webhook;

pub(crate) use converter::{Converter, ObjectVersion};
pub(crate) use list_bytes::{CHUNK_BYTES_MAX, ConvertedBytes, ListBytes};
pub(crate) use review::WebhookConversions;
pub(crate) use single_flight::Lookup;
pub(crate) use webhook::Webhook;

use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::GroupKind;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of objects per call: as many as client-go's pager requests at once.
pub const BATCH_OBJECTS_MAX: usize = 500;
/// Maximum bytes of objects per call, unless a single object is larger. 4 MiB: some ten thousand
/// small objects would fit, so the object count limits their batches, while a batch of the largest
/// objects stays small.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Concurrent calls per request or view. Four keep a converter busy while other answers are read.
pub(crate) const BATCHES_MAX: usize = 4;
/// Concurrent calls per served version; further ones wait in order of arrival. With
/// [`BATCH_BYTES_MAX`] this limits the objects in flight to 64 MiB.
pub(crate) const CALLS_MAX: usize = 16;
/// Timeout of one call: 30 s, as kube-apiserver gives a conversion webhook.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of cached objects per served version, besides those of a view: for reads and
/// writes of the same object in short order.
pub(crate) const RECENT_OBJECTS_MAX: usize = 1024;
/// Maximum bytes of the same, per served version.
pub(crate) const RECENT_BYTES_MAX: usize = 4 << 20;

/// Converts objects of one custom resource between its versions, in the process of the API server.
///
/// | objects | converted by |
/// |---|---|
/// | of definitions with the strategy `None` | their `apiVersion` alone changes |
/// | of definitions with the strategy `Webhook` | a [`ConversionProvider`], if the embedder sets one, otherwise the webhook of the definition. In Rust, `setpoint::webhook::KindConversion` is one, between typed versions |
/// | of built-in kinds | [`Kind::convert`](crate::kind::Kind::convert) of their rows |
/// | of compiled-in kinds | nothing: each has one version |
///
/// ```
/// use bytes::Bytes;
/// use futures::future::{BoxFuture, FutureExt as _};
/// use serde_json::{Value, json};
/// use setpoint_object::GroupKind;
/// use setpoint_registry::{Conversion, ConversionError, ConversionProvider, ConversionRequest};
/// use std::sync::Arc;
///
/// /// What is `size` in `ex.io/v1` is `length` in `ex.io/v2`.
/// #[derive(Debug)]
/// struct Foos;
///
/// impl Conversion for Foos {
///     fn convert(
///         &self,
///         request: ConversionRequest,
///     ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
///         let (from, to) = match &*request.api_version {
///             "ex.io/v2" => ("size", "length"),
///             _ => ("length", "size"),
///         };
///         let convert = move |object: Bytes| {
///             let mut object: Value = serde_json::from_slice(&object)
///                 .map_err(|error| ConversionError::Refused(error.to_string()))?;
///             object["spec"] = json!({to: object["spec"][from]});
///             object["apiVersion"] = request.api_version.clone().into();
///             Ok(object.to_string().into())
///         };
///         let objects = request.objects.into_iter().map(convert).collect();
///         async { objects }.boxed()
///     }
/// }
///
/// impl ConversionProvider for Foos {
///     fn conversion(&self, kind: &GroupKind, _spec: &Value) -> Option<Arc<dyn Conversion>> {
///         (&*kind.kind == "Foo").then(|| Arc::new(Foos) as _)
///     }
/// }
/// ```
///
/// A call has at most [`BATCH_OBJECTS_MAX`] objects and [`BATCH_BYTES_MAX`] bytes (a single object
/// may be larger), and lasts at most [`CALL_TIMEOUT`].
pub trait Conversion: Debug + Send + Sync {
    /// Returns the objects in the requested version: the same number, in the same order.
    ///
    /// Only the kind's own fields, labels and annotations may differ. Other changes of metadata are
    /// undone. Another name, namespace, uid or kind is refused.
    ///
    /// # Errors
    ///
    /// Returned to the clients that requested this version.
    ///
    /// The future is dropped when no request waits for it any more.
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>>;
}

/// Objects to convert.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConversionRequest {
    /// Group and kind of every object.
    pub kind: GroupKind,
    /// The `apiVersion` to convert to (`ex.io/v2`). No object has this version already.
    pub api_version: String,
    /// Encoded JSON objects, of one or of several other versions.
    pub objects: Vec<Bytes>,
}

/// Why objects could not be converted. Clients see the text after `conversion webhook for …, Kind=…
/// failed: `.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionError {
    /// The converter refused, with this message.
    #[error("{0}")]
    Refused(String),
    /// The converter could not be called, or its answer could not be read.
    #[error("{0}")]
    Call(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took longer than this.
    #[error("no answer after {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Finds the [`Conversion`] of a definition with the strategy `Webhook`.
///
/// Set by [`RegistryBuilder::converter`](crate::RegistryBuilder::converter), and for a control
/// plane by `ControlPlaneBuilder::converter`. Without one, the webhooks that definitions name are
/// called ([`RegistryBuilder::webhooks`](crate::RegistryBuilder::webhooks)).
pub trait ConversionProvider: Debug + Send + Sync {
    /// The conversion of a kind, from its `spec.conversion`. Called once per change of a
    /// definition's spec, when its objects are first converted. `None`: requests that need it are
    /// refused.
    ///
    /// Must be fast and free of side effects: create the client here and connect later.
    fn conversion(&self, kind: &GroupKind, spec: &serde_json::Value)
    -> Option<Arc<dyn Conversion>>;
}
