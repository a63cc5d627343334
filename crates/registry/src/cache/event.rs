//! What a watcher is told of one change: encoded once, shared by everybody it goes to.
use super::Item;
use super::meter::{Meter, Weight};
use bytes::Bytes;
use setpoint_object::encode::RESOURCE_VERSION_BYTES;
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

/// One event, shared by every watcher it goes to.
#[derive(Debug)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// Its revision.
    pub revision: u64,
    object: Shown,
    frame: OnceLock<Bytes>,
    protobuf_frame: OnceLock<Option<Bytes>>,
    weight: Weight,
}
/// The object of an event.
#[derive(Debug)]
enum Shown {
    /// As stored, at the revision of the event.
    Stored(Arc<Item>),
    Made(Bytes),
}
impl Event {
    /// An event.
    pub fn new(kind: EventKind, object: Bytes, revision: u64) -> Self {
        Self::showing(kind, revision, Shown::Made(object))
    }
    /// An event that shows an object as it is stored.
    pub(crate) fn of_item(kind: EventKind, item: Arc<Item>) -> Self {
        Self::showing(kind, item.revision, Shown::Stored(item))
    }
    fn showing(kind: EventKind, revision: u64, object: Shown) -> Self {
        let (frame, protobuf_frame) = (OnceLock::new(), OnceLock::new());
        Self { kind, revision, object, frame, protobuf_frame, weight: Weight::default() }
    }
    /// The same, its bytes counted as long as it is there.
    pub(crate) fn metered(mut self, meter: &Meter) -> Self {
        self.weight = Weight::new(meter);
        self.weight.add(size_of::<Self>());
        if let Shown::Made(object) = &self.object {
            self.weight.add(object.len());
        }
        self
    }
    /// The object, encoded in the watched version with its resourceVersion. Shared by those in this
    /// process who keep it.
    pub fn object(&self) -> Bytes {
        match &self.object {
            Shown::Stored(item) => item.spliced(),
            Shown::Made(object) => object.clone(),
        }
    }
    /// The wire form `{"type":"ADDED","object":{...}}` and a newline; encoded once, shared.
    pub fn frame(&self) -> Bytes {
        let encode = || {
            let frame: Bytes = match &self.object {
                Shown::Stored(item) => {
                    framed(self.kind, item.value.len(), |out| item.push_spliced(out))
                }
                Shown::Made(object) => framed(self.kind, object.len(), |out| out.extend(object)),
            };
            self.weight.add(frame.len());
            frame
        };
        self.frame.get_or_init(encode).clone()
    }
    /// The wire form in protobuf: four bytes of length, the highest first, and a `WatchEvent`;
    /// encoded once, shared. `None` when the object has no form in protobuf, as custom resources do
    /// not.
    pub fn protobuf_frame(&self) -> Option<Bytes> {
        let encode = || {
            let frame = Self::protobuf_frame_of(self.kind.as_str(), &self.object());
            self.weight.add(frame.as_ref().map_or(0, Bytes::len));
            frame
        };
        self.protobuf_frame.get_or_init(encode).clone()
    }
    /// The same of any event (`ERROR` too) and object, in JSON.
    pub fn protobuf_frame_of(event: &str, object: &[u8]) -> Option<Bytes> {
        let object = setpoint_schema::protobuf::object(object).ok()?;
        let event = setpoint_schema::protobuf::watch_event(event, &object);
        let length = u32::try_from(event.len()).ok()?;
        Some([&length.to_be_bytes()[..], &event].concat().into())
    }
}

/// A frame around an object of about so many bytes.
fn framed(kind: EventKind, object_len: usize, push: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let (kind, tail) = (kind.as_str().as_bytes(), b"}\n");
    let head = [br#"{"type":""#, kind, br#"","object":"#];
    let head_len: usize = head.iter().map(|part| part.len()).sum();
    let room = head_len + object_len + RESOURCE_VERSION_BYTES + tail.len();
    let mut out = Vec::with_capacity(room);
    head.iter().for_each(|part| out.extend_from_slice(part));
    push(&mut out);
    out.extend_from_slice(tail);
    out.into()
}
