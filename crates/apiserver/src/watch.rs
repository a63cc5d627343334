//! Watch answers: one frame per event, flushed at once. A frame is a JSON document and a
//! newline, in protobuf a length of four bytes, big-endian, and a `WatchEvent`, and in CBOR one
//! item of a sequence (RFC 8742).
//!
//! A frame is encoded once and shared by every watcher of unchanged objects. Tables and
//! metadata-only forms are made per watcher. The stream ends when the registry ends it, when the
//! server drains, or after an `ERROR` event.
//!
//! A watch from the beginning has a frame for every object, and its client may take all of them at
//! once. So a stream yields after the frames of [`SLICE_BYTES`] of objects, and frames of large
//! objects that need a tree are made on blocking threads. The frame of a long object in JSON is
//! sent in pieces, of which one is the stored object; where a message must be whole, it is copied
//! on a blocking thread. A connection polls a stream that wakes
//! itself several times in one turn. So frames that need trees also take units of the task's
//! budget, and a slice of them ends the turn.

use crate::body::{Body, BodyError};
use crate::filter::large::{LARGE_BYTES_MIN, LargeAnswers};
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
use std::task::{Context, Poll, ready};
use tokio::task::coop;

/// Bytes of objects whose frames are made before the stream yields: about a millisecond of work for
/// a Table, and far less for frames that only copy.
const SLICE_BYTES: usize = 64 * 1024;
/// Bytes of objects whose trees cost as much of a task's budget as an operation. A budget has 128.
const UNIT_BYTES: usize = SLICE_BYTES / 128;

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
    /// A frame may come in several pieces, as for a reader of bytes. Otherwise it is one message.
    pub(crate) in_pieces: bool,
    /// Limits the frames of large objects that are made at once.
    pub(crate) large: LargeAnswers,
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
pub(crate) fn frames<E>(events: E, framing: Framing) -> impl Stream<Item = Bytes> + Send + use<E>
where
    E: Stream<Item = Result<Arc<Event>, ApiError>> + Send + Unpin,
{
    Frames {
        events,
        framing,
        making: None,
        pieces: Pieces::default(),
        n_bytes: 0,
        n_bytes_owed: 0,
        first: true,
        done: false,
    }
}

/// The rest of a frame that shares the bytes of its object.
type Pieces = std::vec::IntoIter<Bytes>;
/// A frame that a blocking thread makes.
type Making = Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>> + Send>>;

struct Frames<E> {
    // Input.
    events: E,
    framing: Framing,
    // State.
    making: Option<Making>,
    pieces: Pieces,
    /// Bytes of the objects whose frames were made in this turn.
    n_bytes: usize,
    /// Bytes of objects whose trees the task's budget has not paid for.
    n_bytes_owed: usize,
    first: bool,
    done: bool,
}

impl<E> Frames<E> {
    /// Counts a frame; without one, ends the stream with an error.
    fn sent(&mut self, frame: Option<Bytes>) -> Bytes {
        let frame = frame.unwrap_or_else(|| {
            self.done = true;
            self.framing.error_frame(&ApiError::internal(self.framing.unwritable()))
        });
        self.framing.metrics.iter().for_each(|metrics| metrics.sent(frame.len()));
        frame
    }
}

impl<E> Stream for Frames<E>
where
    E: Stream<Item = Result<Arc<Event>, ApiError>> + Unpin,
{
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        loop {
            if let Some(making) = &mut this.making {
                let frame = ready!(making.as_mut().poll(cx));
                this.making = None;
                // A panic is the error of an object that cannot be written.
                return Poll::Ready(Some(this.sent(frame.ok().flatten())));
            }
            if let Some(piece) = this.pieces.next() {
                return Poll::Ready(Some(piece));
            }
            if this.done {
                return Poll::Ready(None);
            }
            while this.n_bytes_owed >= UNIT_BYTES {
                ready!(coop::poll_proceed(cx)).made_progress();
                this.n_bytes_owed -= UNIT_BYTES;
            }
            if this.n_bytes >= SLICE_BYTES {
                this.n_bytes = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match this.events.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(event))) => {
                    let headings = std::mem::take(&mut this.first);
                    this.n_bytes += event.object_len();
                    let makes_trees = this.framing.makes_trees();
                    if let Some(pieces) = this.framing.pieces(&event) {
                        let n_bytes = pieces.iter().map(Bytes::len).sum();
                        this.framing.metrics.iter().for_each(|metrics| metrics.sent(n_bytes));
                        this.pieces = pieces.into_iter();
                        continue;
                    }
                    let is_here = match makes_trees {
                        true => event.object_len() <= LARGE_BYTES_MIN,
                        false => !event.is_long() || this.framing.is_made(&event),
                    };
                    if is_here {
                        if makes_trees {
                            this.n_bytes_owed += event.object_len();
                        }
                        let frame = this.framing.frame(&event, headings);
                        return Poll::Ready(Some(this.sent(frame)));
                    }
                    let (framing, large) = (this.framing.clone(), this.framing.large.clone());
                    let make = move || framing.frame(&event, headings);
                    this.making = Some(Box::pin(async move { large.run_blocking(make).await }));
                }
                Poll::Ready(Some(Err(error))) => {
                    this.done = true;
                    return Poll::Ready(Some(this.framing.error_frame(&error)));
                }
                Poll::Ready(None) => {
                    this.done = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    this.n_bytes = 0;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Framing {
    /// Whether an object is decoded to a tree.
    fn makes_trees(&self) -> bool {
        self.transform.makes_trees(self.encoding)
    }

    /// Whether the frame is the JSON of the object as it is.
    fn is_plain(&self) -> bool {
        matches!(self.transform, Transform::None) && !self.makes_trees()
    }

    /// Whether the frame of an event exists already.
    fn is_made(&self, event: &Event) -> bool {
        self.is_plain() && event.has_frame()
    }

    /// The frame of an event with a long object, without a copy of it.
    fn pieces(&self, event: &Event) -> Option<Vec<Bytes>> {
        let is_cut = self.in_pieces && self.is_plain() && event.is_long();
        if is_cut { event.frame_pieces() } else { None }
    }

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
            Transform::Partial(version) => {
                partial(&mut object, &event.object(), self.resource.kind, version)
            }
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
            kind: self.resource.kind,
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use serde_json::json;
    use setpoint_registry::{EventKind, Registry};
    use setpoint_store::MemoryStore;

    fn framing(encoding: Encoding, transform: Transform) -> Framing {
        let store = Arc::new(MemoryStore::default());
        let (registry, _) = Registry::builder(store, Clock::wall()).seed(1).build();
        let resource = registry.catalog().get("", "v1", "configmaps").unwrap().clone();
        Framing {
            resource,
            encoding,
            transform,
            include: IncludeObject::Metadata,
            clock: registry.clock().clone(),
            metrics: Vec::new(),
            in_pieces: true,
            large: LargeAnswers::default(),
        }
    }

    fn event(data: &str) -> Result<Arc<Event>, ApiError> {
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "resourceVersion": "1"}, "data": {"x": data},
        });
        Ok(Arc::new(Event::new(EventKind::Added, object.to_string().into(), 1)))
    }

    const TABLE: Transform = Transform::Table(MetaVersion::V1);

    #[test]
    fn a_watch_yields_after_a_slice_of_its_objects() {
        let events = stream::iter((0..64).map(|_| event(&"x".repeat(4096))));
        let mut frames = frames(events, framing(Encoding::Json, TABLE));
        let mut cx = Context::from_waker(futures::task::noop_waker_ref());
        let (mut n_frames, mut n_turns) = (0, 1);
        loop {
            match frames.poll_next_unpin(&mut cx) {
                Poll::Ready(Some(_)) => n_frames += 1,
                Poll::Ready(None) => break,
                Poll::Pending => n_turns += 1,
            }
        }
        assert_eq!((n_frames, n_turns), (64, 1 + 64 * 4096 / SLICE_BYTES));
    }

    #[tokio::test]
    async fn a_slice_that_needs_trees_is_a_turn() {
        for (encoding, transform, ends_the_turn) in [
            (Encoding::Json, Transform::None, false),
            (Encoding::Json, TABLE, true),
            (Encoding::Protobuf, Transform::None, true),
            (Encoding::Cbor, Transform::None, true),
        ] {
            let events = stream::iter((0..64).map(|_| event(&"x".repeat(4096))));
            let mut frames = frames(events, framing(encoding, transform));
            // However often the stream is polled.
            let a_turn = std::future::poll_fn(move |cx| {
                let mut n_frames = 0;
                for _ in 0..64 {
                    while let Poll::Ready(Some(_)) = frames.poll_next_unpin(cx) {
                        n_frames += 1;
                    }
                }
                Poll::Ready(n_frames)
            });
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(a_turn);
            let n_frames = tasks.join_next().await.unwrap().unwrap();
            let most = if ends_the_turn { SLICE_BYTES / 4096 } else { 64 };
            assert!((most - 1..=most).contains(&n_frames), "{encoding:?} {transform:?} {n_frames}");
        }
    }

    #[test]
    fn trees_of_large_objects_are_made_on_other_threads() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            for (encoding, transform, is_here) in [
                (Encoding::Json, Transform::None, true),
                (Encoding::Json, TABLE, false),
                (Encoding::Protobuf, Transform::None, false),
                (Encoding::Cbor, Transform::None, false),
            ] {
                let framing = framing(encoding, transform);
                for (n_bytes, is_here) in [(64, true), (LARGE_BYTES_MIN, is_here)] {
                    // The only other thread is busy at first.
                    let (busy, wait) = std::sync::mpsc::channel::<()>();
                    let ended = tokio::task::spawn_blocking(move || wait.recv());
                    let event = event(&"x".repeat(n_bytes)).unwrap();
                    let mut frames = frames(stream::iter([Ok(event.clone())]), framing.clone());
                    let first = futures::poll!(frames.next());
                    assert_eq!(first.is_ready(), is_here, "{encoding:?} {transform:?} {n_bytes}");
                    drop(busy);
                    let frame = match first {
                        Poll::Ready(frame) => frame,
                        Poll::Pending => frames.next().await,
                    };
                    assert_eq!(frame, framing.frame(&event, true));
                    assert!(frames.next().await.is_none());
                    assert!(ended.await.unwrap().is_err());
                }
            }
        });
    }

    /// A serving thread copied each long object, for up to a few milliseconds.
    #[test]
    fn long_objects_are_sent_without_a_copy_or_copied_on_another_thread() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let event = event(&"x".repeat(3 << 20)).unwrap();
            let (whole, start) =
                (Event::new(EventKind::Added, event.object(), 1).frame(), event.object().as_ptr());
            let mut framing = framing(Encoding::Json, Transform::None);
            let sent = frames(stream::iter([Ok(event.clone())]), framing.clone());
            let pieces: Vec<Bytes> = sent.collect().await;
            assert!(pieces.iter().any(|piece| piece.as_ptr() == start), "no copy");
            assert_eq!(pieces.concat(), whole);
            assert!(!event.has_frame());

            framing.in_pieces = false;
            // The only other thread is busy at first.
            let (busy, wait) = std::sync::mpsc::channel::<()>();
            let ended = tokio::task::spawn_blocking(move || wait.recv());
            let mut sent = frames(stream::iter([Ok(event.clone())]), framing.clone());
            assert!(futures::poll!(sent.next()).is_pending(), "it is made elsewhere");
            drop(busy);
            assert_eq!(sent.next().await, Some(whole));
            assert!(ended.await.unwrap().is_err());
            // Once for all.
            let sent = frames(stream::iter([Ok(event.clone())]), framing);
            assert!(futures::poll!(std::pin::pin!(sent.take(1).count())).is_ready());
        });
    }
}
