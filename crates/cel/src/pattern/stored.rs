//! Patterns that keep their programs.

use super::{PatternError, Regex};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The most bytes of stored programs of one version of a definition: 16 MiB, several hundred
/// ordinary patterns.
pub const DEFINITION_BYTES_MAX: usize = 16 << 20;
/// The most bytes of stored programs of all definitions of this process: 64 MiB.
pub const PROCESS_BYTES_MAX: usize = 64 << 20;

/// Bytes of stored programs of all definitions of this process.
static PROCESS_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The stored programs of one definition: how large one may be, and the bytes of all.
#[derive(Debug)]
pub struct Budget {
    program_bytes_max: usize,
    bytes: AtomicUsize,
}

impl Budget {
    /// A budget for programs of at most `program_bytes_max` bytes each.
    pub fn new(program_bytes_max: usize) -> Self {
        Self { program_bytes_max, bytes: AtomicUsize::new(0) }
    }

    /// The largest program in bytes.
    pub fn program_bytes_max(&self) -> usize {
        self.program_bytes_max
    }

    /// The bytes of the stored programs.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes to both sums unless one would become too large.
    fn reserve(&self, bytes: usize) -> bool {
        if !add(&self.bytes, bytes, DEFINITION_BYTES_MAX) {
            return false;
        }
        let fits = add(&PROCESS_BYTES, bytes, PROCESS_BYTES_MAX);
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        PROCESS_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn add(sum: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let add = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= max);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// A pattern as it is written, with its program once it was matched.
#[derive(Debug)]
pub struct Pattern {
    source: Box<str>,
    program: OnceLock<Arc<Regex>>,
    budget: Arc<Budget>,
}

impl Pattern {
    /// A pattern that shares its budget with the others of its definition. Nothing is compiled yet.
    pub fn new(source: &str, budget: Arc<Budget>) -> Self {
        Self { source: source.into(), program: OnceLock::new(), budget }
    }

    /// The pattern as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The largest program that it may have, in bytes.
    pub fn program_bytes_max(&self) -> usize {
        self.budget.program_bytes_max
    }

    /// Whether its program is stored.
    pub fn is_stored(&self) -> bool {
        self.program.get().is_some()
    }

    /// Bytes of programs that this process stores now.
    pub fn process_bytes() -> usize {
        PROCESS_BYTES.load(Ordering::Relaxed)
    }

    /// The program, which is stored if the budgets allow that; and whether it was compiled for this
    /// caller alone.
    ///
    /// # Errors
    ///
    /// Those of [`Regex::new`].
    pub fn program(&self) -> Result<(Arc<Regex>, bool), PatternError> {
        if let Some(program) = self.program.get() {
            return Ok((program.clone(), false));
        }
        let program = Arc::new(Regex::new(&self.source, self.budget.program_bytes_max)?);
        let bytes = program.bytes();
        if !self.budget.reserve(bytes) {
            return Ok((program, true));
        }
        if self.program.set(program.clone()).is_err() {
            // Another thread stored its own first.
            self.budget.release(bytes);
        }
        Ok((program, false))
    }
}

/// Patterns are equal when they are written the same.
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
            self.budget.release(program.bytes());
        }
    }
}
