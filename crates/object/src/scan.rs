//! A cursor over JSON text that builds nothing. The base of skims and splices.
//!
//! It checks the structure of what it reads: members and separators, and in skipped values, that
//! brackets balance and strings end. It is not a validator: it does not check the content of
//! skipped scalars, or UTF-8 in skipped strings. It never panics, never recurses, and takes linear
//! time.
mod block;
mod lengths;
mod nesting;
mod value_end;

pub use lengths::array_lengths;
pub use value_end::ValueEnd;

use crate::skim::SkimError;
pub(crate) use block::is_ascii;
use block::string_stop as string_bytes_before_stop;
use nesting::Nesting;
use std::borrow::Cow;
use std::ops::Range;
use value_end::is_scalar;

/// Maximum nesting of brackets in a skipped value: `serde_json`'s limit, so that both accept the
/// same texts.
pub(crate) const DEPTH_MAX: u32 = 128;

/// A position in JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    ran_out: bool,
}

/// The byte after the closing quote of the string that starts at `at`; `None`: none starts there,
/// or it does not end.
pub fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += string_bytes_before_stop(bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// A string as written in the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawStr<'a> {
    /// The bytes between the quotes.
    pub(crate) raw: &'a [u8],
    /// Position of `raw` in the text.
    pub(crate) at: usize,
    /// Whether it contains a backslash.
    escaped: bool,
}
impl<'a> RawStr<'a> {
    /// The string's value. Borrows unless it contains escapes.
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
    /// The string's bytes if they need no decoding.
    pub(crate) fn plain(&self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }
    /// A string with escapes, given the bytes between its quotes.
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
    /// A cursor at the start of a text.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, ran_out: false }
    }
    /// Whether it read past the end of the text. An error may then be due to text that is not
    /// complete yet.
    pub(crate) fn ran_out(&self) -> bool {
        self.ran_out
    }
    /// The current position.
    pub(crate) fn position(&self) -> usize {
        self.at
    }
    /// An error at the current position.
    pub(crate) fn fail<T>(&self, what: &'static str) -> Result<T, SkimError> {
        Err(SkimError { at: self.at, what })
    }
    /// The next byte that is not white space, without consuming it.
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
    /// Consumes a byte if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }
    /// Continues at a position.
    pub(crate) fn move_to(&mut self, position: usize) {
        self.at = position.min(self.bytes.len());
    }
    /// Checks that only white space remains.
    pub(crate) fn end(&mut self) -> Result<(), SkimError> {
        if self.peek().is_some() { self.fail("text after the value") } else { Ok(()) }
    }

    /// Enters an object. Then call [`Cursor::key`] and read a value, in turn.
    pub(crate) fn object(&mut self) -> Result<(), SkimError> {
        if self.take(b'{') { Ok(()) } else { self.fail("an object was expected") }
    }
    /// The next member's key, with its colon consumed; `None` at the end of the object. Set `first`
    /// to true for the first call.
    pub(crate) fn key(&mut self, first: &mut bool) -> Result<Option<RawStr<'a>>, SkimError> {
        if !self.next_entry(b'}', first)? {
            return Ok(None);
        }
        let key = self.string()?;
        if self.take(b':') { Ok(Some(key)) } else { self.fail("a colon was expected") }
    }
    /// Enters an array. Then call [`Cursor::element`] and read a value, in turn.
    pub(crate) fn array(&mut self) -> Result<(), SkimError> {
        if self.take(b'[') { Ok(()) } else { self.fail("an array was expected") }
    }
    /// Whether another element follows. Set `first` to true for the first call.
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

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<RawStr<'a>, SkimError> {
        if !self.take(b'"') {
            return self.fail("a string was expected");
        }
        let start = self.at;
        let escaped = self.string_tail()?;
        Ok(RawStr { raw: &self.bytes[start..self.at - 1], at: start, escaped })
    }
    /// The text of a string that this cursor has read, with its quotes.
    pub(crate) fn quoted(&self, string: &RawStr<'a>) -> &'a [u8] {
        &self.bytes[string.at - 1..string.at + string.raw.len() + 1]
    }
    /// Moves after the closing quote of a string that was entered; returns whether it contains a
    /// backslash.
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

    /// Skips one value of any kind; returns its range.
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
    /// Skips one value of any kind; returns its text.
    pub(crate) fn skip_bytes(&mut self) -> Result<&'a [u8], SkimError> {
        let range = self.skip()?;
        Ok(&self.bytes[range])
    }
    /// As [`Cursor::skip`], for a value that may nest deeper than [`DEPTH_MAX`]; `None`: no value.
    pub(crate) fn skip_unlimited(&mut self) -> Option<Range<usize>> {
        let mut limited = self.clone();
        if let Ok(range) = limited.skip() {
            *self = limited;
            return Some(range);
        }
        self.peek().filter(|byte| matches!(byte, b'{' | b'['))?;
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.at = string_end(self.bytes, self.at)?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(start..self.at);
            }
        }
    }
    /// Skips a number, `true`, `false` or `null`.
    fn skip_scalar(&mut self) -> Result<Range<usize>, SkimError> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|byte| is_scalar(*byte)) {
            self.at += 1;
        }
        if self.at == start { self.fail("a value was expected") } else { Ok(start..self.at) }
    }
    /// Skips the rest of an object that was entered, with its closing bracket.
    pub(crate) fn skip_rest(&mut self) -> Result<(), SkimError> {
        let mut nesting = Nesting::default();
        let opened = nesting.feed(b"{");
        debug_assert!(opened == Ok(None), "a bracket opens");
        self.skip_with(nesting)
    }
    /// Skips an object or array.
    fn skip_nested(&mut self) -> Result<Range<usize>, SkimError> {
        let start = self.at;
        self.skip_with(Nesting::default())?;
        Ok(start..self.at)
    }
    fn skip_with(&mut self, mut nesting: Nesting) -> Result<(), SkimError> {
        match nesting.feed(&self.bytes[self.at..]) {
            Ok(Some(n_bytes)) => {
                self.at += n_bytes;
                Ok(())
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
