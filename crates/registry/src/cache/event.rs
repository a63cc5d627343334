//! The event of a change: encoded once, shared by all watchers that get it.
use super::Item;
use super::item::LONG_BYTES_MIN;
use bytes::Bytes;
use setpoint_object::encode::RESOURCE_VERSION_BYTES;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Kind of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
}
impl EventKind {
    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
        }
    }
}

/// One event, shared by all watchers that get it.
#[derive(Debug)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// Its revision.
    pub revision: u64,
    object: Shown,
    frame: OnceLock<Bytes>,
    protobuf_frame: OnceLock<Option<Bytes>>,
    cbor_frame: OnceLock<Option<Bytes>>,
    weight: Weight,
}
/// The object of an event.
#[derive(Debug)]
enum Shown {
    /// As stored, with the revision of the event: another one than its own if a long object was
    /// deleted.
    Stored(Arc<Item>),
    Converted(Bytes),
}
impl Event {
    /// An event of an encoded object.
    pub fn new(kind: EventKind, object: Bytes, revision: u64) -> Self {
        Self::showing(kind, revision, Shown::Converted(object))
    }
    /// An event of a stored object.
    pub(crate) fn of_item(kind: EventKind, item: Arc<Item>, revision: u64) -> Self {
        Self::showing(kind, revision, Shown::Stored(item))
    }
    fn showing(kind: EventKind, revision: u64, object: Shown) -> Self {
        Self {
            kind,
            revision,
            object,
            frame: OnceLock::new(),
            protobuf_frame: OnceLock::new(),
            cbor_frame: OnceLock::new(),
            weight: Weight::default(),
        }
    }
    /// The same event, with its bytes counted by `meter` while it exists.
    pub(crate) fn metered(mut self, meter: &Meter) -> Self {
        self.weight = Weight::new(meter);
        self.weight.add(size_of::<Self>());
        if let Shown::Converted(object) = &self.object {
            self.weight.add(object.len());
        }
        self
    }
    /// The object, encoded in the watched version with its resourceVersion. Shared by all holders
    /// in this process.
    pub fn object(&self) -> Bytes {
        match &self.object {
            Shown::Stored(item) if item.revision == self.revision => item.spliced(),
            Shown::Stored(item) => {
                let mut out = Vec::with_capacity(item.value.len() + RESOURCE_VERSION_BYTES);
                item.push_spliced_at(&mut out, self.revision);
                out.into()
            }
            Shown::Converted(object) => object.clone(),
        }
    }
    /// Length of the object's encoding in bytes, about: with or without its resourceVersion.
    pub fn object_len(&self) -> usize {
        match &self.object {
            Shown::Stored(item) => item.value.len(),
            Shown::Converted(object) => object.len(),
        }
    }
    /// The wire form `{"type":"ADDED","object":{...}}` and a newline; encoded once, shared.
    pub fn frame(&self) -> Bytes {
        let encode = || {
            let frame: Bytes = match &self.object {
                Shown::Stored(item) => {
                    let push = |out: &mut Vec<u8>| item.push_spliced_at(out, self.revision);
                    framed(self.kind, item.value.len(), push)
                }
                Shown::Converted(object) => {
                    framed(self.kind, object.len(), |out| out.extend(object))
                }
            };
            self.weight.add(frame.len());
            frame
        };
        self.frame.get_or_init(encode).clone()
    }
    /// Whether it takes long to copy the object.
    pub fn is_long(&self) -> bool {
        self.object_len() > LONG_BYTES_MIN
    }
    /// Whether [`Event::frame`] was encoded already.
    pub fn has_frame(&self) -> bool {
        self.frame.get().is_some()
    }
    /// The bytes of [`Event::frame`] in pieces that share those of the object, so that a long
    /// object is not copied. `None` if that would need a look through the object.
    pub fn frame_pieces(&self) -> Option<Vec<Bytes>> {
        let object = match &self.object {
            Shown::Stored(item) => item.pieces(self.revision)?.to_vec(),
            Shown::Converted(object) => vec![object.clone()],
        };
        let head = Bytes::from(head(self.kind).concat());
        let tail = Bytes::from_static(TAIL);
        Some([head].into_iter().chain(object).chain([tail]).collect())
    }
    /// The protobuf wire form: a length of four bytes, big-endian, and a `WatchEvent`; encoded
    /// once, shared. `None` if the object has no protobuf form, as custom resources.
    pub fn protobuf_frame(&self) -> Option<Bytes> {
        let encode = || {
            let frame = Self::protobuf_frame_of(self.kind.as_str(), &self.object());
            self.weight.add(frame.as_ref().map_or(0, Bytes::len));
            frame
        };
        self.protobuf_frame.get_or_init(encode).clone()
    }
    /// The protobuf frame of any event type (`ERROR` too) and an object in JSON.
    pub fn protobuf_frame_of(event: &str, object: &[u8]) -> Option<Bytes> {
        let object = setpoint_schema::protobuf::object(object).ok()?;
        let event = setpoint_schema::protobuf::watch_event(event, &object);
        let length = u32::try_from(event.len()).ok()?;
        Some([&length.to_be_bytes()[..], &event].concat().into())
    }
    /// The CBOR wire form: `55799({"type": "ADDED", "object": 55799({...})})`; encoded once,
    /// shared. `None` if the object is nested too deeply.
    pub fn cbor_frame(&self) -> Option<Bytes> {
        let encode = || {
            let frame = Self::cbor_frame_of(self.kind.as_str(), &self.object());
            self.weight.add(frame.as_ref().map_or(0, Bytes::len));
            frame
        };
        self.cbor_frame.get_or_init(encode).clone()
    }
    /// The CBOR frame of any event type (`ERROR` too) and an object in JSON.
    pub fn cbor_frame_of(event: &str, object: &[u8]) -> Option<Bytes> {
        let object = setpoint_schema::cbor::object(object).ok()?;
        Some(setpoint_schema::cbor::watch_event(event, &object).into())
    }
}

/// A frame with room for an object of about `object_len` bytes.
fn framed(kind: EventKind, object_len: usize, push: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let head = head(kind);
    let head_len: usize = head.iter().map(|part| part.len()).sum();
    let room = head_len + object_len + RESOURCE_VERSION_BYTES + TAIL.len();
    let mut out = Vec::with_capacity(room);
    head.iter().for_each(|part| out.extend_from_slice(part));
    push(&mut out);
    out.extend_from_slice(TAIL);
    out.into()
}
/// What precedes the object in a frame.
fn head(kind: EventKind) -> [&'static [u8]; 3] {
    [br#"{"type":""#, kind.as_str().as_bytes(), br#"","object":"#]
}
/// What follows it.
const TAIL: &[u8] = b"}\n";

/// Counts the bytes of the events that were made with it and still exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    n_bytes: Arc<AtomicUsize>,
}
impl Meter {
    /// The present number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: the limit may be noticed a little later.
        self.n_bytes.load(Ordering::Relaxed)
    }
}

/// The bytes that an event adds to a meter until it is dropped.
#[derive(Debug, Default)]
struct Weight {
    meter: Option<Meter>,
    n_bytes: AtomicUsize,
}
impl Weight {
    fn new(meter: &Meter) -> Self {
        Self { meter: Some(meter.clone()), n_bytes: AtomicUsize::new(0) }
    }
    fn add(&self, n_bytes: usize) {
        if let Some(meter) = &self.meter {
            self.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
            meter.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        }
    }
}
impl Drop for Weight {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.n_bytes.fetch_sub(*self.n_bytes.get_mut(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_encoded_once_in_each_encoding() {
        let meter = Meter::default();
        let object = Bytes::from_static(br#"{"kind":"ConfigMap","apiVersion":"v1"}"#);
        let event = Event::new(EventKind::Added, object, 1).metered(&meter);
        let before = meter.bytes();
        let encoded = || {
            let binary = [event.protobuf_frame(), event.cbor_frame()].map(Option::unwrap);
            [event.frame()].into_iter().chain(binary)
        };
        let n_bytes: usize = encoded().map(|frame| frame.len()).sum();
        assert!(encoded().zip(encoded()).all(|(one, two)| one.as_ptr() == two.as_ptr()));
        assert_eq!(meter.bytes() - before, n_bytes);
        let frame = event.cbor_frame().unwrap();
        assert!(frame.starts_with(b"\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7\xa2"));
    }
}
