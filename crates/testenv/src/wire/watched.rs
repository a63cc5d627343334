//! The response stream of a watch, frame by frame.

use super::{Fate, Passed, Wire};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::pending;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyDataStream, BodyExt as _, StreamBody};
use kube_client::client::Body;

/// The last frame of an expired watch.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}
"#;

/// A running watch.
struct Watched {
    wire: Wire,
    line: String,
    fate: Fate,
    frames: BodyDataStream<Body>,
    /// Number of frames so far.
    n: u32,
}

/// Passes the frames of a response on, with its fate's fault.
pub(super) fn pass(
    wire: Wire,
    answer: Response<Body>,
    line: String,
    fate: Fate,
) -> Response<Passed> {
    let (parts, body) = answer.into_parts();
    let watched = Watched { wire, line, fate, frames: body.into_data_stream(), n: 0 };
    let frames = futures::stream::unfold(Some(watched), |watched| async {
        let mut watched = watched?;
        let frame = watched.next().await?;
        let goes_on = frame.is_ok() && !matches!(&frame, Ok(frame) if frame == EXPIRED);
        Some((frame.map(Frame::data), goes_on.then_some(watched)))
    });
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Bytes, super::BoxError>> {
        match self.fate {
            Fate::Ends(n) if n == self.n => return None,
            Fate::Expires(n) if n == self.n => return Some(Ok(Bytes::from_static(EXPIRED))),
            Fate::Slow(pause) => tokio::time::sleep(pause).await,
            _ => {}
        }
        let frame = self.frames.next().await?;
        if self.wire.is_dead() {
            return pending().await;
        }
        if matches!(self.fate, Fate::Breaks(n) if n == self.n) {
            return Some(Err("connection reset by peer".into()));
        }
        self.n += 1;
        if let Ok(frame) = &frame {
            let text = String::from_utf8_lossy(frame);
            self.wire.trace.line(format_args!("{}: {}", self.line, text.trim_end()));
        }
        Some(frame.map_err(super::BoxError::from))
    }
}
