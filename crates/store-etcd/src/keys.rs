//! Keys as etcd sees them: with the namespace before them, and ranges in etcd's way of saying "no
//! upper bound".

use crate::proto::WireKeyValue;
use bytes::{Buf, Bytes};
use setpoint_store::{KeyValue, Revision, prefix_end};

/// etcd's "everything from here on"; as a start, its least key.
const NUL: Bytes = Bytes::from_static(b"\0");

/// What is put before every key.
#[derive(Debug, Clone)]
pub(crate) struct Namespace(pub(crate) Bytes);

impl Namespace {
    /// The key as etcd has it.
    pub(crate) fn full(&self, key: &[u8]) -> Bytes {
        if self.0.is_empty() { Bytes::copy_from_slice(key) } else { [&self.0, key].concat().into() }
    }

    /// `[start, end)` as etcd has it; `None` when it holds nothing.
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
        // etcd's "no upper bound", said as a key: nothing is below it but the key that cannot be.
        let is_nothing = !end.is_empty() && beyond == NUL;
        (!is_nothing).then_some((first, beyond))
    }

    /// Every key with this prefix.
    pub(crate) fn prefix(&self, prefix: &[u8]) -> (Bytes, Bytes) {
        let first = self.full(prefix);
        let beyond = open_ended(prefix_end(&first));
        (if first.is_empty() { NUL } else { first }, beyond)
    }

    /// Every key there is, of others too.
    pub(crate) fn everything() -> (Bytes, Bytes) {
        (NUL, NUL)
    }

    /// A key that begins with the namespace, without it.
    pub(crate) fn stripped(&self, key: Vec<u8>) -> Bytes {
        let mut key = Bytes::from(key);
        // Moves the start; `slice` would count references, which takes an allocation.
        key.advance(self.0.len().min(key.len()));
        key
    }

    /// A value as the contract has it; `None` when what came cannot be.
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

/// A revision that can be.
pub(crate) fn revision(wire: i64) -> Option<Revision> {
    u64::try_from(wire).ok().filter(|revision| *revision > 0).map(Revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(range: Option<(Bytes, Bytes)>) -> Option<(String, String)> {
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        range.map(|(start, end)| (text(start), text(end)))
    }

    #[test]
    fn ranges_are_said_in_etcds_words() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let bare = Namespace(Bytes::new());
        assert_eq!(said(bare.range(b"", b"")), pair("\0", "\0"));
        assert_eq!(said(bare.range(b"a", b"")), pair("a", "\0"));
        assert_eq!(said(bare.range(b"a", b"c")), pair("a", "c"));
        assert_eq!(said(bare.range(b"", b"\0")), None, "only the key that cannot be is there");
        assert_eq!(said(bare.range(b"b", b"a")), None);
        let named = Namespace("ns/".into());
        assert_eq!(said(named.range(b"", b"")), pair("ns/", "ns0"));
        assert_eq!(said(named.range(b"a", b"")), pair("ns/a", "ns0"));
        assert_eq!(said(named.range(b"", b"\0")), pair("ns/", "ns/\0"));
        assert_eq!(said(Some(named.prefix(b""))), pair("ns/", "ns0"));
        assert_eq!(said(Some(bare.prefix(b"/a/"))), pair("/a/", "/a0"));
        assert_eq!(said(Some(bare.prefix(b""))), pair("\0", "\0"));
    }

    #[test]
    fn what_cannot_be_is_no_entry() {
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
