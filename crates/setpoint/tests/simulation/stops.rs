//! A manager is ended at every point: after the n-th poll of any of its tasks, for each n from its
//! first poll until it is idle.
//!
//! However it ends, it ends in time, leaves no task, starts no pass and sends no write afterwards,
//! and its successor repairs everything.

use crate::harness::{Faults, HANG_MAX, Person, ProcessId, Setting, Started, World, maps};
use crate::reference::{Seen, Temper, converge, define_networks, manager, network, networks};
use serde_json::json;
use setpoint::runtime::ManagerError;
use setpoint::runtime::{
    Action, BoxError, Context, Controller, Manager, Request, Watch,
    manager::{GRACE_PERIOD, Grace},
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// Duration of the life.
const LIFE: Duration = Duration::from_secs(2);
/// How long the successor may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// It is stopped.
    Stop,
    /// Its future is dropped.
    Drop,
    /// Its process is killed.
    Kill,
    /// Its process is stalled for longer than any timeout, and then stopped.
    StallAndStop,
}

/// A life that is ended early, in its own simulation.
struct Life {
    world: World,
    seen: Seen,
    process: Started<Option<Result<(), ManagerError>>>,
    stop: CancellationToken,
    dropped: CancellationToken,
}

impl Life {
    fn begin(weather: Weather) -> Self {
        let mut world = World::new(Setting::of(weather.seed));
        define_networks(&mut world);
        world.ask(|person| async move {
            person.create(&networks(""), &network("a", "10.0.0.0/16")).await;
            person.create(&networks(""), &network("b", "10.1.0.0/16")).await;
        });
        let bot = world.start("bot", |ground| async move {
            let person = Person { client: ground.client() };
            tokio::time::sleep(SECOND / 10).await;
            person.patch(&networks("a"), &json!({"spec": {"cidr": "10.2.0.0/16"}})).await;
            person.patch(&maps("default", "b"), &json!({"data": {"cidr": "mine"}})).await;
            tokio::time::sleep(SECOND / 10).await;
            person.delete(&networks("b")).await;
            person.create(&networks(""), &network("c", "10.3.0.0/16")).await;
        });
        world.shelter(bot.id());
        world.set_faults(Faults { chance: weather.chance, ..Faults::default() });
        let seen = Seen::default();
        let (stop, dropped) = (CancellationToken::new(), CancellationToken::new());
        let process = world.start("manager", {
            let (seen, stop, dropped) = (seen.clone(), stop.clone(), dropped.clone());
            move |ground| async move {
                let running = manager(&ground, &seen, Temper::default()).run(stop);
                tokio::select! {
                    biased;
                    () = dropped.cancelled() => None,
                    ended = running => Some(ended),
                }
            }
        });
        Self { world, seen, process, stop, dropped }
    }

    fn id(&self) -> ProcessId {
        self.process.id()
    }

    /// Number of polls of the life.
    fn n_polls(weather: Weather) -> u64 {
        let mut n = 0;
        let mut life = Self::begin(weather);
        let end = life.world.now() + LIFE;
        while life.world.now() < end && life.world.creep(life.id(), 1, end - life.world.now()) {
            n += 1;
        }
        n
    }

    /// Ends it after this many polls.
    fn end(mut self, n: u64, end: End) {
        let id = self.id();
        assert!(self.world.creep(id, n, LIFE), "there are not as many polls");
        match end {
            End::Stop => self.stop.cancel(),
            End::Drop => self.dropped.cancel(),
            End::Kill => self.world.kill(id),
            End::StallAndStop => {
                self.world.stall(id);
                self.world.run_for(GRACE_PERIOD * 2);
                self.stop.cancel();
                self.world.resume(id);
            }
        }
        let asked = self.world.now();
        // The longest wait is for a hanging request.
        let limit = HANG_MAX + SECOND * 2;
        self.world.run_until("it has ended", limit, |world| world.has_ended(id));
        let ended = self.process.take_output();
        match end {
            End::Stop | End::StallAndStop => {
                ended.unwrap().unwrap().unwrap();
            }
            End::Drop => assert!(ended.unwrap().is_none()),
            End::Kill => assert!(ended.is_none()),
        }
        if end == End::Drop || end == End::Kill {
            assert!(self.world.now() - asked <= Duration::from_millis(50), "nothing is waited for");
        }
        self.seen.drop_handles();
        if end != End::Kill {
            self.world.run_for(Duration::from_millis(2));
            assert_eq!(self.world.n_tasks(id), 0, "tasks are left");
        }
        let done =
            |world: &World| (world.journal().n_passes(), world.journal().writes_of(id).len());
        let before = done(&self.world);
        self.world.run_for(SECOND * 5);
        let after = done(&self.world);
        assert_eq!(after, before, "something was done after the end");
        self.world.kill(id);
        self.world.set_faults(Faults::default());

        let seen = self.seen.clone();
        let next = self.world.start("next", |ground| async move {
            manager(&ground, &seen, Temper::default()).run(CancellationToken::new()).await
        });
        converge(&mut self.world, &self.seen, PATIENCE, |_| next.id());
        assert_eq!(self.world.journal().overlaps(), []);
    }
}

/// The faults of a life before its end.
#[derive(Debug, Clone, Copy)]
struct Weather {
    seed: u64,
    /// As [`Faults::chance`].
    chance: f64,
    /// Lives are ended at every multiple of this number of polls.
    stride: usize,
}

const WEATHERS: &[Weather] = &[
    Weather { seed: 7, chance: 0.0, stride: 1 },
    Weather { seed: 8, chance: 0.2, stride: 4 },
    Weather { seed: 9, chance: 0.3, stride: 5 },
];

/// Ends lives after their n-th poll, for every n.
fn end_everywhere(end: End) {
    let asked = std::env::var("POLL").ok().map(|n| n.parse::<u64>().unwrap());
    for weather in WEATHERS {
        let n_polls = Life::n_polls(*weather);
        println!("{end:?} at {n_polls} polls of {weather:?}");
        assert!(n_polls > 80, "{n_polls} polls are no life");
        for n in (0..=n_polls).step_by(weather.stride) {
            if asked.is_none_or(|asked| asked == n) {
                let _replay = Replay { n, end, weather: *weather };
                Life::begin(*weather).end(n, end);
            }
        }
    }
}

/// Prints the poll at which the test failed.
struct Replay {
    n: u64,
    end: End,
    weather: Weather,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { n, end, weather } = self;
            eprintln!("{end:?} at poll {n} of {weather:?}: replay with POLL={n}");
        }
    }
}

#[test]
fn manager_stopped_at_any_poll_ends_cleanly() {
    end_everywhere(End::Stop);
}

#[test]
fn manager_dropped_at_any_poll_ends_cleanly() {
    end_everywhere(End::Drop);
}

#[test]
fn manager_killed_at_any_poll_is_recovered_from() {
    end_everywhere(End::Kill);
}

#[test]
fn manager_stalled_at_any_poll_and_stopped_ends_cleanly() {
    end_everywhere(End::StallAndStop);
}

/// MGR-21: tasks that do not end within the grace period are dropped, and the error names them.
#[test]
fn pass_that_does_not_end_is_dropped_at_the_deadline() {
    let mut world = World::new(Setting::of(1));
    world.ask(|person| async move {
        person.create(&maps("default", ""), &crate::harness::map("a", &json!({}))).await;
    });
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let process = world.start("manager", move |ground| async move {
        let mut manager = Manager::builder(ground.client())
            .clock(ground.clock())
            .seed(ground.seed)
            .grace(Grace::Period(SECOND * 3))
            .build();
        let inner = ground.clone();
        let reconcile = move |request: Request, context: Context| {
            let ground = inner.clone();
            async move {
                let _pass = ground.pass(context.controller(), &request);
                std::future::pending::<Result<Action, BoxError>>().await
            }
        };
        let controller = Controller::builder("stuck")
            .for_(Watch::<k8s_openapi::api::core::v1::ConfigMap>::new())
            .build(reconcile)
            .unwrap();
        manager.add(controller).unwrap();
        manager.run(asked).await
    });
    let id = process.id();
    world.run_until("it reconciles", SECOND * 10, |world| world.journal().n_passes() > 0);
    stop.cancel();
    let asked = world.now();
    world.run_until("it has ended", SECOND * 10, |world| world.has_ended(id));
    let took = world.now() - asked;
    assert!(took >= SECOND * 3 && took <= SECOND * 3 + SECOND / 10, "it took {took:?}");
    world.run_for(Duration::from_millis(2));
    assert_eq!(world.n_tasks(id), 0);
    assert!(world.journal().passes().iter().all(|pass| pass.ended.is_some()));
    let ended = process.take_output().unwrap();
    let Err(error @ ManagerError::GraceExpired { .. }) = &ended else { panic!("{ended:?}") };
    let expected = "stuck (passes over default/a) had not ended after the grace period of 3s; \
                    not told to stop before that: the cache, the event recorder";
    assert_eq!(error.to_string(), expected);
}
