//! One watch of the model server.
use crate::coverage::CoverPoint;
use crate::fault;
use crate::history::{Change, ModelObject, Name, Verb, object};
use crate::server::{Server, State, StreamSupport};
use bytes::Bytes;
use rand::Rng;
use rand::seq::SliceRandom;
use setpoint_informer::SourceError;
use setpoint_informer::source::{WatchFrame, WatchRequest};
use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) struct Watching {
    server: Server,
    newest: watch::Receiver<u64>,
    /// The version up to which changes were sent or are queued.
    from: u64,
    ready: VecDeque<PlannedFrame>,
    /// The initial events of a streamed list are being sent.
    is_collecting: bool,
    /// When the server closes it.
    closes_at: Instant,
    /// When it breaks, unless a frame is sent before.
    breaks_at: Option<Instant>,
    /// It sends nothing more and stays open.
    is_silent: bool,
    cut_next: bool,
    is_open: bool,
    /// The version of the last frame that was sent in order; zero without one.
    sent: u64,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug)]
enum PlannedFrame {
    Change(Change),
    Bookmark(u64),
    Marker(u64),
    Nameless(u64),
    WrongType(u64),
    UnknownVerb(u64),
}

/// The next step of a watch.
enum Step {
    Send(PlannedFrame, Duration),
    Fail(SourceError),
    Close,
    Wait,
    Silence,
}

/// Detects that the informer drops a request before it is answered.
struct RequestGuard<'a>(&'a Server);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.with(|state| {
            if !state.is_stopping {
                state.oracle.watch_dropped(false);
            }
        });
    }
}

fn replay((name, model): (Name, ModelObject)) -> PlannedFrame {
    PlannedFrame::Change(Change { verb: Verb::Added, name, model })
}

impl Watching {
    pub(crate) async fn open(server: &Server, request: &WatchRequest) -> Result<Self, SourceError> {
        if server.with(|state| state.draws_fault(0.02)) {
            server.with(|state| {
                state.count(CoverPoint::OpenHangs);
                state.trace(|| "watch     is not answered".to_owned());
            });
            let _guard = RequestGuard(server);
            pending::<()>().await;
        }
        server.with(|state| {
            let opened = Self::accept(server, state, request);
            if let Err(error) = &opened {
                state.trace(|| format!("watch     refused: {error}"));
                state.oracle.open_failed(error);
            }
            opened
        })
    }

    fn accept(
        server: &Server,
        state: &mut State,
        request: &WatchRequest,
    ) -> Result<Self, SourceError> {
        if let Some(error) = state.down() {
            return Err(error);
        }
        let requested = &*request.resource_version;
        let is_ordered = !request.send_initial_events && !matches!(requested, "" | "0");
        let mut ready = VecDeque::new();
        let mut from = requested.parse().unwrap_or_default();
        if request.send_initial_events && state.config.streams == StreamSupport::Rejected {
            state.count(CoverPoint::StreamUnknown);
            return Err(fault::unknown_parameter());
        }
        let whole = request.send_initial_events && state.config.streams == StreamSupport::Supported;
        if state.draws_fault(1.0) {
            return Err(if request.send_initial_events {
                fault::of_stream(state)
            } else {
                fault::of_opening(state)
            });
        }
        if whole || matches!(requested, "" | "0") {
            let (version, mut objects) = state.serve_state(if whole { requested } else { "" })?;
            objects.shuffle(&mut state.rng);
            ready.extend(objects.into_iter().map(replay));
            from = version;
            if whole {
                ready.push_back(PlannedFrame::Marker(version));
            } else {
                state.count(CoverPoint::WatchReplayed);
            }
        }
        if from < state.history.oldest() {
            state.count(CoverPoint::OpenExpired);
            return Err(fault::expired());
        }
        if request.send_initial_events {
            state.reference.listing.clear();
        }
        let now = Instant::now();
        let breaks_at = state
            .draws_fault(1.0)
            .then(|| now + Duration::from_millis(state.rng.random_range(0..60_000)));
        Ok(Self {
            server: server.clone(),
            newest: server.newest(),
            from,
            ready,
            is_collecting: request.send_initial_events,
            closes_at: now + request.timeout,
            breaks_at,
            is_silent: state.draws_fault(0.03),
            cut_next: false,
            is_open: true,
            sent: if is_ordered { from } else { 0 },
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The next frame; `None` closes the watch.
    pub(crate) async fn next(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        loop {
            let server = self.server.clone();
            match server.with(|state| self.step(state)) {
                Step::Send(planned, lag) => {
                    if !lag.is_zero() {
                        sleep(lag).await;
                    }
                    return Some(Ok(server.with(|state| self.send(state, planned))));
                }
                Step::Fail(error) => {
                    self.is_open = false;
                    server.with(|state| {
                        state.trace(|| format!("watch     breaks: {error}"));
                        state.oracle.watch_failed(&error);
                    });
                    return Some(match error {
                        SourceError::Api(error) => Ok(WatchFrame::Error(error)),
                        error => Err(error),
                    });
                }
                Step::Close => {
                    self.is_open = false;
                    server.with(|state| {
                        state.trace(|| "watch     closed".to_owned());
                        state.oracle.watch_closed();
                    });
                    return None;
                }
                Step::Silence => pending().await,
                Step::Wait => {
                    let until = self.breaks_at.unwrap_or(self.closes_at).min(self.closes_at);
                    tokio::select! {
                        biased;
                        _ = self.newest.changed() => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }

    fn step(&mut self, state: &mut State) -> Step {
        let now = Instant::now();
        if self.is_silent {
            let stalls = self.is_collecting;
            state.count(if stalls { CoverPoint::StreamHangs } else { CoverPoint::WatchSilent });
            return Step::Silence;
        }
        if std::mem::take(&mut self.cut_next) {
            state.count(CoverPoint::WatchCutAfterFrame);
            return Step::Fail(fault::lost());
        }
        if now >= self.closes_at {
            state.count(CoverPoint::WatchTimedOut);
            return Step::Close;
        }
        if self.breaks_at.is_some_and(|at| now >= at) {
            self.breaks_at = None;
            return self.breaks(state);
        }
        if self.ready.is_empty() && self.from < state.history.oldest() {
            state.count(CoverPoint::WatchCompacted);
            return Step::Fail(fault::expired());
        }
        if self.ready.is_empty()
            && let Some(change) = state.history.change_after(self.from)
        {
            self.from = change.model.version;
            self.ready.push_back(PlannedFrame::Change(change));
            if state.rng.random_bool(state.config.bookmarks) {
                self.ready.push_back(PlannedFrame::Bookmark(self.from));
            }
        }
        let Some(planned) = self.ready.pop_front() else {
            if state.is_healed && state.reference.needs_list && !self.is_collecting {
                return Step::Fail(fault::expired());
            }
            return Step::Wait;
        };
        if state.draws_fault(0.3) {
            if self.is_collecting {
                state.count(CoverPoint::StreamCut);
            } else {
                state.count(CoverPoint::WatchCutBeforeFrame);
            }
            return match state.rng.random_range(0..3) {
                0 => Step::Fail(fault::lost()),
                1 => Step::Close,
                _ => Step::Fail(fault::of_watch(state)),
            };
        }
        self.cut_next = state.draws_fault(0.2);
        if matches!(planned, PlannedFrame::Change(_)) && state.draws_fault(0.3) {
            self.ready.push_front(planned);
            state.count(CoverPoint::FrameDuplicated);
        }
        let planned = if state.draws_fault(0.2) {
            self.ready.push_front(planned);
            // Two versions that must not be recorded, and one that must be.
            match state.rng.random_range(0..3) {
                0 => PlannedFrame::Nameless(u64::from(u32::MAX)),
                1 if self.sent > 0 => PlannedFrame::UnknownVerb(self.sent),
                _ => PlannedFrame::WrongType(u64::from(u32::MAX)),
            }
        } else {
            planned
        };
        let lag = if state.draws_fault(0.5) {
            state.count(CoverPoint::FrameDelayed);
            state.rng.random_range(1..400)
        } else {
            0
        };
        Step::Send(planned, Duration::from_millis(lag))
    }

    fn breaks(&mut self, state: &mut State) -> Step {
        match state.rng.random_range(0..4) {
            0 => {
                state.count(CoverPoint::WatchClosed);
                Step::Close
            }
            1 => Step::Fail(fault::lost()),
            _ => Step::Fail(fault::of_watch(state)),
        }
    }

    /// Sends one frame, and reports it to the oracle and the reference.
    fn send(&mut self, state: &mut State, planned: PlannedFrame) -> WatchFrame {
        state.trace(|| format!("watch     {planned:?}"));
        let is_addition = match planned {
            PlannedFrame::Change(change) => change.verb == Verb::Added,
            PlannedFrame::WrongType(_) => true,
            _ => false,
        };
        if state.oracle.frame(is_addition) {
            // The informer drops the watch, whatever the frame is.
            self.is_open = false;
            return WatchFrame::Bookmark(mark(1, ""));
        }
        match planned {
            PlannedFrame::Change(change) => self.send_change(state, change),
            PlannedFrame::Bookmark(version) => {
                state.count(CoverPoint::Bookmark);
                if !self.is_collecting {
                    self.sent = version;
                    state.oracle.ordered();
                    state.oracle.reached(version);
                    state.reference.bookmark(version);
                }
                WatchFrame::Bookmark(mark(version, ""))
            }
            PlannedFrame::Marker(version) => {
                self.is_collecting = false;
                self.sent = version;
                state.oracle.initial_ended(version);
                state.reference.streamed(&version.to_string());
                let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
                WatchFrame::Bookmark(mark(version, end))
            }
            PlannedFrame::Nameless(version) => {
                state.count(CoverPoint::FrameNameless);
                WatchFrame::Modified(mark(version, ""))
            }
            PlannedFrame::WrongType(version) => {
                state.count(CoverPoint::FrameWrongType);
                let json = format!(
                    r#"{{"kind":"Secret","apiVersion":"v1","metadata":{{"namespace":"n0","name":"o0","resourceVersion":"{version}"}}}}"#
                );
                WatchFrame::Added(Bytes::from(json))
            }
            PlannedFrame::UnknownVerb(version) => {
                state.count(CoverPoint::FrameUnknownVerb);
                state.oracle.reached(version);
                WatchFrame::Unknown { verb: "MOVED".to_owned(), object: mark(version, "") }
            }
        }
    }

    fn send_change(&mut self, state: &mut State, change: Change) -> WatchFrame {
        let Change { verb, name, model } = change;
        let bytes = object(name, model);
        let is_poison = state.reference.is_poison(model);
        // Only the key of an object that is deleted from a list is read.
        if !self.is_collecting || verb != Verb::Deleted {
            state.reference.count_delivered(name, model, self.is_collecting);
        }
        if self.is_collecting {
            if is_poison && verb != Verb::Deleted {
                state.count(CoverPoint::StreamPoisoned);
                state.oracle.stream_poisoned();
            }
            state.reference.listing.push((name, model));
            if self.ready.is_empty() {
                state.count(CoverPoint::StreamEndless);
            }
        } else {
            if is_poison {
                state.count(CoverPoint::FramePoisoned);
                state.reference.needs_list = true;
            } else {
                if state.reference.is_undecodable(model) {
                    state.count(CoverPoint::FrameUndecodable);
                }
                if verb != Verb::Added {
                    state.oracle.ordered();
                }
                if self.sent > 0 || verb != Verb::Added {
                    self.sent = self.sent.max(model.version);
                }
                state.oracle.reached(model.version);
                state.reference.event(verb, name, model);
            }
        }
        match verb {
            Verb::Added => WatchFrame::Added(bytes),
            Verb::Modified => WatchFrame::Modified(bytes),
            Verb::Deleted => WatchFrame::Deleted(bytes),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let is_open = self.is_open;
        self.server.with(|state| {
            if is_open && !state.is_stopping {
                state.trace(|| "watch     dropped".to_owned());
                state.oracle.watch_dropped(true);
            }
        });
    }
}

/// A bare object at a version.
fn mark(version: u64, more: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{more}}}}}"#
    ))
}
