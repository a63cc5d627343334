//! Watch answers: one JSON document and a newline per event, flushed as it comes.
//!
//! A frame is encoded once and shared by every watcher that takes objects as they are; Tables and metadata-only forms are made
//! per watcher. The stream ends when the registry ends it, when the server drains, or after an `ERROR` event.

use crate::body::Body;
use crate::negotiate::{MetaVersion, Transform};
use crate::table::{IncludeObject, Printer, object_metadata, partial, printable};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response, header};
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_registry::{Event, EventKind, Resource, WatchStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What makes a watch's frames.
#[derive(Debug, Clone)]
pub(crate) struct Framing {
    /// The watched resource.
    pub(crate) resource: Arc<Resource>,
    /// What each object is turned into.
    pub(crate) transform: Transform,
    /// What the rows of Tables hold.
    pub(crate) include: IncludeObject,
    /// For ages.
    pub(crate) clock: Clock,
}

/// Answers with the events of a stream.
pub(crate) fn respond(
    events: WatchStream,
    framing: Framing,
    drain: CancellationToken,
) -> Response<Body> {
    // The list form cannot be watched: the stream is there, and ends at once.
    let body = if matches!(framing.transform, Transform::PartialList(_)) {
        Body::empty()
    } else {
        Body::stream(frames(events, framing, drain))
    };
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The frames of a watch.
pub(crate) fn frames(
    events: WatchStream,
    framing: Framing,
    drain: CancellationToken,
) -> impl Stream<Item = Bytes> + Send + use<> {
    Frames {
        events: Box::pin(events),
        framing,
        first: true,
        done: false,
        drained: Box::pin(drain.cancelled_owned()),
    }
}

struct Frames {
    // Input.
    events: Pin<Box<WatchStream>>,
    framing: Framing,
    drained: Pin<Box<WaitForCancellationFutureOwned>>,
    // State.
    first: bool,
    done: bool,
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.done {
            return Poll::Ready(None);
        }
        // Events that are there go out before the drain is looked at: a watch ends between events, with none held back.
        match self.events.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(event))) => {
                let headings = std::mem::take(&mut self.first);
                Poll::Ready(Some(self.framing.frame(&event, headings)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.done = true;
                Poll::Ready(Some(error_frame(&error)))
            }
            Poll::Ready(None) => {
                self.done = true;
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.drained.as_mut().poll(cx).is_ready() {
                    self.done = true;
                    return Poll::Ready(None);
                }
                Poll::Pending
            }
        }
    }
}

impl Framing {
    fn frame(&self, event: &Event, headings: bool) -> Bytes {
        let mut object = Vec::new();
        match self.transform {
            Transform::None | Transform::PartialList(_) => return event.frame(),
            Transform::Partial(version) => partial(&mut object, &event.object, version),
            Transform::Table(version) => {
                object = self.table(&event.object, version, headings);
            }
        }
        let mut frame = Vec::with_capacity(object.len() + 40);
        frame.extend_from_slice(b"{\"type\":\"");
        frame.extend_from_slice(match event.kind {
            EventKind::Added => b"ADDED",
            EventKind::Modified => b"MODIFIED",
            EventKind::Deleted => b"DELETED",
            EventKind::Bookmark => b"BOOKMARK",
        });
        frame.extend_from_slice(b"\",\"object\":");
        frame.extend_from_slice(&object);
        frame.extend_from_slice(b"}\n");
        frame.into()
    }

    fn table(&self, object: &[u8], version: MetaVersion, headings: bool) -> Vec<u8> {
        let printer = Printer {
            columns: printable(&self.resource.columns),
            version,
            include: self.include,
            now: self.clock.now(),
        };
        printer.table(std::iter::once(object), &object_metadata(object), headings)
    }
}

fn error_frame(error: &ApiError) -> Bytes {
    let mut frame = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    frame.extend_from_slice(&error.to_json());
    frame.extend_from_slice(b"}\n");
    frame.into()
}
