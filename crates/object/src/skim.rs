//! Reads the metadata of an encoded object without building a tree.
//!
//! [`Skim::of`] reads the bytes once and extracts only `apiVersion`, `kind` and `metadata`. The
//! result agrees with `serde_json`: members may be in any order, the last of repeated members
//! counts, and a member of the wrong type reads as absent.
use crate::scan::Cursor;
use std::borrow::Cow;

/// The type and metadata of an encoded object. Made in one pass over the bytes; strings borrow from
/// them unless they contain escapes.
///
/// Absent members read as empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Skim<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub namespace: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    pub resource_version: Cow<'a, str>,
    /// Zero if absent.
    pub generation: i64,
    pub creation_timestamp: Cow<'a, str>,
    pub deletion_timestamp: Cow<'a, str>,
    /// Sorted by key.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Sorted by key.
    pub annotations: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub owner_references: Vec<OwnerReference<'a>>,
    pub finalizers: Vec<Cow<'a, str>>,
    /// Byte range of the whole `managedFields` member value, so that it can be removed without a
    /// tree.
    pub managed_fields: Option<std::ops::Range<usize>>,
}
/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct OwnerReference<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    pub controller: bool,
    pub block_owner_deletion: bool,
}
/// Why bytes cannot be skimmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON at byte {at}: {what}")]
#[allow(missing_docs)]
pub struct SkimError {
    pub at: usize,
    pub what: &'static str,
}

impl<'a> Skim<'a> {
    /// Skims one encoded object.
    ///
    /// # Errors
    ///
    /// If the bytes are not a JSON object, as far as the skim looks. It checks all structure, but
    /// the content of only those scalars that it reads. Brackets nested deeper than 128 are an
    /// error.
    pub fn of(bytes: &'a [u8]) -> Result<Self, SkimError> {
        let mut skim = Self::default();
        let mut cursor = Cursor::new(bytes);
        cursor.object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            if key.is("metadata") {
                let (api_version, kind) = (skim.api_version, skim.kind);
                skim = Self { api_version, kind, ..Self::default() };
                skim.metadata(&mut cursor)?;
            } else if key.is("apiVersion") {
                skim.api_version = string(&mut cursor)?;
            } else if key.is("kind") {
                skim.kind = string(&mut cursor)?;
            } else {
                cursor.skip()?;
            }
        }
        cursor.end()?;
        Ok(skim)
    }
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| k == key).map(|(_, value)| &**value)
    }
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(k, _)| k == key).map(|(_, value)| &**value)
    }
    /// The owner reference that has `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference<'a>> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    fn metadata(&mut self, cursor: &mut Cursor<'a>) -> Result<(), SkimError> {
        if cursor.peek() != Some(b'{') {
            return cursor.skip().map(drop);
        }
        cursor.object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            match key.value()?.as_ref() {
                "name" => self.name = string(cursor)?,
                "namespace" => self.namespace = string(cursor)?,
                "uid" => self.uid = string(cursor)?,
                "resourceVersion" => self.resource_version = string(cursor)?,
                "generation" => self.generation = integer(cursor)?,
                "creationTimestamp" => self.creation_timestamp = string(cursor)?,
                "deletionTimestamp" => self.deletion_timestamp = string(cursor)?,
                "labels" => self.labels = string_map(cursor)?,
                "annotations" => self.annotations = string_map(cursor)?,
                "ownerReferences" => self.owner_references = owner_references(cursor)?,
                "finalizers" => self.finalizers = strings(cursor)?,
                "managedFields" => self.managed_fields = Some(cursor.skip()?),
                _ => _ = cursor.skip()?,
            }
        }
        Ok(())
    }
}

/// Reads a string; empty for any other value.
fn string<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, SkimError> {
    if cursor.peek() == Some(b'"') {
        return cursor.string()?.value();
    }
    cursor.skip()?;
    Ok(Cow::Borrowed(""))
}
/// Reads a 64-bit integer; zero for any other value.
fn integer(cursor: &mut Cursor<'_>) -> Result<i64, SkimError> {
    Ok(std::str::from_utf8(cursor.skip_bytes()?).ok().and_then(|t| t.parse().ok()).unwrap_or(0))
}
fn boolean(cursor: &mut Cursor<'_>) -> Result<bool, SkimError> {
    Ok(cursor.skip_bytes()? == b"true")
}
type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;
/// Reads the members of an object that are strings. The last of repeated members counts.
fn string_map<'a>(cursor: &mut Cursor<'a>) -> Result<Pairs<'a>, SkimError> {
    if cursor.peek() != Some(b'{') {
        cursor.skip()?;
        return Ok(Pairs::new());
    }
    let mut pairs: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)> = Vec::new();
    let mut is_sorted = true;
    cursor.object()?;
    let mut first = true;
    while let Some(key) = cursor.key(&mut first)? {
        let key = key.value()?;
        let value = match cursor.peek() {
            Some(b'"') => Some(cursor.string()?.value()?),
            _ => {
                cursor.skip()?;
                None
            }
        };
        is_sorted &= pairs.last().is_none_or(|(last, _)| *last < key);
        pairs.push((key, value));
    }
    if !is_sorted {
        // Stable, so that the last of equal keys is the one before the next key.
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.reverse();
        pairs.dedup_by(|(a, _), (b, _)| a == b);
        pairs.reverse();
    }
    Ok(pairs.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}
/// Reads the elements of an array that are strings.
fn strings<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Cow<'a, str>>, SkimError> {
    each(cursor, |cursor, out| {
        if cursor.peek() == Some(b'"') {
            out.push(cursor.string()?.value()?);
        } else {
            cursor.skip()?;
        }
        Ok(())
    })
}
fn owner_references<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<OwnerReference<'a>>, SkimError> {
    each(cursor, |cursor, out| {
        if cursor.peek() != Some(b'{') {
            return cursor.skip().map(drop);
        }
        let mut owner = OwnerReference::default();
        cursor.object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            match key.value()?.as_ref() {
                "apiVersion" => owner.api_version = string(cursor)?,
                "kind" => owner.kind = string(cursor)?,
                "name" => owner.name = string(cursor)?,
                "uid" => owner.uid = string(cursor)?,
                "controller" => owner.controller = boolean(cursor)?,
                "blockOwnerDeletion" => owner.block_owner_deletion = boolean(cursor)?,
                _ => _ = cursor.skip()?,
            }
        }
        out.push(owner);
        Ok(())
    })
}
/// Reads an array element by element; any other value has no elements.
fn each<'a, T>(
    cursor: &mut Cursor<'a>,
    read: impl Fn(&mut Cursor<'a>, &mut Vec<T>) -> Result<(), SkimError>,
) -> Result<Vec<T>, SkimError> {
    let mut out = Vec::new();
    if cursor.peek() != Some(b'[') {
        cursor.skip()?;
        return Ok(out);
    }
    cursor.array()?;
    let mut first = true;
    while cursor.element(&mut first)? {
        read(cursor, &mut out)?;
    }
    Ok(out)
}

/// The range of `metadata.labels`' value; empty if there is none, or the bytes are not an object.
///
/// Agrees with [`Skim::of`]. A caller that stores the range can read the labels repeatedly with
/// [`labels`], without searching for them.
pub fn labels_range(bytes: &[u8]) -> std::ops::Range<usize> {
    find_labels(bytes).unwrap_or_default()
}
fn find_labels(bytes: &[u8]) -> Result<std::ops::Range<usize>, SkimError> {
    let mut cursor = Cursor::new(bytes);
    cursor.object()?;
    let (mut first, mut found) = (true, 0..0);
    while let Some(key) = cursor.key(&mut first)? {
        if !key.is("metadata") {
            cursor.skip()?;
            continue;
        }
        // The last of repeated members counts.
        found = 0..0;
        if cursor.peek() != Some(b'{') {
            cursor.skip()?;
            continue;
        }
        cursor.object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            let is_labels = key.value()? == "labels";
            let range = cursor.skip()?;
            if is_labels {
                found = range;
            }
        }
    }
    cursor.end()?;
    Ok(found)
}
/// The labels in the bytes at [`labels_range`], sorted by key. Empty if the bytes are not an
/// object.
pub fn labels(bytes: &[u8]) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    if bytes.is_empty() {
        return Vec::new();
    }
    string_map(&mut Cursor::new(bytes)).unwrap_or_default()
}

/// Looks up one scalar member by path (`["status","phase"]`) without a tree; `None` if absent. For
/// field selectors.
///
/// Numbers and booleans are returned as text. `None` also for `null`, objects, arrays, and text
/// that is malformed before the member. Reads only the first of repeated members, and nothing after
/// the one it finds.
pub fn scalar<'a>(bytes: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    let mut cursor = Cursor::new(bytes);
    for name in path {
        cursor.object().ok()?;
        let mut first = true;
        loop {
            if cursor.key(&mut first).ok()??.is(name) {
                break;
            }
            cursor.skip().ok()?;
        }
    }
    match cursor.peek()? {
        b'"' => cursor.string().ok()?.value().ok(),
        b'{' | b'[' => None,
        _ => match std::str::from_utf8(cursor.skip_bytes().ok()?).ok()? {
            "null" => None,
            text => Some(Cow::Borrowed(text)),
        },
    }
}

/// The tokens of a JSON pointer (RFC 6901), unescaped. `None` if the text is not a pointer: not
/// empty and without a leading slash, or with a `~` that is not `~0` or `~1`.
pub fn pointer_tokens(pointer: &str) -> Option<Vec<String>> {
    let Some(rest) = pointer.strip_prefix('/') else {
        return pointer.is_empty().then(Vec::new);
    };
    let unescape = |token: &str| {
        let mut text = String::with_capacity(token.len());
        let mut parts = token.split('~');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            text.push(match part.as_bytes().first()? {
                b'0' => '~',
                b'1' => '/',
                _ => return None,
            });
            text.push_str(&part[1..]);
        }
        Some(text)
    };
    rest.split('/').map(unescape).collect()
}

/// Looks up the text of a value by the tokens of a JSON pointer, without a tree; `None` if absent,
/// or if the text is malformed before it. Reads only the first of repeated members, and nothing
/// after the value.
pub fn value_at<'a>(bytes: &'a [u8], tokens: &[String]) -> Option<&'a [u8]> {
    let mut cursor = cursor_at(bytes, tokens)?;
    cursor.skip_bytes().ok()
}

/// As [`value_at`], with all bytes that follow the value. The value itself is not read: a long one
/// need not be scanned for its end in order to look into it.
pub fn value_from<'a>(bytes: &'a [u8], tokens: &[String]) -> Option<&'a [u8]> {
    let cursor = cursor_at(bytes, tokens)?;
    Some(&bytes[cursor.position()..])
}

/// A cursor before the value at a JSON pointer.
fn cursor_at<'a>(bytes: &'a [u8], tokens: &[String]) -> Option<Cursor<'a>> {
    let mut cursor = Cursor::new(bytes);
    for token in tokens {
        let mut first = true;
        if cursor.peek()? == b'[' {
            // No leading zeros and no sign, as the standard says.
            let is_index = token == "0" || !token.starts_with(['0', '+']);
            let index: usize = token.parse().ok().filter(|_| is_index)?;
            cursor.array().ok()?;
            for n in 0..=index {
                if !cursor.element(&mut first).ok()? {
                    return None;
                }
                if n < index {
                    cursor.skip().ok()?;
                }
            }
            continue;
        }
        cursor.object().ok()?;
        while !cursor.key(&mut first).ok()??.is(token) {
            cursor.skip().ok()?;
        }
    }
    cursor.peek()?;
    Some(cursor)
}

#[cfg(test)]
mod tests;
