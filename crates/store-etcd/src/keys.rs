//! Keys in etcd: with the namespace as a prefix, in the place of the store's root if it has one,
//! and with etcd's encoding of "no upper bound".

use crate::{options::EtcdOptions, proto::WireKeyValue};
use bytes::{Buf, Bytes};
use setpoint_store::{KeyValue, Revision, prefix_end};

/// etcd's "no upper bound" as an end; its smallest key as a start.
const NUL: Bytes = Bytes::from_static(b"\0");

/// How the store's keys are named in etcd.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespace {
    /// The prefix of every key in etcd.
    pub(crate) prefix: Bytes,
    /// The prefix of every key of the store, in whose place the other one is. Empty: none is
    /// replaced.
    pub(crate) root: Bytes,
}

impl Namespace {
    /// The namespace of a store with these options.
    pub(crate) fn of(options: &EtcdOptions) -> Self {
        Self { prefix: options.namespace.clone(), root: options.root.clone() }
    }

    /// A key's name in etcd; `None` if the key does not begin with the root.
    pub(crate) fn full(&self, key: &[u8]) -> Option<Bytes> {
        let rest = key.strip_prefix(&*self.root)?;
        Some(if self.prefix.is_empty() {
            Bytes::copy_from_slice(rest)
        } else {
            [&self.prefix, rest].concat().into()
        })
    }

    /// `[start, end)` in etcd's encoding; `None` if no key of the store can be there.
    pub(crate) fn range(&self, start: &[u8], end: &[u8]) -> Option<(Bytes, Bytes)> {
        let is_open = end.is_empty();
        if !is_open && start >= end {
            return None;
        }
        let first = match self.full(start) {
            Some(first) => first,
            // It is before every key, or after them.
            None if *start < *self.root => self.prefix.clone(),
            None => return None,
        };
        let first = if first.is_empty() { NUL } else { first };
        let beyond = match self.full(end).filter(|_| !is_open) {
            Some(beyond) => beyond,
            None if !is_open && *end < *self.root => return None,
            None => return Some((first, open_ended(prefix_end(&self.prefix)))),
        };
        // As an end, this means "no upper bound" to etcd. Only the empty key sorts before it, and
        // etcd has none.
        let is_nothing = beyond == NUL || beyond <= first;
        (!is_nothing).then_some((first, beyond))
    }

    /// The range of all keys with this prefix, and how they begin in etcd; `None` if no key of the
    /// store can have it.
    pub(crate) fn prefix(&self, prefix: &[u8]) -> Option<((Bytes, Bytes), Bytes)> {
        let full = match self.full(prefix) {
            Some(full) => full,
            None if self.root.starts_with(prefix) => self.prefix.clone(),
            None => return None,
        };
        let beyond = open_ended(prefix_end(&full));
        let first = if full.is_empty() { NUL } else { full.clone() };
        Some(((first, beyond), full))
    }

    /// The range of all keys, including those outside the namespace.
    pub(crate) fn everything() -> (Bytes, Bytes) {
        (NUL, NUL)
    }

    /// The key with this name in etcd, which begins with the prefix.
    pub(crate) fn stripped(&self, mut key: Vec<u8>) -> Bytes {
        let (n_prefix, n_root) = (self.prefix.len().min(key.len()), self.root.len());
        let Some(surplus) = n_prefix.checked_sub(n_root) else {
            key.splice(..n_prefix, self.root.iter().copied());
            return key.into();
        };
        key[surplus..n_prefix].copy_from_slice(&self.root);
        let mut key = Bytes::from(key);
        // Moves the start. `slice` would count references, which allocates.
        key.advance(surplus);
        key
    }

    /// Converts a value to the contract's type; `None` if it is invalid.
    pub(crate) fn entry(&self, wire: WireKeyValue) -> Option<KeyValue> {
        if !wire.key.starts_with(&self.prefix) {
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
        let bare = Namespace::default();
        assert_eq!(text(bare.range(b"", b"")), pair("\0", "\0"));
        assert_eq!(text(bare.range(b"a", b"")), pair("a", "\0"));
        assert_eq!(text(bare.range(b"a", b"c")), pair("a", "c"));
        assert_eq!(text(bare.range(b"", b"\0")), None, "only the key that cannot be is there");
        assert_eq!(text(bare.range(b"b", b"a")), None);
        let named = Namespace { prefix: "ns/".into(), ..Namespace::default() };
        let prefix =
            |of: &Namespace, prefix: &[u8]| text(of.prefix(prefix).map(|(range, _)| range));
        assert_eq!(text(named.range(b"", b"")), pair("ns/", "ns0"));
        assert_eq!(text(named.range(b"a", b"")), pair("ns/a", "ns0"));
        assert_eq!(text(named.range(b"", b"\0")), pair("ns/", "ns/\0"));
        assert_eq!(prefix(&named, b""), pair("ns/", "ns0"));
        assert_eq!(prefix(&bare, b"/a/"), pair("/a/", "/a0"));
        assert_eq!(prefix(&bare, b""), pair("\0", "\0"));
    }

    #[test]
    fn the_namespace_is_in_the_place_of_the_root() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        for (prefix, end) in
            [("/o/", "/o0"), ("/registry/", "/registry0"), ("/some/other/", "/some/other0")]
        {
            let named = Namespace { prefix: prefix.into(), root: "/registry/".into() };
            let key = |rest: &str| format!("{prefix}{rest}");
            assert_eq!(named.full(b"/registry/pods/a"), Some(key("pods/a").into()));
            for outside in ["", "/registry", "/registryx/a", "pods"] {
                assert_eq!(named.full(outside.as_bytes()), None, "{outside}");
            }
            let name = |name: String| named.stripped(name.into_bytes());
            assert_eq!(name(key("pods/a")), "/registry/pods/a");
            assert_eq!(name(key("")), "/registry/");

            let range =
                |start: &str, end: &str| text(named.range(start.as_bytes(), end.as_bytes()));
            let all = pair(prefix, end);
            for (from, to) in
                [("", ""), ("/registry", ""), ("/registry/", "/registry0"), ("a", "/registry0")]
            {
                assert_eq!(range(from, to).or_else(|| all.clone()), all, "{from:?} {to:?}");
            }
            assert_eq!(range("/registry/a", "/registry/c"), pair(&key("a"), &key("c")));
            assert_eq!(range("/registry/a", "/z"), pair(&key("a"), end));
            assert_eq!(range("", "/registry/c"), pair(prefix, &key("c")));
            for (from, to) in
                [("", "/registry"), ("", "/registry/"), ("/registry0", ""), ("/z", "/zz")]
            {
                assert_eq!(range(from, to), None, "{from:?} {to:?}");
            }
            let of = |prefix: &str| named.prefix(prefix.as_bytes()).map(|(range, _)| range);
            assert_eq!(text(of("/registry/a")), pair(&key("a"), &key("b")));
            assert_eq!(text(of("/reg")), all);
            assert_eq!(text(of("/other")), None);
        }
    }

    #[test]
    fn invalid_entries_are_rejected() {
        let named = Namespace { prefix: "ns/".into(), ..Namespace::default() };
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
