//! A machine of simulated processes.
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
//! Each process has a tokio runtime of its own, current-thread and on paused time; [`World`] runs
//! them in turn, a slice of time each, on one thread. So a process is what it is to an operating
//! system: when it is not run, none of its tasks is, its clock goes on without it, and everything
//! that fell due meanwhile is due at once when it is run again ([`World::stall`],
//! [`World::resume`]). Killing it drops all of its tasks where they wait ([`World::kill`]). How
//! many tasks it has is known ([`World::n_tasks`]).
//!
//! Processes meet in the network alone. What leaves one in a slice reaches another in a later
//! slice, so their order within a slice makes no difference to what each sees. A slice is 1 ms
//! while anything is under way and grows to [`SLICE_MAX`] in silence: that is how far apart two
//! processes' clocks can be, and it adds to the latency.
//!
//! A point within an instant is reached by counting polls: [`World::creep`] stops a process after
//! its n-th poll of a task.
//!
//! Everything that is chance comes from the seed. The same seed gives the same run, to the poll.
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
