//! Which of an object's faults is told: the one that Go's decoder tells.
use crate::decode::DecodeError;
use crate::decode::json::first_of;
use crate::decode::place::At;

/// The most faults of which the first in the text is looked for.
const MAX: usize = 16;

/// A value that is not what its type wants.
struct Fault {
    /// Its place in the text.
    path: String,
    error: DecodeError,
    /// Whether Go's decoder ends with it: a type that reads its own text refuses it.
    ends: bool,
}

/// The first faults by name; with a text, as many as are needed to find the first in it.
pub(super) struct Faults<'p> {
    /// What the object was parsed from.
    pub(super) text: Option<&'p [u8]>,
    all: Vec<Fault>,
}

impl<'p> Faults<'p> {
    pub(super) fn of(text: Option<&'p [u8]>) -> Self {
        Self { text, all: Vec::new() }
    }

    /// Whether no other fault is needed, unless decoding ends with it.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= self.text.map_or(1, |_| MAX)
    }

    /// Notes a fault with which Go's decoder goes on.
    pub(super) fn note(&mut self, at: &At<'_>, error: DecodeError) {
        if !self.is_full() {
            self.all.push(Fault { path: at.path(), error, ends: false });
        }
    }

    /// Notes a fault with which Go's decoder ends. Another one may stand before it in the text.
    ///
    /// # Errors
    ///
    /// This one, if there is no text, or enough is known.
    pub(super) fn end(&mut self, at: &At<'_>, error: DecodeError) -> Result<(), DecodeError> {
        if self.text.is_none() || self.is_full() {
            return Err(error);
        }
        self.all.push(Fault { path: at.path(), error, ends: true });
        Ok(())
    }

    /// The first that ends the decoding, or else the first of all.
    ///
    /// # Errors
    ///
    /// The fault, if there is one.
    pub(super) fn first(self) -> Result<(), DecodeError> {
        let ends = self.all.iter().any(|fault| fault.ends);
        let mut all: Vec<Fault> = self.all.into_iter().filter(|fault| fault.ends == ends).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut first = 0;
        if let Some(text) = self.text
            && all.len() > 1
        {
            first = first_of(text, all.iter().map(|fault| &*fault.path)).unwrap_or(0);
        }
        Err(all.swap_remove(first).error)
    }
}
