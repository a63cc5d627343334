//! A queue of keys that hands each key to one worker at a time.
//!
//! A key names a piece of work. The worker reads the current details when the work begins. So a
//! hundred events about one key cause one pass of work, and a key that changes during its pass gets
//! exactly one more.
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
//! The table guarantees what a controller relies on:
//!
//! - **Two workers never hold one key.** `get` leaves only from *queued*, and only `done` leads to
//!   *queued* from the three states of a held key (in flight, returning, dirty).
//! - **Nothing added is lost.** After every `add`, `add_after` or `add_rate_limited`, the key is in
//!   a state that leads to a later hand-out, unless the queue is shut down.
//! - **An add without a delay replaces a delay.** A plain `add` consumes the key's waiting entry,
//!   and a delay for a key that is already queued or dirty is ignored: a pass of work reads the
//!   current state and decides again when to come back. client-go keeps both and hands the key out
//!   twice (kubernetes/kubernetes#126027).
//! - **First added, first served** by default. The order is that of becoming *queued*. A key added
//!   during its own pass goes to the tail when done.
//!
//! # Rest
//!
//! [`Item::rest`] frees a worker whose key must not be handed out yet, because something else must
//! happen first. The key stays in the three states of a held key until the [`RestingItem`] is
//! dropped, which is `done`. It does not count as held by a worker or by its group.
//!
//! # Tags
//!
//! An add may carry a [`Tag`], twelve bytes for the reason of the add. The hand-out returns it.
//! [`Item::n_adds`] returns how many adds led to one hand-out, and [`Item::waited`] how long the
//! first of them waited.
//!
//! # Order
//!
//! [`Builder::priorities`] serves the higher [priority](AddOptions::priority) first. Of several
//! adds before a hand-out, the highest priority and the earliest time apply, in any order of the
//! adds. Only a higher priority moves a key, to the end of its new level. A key added during its
//! own pass keeps the place of that add. The priority ends with the hand-out: [`Item::priority`]
//! returns it, so that a worker can add the key again with the same one. [`Priorities`] decides
//! whether low priorities may starve, and [`WorkQueue::levels`] shows whether they do.
//!
//! [`Builder::groups`] serves groups of keys in turn, so that a storm of one tenant delays the
//! others by one round at most. [`Builder::group_in_flight_max`] keeps a tenant with slow work from
//! holding all workers. With both, priorities come first, and groups take turns within a priority.
//!
//! # No background tasks
//!
//! Constructors spawn nothing, and there is no task for delays. One of the workers that wait in
//! [`WorkQueue::get`] sleeps until the earliest due time. When it gets a key or is dropped, another
//! one takes over. Keys that have fallen due are moved at the next call of `get`, `try_get`, `len`,
//! `waiting`, `stats` or `cancel_delayed`, the earliest first and at most 4,096 each time the lock
//! is taken. A `get` moves one such part, so if more fall due together, a high priority counts from
//! the call that moves its key. All time is tokio time: it stands still when a test pauses it.
//!
//! # Shutdown
//!
//! | call | new adds | waiting | queued, dirty | returns |
//! |---|---|---|---|---|
//! | `shut_down` | ignored | dropped | handed out to the end, or abandoned | at once |
//! | `shut_down_with_drain` | ignored | dropped | handed out to the end, or abandoned | when nothing is queued or held by a worker |
//!
//! [`AtShutdown`] decides what happens to queued keys. By default a queue with priorities abandons
//! them, and a plain one hands them out, including a key that was dirty at the shutdown. A
//! `shut_down` during a drain ends the drain at once.
//!
//! # Bounds
//!
//! A queue holds each key once, so it is bounded by the keys that its owner adds (at most a
//! billion); nothing else in it grows. A few thousand keys that are done are cached, in case they
//! come back. After a peak the memory is freed. The failure counts of a [`RateLimiter`] live until
//! `forget`; [`RateLimiter::len`] returns their number.
//!
//! # Out of scope
//!
//! Kubernetes, HTTP, objects. A key is anything that is `Clone + Eq + Hash`. Keys are cloned under
//! the lock, so clones should be cheap (`Arc<str>` rather than `String`).
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
