//! Assembles the responses of a watch into batches of complete revisions.

use crate::{
    keys::{Namespace, revision},
    proto::{Event, WatchAnswer, WireKeyValue},
};
use bytes::Bytes;
use setpoint_store::{Batch, Change, Revision};

/// Joins parts, drops changes that were delivered before, and checks the order.
pub(crate) struct Assembler {
    namespace: Namespace,
    /// Includes the namespace.
    prefix: Bytes,
    /// Every change up to this revision has been returned.
    delivered: Revision,
    /// Changes of revisions that may be incomplete. Empty between responses of one part.
    pending: Vec<Change>,
    /// The newest revision seen. Equals `delivered` between responses.
    newest: Revision,
}

/// The result of processing a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Assembled {
    /// No new revision is complete.
    Nothing,
    /// New complete revisions.
    Batch(Batch),
    /// The previous value of a change is missing: history is compacted past it.
    PreviousCompacted,
    /// The response is invalid.
    Broken(&'static str),
}

impl Assembler {
    /// Continues after `after`. `prefix` includes the namespace.
    pub(crate) fn new(namespace: Namespace, prefix: Bytes, after: Revision) -> Self {
        Self { namespace, prefix, delivered: after, pending: Vec::new(), newest: after }
    }

    /// Every change up to this revision has been returned.
    pub(crate) fn delivered(&self) -> Revision {
        self.delivered
    }

    /// Prepares for a new watch from `delivered`. Drops a partial response of the old one.
    pub(crate) fn begin(&mut self) {
        self.pending.clear();
        self.newest = self.delivered;
    }

    /// Processes a response. `is_reliable`: whether progress of the whole stream is reliable.
    pub(crate) fn take(&mut self, answer: WatchAnswer, is_reliable: bool) -> Assembled {
        let (fragment, of_stream) = (answer.fragment, answer.watch_id == -1);
        if answer.events.is_empty() && !fragment {
            let progress = answer.header.as_ref().and_then(|header| revision(header.revision));
            let Some(progress) = progress else { return Assembled::Broken("it has no header") };
            if answer.created || of_stream && !is_reliable {
                return Assembled::Nothing;
            }
            if !self.pending.is_empty() {
                // The last part of an answer may be empty.
                return self.complete(self.newest);
            }
            return self.complete(progress);
        }
        for event in answer.events {
            if let Err(problem) = self.event(event) {
                return problem;
            }
        }
        if fragment {
            // More of the newest revision may follow.
            self.complete(Revision(self.newest.0.saturating_sub(1)))
        } else {
            self.complete(self.newest)
        }
    }

    /// Returns every revision up to this one, all of which are complete.
    fn complete(&mut self, whole: Revision) -> Assembled {
        if whole <= self.delivered {
            return Assembled::Nothing;
        }
        let rest = self.pending.partition_point(|change| change.revision <= whole);
        let rest = self.pending.split_off(rest);
        let changes = std::mem::replace(&mut self.pending, rest);
        self.delivered = whole;
        self.newest = self.newest.max(whole);
        Assembled::Batch(Batch { changes, revision: whole })
    }

    fn event(&mut self, event: Event) -> Result<(), Assembled> {
        let Some(kv) = event.kv else { return Err(Assembled::Broken("an event has no key")) };
        let Some(revision) = revision(kv.mod_revision) else {
            return Err(Assembled::Broken("an event has no revision"));
        };
        if revision <= self.delivered {
            return Ok(());
        }
        if revision < self.newest {
            return Err(Assembled::Broken("an event is out of order"));
        }
        self.newest = revision;
        if !kv.key.starts_with(&self.prefix) {
            return Ok(());
        }
        let was_there = match event.kind {
            Event::PUT => kv.create_revision != kv.mod_revision,
            Event::DELETE => true,
            _ => return Err(Assembled::Broken("an event is neither a put nor a delete")),
        };
        let previous = match event.prev_kv {
            Some(previous) => Some(self.entry(previous)?),
            None if was_there => return Err(Assembled::PreviousCompacted),
            None => None,
        };
        let (key, value) = match event.kind {
            Event::PUT => {
                let entry = self.entry(kv)?;
                (entry.key, Some(entry.value))
            }
            _ => (self.namespace.stripped(kv.key), None),
        };
        self.pending.push(Change { revision, key, value, previous });
        Ok(())
    }

    fn entry(&self, wire: WireKeyValue) -> Result<setpoint_store::KeyValue, Assembled> {
        self.namespace.entry(wire).ok_or(Assembled::Broken("an entry is invalid"))
    }
}

#[cfg(test)]
mod tests;
