//! The recorder: writes the requests and answers between a reflector and its source.
use super::line::{self, Failure, Line, TraceEvent};
use crate::source::{
    ListItem, ListPage, ListPart, ListRequest, ListStream, ListWatch, Selection, SourceError,
    WatchFrame, WatchRequest, WatchStream,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The maximum number of lines that wait to be written: 64. Beyond it, requests wait, so that a
/// slow disk costs time but no memory.
pub const RECORDER_LINES_MAX: usize = 64;

/// A source that wraps another one and records its requests and answers. The trace ends when the
/// recorder and all of its streams are dropped.
pub struct Recorder {
    source: Arc<dyn ListWatch>,
    sink: LineSink,
    n_requests: AtomicU64,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_requests = self.n_requests.load(Ordering::Relaxed);
        f.debug_struct("Recorder").field("n_requests", &n_requests).finish_non_exhaustive()
    }
}

/// Writes the lines of a [`Recorder`].
#[must_use = "nothing is written until the worker is run"]
#[derive(Debug)]
pub struct RecorderWorker {
    lines: mpsc::Receiver<Line>,
    started: Instant,
}

impl Recorder {
    /// Records `source`; times count from now. Lines wait until the worker is run; after its end,
    /// requests pass without being recorded.
    pub fn new(source: impl ListWatch) -> (Self, RecorderWorker) {
        let (sender, lines) = mpsc::channel(RECORDER_LINES_MAX);
        let started = Instant::now();
        let sink = LineSink { lines: sender, started };
        let recorder = Self { source: Arc::new(source), sink, n_requests: AtomicU64::new(0) };
        (recorder, RecorderWorker { lines, started })
    }

    async fn begin(&self, event: TraceEvent) -> Request {
        let number = self.n_requests.fetch_add(1, Ordering::Relaxed);
        let request = Request { sink: self.sink.clone(), number, is_open: true };
        request.write(event).await;
        request
    }
}

impl RecorderWorker {
    /// Writes until the recorder is dropped, and then the last line. Writes one line at a time, so
    /// buffer a file.
    ///
    /// # Errors
    /// If the writer fails. The trace is truncated then, and recording has ended.
    pub async fn run(mut self, mut writer: impl AsyncWrite + Send + Unpin) -> io::Result<()> {
        let mut n_lines = 1;
        write_line(&mut writer, line::header()).await?;
        while let Some(line) = self.lines.recv().await {
            n_lines += 1;
            write_line(&mut writer, line.write()).await?;
        }
        let over =
            Line { at: self.started.elapsed(), request: 0, event: TraceEvent::Over(n_lines) };
        write_line(&mut writer, over.write()).await?;
        writer.flush().await?;
        writer.shutdown().await
    }
}

async fn write_line(writer: &mut (impl AsyncWrite + Unpin), mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    writer.write_all(&line).await
}

#[derive(Clone)]
struct LineSink {
    lines: mpsc::Sender<Line>,
    started: Instant,
}

/// A request in progress.
struct Request {
    sink: LineSink,
    number: u64,
    /// Its answer has not ended.
    is_open: bool,
}

impl Request {
    async fn write(&self, event: TraceEvent) {
        let line = self.line(event);
        // Fails if the worker has ended.
        let _ = self.sink.lines.send(line).await;
    }

    fn line(&self, event: TraceEvent) -> Line {
        Line { at: self.sink.started.elapsed(), request: self.number, event }
    }

    async fn failed(&mut self, error: &SourceError) {
        self.is_open = false;
        self.write(TraceEvent::Failed(Failure::of(error))).await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.is_open {
            // Informational, so it may be lost: `drop` cannot wait.
            let _ = self.sink.lines.try_send(self.line(TraceEvent::Dropped));
        }
    }
}

impl ListWatch for Recorder {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let mut recorded = self.begin(TraceEvent::List(request.clone())).await;
            match self.source.list(request).await {
                Ok(page) => {
                    for item in &page.items {
                        recorded.write(TraceEvent::Item(item.clone())).await;
                    }
                    recorded.is_open = false;
                    let mut end = super::super::ListHead::default();
                    end.resource_version.clone_from(&page.resource_version);
                    end.continue_token.clone_from(&page.continue_token);
                    recorded.write(TraceEvent::End(end)).await;
                    Ok(page)
                }
                Err(error) => {
                    recorded.failed(&error).await;
                    Err(error)
                }
            }
        }
        .boxed()
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        async move {
            let mut recorded = self.begin(TraceEvent::List(request.clone())).await;
            let parts = match self.source.list_in_parts(request).await {
                Ok(parts) => parts,
                Err(error) => {
                    recorded.failed(&error).await;
                    return Err(error);
                }
            };
            Ok(stream::unfold((parts, recorded), |(mut parts, mut recorded)| async move {
                let part = match parts.next().await {
                    Some(part) => part,
                    None if recorded.is_open => {
                        // A list without an end is replayed as a broken one.
                        recorded.failed(&SourceError::protocol("a list without an end")).await;
                        return None;
                    }
                    None => return None,
                };
                match &part {
                    Ok(ListPart::Items(items)) => {
                        for ListItem { bytes, .. } in items {
                            recorded.write(TraceEvent::Item(bytes.clone())).await;
                        }
                    }
                    Ok(ListPart::End(head)) => {
                        recorded.is_open = false;
                        recorded.write(TraceEvent::End(head.clone())).await;
                    }
                    Err(error) => recorded.failed(error).await,
                }
                Some((part, (parts, recorded)))
            })
            .boxed())
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let mut recorded = self.begin(TraceEvent::Watch(request.clone())).await;
            let frames = match self.source.watch(request).await {
                Ok(frames) => frames,
                Err(error) => {
                    recorded.failed(&error).await;
                    return Err(error);
                }
            };
            recorded.write(TraceEvent::Opened).await;
            Ok(stream::unfold((frames, recorded), |(mut frames, mut recorded)| async move {
                let frame = frames.next().await;
                match &frame {
                    Some(Ok(frame)) => {
                        recorded.is_open &= !matches!(frame, WatchFrame::Error(_));
                        recorded.write(TraceEvent::Frame(frame.clone())).await;
                    }
                    Some(Err(error)) => recorded.failed(error).await,
                    None if recorded.is_open => {
                        recorded.is_open = false;
                        recorded.write(TraceEvent::Closed).await;
                    }
                    None => {}
                }
                Some((frame?, (frames, recorded)))
            })
            .boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.source.can_stream_list()
    }

    fn selection(&self) -> Selection {
        self.source.selection()
    }
}
