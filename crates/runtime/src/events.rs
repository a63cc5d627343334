//! Kubernetes Events about objects.
//!
//! # Theory
//!
//! ```text
//!  EventRecorder ──▶ at most 1000 ──▶ correlator ──▶ at most 1000 ──▶ at most 8 writes at a time ──▶ server
//!   (never waits)                     one worker, owned by the manager                │
//!        │                                │                │                          │
//!        └──── full: lost                 └─ held back     └─ full: lost              └─ refused, unreachable: lost
//! ```
//!
//! A recorder never waits. An event is written, merged into an earlier one, or counted by cause in
//! [`EventLosses`]. Repeated events are merged, as by client-go's `EventCorrelator` (EV-1). This
//! holds for both APIs:
//!
//! | events with the same object, type, reason, action, related object and source | become                             |
//! |--------------------------------------------------------------------------|-------------------------------------------|
//! | with the same message as an earlier one                                  | a repetition of that event: see below     |
//! | with ten other messages, each within ten minutes of the one before       | a repetition of `(combined from similar events): …` |
//! | more than 25 writes at once about one object and type; one more each five minutes | not written now, but still counted |
//!
//! | repetition of an event | core/v1 ([`EventApi::Core`])  | events.k8s.io/v1 ([`EventApi::New`])                           |
//! |-----------------------------|-------------------------------|----------------------------------------------------------------|
//! | the second                  | `count` is patched            | a series of two is patched                                     |
//! | later ones                  | `count` is patched            | are counted in memory; written every 30 minutes                |
//! | after six minutes without one | goes on counting            | the count is written and the series ends: the next is a new event |
//!
//! client-go's newer recorder ignores the note, and so loses all notes but the first. Here another
//! note is another event; the rules above limit their number. At most 4096 entries of each kind are
//! remembered; the least recently used is evicted.
//!
//! A write that does not reach the server is tried twelve times. An answer of the server is final,
//! except 429 and 503.

mod correlator;
mod encode;
mod event;
mod loss;
mod recorder;
mod worker;

pub use self::{
    event::{EventType, ObjectReference, UnknownEventType},
    loss::EventLosses,
    recorder::{EventBuilder, EventRecorder},
};
pub(crate) use self::{
    loss::EventCollector,
    recorder::{Broadcaster, EventOptions},
    worker::EventWorker,
};

/// How many events of a manager's recorders may wait for the correlator, and how many for a writer.
///
/// 1000, as client-go's broadcasters. More are dropped and counted.
pub const EVENT_QUEUE_MAX: usize = 1000;

/// The longest message in bytes: 1024, the API servers' limit for events.k8s.io. Longer ones are
/// truncated.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The longest reason, action and reporting instance in bytes: 128, the API servers' limit. Longer
/// ones are truncated.
pub const EVENT_WORD_BYTES_MAX: usize = 128;

/// How many groups, events and event sources are remembered: 4096, as client-go.
const REMEMBERED_MAX: usize = 4096;

/// The API to write events with. A server stores both alike: events written with one can be read
/// with the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EventApi {
    /// `events.k8s.io/v1`, with series. The program needs `create` and `patch` on `events` of that
    /// group (EV-4).
    #[default]
    New,
    /// `v1`, with counts; `create` and `patch` on `events` of the core group.
    Core,
}
