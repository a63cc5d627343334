//! Patterns: Go's regular expressions.

mod class;
mod go;

pub use go::{SyntaxError, translate};

/// The largest program of one pattern: 2 MiB. Patterns of expressions are short.
const PROGRAM_BYTES_MAX: usize = 2 << 20;

/// The most bytes that one search for all matches goes through, counted as if each match looked at
/// the whole rest of the text. It takes about a second.
const SEARCH_BYTES_MAX: usize = 1 << 30;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Regex(regex::Regex);

/// Why there is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is not one.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Its program is larger than any is allowed to be.
    #[error("error parsing regexp: expression too large")]
    TooLarge,
}

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// What Go refuses, in its words, and patterns whose program is larger than 2 MiB.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        regex::RegexBuilder::new(&translate(pattern)?)
            .size_limit(PROGRAM_BYTES_MAX)
            .dfa_size_limit(PROGRAM_BYTES_MAX)
            .build()
            .map(Self)
            .map_err(|_| PatternError::TooLarge)
    }

    /// Whether the pattern is anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The first match.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.find(text).map(|found| found.as_str())
    }

    /// The first `limit` matches; `None` if it takes too long to find them.
    pub fn find_all<'t>(&self, text: &'t str, limit: usize) -> Option<Vec<&'t str>> {
        let mut found = Vec::new();
        let mut looked_at = 0usize;
        let mut last_end = None;
        for one in self.0.find_iter(text) {
            if found.len() >= limit {
                break;
            }
            looked_at = looked_at.saturating_add(text.len() - one.start());
            if looked_at > SEARCH_BYTES_MAX {
                return None;
            }
            // Go skips an empty match right behind another one.
            if !(one.is_empty() && last_end == Some(one.start())) {
                found.push(one.as_str());
            }
            last_end = Some(one.end());
        }
        Some(found)
    }
}

/// Whether Go takes it as a pattern.
pub fn is_valid(pattern: &str) -> bool {
    translate(pattern).is_ok()
}
