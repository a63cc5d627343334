//! Event recorders.

use std::{fmt, sync::Arc};

use setpoint_object::time::Clock;
use tokio::sync::mpsc;

use super::{
    EVENT_QUEUE_MAX, EVENT_WORD_BYTES_MAX, EventApi, NOTE_BYTES_MAX,
    encode::cut,
    event::{Emitted, EventType, ObjectReference},
    loss::{EventLosses, Losses, count},
};

/// The default action of an event: what a controller does.
pub(super) const ACTION: &str = "Reconcile";

/// Options of a manager's events.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventOptions {
    pub(crate) api: EventApi,
    /// The host or pod; may be empty.
    pub(crate) host: Arc<str>,
}

/// Makes a manager's recorders.
#[derive(Clone)]
pub(crate) struct Broadcaster {
    /// Boxed: the queue allocates all slots at the start, and most programs record few events.
    sender: mpsc::Sender<Box<Emitted>>,
    losses: Arc<Losses>,
    clock: Clock,
}

/// The receiving end of all recorders.
pub(crate) struct EventQueue {
    pub(super) receiver: mpsc::Receiver<Box<Emitted>>,
    pub(super) losses: Arc<Losses>,
    pub(super) clock: Clock,
}

impl Broadcaster {
    /// A broadcaster, and the queue for its worker.
    pub(crate) fn new(clock: Clock) -> (Self, EventQueue) {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE_MAX);
        let losses = Arc::<Losses>::default();
        let queue = EventQueue { receiver, losses: losses.clone(), clock: clock.clone() };
        (Self { sender, losses, clock }, queue)
    }

    pub(crate) fn recorder(&self, component: Arc<str>) -> EventRecorder {
        EventRecorder { broadcaster: self.clone(), component }
    }
}

/// Records events about objects, under one component's name. Cheap to clone; never waits.
///
/// The component is the event's reporting controller: a word, or a domain-prefixed word
/// (`example.com/network`). After the manager has stopped, events are dropped and counted.
#[derive(Clone)]
pub struct EventRecorder {
    broadcaster: Broadcaster,
    component: Arc<str>,
}

/// An event that is not emitted yet; from [`EventRecorder::about`].
#[must_use = "an event is recorded by `record`"]
pub struct EventBuilder<'a> {
    recorder: &'a EventRecorder,
    regarding: &'a ObjectReference,
    related: Option<&'a ObjectReference>,
    event_type: EventType,
    reason: &'a str,
    action: &'a str,
    note: String,
}

impl EventRecorder {
    /// A recorder of the same events in the name of another component.
    pub fn as_component(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        EventRecorder { broadcaster: self.broadcaster.clone(), component: component.into() }
    }

    /// Emits a Normal event. `reason` is one word in CamelCase, `message` a sentence for people.
    pub fn normal(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Normal, reason, message);
    }

    /// Emits a Warning event.
    pub fn warning(&self, regarding: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.event(regarding, EventType::Warning, reason, message);
    }

    /// Emits an event.
    pub fn event(
        &self,
        regarding: &ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.about(regarding, event_type, reason).note(message).record();
    }

    /// Builds an event with more fields: an action, a related object.
    ///
    /// ```
    /// # use setpoint_runtime::{EventRecorder, events::EventType, ObjectReference};
    /// # fn example(recorder: &EventRecorder, network: &ObjectReference, node: &ObjectReference) {
    /// recorder
    ///     .about(network, EventType::Warning, "NoRoom")
    ///     .action("Attach")
    ///     .related(node)
    ///     .note("the node has no interface left")
    ///     .record();
    /// # }
    /// ```
    pub fn about<'a>(
        &'a self,
        regarding: &'a ObjectReference,
        event_type: EventType,
        reason: &'a str,
    ) -> EventBuilder<'a> {
        EventBuilder {
            recorder: self,
            regarding,
            related: None,
            event_type,
            reason,
            action: ACTION,
            note: String::new(),
        }
    }

    /// How many events of this manager were lost: [`EventLosses::total`].
    pub fn lost(&self) -> u64 {
        self.losses().total()
    }

    /// How many events of this manager were not written, by cause.
    pub fn losses(&self) -> EventLosses {
        self.broadcaster.losses.read()
    }
}

impl<'a> EventBuilder<'a> {
    /// The action that was taken or tried, one word in CamelCase: `Attach`. Default: `Reconcile`.
    pub fn action(mut self, action: &'a str) -> Self {
        self.action = action;
        self
    }

    /// A related object.
    pub fn related(mut self, related: &'a ObjectReference) -> Self {
        self.related = Some(related);
        self
    }

    /// A sentence for people, truncated to [`NOTE_BYTES_MAX`].
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Emits the event. Never waits: if the queue is full, the event is counted as lost.
    pub fn record(self) {
        let Self { recorder, regarding, related, event_type, reason, action, mut note } = self;
        tracing::debug!(
            kind = regarding.kind,
            namespace = regarding.namespace,
            name = regarding.name,
            event = event_type.as_str(),
            reason,
            action,
            message = note,
            "event"
        );
        let Broadcaster { sender, losses, clock } = &recorder.broadcaster;
        if !regarding.is_resolved() {
            tracing::error!(
                reason,
                "an event without an object is lost: its reference has no kind or no name"
            );
            return count(&losses.invalid);
        }
        // Reserves a slot first: a lost event is not copied.
        let place = match sender.try_reserve() {
            Ok(place) => place,
            Err(mpsc::error::TrySendError::Full(())) => return count(&losses.queue_full),
            Err(mpsc::error::TrySendError::Closed(())) => return count(&losses.after_end),
        };
        let word = |word: &str| {
            let mut word = word.to_owned();
            cut(&mut word, EVENT_WORD_BYTES_MAX);
            word
        };
        cut(&mut note, NOTE_BYTES_MAX);
        place.send(Box::new(Emitted {
            regarding: regarding.clone(),
            related: related.cloned(),
            event_type,
            reason: word(reason),
            action: word(action),
            note,
            component: recorder.component.clone(),
            at: clock.now(),
        }));
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("component", &self.component)
            .field("losses", &self.losses())
            .finish()
    }
}

impl fmt::Debug for EventBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBuilder")
            .field("regarding", self.regarding)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
