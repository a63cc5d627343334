//! Watch streams.
use bytes::Bytes;
use setpoint_object::ApiError;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Kind of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
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
}
impl Event {
    /// An event.
    pub fn new(kind: EventKind, object: Bytes, revision: u64) -> Self {
        Self { kind, object, revision, frame: OnceLock::new() }
    }
    /// The wire form `{"type":"ADDED","object":{...}}` and a newline; encoded once, shared.
    pub fn frame(&self) -> Bytes {
        self.frame.get_or_init(|| todo!()).clone()
    }
}
/// A stream of events. Ends when the watch times out, the server stops or the watcher is too slow; an `Err` is the ERROR event and the last item.
#[derive(Debug)]
pub struct WatchStream {
    _private: (),
}
impl futures::Stream for WatchStream {
    type Item = Result<Arc<Event>, ApiError>;
    fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        todo!()
    }
}
