//! EV-1 (a): many messages about the same are one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use setpoint_object::time::Timestamp;

use super::{REMEMBERED_MAX, lru::Lru, reference::ObjectReference, told::EventType};

/// How many distinct messages make a group one event. 10, as client-go.
const MESSAGES_MAX: usize = 10;
/// How long a group may be silent before it counts anew. 600 s, as client-go.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// What events have in common that differ in nothing but their note.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// Without its version.
    pub(super) regarding: Arc<ObjectReference>,
    /// Without its version.
    pub(super) related: Option<ObjectReference>,
    pub(super) event_type: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) component: Arc<str>,
}

struct Messages {
    recent: BTreeSet<Arc<str>>,
    last: Timestamp,
}

/// The notes that groups had lately.
pub(super) struct Aggregator(Lru<Arc<Group>, Messages>);

impl Aggregator {
    pub(super) fn new() -> Self {
        Self(Lru::new(REMEMBERED_MAX))
    }

    /// Takes in a note of a group; says whether it is one of so many that they are one event.
    pub(super) fn is_combined(
        &mut self,
        group: &Arc<Group>,
        note: &Arc<str>,
        at: Timestamp,
    ) -> bool {
        let messages = self.0.entry(group, || Messages { recent: BTreeSet::new(), last: at });
        if at.since(messages.last) > SILENCE_MAX {
            messages.recent.clear();
        }
        messages.last = at;
        messages.recent.insert(note.clone());
        let is_combined = messages.recent.len() >= MESSAGES_MAX;
        if is_combined {
            // Room for the next one, so that a group that goes on stays one.
            messages.recent.pop_first();
        }
        is_combined
    }
}
