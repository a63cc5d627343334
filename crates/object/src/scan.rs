//! A cursor over JSON text that builds nothing: the ground under the skim and the splices.
//!
//! It checks the structure of what it reads: members, separators, and in values that it skips, that
//! brackets match and strings end. It is no validator: the insides of skipped scalars are not
//! looked at, and neither is UTF-8 in skipped strings. It never panics, never recurses, and takes
//! time linear in the text.
mod block;
mod lengths;
mod nesting;
mod value_end;

pub use lengths::array_lengths;
pub use value_end::ValueEnd;

use crate::skim::SkimError;
use block::string_stop as string_bytes_before_stop;
use nesting::Nesting;
use std::borrow::Cow;
use std::ops::Range;
use value_end::is_scalar;

/// How deep brackets may nest in a skipped value: `serde_json`'s limit, so that what one reads the
/// other does too.
pub(crate) const DEPTH_MAX: u32 = 128;

/// A position in JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    ran_out: bool,
}

/// A string as it stands in the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawStr<'a> {
    /// Between the quotes.
    pub(crate) raw: &'a [u8],
    /// Where `raw` starts in the text.
    pub(crate) at: usize,
    /// Whether it holds a backslash.
    escaped: bool,
}
impl<'a> RawStr<'a> {
    /// The string's value; borrows unless it holds escapes.
    pub(crate) fn value(&self) -> Result<Cow<'a, str>, SkimError> {
        if !self.escaped {
            return std::str::from_utf8(self.raw)
                .map(Cow::Borrowed)
                .map_err(|_| SkimError { at: self.at, what: "a string that is not UTF-8" });
        }
        let mut quoted = Vec::with_capacity(self.raw.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(self.raw);
        quoted.push(b'"');
        serde_json::from_slice::<String>(&quoted)
            .map(Cow::Owned)
            .map_err(|_| SkimError { at: self.at, what: "a string with a bad escape" })
    }
    /// The string's bytes when they need no decoding.
    pub(crate) fn plain(&self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }
    /// One whose bytes, between the quotes, hold a backslash.
    pub(crate) fn escaped(raw: &'a [u8]) -> Self {
        Self { raw, at: 0, escaped: true }
    }
    /// Whether the string's value is `text`.
    pub(crate) fn is(&self, text: &str) -> bool {
        if !self.escaped {
            return self.raw == text.as_bytes();
        }
        self.value().is_ok_and(|value| value == text)
    }
}

impl<'a> Cursor<'a> {
    /// At the start of a text.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, ran_out: false }
    }
    /// Whether it looked for more than the text has: then a fault may be one of text that is not
    /// complete yet.
    pub(crate) fn ran_out(&self) -> bool {
        self.ran_out
    }
    /// Where it stands.
    pub(crate) fn position(&self) -> usize {
        self.at
    }
    /// A fault here.
    pub(crate) fn fail<T>(&self, what: &'static str) -> Result<T, SkimError> {
        Err(SkimError { at: self.at, what })
    }
    /// The next byte that is no white space, not taken.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        self.ran_out = true;
        None
    }
    /// Takes a byte if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }
    /// Nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<(), SkimError> {
        if self.peek().is_some() { self.fail("text after the value") } else { Ok(()) }
    }

    /// Enters an object: what follows are [`Cursor::key`] and a value, in turn.
    pub(crate) fn object(&mut self) -> Result<(), SkimError> {
        if self.take(b'{') { Ok(()) } else { self.fail("an object was expected") }
    }
    /// The next member's key, its colon taken; `None` when the object ended. `first` is true for
    /// the first call.
    pub(crate) fn key(&mut self, first: &mut bool) -> Result<Option<RawStr<'a>>, SkimError> {
        if !self.next_entry(b'}', first)? {
            return Ok(None);
        }
        let key = self.string()?;
        if self.take(b':') { Ok(Some(key)) } else { self.fail("a colon was expected") }
    }
    /// Enters an array: what follows are [`Cursor::element`] and a value, in turn.
    pub(crate) fn array(&mut self) -> Result<(), SkimError> {
        if self.take(b'[') { Ok(()) } else { self.fail("an array was expected") }
    }
    /// Whether another element follows. `first` is true for the first call.
    pub(crate) fn element(&mut self, first: &mut bool) -> Result<bool, SkimError> {
        self.next_entry(b']', first)
    }
    fn next_entry(&mut self, close: u8, first: &mut bool) -> Result<bool, SkimError> {
        if std::mem::take(first) {
            return Ok(!self.take(close));
        }
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => self.fail("a comma or the closing bracket was expected"),
        }
    }

    /// A string.
    pub(crate) fn string(&mut self) -> Result<RawStr<'a>, SkimError> {
        if !self.take(b'"') {
            return self.fail("a string was expected");
        }
        let start = self.at;
        let escaped = self.string_tail()?;
        Ok(RawStr { raw: &self.bytes[start..self.at - 1], at: start, escaped })
    }
    /// Goes behind the closing quote of a string that was entered; whether it holds a backslash.
    fn string_tail(&mut self) -> Result<bool, SkimError> {
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(found) = string_bytes_before_stop(rest) else {
                self.ran_out = true;
                return self.fail("a string without an end");
            };
            self.at += found + 1;
            if rest[found] == b'"' {
                return Ok(escaped);
            }
            escaped = true;
            self.at += 1;
        }
    }

    /// Skips one value of any kind; the range it takes up.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, SkimError> {
        match self.peek() {
            None => self.fail("a value was expected"),
            Some(b'"') => {
                let start = self.at;
                self.at += 1;
                self.string_tail()?;
                Ok(start..self.at)
            }
            Some(b'{' | b'[') => self.skip_nested(),
            Some(_) => self.skip_scalar(),
        }
    }
    /// Skips one value of any kind; its text.
    pub(crate) fn skip_bytes(&mut self) -> Result<&'a [u8], SkimError> {
        let range = self.skip()?;
        Ok(&self.bytes[range])
    }
    /// Skips a number, `true`, `false` or `null`.
    fn skip_scalar(&mut self) -> Result<Range<usize>, SkimError> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|byte| is_scalar(*byte)) {
            self.at += 1;
        }
        if self.at == start { self.fail("a value was expected") } else { Ok(start..self.at) }
    }
    /// Skips an object or array.
    fn skip_nested(&mut self) -> Result<Range<usize>, SkimError> {
        let start = self.at;
        let mut nesting = Nesting::default();
        match nesting.feed(&self.bytes[start..]) {
            Ok(Some(n_bytes)) => {
                self.at += n_bytes;
                Ok(start..self.at)
            }
            Ok(None) => {
                self.at = self.bytes.len();
                self.ran_out = true;
                let in_string = nesting.in_string();
                self.fail(if in_string {
                    "a string without an end"
                } else {
                    "brackets without an end"
                })
            }
            Err(fault) => {
                self.at += fault.at;
                self.fail(fault.what)
            }
        }
    }
}
