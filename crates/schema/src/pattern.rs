//! Matching the patterns of schemas, with a count of the steps.
//!
//! [`setpoint_cel::pattern`] says when patterns are compiled and within which budgets. Values of a
//! pattern whose program is too large are refused, with an error that says so. Matching takes steps
//! of the validation, which ends with an error when it has taken too many.

#[cfg(test)]
mod tests;

pub use setpoint_cel::pattern::{Budget, Pattern, translate};

use setpoint_cel::pattern::{PatternError, Regex, SCRATCH_BYTES, Scratch};
use std::collections::HashMap;
use std::sync::Arc;

/// The largest program of one pattern: 8 MiB in each direction, which is enough for `[a-z]{1000}`
/// three hundred times. Go's limits allow ten times more.
pub const PROGRAM_BYTES_MAX: usize = 16 << 20;
/// The most bytes of programs and scratch memory that one validation holds at a time.
const MATCHER_BYTES_MAX: usize = 16 << 20;
/// Each byte of text takes a step for so many bytes of the program. At its worst a match looks at
/// all of them for each byte.
const STEP_PROGRAM_BYTES: usize = 2 << 10;
/// Bytes of a program that are compiled in one step, when it is compiled for one validation alone.
const STEP_COMPILED_BYTES: usize = 4;

/// The budget of a definition's patterns.
pub(crate) fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(PROGRAM_BYTES_MAX))
}

fn why(pattern: &Pattern, error: &PatternError) -> String {
    let source = pattern.source();
    match error {
        PatternError::TooLarge => {
            let max = pattern.program_bytes_max();
            format!("cannot be matched against '{source}': it compiles to more than {max} bytes")
        }
        error => error.to_string(),
    }
}

/// Matches patterns during one validation. Keeps the scratch memory of each for its next match.
#[derive(Default)]
pub(crate) struct Matcher {
    /// By the pattern's address: the schema outlives its validation.
    prepared: HashMap<usize, Result<Prepared, String>>,
    bytes: usize,
}

struct Prepared {
    program: Arc<Regex>,
    scratch: Scratch,
}

impl Matcher {
    /// Whether a pattern matches anywhere in a text; `steps` grows by what that may have cost.
    ///
    /// # Errors
    /// The pattern's program is too large.
    pub(crate) fn is_match(
        &mut self,
        pattern: &Pattern,
        text: &str,
        steps: &mut usize,
    ) -> Result<bool, String> {
        let address = std::ptr::from_ref(pattern).addr();
        if !self.prepared.contains_key(&address) {
            if self.bytes > MATCHER_BYTES_MAX {
                self.prepared.clear();
                self.bytes = 0;
            }
            let prepared = self.prepare(pattern, steps);
            self.prepared.insert(address, prepared);
        }
        match self.prepared.get_mut(&address) {
            Some(Ok(Prepared { program, scratch })) => {
                let weight = 1 + program.bytes() / STEP_PROGRAM_BYTES;
                *steps = steps.saturating_add(text.len().saturating_add(1).saturating_mul(weight));
                Ok(program.is_match(scratch, text))
            }
            Some(Err(why)) => {
                *steps = steps.saturating_add(why.len());
                Err(why.clone())
            }
            None => Ok(true),
        }
    }

    fn prepare(&mut self, pattern: &Pattern, steps: &mut usize) -> Result<Prepared, String> {
        let (program, is_transient) = pattern.program().map_err(|error| {
            // The compiler went to its limit.
            *steps = steps.saturating_add(PROGRAM_BYTES_MAX / STEP_COMPILED_BYTES);
            why(pattern, &error)
        })?;
        if is_transient {
            *steps = steps.saturating_add(program.work_bytes() / STEP_COMPILED_BYTES);
            self.bytes += program.bytes();
        }
        let scratch = program.scratch();
        self.bytes += scratch.bytes() + SCRATCH_BYTES;
        Ok(Prepared { program, scratch })
    }
}
