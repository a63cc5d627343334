//! Which of the things told are written, and how: pure state, no I/O.

use std::{sync::Arc, time::Duration};

use setpoint_object::time::Timestamp;

use super::{
    EventApi, REMEMBERED_MAX,
    aggregate::{Aggregator, Group},
    flood::{Floods, Payer},
    lru::Lru,
    reference::ObjectReference,
    told::Told,
};

/// How often a series that goes on is written. 30 min, as client-go.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// After how long a silence a series is over. 6 min, as client-go.
const SERIES_SILENCE_MAX: Duration = Duration::from_secs(6 * 60);
/// The longest name of an object (RFC 1123 subdomain).
const NAME_BYTES_MAX: usize = 253;

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event.
    Create(Record),
    /// An event that was written before, of which there are more.
    More(Record),
}

/// An event as it is to be on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Arc<str>,
    pub(super) group: Arc<Group>,
    /// With its version.
    pub(super) regarding: ObjectReference,
    pub(super) note: Arc<str>,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
}

impl Write {
    pub(super) fn record(&self) -> &Record {
        match self {
            Self::Create(record) | Self::More(record) => record,
        }
    }
}

/// Which event it is: a group's, by note unless the group is written as one.
type Id = (Arc<Group>, Option<Arc<str>>);

/// An event that is remembered, and how far the server knows of it.
struct Known {
    record: Record,
    /// The count that was written; zero before the event itself was.
    n_written: u32,
    written_at: Timestamp,
}

/// Remembers what was told, and decides what is written.
pub(super) struct Correlator {
    api: EventApi,
    aggregator: Aggregator,
    known: Lru<Id, Known>,
    floods: Floods,
    last_name: u128,
    /// Nothing is due before.
    next_due: Option<Timestamp>,
    n_held_back: u64,
}

impl Known {
    /// It is being written as it is now.
    fn write(&mut self, now: Timestamp) -> Write {
        let is_new = self.n_written == 0;
        self.n_written = self.record.count;
        self.written_at = now;
        let record = self.record.clone();
        if is_new { Write::Create(record) } else { Write::More(record) }
    }

    fn n_unwritten(&self) -> u32 {
        self.record.count - self.n_written
    }

    /// When there is something to do for a series, or for what may become one.
    fn due(&self) -> Timestamp {
        let over = self.record.last + SERIES_SILENCE_MAX;
        match self.n_written >= 2 && self.n_unwritten() > 0 {
            true => over.min(self.written_at + SERIES_REFRESH),
            false => over,
        }
    }

    fn payer(&self) -> Payer {
        let group = &self.record.group;
        (group.component.clone(), group.event_type, group.regarding.clone())
    }
}

impl Correlator {
    pub(super) fn new(api: EventApi) -> Self {
        Self {
            api,
            aggregator: Aggregator::new(),
            known: Lru::new(REMEMBERED_MAX),
            floods: Floods::new(),
            last_name: 0,
            next_due: None,
            n_held_back: 0,
        }
    }

    /// Takes in what was told; gives what is to be written: of this event, and of one that is
    /// forgotten for it.
    pub(super) fn take(&mut self, told: Told) -> [Option<Write>; 2] {
        let Told { regarding, related, event_type, reason, action, note, component, at } = told;
        let group = Arc::new(Group {
            regarding: Arc::new(regarding.identity()),
            related: related.map(|related| related.identity()),
            event_type,
            reason,
            action,
            component,
        });
        let mut note: Arc<str> = note.into();
        let is_combined = self.aggregator.is_combined(&group, &note, at);
        if is_combined {
            note = format!("(combined from similar events): {note}").into();
        }
        let id: Id = (group.clone(), (!is_combined).then(|| note.clone()));

        let mut forgotten = None;
        if self.known.get_mut(&id).is_none() {
            self.last_name = at.0.as_nanos().max(self.last_name + 1);
            let name = event_name(&regarding.name, self.last_name).into();
            let (first, last) = (at, at);
            let record =
                Record { name, group, regarding, note: note.clone(), first, last, count: 0 };
            let known = Known { record, n_written: 0, written_at: at };
            if self.api == EventApi::New {
                let due = known.due();
                self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
            }
            forgotten = self.known.insert(id.clone(), known);
        }
        let now = at;
        let write = self.known.get_mut(&id).and_then(|known| {
            known.record.count = known.record.count.saturating_add(1);
            known.record.last = at;
            let is_wanted = match self.api {
                EventApi::Core => {
                    // The text that is shown is that of the last one.
                    known.record.note = note;
                    true
                }
                EventApi::New => known.n_written < 2,
            };
            let is_written = is_wanted && self.floods.admit(&known.payer(), now);
            if is_wanted && !is_written {
                self.n_held_back += 1;
            }
            is_written.then(|| known.write(now))
        });
        let forgotten = forgotten.and_then(|known| self.finish(known, now));
        [write, forgotten]
    }

    /// When [`due`](Self::due) has something to give, at the earliest.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    /// What is to be written of series because of the time.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Write> {
        if self.next_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let due = |(id, known): (&Id, &Known)| (known.due() <= now).then(|| id.clone());
        let due: Vec<Id> = self.known.iter().filter_map(due).collect();
        let mut writes = Vec::new();
        for id in due {
            let Some(mut known) = self.known.remove(&id) else { continue };
            if known.record.last + SERIES_SILENCE_MAX <= now {
                writes.extend(self.finish(known, now));
            } else {
                writes.push(known.write(now));
                self.known.insert(id, known);
            }
        }
        self.next_due = self.known.iter().map(|(_, known)| known.due()).min();
        writes
    }

    /// What is still to be written of all series, when nothing more is told.
    pub(super) fn end(&mut self, now: Timestamp) -> Vec<Write> {
        let known = std::mem::replace(&mut self.known, Lru::new(0));
        self.next_due = None;
        known.into_values().filter_map(|known| self.finish(known, now)).collect()
    }

    /// How many were held back since this was last asked.
    pub(super) fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.n_held_back)
    }

    /// The last word on an event, if the server does not know all of it yet.
    fn finish(&mut self, mut known: Known, now: Timestamp) -> Option<Write> {
        let is_series = self.api == EventApi::New && known.record.count >= 2;
        // A series that nothing was written of is a flood's: its end needs an allowance too.
        let is_written = is_series
            && known.n_unwritten() > 0
            && (known.n_written > 0 || self.floods.admit(&known.payer(), now));
        is_written.then(|| known.write(now))
    }
}

/// EV-2: the object's name and the nanoseconds in hexadecimal, as far as that is a name.
fn event_name(object: &str, nanos: u128) -> String {
    let suffix = format!(".{nanos:x}");
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let mut name: String = object
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    name.truncate(NAME_BYTES_MAX - suffix.len());
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    // Each part between dots begins and ends like a name of its own.
    let parts = name.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join(".");
    if name.is_empty() { format!("event{suffix}") } else { name + &suffix }
}

#[cfg(test)]
mod tests;
