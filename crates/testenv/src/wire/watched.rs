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
    /// Half of a frame was passed on: the stream breaks next.
    is_broken: bool,
}

/// Passes the frames of a response on, with its fate's fault.
pub(super) fn pass(
    wire: Wire,
    answer: Response<Body>,
    line: String,
    fate: Fate,
) -> Response<Passed> {
    let (parts, body) = answer.into_parts();
    let watched =
        Watched { wire, line, fate, frames: body.into_data_stream(), n: 0, is_broken: false };
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
        if self.is_broken {
            return Some(Err("connection reset by peer".into()));
        }
        match self.fate {
            Fate::Ends(n) if n == self.n => return None,
            Fate::Expires(n) if n == self.n => return Some(Ok(Bytes::from_static(EXPIRED))),
            Fate::Slow(pause) => tokio::time::sleep(pause).await,
            _ => {}
        }
        let mut frame = self.frames.next().await?;
        if self.wire.is_dead() {
            return pending().await;
        }
        if let Ok(frame) = &mut frame
            && matches!(self.fate, Fate::Breaks(n) if n == self.n)
        {
            self.is_broken = true;
            frame.truncate(frame.len() / 2);
        }
        self.n += 1;
        if let Ok(frame) = &frame {
            let text = String::from_utf8_lossy(frame);
            self.wire.trace.line(format_args!("{}: {}", self.line, text.trim_end()));
        }
        Some(frame.map_err(super::BoxError::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Trace;
    use kube_client::Client;

    #[tokio::test]
    async fn stream_breaks_in_the_middle_of_a_frame() {
        let server = tower::service_fn(|_| async {
            let frames = ["{\"a\":1}\n", "{\"b\":2}\n", "{\"c\":3}\n"];
            let frames =
                frames.map(|frame| Ok::<_, std::io::Error>(Frame::data(Bytes::from(frame))));
            let body = StreamBody::new(futures::stream::iter(frames));
            Ok::<_, std::io::Error>(Response::new(body))
        });
        let client = Client::new(server, "default");
        let answer = client.send(http::Request::new(Body::empty())).await.unwrap();
        let wire = Wire::clean(client, "it", Trace::new(false));
        let passed = pass(wire, answer, "it".into(), Fate::Breaks(1)).into_body();
        let passed: Vec<_> = passed
            .into_data_stream()
            .map(|frame| frame.map_err(|error| error.to_string()))
            .collect()
            .await;
        assert_eq!(
            passed,
            [
                Ok(Bytes::from("{\"a\":1}\n")),
                Ok(Bytes::from("{\"b\"")),
                Err("connection reset by peer".to_owned()),
            ]
        );
    }
}
