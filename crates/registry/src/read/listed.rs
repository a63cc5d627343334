//! The answer to a list.
use crate::cache::Item;
use crate::catalog::Resource;
use crate::convert;
use bytes::Bytes;
use setpoint_object::{ApiError, encode};
use std::sync::Arc;

/// One object of a list. It shares the stored bytes until it is written out.
#[derive(Debug, Clone)]
pub struct Listed(Shown);
#[derive(Debug, Clone)]
enum Shown {
    /// As stored, without its resourceVersion.
    Stored(Arc<Item>),
    /// Converted, at this revision.
    Converted(Bytes, u64),
}
impl Listed {
    /// A stored object as a row lists it.
    pub(crate) fn new(resource: &Resource, item: &Arc<Item>) -> Result<Self, ApiError> {
        if item.is_converted() || convert::is_served_as_stored(resource, &item.value, item.revision)
        {
            return Ok(Self(Shown::Stored(item.clone())));
        }
        let bytes = convert::serve(resource, &item.value, item.revision)?;
        Ok(Self(Shown::Converted(bytes, item.revision)))
    }
    /// Appends the object as served: canonical JSON. Does not cache the result.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_spliced(out),
            Shown::Converted(bytes, _) => out.extend_from_slice(bytes),
        }
    }
    /// Appends the object as an item of a list of a built-in kind: without `apiVersion` and `kind`,
    /// which the list states.
    pub fn push_item_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_list_item(out),
            // Replaces the resourceVersion with the same value.
            Shown::Converted(bytes, revision) => encode::push_list_item(out, bytes, *revision),
        }
    }
    /// The object as served, for callers that store it. Shared by all such callers in this process.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Shown::Stored(item) => item.spliced(),
            Shown::Converted(bytes, _) => bytes.clone(),
        }
    }
    /// Bytes allocated for this object alone.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Shown::Stored(_) => 0,
            Shown::Converted(bytes, _) => bytes.len(),
        }
    }
    /// Maximum number of bytes that [`Listed::push_to`] appends.
    pub fn room(&self) -> usize {
        match &self.0 {
            Shown::Stored(item) => item.value.len() + encode::RESOURCE_VERSION_BYTES,
            Shown::Converted(bytes, _) => bytes.len(),
        }
    }
}
/// One page of a list.
#[derive(Debug, Clone)]
pub struct List {
    /// The list's resourceVersion: the revision of the snapshot.
    pub revision: u64,
    /// In key order.
    pub items: Vec<Listed>,
    /// The token of the next page; empty on the last.
    pub continue_token: String,
    /// Number of objects after this page, if known.
    pub remaining: Option<i64>,
    /// The shard that the objects are of, as [`ShardSelector::text`] shows it; `None`: all.
    ///
    /// [`ShardSelector::text`]: crate::ShardSelector::text
    pub shard: Option<Arc<str>>,
}
