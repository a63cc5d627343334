//! The faults of one object.
use super::Error;
use std::ops::Deref;

/// Field errors, as many as are worth telling.
///
/// An object may have a fault in every byte, and a fault repeats the path of its field. What comes
/// beyond [`Errors::BYTES_MAX`] is dropped: whoever mends the first ones is told of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Errors {
    list: Vec<Error>,
    n_bytes: usize,
}
impl Errors {
    /// The most bytes of errors: 4 MiB, more than the `Status` that shows them holds.
    pub const BYTES_MAX: usize = 4 << 20;

    /// None yet.
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
    /// Whether no more are taken: a long validation may stop looking.
    pub fn is_full(&self) -> bool {
        self.n_bytes > Self::BYTES_MAX
    }
    /// Puts them in the order of their texts.
    pub fn sort_by_text(&mut self) {
        self.list.sort_by_cached_key(Error::to_string);
    }
    /// Keeps those that a condition holds for.
    pub fn retain(&mut self, mut keep: impl FnMut(&Error) -> bool) {
        self.list.retain(|error| keep(error));
        self.n_bytes = self.list.iter().map(weight).sum();
    }
}
/// What an error takes: what it says, and its place.
fn weight(error: &Error) -> usize {
    error.n_bytes() + size_of::<Error>()
}
impl Deref for Errors {
    type Target = [Error];
    fn deref(&self) -> &[Error] {
        &self.list
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
