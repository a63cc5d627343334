//! The forms of a stored object.
use super::AnyValue;
use super::pool::Codec;
use crate::record::PARTIAL_KIND;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use setpoint_object::{Head, Prune};
use std::borrow::Cow;

/// A range of the text in or beside the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    from: u32,
    len: u32,
}

/// The ranges of uid and resourceVersion, and the resourceVersion as a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: Place,
    pub(super) resource_version: Place,
    /// To compare versions without reading their text in the body. Zero for a text that is not the
    /// decimal form of a positive number.
    pub(super) number: u64,
}

pub(super) enum Body {
    /// JSON that contains the identity. `stays_plain`: packing does not make it smaller.
    Json { json: Bytes, stays_plain: bool },
    /// JSON, and the identity, which the JSON has with escapes.
    Odd(Box<(Bytes, Box<str>)>),
    /// The value, and the identity if the value's metadata does not have it.
    Decoded(AnyValue, Box<str>),
    /// The identity, and after it a zstd frame.
    Packed(Box<[u8]>),
}

impl Place {
    /// The range of a text that borrows from these bytes.
    fn within(text: Cow<'_, str>, bytes: &[u8]) -> Option<Self> {
        let Cow::Borrowed(text) = text else { return None };
        if text.is_empty() {
            return Some(Self::default());
        }
        let from = (text.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
        Some(Self { from: u32::try_from(from).ok()?, len: u32::try_from(text.len()).ok()? })
    }
}

impl Identity {
    /// Both texts, one after the other.
    pub(super) fn of(uid: &str, resource_version: &str) -> (Self, Box<str>) {
        (Self::in_order(uid, resource_version), [uid, resource_version].concat().into())
    }

    /// Of both texts, one after the other.
    pub(super) fn in_order(uid: &str, resource_version: &str) -> Self {
        // Both are parts of an object, which a head limits to less than 4 GiB.
        let n_uid = uid.len() as u32;
        Self {
            uid: Place { from: 0, len: n_uid },
            resource_version: Place { from: n_uid, len: resource_version.len() as u32 },
            number: number(resource_version),
        }
    }

    /// The end of both texts, if one follows the other.
    pub(super) fn end(self) -> usize {
        self.resource_version.from as usize + self.resource_version.len as usize
    }

    fn within(bytes: &[u8], head: &Head) -> Option<Self> {
        let resource_version = head.resource_version(bytes);
        Some(Self {
            uid: Place::within(head.uid(bytes), bytes)?,
            number: number(&resource_version),
            resource_version: Place::within(resource_version, bytes)?,
        })
    }
}

/// A positive number whose decimal form this text is; otherwise zero.
fn number(text: &str) -> u64 {
    let is_decimal = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().unwrap_or(0) } else { 0 }
}

impl Body {
    /// JSON with this head.
    pub(super) fn plain(json: Bytes, head: &Head) -> (Identity, Self) {
        if let Some(identity) = Identity::within(&json, head) {
            return (identity, Self::Json { json, stays_plain: false });
        }
        let (uid, resource_version) = (head.uid(&json), head.resource_version(&json));
        let (identity, ids) = Identity::of(&uid, &resource_version);
        drop((uid, resource_version));
        (identity, Self::Odd(Box::new((json, ids))))
    }

    /// JSON of an object with this identity, which the JSON may not contain.
    pub(super) fn known(json: Bytes, uid: &str, resource_version: &str) -> (Identity, Self) {
        if let Ok(head) = Head::of(&json)
            && head.uid(&json) == uid
            && head.resource_version(&json) == resource_version
        {
            return Self::plain(json, &head);
        }
        let (identity, ids) = Identity::of(uid, resource_version);
        (identity, Self::Odd(Box::new((json, ids))))
    }

    /// Marks JSON that packing does not make smaller.
    pub(super) fn stay_plain(self) -> Self {
        match self {
            Self::Json { json, .. } => Self::Json { json, stays_plain: true },
            other => other,
        }
    }

    pub(super) fn stays_plain(&self) -> bool {
        matches!(self, Self::Json { stays_plain: true, .. })
    }

    pub(super) fn json(&self) -> Option<&Bytes> {
        match self {
            Self::Json { json, .. } => Some(json),
            Self::Odd(odd) => Some(&odd.0),
            Self::Decoded(..) | Self::Packed(_) => None,
        }
    }

    pub(super) fn text(&self, place: Place) -> &str {
        let bytes: &[u8] = match self {
            Self::Json { json, .. } => json,
            Self::Odd(odd) => odd.1.as_bytes(),
            Self::Decoded(_, ids) => ids.as_bytes(),
            Self::Packed(packed) => packed,
        };
        let from = place.from as usize;
        let text = bytes.get(from..from + place.len as usize).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

/// The packed form of JSON; `None` if it is not smaller.
pub(super) fn pack(
    codec: &Codec,
    json: &[u8],
    (uid, resource_version): (&str, &str),
    scratch: &mut Vec<u8>,
) -> Option<(Identity, Body)> {
    scratch.clear();
    scratch.extend_from_slice(uid.as_bytes());
    scratch.extend_from_slice(resource_version.as_bytes());
    if !codec.pack(json, scratch) || scratch.len() >= json.len() {
        return None;
    }
    Some((Identity::in_order(uid, resource_version), Body::Packed(scratch.as_slice().into())))
}

/// Type and metadata of an object.
#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Type and metadata of an object as JSON, without `managedFields`; `None` if it is not a JSON
/// object with metadata. An object without a type, or of the kind [`PARTIAL_KIND`], gets this
/// `apiVersion` and `kind`.
pub(crate) fn metadata_of(
    json: &[u8],
    (api_version, kind): (&str, &str),
) -> Option<(Vec<u8>, Head)> {
    let partial: Partial<'_> = serde_json::from_slice(json).ok()?;
    let is_own = !partial.kind.is_empty() && partial.kind != PARTIAL_KIND;
    let (api_version, kind) = match is_own || kind.is_empty() {
        true => (&*partial.api_version, &*partial.kind),
        false => (api_version, kind),
    };
    let mut text = Vec::with_capacity(json.len() + 64);
    text.push(b'{');
    for (member, value) in [("apiVersion", api_version), ("kind", kind)] {
        if !value.is_empty() {
            write_member(&mut text, member, &serde_json::to_string(value).ok()?);
            text.push(b',');
        }
    }
    write_member(&mut text, "metadata", partial.metadata.get());
    text.push(b'}');
    let head = Head::of(&text).ok()?;
    let mut left = Vec::new();
    let head = Prune::managed_fields().cut(&text, &head, &mut left).ok()?;
    Some((left, head))
}

fn write_member(out: &mut Vec<u8>, member: &str, value: &str) {
    out.push(b'"');
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value.as_bytes());
}
