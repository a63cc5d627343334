//! Watch streams.
//!
//! # Theory
//!
//! A stream is a position in the watch cache, polled by its owner; no task and no queue stand behind it.
//!
//! | phase    | gives                                                     | goes on to                                       |
//! |----------|-----------------------------------------------------------|--------------------------------------------------|
//! | starting | nothing, until the cache is as fresh as was asked          | initial; ended with an `Err` if it cannot be      |
//! | initial  | every object of one snapshot as ADDED, in key order        | live, behind the snapshot, after its bookmark     |
//! | live     | every change behind the position, in order; bookmarks      | ended                                             |
//! | ended    | nothing                                                   |                                                  |
//!
//! A live stream ends when its time is over, when the server stops, when its resource changes or the store's feed breaks,
//! and when its position has left the cache's window: it was too slow. It then ends without an error: the client resumes
//! behind the last revision it has seen. No event is ever skipped, none comes twice, and a bookmark never says more than
//! the events before it.
mod bookmark;
mod phase;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;

pub use stream::WatchStream;

use bytes::Bytes;
use std::sync::OnceLock;

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
    /// The object, encoded in the watched version with its resourceVersion.
    pub object: Bytes,
    /// Its revision.
    pub revision: u64,
    frame: OnceLock<Bytes>,
    protobuf_frame: OnceLock<Option<Bytes>>,
}
impl Event {
    /// An event.
    pub fn new(kind: EventKind, object: Bytes, revision: u64) -> Self {
        let (frame, protobuf_frame) = (OnceLock::new(), OnceLock::new());
        Self { kind, object, revision, frame, protobuf_frame }
    }
    /// The wire form `{"type":"ADDED","object":{...}}` and a newline; encoded once, shared.
    pub fn frame(&self) -> Bytes {
        let encode = || {
            let kind = self.kind.as_str().as_bytes();
            [br#"{"type":""#, kind, br#"","object":"#, &*self.object, b"}\n"].concat().into()
        };
        self.frame.get_or_init(encode).clone()
    }
    /// The wire form in protobuf: four bytes of length, the highest first, and a `WatchEvent`; encoded once, shared. `None` when the
    /// object has no form in protobuf, as custom resources do not.
    pub fn protobuf_frame(&self) -> Option<Bytes> {
        let encode = || Self::protobuf_frame_of(self.kind.as_str(), &self.object);
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
