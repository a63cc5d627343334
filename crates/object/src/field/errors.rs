//! A bounded collection of field errors.
use super::Error;
use std::ops::Deref;

/// The field errors of one object, up to [`Errors::BYTES_MAX`].
///
/// Every byte of an object can cause an error, and each error repeats the path of its field. Errors
/// beyond [`Errors::BYTES_MAX`] are dropped; a client sees them once it has fixed the first ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Errors {
    list: Vec<Error>,
    n_bytes: usize,
}
impl Errors {
    /// Maximum total size of the errors: 4 MiB, more than the `Status` shows.
    pub const BYTES_MAX: usize = 4 << 20;

    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds an error, unless [`is_full`](Self::is_full).
    pub fn push(&mut self, error: Error) {
        if !self.is_full() {
            self.n_bytes += weight(&error);
            self.list.push(error);
        }
    }
    /// Whether further errors are dropped. A long validation may then stop.
    pub fn is_full(&self) -> bool {
        self.n_bytes > Self::BYTES_MAX
    }
    /// Sorts the errors by their texts.
    pub fn sort_by_text(&mut self) {
        self.list.sort_by_cached_key(Error::to_string);
    }
    /// Retains the errors for which the condition holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&Error) -> bool) {
        self.list.retain(|error| keep(error));
        self.n_bytes = self.list.iter().map(weight).sum();
    }
}
/// Size of an error: its text and its entry.
fn weight(error: &Error) -> usize {
    error.n_bytes() + size_of::<Error>()
}
impl Deref for Errors {
    type Target = [Error];
    fn deref(&self) -> &[Error] {
        &self.list
    }
}
impl From<Error> for Errors {
    fn from(error: Error) -> Self {
        let mut errors = Self::new();
        errors.push(error);
        errors
    }
}

impl Extend<Error> for Errors {
    fn extend<I: IntoIterator<Item = Error>>(&mut self, errors: I) {
        errors.into_iter().for_each(|error| self.push(error));
    }
}
impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
