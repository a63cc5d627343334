//! One controller on several replicas: each key has one owner, and moves only if it must.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Action, BoxError, Clock, Context, Controller, ControllerHandle, Manager, Request, ShardOptions,
    Sharded, Watch,
    shard::{ShardView, owner},
};
use tokio::time::Instant;

use crate::{
    link::Link,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, config_map, pass},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECOND: Duration = Duration::from_secs(1);

/// Which replica started a pass over which key, when, and whether it has ended.
type Passes = Arc<Mutex<Vec<(String, String, Instant, Option<Instant>)>>>;

struct Replica {
    name: String,
    running: Running,
    handle: ControllerHandle,
    view: ShardView,
    link: Link,
}

#[tokio::test(start_paused = true)]
async fn failures_of_keys_that_another_replica_has_taken_over_are_forgotten() {
    let server = world().0;
    let start = |name: &str| {
        let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
        let mut manager = Manager::builder(server.client()).clock(clock).seed(1).build();
        let sharded = Sharded::new(ShardOptions::new("config", name).namespace("default"));
        let sharded = sharded.unwrap();
        let view = sharded.view();
        let fails = async |_: Request, _: Context| Err::<Action, BoxError>("always".into());
        let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
        let controller = controller.sharded(sharded).build(fails).unwrap();
        let queue = controller.queue();
        manager.add(controller).unwrap();
        (Running::start(manager), view, queue)
    };
    let (first, _, queue) = start("a");
    pass(5 * SECOND).await;
    let failing = || {
        let key = |n| Request::new("default", format!("map-{n}"));
        (0..60).filter(|n| queue.num_requeues(&key(*n)) > 0).count()
    };
    assert_eq!(failing(), 60);
    let (second, view, _) = start("b");
    // Longer than the longest back-off.
    pass(2000 * SECOND).await;
    let taken = keys().iter().filter(|key| view.owns(key)).count();
    assert!(taken > 0);
    assert_eq!(failing(), 60 - taken);
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// A replica whose passes take this long.
fn start(server: &Server, name: &str, passes: &Passes, length: Duration) -> Replica {
    let link = Link::new(server, 1);
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let mut manager = Manager::builder(link.client()).clock(clock).seed(1).build();
    let sharded = Sharded::new(ShardOptions::new("config", name).namespace("default")).unwrap();
    let view = sharded.view();
    let reconcile = {
        let (passes, name) = (passes.clone(), name.to_owned());
        move |request: Request, _: Context| {
            let (passes, name) = (passes.clone(), name.clone());
            async move {
                let number = {
                    let mut passes = passes.lock();
                    passes.push((name, request.to_string(), Instant::now(), None));
                    passes.len() - 1
                };
                let _end = Noted { passes, number };
                pass(length).await;
                Ok::<_, BoxError>(Action::await_change())
            }
        }
    };
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .concurrency(4)
        .sharded(sharded)
        .build(reconcile)
        .unwrap();
    let handle = manager.add(controller).unwrap();
    Replica { name: name.to_owned(), running: Running::start(manager), handle, view, link }
}

struct Noted {
    passes: Passes,
    number: usize,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.passes.lock()[self.number].3 = Some(Instant::now());
    }
}

fn keys() -> Vec<String> {
    (0..60).map(|n| format!("default/map-{n}")).collect()
}

fn world() -> (Server, Passes) {
    let server = Server::new(&[CONFIG_MAPS, EVENTS, LEASES]);
    for n in 0..60 {
        server.put(MAPS, config_map(&format!("map-{n}")));
    }
    (server, Passes::default())
}

/// The owner of each key according to the replicas: exactly one.
fn owners(replicas: &[&Replica]) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for key in keys() {
        let of: Vec<_> = replicas.iter().filter(|replica| replica.view.owns(&key)).collect();
        assert_eq!(of.len(), 1, "{key}");
        owners.insert(key, of[0].name.clone());
    }
    owners
}

/// Checks that no two passes over a key overlap; returns which replicas started passes since
/// `since`.
fn begun(passes: &Passes, since: Instant) -> BTreeSet<(String, String)> {
    let passes = passes.lock();
    for (at, (who, key, began, ended)) in passes.iter().enumerate() {
        for (other, _, later, _) in passes[at + 1..].iter().filter(|(_, of, ..)| of == key) {
            assert!(
                ended.is_some_and(|ended| ended <= *later),
                "{key}: {other} began at {later:?} while {who} was at it from {began:?} to {ended:?}"
            );
        }
    }
    let recent = passes.iter().filter(|(.., began, _)| *began >= since);
    recent.map(|(who, key, ..)| (who.clone(), key.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn join_leave_and_crash_move_only_the_keys_they_must() {
    let (server, passes) = world();
    let a = start(&server, "a", &passes, SECOND / 10);
    pass(5 * SECOND).await;
    assert_eq!(begun(&passes, Instant::now() - 5 * SECOND).len(), 60, "one replica owns all");

    // Two join.
    let joined = Instant::now();
    let b = start(&server, "b", &passes, SECOND / 10);
    let c = start(&server, "c", &passes, SECOND / 10);
    pass(5 * SECOND).await;
    let of_three = owners(&[&a, &b, &c]);
    for (key, of) in &of_three {
        assert_eq!(owner(["a", "b", "c"], key), Some(of.as_str()));
    }
    let moved: BTreeSet<_> = begun(&passes, joined);
    assert!(moved.iter().all(|(who, _)| who != "a"), "what stayed was not touched: {moved:?}");
    for (key, of) in of_three.iter().filter(|(_, of)| *of != "a") {
        assert!(moved.contains(&(of.clone(), key.clone())), "{key} was not queued by {of}");
    }
    assert_eq!(a.view.members().len(), 3);

    // One leaves: at once.
    let left = Instant::now();
    b.running.stop().await.unwrap();
    pass(SECOND).await;
    let of_two = owners(&[&a, &c]);
    let moved = begun(&passes, left);
    for (key, of) in &of_two {
        let has_moved = of_three[key] != *of;
        assert_eq!(has_moved, of_three[key] == "b");
        assert_eq!(moved.contains(&(of.clone(), key.clone())), has_moved);
    }

    // One crashes: its keys have no owner for a lease duration.
    let crashed = Instant::now();
    drop(c.running);
    pass(10 * SECOND).await;
    assert_eq!(begun(&passes, crashed), BTreeSet::new());
    pass(10 * SECOND).await;
    let moved = begun(&passes, crashed);
    let had_c = of_two.iter().filter(|(_, of)| *of == "c");
    assert_eq!(moved, had_c.map(|(key, _)| ("a".to_owned(), key.clone())).collect());
    owners(&[&a]);
    assert_eq!(server.list(LEASES).len(), 1, "the dead one's Lease is gone");
    assert!(a.handle.stats().not_ours > 0);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_being_reconciled_move_when_their_passes_have_ended() {
    let (server, passes) = world();
    let a = start(&server, "a", &passes, 30 * SECOND);
    pass(5 * SECOND).await;
    let joined = Instant::now();
    let b = start(&server, "b", &passes, SECOND);
    pass(10 * SECOND).await;
    let running = begun(&passes, joined);
    assert!(running.iter().all(|(who, _)| who != "b"), "a has not let go of its keys: {running:?}");
    assert!(!a.view.is_settled());
    pass(600 * SECOND).await;
    owners(&[&a, &b]);
    begun(&passes, joined);
}

#[tokio::test(start_paused = true)]
async fn replica_that_is_cut_off_stops_before_its_keys_move_and_then_rejoins() {
    let (server, passes) = world();
    let a = start(&server, "a", &passes, 3 * SECOND);
    let b = start(&server, "b", &passes, 3 * SECOND);
    pass(60 * SECOND).await;
    let before = owners(&[&a, &b]);
    let cut = Instant::now();
    b.link.cut(true);
    pass(7 * SECOND).await;
    assert_eq!(owners(&[&a, &b]), before, "a short one is nothing");
    pass(2 * SECOND).await;
    pass(2 * SECOND).await;
    assert!(before.keys().all(|key| !b.view.owns(key)), "its deadline has passed");
    assert!(before.iter().all(|(key, of)| of != "b" || !a.view.owns(key)), "not yet");
    pass(10 * SECOND).await;
    owners(&[&a]);
    b.link.cut(false);
    pass(60 * SECOND).await;
    assert_eq!(owners(&[&a, &b]), before);
    begun(&passes, cut);
}

#[tokio::test(start_paused = true)]
async fn deletion_that_a_crashed_owner_did_not_handle_reaches_the_next_owner() {
    let (server, passes) = world();
    let a = start(&server, "a", &passes, SECOND / 100);
    let b = start(&server, "b", &passes, SECOND / 100);
    pass(10 * SECOND).await;
    let of_b = owners(&[&a, &b]).into_iter().find(|(_, of)| of == "b").unwrap().0;
    drop(b.running);
    let crashed = Instant::now();
    server.delete(&format!("{MAPS}/{}", of_b.split_once('/').unwrap().1));
    pass(30 * SECOND).await;
    assert!(begun(&passes, crashed).contains(&("a".to_owned(), of_b)));
}

#[test]
fn group_without_a_name_is_an_error_about_the_group() {
    let refused = Sharded::new(ShardOptions::new("", "a").namespace("default")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        r#"the group "" must be 1 to 46 lower-case letters, digits and '-' between them"#
    );
}
