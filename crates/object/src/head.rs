//! The identity of an encoded object, as positions in its bytes.
//!
//! [`Head::scan`] reads an object once and records the positions of its identity and its end, in
//! one cache line and without allocating. This is what a cache of encoded objects needs of each.
//! [`Skim`](crate::Skim) reads more; both agree on what they read.
use crate::scan::{Cursor, RawStr, is_ascii};
use crate::skim::SkimError;
use std::borrow::Cow;
use std::ops::Range;

/// The positions of an encoded object's identity in its bytes, and the object's end.
///
/// Pass the accessors the bytes that were scanned, or a copy of them. With other bytes they return
/// arbitrary text, but never panic. Absent members, and members of the wrong type, read as empty.
/// The last of repeated members counts.
///
/// ```
/// use setpoint_object::Head;
///
/// let text = br#"{"kind":"Pod","metadata":{"name":"a","namespace":"n"}} and what follows"#;
/// let head = Head::scan(text)?.unwrap();
/// assert_eq!((&*head.name(text), &*head.namespace(text), head.end()), ("a", "n", 54));
/// assert_eq!(Head::scan(&text[..50])?, None);
/// # Ok::<(), setpoint_object::skim::SkimError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    api_version: Span,
    kind: Span,
    name: Span,
    namespace: Span,
    uid: Span,
    resource_version: Span,
    pub(crate) managed_fields: Span,
    pub(crate) end: u32,
    /// Whether `managedFields` occurs more than once in the effective metadata.
    pub(crate) is_repeated: bool,
    /// Whether a string of the identity has escapes. Those of servers have none.
    has_escapes: bool,
}

/// A range of bytes. Empty for an absent or empty member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) from: u32,
    pub(crate) to: u32,
}
impl Span {
    /// All positions fit into 32 bits, because [`Head::scan`] limits the text.
    fn new(range: Range<usize>) -> Self {
        Self { from: range.start as u32, to: range.end as u32 }
    }
    fn range(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

impl Head {
    /// Scans the object at the start of `bytes`, after white space. `None` if the object is not
    /// complete in these bytes; bytes after it are ignored.
    ///
    /// # Errors
    /// If the bytes are not a JSON object, as far as the scan looks. It checks all structure, but
    /// the content of only those scalars that it reads. The object's bytes must be UTF-8. Brackets
    /// nested deeper than 128, and objects of more than 4 GiB, are an error.
    pub fn scan(bytes: &[u8]) -> Result<Option<Self>, SkimError> {
        const SPAN_MAX: usize = u32::MAX as usize;
        let mut cursor = Cursor::new(&bytes[..bytes.len().min(SPAN_MAX)]);
        match Self::read(&mut cursor) {
            Ok(head) => {
                check_utf8(&bytes[..head.end()])?;
                Ok(Some(head))
            }
            Err(_) if cursor.ran_out() && bytes.len() <= SPAN_MAX => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Scans bytes that are exactly one object.
    ///
    /// # Errors
    /// As [`Head::scan`]; also if the object is not complete, or is followed by anything but white
    /// space.
    pub fn of(bytes: &[u8]) -> Result<Self, SkimError> {
        let Some(head) = Self::scan(bytes)? else {
            return Err(SkimError { at: bytes.len(), what: "an object without an end" });
        };
        let rest = bytes[head.end()..].trim_ascii_start();
        if rest.is_empty() {
            return Ok(head);
        }
        Err(SkimError { at: bytes.len() - rest.len(), what: "text after the object" })
    }

    /// The position after the object's last byte.
    pub fn end(&self) -> usize {
        self.end as usize
    }
    /// `apiVersion`.
    pub fn api_version<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.api_version, bytes)
    }
    /// `kind`.
    pub fn kind<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.kind, bytes)
    }
    /// `metadata.name`.
    pub fn name<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.name, bytes)
    }
    /// `metadata.namespace`.
    pub fn namespace<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.namespace, bytes)
    }
    /// `metadata.uid`.
    pub fn uid<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.uid, bytes)
    }
    /// `metadata.resourceVersion`.
    pub fn resource_version<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.text(self.resource_version, bytes)
    }
    /// The member `metadata.managedFields`: its key, its value and one comma, so that removing the
    /// range leaves a valid object. `None` if there is none. If there are several, the last;
    /// removing it makes an earlier one effective.
    pub fn managed_fields(&self) -> Option<Range<usize>> {
        (self.managed_fields != Span::default()).then(|| self.managed_fields.range())
    }
    /// Whether [`Head::managed_fields`] is one of several members of this name.
    pub fn has_repeated_managed_fields(&self) -> bool {
        self.is_repeated
    }

    /// The value of the string at a range.
    fn text<'a>(&self, span: Span, bytes: &'a [u8]) -> Cow<'a, str> {
        let raw = bytes.get(span.range()).unwrap_or_default();
        if !self.has_escapes || memchr::memchr(b'\\', raw).is_none() {
            return Cow::Borrowed(std::str::from_utf8(raw).unwrap_or_default());
        }
        Cow::Owned(RawStr::escaped(raw).value().map(Cow::into_owned).unwrap_or_default())
    }

    /// All ranges.
    pub(crate) fn spans(&mut self) -> [&mut Span; 7] {
        let Self { api_version, kind, name, namespace, uid, resource_version, .. } = self;
        let managed_fields = &mut self.managed_fields;
        [api_version, kind, name, namespace, uid, resource_version, managed_fields]
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, SkimError> {
        let mut head = Self::default();
        cursor.object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            if key.is("metadata") {
                let Self { api_version, kind, has_escapes, .. } = head;
                head = Self { api_version, kind, has_escapes, ..Self::default() };
                head.read_metadata(cursor)?;
            } else if key.is("apiVersion") {
                head.api_version = head.string(cursor)?;
            } else if key.is("kind") {
                head.kind = head.string(cursor)?;
            } else {
                cursor.skip()?;
            }
        }
        head.end = cursor.position() as u32;
        Ok(head)
    }
    fn read_metadata(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SkimError> {
        if cursor.peek() != Some(b'{') {
            return cursor.skip().map(drop);
        }
        cursor.object()?;
        let mut first = true;
        loop {
            let is_first = first;
            if !is_first {
                cursor.peek();
            }
            // After the bracket, or at the comma.
            let from = cursor.position();
            let Some(key) = cursor.key(&mut first)? else { return Ok(()) };
            let decoded;
            let name = match key.plain() {
                Some(name) => name,
                None => {
                    decoded = key.value()?;
                    decoded.as_bytes()
                }
            };
            match name {
                b"name" => self.name = self.string(cursor)?,
                b"namespace" => self.namespace = self.string(cursor)?,
                b"uid" => self.uid = self.string(cursor)?,
                b"resourceVersion" => self.resource_version = self.string(cursor)?,
                b"managedFields" => {
                    cursor.skip()?;
                    // One comma belongs to the member: the one before it, or the one after it if it
                    // is the first member.
                    let to = match cursor.peek() {
                        Some(b',') if is_first => cursor.position() + 1,
                        _ => cursor.position(),
                    };
                    self.is_repeated = self.managed_fields != Span::default();
                    self.managed_fields = Span::new(from..to);
                }
                _ => _ = cursor.skip()?,
            }
        }
    }
    /// Reads a string; empty for any other value. A string with escapes is decoded to check that it
    /// is valid.
    fn string(&mut self, cursor: &mut Cursor<'_>) -> Result<Span, SkimError> {
        if cursor.peek() != Some(b'"') {
            cursor.skip()?;
            return Ok(Span::default());
        }
        let string = cursor.string()?;
        if string.plain().is_none() {
            string.value()?;
            self.has_escapes = true;
        }
        Ok(Span::new(string.at..string.at + string.raw.len()))
    }
}

fn check_utf8(bytes: &[u8]) -> Result<(), SkimError> {
    if is_ascii(bytes) {
        return Ok(());
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(SkimError { at: error.valid_up_to(), what: "text that is not UTF-8" }),
    }
}

#[cfg(test)]
mod tests;
