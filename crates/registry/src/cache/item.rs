//! Objects at a revision.
//!
//! There is one item for every object of the server, so its size is the memory per object: two
//! shared byte strings, two numbers and a reference count. Nothing that can be derived from the
//! bytes is stored, except the position of the labels. The object with its resourceVersion is
//! shared while another holder exists: the informers of one process share it.
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::encode::Places;
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
    /// The revision of this state.
    pub(crate) revision: u64,
    /// As stored, or as a row serves it ([`Item::converted`]), without resourceVersion.
    pub(crate) value: Bytes,
    /// The position of the labels in the value: start and end, with 31 and 32 bits. [`UNKNOWN`]
    /// until first use. The highest bit is [`CONVERTED`].
    labels_at: AtomicU64,
    spliced: Mutex<Weak<Spliced>>,
    /// Where the value is cut: zero until first use, [`UNCUT`] if it cannot be cut.
    places: AtomicU64,
}
/// The value cannot be cut.
const UNCUT: u64 = u64::MAX;
/// An object with its resourceVersion.
type Spliced = Vec<u8>;
struct Owner(Arc<Spliced>);
impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
/// An empty range: it ends before it starts.
const UNKNOWN: u64 = 1 << 32;
/// Set for converted values, which are served as they are.
const CONVERTED: u64 = 1 << 63;

impl From<KeyValue> for Item {
    fn from(kv: KeyValue) -> Self {
        Self::new(kv.key, kv.modified.0, kv.value)
    }
}
impl Item {
    pub(crate) fn new(key: Bytes, revision: u64, value: Bytes) -> Self {
        let (labels_at, spliced) = (AtomicU64::new(UNKNOWN), Mutex::default());
        Self { key, revision, value, labels_at, spliced, places: AtomicU64::new(0) }
    }
    /// An object as a row serves it.
    pub(crate) fn converted(key: Bytes, revision: u64, value: Bytes) -> Self {
        let mut item = Self::new(key, revision, value);
        *item.labels_at.get_mut() |= CONVERTED;
        item
    }
    /// Whether it is converted, for the one row of its view.
    pub(crate) fn is_converted(&self) -> bool {
        self.labels_at.load(Ordering::Relaxed) & CONVERTED != 0
    }
    /// The stored object with its resourceVersion, shared with all present holders.
    pub(crate) fn spliced(&self) -> Bytes {
        // Made under the lock, so that it is made once however many callers need it.
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
    /// Where the value is cut, if it can be.
    fn places(&self) -> Option<Places> {
        // Relaxed: a thread that does not see it yet computes the same value.
        let mut bits = self.places.load(Ordering::Relaxed);
        if bits == 0 {
            bits = Places::of(&self.value).map_or(UNCUT, Places::to_bits);
            self.places.store(bits, Ordering::Relaxed);
        }
        (bits != UNCUT).then(|| Places::from_bits(bits))
    }
    /// Appends the stored object with its resourceVersion.
    pub(crate) fn push_spliced(&self, out: &mut Vec<u8>) {
        match self.places() {
            Some(places) => places.push_with_resource_version(out, &self.value, self.revision),
            None => encode::push_with_resource_version(out, &self.value, self.revision),
        }
    }
    /// Appends the same as an item of a list of a built-in kind: without `apiVersion` and `kind`.
    pub(crate) fn push_list_item(&self, out: &mut Vec<u8>) {
        match self.places() {
            Some(places) => places.push_list_item(out, &self.value, self.revision),
            None => encode::push_list_item(out, &self.value, self.revision),
        }
    }
    /// The text of the labels in the value.
    pub(super) fn labels_text(&self) -> &[u8] {
        // Relaxed: a thread that does not see it yet computes the same value.
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
    /// Its size in bytes: itself, its key and its value.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.value.len()
    }
}
