//! Which of the things told are written, and how: pure state, no I/O.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use setpoint_object::time::Timestamp;

use super::{
    lru::Lru,
    recorder::{EventType, ObjectReference, Told},
};

/// How many distinct messages make a group. 10, as client-go.
const GROUP_MESSAGES_MAX: usize = 10;
/// How long a group may be silent before it counts anew. 600 s, as client-go.
const GROUP_SILENCE_MAX: Duration = Duration::from_secs(600);
/// How many events one source may write about one object at once. 25, as client-go.
const FLOOD_BURST: f64 = 25.0;
/// How long it takes until one more may be written. 300 s, as client-go.
const FLOOD_REFILL: Duration = Duration::from_secs(300);
/// How many groups, events and sources are remembered. 4096, as client-go.
const REMEMBERED_MAX: usize = 4096;

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event.
    Create(Record),
    /// An event that was written before, whose count went up.
    Count(Record),
}

/// An event as it is to be on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) regarding: ObjectReference,
    pub(super) event_type: EventType,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) component: Arc<str>,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
}

/// Which events belong together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    regarding: ObjectReference,
    event_type: EventType,
    reason: String,
    component: Arc<str>,
}

struct Messages {
    recent: BTreeSet<String>,
    last: Timestamp,
}

/// The event that a message, or a whole group, was written as.
struct Known {
    name: String,
    first: Timestamp,
    count: u32,
}

/// Tokens of one source about one object.
struct Tokens {
    tokens: f64,
    at: Timestamp,
}

/// Remembers what was told, and decides what is written.
pub(super) struct Correlator {
    groups: Lru<Group, Messages>,
    /// By group, and by message unless the group is written as one.
    known: Lru<(Group, Option<String>), Known>,
    floods: Lru<(Arc<str>, ObjectReference), Tokens>,
    last_name: u128,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            groups: Lru::new(REMEMBERED_MAX),
            known: Lru::new(REMEMBERED_MAX),
            floods: Lru::new(REMEMBERED_MAX),
            last_name: 0,
        }
    }

    /// Takes in what was told; gives what is to be written, if anything.
    pub(super) fn take(&mut self, told: Told) -> Option<Write> {
        let Told { regarding, event_type, reason, mut message, component, at } = told;
        // The version an object has is no part of who it is.
        let identity = ObjectReference { resource_version: String::new(), ..regarding.clone() };
        let group = Group {
            regarding: identity.clone(),
            event_type,
            reason: reason.clone(),
            component: component.clone(),
        };

        let messages = self.groups.entry(&group, || Messages { recent: BTreeSet::new(), last: at });
        if at.since(messages.last) > GROUP_SILENCE_MAX {
            messages.recent.clear();
        }
        messages.last = at;
        messages.recent.insert(message.clone());
        let is_combined = messages.recent.len() >= GROUP_MESSAGES_MAX;
        if is_combined {
            // Room for the next one, so that a group that goes on stays one.
            messages.recent.pop_first();
            message = format!("(combined from similar events): {message}");
        }

        let id = (group, (!is_combined).then(|| message.clone()));
        let fresh_name = &mut self.last_name;
        let known = self.known.entry(&id, || {
            *fresh_name = at.0.as_nanos().max(*fresh_name + 1);
            Known { name: format!("{}.{fresh_name:x}", regarding.name), first: at, count: 0 }
        });
        known.count = known.count.saturating_add(1);
        let record = Record {
            name: known.name.clone(),
            regarding,
            event_type,
            reason,
            message,
            component: component.clone(),
            first: known.first,
            last: at,
            count: known.count,
        };

        let flood =
            self.floods.entry(&(component, identity), || Tokens { tokens: FLOOD_BURST, at });
        let refilled = at.since(flood.at).as_secs_f64() / FLOOD_REFILL.as_secs_f64();
        flood.tokens = (flood.tokens + refilled).min(FLOOD_BURST);
        flood.at = at;
        if flood.tokens < 1.0 {
            return None;
        }
        flood.tokens -= 1.0;
        Some(if record.count == 1 { Write::Create(record) } else { Write::Count(record) })
    }
}

#[cfg(test)]
mod tests;
