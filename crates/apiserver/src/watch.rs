//! Watch answers: one frame per event, flushed at once. A frame is a JSON document and a
//! newline, in protobuf a length of four bytes, big-endian, and a `WatchEvent`, and in CBOR one
//! item of a sequence (RFC 8742).
//!
//! A frame is encoded once and shared by every watcher of unchanged objects. Tables and
//! metadata-only forms are made per watcher. The stream ends when the registry ends it, when the
//! server drains, or after an `ERROR` event.

use crate::body::Body;
use crate::negotiate::{CBOR_SEQUENCE, Encoding, MetaVersion, Transform};
use crate::observe::WatchMetrics;
use crate::server::Events;
use crate::table::{IncludeObject, Printer, object_metadata, partial, printable};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Response, header};
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_registry::{Event, Resource};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Makes the frames of a watch.
#[derive(Debug, Clone)]
pub(crate) struct Framing {
    /// The watched resource.
    pub(crate) resource: Arc<Resource>,
    /// JSON, protobuf or CBOR.
    pub(crate) encoding: Encoding,
    /// The transform of each object.
    pub(crate) transform: Transform,
    /// The contents of Table rows.
    pub(crate) include: IncludeObject,
    /// For ages.
    pub(crate) clock: Clock,
    /// Count the events.
    pub(crate) metrics: Vec<Arc<dyn WatchMetrics>>,
}

/// Answers with the events of a stream.
pub(crate) fn respond(events: Events, framing: Framing) -> Response<Body> {
    let media_type = match framing.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Cbor => CBOR_SEQUENCE,
        _ => Encoding::Json.media_type(),
    };
    // The list form cannot be watched: the stream ends at once.
    let body = if matches!(framing.transform, Transform::PartialList(_)) {
        Body::empty()
    } else {
        Body::stream(frames(events, framing))
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The frames of a watch.
pub(crate) fn frames(events: Events, framing: Framing) -> impl Stream<Item = Bytes> + Send + use<> {
    Frames { events, framing, first: true, done: false }
}

struct Frames {
    // Input.
    events: Events,
    framing: Framing,
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
        match self.events.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(event))) => {
                let headings = std::mem::take(&mut self.first);
                let frame = self.framing.frame(&event, headings).unwrap_or_else(|| {
                    self.done = true;
                    self.framing.error_frame(&ApiError::internal(self.framing.unwritable()))
                });
                self.framing.metrics.iter().for_each(|metrics| metrics.sent(frame.len()));
                Poll::Ready(Some(frame))
            }
            Poll::Ready(Some(Err(error))) => {
                self.done = true;
                Poll::Ready(Some(self.framing.error_frame(&error)))
            }
            Poll::Ready(None) => {
                self.done = true;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Framing {
    /// The frame of an event; `None` if its object has no form in the encoding.
    fn frame(&self, event: &Event, headings: bool) -> Option<Bytes> {
        let mut object = Vec::new();
        match self.transform {
            Transform::None | Transform::PartialList(_) => {
                return match self.encoding {
                    Encoding::Protobuf => event.protobuf_frame(),
                    Encoding::Cbor => event.cbor_frame(),
                    _ => Some(event.frame()),
                };
            }
            Transform::Partial(version) => partial(&mut object, &event.object(), version),
            Transform::Table(version) => {
                object = self.table(&event.object(), version, headings);
            }
        }
        self.frame_of(event.kind.as_str(), &object)
    }

    fn frame_of(&self, event: &str, object: &[u8]) -> Option<Bytes> {
        match self.encoding {
            Encoding::Protobuf => Event::protobuf_frame_of(event, object),
            Encoding::Cbor => Event::cbor_frame_of(event, object),
            _ => Some(json_frame(event, object)),
        }
    }

    /// The message of the error that ends a stream with an object that has no form.
    fn unwritable(&self) -> &'static str {
        match self.encoding {
            Encoding::Cbor => "encode the object in CBOR",
            _ => "encode the object in protobuf",
        }
    }

    fn error_frame(&self, error: &ApiError) -> Bytes {
        self.frame_of("ERROR", &error.to_json()).unwrap_or_default()
    }

    fn table(&self, object: &[u8], version: MetaVersion, headings: bool) -> Vec<u8> {
        let printer = Printer {
            columns: printable(&self.resource.columns),
            version,
            include: self.include,
            now: self.clock.now(),
        };
        printer.table(object, &object_metadata(object), headings)
    }
}

fn json_frame(kind: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}
