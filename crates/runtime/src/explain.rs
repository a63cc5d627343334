//! Why each pass ran, and what came of it.
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
//! What a pass costs here is the ring's lock: the `Pass` is made for every pass anyway, for the
//! caches to catch up with its writes, and with a ring it is made in the memory of the oldest.
//! Nothing is formatted and no text is copied while a pass runs; texts, dates and writers are found
//! when somebody asks. The record is in the ring from the pass's begin, so what runs now is told
//! too.

mod explainer;
mod explanation;
mod ring;
mod span;
mod writer;

pub(crate) use self::{
    explainer::{Explain, Explainer, WatchedSource},
    writer::{Seen, find_seen},
};
pub use self::{explanation::Explanation, writer::Writer};
pub use crate::pass::{Cause, ERROR_BYTES_MAX, PassOutcome};

/// How many passes a controller remembers by default.
///
/// 256, so that what is written anew stays in the processor's cache: with 1024 a pass that reads
/// one object took a sixth longer. At most 450 bytes for each, with one read or write; each further
/// one, of at most [`NOTES_MAX`](crate::client::NOTES_MAX), takes 104. So a controller that has
/// run for a while takes an eighth of a megabyte for it.
pub const EXPLAINED_PASSES: usize = 256;
