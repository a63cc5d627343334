//! Changes objects before they are cached, most often to make them smaller.
use bytes::Bytes;
use std::sync::Arc;

/// Changes an object's JSON before it is queued. Called once for each version that enters the
/// cache, and not for a resync or a relist of a version that the cache holds (FIFO-24).
///
/// It must be cheap and deterministic, and must not remove fields that index functions read
/// (FIFO-25); the key and the resourceVersion are read before it. Pruned fields, by default
/// `managedFields`, are removed before it. If it fails, a watched object is rejected; a list is
/// rejected as a whole and repeated. If it panics, the object is stored unchanged, and
/// [`InformerStatus::panics`](crate::InformerStatus::panics) counts it.
pub type Transform = Arc<dyn Fn(Bytes) -> Result<Bytes, TransformError> + Send + Sync>;

/// A transform failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transform the object: {0}")]
pub struct TransformError(pub String);
