//! What the reflector has to ask next, and when: the rules of its specification as a state machine
//! over what it was answered.
//!
//! It is told of every request and of every answer as it is given. A request that the rules do not
//! lead to, or one that comes too early or too late, is a violation.
mod answers;

use crate::coverage::{Coverage, Seen};
use setpoint_informer::SourceError;
use setpoint_informer::source::{ListRequest, WatchRequest};
use std::time::Duration;
use tokio::time::Instant;

const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const BACKOFF_RESET: Duration = Duration::from_secs(120);
const VERY_SHORT: Duration = Duration::from_secs(1);
const INITIAL_QUIET: Duration = Duration::from_secs(120);
const INITIAL_TOTAL: Duration = Duration::from_secs(600);
const LIST_QUIET: Duration = Duration::from_secs(120);
const LIST_TOTAL: Duration = Duration::from_secs(600);
const WATCH_GRACE: Duration = Duration::from_secs(30);
const WATCH_QUIET: Duration = Duration::from_secs(90);
const INTERNAL_ERROR_QUIET: Duration = Duration::from_secs(60);
/// The timer's grain.
const GRAIN: Duration = Duration::from_millis(2);
/// More requests than this at one instant are a loop that never waits.
const REQUESTS_AT_ONCE_MAX: u32 = 40;

/// What is to be asked next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// A round begins.
    Round,
    StreamAgain,
    List,
    Page,
    /// The same list in one piece, as its continue token has expired.
    Whole,
    Watch,
    /// It is being answered.
    Nothing,
}

/// When.
#[derive(Clone, Copy, Debug)]
enum When {
    Now,
    /// After a wait of once to twice this, and not before the other.
    After(Duration, Duration),
}

/// The list that is being read.
#[derive(Clone, Debug)]
struct Listing {
    /// Version, limit and token of the first request.
    first: Asked,
    pages: u32,
    token: Option<String>,
    /// It was asked for once more, in one piece (REF-4).
    is_whole: bool,
    /// What the list says of itself, which is what its first page says (REF-3).
    version: Option<String>,
    /// When this page was asked for, and when something of it came last.
    asked: Instant,
    heard: Instant,
}

/// The version, limit and continue token of a list request.
type Asked = (String, Option<u32>, Option<String>);

/// The watch that is open.
#[derive(Clone, Copy, Debug)]
struct Watching {
    opened: Instant,
    timeout: Duration,
    events: u64,
    is_ordered: bool,
    /// The initial events of a streamed list have not ended yet.
    is_initial: bool,
    /// When the last initial object came.
    heard: Instant,
    /// When the last frame of any kind came.
    last: Instant,
}

impl Watching {
    /// Whether its initial events have taken too long.
    fn has_stalled(&self, grain: Duration) -> bool {
        self.heard.elapsed() + grain >= INITIAL_QUIET
            || self.opened.elapsed() + grain >= INITIAL_TOTAL
    }
}

pub(crate) struct Oracle {
    // What the reflector was told.
    can_stream: bool,
    page_size: Option<u32>,
    internal_error_budget: Duration,
    // What it remembers.
    version: String,
    is_unavailable: bool,
    is_paged: bool,
    cannot_stream: bool,
    base: Duration,
    reset_at: Option<Instant>,
    // Of this round.
    n_cut: u32,
    listed_again: bool,
    internal_errors: Option<(Instant, Instant)>,
    listing: Option<Listing>,
    watching: Option<Watching>,
    after_expired: bool,
    // Of the last watches.
    timeout: Option<Duration>,
    n_timeouts_same: u32,
    // What is to come.
    next: Next,
    when: When,
    since: Instant,
    /// When the clock last jumped: what waited then comes late.
    pub(crate) jumped_at: Option<Instant>,
    at_once: u32,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<String>,
}

impl Oracle {
    pub(crate) fn new(
        can_stream: bool,
        page_size: Option<u32>,
        internal_error_budget: Duration,
    ) -> Self {
        Self {
            can_stream,
            page_size,
            internal_error_budget,
            version: String::new(),
            is_unavailable: false,
            is_paged: false,
            cannot_stream: false,
            base: BACKOFF_MIN,
            reset_at: None,
            n_cut: 0,
            listed_again: false,
            internal_errors: None,
            listing: None,
            watching: None,
            after_expired: false,
            timeout: None,
            n_timeouts_same: 0,
            next: Next::Round,
            when: When::Now,
            since: Instant::now(),
            jumped_at: None,
            at_once: 0,
            coverage: Coverage::default(),
            violation: None,
        }
    }

    pub(crate) fn broken(&mut self, rule: impl Into<String>) {
        self.violation.get_or_insert(rule.into());
    }

    fn check(&mut self, holds: bool, rule: &str, what: &dyn std::fmt::Debug) {
        if !holds {
            let (version, next) = (&self.version, self.next);
            self.broken(format!(
                "{rule}: {what:?} when {next:?} was due and the version is {version:?}"
            ));
        }
    }

    /// Whether any list may be given, as nothing is known that would have to be surpassed.
    pub(crate) fn knows_no_version(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether a watch is open, past the initial events.
    pub(crate) fn is_live(&self) -> bool {
        self.watching.is_some_and(|watching| !watching.is_initial)
    }

    pub(crate) fn asks_list(&mut self, request: &ListRequest) {
        self.check_time();
        let streams = self.can_stream && !self.cannot_stream;
        let due = match self.next {
            Next::Round => !streams,
            Next::List | Next::Page | Next::Whole => true,
            _ => false,
        };
        self.check(
            due,
            "a list that no rule leads to (REF-27, REF-30 b, invariants 7 and 8)",
            request,
        );
        let want = match (self.next, &self.listing) {
            (Next::Page, Some(listing)) => {
                self.coverage.note(Seen::AsksPage);
                (String::new(), listing.first.1, listing.token.clone())
            }
            (Next::Whole, Some(listing)) => {
                self.coverage.note(Seen::AsksWhole);
                (listing.first.0.clone(), None, None)
            }
            _ => self.first_page(),
        };
        let asked =
            (request.resource_version.clone(), request.limit, request.continue_token.clone());
        self.check(
            asked == want,
            "REF-1, REF-2, REF-4, REF-5, invariants 7 and 10",
            &(&asked, want),
        );
        if !matches!(self.next, Next::Page | Next::Whole) {
            self.listing = Some(Listing {
                first: asked,
                pages: 1,
                token: None,
                is_whole: false,
                version: None,
                asked: Instant::now(),
                heard: Instant::now(),
            });
        }
        if let Some(listing) = &mut self.listing {
            (listing.asked, listing.heard) = (Instant::now(), Instant::now());
        }
        self.next = Next::Nothing;
    }

    fn first_page(&mut self) -> Asked {
        if self.next == Next::Round {
            self.begin_round();
        }
        let version = match () {
            () if self.is_unavailable => "",
            () if self.version.is_empty() => "0",
            () => &self.version,
        };
        let limit = match self.page_size {
            Some(page_size) => Some(page_size),
            None if !self.is_paged && !matches!(version, "" | "0") => None,
            None => Some(500),
        };
        self.coverage.note(match version {
            "" => Seen::AsksAtLatest,
            "0" => Seen::AsksAtZero,
            _ => Seen::AsksAtVersion,
        });
        (version.to_owned(), limit, None)
    }

    fn begin_round(&mut self) {
        (self.n_cut, self.listed_again, self.internal_errors) = (0, false, None);
        if std::mem::take(&mut self.after_expired) {
            self.coverage.note(Seen::RoundAfterExpired);
        }
    }

    pub(crate) fn asks_watch(&mut self, request: &WatchRequest) {
        self.check_time();
        let streams = self.can_stream && !self.cannot_stream;
        let (due, want) = if request.send_initial_events {
            if self.next == Next::Round {
                self.begin_round();
                self.coverage.note(Seen::AsksStream);
            } else {
                self.coverage.note(Seen::AsksStreamAgain);
            }
            let want = if self.is_unavailable { "" } else { &self.version };
            (streams && matches!(self.next, Next::Round | Next::StreamAgain), want.to_owned())
        } else {
            self.coverage.note(Seen::Watches);
            (self.next == Next::Watch, self.version.clone())
        };
        self.check(due, "a watch that no rule leads to", request);
        self.check(
            request.resource_version == want,
            "REF-11 a, REF-12, REF-20, REF-21, REF-22, REF-24",
            request,
        );
        let seconds = request.timeout.as_secs_f64();
        self.check(
            (300.0..600.0).contains(&seconds) && seconds.fract() == 0.0,
            "invariant 9",
            request,
        );
        // Ten draws out of three hundred are not all the same.
        self.n_timeouts_same = match self.timeout {
            Some(timeout) if timeout == request.timeout => self.n_timeouts_same + 1,
            _ => 0,
        };
        self.timeout = Some(request.timeout);
        self.check(self.n_timeouts_same < 10, "invariant 9, a constant timeout", request);
        self.coverage.note(if seconds < 450.0 { Seen::TimeoutLow } else { Seen::TimeoutHigh });
        let now = Instant::now();
        self.watching = Some(Watching {
            opened: now,
            timeout: request.timeout,
            events: 0,
            is_ordered: request.send_initial_events
                || !matches!(&*request.resource_version, "" | "0"),
            is_initial: request.send_initial_events,
            heard: now,
            last: now,
        });
        self.next = Next::Nothing;
    }

    fn check_time(&mut self) {
        let waited = self.since.elapsed();
        let jumped = self.jumped_at.is_some_and(|at| at >= self.since);
        let (least, most) = match self.when {
            When::Now => (Duration::ZERO, GRAIN),
            When::After(base, least) => {
                (base.max(least).saturating_sub(GRAIN), (2 * base).max(least) + GRAIN)
            }
        };
        if waited < least || (waited > most && !jumped) {
            let next = self.next;
            self.broken(format!(
                "REF-31, invariant 8: {next:?} after {waited:?}, due after {least:?} to {most:?}"
            ));
        }
        if let When::After(base, least) = self.when
            && !jumped
        {
            let low = waited < base.mul_f64(1.5);
            self.coverage.note(if low { Seen::JitterLow } else { Seen::JitterHigh });
            if waited >= least && least > 2 * base {
                self.coverage.note(Seen::WaitsLongerAsAsked);
            }
        }
        self.at_once = if waited.is_zero() { self.at_once + 1 } else { 0 };
        assert!(
            self.at_once < REQUESTS_AT_ONCE_MAX,
            "invariant 16: it asks and asks at one instant"
        );
    }

    fn round_over(&mut self, error: &SourceError) {
        self.round_failed();
        if let When::After(_, least) = &mut self.when {
            *least = error.retry_after().unwrap_or_default();
        }
    }

    fn round_failed(&mut self) {
        self.coverage.note(Seen::BacksOff);
        let base = self.next_base();
        self.then(Next::Round, When::After(base, Duration::ZERO));
    }

    fn next_base(&mut self) -> Duration {
        let now = Instant::now();
        if self.reset_at.is_none_or(|at| now - at > BACKOFF_RESET) {
            (self.base, self.reset_at) = (BACKOFF_MIN, Some(now));
        }
        let base = self.base;
        if base == BACKOFF_MAX {
            self.coverage.note(Seen::BacksOffToTheCap);
        }
        self.base = (2 * base).min(BACKOFF_MAX);
        base
    }

    fn then(&mut self, next: Next, when: When) {
        (self.next, self.when, self.since) = (next, when, Instant::now());
    }
}
