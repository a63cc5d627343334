//! Simulated processes.
//!
//! # Theory
//!
//! ```text
//!   process a ──▶┐                        ┌──▶ process "server": setpoint::ControlPlane
//!   process b ──▶┤ Network: latency,      │
//!   person    ──▶┘ faults, partitions  ───┘
//!        │              │
//!        └──▶ Journal ◀─┘   passes as they begin and end, writes as they leave, arrive and are answered
//! ```
//!
//! Each process has its own tokio runtime, current-thread and on paused time. [`World`] runs them
//! in turn on one thread, a slice of time each. So a process behaves as under an operating system:
//! while it does not run, none of its tasks does, but its clock advances, and all timers that
//! expired meanwhile fire at once when it resumes ([`World::stall`], [`World::resume`]). Killing it
//! drops all of its tasks at their await points ([`World::kill`]). [`World::n_tasks`] returns the
//! number of its tasks.
//!
//! Processes communicate only through the network. A packet sent in one slice arrives in a later
//! slice, so the order of processes within a slice does not matter. A slice is 1 ms while packets
//! are in flight and grows to [`SLICE_MAX`] when idle: that is the maximum difference between two
//! processes' clocks, and it adds to the latency.
//!
//! Points within one instant are reached by counting polls: [`World::creep`] stops a process after
//! its n-th poll of a task.
//!
//! All randomness comes from the seed. The same seed gives the same run, poll by poll.
//!
//! # A test
//!
//! ```ignore
//! for seed in seeds(100) {
//!     let _replay = Replay::of(seed, "the_test");
//!     let mut world = World::new(Setting::of(seed));
//!     let stop = CancellationToken::new();
//!     let a = world.start("a", { let stop = stop.clone(); move |ground| async move {
//!         manager(&ground).run(stop).await
//!     }});
//!     world.set_faults(Faults::stormy(0.1));
//!     world.ask(|person| async move { person.create(&maps("default", ""), &map("m")).await });
//!     world.stall(a.id());
//!     world.run_for(Duration::from_secs(20));
//!     world.resume(a.id());
//!     world.run_until("it has ended", Duration::from_secs(60), |world| world.has_ended(a.id()));
//!     assert_eq!(world.journal().overlaps(), []);
//! }
//! ```

mod fault;
mod journal;
mod network;
mod person;
mod process;
mod replay;
mod server;
mod tally;
mod world;

#[allow(unused_imports, reason = "the harness's names, all in one place")]
pub(crate) use {
    fault::Faults,
    journal::{Journal, PassEntry, WriteEntry},
    network::HANG_MAX,
    person::{Person, map, maps, owner},
    process::{Ground, ProcessId},
    replay::{Replay, seeds},
    tally::Tally,
    world::{SLICE_MAX, Setting, Started, World},
};
