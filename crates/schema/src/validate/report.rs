//! The errors of one validation and the steps it has taken.

use crate::pattern::{Matcher, Pattern};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};

/// The most steps of one validation: 16 Mi, well below a second unless a pattern is at its worst. A
/// step is a node that is looked at, a value of an enum, a required name, 16 bytes of text, or a
/// byte of text for every 2 KiB of a pattern's program.
pub const STEPS_MAX: usize = 16 << 20;
/// The most bytes of errors that one validation reports: 4 MiB. An error repeats the path of its
/// value, which may be as long as the object.
pub const ERRORS_BYTES_MAX: usize = Errors::BYTES_MAX;
/// Bytes of text that are looked at or written in one step.
const STEP_BYTES: usize = 16;

/// Errors and the work that was done for them.
#[derive(Default)]
pub(super) struct Report {
    errors: Vec<Error>,
    /// Bytes of the errors.
    bytes: usize,
    steps: usize,
    matcher: Matcher,
}

impl Report {
    /// Whether no more should be looked at: the budget is spent, or there are more errors than
    /// anybody reads.
    pub(super) fn is_over(&self) -> bool {
        self.steps > STEPS_MAX || self.bytes > ERRORS_BYTES_MAX
    }

    /// Counts steps.
    pub(super) fn step(&mut self, steps: usize) {
        self.steps = self.steps.saturating_add(steps);
    }

    /// Counts bytes that are looked at.
    pub(super) fn read(&mut self, bytes: usize) {
        self.step(bytes / STEP_BYTES);
    }

    pub(super) fn push(&mut self, error: Error) {
        let bytes = error.n_bytes();
        self.read(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.errors.push(error);
    }

    /// Whether a pattern matches. An error when that cannot be found out.
    pub(super) fn matches(&mut self, pattern: &Pattern, text: &str) -> Result<bool, String> {
        let mut steps = 0;
        let matches = self.matcher.is_match(pattern, text, &mut steps);
        self.step(steps);
        matches
    }

    /// Takes the errors so far, which still count.
    pub(super) fn take(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.errors)
    }

    /// Returns only the errors that `check` finds.
    pub(super) fn apart(&mut self, check: impl FnOnce(&mut Self)) -> Vec<Error> {
        let errors = std::mem::take(&mut self.errors);
        let bytes = self.bytes;
        check(self);
        self.bytes = bytes;
        std::mem::replace(&mut self.errors, errors)
    }

    /// The errors; one more when the budget was spent.
    pub(super) fn finish(mut self) -> Vec<Error> {
        if self.steps > STEPS_MAX {
            self.errors.push(Error::invalid(
                Path::root(),
                &Value::from(""),
                format!(
                    "validation stopped after {STEPS_MAX} steps: the object is too large for its schema, or the schema too complex"
                ),
            ));
        }
        self.errors
    }
}
