//! Objects of the start in the form that the write path would store, with placeholders.
//!
//! | placeholder | stands for |
//! |---|---|
//! | `@uid` | the object's uid |
//! | `@now` | the present time |
//! | `@network`, `@address` | the network of cluster addresses, and its first address |
use crate::shared::Inner;
use crate::stored::{store_error, tree};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use setpoint_object::{ApiError, keys};
use setpoint_store::{At, Compare, Op, StoreError, Txn};

/// How many objects are read or written at the same time.
const AT_ONCE: usize = 32;

/// One object of the start.
pub(crate) struct Template {
    pub(crate) key: &'static str,
    /// The encoded object, with placeholders.
    pub(crate) text: &'static str,
    /// The same, in pieces.
    pieces: Vec<Piece>,
}

/// A piece of an encoded object.
enum Piece {
    Text(&'static str),
    Uid,
    Now,
    Network,
    Address,
}

/// The placeholders.
const PLACEHOLDERS: [(&str, Piece); 4] = [
    ("@uid", Piece::Uid),
    ("@now", Piece::Now),
    ("@network", Piece::Network),
    ("@address", Piece::Address),
];

impl Template {
    /// Reads a line of a file.
    fn of_line(line: &'static str) -> Option<Self> {
        let (key, text) = line.split_once(' ')?;
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('@') {
            let (before, after) = rest.split_at(at);
            pieces.push(Piece::Text(before));
            let known = PLACEHOLDERS.into_iter().find(|(name, _)| after.starts_with(name));
            let (piece, length) = match known {
                Some((name, piece)) => (piece, name.len()),
                None => (Piece::Text("@"), 1),
            };
            pieces.push(piece);
            rest = &after[length..];
        }
        pieces.push(Piece::Text(rest));
        Some(Self { key, text, pieces })
    }

    /// The encoded object, with the values of a control plane.
    fn object(&self, values: &Values<'_>) -> Vec<u8> {
        let uid = values.inner.uid();
        let text = |piece: &Piece| -> &str {
            match piece {
                Piece::Text(text) => text,
                Piece::Uid => &uid,
                Piece::Now => &values.now,
                Piece::Network => &values.network,
                Piece::Address => &values.address,
            }
        };
        // The length first: without the spare capacity of a buffer that grows.
        let length = self.pieces.iter().map(|piece| text(piece).len()).sum();
        let mut object = Vec::with_capacity(length);
        self.pieces.iter().for_each(|piece| object.extend_from_slice(text(piece).as_bytes()));
        object
    }
}

/// What the placeholders of a control plane stand for, except for uids.
struct Values<'a> {
    inner: &'a Inner,
    now: String,
    network: String,
    address: String,
}

impl<'a> Values<'a> {
    fn of(inner: &'a Inner) -> Self {
        let network = inner.allocator.network();
        Self {
            inner,
            now: inner.clock.now().rfc3339(),
            network: network.to_string(),
            address: network.first().to_string(),
        }
    }
}

/// Reads a file: one line per object, with key, space, and encoded object.
pub(crate) fn read(file: &'static str) -> Vec<Template> {
    file.lines().filter_map(Template::of_line).collect()
}

/// Creates the objects that are missing. Returns those that exist already.
///
/// # Errors
///
/// The first one. The other objects are created nevertheless.
pub(crate) async fn create_missing(
    inner: &Inner,
    objects: impl Iterator<Item = &'static Template>,
) -> Result<Vec<&'static Template>, ApiError> {
    // Together, so that a remote store answers many at once, and a durable one syncs many at once.
    let reads: Vec<_> =
        objects.map(async |object| (object, is_missing(inner, object.key).await)).collect();
    let found: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    let values = Values::of(inner);
    let (mut commits, mut existing, mut first) = (Vec::new(), Vec::new(), None);
    for (template, is_missing) in found {
        match is_missing {
            Ok(true) => commits.push(inner.store.commit(creation(&values, template)?)),
            Ok(false) => existing.push(template),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    let mut done = stream::iter(commits).buffered(AT_ONCE);
    while let Some(done) = done.next().await {
        // Refused: another server of the same store created it first, or has allocated the
        // Service's address. The object then stays missing; nothing in this crate needs it.
        if let Err(error) = done {
            first.get_or_insert(store_error(error));
        }
    }
    first.map_or(Ok(existing), Err)
}

fn creation(values: &Values<'_>, template: &Template) -> Result<Txn, ApiError> {
    let object = template.object(values);
    let key = Bytes::from_static(template.key.as_bytes());
    let mut txn = Txn { compares: vec![Compare::Absent(key.clone())], ..Txn::default() };
    if template.key.starts_with(keys::SERVICES) {
        let inner = values.inner;
        let claims = inner.allocator.claim_all(&tree(&object)?, &inner.birth());
        txn.compares.extend(claims.compares);
        txn.ops.extend(claims.ops);
    }
    txn.ops.push(Op::Put(key, object.into_boxed_slice().into()));
    Ok(txn)
}

async fn is_missing(inner: &Inner, key: &'static str) -> Result<bool, ApiError> {
    match inner.store.get(&Bytes::from_static(key.as_bytes()), At::Latest).await {
        Ok(found) => Ok(found.value.is_none()),
        // It exists. A request for it returns the error.
        Err(error @ StoreError::Unreadable { .. }) => {
            tracing::warn!(%error, "an object of the control plane itself cannot be read");
            Ok(false)
        }
        Err(error) => Err(store_error(error)),
    }
}
