//! The one encoding of objects: members sorted, no spaces, so that equal objects are equal bytes.
//!
//! Stored objects have no `metadata.resourceVersion`: the revision says it. The splices put it in, or exchange
//! `apiVersion`, by copying the bytes around one member; [`with_resource_version`] keeps the encoding canonical.
use crate::scan::Cursor;
use crate::skim::SkimError;
use bytes::Bytes;
use serde_json::Value;
use std::io::Write as _;
use std::ops::Range;

/// Encodes a tree canonically.
///
/// Members come sorted bytewise, whether or not `serde_json` keeps the order of insertion in this build.
pub fn to_bytes(value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(256);
    write_value(&mut out, value);
    out.into()
}
fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Object(map) => {
            let is_sorted = map.keys().is_sorted();
            if is_sorted {
                write_members(out, map.iter());
            } else {
                let mut members: Vec<_> = map.iter().collect();
                members.sort_unstable_by_key(|(key, _)| *key);
                write_members(out, members.into_iter());
            }
        }
        Value::Array(items) => {
            out.push(b'[');
            for (idx, item) in items.iter().enumerate() {
                if idx > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        scalar => write_scalar(out, scalar),
    }
}
fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    out.push(b'{');
    for (idx, (key, value)) in members.enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        write_scalar(out, key);
        out.push(b':');
        write_value(out, value);
    }
    out.push(b'}');
}
/// Writes what has no members. Writing these into memory cannot fail.
fn write_scalar<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, scalar: &T) {
    let written = serde_json::to_writer(out, scalar);
    debug_assert!(written.is_ok(), "a scalar into memory");
}

/// Splices `metadata.resourceVersion` into a stored encoding, which has none, without building a tree.
///
/// The member goes to its sorted place, so a canonical encoding stays canonical. One that is already there is exchanged.
/// An object without `metadata` gets one. Bytes that are no object, or whose `metadata` is none, come back as they are.
pub fn with_resource_version(stored: &[u8], revision: u64) -> Bytes {
    let mut out = Vec::with_capacity(stored.len() + RESOURCE_VERSION_BYTES);
    push_with_resource_version(&mut out, stored, revision);
    out.into()
}
/// The most bytes that a splice of a resourceVersion adds: `"metadata":{"resourceVersion":"` and `"},` around 20 digits.
pub const RESOURCE_VERSION_BYTES: usize = 54;

/// As [`with_resource_version`], behind what `out` holds: who assembles a larger text copies each object once.
pub fn push_with_resource_version(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(revision).as_bytes();
    match place_of(stored, &["metadata", "resourceVersion"]) {
        Ok(place) => place.push(out, stored, &[b"\"", digits, b"\""]),
        Err(_) => out.extend_from_slice(stored),
    }
}

/// Exchanges the top-level `apiVersion` of an encoded object without building a tree; adds one when there is none.
///
/// Bytes that are no object come back as they are.
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

/// Where the value of a member stands or belongs.
#[derive(Debug, PartialEq, Eq)]
enum Place<'p> {
    /// It stands here.
    There(Range<usize>),
    /// It belongs at this byte: these members, each in the one before, are missing there.
    Missing { at: usize, path: &'p [&'p str], comma: Comma },
}
/// Where the separator of a new member goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comma {
    /// The object has no member.
    None,
    /// A member stands before.
    Before,
    /// A member stands behind.
    After,
}
impl Place<'_> {
    /// Appends the text with the value, given in parts, put in.
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
            // A `Vec` takes every write; the names are this module's own and need no escapes.
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
/// Finds a member by its path, the first of repeated ones.
fn place_of<'p>(bytes: &[u8], path: &'p [&'p str]) -> Result<Place<'p>, SkimError> {
    let mut cursor = Cursor::new(bytes);
    for (level, name) in path.iter().enumerate() {
        let missing = &path[level..];
        cursor.object()?;
        let (mut first, mut before) = (true, None);
        let mut n_members = 0_usize;
        loop {
            let at = cursor.position();
            cursor.peek();
            let Some(key) = cursor.key(&mut first)? else {
                // Not there: at the first member that sorts behind it, else at the end.
                let comma = if n_members == 0 { Comma::None } else { Comma::Before };
                return Ok(match before {
                    Some(at) => Place::Missing { at, path: missing, comma: Comma::After },
                    None => Place::Missing { at, path: missing, comma },
                });
            };
            if key.is(name) {
                break;
            }
            if key.raw > name.as_bytes() && before.is_none() {
                before = Some(key.at - 1);
            }
            n_members += 1;
            cursor.skip()?;
        }
    }
    Ok(Place::There(cursor.skip()?))
}

#[cfg(test)]
mod tests;
