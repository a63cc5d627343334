//! The frames of a watch, cut out of a byte stream.
use super::SourceError;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::value::RawValue;
use setpoint_object::ApiError;
use std::borrow::Cow;

/// The largest watch frame that is taken in, bytes.
///
/// 16 MiB: an API server takes bodies of up to 3 MiB, and what it sends back can grow by defaults and managed fields.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// One event of a watch. The objects are JSON, copied out of the stream so that they keep nothing else alive.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum WatchFrame {
    /// `ADDED`: the object came to be, or came to match.
    Added(Bytes),
    /// `MODIFIED`.
    Modified(Bytes),
    /// `DELETED`: the object as it was last.
    Deleted(Bytes),
    /// `BOOKMARK`: an object that carries a resourceVersion and perhaps the end marker of the initial events.
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

impl WatchFrame {
    /// Reads one frame.
    ///
    /// # Errors
    /// When it is not the JSON of a watch event. A bare `Status`, which some servers send down a broken watch, is its error.
    pub fn parse(frame: &[u8]) -> Result<Self, SourceError> {
        let wire: Wire<'_> = match serde_json::from_slice(frame) {
            Ok(wire) => wire,
            Err(error) => {
                if let Ok(status) = serde_json::from_slice::<setpoint_object::Status>(frame)
                    && status.status == "Failure"
                {
                    return Err(SourceError::Api(ApiError(Box::new(status))));
                }
                return Err(SourceError::protocol(format!("not a watch event: {error}")));
            }
        };
        let object = || Bytes::copy_from_slice(wire.object.get().as_bytes());
        Ok(match &*wire.verb {
            "ADDED" => Self::Added(object()),
            "MODIFIED" => Self::Modified(object()),
            "DELETED" => Self::Deleted(object()),
            "BOOKMARK" => Self::Bookmark(object()),
            "ERROR" => match serde_json::from_str(wire.object.get()) {
                Ok(status) => Self::Error(ApiError(Box::new(status))),
                Err(error) => {
                    return Err(SourceError::protocol(format!("not a Status: {error}")));
                }
            },
            verb => Self::Unknown { verb: verb.to_owned(), object: object() },
        })
    }
}

/// Cuts chunks into the frames between newlines and reads them. Ends after the first error. A last frame without a newline
/// is read if it is whole, and dropped if the stream was cut in it.
pub(super) fn frames<S, E>(chunks: S) -> BoxStream<'static, Result<WatchFrame, SourceError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let cutter = Some(Cutter { chunks: chunks.boxed(), pending: BytesMut::new(), scanned: 0 });
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
    pending: BytesMut,
    /// How much of `pending` is known to hold no newline.
    scanned: usize,
}

impl<S, E> Cutter<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn frame(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.pending[self.scanned..]) {
                let line = self.pending.split_to(self.scanned + at);
                self.pending.advance(1);
                self.scanned = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Some(WatchFrame::parse(&line));
            }
            self.scanned = self.pending.len();
            if self.scanned > FRAME_BYTES_MAX {
                let what = "watch frame";
                return Some(Err(SourceError::TooLarge { what, bytes_max: FRAME_BYTES_MAX }));
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.pending.extend_from_slice(&chunk),
                Some(Err(error)) => return Some(Err(SourceError::transport(error))),
                None => {
                    let line = std::mem::take(&mut self.pending);
                    self.scanned = 0;
                    return WatchFrame::parse(&line).ok().map(Ok);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::convert::Infallible;

    fn cut(chunks: Vec<&'static [u8]>) -> Vec<Result<WatchFrame, SourceError>> {
        let chunks =
            stream::iter(chunks.into_iter().map(|c| Ok::<_, Infallible>(Bytes::from_static(c))));
        frames(chunks).collect().now_or_never().unwrap()
    }

    #[test]
    fn frames_are_cut_at_newlines_wherever_the_chunks_end() {
        let text: &'static [u8] =
            b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\"type\":\"DELETED\",\"object\":{}}\n";
        for at in 0..text.len() {
            let got: Vec<WatchFrame> =
                cut(vec![&text[..at], &text[at..]]).into_iter().map(Result::unwrap).collect();
            let want = [
                WatchFrame::Added(Bytes::from_static(b"{\"a\":1}")),
                WatchFrame::Deleted(Bytes::from_static(b"{}")),
            ];
            assert_eq!(got, want, "cut at {at}");
        }
    }

    #[test]
    fn a_stream_cut_inside_a_frame_ends_without_it() {
        assert!(cut(vec![b"{\"type\":\"ADD"]).is_empty());
    }

    #[test]
    fn a_frame_that_is_not_json_ends_the_stream() {
        let got = cut(vec![b"nonsense\n{\"type\":\"ADDED\",\"object\":{}}\n"]);
        assert!(matches!(&got[..], [Err(SourceError::Protocol { .. })]), "{got:?}");
    }

    #[test]
    fn a_frame_without_an_end_is_refused_when_it_passes_the_bound() {
        static CHUNK: [u8; 1 << 20] = [b'x'; 1 << 20];
        let got = cut(vec![&CHUNK[..]; 18]);
        assert!(matches!(&got[..], [Err(SourceError::TooLarge { .. })]), "{got:?}");
    }

    #[test]
    fn ref_26_an_error_frame_carries_its_status() {
        let got = cut(vec![
            b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n",
        ]);
        let [Ok(WatchFrame::Error(error))] = &got[..] else { panic!("{got:?}") };
        assert_eq!((error.code(), error.0.message.as_str()), (410, "too old"));
    }
}
