//! The one encoding of objects: members sorted, no spaces, so that equal objects are equal bytes.
//!
//! Stored objects have no `metadata.resourceVersion`: the revision says it. The splices put it in,
//! or exchange `apiVersion`, by copying the bytes around one member; [`with_resource_version`]
//! keeps the encoding canonical.
use crate::scan::Cursor;
use crate::skim::SkimError;
use bytes::Bytes;
use serde_json::Value;
use std::io::Write as _;
use std::ops::Range;

/// Encodes a tree canonically.
///
/// Members come sorted bytewise, whether or not `serde_json` keeps the order of insertion in this
/// build.
pub fn to_bytes(value: &Value) -> Bytes {
    to_bytes_of_about(value, 256)
}
/// As [`to_bytes`], with room for so many bytes to begin with: for whoever knows what the tree was
/// before.
pub fn to_bytes_of_about(value: &Value, room: usize) -> Bytes {
    let mut out = Vec::with_capacity(room);
    write_value(&mut out, value);
    // What is made here is kept as it is, in a store and in caches.
    if out.capacity() - out.len() > out.len() / 4 {
        out.shrink_to_fit();
    }
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

/// Splices `metadata.resourceVersion` into a stored encoding, which has none, without building a
/// tree.
///
/// The member goes to its sorted place, so a canonical encoding stays canonical. One that is
/// already there is exchanged. An object without `metadata` gets one. Bytes that are no object, or
/// whose `metadata` is none, come back as they are.
pub fn with_resource_version(stored: &[u8], revision: u64) -> Bytes {
    let mut out = Vec::with_capacity(stored.len() + RESOURCE_VERSION_BYTES);
    push_with_resource_version(&mut out, stored, revision);
    out.into()
}
/// The most bytes that a splice of a resourceVersion adds: `"metadata":{"resourceVersion":"` and
/// `"},` around 20 digits.
pub const RESOURCE_VERSION_BYTES: usize = 54;

/// As [`with_resource_version`], behind what `out` holds: who assembles a larger text copies each
/// object once.
pub fn push_with_resource_version(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(revision).as_bytes();
    match place_of(stored, &["metadata", "resourceVersion"]) {
        Ok(place) => place.push(out, stored, &[b"\"", digits, b"\""]),
        Err(_) => out.extend_from_slice(stored),
    }
}

/// Appends a stored object as an item of a list of its kind: with its resourceVersion spliced in as
/// by [`push_with_resource_version`], without its top-level `apiVersion` and `kind`, which the list
/// tells. Bytes that are no object are appended as they are.
pub fn push_list_item(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    if let Some(places) = ListItemPlaces::of(stored) {
        return places.push(out, stored, revision);
    }
    // Not in canonical order, which no object of this server's own is.
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

/// Where a canonical stored object is cut to be an item of a list, for whoever makes one of the
/// same object often: looking costs as much as copying. Eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListItemPlaces {
    /// Where the member `kind` starts.
    kind: u32,
    /// Where the resourceVersion belongs, in a `metadata` that has other members.
    version: u32,
}
impl ListItemPlaces {
    /// Looks. `None` for what is not canonical, or has a resourceVersion already.
    pub fn of(stored: &[u8]) -> Option<Self> {
        list_item_places(stored).ok()
    }
    /// As one number, which is never zero.
    pub fn to_bits(self) -> u64 {
        u64::from(self.kind) << 32 | u64::from(self.version)
    }
    /// What [`ListItemPlaces::to_bits`] was made of.
    pub fn from_bits(bits: u64) -> Self {
        // The halves of a number.
        Self { kind: (bits >> 32) as u32, version: (bits & u64::from(u32::MAX)) as u32 }
    }
    /// Appends the item, as [`push_list_item`] does. `stored` is what the places are of.
    pub fn push(self, out: &mut Vec<u8>, stored: &[u8], revision: u64) {
        let (kind, version) = (self.kind as usize, self.version as usize);
        // Versions and kinds hold no commas.
        let behind = |start: usize| {
            let comma = stored[start..].iter().position(|byte| *byte == b',');
            comma.map_or(stored.len(), |len| start + len + 1)
        };
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let is_last = stored.get(version) == Some(&b'}');
        out.push(b'{');
        out.extend_from_slice(&stored[behind(1)..kind]);
        out.extend_from_slice(&stored[behind(kind)..version]);
        out.extend_from_slice(if is_last {
            b",\"resourceVersion\":\""
        } else {
            b"\"resourceVersion\":\""
        });
        out.extend_from_slice(digits);
        out.extend_from_slice(if is_last { b"\"" } else { b"\"," });
        out.extend_from_slice(&stored[version..]);
    }
}
fn list_item_places(stored: &[u8]) -> Result<ListItemPlaces, SkimError> {
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
        let is_plain = !stored[start..end].contains(&b',');
        if !is_plain || stored.get(end) != Some(&b',') || place.replace(start).is_some() {
            return cursor.fail("one comma");
        }
    }
    let (Some(1), Some(kind @ 2..)) = (api_version, kind) else {
        return cursor.fail("apiVersion first, and kind before metadata");
    };
    match seek(&mut cursor, &["resourceVersion"])? {
        Some(Place::Missing { at, comma: Comma::Before | Comma::After, .. })
            if matches!(stored.get(at), Some(b'"' | b'}')) =>
        {
            match (u32::try_from(kind), u32::try_from(at)) {
                (Ok(kind), Ok(version)) => Ok(ListItemPlaces { kind, version }),
                _ => cursor.fail("less than 4 GiB"),
            }
        }
        _ => cursor.fail("metadata without a resourceVersion"),
    }
}
/// The members of an object but for `apiVersion` and `kind`, names and values.
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

/// Exchanges the top-level `apiVersion` of an encoded object without building a tree; adds one when
/// there is none.
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
    for level in 0..path.len() {
        if let Some(place) = seek(&mut cursor, &path[level..])? {
            return Ok(place);
        }
    }
    Ok(Place::There(cursor.skip()?))
}
/// Goes into the object at the cursor and up to the value of the first member of `path`. If it is
/// missing: where the path belongs.
fn seek<'p>(cursor: &mut Cursor<'_>, path: &'p [&'p str]) -> Result<Option<Place<'p>>, SkimError> {
    let name = path.first().copied().unwrap_or_default();
    cursor.object()?;
    let (mut first, mut before) = (true, None);
    let mut n_members = 0_usize;
    loop {
        let at = cursor.position();
        cursor.peek();
        let Some(key) = cursor.key(&mut first)? else {
            // Not there: at the first member that sorts behind it, else at the end.
            let comma = if n_members == 0 { Comma::None } else { Comma::Before };
            return Ok(Some(match before {
                Some(at) => Place::Missing { at, path, comma: Comma::After },
                None => Place::Missing { at, path, comma },
            }));
        };
        if key.is(name) {
            return Ok(None);
        }
        if key.raw > name.as_bytes() && before.is_none() {
            before = Some(key.at - 1);
        }
        n_members += 1;
        cursor.skip()?;
    }
}

#[cfg(test)]
mod tests;
