//! Keys in etcd: with the namespace as a prefix, and with etcd's encoding of "no upper bound".

use crate::proto::WireKeyValue;
use bytes::{Buf, Bytes};
use setpoint_store::{KeyValue, Revision, prefix_end};

/// etcd's "no upper bound" as an end; its smallest key as a start.
const NUL: Bytes = Bytes::from_static(b"\0");

/// The prefix of every key.
#[derive(Debug, Clone)]
pub(crate) struct Namespace(pub(crate) Bytes);

impl Namespace {
    /// Adds the namespace to a key.
    pub(crate) fn full(&self, key: &[u8]) -> Bytes {
        if self.0.is_empty() { Bytes::copy_from_slice(key) } else { [&self.0, key].concat().into() }
    }

    /// `[start, end)` in etcd's encoding; `None` if the range is empty.
    pub(crate) fn range(&self, start: &[u8], end: &[u8]) -> Option<(Bytes, Bytes)> {
        if !end.is_empty() && start >= end {
            return None;
        }
        let first = self.full(start);
        let first = if first.is_empty() { NUL } else { first };
        let beyond = match end {
            [] => open_ended(prefix_end(&self.0)),
            end => self.full(end),
        };
        // As an end, this means "no upper bound" to etcd. Only the empty key sorts before it, and
        // etcd has none.
        let is_nothing = !end.is_empty() && beyond == NUL;
        (!is_nothing).then_some((first, beyond))
    }

    /// The range of all keys with this prefix.
    pub(crate) fn prefix(&self, prefix: &[u8]) -> (Bytes, Bytes) {
        let first = self.full(prefix);
        let beyond = open_ended(prefix_end(&first));
        (if first.is_empty() { NUL } else { first }, beyond)
    }

    /// The range of all keys, including those outside the namespace.
    pub(crate) fn everything() -> (Bytes, Bytes) {
        (NUL, NUL)
    }

    /// Removes the namespace from a key that has it.
    pub(crate) fn stripped(&self, key: Vec<u8>) -> Bytes {
        let mut key = Bytes::from(key);
        // Moves the start. `slice` would count references, which allocates.
        key.advance(self.0.len().min(key.len()));
        key
    }

    /// Converts a value to the contract's type; `None` if it is invalid.
    pub(crate) fn entry(&self, wire: WireKeyValue) -> Option<KeyValue> {
        if !wire.key.starts_with(&self.0) {
            return None;
        }
        Some(KeyValue {
            key: self.stripped(wire.key),
            value: wire.value.into(),
            modified: revision(wire.mod_revision)?,
            created: revision(wire.create_revision)?,
        })
    }
}

fn open_ended(end: Bytes) -> Bytes {
    if end.is_empty() { NUL } else { end }
}

/// Converts a revision; `None` if it is invalid.
pub(crate) fn revision(wire: i64) -> Option<Revision> {
    u64::try_from(wire).ok().filter(|revision| *revision > 0).map(Revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(range: Option<(Bytes, Bytes)>) -> Option<(String, String)> {
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        range.map(|(start, end)| (text(start), text(end)))
    }

    #[test]
    fn ranges_have_etcds_encoding() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let bare = Namespace(Bytes::new());
        assert_eq!(text(bare.range(b"", b"")), pair("\0", "\0"));
        assert_eq!(text(bare.range(b"a", b"")), pair("a", "\0"));
        assert_eq!(text(bare.range(b"a", b"c")), pair("a", "c"));
        assert_eq!(text(bare.range(b"", b"\0")), None, "only the key that cannot be is there");
        assert_eq!(text(bare.range(b"b", b"a")), None);
        let named = Namespace("ns/".into());
        assert_eq!(text(named.range(b"", b"")), pair("ns/", "ns0"));
        assert_eq!(text(named.range(b"a", b"")), pair("ns/a", "ns0"));
        assert_eq!(text(named.range(b"", b"\0")), pair("ns/", "ns/\0"));
        assert_eq!(text(Some(named.prefix(b""))), pair("ns/", "ns0"));
        assert_eq!(text(Some(bare.prefix(b"/a/"))), pair("/a/", "/a0"));
        assert_eq!(text(Some(bare.prefix(b""))), pair("\0", "\0"));
    }

    #[test]
    fn invalid_entries_are_rejected() {
        let named = Namespace("ns/".into());
        let wire = |key: &str, revision| WireKeyValue {
            key: key.into(),
            create_revision: 1,
            mod_revision: revision,
            version: 1,
            value: vec![],
        };
        assert_eq!(named.entry(wire("ns/a", 2)).map(|entry| entry.key), Some("a".into()));
        assert!(named.entry(wire("other", 2)).is_none());
        assert!(named.entry(wire("ns/a", 0)).is_none());
        assert!(named.entry(wire("ns/a", -1)).is_none());
    }
}
