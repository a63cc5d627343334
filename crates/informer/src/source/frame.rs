//! The frames of a watch, cut out of a byte stream.
use super::SourceError;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use setpoint_object::skim::SkimError;
use setpoint_object::{ApiError, Head};
use std::borrow::Cow;
use std::ops::Range;

/// The largest watch frame that is taken in, bytes.
///
/// 16 MiB: an API server takes bodies of up to 3 MiB, and what it sends back can grow by defaults
/// and managed fields.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// One event of a watch.
///
/// The objects are JSON, slices of what was read with them: one keeps all of that alive, so copy
/// what is kept for long.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum WatchFrame {
    /// `ADDED`: the object came to be, or came to match.
    Added(Bytes),
    /// `MODIFIED`.
    Modified(Bytes),
    /// `DELETED`: the object as it was last.
    Deleted(Bytes),
    /// `BOOKMARK`: an object that carries a resourceVersion and perhaps the end marker of the
    /// initial events.
    Bookmark(Bytes),
    /// `ERROR`: the watch is over, and why.
    Error(ApiError),
    /// A verb that this version does not know (REF-24).
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
/// The members that may stand behind the object of a frame: any but these two again.
#[derive(Deserialize)]
struct Behind {
    #[serde(default, rename = "type")]
    verb: Option<IgnoredAny>,
    #[expect(dead_code, reason = "a second one is an error, which is what it is here for")]
    object: IgnoredAny,
}

impl WatchFrame {
    /// Reads one frame. Its object is a slice of it, and JSON, as far as a skim looks.
    ///
    /// # Errors
    /// When it is not the JSON of a watch event. A bare `Status`, which some servers send down a
    /// broken watch, is its error.
    pub fn parse(line: &Bytes) -> Result<Self, SourceError> {
        // As every server writes it. Should the object turn out to be something else, the careful
        // way says what it is.
        if let Some((verb, object)) = plain(line)
            && let Ok(Some(head)) = Head::scan(&line[object.clone()])
            && head.end() == object.len()
        {
            return Self::new(verb, line.slice(object));
        }
        Self::parse_any(line)
    }

    /// Reads one frame as [`parse`](Self::parse) does, but leaves an object that was added,
    /// modified or deleted unchecked where it can, for a reader that scans it anyway: nothing is
    /// known of it before [`WatchFrame::checked`] has seen it.
    ///
    /// # Errors
    /// When it is seen that it is not the JSON of a watch event.
    pub fn parse_unchecked(line: &Bytes) -> Result<Self, SourceError> {
        match plain(line) {
            Some((verb @ ("ADDED" | "MODIFIED" | "DELETED"), object)) => {
                Self::new(verb, line.slice(object))
            }
            _ => Self::parse(line),
        }
    }

    /// Checks an object that came by [`parse_unchecked`](Self::parse_unchecked), and says who it
    /// is.
    ///
    /// # Errors
    /// When the frame was not the JSON of a watch event: the watch is broken, and what it said is
    /// lost.
    pub fn checked(mut object: Bytes) -> Result<(Bytes, Head), SourceError> {
        let head = look(&object)
            .map_err(|error| SourceError::protocol(format!("not a watch event: {error}")))?;
        object.truncate(head.end());
        Ok((object, head))
    }

    fn parse_any(line: &Bytes) -> Result<Self, SourceError> {
        // A list of the members' values would pass for the members.
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

/// Looks at an object of which nothing is known. Members of the frame may stand behind it, which
/// the head leaves out.
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

/// The verb of a frame of the form `{"type":"VERB","object":{…}}`, and where its object is if it is
/// one.
fn plain(line: &[u8]) -> Option<(&str, Range<usize>)> {
    let rest = line.trim_ascii_end();
    let (verb, rest) = rest.strip_prefix(br#"{"type":""#)?.split_at_checked(
        // The verbs that are known are shorter.
        line.get(9..32)?.iter().position(|byte| !byte.is_ascii_uppercase())?,
    )?;
    let object = rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")?;
    if object.first() != Some(&b'{') {
        return None;
    }
    let from = r#"{"type":"","object":"#.len() + verb.len();
    Some((std::str::from_utf8(verb).ok()?, from..from + object.len()))
}

/// Cuts chunks into the frames between newlines and reads them. Ends after the first error. A last
/// frame without a newline is read if it is whole, and dropped if the stream was cut in it.
///
/// A frame that stands in one chunk is a slice of it. No more is held than one chunk and one
/// incomplete frame of at most [`FRAME_BYTES_MAX`].
pub fn frames<S, E>(chunks: S) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    cut(chunks, WatchFrame::parse)
}

/// The same for a reader that looks at the objects itself: [`WatchFrame::parse_unchecked`].
pub fn frames_unchecked<S, E>(chunks: S) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    cut(chunks, WatchFrame::parse_unchecked)
}

/// Reads one line.
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
    /// What of the last chunk is not read yet.
    chunk: Bytes,
    /// The start of a frame, from chunks before: it holds no newline.
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
                    // Blank lines have no end either, on a bad day.
                    tokio::task::coop::consume_budget().await;
                    continue;
                }
                return Some((self.parse)(&line));
            }
            self.pending.extend_from_slice(&part);
            // Whoever reads the next chunk can have the memory of this one, if nobody keeps even an
            // empty slice of it.
            drop(part);
            self.chunk = Bytes::new();
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => return Some(Err(SourceError::transport(error))),
                None => {
                    let line = self.line(Bytes::new());
                    // Whole or not is for a look at all of it to say.
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
