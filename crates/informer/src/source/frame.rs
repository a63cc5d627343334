//! Splits a byte stream into the frames of a watch.
use super::SourceError;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use setpoint_object::skim::SkimError;
use setpoint_object::{ApiError, Head, Skim};
use std::borrow::Cow;
use std::ops::Range;

/// The largest watch frame, bytes.
///
/// 16 MiB: an API server accepts bodies of up to 3 MiB, and adds defaults and managed fields.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// The annotation of the bookmark that ends the initial events of a streamed list (KEP-3157).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The resourceVersion of a bookmark that ends the initial events; `None` for other bookmarks.
pub(crate) fn end_marker(object: &[u8]) -> Option<String> {
    let skim = Skim::of(object).ok()?;
    let is_end = skim
        .annotations
        .iter()
        .any(|(annotation, value)| annotation == INITIAL_EVENTS_END && value == "true");
    is_end.then(|| skim.resource_version.into_owned())
}

/// One event of a watch.
///
/// The objects are JSON, slices of the read buffer, which they keep alive. Copy an object to keep
/// it for long.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum WatchFrame {
    /// `ADDED`: the object was created, or matches now.
    Added(Bytes),
    /// `MODIFIED`.
    Modified(Bytes),
    /// `DELETED`: the last state of the object.
    Deleted(Bytes),
    /// `BOOKMARK`: an object with a resourceVersion and perhaps the end marker of the initial
    /// events.
    Bookmark(Bytes),
    /// `ERROR`: why the watch has ended.
    Error(ApiError),
    /// An unknown verb (REF-24).
    Unknown {
        /// The verb.
        verb: String,
        /// The object.
        object: Bytes,
    },
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, rename = "type")]
    verb: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}
/// The members after the object of a frame: any but these two again.
#[derive(Deserialize)]
struct Behind {
    #[serde(default, rename = "type")]
    verb: Option<IgnoredAny>,
    #[expect(dead_code, reason = "makes a second one an error")]
    object: IgnoredAny,
}

impl WatchFrame {
    /// Parses one frame. Its object is a slice of it, and JSON, as far as a skim checks.
    ///
    /// # Errors
    /// If it is not the JSON of a watch event. For a bare `Status`, which some servers send when a
    /// watch breaks, the error is that status.
    pub fn parse(line: &Bytes) -> Result<Self, SourceError> {
        // The form that all servers send. If the object is invalid, `parse_any` finds the error.
        if let Some((verb, object)) = plain(line)
            && let Ok(Some(head)) = Head::scan(&line[object.clone()])
            && head.end() == object.len()
        {
            return Self::new(verb, line.slice(object));
        }
        Self::parse_any(line)
    }

    /// Parses one frame without checking an added, modified or deleted object, where possible. For
    /// a reader that scans it anyway, or calls [`WatchFrame::checked`].
    ///
    /// # Errors
    /// If it is not the JSON of a watch event, as far as it was checked.
    pub fn parse_unchecked(line: &Bytes) -> Result<Self, SourceError> {
        match plain(line) {
            Some((verb @ ("ADDED" | "MODIFIED" | "DELETED"), object)) => {
                Self::new(verb, line.slice(object))
            }
            _ => Self::parse(line),
        }
    }

    /// Checks an object of [`parse_unchecked`](Self::parse_unchecked), and returns its head.
    ///
    /// # Errors
    /// If the frame was not the JSON of a watch event: the watch is broken, and the event is lost.
    pub fn checked(mut object: Bytes) -> Result<(Bytes, Head), SourceError> {
        let head = look(&object)
            .map_err(|error| SourceError::protocol(format!("not a watch event: {error}")))?;
        object.truncate(head.end());
        Ok((object, head))
    }

    fn parse_any(line: &Bytes) -> Result<Self, SourceError> {
        // An array of the members' values would deserialize, too.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(SourceError::protocol("not a watch event: no JSON object"));
        }
        let wire: Wire<'_> = match serde_json::from_slice(line) {
            Ok(wire) => wire,
            Err(error) => {
                if let Ok(status) = serde_json::from_slice::<setpoint_object::Status>(line)
                    && status.status == "Failure"
                {
                    return Err(SourceError::Api(ApiError(Box::new(status))));
                }
                return Err(SourceError::protocol(format!("not a watch event: {error}")));
            }
        };
        let object = line.slice_ref(wire.object.get().as_bytes());
        if object.first() == Some(&b'{') {
            Head::scan(&object)
                .map_err(|error| SourceError::protocol(format!("not a watch event: {error}")))?;
        }
        Self::new(&wire.verb, object)
    }

    fn new(verb: &str, object: Bytes) -> Result<Self, SourceError> {
        Ok(match verb {
            "ADDED" => Self::Added(object),
            "MODIFIED" => Self::Modified(object),
            "DELETED" => Self::Deleted(object),
            "BOOKMARK" => Self::Bookmark(object),
            "ERROR" => match serde_json::from_slice(&object) {
                Ok(status) => Self::Error(ApiError(Box::new(status))),
                Err(error) => {
                    return Err(SourceError::protocol(format!("not a Status: {error}")));
                }
            },
            verb => Self::Unknown { verb: verb.to_owned(), object },
        })
    }
}

/// Scans an unchecked object. Members of the frame may follow it, which the head does not include.
pub(crate) fn look(object: &[u8]) -> Result<Head, SkimError> {
    let Some(head) = Head::scan(object)? else {
        return Err(SkimError { at: object.len(), what: "an object without an end" });
    };
    let behind = &object[head.end()..];
    if !behind.is_empty() {
        let members = [br#"{"object":0"#, behind, b"}"].concat();
        let members: Result<Behind, _> = serde_json::from_slice(&members);
        if !members.is_ok_and(|members| members.verb.is_none()) {
            return Err(SkimError { at: head.end(), what: "text after the object" });
        }
    }
    Ok(head)
}

/// The verb and the range of the object in a frame of the form `{"type":"VERB","object":{…}}`.
fn plain(line: &[u8]) -> Option<(&str, Range<usize>)> {
    let rest = line.trim_ascii_end();
    let (verb, rest) = rest.strip_prefix(br#"{"type":""#)?.split_at_checked(
        // The known verbs are shorter.
        line.get(9..32)?.iter().position(|byte| !byte.is_ascii_uppercase())?,
    )?;
    let object = rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")?;
    if object.first() != Some(&b'{') {
        return None;
    }
    let from = r#"{"type":"","object":"#.len() + verb.len();
    Some((std::str::from_utf8(verb).ok()?, from..from + object.len()))
}

/// Splits chunks into frames at newlines and parses them. Ends after the first error. A last frame
/// without a newline is parsed if it is complete, and dropped otherwise.
///
/// A frame within one chunk is a slice of it. Holds at most one chunk and one incomplete frame of
/// at most [`FRAME_BYTES_MAX`].
pub fn frames<S, E>(chunks: S) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    cut(chunks, WatchFrame::parse)
}

/// As [`frames`], for a reader that checks the objects itself: [`WatchFrame::parse_unchecked`].
pub fn frames_unchecked<S, E>(chunks: S) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    cut(chunks, WatchFrame::parse_unchecked)
}

/// Parses one line.
type Parse = fn(&Bytes) -> Result<WatchFrame, SourceError>;

fn cut<S, E>(chunks: S, parse: Parse) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let (chunk, pending) = (Bytes::new(), BytesMut::new());
    let cutter = Some(Cutter { chunks: chunks.boxed(), parse, chunk, pending });
    stream::unfold(cutter, |cutter| async move {
        let mut cutter = cutter?;
        match cutter.frame().await {
            Some(Ok(frame)) => Some((Ok(frame), Some(cutter))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    })
    .boxed()
}

struct Cutter<S> {
    chunks: S,
    parse: Parse,
    /// The unread rest of the last chunk.
    chunk: Bytes,
    /// The start of a frame, from earlier chunks, without a newline.
    pending: BytesMut,
}

impl<S, E> Cutter<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn frame(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        loop {
            let newline = memchr::memchr(b'\n', &self.chunk);
            let part = self.chunk.split_to(newline.unwrap_or(self.chunk.len()));
            if self.pending.len() + part.len() > FRAME_BYTES_MAX {
                let what = "watch frame";
                return Some(Err(SourceError::TooLarge { what, bytes_max: FRAME_BYTES_MAX }));
            }
            if newline.is_some() {
                self.chunk.advance(1);
                let line = self.line(part);
                if line.trim_ascii().is_empty() {
                    // Blank lines may not end either.
                    tokio::task::coop::consume_budget().await;
                    continue;
                }
                return Some((self.parse)(&line));
            }
            self.pending.extend_from_slice(&part);
            // The reader of the next chunk can reuse the memory of this one if no slice of it is
            // left, not even an empty one.
            drop(part);
            self.chunk = Bytes::new();
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => return Some(Err(SourceError::transport(error))),
                None => {
                    let line = self.line(Bytes::new());
                    // Parse it checked, to find out whether it is complete.
                    return WatchFrame::parse(&line).ok().map(Ok);
                }
            }
        }
    }

    /// The line that ends with `part`.
    fn line(&mut self, part: Bytes) -> Bytes {
        if self.pending.is_empty() {
            return part;
        }
        self.pending.extend_from_slice(&part);
        std::mem::take(&mut self.pending).freeze()
    }
}

#[cfg(test)]
mod tests;
