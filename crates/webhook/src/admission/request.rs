//! Admission requests. Objects in them stay undecoded.

use crate::review::{nullable, slice};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use setpoint_object::{GroupVersionKind, GroupVersionResource};
use std::collections::BTreeMap;
use std::fmt;

/// The operation on the object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `CREATE`.
    Create,
    /// `UPDATE`: also patches and applies.
    Update,
    /// `DELETE`: the request has only the old object.
    Delete,
    /// `CONNECT`: exec, attach, proxy. The object is the options object.
    Connect,
    /// A verb unknown to this crate, as received.
    Other(String),
}

impl From<String> for Operation {
    fn from(verb: String) -> Self {
        match verb.as_str() {
            "CREATE" => Self::Create,
            "UPDATE" => Self::Update,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            _ => Self::Other(verb),
        }
    }
}

/// Displays as in the review.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Other(verb) => verb,
        })
    }
}

/// The user that sends a request, as authenticated by the API server. In a token review, the user
/// to report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct UserInfo {
    /// The user's name.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The user's UID.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups the user is in.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Additional attributes from the authenticator.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// An admission request. Objects are JSON text as received; absent or `null` objects are `None`,
/// and absent strings are empty.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// The review's UID, which the response repeats.
    pub uid: String,
    /// The object's kind, in the version that the webhook's rule matched.
    pub kind: GroupVersionKind,
    /// The resource, in the version that the webhook's rule matched.
    pub resource: GroupVersionResource,
    /// The subresource; empty for the object itself.
    pub sub_resource: String,
    /// The kind that the client sent, if the server reported it.
    pub request_kind: Option<GroupVersionKind>,
    /// The resource that the client requested, if the server reported it.
    pub request_resource: Option<GroupVersionResource>,
    /// The subresource that the client requested.
    pub request_sub_resource: String,
    /// The object's name; empty if a `generateName` has not been resolved yet.
    pub name: String,
    /// The object's namespace; for a Namespace, its own name.
    pub namespace: String,
    /// The operation.
    pub operation: Operation,
    /// The user who sent the request.
    pub user: UserInfo,
    /// The new object; for `CONNECT`, the options.
    pub object: Option<Bytes>,
    /// The stored object, for `UPDATE` and `DELETE`.
    pub old_object: Option<Bytes>,
    /// Whether nothing will be stored. A webhook must then have no side effects.
    pub dry_run: bool,
    /// The `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Option<Bytes>,
}

impl AdmissionRequest {
    /// Creates a request with only an operation, a kind and a resource, for tests of a handler by
    /// itself. All fields are public.
    pub fn new(
        operation: Operation,
        kind: GroupVersionKind,
        resource: GroupVersionResource,
    ) -> Self {
        Self {
            uid: String::new(),
            kind,
            resource,
            sub_resource: String::new(),
            request_kind: None,
            request_resource: None,
            request_sub_resource: String::new(),
            name: String::new(),
            namespace: String::new(),
            operation,
            user: UserInfo::default(),
            object: None,
            old_object: None,
            dry_run: false,
            options: None,
        }
    }

    /// Decodes the new object.
    ///
    /// # Errors
    ///
    /// If there is none or it does not fit the type.
    pub fn decode_object<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        decode("object", self.object.as_ref())
    }

    /// Decodes the stored object.
    ///
    /// # Errors
    ///
    /// If there is none or it does not fit the type.
    pub fn decode_old_object<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        decode("oldObject", self.old_object.as_ref())
    }

    /// Converts from the wire form, whose objects borrow from `body`.
    pub(crate) fn from_wire(wire: Wire<'_>, body: &Bytes) -> Self {
        let cut = |raw: Option<&RawValue>| raw.map(|raw| slice(body, raw));
        Self {
            uid: wire.uid,
            kind: wire.kind.into(),
            resource: wire.resource.into(),
            sub_resource: wire.sub_resource,
            request_kind: wire.request_kind.map(Into::into),
            request_resource: wire.request_resource.map(Into::into),
            request_sub_resource: wire.request_sub_resource,
            name: wire.name,
            namespace: wire.namespace,
            operation: wire.operation.into(),
            user: wire.user_info,
            object: cut(wire.object),
            old_object: cut(wire.old_object),
            dry_run: wire.dry_run,
            options: cut(wire.options),
        }
    }
}

/// Why an object of a request cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The request has no such object.
    #[error("there is no content to decode: the request has no {field}")]
    Absent {
        /// `object` or `oldObject`.
        field: &'static str,
    },
    /// The object does not fit the type.
    #[error("decode {field}: {source}")]
    Unfit {
        /// `object` or `oldObject`.
        field: &'static str,
        /// The cause. It is part of the message, because the client sees only the message.
        source: serde_json::Error,
    },
}

fn decode<K: DeserializeOwned>(
    field: &'static str,
    bytes: Option<&Bytes>,
) -> Result<K, DecodeError> {
    let bytes = bytes.ok_or(DecodeError::Absent { field })?;
    serde_json::from_slice(bytes).map_err(|source| DecodeError::Unfit { field, source })
}

/// The request in its wire format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire<'a> {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: WireKind,
    #[serde(default, deserialize_with = "nullable")]
    resource: WireResource,
    #[serde(default, deserialize_with = "nullable")]
    sub_resource: String,
    #[serde(default)]
    request_kind: Option<WireKind>,
    #[serde(default)]
    request_resource: Option<WireResource>,
    #[serde(default, deserialize_with = "nullable")]
    request_sub_resource: String,
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    namespace: String,
    #[serde(default, deserialize_with = "nullable")]
    operation: String,
    #[serde(default, deserialize_with = "nullable")]
    user_info: UserInfo,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "nullable")]
    dry_run: bool,
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireKind {
    group: String,
    version: String,
    kind: String,
}

impl From<WireKind> for GroupVersionKind {
    fn from(wire: WireKind) -> Self {
        Self::new(wire.group, wire.version, wire.kind)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResource {
    group: String,
    version: String,
    resource: String,
}

impl From<WireResource> for GroupVersionResource {
    fn from(wire: WireResource) -> Self {
        Self::new(wire.group, wire.version, wire.resource)
    }
}
