//! Lists of an earlier process, so that informers can watch at once.
//!
//! [`SavedLists`] has the objects of caches, as JSON, each list with its resourceVersion. A
//! [`SavedSource`] answers the first list from it, without a request. The reflector then watches
//! from that version. If the server no longer has it (410), the reflector lists again, and that
//! request goes to the server.
//!
//! # Format
//!
//! Numbers are little-endian. A text is its length in bytes (4 bytes), then UTF-8.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `setpntc` and the version of the format, 1 |
//! | 4 | CRC-32 of everything after it |
//! | | until the end, lists: six texts (group, version, resource, label selector, field selector, shard selector); 1 byte of flags (1: one namespace, 2: metadata only); the namespace as a text; the resourceVersion as a text; the number of items (4 bytes); each item as a text |

use super::{
    ListHead, ListItem, ListPage, ListPart, ListRequest, ListStream, ListWatch, Selection,
    SourceError, WatchRequest, WatchStream,
};
use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use setpoint_object::GroupVersionResource;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum size of encoded lists: 1 GiB.
pub const SAVED_BYTES_MAX: usize = 1 << 30;

/// Maximum number of lists: the resources of a program, times their namespaces.
pub const SAVED_LISTS_MAX: usize = 1 << 16;

/// Format and version.
const MAGIC: &[u8; 8] = b"setpntc\x01";

/// Number of items that are passed on at once, so that a long list does not block other tasks.
const PART_ITEMS_MAX: usize = 1000;

const ONE_NAMESPACE: u8 = 1;
const METADATA: u8 = 2;

/// Objects of caches, to start other caches with.
///
/// They are valid for the same server, or another one over the same storage: resourceVersions of
/// different storages cannot be compared. Objects are in the form of the cache that they are from.
/// If its options pruned or transformed them, another cache sees that form until they change.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SavedLists(HashMap<Id, SavedList>);

/// The resource and selection of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Id {
    resource: GroupVersionResource,
    selection: Selection,
    metadata_only: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct SavedList {
    resource_version: String,
    items: Vec<Bytes>,
}

/// Why lists cannot be saved or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedListsError {
    /// They have more than [`SAVED_BYTES_MAX`] bytes when encoded.
    #[error("saved lists have more than {SAVED_BYTES_MAX} bytes")]
    TooLarge,
    /// There are more than [`SAVED_LISTS_MAX`].
    #[error("there are more than {SAVED_LISTS_MAX} saved lists")]
    TooMany,
    /// Not saved lists, or of another version of the format.
    #[error("these are not saved lists of format 1")]
    Format,
    /// Some bytes were changed.
    #[error("the checksum of the saved lists does not match")]
    Checksum,
    /// The content ends too early, or has a text that is not UTF-8.
    #[error("the saved lists are malformed at byte {at}")]
    Malformed {
        /// The position.
        at: usize,
    },
}

impl SavedLists {
    /// Adds the list of a resource and selection, which replaces an earlier one. `metadata_only`:
    /// the items have metadata and nothing else.
    ///
    /// # Errors
    ///
    /// There are too many lists.
    pub fn insert(
        &mut self,
        resource: GroupVersionResource,
        selection: Selection,
        metadata_only: bool,
        page: ListPage,
    ) -> Result<(), SavedListsError> {
        let ListPage { resource_version, items, .. } = page;
        let id = Id { resource, selection, metadata_only };
        self.0.insert(id, SavedList { resource_version, items });
        if self.0.len() > SAVED_LISTS_MAX { Err(SavedListsError::TooMany) } else { Ok(()) }
    }

    /// The number of lists.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes them. The same lists always have the same bytes.
    ///
    /// # Errors
    ///
    /// They are too large.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SavedListsError> {
        let mut lists: Vec<(&Id, &SavedList)> = self.0.iter().collect();
        lists.sort_by_key(|(Id { resource, selection, metadata_only }, _)| {
            let Selection { namespace, labels, fields, shard } = selection;
            (resource, namespace, labels, fields, shard, metadata_only)
        });
        let mut out = MAGIC.to_vec();
        out.extend([0; 4]);
        for (Id { resource, selection, metadata_only }, list) in lists {
            let GroupVersionResource { group, version, resource } = resource;
            let Selection { namespace, labels, fields, shard } = selection;
            for text in [&**group, &**version, &**resource, labels, fields, shard] {
                put(&mut out, text.as_bytes())?;
            }
            let one_namespace = if namespace.is_some() { ONE_NAMESPACE } else { 0 };
            out.push(one_namespace | if *metadata_only { METADATA } else { 0 });
            put(&mut out, namespace.as_deref().unwrap_or_default().as_bytes())?;
            put(&mut out, list.resource_version.as_bytes())?;
            let n_items = u32::try_from(list.items.len()).map_err(|_| SavedListsError::TooLarge)?;
            out.extend(n_items.to_le_bytes());
            for item in &list.items {
                put(&mut out, item)?;
            }
        }
        let (head, content) = out.split_at_mut(MAGIC.len() + 4);
        head[MAGIC.len()..].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
        Ok(out)
    }

    /// Decodes them. Items are slices of `bytes`; they are decoded when a cache reads them.
    ///
    /// # Errors
    ///
    /// The bytes are not those of [`to_bytes`](Self::to_bytes), or are too many.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, SavedListsError> {
        if bytes.len() > SAVED_BYTES_MAX {
            return Err(SavedListsError::TooLarge);
        }
        let mut reader = Reader { n_bytes: bytes.len(), rest: bytes };
        if !reader.take(MAGIC.len()).is_ok_and(|magic| magic[..] == MAGIC[..]) {
            return Err(SavedListsError::Format);
        }
        let checksum = reader.number()?;
        if crc32fast::hash(&reader.rest) != checksum {
            return Err(SavedListsError::Checksum);
        }
        let mut lists = Self::default();
        while !reader.rest.is_empty() {
            let resource = GroupVersionResource::new(
                reader.text()?.as_str(),
                reader.text()?.as_str(),
                reader.text()?.as_str(),
            );
            let mut selection = Selection {
                labels: reader.text()?,
                fields: reader.text()?,
                shard: reader.text()?,
                ..Selection::default()
            };
            let flags = reader.take(1)?[0];
            if flags > ONE_NAMESPACE | METADATA {
                return Err(reader.malformed());
            }
            let namespace = reader.text()?;
            if flags & ONE_NAMESPACE != 0 {
                selection.namespace = Some(namespace);
            } else if !namespace.is_empty() {
                return Err(reader.malformed());
            }
            let resource_version = reader.text()?;
            let n_items = reader.number()?;
            // Each item has a length: no memory is reserved for a number alone.
            let mut items = Vec::with_capacity((n_items as usize).min(reader.rest.len() / 4));
            for _ in 0..n_items {
                items.push(reader.bytes()?);
            }
            let page = ListPage::new(resource_version, items);
            lists.insert(resource, selection, flags & METADATA != 0, page)?;
        }
        Ok(lists)
    }

    /// Whether there is a list of whole objects.
    pub fn has_whole(&self, resource: &GroupVersionResource, selection: &Selection) -> bool {
        let (resource, selection) = (resource.clone(), selection.clone());
        self.0.contains_key(&Id { resource, selection, metadata_only: false })
    }

    fn take(
        &mut self,
        resource: &GroupVersionResource,
        selection: &Selection,
        metadata_only: bool,
    ) -> Option<SavedList> {
        let mut take = |metadata_only| {
            let (resource, selection) = (resource.clone(), selection.clone());
            self.0.remove(&Id { resource, selection, metadata_only })
        };
        // Whole objects have metadata.
        let of_metadata = metadata_only.then(|| take(true)).flatten();
        of_metadata.or_else(|| take(false))
    }
}

/// The resources and numbers of objects: there may be many.
impl fmt::Debug for SavedLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(id, list)| (&id.resource, list.items.len())))
            .finish()
    }
}

/// Writes bytes with their length.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), SavedListsError> {
    let n_bytes = u32::try_from(bytes.len()).map_err(|_| SavedListsError::TooLarge)?;
    if out.len() + 4 + bytes.len() > SAVED_BYTES_MAX {
        return Err(SavedListsError::TooLarge);
    }
    out.extend(n_bytes.to_le_bytes());
    out.extend(bytes);
    Ok(())
}

struct Reader {
    n_bytes: usize,
    rest: Bytes,
}

impl Reader {
    fn malformed(&self) -> SavedListsError {
        SavedListsError::Malformed { at: self.n_bytes - self.rest.len() }
    }

    fn take(&mut self, n_bytes: usize) -> Result<Bytes, SavedListsError> {
        if self.rest.len() < n_bytes {
            return Err(self.malformed());
        }
        Ok(self.rest.split_to(n_bytes))
    }

    fn number(&mut self) -> Result<u32, SavedListsError> {
        Ok(self.take(4)?.get_u32_le())
    }

    fn bytes(&mut self) -> Result<Bytes, SavedListsError> {
        let n_bytes = self.number()? as usize;
        self.take(n_bytes)
    }

    fn text(&mut self) -> Result<String, SavedListsError> {
        let malformed = self.malformed();
        let text = self.bytes()?;
        std::str::from_utf8(&text).map(str::to_owned).map_err(|_| malformed)
    }
}

/// Lists that informers have not used yet, for the sources of several informers.
#[derive(Debug, Clone, Default)]
pub struct Unused(Arc<Mutex<SavedLists>>);

impl Unused {
    /// All of them.
    pub fn new(lists: SavedLists) -> Self {
        Self(Arc::new(Mutex::new(lists)))
    }
}

/// A source whose first list is a saved one, if there is one for its resource and selection.
pub struct SavedSource {
    source: Arc<dyn ListWatch>,
    resource: GroupVersionResource,
    selection: Selection,
    metadata_only: Arc<AtomicBool>,
    unused: Unused,
    /// The first list was requested.
    has_listed: AtomicBool,
}

impl SavedSource {
    /// A source over another one. While `metadata_only`, it needs only metadata.
    pub fn new(
        source: Arc<dyn ListWatch>,
        resource: GroupVersionResource,
        selection: Selection,
        metadata_only: Arc<AtomicBool>,
        unused: Unused,
    ) -> Self {
        let has_listed = AtomicBool::new(false);
        Self { source, resource, selection, metadata_only, unused, has_listed }
    }

    /// The saved list, for the first request.
    fn saved(&self, request: &ListRequest) -> Option<SavedList> {
        if self.has_listed.swap(true, Relaxed) || request.continue_token.is_some() {
            return None;
        }
        let metadata_only = self.metadata_only.load(Relaxed);
        let saved = self.unused.0.lock().take(&self.resource, &self.selection, metadata_only);
        saved.filter(|saved| !saved.resource_version.is_empty())
    }
}

impl fmt::Debug for SavedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedSource")
            .field("resource", &self.resource)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

impl ListWatch for SavedSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        match self.saved(&request) {
            Some(SavedList { resource_version, items }) => {
                std::future::ready(Ok(ListPage::new(resource_version, items))).boxed()
            }
            None => self.source.list(request),
        }
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        let Some(SavedList { resource_version, items }) = self.saved(&request) else {
            return self.source.list_in_parts(request);
        };
        let items = stream::iter(items.into_iter().map(ListItem::from));
        let end = ListPart::End(ListHead { resource_version, continue_token: None });
        let parts = items.chunks(PART_ITEMS_MAX).map(ListPart::Items);
        std::future::ready(Ok(parts.chain(stream::iter([end])).map(Ok).boxed())).boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        self.source.watch(request)
    }

    fn watch_unchecked(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        self.source.watch_unchecked(request)
    }

    /// A saved list is not a stream.
    fn can_stream_list(&self) -> bool {
        let id = |metadata_only| Id {
            resource: self.resource.clone(),
            selection: self.selection.clone(),
            metadata_only,
        };
        let has_saved = !self.has_listed.load(Relaxed) && {
            let unused = self.unused.0.lock();
            let has_metadata = self.metadata_only.load(Relaxed) && unused.0.contains_key(&id(true));
            has_metadata || unused.0.contains_key(&id(false))
        };
        !has_saved && self.source.can_stream_list()
    }

    fn selection(&self) -> Selection {
        self.source.selection()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::WatchFrame;
    use crate::source::scripted::{Answer, Asked, Script, Step};
    use proptest::prelude::*;

    fn lists(texts: &[(String, Vec<String>)]) -> SavedLists {
        let mut lists = SavedLists::default();
        for (at, (text, items)) in texts.iter().enumerate() {
            let namespace = (at % 2 == 0).then(|| text.clone());
            let selection = Selection { labels: text.clone(), namespace, ..Selection::default() };
            let items = items.iter().map(|item| Bytes::from(item.clone())).collect();
            let resource = GroupVersionResource::new(text.as_str(), "v1", "things");
            lists.insert(resource, selection, at % 3 == 0, ListPage::new("7", items)).unwrap();
        }
        lists
    }

    proptest! {
        #[test]
        fn saved_lists_round_trip(
            texts in prop::collection::vec((".{0,5}", prop::collection::vec(".{0,9}", 0..4)), 0..5),
        ) {
            let lists = lists(&texts);
            let bytes = Bytes::from(lists.to_bytes().unwrap());
            prop_assert_eq!(&SavedLists::from_bytes(bytes.clone()).unwrap(), &lists);
            // Every shorter text is refused.
            for n_bytes in 0..bytes.len() {
                prop_assert!(SavedLists::from_bytes(bytes.slice(..n_bytes)).is_err());
            }
        }
    }

    #[test]
    fn changed_bytes_are_refused() {
        let bytes = lists(&[("a".into(), vec!["{}".into()])]).to_bytes().unwrap();
        let read = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            SavedLists::from_bytes(bytes.into()).unwrap_err()
        };
        assert_eq!(read(0), SavedListsError::Format);
        assert_eq!(read(7), SavedListsError::Format, "another version");
        assert_eq!(read(9), SavedListsError::Checksum);
        assert_eq!(read(bytes.len() - 1), SavedListsError::Checksum);
    }

    #[tokio::test]
    async fn first_list_is_the_saved_one_and_the_next_goes_to_the_server() {
        let script = Script::streaming([
            Answer::Watch(vec![Step::Frame(WatchFrame::Bookmark(Bytes::new()))]),
            Answer::List(Ok(ListPage::new("9", Vec::new()))),
        ]);
        let (resource, selection) =
            (GroupVersionResource::new("", "v1", "pods"), Selection::default());
        let mut saved = SavedLists::default();
        let page = ListPage::new("7", vec![Bytes::from_static(b"{}")]);
        saved.insert(resource.clone(), selection.clone(), false, page.clone()).unwrap();
        let unused = Unused::new(saved);
        let source = |resource: &GroupVersionResource| {
            SavedSource::new(
                Arc::new(script.clone()),
                resource.clone(),
                selection.clone(),
                Arc::default(),
                unused.clone(),
            )
        };
        let other = source(&GroupVersionResource::new("", "v1", "nodes"));
        assert!(other.can_stream_list(), "no list of it is saved");
        let source = source(&resource);
        assert!(!source.can_stream_list());
        assert_eq!(source.list(ListRequest::default()).await.unwrap(), page);
        assert!(source.can_stream_list());
        source.watch(WatchRequest::default()).await.map(drop).unwrap();
        assert_eq!(source.list(ListRequest::default()).await.unwrap().resource_version, "9");
        assert!(matches!(script.asked()[..], [Asked::Watch(..), Asked::List(..)]));
        assert!(unused.0.lock().is_empty());
    }
}
