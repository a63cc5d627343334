//! Tests of the simulator itself: stalls, kills, partitions and counted polls.

use crate::harness::{Faults, Replay, Setting, World, map, maps, seeds};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn stalled_process_does_nothing_and_its_timers_are_due_when_it_resumes() {
    let mut world = World::new(Setting::of(1));
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = ticks.clone();
    let a = world.start("a", move |ground| async move {
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SECOND).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        ground.now()
    });
    world.run_for(SECOND * 3 + SECOND / 2);
    assert_eq!(ticks.load(Ordering::Relaxed), 3);
    world.stall(a.id());
    world.run_for(SECOND * 20);
    assert_eq!(ticks.load(Ordering::Relaxed), 3);
    assert_eq!(a.take_output(), None);
    world.resume(a.id());
    world.run_for(Duration::from_millis(10));
    assert_eq!(ticks.load(Ordering::Relaxed), 4, "one timer was due, however late");
    let woke = a.take_output().unwrap();
    assert!(woke >= SECOND * 23, "its clock went on: {woke:?}");
    assert!(world.has_ended(a.id()));
}

#[test]
fn killed_process_is_gone_with_its_tasks() {
    let mut world = World::new(Setting::of(1));
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = ticks.clone();
    let a = world.start("a", move |ground| async move {
        let _pass = ground.pass("c", &"k");
        loop {
            tokio::time::sleep(SECOND).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    world.run_for(SECOND * 2 + SECOND / 2);
    assert_eq!(world.n_tasks(a.id()), 1);
    world.kill(a.id());
    world.run_for(SECOND * 5);
    assert_eq!(ticks.load(Ordering::Relaxed), 2);
    assert_eq!(world.journal().passes()[0].ended, Some(SECOND * 2 + SECOND / 2));
}

#[test]
fn overlapping_passes_are_detected_and_stalled_ones_are_distinguished() {
    let mut world = World::new(Setting::of(1));
    let held = |world: &mut World, who: &str, from: u64, to: u64| {
        let process = world.start(who, move |ground| async move {
            tokio::time::sleep(SECOND * u32::try_from(from).unwrap()).await;
            let _pass = ground.pass("c", &"k");
            tokio::time::sleep(SECOND * u32::try_from(to - from).unwrap()).await;
        });
        process.id()
    };
    let a = held(&mut world, "a", 1, 3);
    held(&mut world, "b", 3, 5);
    world.run_for(SECOND * 4);
    assert_eq!(world.journal().overlaps(), [], "one after the other");
    held(&mut world, "d", 0, 3);
    world.run_for(SECOND * 4);
    assert_eq!(world.journal().overlaps().len(), 1, "b and d");
    assert_eq!(world.journal().overlaps_awake().len(), 1);

    world.kill(a);
    let e = held(&mut world, "e", 1, 3);
    world.run_for(SECOND * 2);
    world.stall(e);
    held(&mut world, "f", 1, 2);
    world.run_for(SECOND * 3);
    world.resume(e);
    world.run_for(SECOND);
    assert_eq!(world.journal().overlaps().len(), 2, "e and f");
    assert_eq!(world.journal().overlaps_awake().len(), 1, "e did nothing beside f");
}

#[test]
fn polls_are_counted_one_by_one() {
    let mut world = World::new(Setting::of(1));
    let polled = Arc::new(AtomicU64::new(0));
    let counted = polled.clone();
    let a = world.start("a", move |_| async move {
        for _ in 0..5 {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(SECOND).await;
        counted.fetch_add(1, Ordering::Relaxed);
    });
    for n in 1..=3 {
        assert!(world.creep(a.id(), 1, SECOND * 5));
        assert_eq!(polled.load(Ordering::Relaxed), n);
    }
    assert!(world.creep(a.id(), 3, SECOND * 5));
    assert_eq!(polled.load(Ordering::Relaxed), 5);
    assert_eq!(world.now(), Duration::ZERO);
    assert!(world.creep(a.id(), 1, SECOND * 5), "the end is a poll");
    assert_eq!(polled.load(Ordering::Relaxed), 6);
    assert_eq!(world.now(), SECOND);
    assert!(!world.creep(a.id(), 1, SECOND * 5), "there is nothing more");
}

#[test]
fn partition_loses_packets_in_flight_and_ends() {
    let mut world = World::new(Setting::of(1));
    let a = world.start("a", |ground| async move {
        let client = ground.client();
        let mut answers = Vec::new();
        for _ in 0..4 {
            tokio::time::sleep(SECOND * 2).await;
            let answer = client.apiserver_version().await;
            answers.push((answer.is_ok(), ground.now().as_secs()));
        }
        answers
    });
    world.run_for(SECOND * 3);
    world.cut_off(a.id());
    world.run_for(SECOND * 20);
    world.heal(a.id());
    world.run_until("it has ended", SECOND * 60, |world| world.has_ended(a.id()));
    assert_eq!(a.take_output().unwrap(), [(true, 2), (false, 24), (true, 26), (true, 28)]);
}

#[test]
fn same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut world = World::new(Setting::of(seed));
        world.set_faults(Faults::stormy(0.2));
        for name in ["a", "b", "c"] {
            world.start(name, move |ground| async move {
                let client = ground.client();
                let object = map(name, &json!({}));
                for _ in 0..30 {
                    let request = http::Request::post(maps("default", ""))
                        .body(object.to_string().into_bytes())
                        .unwrap();
                    let _ = client.request::<serde_json::Value>(request).await;
                    tokio::time::sleep(Duration::from_millis(70)).await;
                }
            });
        }
        world.run_for(SECOND * 60);
        assert_eq!(
            world.ask(|person| async move { person.list(&maps("default", "")).await }).len(),
            3
        );
        (world.journal().render(), world.tally())
    };
    for seed in seeds(5) {
        let _replay = Replay::of(seed, "same_seed");
        let first = run(seed);
        assert_eq!(first, run(seed));
        assert_ne!(first, run(seed + 1));
    }
}
