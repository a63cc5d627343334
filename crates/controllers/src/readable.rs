//! Reads that skip objects that do not fit their type.
use setpoint_informer::Cacheable;
use setpoint_runtime::client::Select;
use std::sync::Arc;

/// The objects that fit the type; none if the cache cannot be read. For maps of events, which have
/// no result that could say what is missing: one malformed object must not keep the others from
/// their passes. Its own pass fails, and says why.
pub(crate) fn readable<K: Cacheable>(select: &Select<K>) -> Vec<Arc<K>> {
    select.readable().map(|read| read.objects).unwrap_or_default()
}
