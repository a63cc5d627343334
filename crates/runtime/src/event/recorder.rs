//! The near end: what a reconciler holds.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kube_core::Resource;
use serde::Serialize;
use setpoint_object::time::{Clock, Timestamp};
use tokio::sync::mpsc;

/// How many events may wait to be written, over all recorders of a manager. 1000, as client-go's broadcaster.
pub(crate) const EVENT_QUEUE_MAX: usize = 1000;

/// Whether an event is news or trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// Things go as they should.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Which object an event is about.
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
    /// Which incarnation of the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Which version of the object it was about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
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
        }
    }
}

/// Something that was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) regarding: ObjectReference,
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) component: Arc<str>,
    pub(crate) at: Timestamp,
}

/// What recorders are made of; the manager's.
#[derive(Clone)]
pub(crate) struct Broadcaster {
    told: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
    clock: Clock,
}

impl Broadcaster {
    /// A broadcaster, and where its worker finds what was told.
    pub(crate) fn new(clock: Clock) -> (Self, mpsc::Receiver<Told>) {
        let (told, heard) = mpsc::channel(EVENT_QUEUE_MAX);
        (Self { told, lost: Arc::default(), clock }, heard)
    }

    pub(crate) fn recorder(&self, component: Arc<str>) -> EventRecorder {
        EventRecorder { broadcaster: self.clone(), component }
    }

    /// The count of events that were lost, for the worker to add to.
    pub(crate) fn lost(&self) -> Arc<AtomicU64> {
        self.lost.clone()
    }
}

/// Tells what happened to objects, as core/v1 Events in one component's name. Cheap to clone; never waits.
///
/// After the manager has stopped it loses what it is told.
#[derive(Clone)]
pub struct EventRecorder {
    broadcaster: Broadcaster,
    component: Arc<str>,
}

impl EventRecorder {
    /// Tells that something went as it should. `reason` is one word in CamelCase, `message` a sentence for people.
    pub fn normal(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Normal, reason, message);
    }

    /// Tells that something needs attention.
    pub fn warning(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Warning, reason, message);
    }

    /// Tells that something happened.
    pub fn event(
        &self,
        regarding: &ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        tracing::debug!(
            kind = regarding.kind,
            namespace = regarding.namespace,
            name = regarding.name,
            event = event_type.as_str(),
            reason,
            message,
            "event"
        );
        let told = Told {
            regarding: regarding.clone(),
            event_type,
            reason: reason.to_owned(),
            message,
            component: self.component.clone(),
            at: self.broadcaster.clock.now(),
        };
        if self.broadcaster.told.try_send(told).is_err() {
            self.broadcaster.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events of this manager were lost: told while the channel was full or after the end, or not written after all tries.
    /// What the rules against floods hold back is not counted.
    pub fn lost(&self) -> u64 {
        self.broadcaster.lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("component", &self.component)
            .field("lost", &self.lost())
            .finish()
    }
}
