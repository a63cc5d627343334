//! The answer to a list.
use crate::cache::Item;
use crate::catalog::Resource;
use crate::convert;
use bytes::Bytes;
use setpoint_object::{ApiError, encode};
use std::sync::Arc;

/// One object of a list. It is written out where it is needed: until then it shares the bytes as
/// they are stored.
#[derive(Debug, Clone)]
pub struct Listed(Shown);
#[derive(Debug, Clone)]
enum Shown {
    /// As stored, without its resourceVersion.
    Stored(Arc<Item>),
    /// Converted, at this revision.
    Made(Bytes, u64),
}
impl Listed {
    /// A stored object as a row lists it.
    pub(crate) fn new(resource: &Resource, item: &Arc<Item>) -> Result<Self, ApiError> {
        if item.is_converted() || convert::is_served_as_stored(resource, &item.value, item.revision)
        {
            return Ok(Self(Shown::Stored(item.clone())));
        }
        let bytes = convert::serve(resource, &item.value, item.revision)?;
        Ok(Self(Shown::Made(bytes, item.revision)))
    }
    /// Appends the object as served: canonical JSON. Nothing is kept of it.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_spliced(out),
            Shown::Made(bytes, _) => out.extend_from_slice(bytes),
        }
    }
    /// Appends the object as an item of a list of a built-in kind: without `apiVersion` and `kind`,
    /// which the list tells.
    pub fn push_item_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_list_item(out),
            // Its resourceVersion is exchanged for itself.
            Shown::Made(bytes, revision) => encode::push_list_item(out, bytes, *revision),
        }
    }
    /// The object as served, for whoever keeps it: shared by those in this process who do.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Shown::Stored(item) => item.spliced(),
            Shown::Made(bytes, _) => bytes.clone(),
        }
    }
    /// How many bytes were made for it alone.
    pub(crate) fn bytes_made(&self) -> usize {
        match &self.0 {
            Shown::Stored(_) => 0,
            Shown::Made(bytes, _) => bytes.len(),
        }
    }
    /// How many bytes [`Listed::push_to`] appends at most.
    pub fn room(&self) -> usize {
        match &self.0 {
            Shown::Stored(item) => item.value.len() + encode::RESOURCE_VERSION_BYTES,
            Shown::Made(bytes, _) => bytes.len(),
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
    /// Names the next page; empty on the last.
    pub continue_token: String,
    /// Objects after this page, where that is known.
    pub remaining: Option<i64>,
}
