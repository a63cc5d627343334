//! A queue of keys that hands each key to one worker at a time.
//!
//! A key names a piece of work; what is to be done is read when the work begins. So a hundred
//! events about one key are one pass of work, and a key that changes during its pass gets exactly
//! one more.
//!
//! # Theory
//!
//! Every key is in one of six states. A blank cell means that the event cannot happen or changes
//! nothing.
//!
//! | a key is    | `add`     | `add_after`        | falling due | `get`     | `done`  |
//! |-------------|-----------|--------------------|-------------|-----------|---------|
//! | absent      | queued    | waiting            |             |           |         |
//! | waiting     | queued    | waiting, the earlier due time wins | queued |    |         |
//! | queued      | queued    | queued             |             | in flight |         |
//! | in flight   | dirty     | returning          |             |           | absent  |
//! | returning   | dirty     | returning, the earlier due time wins | dirty | | waiting |
//! | dirty       | dirty     | dirty              |             |           | queued  |
//!
//! From the table follows what a controller stands on:
//!
//! - **Two workers never hold one key.** `get` leaves only from *queued*, and no event but `done`
//!   leads from the three states that a worker holds (in flight, returning, dirty) to *queued*.
//! - **Nothing added is lost.** After every `add`, `add_after` or `add_rate_limited`, the key is in
//!   a state from which a hand-out that begins later is reached, short of a shutdown.
//! - **Now beats later.** A plain `add` consumes the waiting entry of its key, and a delay for a
//!   key that is already queued or dirty is ignored: a pass of work reads the present state and
//!   decides anew when it wants to come back. client-go keeps both and hands the key out twice
//!   (kubernetes/kubernetes#126027).
//! - **First added, first served**, unless something else is asked for. Order is that of becoming
//!   *queued*; a key added during its own pass goes to the tail when done.
//!
//! # Rest
//!
//! [`Item::rest`] frees a worker whose key must not be handed out yet, because something is still
//! to happen. The key stays in the three states of a held key until the [`RestingItem`] is dropped,
//! which is `done`. It counts for no worker and no group.
//!
//! # Tags
//!
//! An add may carry a [`Tag`], and the hand-out it leads to gives it back: why the key was added,
//! as far as the user can write that in twelve bytes. [`Item::n_adds`] tells how many adds became
//! one hand-out, [`Item::waited`] how long the first of them waited.
//!
//! # Order
//!
//! [`Builder::priorities`] serves the higher [priority](AddOptions::priority) first. Of several
//! adds before a hand-out the highest priority and the earliest time hold, whatever their order.
//! Only a real raise moves a key, to the end of its new level; a key added during its own pass
//! keeps the place of that add. A hand-out forgets the priority: [`Item::priority`] tells it, so
//! that a worker can add the key again with the same one. Whether low priorities may starve is for
//! [`Priorities`] to say, and [`WorkQueue::levels`] shows whether they do.
//!
//! [`Builder::groups`] serves groups of keys in turn, so that one tenant's storm delays nobody else
//! by more than a round. [`Builder::group_in_flight_max`] keeps a tenant whose work is slow from
//! holding all workers. With both, priority goes first, and turns are taken within a priority.
//!
//! # Who runs
//!
//! Nobody but the callers. Constructors spawn nothing; there is no task for the delays. The workers
//! that wait in [`WorkQueue::get`] choose one among themselves, who sleeps until the earliest due
//! time; if it leaves, by getting a key or by being dropped, another takes over. That a key has
//! fallen due is noticed by whoever looks next (`get`, `try_get`, `len`, `waiting`, `stats`,
//! `cancel_delayed`). All time is tokio time: it stands still when a test pauses it.
//!
//! # Shutdown
//!
//! | call                   | new adds | waiting | queued, dirty                       | returns                                    |
//! |------------------------|----------|---------|-------------------------------------|--------------------------------------------|
//! | `shut_down`            | ignored  | dropped | handed out to the end, or abandoned | at once                                    |
//! | `shut_down_with_drain` | ignored  | dropped | handed out to the end, or abandoned | when nothing is queued or held by a worker |
//!
//! [`AtShutdown`] says which: a queue with priorities abandons what is queued, a plain one hands it
//! out, a key that was dirty when the shutdown came included. A `shut_down` during a drain ends the
//! drain at once.
//!
//! # Bounds
//!
//! A queue holds each key once, so it is bounded by the keys its owner knows (at most a billion);
//! nothing else in it grows. A few thousand keys that are done are kept longer, for the case that
//! they come back. After a peak the room is given back. The per-key failure counts of a
//! [`RateLimiter`] live until `forget`; [`RateLimiter::len`] shows their number.
//!
//! # Knows nothing of
//!
//! Kubernetes, HTTP, objects. A key is anything that is `Clone + Eq + Hash`; clones are made
//! under the lock, so they should be cheap (`Arc<str>` rather than `String`).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use setpoint_workqueue::WorkQueue;
//!
//! let queue = WorkQueue::builder().build();
//! queue.add("default/web");
//! queue.add("default/web");
//!
//! let item = queue.get().await.expect("the queue is open");
//! assert_eq!(*item.key(), "default/web");
//! assert!(queue.is_empty(), "two adds are one hand-out");
//! drop(item); // `done`, also when the worker panics
//! # });
//! ```

mod limiter;
pub mod metrics;
mod parallel;
mod queue;

pub use limiter::{
    Bucket, ByError, Exponential, FastSlow, Jitter, LimiterError, MaxOf, MaxWait, Pace,
    RateLimiter, WINDOW_ATTEMPTS_MAX, Windowed, controller_default, item_default, priority_default,
};
pub use metrics::{Metrics, Stats};
pub use parallel::Parallelizer;
pub use queue::{
    ADDS_MAX, AddOptions, AtShutdown, Builder, DELAY_MAX, Entry, Get, Group, Item, LevelStats,
    OwnedItem, PRIORITY_LOW, Phase, Priorities, RestingItem, Tag, WorkQueue,
};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
