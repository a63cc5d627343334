//! Patterns: Go's regular expressions, compiled when they are first matched, within budgets.
//!
//! # Theory
//!
//! A definition holds any number of patterns, and a pattern of a few bytes can compile to
//! megabytes. Therefore:
//!
//! | what | is bounded by | beyond it |
//! |---|---|---|
//! | the syntax | Go's limits ([`translate`]) | the definition is refused, in Go's words |
//! | one program | the limit of its [`Budget`] | [`PatternError::TooLarge`] |
//! | the stored programs of one definition | [`DEFINITION_BYTES_MAX`] | a program lives for one use |
//! | the stored programs of a process | [`PROCESS_BYTES_MAX`] | a program lives for one use |
//!
//! Nothing is compiled when a definition is read. A stored program is freed with its [`Pattern`].
//! The memory that matching itself needs is a [`Scratch`], which belongs to the validation or
//! evaluation that matches.
//!
//! A pattern that repeats large classes of characters is compiled over its own alphabet, to a
//! hundredth of the bytes.

mod alphabet;
mod class;
mod go;
mod stored;

pub use go::{SyntaxError, translate};
pub use stored::{Budget, DEFINITION_BYTES_MAX, PROCESS_BYTES_MAX, Pattern};

use alphabet::Alphabet;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::meta::{BuildError, Cache, Config, Regex as Engine};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::iter::Searcher;
use regex_automata::{Input, Match};
use regex_syntax::hir::Hir;
use std::borrow::Cow;
use std::ops::Range;

/// Scratch memory of one pattern's lazily built automaton: 256 KiB.
pub const SCRATCH_BYTES: usize = 256 << 10;

/// The most bytes that one search for all matches goes through, counted as if each match looked at
/// the whole rest of the text. It takes about a second.
const SEARCH_BYTES_MAX: usize = 1 << 30;

/// How many steps a search may take that goes through a program state by state: about half a
/// second.
const SIMULATED_STEPS_MAX: u64 = 1 << 28;
/// About how many bytes of a program are one state.
const STATE_BYTES: u64 = 64;

/// How many ranges of characters beyond ASCII a pattern may have, as often as they are repeated,
/// before it gets an [`Alphabet`]: each is about a hundred bytes of the program.
const UTF8_RANGES_MAX: u64 = 4_096;
/// One range of a class, when an alphabet is made, is as much work as so many bytes of a program.
const RANGE_WORK_BYTES: usize = 32;

/// A compiled pattern.
#[derive(Debug)]
pub struct Regex {
    engine: Engine,
    /// The pattern in the engine's syntax.
    translated: Box<str>,
    /// If the program matches sorts of characters instead of UTF-8.
    alphabet: Option<Alphabet>,
    bytes: usize,
    /// See [`Regex::work_bytes`].
    work_bytes: usize,
}

/// A text as its program reads it.
struct Haystack<'t> {
    text: &'t str,
    bytes: Cow<'t, [u8]>,
}

impl<'t> Haystack<'t> {
    fn input(&self) -> Input<'_> {
        Input::new(&*self.bytes)
    }

    /// Where each byte begins in the text, and the end of the last, if that is not where it is in
    /// the haystack.
    fn offsets(&self) -> Option<Vec<usize>> {
        let Cow::Owned(_) = self.bytes else { return None };
        let starts = self.text.char_indices().map(|(start, _)| start);
        Some(starts.chain([self.text.len()]).collect())
    }

    fn part(&self, offsets: Option<&[usize]>, found: Range<usize>) -> &'t str {
        match offsets {
            None => &self.text[found],
            Some(offsets) => &self.text[offsets[found.start]..offsets[found.end]],
        }
    }
}

/// The memory that one pattern is matched with.
#[derive(Debug)]
pub struct Scratch(Cache);

impl Scratch {
    /// The bytes it takes now; matching adds up to [`SCRATCH_BYTES`].
    pub fn bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

/// Why a pattern cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Go refuses it.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Its program is larger than the limit.
    #[error("error parsing regexp: expression too large")]
    TooLarge,
    /// The engine refuses it for another reason.
    #[error("error parsing regexp: {0}")]
    Engine(String),
}

impl From<BuildError> for PatternError {
    fn from(error: BuildError) -> Self {
        match error.size_limit() {
            Some(_) => Self::TooLarge,
            None => Self::Engine(error.to_string()),
        }
    }
}

impl Regex {
    /// Compiles a pattern to a program of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// A pattern that Go refuses, in its words, and a larger program.
    pub fn new(pattern: &str, bytes_max: usize) -> Result<Self, PatternError> {
        Self::compile(&translate(pattern)?, bytes_max, |pattern| {
            alphabet::n_ranges(pattern) > UTF8_RANGES_MAX
        })
    }

    /// `is_large`: it gets an alphabet if it can have one.
    fn compile(
        translated: &str,
        bytes_max: usize,
        is_large: impl FnOnce(&Hir) -> bool,
    ) -> Result<Self, PatternError> {
        let pattern = parsed(translated)?;
        let is_large = is_large(&pattern);
        let (alphabet, pattern) = over_alphabet(pattern, is_large);
        let config = Config::new()
            // A search runs in both directions.
            .nfa_size_limit(Some(bytes_max / 2))
            .which_captures(WhichCaptures::Implicit)
            .hybrid_cache_capacity(SCRATCH_BYTES)
            .onepass(false)
            .dfa(false)
            .utf8_empty(alphabet.is_none());
        let engine = Engine::builder().configure(config).build_from_hir(&pattern)?;
        let bytes = engine.memory_usage()
            + alphabet.as_ref().map_or(0, Alphabet::bytes)
            + translated.len()
            + size_of::<Self>();
        let n_ranges = alphabet.as_ref().map_or(0, Alphabet::n_ranges);
        let work_bytes = bytes.saturating_add(n_ranges.saturating_mul(RANGE_WORK_BYTES));
        Ok(Self { engine, translated: translated.into(), alphabet, bytes, work_bytes })
    }

    /// Whether a search of a text may take longer than about half a second: the text is long, and
    /// the pattern has too many states at a time for an automaton (`(a|b)*a(a|b){500}`). Then the
    /// engine goes through all of them for each byte. Finds out by trying the automaton, unless
    /// text or program are short.
    pub fn is_costly(&self, text: &str) -> bool {
        let n_states = self.bytes as u64 / STATE_BYTES;
        if (text.len() as u64).saturating_mul(n_states) <= SIMULATED_STEPS_MAX {
            return false;
        }
        // As the engine's own automaton.
        let config = DFA::config()
            .cache_capacity(SCRATCH_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(3))
            .minimum_bytes_per_state(Some(10));
        let thompson = thompson::Config::new()
            .utf8(self.alphabet.is_none())
            .nfa_size_limit(Some(self.bytes))
            .which_captures(WhichCaptures::None);
        let has_alphabet = self.alphabet.is_some();
        let pattern = parsed(&self.translated).map(|it| over_alphabet(it, has_alphabet).1);
        let mut compiler = thompson::Compiler::new();
        compiler.configure(thompson);
        let automaton = pattern
            .ok()
            .and_then(|pattern| compiler.build_from_hir(&pattern).ok())
            .and_then(|program| DFA::builder().configure(config).build_from_nfa(program).ok());
        let Some(automaton) = automaton else { return true };
        let mut cache = automaton.create_cache();
        automaton.try_search_fwd(&mut cache, &self.haystack(text).input()).is_err()
    }

    /// The bytes of the program.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The work of compiling it, as bytes of a program.
    pub fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    /// Memory to match this pattern with, and no other.
    pub fn scratch(&self) -> Scratch {
        Scratch(self.engine.create_cache())
    }

    /// Whether the pattern matches anywhere in the text.
    pub fn is_match(&self, scratch: &mut Scratch, text: &str) -> bool {
        let haystack = self.haystack(text);
        self.engine.search_half_with(&mut scratch.0, &haystack.input().earliest(true)).is_some()
    }

    /// The first match.
    pub fn find<'t>(&self, scratch: &mut Scratch, text: &'t str) -> Option<&'t str> {
        let haystack = self.haystack(text);
        let found = self.search(scratch, &haystack.input())?;
        Some(haystack.part(haystack.offsets().as_deref(), found.range()))
    }

    /// The first `limit` matches, and how many bytes were looked at, as if each match looked at the
    /// whole rest of the text. `None` if it takes too long to find them.
    pub fn find_all<'t>(
        &self,
        scratch: &mut Scratch,
        text: &'t str,
        limit: usize,
    ) -> Option<(Vec<&'t str>, usize)> {
        let haystack = self.haystack(text);
        let offsets = haystack.offsets();
        let mut found = Vec::new();
        let mut looked_at = 0usize;
        let mut last_end = None;
        let mut searcher = Searcher::new(haystack.input());
        while found.len() < limit {
            let Some(one) = searcher.advance(|input| Ok(self.search(scratch, input))) else {
                break;
            };
            looked_at = looked_at.saturating_add(haystack.bytes.len() - one.start());
            if looked_at > SEARCH_BYTES_MAX {
                return None;
            }
            // Go skips an empty match right behind another one.
            if !(one.is_empty() && last_end == Some(one.start())) {
                found.push(haystack.part(offsets.as_deref(), one.range()));
            }
            last_end = Some(one.end());
        }
        Some((found, looked_at))
    }

    fn haystack<'t>(&self, text: &'t str) -> Haystack<'t> {
        let bytes = match &self.alphabet {
            None => Cow::Borrowed(text.as_bytes()),
            Some(alphabet) => alphabet.translate(text),
        };
        Haystack { text, bytes }
    }

    fn search(&self, scratch: &mut Scratch, input: &Input<'_>) -> Option<Match> {
        self.engine.search_with(&mut scratch.0, input)
    }
}

/// A translated pattern.
fn parsed(translated: &str) -> Result<Hir, PatternError> {
    regex_syntax::parse(translated).map_err(|error| PatternError::Engine(error.to_string()))
}

/// A pattern over its own alphabet, if that is wanted and it can have one.
fn over_alphabet(pattern: Hir, is_wanted: bool) -> (Option<Alphabet>, Hir) {
    match is_wanted.then(|| Alphabet::rewrite(&pattern)).flatten() {
        Some((alphabet, rewritten)) => (Some(alphabet), rewritten),
        None => (None, pattern),
    }
}

/// Whether Go accepts the pattern.
pub fn is_valid(pattern: &str) -> bool {
    translate(pattern).is_ok()
}
