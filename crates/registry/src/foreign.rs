//! The values of a shared store, as kube-apiservers encode them.
//!
//! To the layers above, an object is one line of canonical JSON. A shared store has it in the form
//! of a kube-apiserver ([`encoding`]), from which it is converted on read, whoever wrote it:
//!
//! | it is stored as | it is read as |
//! |---|---|
//! | JSON (`--storage-media-type=application/json`, and all custom resources), from a kube-apiserver with a line break, which would break a stream here | the same without the line break; readers do not depend on the order of members |
//! | protobuf, the default for built-in kinds | the canonical JSON of the same object |
//! | CBOR, its form of custom resources with the feature gate `CBORServingAndStorage` | the JSON of the same object |
//! | JSON of a version that is not served here (CustomResourceDefinitions: `v1beta1`) | the same object in the stored version |
//! | protobuf of such a version (MutatingAdmissionPolicies: `v1beta1`) | the same |
//! | either of a version that Kubernetes no longer serves ([`kind::FormerVersion::retired`]) | the same |
//! | CBOR, protobuf or JSON that is damaged, protobuf of a kind or version that is not known here | a get returns [`StoreError::Unreadable`]; ranges and feeds return [`UNREAD`] |
//!
//! A kube-apiserver sets the defaults of what it reads, too, and relies on that: it stores a Job
//! without the labels that a default copies from its template, and protobuf has no `kind` of the
//! claims in a StatefulSet. So built-in objects that it wrote get their defaults when they are
//! read.
//!
//! The bitmap of node ports has no API; `allocate` reads and writes it as it is.
mod encoding;
mod known;

pub use encoding::{StorageMediaType, StorageMediaTypeError};

use crate::kind;
use bytes::Bytes;
pub(crate) use encoding::Encoding;
use futures::future::{BoxFuture, FutureExt};
use known::Known;
use serde::de::IgnoredAny;
use serde_json::Value;
use setpoint_object::error::chain;
use setpoint_object::{Skim, keys, skim};
use setpoint_schema::decode::{DecodeError, Format};
use setpoint_schema::encode::to_bytes;
use setpoint_schema::{builtin, cbor, decode, protobuf};
use setpoint_store::{
    At, Batch, ChangeFeed, Committed, KeyValue, Op, Range, RangeRequest, ReadFault, Revision,
    Snapshot, Store, StoreError, Txn, delegate, is_sealed,
};
use std::borrow::Cow;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Placeholder for an unreadable value in ranges and feeds ([`setpoint_store::is_sealed`]): a
/// sealed value without content.
const UNREAD: &[u8] = b"k8s:enc:unread:v1::";
/// Keys whose values are no objects of the API: what is allocated, and the fences of definitions.
const NO_OBJECTS: [&str; 3] = [keys::CLUSTER_ADDRESSES, keys::NODE_PORTS, keys::SCHEMA_FENCES];
/// How many protobuf or CBOR values a range decodes before it yields: less than a millisecond of
/// work.
const READ_AT_ONCE: usize = 32;

/// A store whose values a kube-apiserver may have written, and may read.
#[derive(Debug)]
pub(crate) struct ForeignStore {
    inner: Arc<dyn Store>,
    codec: Arc<Codec>,
}
impl ForeignStore {
    pub(crate) fn new(inner: Arc<dyn Store>, formers: Formers, encoding: Encoding) -> Self {
        let codec = Codec { formers, encoding, known: Known::default() };
        Self { inner, codec: Arc::new(codec) }
    }
}

/// Converts values from and to their stored form.
#[derive(Debug)]
struct Codec {
    formers: Formers,
    encoding: Encoding,
    known: Known,
}

/// The versions that a kube-apiserver stores although they are not served here.
pub(crate) type Formers = Arc<[Former]>;

/// Such a version of one resource.
#[derive(Debug)]
pub(crate) struct Former {
    /// The prefix of the resource's keys. No prefix begins with another one.
    pub(crate) prefix: Arc<str>,
    /// The `apiVersion` of the stored objects.
    pub(crate) api_version: String,
    /// The `apiVersion` that is stored here.
    pub(crate) present: String,
    /// Whether their protobuf messages are the same.
    pub(crate) same_messages: bool,
    /// Converts an object to the stored version, besides its `apiVersion`.
    pub(crate) convert: fn(&mut Value),
    /// Objects are stored in this version: converts one to it, besides its `apiVersion`.
    pub(crate) restore: Option<fn(&mut Value)>,
}
impl Former {
    fn convert(&self, object: &mut Value) {
        object["apiVersion"] = self.present.clone().into();
        (self.convert)(object);
    }
}

/// In the order in which [`formers_at`] looks them up.
pub(crate) fn sorted(mut formers: Vec<Former>) -> Formers {
    formers.sort_by(|a, b| (&a.prefix, &a.api_version).cmp(&(&b.prefix, &b.api_version)));
    // A kind has a row for each served version.
    formers.dedup_by(|a, b| a.prefix == b.prefix && a.api_version == b.api_version);
    formers.into()
}

/// The versions that a kube-apiserver may have written at a key, by binary search.
fn formers_at<'f>(key: &[u8], formers: &'f Formers) -> &'f [Former] {
    let up_to = &formers[..formers.partition_point(|former| former.prefix.as_bytes() <= key)];
    match up_to.last() {
        Some(last) if key.starts_with(last.prefix.as_bytes()) => {
            &up_to[up_to.partition_point(|former| former.prefix < last.prefix)..]
        }
        _ => &[],
    }
}

/// Converts a value of a former version.
fn convert_former(key: &[u8], value: &mut Bytes, formers: &Formers) -> Result<bool, DecodeError> {
    let formers = formers_at(key, formers);
    if formers.is_empty() {
        return Ok(false);
    }
    // A sealed value is not JSON, and a later layer says so.
    let Ok(skimmed) = Skim::of(value) else { return Ok(false) };
    let Some(former) = formers.iter().find(|former| skimmed.api_version == *former.api_version)
    else {
        return Ok(false);
    };
    let mut object = decode::parse(value, Format::Json)?.value;
    former.convert(&mut object);
    *value = to_bytes(&object);
    Ok(true)
}

/// Decodes protobuf, and converts it if it is of a former version.
fn decode_protobuf(key: &[u8], value: &Bytes, formers: &Formers) -> Result<Value, DecodeError> {
    let version = protobuf_version(value);
    let former = formers_at(key, formers)
        .iter()
        .find(|former| former.same_messages && version == Some(&*former.api_version));
    let Some(former) = former else { return Ok(decode::parse(value, Format::Protobuf)?.value) };
    let mut object = decode::parse_former_protobuf(value, &former.api_version, &former.present)?;
    former.convert(&mut object);
    Ok(object)
}

/// The `apiVersion` in an envelope of protobuf, as Go's encoder writes it: the first member of the
/// first member. Both are shorter than 128 bytes.
fn protobuf_version(value: &[u8]) -> Option<&str> {
    match value.strip_prefix(protobuf::MAGIC)? {
        [0x0a, _, 0x0a, length, rest @ ..] => {
            std::str::from_utf8(rest.get(..usize::from(*length))?).ok()
        }
        _ => None,
    }
}

/// Whether a key may have an object of the API.
fn has_api(key: &[u8]) -> bool {
    key != keys::NODE_PORT_BITMAP.as_bytes()
        && !NO_OBJECTS.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

/// The `apiVersion` and `kind` of an object in JSON; `None` if the key or value has none.
fn names_of<'v>(key: &[u8], value: &'v [u8]) -> Option<(Cow<'v, str>, Cow<'v, str>)> {
    if is_sealed(value) || !has_api(key) {
        return None;
    }
    Some((skim::scalar(value, &["apiVersion"])?, skim::scalar(value, &["kind"])?))
}

/// Checks that a value is an object in JSON: others would be served as they are. Sealed ones are
/// looked at by a later layer, and keys without an API by those who have them.
fn check_json(key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
    if is_sealed(value) || !has_api(key) {
        return Ok(());
    }
    // As text first, which is faster than string by string.
    let text = std::str::from_utf8(value).map_err(|error| DecodeError(error.to_string()))?;
    let parsed = serde_json::from_str::<IgnoredAny>(text);
    parsed.map_err(|error| DecodeError(error.to_string()))?;
    match text.trim_start().starts_with('{') {
        true => Ok(()),
        false => Err(DecodeError("it is no object".to_owned())),
    }
}

/// Completes the JSON of a built-in object that a kube-apiserver wrote. Returns whether it is one.
fn complete_json(value: &mut Bytes) -> Result<bool, DecodeError> {
    let is_built_in = Skim::of(value).is_ok_and(|object| {
        let (group, version) = parts(&object.api_version);
        builtin::type_schema(group, version, &object.kind).is_some()
    });
    if is_built_in {
        *value = whole(decode::parse(value, Format::Json)?.value)?;
    }
    Ok(is_built_in)
}

/// Group and version of an `apiVersion`.
fn parts(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Converts a value to this registry's encoding. Returns whether it had to be decoded.
fn read(key: &[u8], value: &mut Bytes, formers: &Formers) -> Result<bool, DecodeError> {
    if key == keys::NODE_PORT_BITMAP.as_bytes() {
        return Ok(false);
    }
    if value.starts_with(protobuf::MAGIC) {
        *value = whole(decode_protobuf(key, value, formers)?)?;
        return Ok(true);
    }
    if value.starts_with(cbor::MAGIC) {
        *value = to_bytes(&decode::parse(value, Format::Cbor)?.value);
        return Ok(true);
    }
    check_json(key, value)?;
    // Most values need no trimming: the last byte shows that.
    if value.last().is_some_and(u8::is_ascii_whitespace) {
        value.truncate(value.trim_ascii_end().len());
        // Another program wrote it.
        return Ok(convert_former(key, value, formers)? | complete_json(value)?);
    }
    convert_former(key, value, formers)
}
/// The stored JSON of an object that a kube-apiserver wrote: in canonical form, with its defaults.
fn whole(mut object: Value) -> Result<Bytes, DecodeError> {
    let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = parts(&api_version);
    let schema = builtin::type_schema(group, version, &kind)
        .ok_or_else(|| DecodeError(format!("{kind} of {api_version} is no kind of objects")))?;
    // A kube-apiserver writes declared fields only, so there are no unknown fields to report.
    decode::conform(&schema, &kind, &mut object, &mut Vec::new())?;
    kind::fill_stored(group, version, &kind, &schema, &mut object);
    Ok(to_bytes(&object))
}

impl Codec {
    /// Converts a value that was read by its key.
    fn read_one(&self, mut entry: KeyValue) -> Result<KeyValue, StoreError> {
        let encoding = encoding::name(&entry.value);
        match read(&entry.key, &mut entry.value, &self.formers) {
            Ok(_) => Ok(entry),
            Err(error) => Err(StoreError::Unreadable {
                key: String::from_utf8_lossy(&entry.key).into_owned(),
                fault: ReadFault::Decode(entry.modified),
                reason: format!("it is encoded in {encoding} and cannot be decoded: {error}"),
            }),
        }
    }
    /// Converts one value of a range.
    fn read_many(&self, key: &[u8], value: &mut Bytes) -> bool {
        read(key, value, &self.formers).unwrap_or_else(|_| {
            *value = Bytes::from_static(UNREAD);
            true
        })
    }
    /// Converts one value of a feed.
    fn read_again(&self, key: &[u8], value: &mut Bytes) {
        if encoding::name(value) == "JSON" && formers_at(key, &self.formers).is_empty() {
            self.read_many(key, value);
            return;
        }
        if let Some(known) = self.known.get(value) {
            *value = known;
            return;
        }
        let stored = value.clone();
        if self.read_many(key, value) {
            self.known.put(&stored, value);
        }
    }
    /// The stored form of a new value.
    fn write(&self, key: &[u8], json: &Bytes) -> Bytes {
        match self.encoding.encode(key, json, &self.formers) {
            Ok(stored) => {
                if stored != json {
                    self.known.put(&stored, json);
                }
                stored
            }
            // Every server reads JSON.
            Err(error) => {
                let key = String::from_utf8_lossy(key);
                tracing::warn!(%key, error = chain(&error), "encode an object for the store; it gets JSON");
                json.clone()
            }
        }
    }
}

impl Store for ForeignStore {
    delegate!(inner: revision, compact, divide, size_bytes, keeps_history, stored_key);

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            let Snapshot { revision, value } = self.inner.get(key, at).await?;
            Ok(Snapshot {
                revision,
                value: value.map(|value| self.codec.read_one(value)).transpose()?,
            })
        }
        .boxed()
    }
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let mut found = self.inner.range(request).await?;
            let mut n_read = 0;
            for entry in &mut found.value.entries {
                n_read += usize::from(self.codec.read_many(&entry.key, &mut entry.value));
                if n_read == READ_AT_ONCE {
                    n_read = 0;
                    // Cancel safe, like this whole function: reading changes nothing.
                    tokio::task::yield_now().await;
                }
            }
            Ok(found)
        }
        .boxed()
    }
    fn commit(&self, mut txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            for op in &mut txn.ops {
                if let Op::Put(key, value) = op {
                    *value = self.codec.write(key, value);
                }
            }
            Ok(match self.inner.commit(txn).await? {
                Committed::Refused { revision, found } => {
                    let read = |found| self.codec.read_one(found);
                    let found = found.into_iter().map(|found| found.map(read).transpose());
                    Committed::Refused { revision, found: found.collect::<Result<_, _>>()? }
                }
                done => done,
            })
        }
        .boxed()
    }
    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            let inner = self.inner.changes(prefix, after).await?;
            let codec = self.codec.clone();
            Ok(Box::new(ForeignFeed { inner, codec }) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }
    fn rewrite_due<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            if self.inner.rewrite_due(key).await? {
                return Ok(true);
            }
            let Codec { encoding, formers, .. } = &*self.codec;
            let found = self.inner.get(key, At::Latest).await?.value;
            Ok(found.is_some_and(|found| encoding.differs(key, &found.value, formers)))
        }
        .boxed()
    }
}

struct ForeignFeed {
    inner: Box<dyn ChangeFeed>,
    codec: Arc<Codec>,
}
impl ChangeFeed for ForeignFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            // Cancel safe: nothing happens between the inner feed's answer and this one.
            let mut batch = self.inner.next().await?;
            for change in &mut batch.changes {
                let previous = change.previous.as_mut().map(|previous| &mut previous.value);
                for value in change.value.iter_mut().chain(previous) {
                    self.codec.read_again(&change.key, value);
                }
            }
            Ok(batch)
        }
        .boxed()
    }
}
