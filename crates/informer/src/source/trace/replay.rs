//! Replays: a source that answers from a trace.
use super::line::{self, Line, TRACE_LINE_BYTES_MAX, TraceEvent};
use crate::source::{
    ListHead, ListItem, ListPage, ListPart, ListRequest, ListStream, ListWatch, SourceError,
    WatchFrame, WatchRequest, WatchStream,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use tokio::time::{Instant, sleep_until};

/// The maximum size of a trace that can be replayed, in bytes: 1 GiB. It is held in memory during
/// the replay.
pub const TRACE_BYTES_MAX: usize = 1 << 30;

/// The speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Speed {
    /// Each answer takes the recorded time.
    #[default]
    AsRecorded,
    /// This many times as fast. Zero, negative numbers and NaN: as fast as possible.
    Times(f64),
    /// As fast as possible.
    Immediate,
}

impl Speed {
    fn scale(self, time: Duration) -> Duration {
        match self {
            Self::AsRecorded => time,
            Self::Times(times) if times > 0.0 => {
                Duration::try_from_secs_f64(time.as_secs_f64() / times).unwrap_or(Duration::MAX)
            }
            Self::Times(_) | Self::Immediate => Duration::ZERO,
        }
    }
}

/// A trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The reader failed.
    #[error("read line {line} of the trace")]
    Read {
        /// Counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is invalid, or out of place.
    #[error("line {line} of the trace is damaged: {what}")]
    Damaged {
        /// Counted from 1.
        line: u64,
        /// The problem.
        what: String,
    },
    /// The last line is missing or incomplete: the recording was truncated.
    #[error("the trace is truncated after line {line}")]
    Truncated {
        /// The last whole line; counted from 1.
        line: u64,
    },
    /// A line or the trace is larger than the limit.
    #[error("line {line} of the trace exceeds {bytes_max} bytes")]
    TooLarge {
        /// Counted from 1.
        line: u64,
        /// The limit, bytes.
        bytes_max: usize,
    },
}

/// A source that answers from a trace.
///
/// Each request gets the answer to the next request of its kind in the trace: list, watch, or watch
/// with initial events. An informer with the options and the seed of the recorded one makes the
/// same requests; another one gets the same answers in their order. After the end of the trace,
/// lists are never answered and watches stay open silently, so that the replayed state can be
/// inspected. A clone shares the position.
#[derive(Clone)]
pub struct TraceSource(Arc<Inner>);

struct Inner {
    speed: Speed,
    can_stream_list: bool,
    exchanges: Mutex<Exchanges>,
}

#[derive(Default)]
struct Exchanges {
    lists: VecDeque<Exchange>,
    watches: VecDeque<Exchange>,
    streams: VecDeque<Exchange>,
}

impl Exchanges {
    fn of_kind(&mut self, kind: Kind) -> &mut VecDeque<Exchange> {
        match kind {
            Kind::List => &mut self.lists,
            Kind::Watch => &mut self.watches,
            Kind::Stream => &mut self.streams,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Watch,
    Stream,
}

/// The answer to one request.
struct Exchange {
    kind: Kind,
    requested_at: Duration,
    /// The parts of the answer, each with its time after the request.
    answer: VecDeque<(Duration, TraceEvent)>,
    is_over: bool,
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exchanges = self.0.exchanges.lock();
        f.debug_struct("TraceSource")
            .field("speed", &self.0.speed)
            .field("n_lists", &exchanges.lists.len())
            .field("n_watches", &(exchanges.watches.len() + exchanges.streams.len()))
            .finish()
    }
}

impl TraceSource {
    /// Reads a whole trace, to be replayed at a speed. `reader` may be a file ([`tokio::fs::File`]
    /// in a [`tokio::io::BufReader`]) or bytes in memory.
    ///
    /// # Errors
    /// If the trace cannot be read, is damaged, truncated, or larger than [`TRACE_BYTES_MAX`]. The
    /// error names the line.
    pub async fn read(
        mut reader: impl AsyncBufRead + Send + Unpin,
        speed: Speed,
    ) -> Result<Self, TraceError> {
        let mut lines = Lines::default();
        let mut text = Vec::new();
        let mut n_bytes = 0;
        loop {
            let number = lines.n_lines + 1;
            text.clear();
            let bytes_max = TRACE_LINE_BYTES_MAX.min(TRACE_BYTES_MAX - n_bytes);
            // One byte more than the limit shows that the line is too long.
            let mut bounded = (&mut reader).take(bytes_max as u64 + 1);
            let read = bounded.read_until(b'\n', &mut text).await;
            let n_read = read.map_err(|source| TraceError::Read { line: number, source })?;
            if n_read > bytes_max {
                return Err(TraceError::TooLarge { line: number, bytes_max });
            }
            n_bytes += n_read;
            let Some(line) = text.strip_suffix(b"\n") else {
                return match (text.is_empty(), lines.is_over) {
                    (true, true) => Ok(lines.finish(speed)),
                    _ => Err(TraceError::Truncated { line: lines.n_lines }),
                };
            };
            lines.take(line).map_err(|what| TraceError::Damaged { line: number, what })?;
        }
    }

    /// The number of recorded answers that have not been requested.
    pub fn n_left(&self) -> usize {
        let exchanges = self.0.exchanges.lock();
        exchanges.lists.len() + exchanges.watches.len() + exchanges.streams.len()
    }

    /// The answer to the next request of a kind. Waits for ever if there is none.
    async fn next(&self, kind: Kind) -> Play {
        let exchange = self.0.exchanges.lock().of_kind(kind).pop_front();
        match exchange {
            Some(Exchange { answer, .. }) => {
                Play { speed: self.0.speed, began: Instant::now(), answer, is_over: false }
            }
            None => std::future::pending().await,
        }
    }
}

/// The lines read so far, by request.
#[derive(Default)]
struct Lines {
    n_lines: u64,
    is_over: bool,
    exchanges: BTreeMap<u64, Exchange>,
}

impl Lines {
    fn take(&mut self, text: &[u8]) -> Result<(), String> {
        if self.is_over {
            return Err("it follows the last line".to_owned());
        }
        if self.n_lines == 0 {
            line::check_header(text)?;
            self.n_lines = 1;
            return Ok(());
        }
        let Line { at, request, event } = Line::parse(text)?;
        let kind = match &event {
            TraceEvent::Over(n_lines) if *n_lines != self.n_lines => {
                return Err(format!(
                    "the trace should have {n_lines} lines, but has {}",
                    self.n_lines
                ));
            }
            TraceEvent::Over(_) => {
                self.is_over = true;
                self.n_lines += 1;
                return Ok(());
            }
            TraceEvent::List(_) => Some(Kind::List),
            TraceEvent::Watch(watch) if watch.send_initial_events => Some(Kind::Stream),
            TraceEvent::Watch(_) => Some(Kind::Watch),
            _ => None,
        };
        if let Some(kind) = kind {
            let exchange =
                Exchange { kind, requested_at: at, answer: VecDeque::new(), is_over: false };
            if self.exchanges.insert(request, exchange).is_some() {
                return Err(format!("request {request} already exists"));
            }
        } else {
            self.answer(at, request, event)?;
        }
        self.n_lines += 1;
        Ok(())
    }

    fn answer(&mut self, at: Duration, request: u64, event: TraceEvent) -> Result<(), String> {
        let Some(exchange) = self.exchanges.get_mut(&request) else {
            return Err(format!("request {request} does not exist"));
        };
        if exchange.is_over {
            return Err(format!("request {request} already has its answer"));
        }
        let fits = match &event {
            TraceEvent::Item(_) | TraceEvent::End(_) => exchange.kind == Kind::List,
            TraceEvent::Opened => exchange.kind != Kind::List && exchange.answer.is_empty(),
            TraceEvent::Frame(_) | TraceEvent::Closed => {
                exchange.kind != Kind::List
                    && matches!(exchange.answer.front(), Some((_, TraceEvent::Opened)))
            }
            _ => true,
        };
        if !fits {
            return Err(format!("not an answer to request {request}, a {:?}", exchange.kind));
        }
        exchange.is_over = event.is_last();
        exchange.answer.push_back((at.saturating_sub(exchange.requested_at), event));
        Ok(())
    }

    fn finish(self, speed: Speed) -> TraceSource {
        let mut exchanges = Exchanges::default();
        for exchange in self.exchanges.into_values() {
            exchanges.of_kind(exchange.kind).push_back(exchange);
        }
        let can_stream_list = !exchanges.streams.is_empty();
        TraceSource(Arc::new(Inner { speed, can_stream_list, exchanges: Mutex::new(exchanges) }))
    }
}

/// An answer in progress.
struct Play {
    speed: Speed,
    began: Instant,
    answer: VecDeque<(Duration, TraceEvent)>,
    /// The last part has been returned.
    is_over: bool,
}

impl Play {
    /// The next part, at its time. Waits for ever after the last.
    async fn next(&mut self) -> TraceEvent {
        match self.answer.front() {
            Some((after, event)) if *event != TraceEvent::Dropped => {
                if let Some(at) = self.began.checked_add(self.speed.scale(*after))
                    && at > Instant::now()
                {
                    sleep_until(at).await;
                }
            }
            _ => std::future::pending().await,
        }
        match self.answer.pop_front() {
            Some((_, event)) => {
                self.is_over = event.is_last();
                event
            }
            None => std::future::pending().await,
        }
    }

    async fn list_part(&mut self) -> Option<Result<ListPart, SourceError>> {
        if self.is_over {
            return None;
        }
        Some(match self.next().await {
            TraceEvent::Item(bytes) => Ok(ListPart::Items(vec![ListItem::from(bytes)])),
            TraceEvent::End(head) => Ok(ListPart::End(head)),
            TraceEvent::Failed(failure) => Err(failure.into_error()),
            _ => return None,
        })
    }

    async fn frame(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        if self.is_over {
            return None;
        }
        match self.next().await {
            TraceEvent::Frame(frame) => Some(Ok(frame)),
            TraceEvent::Failed(failure) => Some(Err(failure.into_error())),
            _ => None,
        }
    }
}

impl ListWatch for TraceSource {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let mut play = self.next(Kind::List).await;
            let mut items = Vec::new();
            loop {
                match play.list_part().await {
                    Some(Ok(ListPart::Items(part))) => {
                        items.extend(part.into_iter().map(|item| item.bytes));
                    }
                    Some(Ok(ListPart::End(ListHead { resource_version, continue_token }))) => {
                        return Ok(ListPage { resource_version, continue_token, items });
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Err(SourceError::protocol("a list without an end")),
                }
            }
        }
        .boxed()
    }

    fn list_in_parts(&self, _: ListRequest) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        async move {
            let mut play = self.next(Kind::List).await;
            // The request itself failed if there is no other event.
            if let [(_, TraceEvent::Failed(_))] = play.answer.make_contiguous()
                && let Some(Err(error)) = play.list_part().await
            {
                return Err(error);
            }
            Ok(stream::unfold(play, |mut play| async move {
                let part = play.list_part().await?;
                Some((part, play))
            })
            .boxed())
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let kind = if request.send_initial_events { Kind::Stream } else { Kind::Watch };
            if self.0.exchanges.lock().of_kind(kind).is_empty() {
                return Ok(stream::pending().boxed());
            }
            let mut play = self.next(kind).await;
            if let TraceEvent::Failed(failure) = play.next().await {
                return Err(failure.into_error());
            }
            Ok(stream::unfold(play, |mut play| async move {
                let frame = play.frame().await?;
                Some((frame, play))
            })
            .boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.0.can_stream_list
    }
}
