//! The recorder: writes the requests and answers of a manager.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use kube_client::client::Body;
use setpoint_object::{Origin, time::Clock};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::Instant,
};
use tokio_util::sync::PollSender;
use tower::Service;

use super::line::{Answer, Header, Line, RecordedEvent, RecordedRequest};
use crate::error::{BoxError, chain};

/// The maximum number of lines that wait to be written: 256. Beyond it, requests wait, so that a
/// slow disk costs time but no memory.
pub const RECORDER_LINES_MAX: usize = 256;

/// The recorded headers of an answer: those that a client uses.
const HEADERS: [&str; 4] = ["content-type", "content-encoding", "retry-after", "warning"];

/// Writes the lines of a recorded manager.
///
/// ```no_run
/// # use setpoint_runtime::Manager;
/// # async fn example(client: kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let (manager, recorder) = Manager::builder(client).record();
/// let manager = manager.build();
/// let file = tokio::fs::File::create("run.jsonl").await?;
/// let (ended, written) = tokio::join!(
///     manager.run_until_signal(),
///     recorder.run(tokio::io::BufWriter::new(file)),
/// );
/// # ended?; written?; Ok(())
/// # }
/// ```
#[must_use = "nothing is written until the worker is run"]
#[derive(Debug)]
pub struct RecorderWorker {
    header: Header,
    lines: mpsc::Receiver<Line>,
    started: Instant,
    bytes_max: u64,
}

/// Puts a recorder around the client. Returns the new client and the worker that writes the lines.
pub(crate) fn recorded(
    client: kube_client::Client,
    clock: &Clock,
    seed: u64,
) -> (kube_client::Client, RecorderWorker) {
    let (sender, lines) = mpsc::channel(RECORDER_LINES_MAX);
    let started = Instant::now();
    let header = Header::new(clock.now().rfc3339_micro(), seed);
    let namespace = client.default_namespace().to_owned();
    let until = *client.valid_until();
    let recorder =
        Recorder { client, lines: sender, started, n_exchanges: Arc::new(AtomicU64::new(0)) };
    let client = kube_client::Client::new(recorder, namespace).with_valid_until(until);
    (client, RecorderWorker { header, lines, started, bytes_max: u64::MAX })
}

impl RecorderWorker {
    /// Ends the recording before the line that would exceed this number of bytes. Later requests
    /// are not recorded, and the recording counts as truncated. Default: no limit.
    pub fn bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Writes until the manager and every clone of its client are dropped. `writer` gets one line
    /// at a time: use a buffered writer for files.
    ///
    /// # Errors
    ///
    /// The error of the writer. The recording is then truncated, and the manager continues without
    /// it.
    pub async fn run(mut self, mut writer: impl AsyncWrite + Send + Unpin) -> io::Result<()> {
        let (mut n_lines, mut n_bytes) = (1, 0);
        let mut text = serde_json::to_vec(&self.header)?;
        loop {
            text.push(b'\n');
            n_bytes += text.len() as u64;
            if n_bytes > self.bytes_max {
                tracing::warn!(
                    bytes = self.bytes_max,
                    "the recording has reached its maximum size and ends"
                );
                break;
            }
            writer.write_all(&text).await?;
            let Some(line) = self.lines.recv().await else {
                let at = micros(self.started);
                let over =
                    Line { at, exchange: None, event: RecordedEvent::Over { lines: n_lines } };
                text = serde_json::to_vec(&over)?;
                text.push(b'\n');
                writer.write_all(&text).await?;
                break;
            };
            n_lines += 1;
            text = serde_json::to_vec(&line)?;
        }
        writer.flush().await?;
        writer.shutdown().await
    }
}

fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A client whose requests are recorded.
#[derive(Clone)]
struct Recorder {
    client: kube_client::Client,
    lines: mpsc::Sender<Line>,
    started: Instant,
    n_exchanges: Arc<AtomicU64>,
}

/// An exchange that is being recorded.
struct Exchange {
    lines: mpsc::Sender<Line>,
    started: Instant,
    number: u64,
    /// Whether its last line has not been written yet.
    is_open: bool,
}

impl Exchange {
    fn line(&self, event: RecordedEvent) -> Line {
        Line { at: micros(self.started), exchange: Some(self.number), event }
    }

    async fn write(&self, event: RecordedEvent) {
        let line = self.line(event);
        // An error means that the worker has ended.
        let _ = self.lines.send(line).await;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.is_open {
            // Cannot wait here. If the line is lost, the replay is the same.
            let _ = self.lines.try_send(self.line(RecordedEvent::Dropped {}));
        }
    }
}

impl Service<Request<Body>> for Recorder {
    type Response = Response<RecordedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    /// Always ready: waiting happens in the call.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl Recorder {
    async fn send(self, request: Request<Body>) -> Result<Response<RecordedBody>, BoxError> {
        let (parts, body) = request.into_parts();
        // Request bodies of a client are in memory.
        let body = body.collect().await?.to_bytes();
        let number = self.n_exchanges.fetch_add(1, Ordering::Relaxed);
        let Self { client, lines, started, .. } = self;
        let mut exchange = Exchange { lines, started, number, is_open: true };
        let origin = parts.headers.get(Origin::HEADER).and_then(|origin| origin.to_str().ok());
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        let request_line = RecordedRequest {
            method: parts.method.to_string(),
            uri: uri.to_owned(),
            origin: origin.map(str::to_owned),
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        exchange.write(RecordedEvent::Request(request_line)).await;
        let request = Request::from_parts(parts, Body::from(body));
        let response = match client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                exchange.is_open = false;
                exchange.write(RecordedEvent::Failed(chain(&error))).await;
                return Err(error.into());
            }
        };
        let headers = HEADERS.iter().flat_map(|name| {
            let values = response.headers().get_all(*name).iter();
            values.filter_map(|value| Some(((*name).to_owned(), value.to_str().ok()?.to_owned())))
        });
        let answer = Answer { status: response.status().as_u16(), headers: headers.collect() };
        exchange.write(RecordedEvent::Answer(answer)).await;
        // An upgraded connection is no longer HTTP and has no frames to record.
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        exchange.is_open &= !is_upgraded;
        let lines = PollSender::new(exchange.lines.clone());
        Ok(response.map(|inner| RecordedBody { inner, lines, exchange }))
    }
}

/// A body whose pieces are recorded as they are read.
struct RecordedBody {
    inner: Body,
    lines: PollSender<Line>,
    exchange: Exchange,
}

impl HttpBody for RecordedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Reserves space for the line first, so that every piece that is read is recorded.
        let can_write = ready!(self.lines.poll_reserve(context)).is_ok();
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            self.lines.abort_send();
            return Poll::Pending;
        };
        let event = match &frame {
            Some(Ok(frame)) => frame.data_ref().map(|data| RecordedEvent::piece(data)),
            Some(Err(error)) => Some(RecordedEvent::Failed(chain(error))),
            None => Some(RecordedEvent::End {}),
        };
        let is_last = !matches!(frame, Some(Ok(_)));
        match event {
            Some(event) if can_write && self.exchange.is_open => {
                let line = self.exchange.line(event);
                let _ = self.lines.send_item(line);
            }
            _ => {
                self.lines.abort_send();
            }
        }
        self.exchange.is_open &= !is_last;
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        // The end is recorded when it is read.
        !self.exchange.is_open && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}
