//! Correlates events: decides what is written. Pure state, no I/O.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use lru::LruCache;
use setpoint_object::{bounded, time::Timestamp};

use super::{
    EventApi, NOTE_BYTES_MAX, REMEMBERED_MAX,
    encode::cut,
    event::{Emitted, EventType, ObjectReference, Source},
};

/// How often the count of an ongoing series is written: 30 min, as client-go.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// A series ends after this time without a repetition: 6 min, as client-go.
const SERIES_SILENCE_MAX: Duration = Duration::from_secs(6 * 60);
/// The longest name of an object (RFC 1123 subdomain).
const NAME_BYTES_MAX: usize = 253;

/// A write to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event.
    Create(Record),
    /// A repetition of an event that was written before.
    More(Record),
}

/// An event's state to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Arc<str>,
    pub(super) group: Arc<Group>,
    /// With its resourceVersion.
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

/// Identifies an event: its group, and its note unless the group is combined.
type Id = (Arc<Group>, Option<Arc<str>>);

/// A cached event.
struct CachedEvent {
    record: Record,
    /// The count on the server; zero until the event is created.
    n_written: u32,
    written_at: Timestamp,
}

/// Caches events, and decides which of them are written.
pub(super) struct Correlator {
    /// Of events whose source has none.
    api: EventApi,
    aggregator: Aggregator,
    cached: LruCache<Id, CachedEvent>,
    spam_filter: SpamFilter,
    last_name: u128,
    /// The earliest time at which a series is due.
    next_due: Option<Timestamp>,
    n_held_back: u64,
}

impl CachedEvent {
    /// Marks it as written in its current state.
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

    /// When the series, or the possible series, is due.
    fn due(&self) -> Timestamp {
        let over = self.record.last + SERIES_SILENCE_MAX;
        match self.n_written >= 2 && self.n_unwritten() > 0 {
            true => over.min(self.written_at + SERIES_REFRESH),
            false => over,
        }
    }

    fn spam_key(&self) -> SpamKey {
        let group = &self.record.group;
        (group.source.component.clone(), group.event_type, group.regarding.clone())
    }
}

impl Correlator {
    pub(super) fn new(api: EventApi) -> Self {
        Self {
            api,
            aggregator: Aggregator::new(),
            cached: bounded::lru(REMEMBERED_MAX),
            spam_filter: SpamFilter::new(),
            last_name: 0,
            next_due: None,
            n_held_back: 0,
        }
    }

    /// Adds an event; returns the writes: of this event, and of an evicted one.
    pub(super) fn take(&mut self, emitted: Emitted) -> [Option<Write>; 2] {
        let Emitted { regarding, related, event_type, reason, action, note, source, at } = emitted;
        let group = Arc::new(Group {
            regarding: Arc::new(regarding.identity()),
            related: related.map(|related| related.identity()),
            event_type,
            reason,
            action,
            api: source.api.unwrap_or(self.api),
            source,
        });
        let api = group.api;
        let mut note: Arc<str> = note.into();
        let is_combined = self.aggregator.is_combined(&group, &note, at);
        if is_combined {
            let mut combined = format!("(combined from similar events): {note}");
            cut(&mut combined, NOTE_BYTES_MAX);
            note = combined.into();
        }
        let id: Id = (group.clone(), (!is_combined).then(|| note.clone()));

        let mut evicted = None;
        if self.cached.get_mut(&id).is_none() {
            self.last_name = at.0.as_nanos().max(self.last_name + 1);
            let name = event_name(&regarding.name, self.last_name).into();
            let (first, last) = (at, at);
            let record =
                Record { name, group, regarding, note: note.clone(), first, last, count: 0 };
            let cached = CachedEvent { record, n_written: 0, written_at: at };
            if api == EventApi::New {
                let due = cached.due();
                self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
            }
            evicted = self.cached.push(id.clone(), cached).map(|(_, evicted)| evicted);
        }
        let now = at;
        let write = self.cached.get_mut(&id).and_then(|cached| {
            cached.record.count = cached.record.count.saturating_add(1);
            cached.record.last = at;
            let is_wanted = match api {
                EventApi::Core => {
                    // The last message is shown.
                    cached.record.note = note;
                    true
                }
                EventApi::New => cached.n_written < 2,
            };
            let is_written = is_wanted && self.spam_filter.admit(&cached.spam_key(), now);
            if is_wanted && !is_written {
                self.n_held_back += 1;
            }
            is_written.then(|| cached.write(now))
        });
        let evicted = evicted.and_then(|cached| self.finish(cached, now));
        [write, evicted]
    }

    /// The earliest time at which [`due`](Self::due) may return something.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    /// The writes of series that are due.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Write> {
        if self.next_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let due = |(id, cached): (&Id, &CachedEvent)| {
            (id.0.api == EventApi::New && cached.due() <= now).then(|| id.clone())
        };
        // The least recently used first.
        let due: Vec<Id> = self.cached.iter().rev().filter_map(due).collect();
        let mut writes = Vec::new();
        for id in due {
            let Some(mut cached) = self.cached.pop(&id) else { continue };
            if cached.record.last + SERIES_SILENCE_MAX <= now {
                writes.extend(self.finish(cached, now));
            } else {
                writes.push(cached.write(now));
                self.cached.put(id, cached);
            }
        }
        let series = self.cached.iter().filter(|(id, _)| id.0.api == EventApi::New);
        self.next_due = series.map(|(_, cached)| cached.due()).min();
        writes
    }

    /// The last writes of all series, at shutdown.
    pub(super) fn end(&mut self, now: Timestamp) -> Vec<Write> {
        let cached = std::mem::replace(&mut self.cached, bounded::lru(REMEMBERED_MAX));
        self.next_due = None;
        cached.into_iter().filter_map(|(_, cached)| self.finish(cached, now)).collect()
    }

    /// How many were held back since the last call.
    pub(super) fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.n_held_back)
    }

    /// The last write of an event, if the server does not have its full count.
    fn finish(&mut self, mut cached: CachedEvent, now: Timestamp) -> Option<Write> {
        let is_series = cached.record.group.api == EventApi::New && cached.record.count >= 2;
        // A series without a write is held back by the spam filter: its end needs a token too.
        let is_written = is_series
            && cached.n_unwritten() > 0
            && (cached.n_written > 0 || self.spam_filter.admit(&cached.spam_key(), now));
        is_written.then(|| cached.write(now))
    }
}

/// EV-2: the object's name and the nanoseconds in hexadecimal, as far as the name is valid.
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
    // Each part between dots must be a valid label.
    let parts = name.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join(".");
    if name.is_empty() { format!("event{suffix}") } else { name + &suffix }
}

/// How many writes one source may make about one object and type at once: 25, as client-go.
const BURST: f64 = 25.0;
/// How often one more is allowed: 300 s, as client-go.
const REFILL: Duration = Duration::from_secs(300);

/// The key of a token bucket.
pub(super) type SpamKey = (Arc<str>, EventType, Arc<ObjectReference>);

struct Tokens {
    tokens: f64,
    at: Timestamp,
}

/// Token buckets of the most recent sources; client-go's `EventSourceObjectSpamFilter`.
pub(super) struct SpamFilter(LruCache<SpamKey, Tokens>);

impl SpamFilter {
    pub(super) fn new() -> Self {
        Self(bounded::lru(REMEMBERED_MAX))
    }

    /// Takes a token for one write, if there is one.
    pub(super) fn admit(&mut self, spam_key: &SpamKey, now: Timestamp) -> bool {
        let bucket =
            self.0.get_or_insert_mut(spam_key.clone(), || Tokens { tokens: BURST, at: now });
        let refilled = now.since(bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.at = bucket.at.max(now);
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// How many distinct messages combine a group into one event: 10, as client-go.
const MESSAGES_MAX: usize = 10;
/// A group starts again after this time without an event: 600 s, as client-go.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// The fields that grouped events share: all but the note.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// Without its resourceVersion.
    pub(super) regarding: Arc<ObjectReference>,
    /// Without its resourceVersion.
    pub(super) related: Option<ObjectReference>,
    pub(super) event_type: EventType,
    pub(super) reason: String,
    /// May be empty.
    pub(super) action: String,
    pub(super) api: EventApi,
    pub(super) source: Source,
}

struct Messages {
    recent: BTreeSet<Arc<str>>,
    last: Timestamp,
}

/// The recent messages of groups.
pub(super) struct Aggregator(LruCache<Arc<Group>, Messages>);

impl Aggregator {
    pub(super) fn new() -> Self {
        Self(bounded::lru(REMEMBERED_MAX))
    }

    /// Adds a message of a group; returns whether the group is combined into one event.
    pub(super) fn is_combined(
        &mut self,
        group: &Arc<Group>,
        note: &Arc<str>,
        at: Timestamp,
    ) -> bool {
        let messages = self
            .0
            .get_or_insert_mut(group.clone(), || Messages { recent: BTreeSet::new(), last: at });
        if at.since(messages.last) > SILENCE_MAX {
            messages.recent.clear();
        }
        messages.last = at;
        messages.recent.insert(note.clone());
        let is_combined = messages.recent.len() >= MESSAGES_MAX;
        if is_combined {
            // Makes room for the next message, so that an active group stays combined.
            messages.recent.pop_first();
        }
        is_combined
    }
}

#[cfg(test)]
mod tests;
