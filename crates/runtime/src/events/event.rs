//! Events, their types, and references to objects.

use std::{str::FromStr, sync::Arc};

use kube_core::Resource;
use serde::Serialize;
use setpoint_object::time::Timestamp;

use super::EventApi;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem that needs attention.
    Warning,
}

/// A text that is not the type of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an event type: use Normal or Warning")]
pub struct UnknownEventType(pub String);

impl EventType {
    /// The API's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl FromStr for EventType {
    type Err = UnknownEventType;

    fn from_str(text: &str) -> Result<Self, UnknownEventType> {
        match text {
            "Normal" => Ok(Self::Normal),
            "Warning" => Ok(Self::Warning),
            other => Err(UnknownEventType(other.to_owned())),
        }
    }
}

/// Who writes an event, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    /// The reporting controller.
    pub(super) component: Arc<str>,
    /// `None`: as the manager's events.
    pub(super) api: Option<EventApi>,
    /// The manager of the fields; `None`: the client's.
    pub(super) field_manager: Option<Arc<str>>,
}

/// An event that was emitted by a recorder.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) event_type: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
    pub(super) source: Source,
    pub(super) at: Timestamp,
}

/// A reference to the object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ObjectReference {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The resourceVersion of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// A part of the object: `spec.containers{web}`; empty for the whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl ObjectReference {
    /// A reference to an object whose type is known at compile time.
    pub fn of<K: Resource>(object: &K) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic(object, &K::DynamicType::default())
    }

    /// A reference to an object whose type is known at run time.
    pub fn dynamic<K: Resource>(object: &K, dynamic_type: &K::DynamicType) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::api_version(dynamic_type).into_owned(),
            kind: K::kind(dynamic_type).into_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            field_path: String::new(),
        }
    }

    /// The reference without the resourceVersion, to compare objects.
    pub(super) fn identity(&self) -> Self {
        let mut identity = self.clone();
        identity.resource_version.clear();
        identity
    }

    /// Whether it names an object. An event without one cannot be written (EV-2).
    pub(super) fn is_resolved(&self) -> bool {
        !self.kind.is_empty() && !self.name.is_empty()
    }
}
