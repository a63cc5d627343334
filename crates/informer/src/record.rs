//! Encoded objects between the server and the cache.
use crate::key::{Key, Keyed};
use crate::resource_type::ResourceType;
use bytes::Bytes;
use setpoint_object::skim::SkimError;
use setpoint_object::{Head, Prune};

/// One object as the server sent it, with the metadata that queue and cache need.
///
/// The bytes have an `apiVersion` and a `kind`, which the items of a built-in list omit.
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

impl Keyed for Record {
    fn key(&self) -> &Key {
        &self.key
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// The kind of objects in answers to requests for metadata only.
pub(crate) const PARTIAL_KIND: &str = "PartialObjectMetadata";

/// Why an object cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is not a JSON object.
    #[error("read the object")]
    Malformed(#[from] SkimError),
    /// It has no `metadata.name`, so it has no key (invariant 16).
    #[error("the object has no metadata.name")]
    Nameless,
    /// It is not of the watched type (REF-24).
    #[error("expected {expected}, got {got}")]
    WrongType {
        /// The watched type.
        expected: String,
        /// The type of the object.
        got: String,
    },
}

impl Record {
    /// A record of an item of a list. Does not check the type (REF-10); adds it if it is missing.
    ///
    /// # Errors
    /// If it is not a JSON object with a name.
    pub fn from_item(item: &[u8], resource_type: &ResourceType) -> Result<Self, RecordError> {
        Self::new(&Arrival::item(item, None)?, resource_type)
    }

    /// A record of the object of a watch event, which must be of the watched type (REF-24). Accepts
    /// an object without a type, and `PartialObjectMetadata`, which does not name the type (FAC-7).
    ///
    /// # Errors
    /// If it is not a JSON object with a name, or is of another type.
    pub fn from_event(object: &[u8], resource_type: &ResourceType) -> Result<Self, RecordError> {
        Self::new(&Arrival::event(object, resource_type)?, resource_type)
    }

    fn new(arrival: &Arrival<'_>, resource_type: &ResourceType) -> Result<Self, RecordError> {
        let Arrival { bytes, head } = arrival;
        let mut copy = Vec::new();
        arrival.copy(resource_type, None, &mut copy)?;
        Ok(Self {
            key: Key::new(&*head.namespace(bytes), &*head.name(bytes)),
            uid: Box::from(&*head.uid(bytes)),
            resource_version: Box::from(&*head.resource_version(bytes)),
            bytes: Bytes::from(copy),
        })
    }
}

/// An object in the read buffer.
pub(crate) struct Arrival<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) head: Head,
}

impl<'a> Arrival<'a> {
    /// An item of a list (REF-10). The source may have its head.
    pub(crate) fn item(bytes: &'a [u8], head: Option<Head>) -> Result<Self, RecordError> {
        let head = head.map_or_else(|| Head::of(bytes), Ok)?;
        if head.name(bytes).is_empty() {
            return Err(RecordError::Nameless);
        }
        Ok(Self { bytes, head })
    }

    /// The object of a watch event (REF-24), which may be unchecked.
    pub(crate) fn event(
        bytes: &'a [u8],
        resource_type: &ResourceType,
    ) -> Result<Self, RecordError> {
        let head = crate::source::look(bytes)?;
        let (api_version, kind) = (head.api_version(bytes), head.kind(bytes));
        let is_wrong = |got: &str, expected: &str| !got.is_empty() && got != expected;
        let is_partial = kind == PARTIAL_KIND && api_version.starts_with("meta.k8s.io/");
        if !is_partial
            && (is_wrong(&kind, &resource_type.kind.kind)
                || is_wrong(&api_version, &resource_type.api_version))
        {
            return Err(RecordError::WrongType {
                expected: format!("{} {}", resource_type.api_version, resource_type.kind.kind),
                got: format!("{api_version} {kind}"),
            });
        }
        if head.name(bytes).is_empty() {
            return Err(RecordError::Nameless);
        }
        Ok(Self { bytes, head })
    }

    /// Replaces the content of `out` with a copy of the object, without pruned fields and with its
    /// type. Without fields to prune, an empty `out` gets an allocation of exactly the size.
    /// Returns the head of the copy.
    pub(crate) fn copy(
        &self,
        resource_type: &ResourceType,
        prune: Option<&Prune>,
        out: &mut Vec<u8>,
    ) -> Result<Head, RecordError> {
        let Self { bytes, head } = self;
        let missing = [
            ("apiVersion", &*resource_type.api_version, head.api_version(bytes).is_empty()),
            ("kind", &*resource_type.kind.kind, head.kind(bytes).is_empty()),
        ];
        let missing = missing
            .iter()
            .filter(|(_, value, is_missing)| *is_missing && !value.is_empty())
            .map(|(member, value, _)| (*member, *value));
        // A comma, two pairs of quotes, a colon.
        let n_missing: usize =
            missing.clone().map(|(member, value)| member.len() + value.len() + 6).sum();
        out.clear();
        out.reserve_exact(head.end() + n_missing);
        let head = match prune {
            Some(prune) => prune.cut(bytes, head, out)?,
            None => {
                out.extend_from_slice(&bytes[..head.end()]);
                *head
            }
        };
        if n_missing > 0 {
            // At the end, so that nothing moves. The object has a name, so it is not empty.
            out.pop();
            for (member, value) in missing {
                for part in [b",\"", member.as_bytes(), b"\":\"", value.as_bytes(), b"\""] {
                    out.extend_from_slice(part);
                }
            }
            out.push(b'}');
        }
        Ok(head)
    }
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
        let item = br#"{"metadata":{"name":"a"}}"#;
        let record = Record::from_item(item, &pod()).unwrap();
        assert_eq!(
            &record.bytes[..],
            br#"{"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod"}"#
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
    fn copy_is_pruned_and_completed() {
        let item =
            br#"{"metadata":{"name":"a","managedFields":[1,2],"uid":"u"},"spec":{"x":1}} and more"#;
        let item = &item[..item.len() - " and more".len()];
        let arrival = Arrival::item(item, None).unwrap();
        let prune = Prune::parse(["metadata.managedFields", "spec.x"]).unwrap();
        let mut out = Vec::new();
        let head = arrival.copy(&pod(), Some(&prune), &mut out).unwrap();
        assert_eq!(
            out,
            br#"{"metadata":{"name":"a","uid":"u"},"spec":{},"apiVersion":"v1","kind":"Pod"}"#
        );
        assert_eq!((&*head.name(&out), &*head.uid(&out)), ("a", "u"));
        let mut whole = Vec::new();
        arrival.copy(&pod(), None, &mut whole).unwrap();
        assert_eq!(whole.capacity(), whole.len());
    }

    #[test]
    fn fac_7_partial_metadata_does_not_name_its_type() {
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
