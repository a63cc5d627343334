//! Events: telling people what happened to an object.
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
//! A recorder never waits. What it is told is written, or merged into what was written before, or
//! counted: by cause in [`EventLosses`]. Who says the same again writes nothing new. EV-1 is
//! client-go's `EventCorrelator`, and holds for both APIs:
//!
//! | the same object, type, reason, action, related object and source said | becomes                                   |
//! |--------------------------------------------------------------------------|-------------------------------------------|
//! | the same message before                                                  | one more of that event: see below         |
//! | ten other messages, each within ten minutes of the one before            | one more of `(combined from similar events): …` |
//! | more than 25 writes at once about one object and type; one more each five minutes | nothing now, but counts go on     |
//!
//! | one more of the same event | core/v1 ([`EventApi::Core`])  | events.k8s.io/v1 ([`EventApi::New`])                           |
//! |-----------------------------|-------------------------------|----------------------------------------------------------------|
//! | the second                  | `count` is patched            | a series of two is patched                                     |
//! | those after it              | `count` is patched            | are counted here; written every 30 minutes                     |
//! | after six minutes of silence | goes on counting             | the rest is written and the series is over: the next is a new event |
//!
//! client-go's newer recorder does not look at the note, and so loses all but the first; here
//! another note is another event, which the rules against floods hold in bounds. At most 4096 of
//! everything is remembered, the least recently used going first.
//!
//! A write that cannot reach the server is tried twelve times. An answer of the server is final,
//! but for "come back later" (429, 503).

mod aggregate;
mod correlator;
mod encode;
mod flood;
mod loss;
mod lru;
mod outbox;
mod recorder;
mod reference;
mod send;
mod told;
mod worker;

pub(crate) use self::{
    loss::EventCollector,
    recorder::{Broadcaster, EventOptions},
    worker::EventWorker,
};
pub use self::{
    loss::EventLosses,
    recorder::{EventBuilder, EventRecorder},
    reference::ObjectReference,
    told::{EventType, UnknownEventType},
};

/// How many events may wait for the correlator, over all recorders of a manager; and how many for a
/// writer.
///
/// 1000, as client-go's broadcasters; more are lost, and counted.
pub const EVENT_QUEUE_MAX: usize = 1000;

/// The longest message, in bytes: 1024, what API servers take of events.k8s.io. The rest is cut
/// off.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The longest reason, action and name of a reporting instance, in bytes: 128, what API servers
/// take. The rest is cut off.
pub const EVENT_WORD_BYTES_MAX: usize = 128;

/// How many groups, events and sources of events are remembered. 4096, as client-go.
const REMEMBERED_MAX: usize = 4096;

/// Which API events are written with. A server keeps both as one: what is written with one is read
/// with the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EventApi {
    /// `events.k8s.io/v1`, with series. The program needs `create` and `patch` on `events` of that
    /// group (EV-4).
    #[default]
    New,
    /// `v1`, with counts; `create` and `patch` on `events` of the core group.
    Core,
}
