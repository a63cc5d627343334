//! A queue of keys that hands each key to one worker at a time.
//!
//! A key names a piece of work; what is to be done is read when the work begins. So a hundred events about
//! one key are one pass of work, and a key that changes during its pass gets exactly one more.
//!
//! # Theory
//!
//! Every key is in one of six states. A blank cell means that the event cannot happen or changes nothing.
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
//! - **Two workers never hold one key.** `get` leaves only from *queued*, and no event but `done` leads from
//!   the three states that a worker holds (in flight, returning, dirty) to *queued*.
//! - **Nothing added is lost.** After every `add`, `add_after` or `add_rate_limited`, the key is in a state from which
//!   a hand-out that begins later is reached, short of a shutdown.
//! - **Now beats later.** A plain `add` consumes the waiting entry of its key, and a delay for a key that
//!   is already queued or dirty is ignored: a pass of work reads the present state and decides anew when it wants to come back.
//!   client-go keeps both and hands the key out twice (kubernetes/kubernetes#126027).
//! - **First added, first served.** Order is that of becoming *queued*; a key added during its own pass goes to the tail when done.
//!
//! # Who runs
//!
//! Nobody but the callers. Constructors spawn nothing; there is no task for the delays. The workers that wait in
//! [`WorkQueue::get`] choose one among themselves, who sleeps until the earliest due time; if it leaves, by
//! getting a key or by being dropped, another takes over.
//! That a key has fallen due is noticed by whoever looks next (`get`, `try_get`, `len`, `waiting`, `stats`, `cancel_delayed`).
//! All time is tokio time: it stands still when a test pauses it.
//!
//! # Shutdown
//!
//! | call                   | new adds | queued                   | waiting | returns                                  |
//! |------------------------|----------|--------------------------|---------|------------------------------------------|
//! | `shut_down`            | ignored  | handed out to the end    | dropped | at once                                  |
//! | `shut_down_with_drain` | ignored  | handed out to the end    | dropped | when nothing is queued or held by a worker |
//!
//! A key that was dirty when the shutdown came is still queued at its `done`. A `shut_down` during a drain ends the drain at once.
//!
//! # Bounds
//!
//! A queue holds each key once, so it is bounded by the keys its owner knows; nothing else in it grows.
//! The per-key failure counts of a [`RateLimiter`] live until `forget`; [`RateLimiter::len`] shows their number.
//!
//! # Knows nothing of
//!
//! Kubernetes, HTTP, objects. A key is anything that is `Clone + Eq + Hash`; clones are made under the lock, so they should
//! be cheap (`Arc<str>` rather than `String`).
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
mod metrics;
mod queue;

pub use limiter::{
    Bucket, Exponential, FastSlow, Jitter, LimiterError, MaxOf, MaxWait, RateLimiter,
    controller_default, item_default,
};
pub use metrics::{Metrics, Stats};
pub use queue::{AddOptions, Builder, DELAY_MAX, Item, WorkQueue};
