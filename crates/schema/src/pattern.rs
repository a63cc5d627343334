//! Patterns of schemas: Go's regular expressions, compiled when they are first matched, within
//! budgets.
//!
//! # Theory
//!
//! A definition holds any number of patterns, and a pattern of a few bytes can compile to
//! megabytes. Therefore:
//!
//! | what | is bounded by | beyond it |
//! |---|---|---|
//! | the syntax | Go's limits ([`translate`]) | the definition is refused, in Go's words |
//! | one program | [`PROGRAM_BYTES_MAX`] | values that it should match are refused, with an error that says so |
//! | the programs a definition keeps | [`DEFINITION_BYTES_MAX`] | a program lives for one validation |
//! | the programs a process keeps | [`PROCESS_BYTES_MAX`] | a program lives for one validation |
//! | matching | the steps of a validation | the validation ends with an error |
//!
//! Nothing is compiled when a definition is read. What is kept is freed with the definition's
//! schema. The memory that matching itself needs belongs to the validation (`Matcher`) and is
//! freed with it.

#[cfg(test)]
mod tests;

pub use setpoint_cel::pattern::{SyntaxError, translate};

use crate::node::Str;
use regex_automata::Input;
use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The largest program of one pattern: 8 MiB in each direction, which is enough for `\pL{1,200}`.
/// Go's limits allow far more.
pub const PROGRAM_BYTES_MAX: usize = 16 << 20;
/// The most bytes of programs that one version of a definition keeps: 16 MiB, several hundred
/// ordinary patterns.
pub const DEFINITION_BYTES_MAX: usize = 16 << 20;
/// The most bytes of programs that all definitions of this process keep: 64 MiB.
pub const PROCESS_BYTES_MAX: usize = 64 << 20;
/// The most bytes of programs and scratch memory that one validation holds at a time.
const MATCHER_BYTES_MAX: usize = 16 << 20;
/// Scratch memory of one pattern's lazily built automaton.
const CACHE_BYTES: usize = 256 << 10;
/// Each byte of text takes a step for so many bytes of the program. At its worst a match looks at
/// all of them for each byte.
const STEP_PROGRAM_BYTES: usize = 2 << 10;
/// Bytes of a program that are compiled in one step, when it is compiled for one validation alone.
const STEP_COMPILED_BYTES: usize = 4;

/// Bytes of programs that the definitions of this process keep.
static PROCESS_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the patterns of one definition keep together.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    bytes: AtomicUsize,
}

/// Adds bytes to a sum unless that would be too much.
fn reserve(sum: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let add = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= max);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// A pattern as it is written in a schema.
#[derive(Debug)]
pub struct Pattern {
    source: Str,
    program: OnceLock<Arc<Program>>,
    budget: Arc<Budget>,
}

impl Pattern {
    /// A pattern that shares its budget with the others of its definition. Nothing is compiled yet.
    pub(crate) fn new(source: Str, budget: Arc<Budget>) -> Self {
        Self { source, program: OnceLock::new(), budget }
    }

    /// The pattern as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Bytes of programs that this process keeps now.
    pub fn process_bytes() -> usize {
        PROCESS_BYTES.load(Ordering::Relaxed)
    }

    /// The program, kept if the budgets allow that; and whether it was compiled for this caller
    /// alone.
    fn program(&self) -> Result<(Arc<Program>, bool), String> {
        if let Some(program) = self.program.get() {
            return Ok((program.clone(), false));
        }
        let program = Arc::new(Program::compile(&self.source)?);
        let bytes = program.bytes;
        if !reserve(&self.budget.bytes, bytes, DEFINITION_BYTES_MAX) {
            return Ok((program, true));
        }
        if !reserve(&PROCESS_BYTES, bytes, PROCESS_BYTES_MAX) {
            self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Ok((program, true));
        }
        if let Err(program) = self.program.set(program) {
            // Somebody else was faster.
            self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
            PROCESS_BYTES.fetch_sub(bytes, Ordering::Relaxed);
            return Ok((program, false));
        }
        self.program.get().map_or_else(|| self.program(), |program| Ok((program.clone(), false)))
    }
}

/// Patterns are the same when they are written the same.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}
impl Eq for Pattern {}
impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        if let Some(program) = self.program.get() {
            self.budget.bytes.fetch_sub(program.bytes, Ordering::Relaxed);
            PROCESS_BYTES.fetch_sub(program.bytes, Ordering::Relaxed);
        }
    }
}

/// A compiled pattern.
#[derive(Debug)]
struct Program {
    regex: Regex,
    bytes: usize,
}

impl Program {
    fn compile(pattern: &str) -> Result<Self, String> {
        let translated = translate(pattern).map_err(|error| error.to_string())?;
        let config = Config::new()
            .nfa_size_limit(Some(PROGRAM_BYTES_MAX / 2))
            .which_captures(WhichCaptures::Implicit)
            .hybrid_cache_capacity(CACHE_BYTES)
            .onepass(false)
            .dfa(false);
        let regex = Regex::builder()
            .configure(config)
            .build(&translated)
            .map_err(|error| why(pattern, &error))?;
        let bytes = regex.memory_usage() + pattern.len() + size_of::<Self>();
        Ok(Self { regex, bytes })
    }
}

fn why(pattern: &str, error: &BuildError) -> String {
    let limit = match error.size_limit() {
        Some(_) => format!("it compiles to more than {PROGRAM_BYTES_MAX} bytes"),
        None => error.to_string(),
    };
    format!("cannot be matched against '{pattern}': {limit}")
}

/// Matches patterns during one validation. Keeps what matching a pattern once has prepared.
#[derive(Default)]
pub(crate) struct Matcher {
    /// By the pattern's address: the schema outlives its validation.
    prepared: HashMap<usize, Result<Prepared, String>>,
    bytes: usize,
}

struct Prepared {
    program: Arc<Program>,
    cache: Cache,
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
            Some(Ok(Prepared { program, cache })) => {
                let weight = 1 + program.bytes / STEP_PROGRAM_BYTES;
                *steps = steps.saturating_add(text.len().saturating_add(1).saturating_mul(weight));
                let input = Input::new(text).earliest(true);
                Ok(program.regex.search_half_with(cache, &input).is_some())
            }
            Some(Err(why)) => {
                *steps = steps.saturating_add(why.len());
                Err(why.clone())
            }
            None => Ok(true),
        }
    }

    fn prepare(&mut self, pattern: &Pattern, steps: &mut usize) -> Result<Prepared, String> {
        let (program, is_transient) = pattern.program().inspect_err(|_| {
            // The compiler went to its limit.
            *steps = steps.saturating_add(PROGRAM_BYTES_MAX / STEP_COMPILED_BYTES);
        })?;
        if is_transient {
            *steps = steps.saturating_add(program.bytes / STEP_COMPILED_BYTES);
            self.bytes += program.bytes;
        }
        let cache = program.regex.create_cache();
        self.bytes += cache.memory_usage() + CACHE_BYTES;
        Ok(Prepared { program, cache })
    }
}
