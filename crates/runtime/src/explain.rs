//! Explains why each pass ran and how it ended.
//!
//! # Theory
//!
//! ```text
//!   event ─▶ handler ─▶ WorkQueue ─▶ worker ─▶ begin ─▶ reconcile ─▶ end
//!             Cause as the add's tag          │           │           │
//!                                             ▼           ▼           ▼
//!                                     slot of the ring ◀─ Pass: reads, writes, outcome
//!                                             │
//!            ControllerHandle::explain(&key) ─┴─▶ Explanation: names of watches, writers from managedFields, dates
//! ```
//!
//! The only cost of a record is the ring's lock: the `Pass` exists in any case, so that the caches
//! can catch up with its writes, and the ring creates it in the memory of its oldest entry. Nothing
//! is formatted or copied as text while a pass runs. Texts, dates and writers are looked up on
//! request. A pass is in the ring from its start, so running passes are explained too.

mod explainer;
mod explanation;
mod ring;
mod writer;

pub(crate) use self::{
    explainer::{Explain, Explainer, WatchedSource},
    writer::{Seen, find_seen},
};
pub use self::{explanation::Explanation, writer::Writer};
pub use crate::pass::{Cause, ERROR_BYTES_MAX, PassOutcome};

/// How many passes a controller records by default.
///
/// 256, so that the records stay in the processor's cache: with 1024, a pass that reads one object
/// took a sixth longer. A record takes at most 450 bytes with one read or write, and 104 for each
/// further one, of at most [`NOTES_MAX`](crate::client::NOTES_MAX). So a long-running controller
/// uses an eighth of a megabyte.
pub const EXPLAINED_PASSES: usize = 256;
