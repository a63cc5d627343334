//! Objects at a revision.
//!
//! There is one item for every object of the server, so its size is the memory per object: two
//! shared byte strings, two numbers and a reference count. Nothing that can be derived from the
//! bytes is stored, except the position of the labels. The object with its resourceVersion is
//! shared while another holder exists: the informers of one process share it.
//!
//! Looking through a long object takes milliseconds. So its positions are found on another thread
//! before the item is in an index ([`look_through`]), and nothing that serves it looks through it
//! again.
use crate::threads::Threads;
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
/// Objects with more bytes are long: 256 KiB, which take up to half a millisecond to look through.
pub(crate) const LONG_BYTES_MIN: usize = 256 << 10;
/// Labels with more bytes are long: 32 KiB, which take up to half a millisecond to look through.
const LONG_LABELS_BYTES_MIN: usize = 32 << 10;
/// Cost of one byte of an object that is skimmed, in nanoseconds. Long texts take a tenth of it.
pub(crate) const SKIM_COST: usize = 2;
/// Cost of one byte of labels, in nanoseconds.
const LABELS_COST: usize = 10;
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
    /// Whether it takes long to look through it.
    pub(crate) fn is_long(&self) -> bool {
        self.value.len() > LONG_BYTES_MIN
    }
    /// The object with a resourceVersion in pieces that share its bytes. `None` if it was not
    /// looked through yet, or cannot be cut.
    pub(super) fn pieces(&self, revision: u64) -> Option<[Bytes; 3]> {
        let bits = self.places.load(Ordering::Relaxed);
        let is_known = bits != 0 && bits != UNCUT;
        is_known
            .then(|| Places::from_bits(bits).pieces_with_resource_version(&self.value, revision))
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
        self.push_spliced_at(out, self.revision);
    }
    /// The same with another resourceVersion.
    pub(super) fn push_spliced_at(&self, out: &mut Vec<u8>, revision: u64) {
        match self.places() {
            Some(places) => places.push_with_resource_version(out, &self.value, revision),
            None => encode::push_with_resource_version(out, &self.value, revision),
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
    /// Whether it takes long to look through its labels.
    pub(crate) fn has_long_labels(&self) -> bool {
        self.labels_text().len() > LONG_LABELS_BYTES_MIN
    }
    /// The time that a look at its labels may take, in nanoseconds by measurement. The first one
    /// finds them.
    pub(crate) fn labels_cost(&self) -> usize {
        let is_found = self.labels_at.load(Ordering::Relaxed) & !CONVERTED != UNKNOWN;
        let find = if is_found { 0 } else { self.value.len() * SKIM_COST };
        find + self.labels_text().len() * LABELS_COST
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

/// Finds the positions in the long ones of some items, on another thread.
///
/// Dropping the future leaves them to the first use.
pub(crate) async fn look_through(items: impl IntoIterator<Item = &Arc<Item>>, threads: &Threads) {
    let long: Vec<_> = items.into_iter().filter(|item| item.is_long()).cloned().collect();
    if long.is_empty() {
        return;
    }
    let look = async move {
        for item in long {
            item.places();
            item.labels_text();
            // A poll has one long object.
            tokio::task::yield_now().await;
        }
    };
    // What it does not find is found at the first use.
    drop(threads.run(look).await);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_long_object_is_looked_through_once_and_served_in_pieces() {
        let object = |long| {
            let long = "x".repeat(if long { LONG_BYTES_MIN } else { 0 });
            let object = json!({"apiVersion": "ex.io/v1", "data": long, "kind": "Foo",
                "metadata": {"labels": {"a": "b"}, "name": "a"}});
            Arc::new(Item::new("/registry/ex.io/foos/a".into(), 7, encode::to_bytes(&object)))
        };
        let items = [object(true), object(false)];
        look_through(&items, &Threads::new(false)).await;
        let known = items.each_ref().map(|item| {
            let labels = item.labels_at.load(Ordering::Relaxed);
            (item.pieces(8).is_some(), labels != UNKNOWN)
        });
        assert_eq!(known, [(true, true), (false, false)]);
        let mut whole = Vec::new();
        items[0].push_spliced_at(&mut whole, 8);
        assert_eq!(items[0].pieces(8).unwrap().concat(), whole);
        assert_eq!(whole, encode::with_resource_version(&items[0].value, 8));
    }
}
