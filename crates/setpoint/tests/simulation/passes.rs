//! Isolation of failing keys, and the latency of changes behind a long queue.

use crate::harness::{Faults, Ground, PassEntry, Replay, Setting, World, map, maps, seeds};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::runtime::{
    Action, BoxError, Context, Controller, ControllerHandle, Manager, Request, Watch,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

/// A controller named `c` over ConfigMaps, which also records its passes.
struct Character<F> {
    concurrency: usize,
    pass: F,
}

/// Runs it in a process; returns its handle.
fn run<F, Fut>(world: &mut World, character: Character<F>) -> ControllerHandle
where
    F: Fn(Ground, Request, Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, BoxError>> + Send + 'static,
{
    let handle = Arc::new(Mutex::new(None));
    let given = handle.clone();
    world.start("manager", move |ground| async move {
        let builder = Manager::builder(ground.client()).clock(ground.clock()).seed(ground.seed);
        let mut manager = builder.build();
        let Character { concurrency, pass } = character;
        let inner = ground.clone();
        let reconcile = move |request: Request, context: Context| {
            let (ground, pass) = (inner.clone(), pass.clone());
            async move {
                let _pass = ground.pass(context.controller(), &request);
                pass(ground, request, context).await
            }
        };
        let controller = Controller::builder("c")
            .for_(Watch::<ConfigMap>::new())
            .concurrency(concurrency)
            .build(reconcile)
            .unwrap();
        *given.lock().unwrap() = Some(manager.add(controller).unwrap());
        manager.run(CancellationToken::new()).await.unwrap();
    });
    world.run_for(Duration::from_millis(1));
    let handle = handle.lock().unwrap().take();
    handle.unwrap()
}

fn create(world: &mut World, names: impl Iterator<Item = String> + Send + 'static) {
    world.ask(|person| async move {
        for name in names {
            person.create(&maps("default", ""), &map(&name, &json!({"v": "0"}))).await;
        }
    });
}

fn passes_of(world: &World, key: &str) -> Vec<PassEntry> {
    world.journal().passes().into_iter().filter(|pass| *pass.key == *key).collect()
}

/// Property 10: a panic releases its key, which is retried with back-off, and affects no other key.
#[test]
fn panicking_key_is_retried_with_back_off_and_delays_no_other() {
    for seed in seeds(8) {
        let _replay = Replay::of(seed, "panicking_key");
        let mut world = World::new(Setting::of(seed));
        create(&mut world, (0..10).map(|n| format!("m{n}")));
        let is_mended = Arc::new(AtomicBool::new(false));
        let mended = is_mended.clone();
        let pass = move |_, request: Request, _| {
            let is_broken = &*request.name == "m3" && !mended.load(Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if is_broken {
                    std::panic::resume_unwind(Box::new("a panic on purpose"));
                }
                Ok(Action::await_change())
            }
        };
        let concurrency = 1 + usize::try_from(seed % 3).unwrap();
        let handle = run(&mut world, Character { concurrency, pass });
        // Ten passes of 10 ms, and among them the attempts of the panicking one.
        world.run_for(SECOND);
        for n in (0..10).filter(|n| *n != 3) {
            assert_eq!(passes_of(&world, &format!("default/m{n}")).len(), 1);
        }
        world.run_for(SECOND * 60);
        let panicked = passes_of(&world, "default/m3");
        // 5 ms, doubling: a minute has 13 waits, plus or minus one.
        assert!((11..=15).contains(&panicked.len()), "{} passes", panicked.len());
        let waits: Vec<Duration> =
            panicked.windows(2).map(|two| two[1].began - two[0].ended.unwrap()).collect();
        for (n, wait) in waits.iter().enumerate() {
            let back_off = Duration::from_millis(5 << n);
            // Passes of other keys may come first.
            let is_right = *wait >= back_off && *wait <= back_off + Duration::from_millis(100);
            assert!(is_right, "after the failure {n}: {wait:?}");
        }
        assert_eq!(handle.stats().panics, panicked.len() as u64);

        is_mended.store(true, Ordering::Relaxed);
        // The longest wait so far, doubled.
        world.run_until("the key is well", SECOND * 120, |_| handle.stats().success == 10);
        assert_eq!(world.journal().overlaps(), []);
        world.run_for(SECOND * 60);
        assert_eq!(world.journal().n_passes(), panicked.len() + 10, "nothing changes any more");
    }
}

/// PQ-40: initial objects have a lower priority than changes, but are processed eventually.
#[test]
fn change_overtakes_initial_objects() {
    const MAPS: usize = 300;
    let mut world = World::new(Setting::of(1));
    create(&mut world, (0..MAPS).map(|n| format!("m{n}")));
    let pass = |_, _, _| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(Action::await_change())
    };
    let handle = run(&mut world, Character { concurrency: 2, pass });
    world.run_until("passes are under way", SECOND * 5, |_| handle.stats().success > 10);
    // An object that has not been processed yet.
    let late = (0..MAPS)
        .map(|n| format!("m{n}"))
        .find(|name| passes_of(&world, &format!("default/{name}")).is_empty())
        .unwrap();
    let name = late.clone();
    world.ask(|person| async move {
        person.patch(&maps("default", &name), &json!({"data": {"v": "1"}})).await;
    });
    let changed = world.now();
    let key = format!("default/{late}");
    world.run_until("it has its turn", SECOND * 30, |world| !passes_of(world, &key).is_empty());
    let waited = passes_of(&world, &key)[0].began.saturating_sub(changed);
    assert!(waited <= Duration::from_millis(150), "it waited for {waited:?}");
    assert!(handle.stats().success < 100, "the others still wait");
    world.run_until("all have had their turn", SECOND * 60, |_| {
        handle.stats().success >= MAPS as u64
    });
}

/// Low-priority keys are processed eventually under any load, because priorities age.
#[test]
fn stream_of_changes_does_not_starve_other_keys() {
    const MAPS: usize = 40;
    let mut world = World::new(Setting::of(1));
    create(&mut world, (0..MAPS).map(|n| format!("m{n}")));
    let pass = |_, _, _| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(Action::await_change())
    };
    run(&mut world, Character { concurrency: 1, pass });
    // Twenty changes a second, with ten passes.
    let bot = world.start("bot", |ground| async move {
        let person = crate::harness::Person { client: ground.client() };
        for n in 0_u64.. {
            let name = format!("m{}", n % 4);
            person.patch(&maps("default", &name), &json!({"data": {"v": n.to_string()}})).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    world.shelter(bot.id());
    let seen = |world: &World| {
        let passes = world.journal().passes();
        let keys: std::collections::BTreeSet<_> = passes.iter().map(|pass| &pass.key).collect();
        keys.len()
    };
    world.run_until("each key has had its turn", SECOND * 900, |world| seen(world) == MAPS);
}

/// A controller that always fails, in a storm of five minutes: it makes no more passes than its
/// back-off allows.
pub(crate) fn fail_always(seed: u64) {
    let mut world = World::new(Setting::of(seed));
    create(&mut world, (0..5).map(|n| format!("m{n}")));
    world.set_faults(Faults::stormy(0.1));
    // A loop without any pause would stop the clock.
    let pass = |_, _, _| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Err("an error on purpose".into())
    };
    run(&mut world, Character { concurrency: 3, pass });
    world.run_for(SECOND * 300);
    // 5 ms, doubling: 300 s have 15 waits. Nothing changes, so a relist causes no event.
    for n in 0..5 {
        let n_passes = passes_of(&world, &format!("default/m{n}")).len();
        assert!((2..=17).contains(&n_passes), "{n_passes} passes over m{n}");
    }
    assert_eq!(world.journal().overlaps(), []);
}

#[test]
fn failures_are_retried_no_faster_than_the_back_off() {
    for seed in seeds(8) {
        let _replay = Replay::of(seed, "failures_are_retried_no_faster");
        fail_always(seed);
    }
}
