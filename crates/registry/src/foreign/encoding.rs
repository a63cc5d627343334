//! How values are written to a shared store: as a kube-apiserver writes them.
//!
//! | value | version | encoding |
//! |---|---|---|
//! | built-in kinds | the stored one, or the former one that Kubernetes 1.36 stores | protobuf, or JSON ([`StorageMediaType`]) |
//! | CustomResourceDefinitions, APIServices | the same | JSON |
//! | custom resources, kinds that an embedder compiled in | as they are | JSON; CBOR with the feature `CBORServingAndStorage` |
//! | anything else | | as it is |
//!
//! Each form is read, whatever is written. An object takes the form with its next write, also one
//! that changes nothing else.
#[cfg(test)]
mod tests;

use super::{Former, Formers, formers_at, names_of, parts, protobuf_version};
use bytes::Bytes;
use setpoint_schema::decode::{self, Format};
use setpoint_schema::encode::to_bytes;
use setpoint_schema::{cbor, protobuf};
use std::borrow::Cow;

/// Groups that a kube-apiserver stores in JSON only.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The encoding of built-in kinds in a store that other servers use, too: kube-apiserver's
/// `--storage-media-type`.
///
/// ```
/// use setpoint_registry::StorageMediaType;
///
/// let json: StorageMediaType = "application/json".parse()?;
/// assert_eq!(json, StorageMediaType::Json);
/// assert!("application/yaml".parse::<StorageMediaType>().is_err());
/// # Ok::<(), setpoint_registry::StorageMediaTypeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StorageMediaType {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`, kube-apiserver's default.
    #[default]
    Protobuf,
}
impl StorageMediaType {
    /// The media type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}
impl std::str::FromStr for StorageMediaType {
    type Err = StorageMediaTypeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut known = [Self::Json, Self::Protobuf].into_iter();
        let found = known.find(|media_type| media_type.as_str() == text);
        found.ok_or_else(|| StorageMediaTypeError(text.to_owned()))
    }
}

/// A media type that objects cannot be stored in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of application/json, application/vnd.kubernetes.protobuf")]
pub struct StorageMediaTypeError(String);

/// How values are written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Encoding {
    /// The encoding of built-in kinds.
    pub(crate) built_in: StorageMediaType,
    /// Whether other kinds are encoded in CBOR.
    pub(crate) is_cbor: bool,
}

/// Why a value cannot be encoded. Values at rest have the shape of their type.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncodeError {
    #[error(transparent)]
    Json(#[from] decode::DecodeError),
    #[error(transparent)]
    Protobuf(#[from] protobuf::EncodeError),
    #[error(transparent)]
    Cbor(#[from] cbor::EncodeError),
}

impl Encoding {
    /// The stored form of an object in this registry's JSON, which may be that JSON.
    pub(super) fn encode(
        self,
        key: &[u8],
        json: &Bytes,
        formers: &Formers,
    ) -> Result<Bytes, EncodeError> {
        let Some((api_version, kind)) = names_of(key, json) else { return Ok(json.clone()) };
        let (group, version) = parts(&api_version);
        if !protobuf::has_kind(group, version, &kind) {
            return Ok(if self.is_cbor { cbor::object(json)?.into() } else { json.clone() });
        }
        let is_json = self.is_json(group);
        let Some(former) = stored_former(key, formers) else {
            return Ok(if is_json { json.clone() } else { protobuf::object(json)?.into() });
        };
        let mut object = decode::parse(json, Format::Json)?.value;
        if let Some(restore) = former.restore {
            restore(&mut object);
        }
        if is_json {
            object["apiVersion"] = former.api_version.clone().into();
            return Ok(to_bytes(&object));
        }
        // The message is that of the present version.
        Ok(protobuf::object_as(&to_bytes(&object), &former.api_version)?.into())
    }

    /// Whether a write of the same object would store another version or encoding.
    pub(super) fn differs(self, key: &[u8], stored: &[u8], formers: &Formers) -> bool {
        if stored.starts_with(cbor::MAGIC) {
            return !self.is_cbor;
        }
        // Only built-in kinds are in protobuf.
        let is_protobuf = stored.starts_with(protobuf::MAGIC);
        let names = match is_protobuf {
            true => protobuf_version(stored).map(|version| (Cow::Borrowed(version), None)),
            false => names_of(key, stored).map(|(version, kind)| (version, Some(kind))),
        };
        let Some((api_version, kind)) = names else { return false };
        let (group, version) = parts(&api_version);
        let former = formers_at(key, formers).iter().find(|f| f.api_version == api_version);
        let has_kind = kind.is_none_or(|kind| protobuf::has_kind(group, version, &kind));
        if !has_kind && former.is_none() {
            return self.is_cbor;
        }
        let is_version = match stored_former(key, formers) {
            Some(wanted) => wanted.api_version == api_version,
            None => former.is_none(),
        };
        !is_version || is_protobuf == self.is_json(group)
    }

    /// Whether built-in kinds of a group are stored in JSON.
    fn is_json(self, group: &str) -> bool {
        self.built_in == StorageMediaType::Json || JSON_GROUPS.contains(&group)
    }
}

/// The former version in which objects are stored at a key.
fn stored_former<'f>(key: &[u8], formers: &'f Formers) -> Option<&'f Former> {
    formers_at(key, formers).iter().find(|former| former.restore.is_some())
}

/// The name of a value's encoding.
pub(super) fn name(stored: &[u8]) -> &'static str {
    match stored {
        value if value.starts_with(protobuf::MAGIC) => "protobuf",
        value if value.starts_with(cbor::MAGIC) => "CBOR",
        _ => "JSON",
    }
}
