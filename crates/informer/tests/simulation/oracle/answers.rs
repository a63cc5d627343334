//! The effect of each answer on the expected next request.
use super::{
    GRAIN, INTERNAL_ERROR_QUIET, LIST_QUIET, LIST_TOTAL, Next, Oracle, VERY_SHORT, WATCH_GRACE,
    WATCH_QUIET, When,
};
use crate::coverage::CoverPoint;
use setpoint_informer::SourceError;
use std::time::Duration;
use tokio::time::Instant;

impl Oracle {
    /// Whether the requested list starts again, so that its items so far are dropped.
    pub(crate) fn is_new_list(&self) -> bool {
        self.listing.as_ref().is_none_or(|listing| listing.pages == 1 || listing.is_whole)
    }

    /// A page has ended. Returns the version of the whole list if this was its last page.
    pub(crate) fn page_ended(&mut self, version: &str, token: Option<&str>) -> Option<String> {
        let mut listing = self.listing.take()?;
        let version = listing.version.get_or_insert_with(|| version.to_owned()).clone();
        if let Some(token) = token {
            listing.token = Some(token.to_owned());
            listing.pages += 1;
            self.listing = Some(listing);
            self.then(Next::Page, When::Now);
            return None;
        }
        if listing.pages > 1 {
            self.coverage.count(CoverPoint::ListOfPages);
            self.is_paged |= listing.first.0 == "0";
        }
        self.listed(&version);
        self.then(Next::Watch, When::Now);
        Some(version)
    }

    fn listed(&mut self, version: &str) {
        self.is_unavailable = false;
        version.clone_into(&mut self.version);
    }

    pub(crate) fn list_failed(&mut self, error: &SourceError) {
        if let Some(listing) = &mut self.listing
            && listing.pages > 1
            && error.is_expired()
            && !listing.is_whole
        {
            listing.is_whole = true;
            listing.version = None;
            self.coverage.count(CoverPoint::TokenExpired);
            return self.then(Next::Whole, When::Now);
        }
        self.listing = None;
        if !self.listed_again && (error.is_expired() || error.is_too_large_resource_version()) {
            self.listed_again = true;
            self.is_unavailable = true;
            self.coverage.count(CoverPoint::RelistExpired);
            return self.then(Next::List, When::Now);
        }
        self.round_over(error);
    }

    /// A part of a page was received.
    pub(crate) fn on_list_part(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.received_at = Instant::now();
        }
    }

    /// The reflector dropped a page before its end.
    pub(crate) fn list_dropped(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let is_late = listing.received_at.elapsed() + GRAIN >= LIST_QUIET
            || listing.requested_at.elapsed() + GRAIN >= LIST_TOTAL;
        if !is_late {
            return self.violated("a list was dropped before its timeout");
        }
        self.coverage.count(CoverPoint::ListAbandoned);
        self.round_failed();
    }

    /// An item was delivered for which the transform fails (FIFO-24).
    pub(crate) fn list_poisoned(&mut self) {
        self.listing = None;
        self.round_failed();
    }

    /// A watch could not be opened.
    pub(crate) fn open_failed(&mut self, error: &SourceError) {
        let Some(watching) = self.watching.take() else { return };
        if watching.is_initial {
            self.stream_failed(error);
        } else if error.is_refused() || error.is_too_many_requests() {
            self.pause(Next::Watch, error);
        } else {
            self.round_over(error);
        }
    }

    fn stream_failed(&mut self, error: &SourceError) {
        if error.is_refused() || error.is_too_many_requests() {
            return self.pause(Next::StreamAgain, error);
        }
        let unusable = error.is_expired() || error.is_too_large_resource_version();
        if unusable && !self.is_unavailable {
            self.is_unavailable = true;
            return self.then(Next::StreamAgain, When::Now);
        }
        self.list_in_pages();
    }

    fn list_in_pages(&mut self) {
        self.coverage.count(CoverPoint::FallsBackToPages);
        self.then(Next::List, When::Now);
    }

    fn pause(&mut self, next: Next, error: &SourceError) {
        self.coverage.count(match next {
            Next::Watch => CoverPoint::PausesThenWatches,
            _ => CoverPoint::PausesThenStreams,
        });
        let base = self.next_base();
        self.then(next, When::After(base, error.retry_after().unwrap_or_default()));
    }

    /// An error frame, or another error of a watch.
    pub(crate) fn watch_failed(&mut self, error: &SourceError) {
        if error.is_transport() {
            return self.watch_closed();
        }
        let Some(watching) = self.watching.take() else { return };
        if watching.is_initial {
            self.stream_failed(error);
        } else if error.is_expired() {
            self.after_expired = true;
            self.round_over(error);
        } else if error.is_too_many_requests() {
            self.pause(Next::Watch, error);
        } else if error.code() == Some(500) && self.tolerates_internal_error() {
            self.coverage.count(CoverPoint::InternalErrorTolerated);
            self.then(Next::Watch, When::Now);
        } else {
            self.round_over(error);
        }
    }

    fn tolerates_internal_error(&mut self) -> bool {
        let now = Instant::now();
        let first = match self.internal_errors {
            Some((first, last)) if now - last < INTERNAL_ERROR_QUIET => first,
            _ => now,
        };
        self.internal_errors = Some((first, now));
        !self.internal_error_budget.is_zero() && now - first < self.internal_error_budget
    }

    /// The server closed a watch, the connection was lost, or the reflector's timeout passed.
    pub(crate) fn watch_closed(&mut self) {
        let Some(watching) = self.watching.take() else { return };
        let very_short = watching.events == 0 && watching.opened.elapsed() < VERY_SHORT;
        match (watching.is_initial, very_short) {
            (true, true) => {
                self.coverage.count(CoverPoint::StreamVeryShort);
                self.list_in_pages();
            }
            (true, false) if self.n_cut == 0 => {
                self.n_cut = 1;
                self.then(Next::StreamAgain, When::Now);
            }
            (true, false) => self.list_in_pages(),
            (false, true) => {
                self.coverage.count(CoverPoint::WatchVeryShort);
                self.round_failed();
            }
            (false, false) => {
                self.coverage.count(CoverPoint::WatchesAgain);
                self.then(Next::Watch, When::Now);
            }
        }
    }

    /// The reflector dropped a watch before its end, or a request for a watch before its answer.
    pub(crate) fn watch_dropped(&mut self, is_open: bool) {
        let Some(watching) = self.watching else { return };
        let deadline = watching.opened + watching.timeout + WATCH_GRACE;
        let now = Instant::now();
        let late = now + GRAIN >= deadline || now + GRAIN >= watching.last + WATCH_QUIET;
        if watching.is_initial {
            if !watching.has_stalled(GRAIN) {
                return self.violated("REF-13: a stream was dropped before its timeout");
            }
            if is_open {
                return self.stalled();
            }
            self.watching = None;
            self.list_in_pages();
        } else if !late {
            self.violated("REF-27: a watch was dropped before its timeout");
        } else if is_open {
            self.watch_closed();
        } else {
            self.watching = None;
            self.round_failed();
        }
    }

    /// The transform failed for an initial event (FIFO-24). A list may not contain that object
    /// (REF-11 h).
    pub(crate) fn stream_poisoned(&mut self) {
        self.watching = None;
        self.list_in_pages();
    }

    /// A frame other than an error was delivered. Returns whether it is too late to count.
    pub(crate) fn frame(&mut self, is_addition: bool) -> bool {
        let Some(watching) = &mut self.watching else { return true };
        if watching.is_initial && watching.has_stalled(Duration::ZERO) {
            self.stalled();
            return true;
        }
        watching.events += 1;
        watching.last = Instant::now();
        if is_addition {
            watching.received_at = Instant::now();
        }
        false
    }

    fn stalled(&mut self) {
        self.watching = None;
        self.cannot_stream = true;
        self.coverage.count(CoverPoint::NeverStreamsAgain);
        self.list_in_pages();
    }

    /// A frame that is not an addition was delivered, valid or not. Versions are in order from here
    /// on (REF-21).
    pub(crate) fn ordered(&mut self) {
        if let Some(watching) = &mut self.watching {
            watching.is_ordered = true;
        }
    }

    /// A frame with this version was delivered and accepted (REF-22).
    pub(crate) fn reached(&mut self, version: u64) {
        if self.watching.is_some_and(|watching| watching.is_ordered && !watching.is_initial) {
            self.version = version.to_string();
        }
    }

    /// The end marker was delivered.
    pub(crate) fn initial_ended(&mut self, version: u64) {
        if let Some(watching) = &mut self.watching {
            (watching.is_initial, watching.is_ordered, watching.events) = (false, true, 1);
        }
        self.coverage.count(CoverPoint::StreamWhole);
        self.listed(&version.to_string());
    }
}
