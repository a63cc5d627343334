//! One watch of the modelled server.
use crate::coverage::Seen;
use crate::fault;
use crate::server::{Server, State, Streams};
use crate::world::{Change, Name, Thing, Verb, object};
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
    moved: watch::Receiver<u64>,
    /// Up to where changes were sent or are ready.
    from: u64,
    ready: VecDeque<Out>,
    /// The informer collects what is sent, until the end marker.
    is_collecting: bool,
    /// When the server closes it.
    closes_at: Instant,
    /// When it breaks, if nothing is said until then.
    breaks_at: Option<Instant>,
    /// It says nothing any more and stays open.
    is_silent: bool,
    cut_next: bool,
    is_open: bool,
    /// The version of the last frame that was sent in order; zero while there is none.
    sent: u64,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
enum Out {
    Change(Change),
    Bookmark(u64),
    Marker(u64),
    Nameless(u64),
    WrongType(u64),
    UnknownVerb(u64),
}

/// How a watch goes on.
enum Step {
    Send(Out, Duration),
    Fail(SourceError),
    Close,
    Wait,
    Silence,
}

/// A request that the informer may let go of before it is answered.
struct Unanswered<'a>(&'a Server);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.with(|state| {
            if !state.is_stopping {
                state.oracle.watch_dropped(false);
            }
        });
    }
}

fn replay((name, thing): (Name, Thing)) -> Out {
    Out::Change(Change { verb: Verb::Added, name, thing })
}

impl Watching {
    pub(crate) async fn open(server: &Server, request: &WatchRequest) -> Result<Self, SourceError> {
        if server.with(|state| state.fails(0.02)) {
            server.with(|state| {
                state.note(Seen::OpenHangs);
                state.trace(|| "watch     is not answered".to_owned());
            });
            let _unanswered = Unanswered(server);
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
        let asked = &*request.resource_version;
        let is_ordered = !request.send_initial_events && !matches!(asked, "" | "0");
        let mut ready = VecDeque::new();
        let mut from = asked.parse().unwrap_or_default();
        if request.send_initial_events && state.manners.streams == Streams::Refuses {
            state.note(Seen::StreamUnknown);
            return Err(fault::unknown_parameter());
        }
        let whole = request.send_initial_events && state.manners.streams == Streams::Knows;
        if state.fails(1.0) {
            return Err(if request.send_initial_events {
                fault::of_stream(state)
            } else {
                fault::of_opening(state)
            });
        }
        if whole || matches!(asked, "" | "0") {
            let (version, mut things) = state.serve_state(if whole { asked } else { "" })?;
            things.shuffle(&mut state.rng);
            ready.extend(things.into_iter().map(replay));
            from = version;
            if whole {
                ready.push_back(Out::Marker(version));
            } else {
                state.note(Seen::WatchReplayed);
            }
        }
        if from < state.world.oldest() {
            state.note(Seen::OpenExpired);
            return Err(fault::expired());
        }
        if request.send_initial_events {
            state.reference.listing.clear();
        }
        let now = Instant::now();
        let breaks_at = state
            .fails(1.0)
            .then(|| now + Duration::from_millis(state.rng.random_range(0..60_000)));
        Ok(Self {
            server: server.clone(),
            moved: server.moved(),
            from,
            ready,
            is_collecting: request.send_initial_events,
            closes_at: now + request.timeout,
            breaks_at,
            is_silent: state.fails(0.03),
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
                Step::Send(out, lag) => {
                    if !lag.is_zero() {
                        sleep(lag).await;
                    }
                    return Some(Ok(server.with(|state| self.send(state, out))));
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
                        _ = self.moved.changed() => {}
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
            state.note(if stalls { Seen::StreamHangs } else { Seen::WatchSilent });
            return Step::Silence;
        }
        if std::mem::take(&mut self.cut_next) {
            state.note(Seen::WatchCutAfterFrame);
            return Step::Fail(fault::lost());
        }
        if now >= self.closes_at {
            state.note(Seen::WatchTimedOut);
            return Step::Close;
        }
        if self.breaks_at.is_some_and(|at| now >= at) {
            self.breaks_at = None;
            return self.breaks(state);
        }
        if self.ready.is_empty() && self.from < state.world.oldest() {
            state.note(Seen::WatchCompacted);
            return Step::Fail(fault::expired());
        }
        if self.ready.is_empty()
            && let Some(change) = state.world.change_after(self.from)
        {
            self.from = change.thing.version;
            self.ready.push_back(Out::Change(change));
            if state.rng.random_bool(state.manners.bookmarks) {
                self.ready.push_back(Out::Bookmark(self.from));
            }
        }
        let Some(out) = self.ready.pop_front() else {
            if state.is_healed && state.reference.needs_list && !self.is_collecting {
                return Step::Fail(fault::expired());
            }
            return Step::Wait;
        };
        if state.fails(0.3) {
            if self.is_collecting {
                state.note(Seen::StreamCut);
            } else {
                state.note(Seen::WatchCutBeforeFrame);
            }
            return match state.rng.random_range(0..3) {
                0 => Step::Fail(fault::lost()),
                1 => Step::Close,
                _ => Step::Fail(fault::of_watch(state)),
            };
        }
        self.cut_next = state.fails(0.2);
        if matches!(out, Out::Change(_)) && state.fails(0.3) {
            self.ready.push_front(out);
            state.note(Seen::FrameDuplicated);
        }
        let out = if state.fails(0.2) {
            self.ready.push_front(out);
            // Versions that must not be recorded, and one that must be.
            match state.rng.random_range(0..3) {
                0 => Out::Nameless(u64::from(u32::MAX)),
                1 if self.sent > 0 => Out::UnknownVerb(self.sent),
                _ => Out::WrongType(u64::from(u32::MAX)),
            }
        } else {
            out
        };
        let lag = if state.fails(0.5) {
            state.note(Seen::FrameDelayed);
            state.rng.random_range(1..400)
        } else {
            0
        };
        Step::Send(out, Duration::from_millis(lag))
    }

    fn breaks(&mut self, state: &mut State) -> Step {
        match state.rng.random_range(0..4) {
            0 => {
                state.note(Seen::WatchClosed);
                Step::Close
            }
            1 => Step::Fail(fault::lost()),
            _ => Step::Fail(fault::of_watch(state)),
        }
    }

    /// One frame, and what it means to those who keep count.
    fn send(&mut self, state: &mut State, out: Out) -> WatchFrame {
        state.trace(|| format!("watch     {out:?}"));
        let is_addition = match out {
            Out::Change(change) => change.verb == Verb::Added,
            Out::WrongType(_) => true,
            _ => false,
        };
        if state.oracle.frame(is_addition) {
            // Whatever it says, it is let go.
            self.is_open = false;
            return WatchFrame::Bookmark(mark(1, ""));
        }
        match out {
            Out::Change(change) => self.send_change(state, change),
            Out::Bookmark(version) => {
                state.note(Seen::Bookmark);
                if !self.is_collecting {
                    self.sent = version;
                    state.oracle.ordered();
                    state.oracle.reached(version);
                    state.reference.bookmark(version);
                }
                WatchFrame::Bookmark(mark(version, ""))
            }
            Out::Marker(version) => {
                self.is_collecting = false;
                self.sent = version;
                state.oracle.initial_ended(version);
                state.reference.streamed(&version.to_string());
                let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
                WatchFrame::Bookmark(mark(version, end))
            }
            Out::Nameless(version) => {
                state.note(Seen::FrameNameless);
                WatchFrame::Modified(mark(version, ""))
            }
            Out::WrongType(version) => {
                state.note(Seen::FrameWrongType);
                let json = format!(
                    r#"{{"kind":"Secret","apiVersion":"v1","metadata":{{"namespace":"n0","name":"o0","resourceVersion":"{version}"}}}}"#
                );
                WatchFrame::Added(Bytes::from(json))
            }
            Out::UnknownVerb(version) => {
                state.note(Seen::FrameUnknownVerb);
                state.oracle.reached(version);
                WatchFrame::Unknown { verb: "MOVED".to_owned(), object: mark(version, "") }
            }
        }
    }

    fn send_change(&mut self, state: &mut State, change: Change) -> WatchFrame {
        let Change { verb, name, thing } = change;
        let bytes = object(name, thing);
        let is_poison = state.reference.is_poison(thing);
        // Of what is taken back from a list only the key is looked at.
        if !self.is_collecting || verb != Verb::Deleted {
            state.reference.enters(name, thing, self.is_collecting);
        }
        if self.is_collecting {
            if is_poison && verb != Verb::Deleted {
                state.note(Seen::StreamPoisoned);
                state.oracle.stream_poisoned();
            }
            state.reference.listing.push((name, thing));
            if self.ready.is_empty() {
                state.note(Seen::StreamEndless);
            }
        } else {
            if is_poison {
                state.note(Seen::FramePoisoned);
                state.reference.needs_list = true;
            } else {
                if state.reference.is_misfit(thing) {
                    state.note(Seen::FrameMisfit);
                }
                if verb != Verb::Added {
                    state.oracle.ordered();
                }
                if self.sent > 0 || verb != Verb::Added {
                    self.sent = self.sent.max(thing.version);
                }
                state.oracle.reached(thing.version);
                state.reference.event(verb, name, thing);
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
                state.trace(|| "watch     is let go".to_owned());
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
