//! Events: telling people what happened to an object.
//!
//! # Theory
//!
//! A recorder never waits: what it is told goes into a bounded channel, or is counted as lost when that is full. One worker, owned by
//! the manager, takes from the channel, decides what is worth writing, and writes. What repeats is not written anew:
//!
//! | the same object, type, reason and source said                  | becomes                                                   |
//! |-----------------------------------------------------------------|-----------------------------------------------------------|
//! | the same message before                                          | `count` of that event goes up                             |
//! | ten other messages, each within ten minutes of the one before    | `count` of one event, `(combined from similar events): …` |
//! | more than 25 events at once, over all reasons; one more each five minutes | nothing, but counts go on                        |
//!
//! These are client-go's rules (`EventCorrelator`, core/v1).

mod correlator;
mod lru;
mod recorder;
mod worker;

pub use self::recorder::{EventRecorder, EventType, ObjectReference};
pub(crate) use self::{recorder::Broadcaster, worker::EventWorker};
