//! The reflector's expected next request, and its time: the rules of its specification as a state
//! machine over the answers.
//!
//! It receives every request and every answer. A request that the rules do not allow, or that comes
//! too early or too late, is a violation.
mod answers;

use crate::coverage::{CoverPoint, Coverage};
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
/// The resolution of timers.
const GRAIN: Duration = Duration::from_millis(2);
/// More requests than this at one instant are a busy loop.
const REQUESTS_AT_ONCE_MAX: u32 = 40;

/// The expected next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The first request of a round.
    Round,
    StreamAgain,
    List,
    Page,
    /// The same list in one page, because its continue token has expired.
    Whole,
    Watch,
    /// None: a request is being answered.
    Nothing,
}

/// The expected time of the next request.
#[derive(Clone, Copy, Debug)]
enum When {
    Now,
    /// After one to two times the first duration, and not before the second.
    After(Duration, Duration),
}

/// The list in progress.
#[derive(Clone, Debug)]
struct Listing {
    /// Version, limit and token of the first request.
    first: PageRequest,
    pages: u32,
    token: Option<String>,
    /// It was requested again, in one page (REF-4).
    is_whole: bool,
    /// The version of the list, from its first page (REF-3).
    version: Option<String>,
    /// The time of the request of this page, and of its last received part.
    requested_at: Instant,
    received_at: Instant,
}

/// The version, limit and continue token of a list request.
type PageRequest = (String, Option<u32>, Option<String>);

/// The open watch.
#[derive(Clone, Copy, Debug)]
struct Watching {
    opened: Instant,
    timeout: Duration,
    events: u64,
    is_ordered: bool,
    /// The initial events of a streamed list have not ended yet.
    is_initial: bool,
    /// When the last initial object was received.
    received_at: Instant,
    /// When the last frame of any kind was received.
    last: Instant,
}

impl Watching {
    /// Whether its initial events have taken too long.
    fn has_stalled(&self, grain: Duration) -> bool {
        self.received_at.elapsed() + grain >= INITIAL_QUIET
            || self.opened.elapsed() + grain >= INITIAL_TOTAL
    }
}

pub(crate) struct Oracle {
    // The reflector's options.
    can_stream: bool,
    page_size: Option<u32>,
    internal_error_budget: Duration,
    // The reflector's state.
    version: String,
    is_unavailable: bool,
    is_paged: bool,
    cannot_stream: bool,
    base: Duration,
    reset_at: Option<Instant>,
    // The state of this round.
    n_cut: u32,
    listed_again: bool,
    internal_errors: Option<(Instant, Instant)>,
    listing: Option<Listing>,
    watching: Option<Watching>,
    after_expired: bool,
    // The last watch timeouts.
    timeout: Option<Duration>,
    n_timeouts_same: u32,
    // The expected next request.
    next: Next,
    when: When,
    since: Instant,
    /// When the clock last jumped: requests that waited then are late.
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

    pub(crate) fn violated(&mut self, rule: impl Into<String>) {
        self.violation.get_or_insert(rule.into());
    }

    fn check(&mut self, holds: bool, rule: &str, what: &dyn std::fmt::Debug) {
        if !holds {
            let (version, next) = (&self.version, self.next);
            self.violated(format!(
                "{rule}: {what:?} when {next:?} was due and the version is {version:?}"
            ));
        }
    }

    /// Whether the reflector has no version, so that a list of any state is allowed.
    pub(crate) fn has_no_version(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether a watch is open whose initial events have ended.
    pub(crate) fn is_live(&self) -> bool {
        self.watching.is_some_and(|watching| !watching.is_initial)
    }

    pub(crate) fn on_list_request(&mut self, request: &ListRequest) {
        self.check_time();
        let streams = self.can_stream && !self.cannot_stream;
        let due = match self.next {
            Next::Round => !streams,
            Next::List | Next::Page | Next::Whole => true,
            _ => false,
        };
        self.check(due, "an unexpected list (REF-27, REF-30 b, invariants 7 and 8)", request);
        let want = match (self.next, &self.listing) {
            (Next::Page, Some(listing)) => {
                self.coverage.count(CoverPoint::RequestsPage);
                (String::new(), listing.first.1, listing.token.clone())
            }
            (Next::Whole, Some(listing)) => {
                self.coverage.count(CoverPoint::RequestsWhole);
                (listing.first.0.clone(), None, None)
            }
            _ => self.first_page(),
        };
        let parameters =
            (request.resource_version.clone(), request.limit, request.continue_token.clone());
        self.check(
            parameters == want,
            "REF-1, REF-2, REF-4, REF-5, invariants 7 and 10",
            &(&parameters, want),
        );
        if !matches!(self.next, Next::Page | Next::Whole) {
            self.listing = Some(Listing {
                first: parameters,
                pages: 1,
                token: None,
                is_whole: false,
                version: None,
                requested_at: Instant::now(),
                received_at: Instant::now(),
            });
        }
        if let Some(listing) = &mut self.listing {
            (listing.requested_at, listing.received_at) = (Instant::now(), Instant::now());
        }
        self.next = Next::Nothing;
    }

    fn first_page(&mut self) -> PageRequest {
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
        self.coverage.count(match version {
            "" => CoverPoint::RequestsAtLatest,
            "0" => CoverPoint::RequestsAtZero,
            _ => CoverPoint::RequestsAtVersion,
        });
        (version.to_owned(), limit, None)
    }

    fn begin_round(&mut self) {
        (self.n_cut, self.listed_again, self.internal_errors) = (0, false, None);
        if std::mem::take(&mut self.after_expired) {
            self.coverage.count(CoverPoint::RoundAfterExpired);
        }
    }

    pub(crate) fn on_watch_request(&mut self, request: &WatchRequest) {
        self.check_time();
        let streams = self.can_stream && !self.cannot_stream;
        let (due, want) = if request.send_initial_events {
            if self.next == Next::Round {
                self.begin_round();
                self.coverage.count(CoverPoint::RequestsStream);
            } else {
                self.coverage.count(CoverPoint::RequestsStreamAgain);
            }
            let want = if self.is_unavailable { "" } else { &self.version };
            (streams && matches!(self.next, Next::Round | Next::StreamAgain), want.to_owned())
        } else {
            self.coverage.count(CoverPoint::Watches);
            (self.next == Next::Watch, self.version.clone())
        };
        self.check(due, "an unexpected watch", request);
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
        // Ten random values out of three hundred are not all equal.
        self.n_timeouts_same = match self.timeout {
            Some(timeout) if timeout == request.timeout => self.n_timeouts_same + 1,
            _ => 0,
        };
        self.timeout = Some(request.timeout);
        self.check(self.n_timeouts_same < 10, "invariant 9, a constant timeout", request);
        self.coverage.count(if seconds < 450.0 {
            CoverPoint::TimeoutLow
        } else {
            CoverPoint::TimeoutHigh
        });
        let now = Instant::now();
        self.watching = Some(Watching {
            opened: now,
            timeout: request.timeout,
            events: 0,
            is_ordered: request.send_initial_events
                || !matches!(&*request.resource_version, "" | "0"),
            is_initial: request.send_initial_events,
            received_at: now,
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
            self.violated(format!(
                "REF-31, invariant 8: {next:?} after {waited:?}, due after {least:?} to {most:?}"
            ));
        }
        if let When::After(base, least) = self.when
            && !jumped
        {
            let low = waited < base.mul_f64(1.5);
            self.coverage.count(if low { CoverPoint::JitterLow } else { CoverPoint::JitterHigh });
            if waited >= least && least > 2 * base {
                self.coverage.count(CoverPoint::WaitsForRetryAfter);
            }
        }
        self.at_once = if waited.is_zero() { self.at_once + 1 } else { 0 };
        assert!(self.at_once < REQUESTS_AT_ONCE_MAX, "invariant 16: a busy loop of requests");
    }

    fn round_over(&mut self, error: &SourceError) {
        self.round_failed();
        if let When::After(_, least) = &mut self.when {
            *least = error.retry_after().unwrap_or_default();
        }
    }

    fn round_failed(&mut self) {
        self.coverage.count(CoverPoint::BacksOff);
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
            self.coverage.count(CoverPoint::BacksOffToTheCap);
        }
        self.base = (2 * base).min(BACKOFF_MAX);
        base
    }

    fn then(&mut self, next: Next, when: When) {
        (self.next, self.when, self.since) = (next, when, Instant::now());
    }
}
