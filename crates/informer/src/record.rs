//! An encoded object on its way from the server to the cache.
use crate::key::Key;
use crate::resource_type::ResourceType;
use bytes::{BufMut, Bytes, BytesMut};
use setpoint_object::Skim;
use setpoint_object::skim::SkimError;

/// One object as the server sent it, with what the queue and the cache need of its metadata.
///
/// The bytes are complete: they name their `apiVersion` and `kind`, which the items of a built-in list leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`; empty when the server sent none.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`; empty when the server sent none.
    pub resource_version: Box<str>,
    /// The object, JSON.
    pub bytes: Bytes,
}

/// Why an object cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is not a JSON object.
    #[error("read the object")]
    Malformed(#[from] SkimError),
    /// It has no `metadata.name`: no key can be made (invariant 16).
    #[error("the object has no metadata.name")]
    Nameless,
    /// It is of another type than the one that is watched (REF-24).
    #[error("expected {expected}, got {got}")]
    WrongType {
        /// The watched type.
        expected: String,
        /// The type the object names.
        got: String,
    },
}

impl Record {
    /// Takes in one item of a list. Its type is not checked (REF-10), and written in where it is missing.
    ///
    /// # Errors
    /// When it is not a JSON object with a name.
    pub fn from_item(item: &[u8], resource_type: &ResourceType) -> Result<Self, RecordError> {
        Self::new(item, &Skim::of(item)?, resource_type)
    }

    /// Takes in the object of a watch event, which must be of the watched type (REF-24). A type that is absent passes, and so does
    /// the metadata of an object, which does not say of which type it is (FAC-7).
    ///
    /// # Errors
    /// When it is not a JSON object with a name, or is of another type.
    pub fn from_event(object: &[u8], resource_type: &ResourceType) -> Result<Self, RecordError> {
        let skim = Skim::of(object)?;
        let wrong = |got: &str, expected: &str| !got.is_empty() && got != expected;
        let is_metadata =
            skim.kind == "PartialObjectMetadata" && skim.api_version.starts_with("meta.k8s.io/");
        if !is_metadata
            && (wrong(&skim.kind, &resource_type.kind.kind)
                || wrong(&skim.api_version, &resource_type.api_version))
        {
            return Err(RecordError::WrongType {
                expected: format!("{} {}", resource_type.api_version, resource_type.kind.kind),
                got: format!("{} {}", skim.api_version, skim.kind),
            });
        }
        Self::new(object, &skim, resource_type)
    }

    fn new(
        object: &[u8],
        skim: &Skim<'_>,
        resource_type: &ResourceType,
    ) -> Result<Self, RecordError> {
        if skim.name.is_empty() {
            return Err(RecordError::Nameless);
        }
        Ok(Self {
            key: Key::new(&*skim.namespace, &*skim.name),
            uid: Box::from(&*skim.uid),
            resource_version: Box::from(&*skim.resource_version),
            bytes: complete(object, skim, resource_type),
        })
    }
}

/// A copy of the object that names its type. A copy, because a slice would keep a whole list page in memory.
fn complete(object: &[u8], skim: &Skim<'_>, resource_type: &ResourceType) -> Bytes {
    let add_version = skim.api_version.is_empty() && !resource_type.api_version.is_empty();
    let add_kind = skim.kind.is_empty() && !resource_type.kind.kind.is_empty();
    let brace = match memchr::memchr(b'{', object) {
        Some(brace) if add_version || add_kind => brace,
        _ => return Bytes::copy_from_slice(object),
    };
    let mut bytes = BytesMut::with_capacity(object.len() + 96);
    bytes.put_u8(b'{');
    // The object has a name, so at least one member follows and a comma is due.
    for (add, member, value) in [
        (add_version, "apiVersion", &resource_type.api_version),
        (add_kind, "kind", &resource_type.kind.kind),
    ] {
        if add {
            bytes.put_slice(format!("\"{member}\":\"{value}\",").as_bytes());
        }
    }
    bytes.put_slice(&object[brace + 1..]);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod() -> ResourceType {
        ResourceType::of::<Pod>(&())
    }

    #[test]
    fn items_of_a_built_in_list_are_completed_with_their_type() {
        let item = br#" {"metadata":{"name":"a"}}"#;
        let record = Record::from_item(item, &pod()).unwrap();
        assert_eq!(
            &record.bytes[..],
            br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#
        );
        let whole = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#;
        assert_eq!(&Record::from_item(whole, &pod()).unwrap().bytes[..], whole);
    }

    #[test]
    fn ref_10_ref_24_events_are_type_checked_and_list_items_are_not() {
        let node = br#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}"#;
        assert!(Record::from_item(node, &pod()).is_ok());
        let error = Record::from_event(node, &pod()).unwrap_err();
        assert_eq!(error.to_string(), "expected v1 Pod, got v1 Node");
    }

    #[test]
    fn fac_7_metadata_does_not_say_of_which_type_it_is() {
        let partial = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        assert!(Record::from_event(partial, &pod()).is_ok());
        let stranger =
            br#"{"kind":"PartialObjectMetadata","apiVersion":"v1","metadata":{"name":"a"}}"#;
        assert!(Record::from_event(stranger, &pod()).is_err());
    }

    #[test]
    fn invariant_16_an_object_without_metadata_or_name_is_an_error() {
        for bad in [&br#"{"kind":"Pod"}"#[..], br#"{"metadata":{"name":""}}"#, b"[]", b"", b"7"] {
            assert!(Record::from_event(bad, &pod()).is_err(), "{bad:?}");
        }
    }
}
