//! Passes as spans of `tracing`.

use std::fmt::{self, Display};

use tracing::{Span, field::Empty, level_filters::LevelFilter};

use super::explainer::Recording;
use crate::{
    pass::{Began, Note, NoteKind, PassOutcome},
    request::RequestKey,
};

impl Began {
    /// The span of a pass. If the level is disabled, this costs one comparison. Without the
    /// comparison, each step of a disabled span would call the `log` crate, which takes up to a
    /// tenth of the pass.
    pub(crate) fn span(&self, controller: &str, key: &impl Display) -> Span {
        if LevelFilter::current() < LevelFilter::INFO {
            return Span::none();
        }
        tracing::info_span!(
            "reconcile",
            controller,
            object = %key,
            id = %self.reconcile_id,
            cause = self.cause.as_str(),
            source = self.cause.source(),
            resource_version = self.cause.resource_version(),
            n_events = self.n_events,
            waited = self.waited.map(tracing::field::debug),
            priority = self.priority,
            attempt = self.attempt,
            outcome = Empty,
            reads = Empty,
            writes = Empty,
        )
    }
}

impl<R: RequestKey> Recording<R> {
    /// Records on the span how the pass ended, and what it read and wrote.
    pub(crate) fn record_on(&self, span: &Span, outcome: &PassOutcome) {
        if span.is_disabled() {
            return;
        }
        span.record("outcome", outcome.as_str());
        let notes = self.notes();
        let (reads, writes): (Vec<&Note>, _) =
            notes.iter().partition(|note| matches!(note.what, NoteKind::Read(_)));
        for (field, notes) in [("reads", reads), ("writes", writes)] {
            if !notes.is_empty() {
                span.record(field, tracing::field::display(Joined(&notes)));
            }
        }
    }
}

struct Joined<'a>(&'a [&'a Note]);

impl Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, note) in self.0.iter().enumerate() {
            write!(f, "{}{note}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
