//! The near end: what a reconciler holds.

use std::{fmt, sync::Arc};

use setpoint_object::time::Clock;
use tokio::sync::mpsc;

use super::{
    EVENT_QUEUE_MAX, EVENT_WORD_BYTES_MAX, EventApi, NOTE_BYTES_MAX,
    encode::cut,
    loss::{EventLosses, Losses, count},
    reference::ObjectReference,
    told::{EventType, Told},
};

/// The action of an event that names none: what a controller does.
const ACTION: &str = "Reconcile";

/// How a manager's events are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventOptions {
    pub(crate) api: EventApi,
    /// The machine or pod; may be empty.
    pub(crate) host: Arc<str>,
}

/// What recorders are made of; the manager's.
#[derive(Clone)]
pub(crate) struct Broadcaster {
    /// Boxed: the queue holds room for many from the start, and most programs tell few.
    told: mpsc::Sender<Box<Told>>,
    losses: Arc<Losses>,
    clock: Clock,
}

/// Where what was told is heard.
pub(crate) struct Heard {
    pub(super) told: mpsc::Receiver<Box<Told>>,
    pub(super) losses: Arc<Losses>,
    pub(super) clock: Clock,
}

impl Broadcaster {
    /// A broadcaster, and where its worker finds what was told.
    pub(crate) fn new(clock: Clock) -> (Self, Heard) {
        let (sender, told) = mpsc::channel(EVENT_QUEUE_MAX);
        let losses = Arc::<Losses>::default();
        let heard = Heard { told, losses: losses.clone(), clock: clock.clone() };
        (Self { told: sender, losses, clock }, heard)
    }

    pub(crate) fn recorder(&self, component: Arc<str>) -> EventRecorder {
        EventRecorder { broadcaster: self.clone(), component }
    }
}

/// Tells what happened to objects, as Events in one component's name. Cheap to clone; never waits.
///
/// The component is the event's reporting controller: a word, or a word below a domain
/// (`example.com/network`). After the manager has stopped a recorder loses what it is told, and
/// counts it.
#[derive(Clone)]
pub struct EventRecorder {
    broadcaster: Broadcaster,
    component: Arc<str>,
}

/// An event that is not told yet; from [`EventRecorder::about`].
#[must_use = "an event is told by `tell`"]
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
    /// Tells that something went as it should. `reason` is one word in CamelCase, `message` a
    /// sentence for people.
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
        self.about(regarding, event_type, reason).note(message).tell();
    }

    /// Begins to tell that something happened: with an action, a related object.
    ///
    /// ```
    /// # use setpoint_runtime::{EventRecorder, events::EventType, ObjectReference};
    /// # fn example(recorder: &EventRecorder, network: &ObjectReference, node: &ObjectReference) {
    /// recorder
    ///     .about(network, EventType::Warning, "NoRoom")
    ///     .action("Attach")
    ///     .related(node)
    ///     .note("the node has no interface left")
    ///     .tell();
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

    /// How many events of this manager were lost, by whatever cause: [`EventLosses::total`].
    pub fn lost(&self) -> u64 {
        self.losses().total()
    }

    /// How many events of this manager were not written, by cause.
    pub fn losses(&self) -> EventLosses {
        self.broadcaster.losses.read()
    }
}

impl<'a> EventBuilder<'a> {
    /// What was done, or tried, in one word in CamelCase: `Attach`. Default: `Reconcile`.
    pub fn action(mut self, action: &'a str) -> Self {
        self.action = action;
        self
    }

    /// A second object that has to do with it.
    pub fn related(mut self, related: &'a ObjectReference) -> Self {
        self.related = Some(related);
        self
    }

    /// A sentence for people; of more than [`NOTE_BYTES_MAX`] the rest is cut off.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Tells it. Never waits: what cannot be taken is counted as lost.
    pub fn tell(self) {
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
        let Broadcaster { told, losses, clock } = &recorder.broadcaster;
        if !regarding.is_resolved() {
            tracing::error!(reason, "an event about nothing is lost: it names no kind or no name");
            return count(&losses.invalid);
        }
        // A place first: what finds none is not copied.
        let place = match told.try_reserve() {
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
        place.send(Box::new(Told {
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
