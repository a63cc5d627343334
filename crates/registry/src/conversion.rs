//! Conversion that may wait: the versions of a custom resource whose definition has the strategy
//! `Webhook`.
//!
//! # Theory
//!
//! ```text
//!  stored bytes ──▶ Converter (one per served version) ──▶ Conversion (a webhook, or an
//!  embedder's)
//!                     │  claims, batches, checks, remembers
//!     GET, writes ◀───┤
//!     LIST, WATCH ◀── view (`cache::View`): an index and a window of converted objects
//! ```
//!
//! - Built-in kinds and the strategy `None` never come here: `convert` converts them where
//!   they are read.
//! - A version of an object (key and revision) is converted once per served version, however many
//!   ask. Who asks while it is being converted waits for the same answer. A caller that goes away
//!   in the middle leaves the work to the next.
//! - Objects go out in batches, several at a time, and come back in the order in which they were
//!   asked for.
//! - Nothing is awaited under a lock. What is in flight is bounded by [`BATCH_OBJECTS_MAX`],
//!   [`BATCH_BYTES_MAX`] and
//!   `CALLS_MAX`; what is remembered besides a view, by `RECENT_OBJECTS_MAX` and
//!   `RECENT_BYTES_MAX`.
//! - An answer is held to what a conversion may change: the kind's own fields, labels and
//!   annotations (spec: crd §10).
mod check;
mod converter;
mod known;
mod webhook;

pub(crate) use converter::{Converter, ObjectVersion};
pub(crate) use known::Lookup;
pub(crate) use webhook::Webhook;

use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::GroupKind;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Objects of one call at most: as many as client-go's pager asks for at once.
pub const BATCH_OBJECTS_MAX: usize = 500;
/// Bytes of the objects of one call at most, unless one object alone is larger. 4 MiB: some ten
/// thousand small objects would fit, so that the count is what ends a batch, but a batch of the
/// largest objects stays small.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Calls at once per request or view. Four keep a converter busy while the answers of others are
/// read.
pub(crate) const BATCHES_MAX: usize = 4;
/// Calls at once per served version; further ones wait in the order in which they came. With
/// [`BATCH_BYTES_MAX`] this bounds what waits for answers to 64 MiB.
pub(crate) const CALLS_MAX: usize = 16;
/// How long one call may take: 30 s, as kube-apiserver gives a conversion webhook.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Converted objects remembered per served version at most, besides a view's: for the writes and
/// reads that follow each other.
pub(crate) const RECENT_OBJECTS_MAX: usize = 1024;
/// Bytes of the same at most, per served version.
pub(crate) const RECENT_BYTES_MAX: usize = 4 << 20;

/// Converts objects of one custom resource between its versions.
///
/// It is called with at most [`BATCH_OBJECTS_MAX`] objects and [`BATCH_BYTES_MAX`] bytes at a time
/// (one object may be larger), for at most [`CALL_TIMEOUT`].
pub trait Conversion: Debug + Send + Sync {
    /// The objects in the version asked for: as many as came, in the same order.
    ///
    /// Only the kind's own fields, labels and annotations may differ. Other changes of metadata are
    /// undone; another name, namespace, uid or kind is refused.
    ///
    /// # Errors
    ///
    /// What the clients that asked for this version are told.
    ///
    /// The future is dropped when nobody waits for it any more.
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
    /// The `apiVersion` to convert to (`ex.io/v2`). No object is of this version already.
    pub api_version: String,
    /// Encoded JSON objects, of one or of several other versions.
    pub objects: Vec<Bytes>,
}

/// Why objects could not be converted. A client reads the text behind `conversion webhook for …,
/// Kind=… failed: `.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionError {
    /// The converter refused. Its own message.
    #[error("{0}")]
    Refused(String),
    /// The converter could not be asked, or its answer could not be read.
    #[error("{0}")]
    Call(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took longer than this.
    #[error("no answer after {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Finds the [`Conversion`] of a definition with the strategy `Webhook`.
///
/// Given to [`RegistryBuilder::converter`](crate::RegistryBuilder::converter).
pub trait ConversionProvider: Debug + Send + Sync {
    /// The conversion of a kind, by its `spec.conversion`. Called once per change of a definition's
    /// spec, when its objects are first converted. `None`: requests that need it are refused.
    ///
    /// Must be fast and free of side effects: it makes a client, and connects later.
    fn conversion(&self, kind: &GroupKind, spec: &serde_json::Value)
    -> Option<Arc<dyn Conversion>>;
}
