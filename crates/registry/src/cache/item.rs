//! Objects at a revision.
//!
//! There is one of these for every object the server holds, so that what it weighs is the memory
//! per object: two shared byte strings, two numbers and the count of who shares it. Nothing that
//! can be made again from the bytes is kept, but for where the labels stand. The object with its
//! resourceVersion is found again as long as somebody else keeps it: the informers of one process
//! share what they hold.
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::encode::ListItemPlaces;
use setpoint_object::{encode, skim};
use setpoint_store::KeyValue;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its key in the store.
    pub(crate) key: Bytes,
    /// When it became so.
    pub(crate) revision: u64,
    /// As stored, or as a row serves it ([`Item::converted`]), without resourceVersion.
    pub(crate) value: Bytes,
    /// Where the labels stand in the value: the first byte and the one beyond, 31 and 32 bits.
    /// [`UNKNOWN`] until somebody asks. The highest bit is [`CONVERTED`].
    labels_at: AtomicU64,
    spliced: Mutex<Weak<Spliced>>,
    /// Where it is cut for a list, [`UNCUT`] if it cannot be; zero until somebody asks.
    list_item_at: AtomicU64,
}
/// Not in the form that has places to cut at.
const UNCUT: u64 = u64::MAX;
/// An object with its resourceVersion.
type Spliced = Vec<u8>;
struct Owner(Arc<Spliced>);
impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
/// No range: it ends before it starts.
const UNKNOWN: u64 = 1 << 32;
/// Set in what a conversion made: nothing is to be done to it before it is served.
const CONVERTED: u64 = 1 << 63;

impl From<KeyValue> for Item {
    fn from(kv: KeyValue) -> Self {
        Self::new(kv.key, kv.modified.0, kv.value)
    }
}
impl Item {
    pub(crate) fn new(key: Bytes, revision: u64, value: Bytes) -> Self {
        let (labels_at, spliced) = (AtomicU64::new(UNKNOWN), Mutex::default());
        Self { key, revision, value, labels_at, spliced, list_item_at: AtomicU64::new(0) }
    }
    /// An object as a row serves it.
    pub(crate) fn converted(key: Bytes, revision: u64, value: Bytes) -> Self {
        let mut item = Self::new(key, revision, value);
        *item.labels_at.get_mut() |= CONVERTED;
        item
    }
    /// Whether a conversion made it, for the one row whose view it is in.
    pub(crate) fn is_converted(&self) -> bool {
        self.labels_at.load(Ordering::Relaxed) & CONVERTED != 0
    }
    /// The stored object with its resourceVersion, shared with everybody who has it already.
    pub(crate) fn spliced(&self) -> Bytes {
        // Made under the lock, so that however many ask, it is made once.
        let mut known = self.spliced.lock();
        let spliced = known.upgrade().unwrap_or_else(|| {
            let mut out = Vec::with_capacity(self.value.len() + encode::RESOURCE_VERSION_BYTES);
            self.push_spliced(&mut out);
            out.shrink_to_fit();
            let spliced = Arc::new(out);
            *known = Arc::downgrade(&spliced);
            spliced
        });
        Bytes::from_owner(Owner(spliced))
    }
    /// Appends the same.
    pub(crate) fn push_spliced(&self, out: &mut Vec<u8>) {
        encode::push_with_resource_version(out, &self.value, self.revision);
    }
    /// Appends it as an item of a list of a built-in kind: the same without `apiVersion` and
    /// `kind`.
    pub(crate) fn push_list_item(&self, out: &mut Vec<u8>) {
        // Relaxed: who does not see it yet finds the same.
        let mut bits = self.list_item_at.load(Ordering::Relaxed);
        if bits == 0 {
            bits = ListItemPlaces::of(&self.value).map_or(UNCUT, ListItemPlaces::to_bits);
            self.list_item_at.store(bits, Ordering::Relaxed);
        }
        match bits {
            UNCUT => encode::push_list_item(out, &self.value, self.revision),
            bits => ListItemPlaces::from_bits(bits).push(out, &self.value, self.revision),
        }
    }
    /// The labels as they stand in the value.
    pub(super) fn labels_text(&self) -> &[u8] {
        // Relaxed: who does not see it yet finds the same.
        let known = self.labels_at.load(Ordering::Relaxed);
        let mut at = known & !CONVERTED;
        if at == UNKNOWN {
            let range = skim::labels_range(&self.value);
            // A value is far smaller than 2 GiB.
            at = (range.start as u64) << 32 | range.end as u64;
            self.labels_at.store(at | known & CONVERTED, Ordering::Relaxed);
        }
        let (start, end) = ((at >> 32) as usize, (at & u64::from(u32::MAX)) as usize);
        self.value.get(start..end).unwrap_or_default()
    }
    /// The labels, sorted by key.
    pub(crate) fn labels(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        skim::labels(self.labels_text())
    }
    /// What it weighs, in bytes: itself, its key and its value.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.value.len()
    }
}
