//! What follows from each answer.
use super::{
    GRAIN, INTERNAL_ERROR_QUIET, LIST_QUIET, LIST_TOTAL, Next, Oracle, VERY_SHORT, WATCH_GRACE,
    WATCH_QUIET, When,
};
use crate::coverage::Seen;
use setpoint_informer::SourceError;
use std::time::Duration;
use tokio::time::Instant;

impl Oracle {
    /// Whether the list that was asked for begins anew: its items so far count for nothing.
    pub(crate) fn is_new_list(&self) -> bool {
        self.listing.as_ref().is_none_or(|listing| listing.pages == 1 || listing.is_whole)
    }

    /// The end of a page came. Gives the version of the whole list when this was its last page.
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
            self.coverage.note(Seen::ListOfPages);
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
            self.coverage.note(Seen::TokenExpired);
            return self.then(Next::Whole, When::Now);
        }
        self.listing = None;
        if !self.listed_again && (error.is_expired() || error.is_too_large_resource_version()) {
            self.listed_again = true;
            self.is_unavailable = true;
            self.coverage.note(Seen::RelistExpired);
            return self.then(Next::List, When::Now);
        }
        self.round_over(error);
    }

    /// Something of a page came.
    pub(crate) fn list_heard(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.heard = Instant::now();
        }
    }

    /// The reflector let go of a page that was not over.
    pub(crate) fn list_dropped(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let is_late = listing.heard.elapsed() + GRAIN >= LIST_QUIET
            || listing.asked.elapsed() + GRAIN >= LIST_TOTAL;
        if !is_late {
            return self.broken("a list was given up before its time");
        }
        self.coverage.note(Seen::ListGivenUp);
        self.round_failed();
    }

    /// An item for which the transform fails was given (FIFO-24).
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
        self.coverage.note(Seen::FallsBackToPages);
        self.then(Next::List, When::Now);
    }

    fn pause(&mut self, next: Next, error: &SourceError) {
        self.coverage.note(match next {
            Next::Watch => Seen::PausesThenWatches,
            _ => Seen::PausesThenStreams,
        });
        let base = self.next_base();
        self.then(next, When::After(base, error.retry_after().unwrap_or_default()));
    }

    /// An error frame, or what breaks a watch otherwise.
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
        } else if error.code() == Some(500) && self.bears_internal_error() {
            self.coverage.note(Seen::InternalErrorBorne);
            self.then(Next::Watch, When::Now);
        } else {
            self.round_over(error);
        }
    }

    fn bears_internal_error(&mut self) -> bool {
        let now = Instant::now();
        let first = match self.internal_errors {
            Some((first, last)) if now - last < INTERNAL_ERROR_QUIET => first,
            _ => now,
        };
        self.internal_errors = Some((first, now));
        !self.internal_error_budget.is_zero() && now - first < self.internal_error_budget
    }

    /// The server closed a watch, the connection was lost, or the reflector gave up waiting.
    pub(crate) fn watch_closed(&mut self) {
        let Some(watching) = self.watching.take() else { return };
        let very_short = watching.events == 0 && watching.opened.elapsed() < VERY_SHORT;
        match (watching.is_initial, very_short) {
            (true, true) => {
                self.coverage.note(Seen::StreamVeryShort);
                self.list_in_pages();
            }
            (true, false) if self.n_cut == 0 => {
                self.n_cut = 1;
                self.then(Next::StreamAgain, When::Now);
            }
            (true, false) => self.list_in_pages(),
            (false, true) => {
                self.coverage.note(Seen::WatchVeryShort);
                self.round_failed();
            }
            (false, false) => {
                self.coverage.note(Seen::WatchesAgain);
                self.then(Next::Watch, When::Now);
            }
        }
    }

    /// The reflector let go of a watch that was not over, or of a request for one that was not
    /// answered.
    pub(crate) fn watch_dropped(&mut self, is_open: bool) {
        let Some(watching) = self.watching else { return };
        let deadline = watching.opened + watching.timeout + WATCH_GRACE;
        let now = Instant::now();
        let late = now + GRAIN >= deadline || now + GRAIN >= watching.last + WATCH_QUIET;
        if watching.is_initial {
            if !watching.has_stalled(GRAIN) {
                return self.broken("REF-13: a stream was given up before its time");
            }
            if is_open {
                return self.stalled();
            }
            self.watching = None;
            self.list_in_pages();
        } else if !late {
            self.broken("REF-27: a watch was given up before its time");
        } else if is_open {
            self.watch_closed();
        } else {
            self.watching = None;
            self.round_failed();
        }
    }

    /// The transform failed for an initial event (FIFO-24): a list may do without it (REF-11 h).
    pub(crate) fn stream_poisoned(&mut self) {
        self.watching = None;
        self.list_in_pages();
    }

    /// Any frame but an error is given; gives whether it comes too late to count.
    pub(crate) fn frame(&mut self, is_addition: bool) -> bool {
        let Some(watching) = &mut self.watching else { return true };
        if watching.is_initial && watching.has_stalled(Duration::ZERO) {
            self.stalled();
            return true;
        }
        watching.events += 1;
        watching.last = Instant::now();
        if is_addition {
            watching.heard = Instant::now();
        }
        false
    }

    fn stalled(&mut self) {
        self.watching = None;
        self.cannot_stream = true;
        self.coverage.note(Seen::NeverStreamsAgain);
        self.list_in_pages();
    }

    /// A frame that is not an addition, whatever is wrong with it: versions are in order from here
    /// on (REF-21).
    pub(crate) fn ordered(&mut self) {
        if let Some(watching) = &mut self.watching {
            watching.is_ordered = true;
        }
    }

    /// A frame with this version is given, and is taken in (REF-22).
    pub(crate) fn reached(&mut self, version: u64) {
        if self.watching.is_some_and(|watching| watching.is_ordered && !watching.is_initial) {
            self.version = version.to_string();
        }
    }

    /// The end marker is given; gives whether the initial events were not over already.
    pub(crate) fn initial_ended(&mut self, version: u64) {
        if let Some(watching) = &mut self.watching {
            (watching.is_initial, watching.is_ordered, watching.events) = (false, true, 1);
        }
        self.coverage.note(Seen::StreamWhole);
        self.listed(&version.to_string());
    }
}
