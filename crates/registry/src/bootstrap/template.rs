//! Objects of the start in the form that the write path would store, with placeholders.
//!
//! | placeholder | stands for |
//! |---|---|
//! | `@uid` | the object's uid |
//! | `@owner` | the uid of the object that it is written with |
//! | `@now` | the present time |
//! | `@networks` | the networks of cluster addresses, as the inside of a list of JSON strings |
//! | `@address`, `@family` | the first address of the first network, and its family |
//! | `@ca` | the CA of the listener, in PEM, as the inside of a JSON string |
//!
//! A line that begins with `+` is written in the transaction of the line before: the claim of the
//! first Service's address, and the address's object.
use crate::shared::Inner;
use crate::stored::store_error;
use crate::uid::{UID_BYTES, uid_bytes};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use setpoint_object::ApiError;
use setpoint_object::cidr::Family;
use setpoint_object::error::chain;
use setpoint_store::{At, COMMITS_AT_ONCE, Compare, Op, StoreError, Txn};

/// One object of the start.
pub(crate) struct Template {
    pub(crate) key: &'static str,
    /// The encoded object, with placeholders.
    pub(crate) text: &'static str,
    /// The same, in pieces.
    pieces: Vec<Piece>,
    /// What is written with it.
    companions: Vec<Companion>,
}

/// A key that is written with an object.
struct Companion {
    key: Vec<Piece>,
    value: Vec<Piece>,
}

/// A piece of an encoded object.
enum Piece {
    Text(&'static str),
    Uid,
    Owner,
    Now,
    Networks,
    Address,
    Family,
    RootCa,
}

/// The placeholders.
const PLACEHOLDERS: [(&str, Piece); 7] = [
    ("@uid", Piece::Uid),
    ("@owner", Piece::Owner),
    ("@now", Piece::Now),
    ("@networks", Piece::Networks),
    ("@address", Piece::Address),
    ("@family", Piece::Family),
    ("@ca", Piece::RootCa),
];

impl Template {
    /// Whether only uid and time distinguish the objects of two control planes.
    pub(crate) fn is_common(&self) -> bool {
        let is_common = |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Uid | Piece::Now);
        self.companions.is_empty() && self.pieces.iter().all(is_common)
    }
}

/// Reads a file: one line per object, with key, space, and encoded object.
pub(crate) fn read(file: &'static str) -> Vec<Template> {
    let mut templates: Vec<Template> = Vec::new();
    for line in file.lines() {
        let Some((key, text)) = line.split_once(' ') else { continue };
        match (key.strip_prefix('+'), templates.last_mut()) {
            (Some(key), Some(owner)) => {
                let companion = Companion { key: pieces(key), value: pieces(text) };
                owner.companions.push(companion);
            }
            _ => {
                templates.push(Template { key, text, pieces: pieces(text), companions: Vec::new() })
            }
        }
    }
    templates
}

fn pieces(text: &'static str) -> Vec<Piece> {
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
    pieces
}

/// What the placeholders of a control plane stand for, except for uids.
struct Values {
    now: String,
    networks: String,
    address: String,
    family: Family,
    root_ca: String,
}

impl Values {
    fn of(inner: &Inner, root_ca: &str) -> Self {
        let networks = inner.allocator.networks();
        Self {
            now: inner.clock.now().rfc3339(),
            networks: networks.to_string().replace(',', "\",\""),
            address: networks.first().to_string(),
            family: networks.families().primary,
            // PEM has no other character that JSON escapes.
            root_ca: root_ca.replace('\n', "\\n"),
        }
    }

    fn text<'v>(&'v self, piece: &'v Piece, [uid, owner]: [&'v Uid; 2]) -> &'v [u8] {
        match piece {
            Piece::Text(text) => text.as_bytes(),
            Piece::Uid => uid,
            Piece::Owner => owner,
            Piece::Now => self.now.as_bytes(),
            Piece::Networks => self.networks.as_bytes(),
            Piece::Address => self.address.as_bytes(),
            Piece::Family => self.family.as_str().as_bytes(),
            Piece::RootCa => self.root_ca.as_bytes(),
        }
    }

    fn len(&self, pieces: &[Piece]) -> usize {
        const UID: &Uid = &[0; UID_BYTES];
        pieces.iter().map(|piece| self.text(piece, [UID; 2]).len()).sum()
    }
}

type Uid = [u8; UID_BYTES];

/// One buffer with the encoded objects of a start: far fewer allocations than one for each, of
/// which a process with many control planes would make hundreds of thousands. It is freed with the
/// last of them.
struct Encoder {
    values: Values,
    bytes: Vec<u8>,
}

impl Encoder {
    /// Room for all objects, without spare capacity.
    fn new(inner: &Inner, root_ca: &str, templates: &[&Template]) -> Self {
        let values = Values::of(inner, root_ca);
        let length = templates.iter().map(|template| {
            let companions = template.companions.iter();
            let companions = companions.map(|with| values.len(&with.key) + values.len(&with.value));
            values.len(&template.pieces) + companions.sum::<usize>()
        });
        let bytes = Vec::with_capacity(length.sum());
        Self { values, bytes }
    }

    /// Appends a text; returns where it is.
    fn push(&mut self, pieces: &[Piece], uids: [&Uid; 2]) -> std::ops::Range<usize> {
        let start = self.bytes.len();
        for piece in pieces {
            self.bytes.extend_from_slice(self.values.text(piece, uids));
        }
        start..self.bytes.len()
    }
}

/// The transactions that create objects, each if it does not exist.
fn creations(inner: &Inner, root_ca: &str, templates: &[&Template]) -> Vec<Txn> {
    let mut encoder = Encoder::new(inner, root_ca, templates);
    let mut places = Vec::with_capacity(templates.len());
    for template in templates {
        let owner = uid_bytes(&inner.rng);
        places.push((None, encoder.push(&template.pieces, [&owner; 2])));
        for Companion { key, value } in &template.companions {
            // The owner's claim has no uid of its own.
            let has_uid = value.iter().any(|piece| matches!(piece, Piece::Uid));
            let uid = if has_uid { uid_bytes(&inner.rng) } else { owner };
            let key = encoder.push(key, [&uid, &owner]);
            places.push((Some(key), encoder.push(value, [&uid, &owner])));
        }
    }
    let bytes = Bytes::from(encoder.bytes);
    let mut places = places.into_iter();
    let creation = |template: &&Template| {
        let key = Bytes::from_static(template.key.as_bytes());
        let value = places.next().map(|(_, value)| bytes.slice(value)).unwrap_or_default();
        let n_keys = 1 + template.companions.len();
        let (mut compares, mut ops) = (Vec::with_capacity(n_keys), Vec::with_capacity(n_keys));
        compares.push(Compare::Absent(key.clone()));
        for (key, value) in places.by_ref().take(template.companions.len()) {
            let key = key.map(|key| bytes.slice(key)).unwrap_or_default();
            inner.allocator.note(&key);
            compares.push(Compare::Absent(key.clone()));
            ops.push(Op::Put(key, bytes.slice(value)));
        }
        ops.push(Op::Put(key, value));
        Txn { compares, ops, ttl: None }
    };
    templates.iter().map(creation).collect()
}

/// Creates objects. One that exists already stays as it is. `root_ca` is the CA of the listener.
///
/// # Errors
///
/// The first one. The other objects are created nevertheless.
async fn create(inner: &Inner, root_ca: &str, templates: &[&Template]) -> Result<(), ApiError> {
    commit(inner, creations(inner, root_ca, templates)).await
}

/// Creates the objects of an empty store, in this order. `root_ca` is the CA of the listener.
/// `common` are objects that other registries may share, if this one does.
///
/// # Errors
///
/// The first one. The other objects are created nevertheless.
pub(crate) async fn create_all(
    inner: &Inner,
    root_ca: &str,
    templates: &[&Template],
    common: impl Iterator<Item = &'static Template>,
) -> Result<(), ApiError> {
    let Some(shared) = &inner.shared_objects else {
        return create(inner, root_ca, templates).await;
    };
    let shared = shared.creations(|| {
        let common: Vec<&'static Template> = common.collect();
        common.iter().map(|object| object.key).zip(creations(inner, "", &common)).collect()
    });
    let shared: Vec<Option<&Txn>> = templates.iter().map(|object| shared.get(object.key)).collect();
    let own = templates.iter().zip(&shared).filter(|(_, shared)| shared.is_none());
    let own: Vec<&Template> = own.map(|(object, _)| *object).collect();
    let mut own = creations(inner, root_ca, &own).into_iter();
    let all = shared.into_iter().filter_map(|shared| shared.cloned().or_else(|| own.next()));
    commit(inner, all.collect()).await
}

async fn commit(inner: &Inner, creations: Vec<Txn>) -> Result<(), ApiError> {
    let outcomes = inner.store.commit_each(creations).await;
    // Refused: another server of the same store created it first, or has allocated the Service's
    // address. The object then stays missing; nothing in this crate needs it.
    match outcomes.into_iter().find_map(Result::err) {
        Some(error) => Err(store_error(error)),
        None => Ok(()),
    }
}

/// Creates the objects that are missing; none of them names the CA of the listener. Returns those
/// that exist already.
///
/// # Errors
///
/// The first one. The other objects are created nevertheless.
pub(crate) async fn create_missing(
    inner: &Inner,
    objects: impl Iterator<Item = &'static Template>,
) -> Result<Vec<&'static Template>, ApiError> {
    // Together, so that a remote store answers many at once.
    let reads: Vec<_> =
        objects.map(async |object| (object, is_missing(inner, object.key).await)).collect();
    let found: Vec<_> = stream::iter(reads).buffered(COMMITS_AT_ONCE).collect().await;
    let (mut missing, mut existing, mut first) = (Vec::new(), Vec::new(), None);
    for (template, is_missing) in found {
        match is_missing {
            Ok(true) => missing.push(template),
            Ok(false) => existing.push(template),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    if !missing.is_empty()
        && let Err(error) = create(inner, "", &missing).await
    {
        first.get_or_insert(error);
    }
    first.map_or(Ok(existing), Err)
}

async fn is_missing(inner: &Inner, key: &'static str) -> Result<bool, ApiError> {
    match inner.store.get(&Bytes::from_static(key.as_bytes()), At::Latest).await {
        Ok(found) => Ok(found.value.is_none()),
        // It exists. A request for it returns the error.
        Err(error @ StoreError::Unreadable { .. }) => {
            tracing::warn!(
                error = chain(&error),
                "an object of the control plane itself cannot be read"
            );
            Ok(false)
        }
        Err(error) => Err(store_error(error)),
    }
}
