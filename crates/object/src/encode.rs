//! The encodings of objects: no spaces, and one order of members, so that equal objects have equal
//! bytes.
//!
//! | order | first member | of |
//! |---|---|---|
//! | sorted by name | `apiVersion` | custom resources and whatever else is a map ([`to_bytes`]) |
//! | declared | `kind` | built-in types, in the order of their Go structs (by a crate that knows the types) |
//!
//! Stored objects have no `metadata.resourceVersion`, because the store's revision is the
//! resourceVersion. The splice functions insert it, or replace `apiVersion`, by copying the bytes
//! around one member. [`with_resource_version`] keeps either order.
use crate::scan::Cursor;
use crate::skim::SkimError;
use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::io::{self, Write as _};
use std::ops::Range;

/// Encodes a tree with sorted members.
///
/// Members are sorted bytewise, whether or not `serde_json` preserves insertion order in this
/// build.
pub fn to_bytes(value: &Value) -> Bytes {
    collect(|out| push(out, value))
}

/// Whether the encoding of a tree is longer than `n_bytes`, by estimate: escapes are not counted,
/// and every number has eight digits. Takes no longer than encoding so many bytes.
///
/// ```
/// use serde_json::json;
/// use setpoint_object::encode::is_longer_than;
///
/// let tree = json!({"a": ["x".repeat(100), null]});
/// assert!(is_longer_than(&tree, 100));
/// assert!(!is_longer_than(&tree, 200));
/// ```
pub fn is_longer_than(tree: &Value, n_bytes: usize) -> bool {
    let mut left = n_bytes;
    !fits(tree, &mut left)
}
/// Takes the length of a tree from what is left; `false`: it is longer.
fn fits(tree: &Value, left: &mut usize) -> bool {
    match tree {
        Value::Null | Value::Bool(_) => take(left, 5),
        Value::Number(_) => take(left, 9),
        Value::String(text) => take(left, text.len() + 3),
        Value::Array(items) => take(left, 2) && items.iter().all(|item| fits(item, left)),
        Value::Object(members) => {
            let mut members = members.iter();
            take(left, 2)
                && members.all(|(name, member)| take(left, name.len() + 3) && fits(member, left))
        }
    }
}
fn take(left: &mut usize, n_bytes: usize) -> bool {
    let rest = left.checked_sub(n_bytes);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

/// Maximum capacity of a thread's buffer between two uses.
const BUFFER_MAX: usize = 256 * 1024;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a function appends to an empty buffer, in memory of just that size: it is stored as it is,
/// in a store and in caches. The buffer is used again by the next call on the thread, so it seldom
/// grows.
pub fn collect(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    // A call within `write` finds an empty one.
    let mut buffer = BUFFER.take();
    buffer.clear();
    write(&mut buffer);
    let written = Bytes::copy_from_slice(&buffer);
    if buffer.capacity() <= BUFFER_MAX {
        BUFFER.set(buffer);
    }
    written
}
/// Appends a tree, encoded as by [`to_bytes`].
pub fn push(out: &mut Vec<u8>, value: &Value) {
    push_in_order(out, value, &sorted);
}
/// The members of an object, in the order in which they are written.
pub type Members<'a> = Vec<(&'a String, &'a Value)>;
/// Appends a tree with another order of members. `in_order`: the members of an object in their
/// order; `None`: they are in it.
pub fn push_in_order(
    out: &mut Vec<u8>,
    value: &Value,
    in_order: &impl Fn(&Map<String, Value>) -> Option<Members<'_>>,
) {
    match value {
        Value::Object(map) => match in_order(map) {
            None => push_members(out, map.iter(), in_order),
            Some(members) => push_members(out, members.into_iter(), in_order),
        },
        Value::Array(items) => {
            out.push(b'[');
            for (idx, item) in items.iter().enumerate() {
                if idx > 0 {
                    out.push(b',');
                }
                push_in_order(out, item, in_order);
            }
            out.push(b']');
        }
        Value::String(text) => push_text(out, text),
        scalar => write_scalar(out, scalar),
    }
}
/// Appends a value of any type, with strings as [`push_text`] writes them.
///
/// # Errors
///
/// The value's own, if it does not fit into JSON.
pub fn push_serialized<T: Serialize + ?Sized>(
    out: &mut Vec<u8>,
    value: &T,
) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, GoStrings))
}
/// Appends a string with its quotes.
///
/// Characters that have a meaning in HTML are escaped (`\u003c`), as Go's encoder does and
/// therefore the reference server.
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    if has_special(text.as_bytes()) {
        return write_scalar(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}
/// Whether a string is written as it is, without escapes.
///
/// ```
/// use setpoint_object::encode::is_verbatim;
///
/// assert!(is_verbatim("app.kubernetes.io/name"));
/// assert!(!is_verbatim("a < b"));
/// ```
pub fn is_verbatim(text: &str) -> bool {
    !has_special(text.as_bytes())
}
/// Whether some byte may need an escape.
fn has_special(text: &[u8]) -> bool {
    // Whole words are looked at, all of them, so that the compiler can look at several at once. The
    // last one overlaps the one before it, because one by one its bytes would take longer.
    match text.last_chunk() {
        Some(last) => {
            let words = text.as_chunks().0.iter().chain([last]);
            words.fold(0, |found, word| found | specials(u64::from_ne_bytes(*word))) != 0
        }
        None => text.iter().any(|byte| IS_SPECIAL[usize::from(*byte)]),
    }
}
/// Not zero if [`is_special`] holds for some byte of a word.
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let all = |byte: u8| ONES * u64::from(byte);
    // The high bit of the lowest zero byte is set in the result, and no bit if there is no zero.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let equal = |word: u64, byte: u8| zeros(word ^ all(byte));
    let controls = zeros(word & all(0xe0));
    let angles = equal(word | all(0x02), b'>');
    let quotes = equal(word | all(0x04), b'&');
    (controls | angles | quotes | equal(word, b'\\') | equal(word, 0xe2)) & HIGHS
}
/// [`is_special`] of each byte.
static IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = is_special(byte as u8);
        byte += 1;
    }
    table
};
/// Whether a byte may need an escape.
const fn is_special(byte: u8) -> bool {
    let is_html = (byte == b'<') | (byte == b'>') | (byte == b'&');
    // The last is the first byte of the line separators.
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | is_html | (byte == 0xe2)
}
/// The members by name; `None` if they are sorted.
fn sorted(map: &Map<String, Value>) -> Option<Members<'_>> {
    if map.keys().is_sorted() {
        return None;
    }
    let mut members: Members<'_> = map.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    Some(members)
}
fn push_members<'a>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    in_order: &impl Fn(&Map<String, Value>) -> Option<Members<'_>>,
) {
    out.push(b'{');
    for (idx, (key, value)) in members.enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        push_text(out, key);
        out.push(b':');
        push_in_order(out, value, in_order);
    }
    out.push(b'}');
}
/// Writes a value without members. Writing it to memory cannot fail.
fn write_scalar<T: Serialize + ?Sized>(out: &mut Vec<u8>, scalar: &T) {
    let written = push_serialized(out, scalar);
    debug_assert!(written.is_ok(), "a scalar into memory");
}
/// JSON without spaces, with the escapes of Go's encoder and its form of floats.
struct GoStrings;
impl Formatter for GoStrings {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, escape)) = rest.char_indices().find_map(|(at, c)| {
            let escape = match c {
                '<' => "\\u003c",
                '>' => "\\u003e",
                '&' => "\\u0026",
                '\u{2028}' => "\\u2028",
                '\u{2029}' => "\\u2029",
                _ => return None,
            };
            Some((at, (escape, c.len_utf8())))
        }) {
            let (escape, len) = escape;
            writer.write_all(&rest.as_bytes()[..at])?;
            writer.write_all(escape.as_bytes())?;
            rest = &rest[at + len..];
        }
        writer.write_all(rest.as_bytes())
    }
    /// Digits without an exponent, except below 1e-6 and from 1e21 on.
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let scientific = format!("{value:e}");
        match scientific.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => write!(writer, "{digits}e+{power}"),
            _ => writer.write_all(scientific.as_bytes()),
        }
    }
}

/// Inserts `metadata.resourceVersion` into a stored encoding without building a tree.
///
/// The member is inserted at its place in the order of the encoding. An existing resourceVersion is
/// replaced, in declared order if it is at its place. An object without `metadata` gets one. Bytes
/// that are not an object, or whose `metadata` is not an object, are returned unchanged.
pub fn with_resource_version(stored: &[u8], revision: u64) -> Bytes {
    let mut out = Vec::with_capacity(stored.len() + RESOURCE_VERSION_BYTES);
    push_with_resource_version(&mut out, stored, revision);
    out.into()
}
/// Maximum number of bytes that inserting a resourceVersion adds: `"metadata":{"resourceVersion":"`
/// and `"},` around 20 digits.
pub const RESOURCE_VERSION_BYTES: usize = 54;

/// As [`with_resource_version`], appending to `out`, so that assembling a larger text copies each
/// object once.
pub fn push_with_resource_version(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(revision).as_bytes();
    match place_of(stored, &["metadata", "resourceVersion"]) {
        Ok(place) => place.push(out, stored, &[b"\"", digits, b"\""]),
        Err(_) => out.extend_from_slice(stored),
    }
}

/// Appends a stored object as an item of a list of its kind: with its resourceVersion inserted as
/// by [`push_with_resource_version`], and without its top-level `apiVersion` and `kind`, which the
/// list has. Bytes that are not an object are appended unchanged.
pub fn push_list_item(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    if let Some(places) = Places::of(stored) {
        return places.push_list_item(out, stored, revision);
    }
    // In no order. All objects written by this server have one.
    let object = with_resource_version(stored, revision);
    match without_type(&object) {
        Ok(pieces) => {
            out.push(b'{');
            for (at, piece) in pieces.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(&object[piece]);
            }
            out.push(b'}');
        }
        Err(_) => out.extend_from_slice(&object),
    }
}

/// The positions at which a stored object is cut to insert its resourceVersion, and to make a list
/// item. For callers that do this often with the same object, because finding the positions costs
/// as much as copying. Eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Start of the second of the members `apiVersion` and `kind`. The other one is the object's
    /// first.
    second: u32,
    /// Position of the resourceVersion, in a `metadata` that has other members.
    version: u32,
}
impl Places {
    /// Finds the positions. `None` if the object's members have no order, or it already has a
    /// resourceVersion.
    pub fn of(stored: &[u8]) -> Option<Self> {
        places(stored).ok()
    }
    /// Packs the positions into one number, which is never zero.
    pub fn to_bits(self) -> u64 {
        u64::from(self.second) << 32 | u64::from(self.version)
    }
    /// Unpacks the number of [`Places::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        // The two halves of the number.
        Self { second: (bits >> 32) as u32, version: (bits & u64::from(u32::MAX)) as u32 }
    }
    /// Appends the object with its resourceVersion, as [`push_with_resource_version`] does.
    /// `stored` must be the object of these positions.
    pub fn push_with_resource_version(self, out: &mut Vec<u8>, stored: &[u8], revision: u64) {
        out.extend_from_slice(&stored[..self.version as usize]);
        self.push_rest(out, stored, revision);
    }
    /// Appends the item, as [`push_list_item`] does. `stored` must be the object of these
    /// positions.
    pub fn push_list_item(self, out: &mut Vec<u8>, stored: &[u8], revision: u64) {
        let (second, version) = (self.second as usize, self.version as usize);
        // Versions and kinds contain no commas.
        let behind = |start: usize| {
            let comma = stored[start..].iter().position(|byte| *byte == b',');
            comma.map_or(stored.len(), |len| start + len + 1)
        };
        out.push(b'{');
        out.extend_from_slice(&stored[behind(1)..second]);
        out.extend_from_slice(&stored[behind(second)..version]);
        self.push_rest(out, stored, revision);
    }
    /// The same object in three pieces, of which two share its bytes. Takes as long for a long
    /// object as for a short one.
    pub fn pieces_with_resource_version(self, stored: &Bytes, revision: u64) -> [Bytes; 3] {
        let version = self.version as usize;
        let mut text = Vec::with_capacity(RESOURCE_VERSION_BYTES);
        self.push_version(&mut text, stored, revision);
        [stored.slice(..version), text.into(), stored.slice(version..)]
    }
    /// Appends the resourceVersion and what follows it.
    fn push_rest(self, out: &mut Vec<u8>, stored: &[u8], revision: u64) {
        self.push_version(out, stored, revision);
        out.extend_from_slice(&stored[self.version as usize..]);
    }
    /// Appends the resourceVersion, with its comma.
    fn push_version(self, out: &mut Vec<u8>, stored: &[u8], revision: u64) {
        let version = self.version as usize;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let is_last = stored.get(version) == Some(&b'}');
        out.extend_from_slice(if is_last {
            b",\"resourceVersion\":\""
        } else {
            b"\"resourceVersion\":\""
        });
        out.extend_from_slice(digits);
        out.extend_from_slice(if is_last { b"\"" } else { b"\"," });
    }
}
fn places(stored: &[u8]) -> Result<Places, SkimError> {
    let mut cursor = Cursor::new(stored);
    cursor.object()?;
    let (mut first, mut api_version, mut kind) = (true, None, None);
    loop {
        let Some(key) = cursor.key(&mut first)? else { return cursor.fail("metadata") };
        let start = key.at - 1;
        if key.is("metadata") {
            break;
        }
        let end = cursor.skip()?.end;
        let place = match () {
            () if key.is("apiVersion") => &mut api_version,
            () if key.is("kind") => &mut kind,
            () => continue,
        };
        // Nothing but the comma stands between members.
        let is_next = start == 1 || stored[start - 1] == b',';
        let is_plain = is_next && !stored[start..end].contains(&b',');
        if !is_plain || stored.get(end) != Some(&b',') || place.replace(start).is_some() {
            return cursor.fail("one comma");
        }
    }
    let ((Some(1), Some(second)) | (Some(second), Some(1))) = (api_version, kind) else {
        return cursor.fail("apiVersion or kind first, and both before metadata");
    };
    match seek(&mut cursor, &["resourceVersion"], Order::of(stored))? {
        Some(Place::Missing { at, comma: Comma::Before | Comma::After, .. })
            if matches!(stored.get(at), Some(b'"' | b'}')) =>
        {
            match (u32::try_from(second), u32::try_from(at)) {
                (Ok(second), Ok(version)) => Ok(Places { second, version }),
                _ => cursor.fail("less than 4 GiB"),
            }
        }
        _ => cursor.fail("metadata without a resourceVersion"),
    }
}
/// The ranges of an object's members, name and value, except `apiVersion` and `kind`.
fn without_type(object: &[u8]) -> Result<Vec<Range<usize>>, SkimError> {
    let mut cursor = Cursor::new(object);
    cursor.object()?;
    let (mut first, mut pieces) = (true, Vec::new());
    while let Some(key) = cursor.key(&mut first)? {
        let start = key.at - 1;
        let end = cursor.skip()?.end;
        if !key.is("apiVersion") && !key.is("kind") {
            pieces.push(start..end);
        }
    }
    Ok(pieces)
}

/// Replaces the top-level `apiVersion` of an encoded object without building a tree; adds it if
/// missing.
///
/// Bytes that are not an object are returned unchanged.
pub fn with_api_version(encoded: &[u8], api_version: &str) -> Bytes {
    let mut quoted = Vec::with_capacity(api_version.len() + 2);
    write_scalar(&mut quoted, api_version);
    match place_of(encoded, &["apiVersion"]) {
        Ok(place) => {
            let mut out = Vec::with_capacity(encoded.len() + quoted.len() + 16);
            place.push(&mut out, encoded, &[&quoted]);
            out.into()
        }
        Err(_) => Bytes::copy_from_slice(encoded),
    }
}

/// The position of a member's value in the text.
#[derive(Debug, PartialEq, Eq)]
enum Place<'p> {
    /// The member exists; range of its value.
    There(Range<usize>),
    /// The member is missing and belongs at this byte. `path` has the missing members, each nested
    /// in the one before.
    Missing { at: usize, path: &'p [&'p str], comma: Comma },
}
/// Position of the separator of a new member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comma {
    /// The object has no members.
    None,
    /// A member precedes.
    Before,
    /// A member follows.
    After,
}
/// The order of an object's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By name.
    Sorted,
    /// That of a built-in type's Go struct.
    Declared,
}
impl Order {
    fn of(object: &[u8]) -> Self {
        if object.starts_with(b"{\"kind\":") { Self::Declared } else { Self::Sorted }
    }
    /// Whether a member belongs after one of the members that are inserted here.
    fn is_after(self, member: &[u8], inserted: &str) -> bool {
        match (self, inserted) {
            (Self::Declared, "metadata") => !matches!(member, b"kind" | b"apiVersion"),
            (Self::Declared, "resourceVersion") => {
                !matches!(member, b"name" | b"generateName" | b"namespace" | b"selfLink" | b"uid")
            }
            _ => member > inserted.as_bytes(),
        }
    }
}
impl Place<'_> {
    /// Appends the text with the value inserted. The value is given in parts.
    fn push(&self, out: &mut Vec<u8>, bytes: &[u8], value: &[&[u8]]) {
        let (range, path, comma) = match self {
            Place::There(range) => (range.clone(), &[][..], Comma::None),
            Place::Missing { at, path, comma } => (*at..*at, *path, *comma),
        };
        out.extend_from_slice(&bytes[..range.start]);
        if comma == Comma::Before {
            out.push(b',');
        }
        for (idx, name) in path.iter().enumerate() {
            if idx > 0 {
                out.push(b'{');
            }
            // Writing to a `Vec` cannot fail; the names are this module's own and need no escapes.
            _ = write!(out, "\"{name}\":");
        }
        value.iter().for_each(|part| out.extend_from_slice(part));
        out.extend(std::iter::repeat_n(b'}', path.len().saturating_sub(1)));
        if comma == Comma::After {
            out.push(b',');
        }
        out.extend_from_slice(&bytes[range.end..]);
    }
}
/// Finds a member by its path; the first one if it is repeated.
fn place_of<'p>(bytes: &[u8], path: &'p [&'p str]) -> Result<Place<'p>, SkimError> {
    let (mut cursor, order) = (Cursor::new(bytes), Order::of(bytes));
    for level in 0..path.len() {
        if let Some(place) = seek(&mut cursor, &path[level..], order)? {
            return Ok(place);
        }
    }
    Ok(Place::There(cursor.skip()?))
}
/// Enters the object at the cursor and moves to the value of the first member of `path`. Returns
/// the insert position if the member is missing.
fn seek<'p>(
    cursor: &mut Cursor<'_>,
    path: &'p [&'p str],
    order: Order,
) -> Result<Option<Place<'p>>, SkimError> {
    let name = path.first().copied().unwrap_or_default();
    cursor.object()?;
    let (mut first, mut before) = (true, None);
    let mut n_members = 0_usize;
    loop {
        let at = cursor.position();
        cursor.peek();
        let Some(key) = cursor.key(&mut first)? else {
            // Missing: insert before the first member that belongs after it, else at the end.
            let comma = if n_members == 0 { Comma::None } else { Comma::Before };
            return Ok(Some(match before {
                Some(at) => Place::Missing { at, path, comma: Comma::After },
                None => Place::Missing { at, path, comma },
            }));
        };
        if key.is(name) {
            return Ok(None);
        }
        if before.is_none() && order.is_after(key.raw, name) {
            let at = key.at - 1;
            if order == Order::Declared && name == "resourceVersion" {
                // What follows may be long, and it is not there.
                return Ok(Some(Place::Missing { at, path, comma: Comma::After }));
            }
            before = Some(at);
        }
        n_members += 1;
        cursor.skip()?;
    }
}

#[cfg(test)]
mod tests;
