//! Relists of many objects: they share unchanged objects, and never hold a thread for long.
use crate::support::{Log, Running, builder, deleted, fails, internal, item, marker, pass, wait};
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint_informer::informer::OBJECTS_PER_POLL_MAX;
use setpoint_informer::reflector::EVENTS_PER_POLL_MAX;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::source::{ListPage, WatchFrame};
use setpoint_informer::{Event, HandlerOptions, Object};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

fn name(n: usize) -> String {
    format!("o{n:06}")
}

fn list(version: &str, objects: impl Iterator<Item = (usize, u64)>) -> Answer {
    let items = objects.map(|(n, version)| item(&name(n), version)).collect();
    Answer::List(Ok(ListPage::new(version, items)))
}

/// Breaks a watch, so that a relist follows.
fn broken_watch() -> Answer {
    Answer::Watch(vec![wait(100), fails(internal())])
}

/// The addresses of the cached bytes, by name.
fn places(running: &Running) -> BTreeMap<String, *const u8> {
    let place =
        |object: Object<ConfigMap>| (object.name().to_owned(), object.bytes().unwrap().as_ptr());
    running.informer.lister().snapshot().iter().map(place).collect()
}

/// Counts how many objects are copied: the transform is called with each copy.
fn counting(
    script: &Script,
) -> (setpoint_informer::SharedInformerBuilder<ConfigMap>, Arc<AtomicUsize>) {
    let copies = Arc::new(AtomicUsize::new(0));
    let count = copies.clone();
    let builder = builder(script).transform(move |object| {
        count.fetch_add(1, Relaxed);
        Ok(object)
    });
    (builder, copies)
}

#[tokio::test(start_paused = true)]
async fn a_relist_copies_only_changed_objects() {
    const N: usize = 1000;
    let changed = |n: usize| if n == 7 { 20 } else { 1 };
    let script = Script::new([
        list("10", (0..N).map(|n| (n, 1))),
        broken_watch(),
        list("11", (0..N).map(|n| (n, 1))),
        broken_watch(),
        list("20", (0..N).filter(|n| *n != 8).map(|n| (n, changed(n)))),
    ]);
    let (builder, copies) = counting(&script);
    let running = Running::start(builder);
    pass(50).await;
    assert_eq!(copies.load(Relaxed), N);
    let before = places(&running);
    pass(120).await;
    assert_eq!(&*running.informer.lister().resource_version(), "11");
    assert_eq!((places(&running), copies.load(Relaxed)), (before.clone(), N));
    pass(120).await;
    assert_eq!(&*running.informer.lister().resource_version(), "20");
    assert_eq!(copies.load(Relaxed), N + 1);
    let mut after = places(&running);
    assert_ne!(after.remove(&name(7)), before.get(&name(7)).copied());
    let expected = before.into_iter().filter(|(key, _)| *key != name(7) && *key != name(8));
    assert_eq!(after, expected.collect());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_relist_copies_only_changed_objects() {
    let added = |n: usize, version: u64| {
        let item = item(&name(n), version);
        let text = std::str::from_utf8(&item[1..]).unwrap();
        let whole = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{text}"#);
        Step::Frame(WatchFrame::Added(Bytes::from(whole)))
    };
    let stream = |version: u64, end: Vec<Step>| {
        let objects = (0..300).rev().map(|n| added(n, 1));
        Answer::Watch(objects.chain([marker(version)]).chain(end).collect())
    };
    let script = Script::streaming([
        stream(10, vec![wait(60), fails(internal())]),
        stream(11, vec![wait(1), deleted(&name(3), 12), Step::Hang]),
    ]);
    let (builder, copies) = counting(&script);
    let running = Running::start(builder);
    pass(50).await;
    let before = places(&running);
    assert_eq!((copies.load(Relaxed), before.len()), (300, 300));
    pass(60).await;
    // The deletion is an event, whose object is copied.
    assert_eq!(copies.load(Relaxed), 301);
    let expected = before.into_iter().filter(|(key, _)| *key != name(3));
    assert_eq!(places(&running), expected.collect());
    running.end().await;
}

/// The amount of work that the library did, by kind.
#[derive(Default)]
struct Work {
    transformed: AtomicUsize,
    indexed: AtomicUsize,
    handled: AtomicUsize,
    began: Notify,
}

impl Work {
    fn now(&self) -> [usize; 3] {
        [&self.transformed, &self.indexed, &self.handled].map(|count| count.load(Relaxed))
    }
}

/// Goes to the end of the queue of ready tasks.
async fn turn() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Other tasks run after a bounded number of objects at every step of a relist.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_during_a_large_relist() {
    const N: usize = 30_000;
    let gone = |n: &usize| n % 10 != 3;
    let script = Script::new([
        list("10", (0..N).map(|n| (n, 1))),
        broken_watch(),
        // Not in order, so that a part of it is inserted.
        list("20", (N / 2..N).chain(0..N / 2).filter(gone).map(|n| (n, 2))),
        Answer::Watch(vec![wait(1), deleted(&name(0), 21), Step::Hang]),
    ]);
    let work = Arc::new(Work::default());
    let (of_transform, of_index, of_handler) = (work.clone(), work.clone(), work.clone());
    let builder = builder(&script)
        .transform(move |object| {
            of_transform.transformed.fetch_add(1, Relaxed);
            of_transform.began.notify_one();
            Ok(object)
        })
        .object_index("first", move |object: &Object<ConfigMap>| {
            of_index.indexed.fetch_add(1, Relaxed);
            vec![object.name()[..4].to_owned()]
        });
    let folded = Arc::new(Mutex::new(BTreeMap::new()));
    let fold = folded.clone();
    let running = Running::start_with(builder, |informer| {
        let handler = move |event: Event<ConfigMap>| {
            of_handler.handled.fetch_add(1, Relaxed);
            let mut folded = fold.lock();
            match &event {
                Event::Deleted { tombstone } => _ = folded.remove(tombstone.key()),
                event => {
                    let version = event.object().unwrap().resource_version().to_owned();
                    folded.insert(event.key().clone(), version);
                }
            }
        };
        informer.add_handler(handler, HandlerOptions::default()).unwrap();
    });
    // A task on the same thread, which runs as often as possible during the relist.
    let lister = running.informer.lister();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut most, mut n_turns) = ([0; 3], 0);
        while &*lister.resource_version() != "21" {
            work.began.notified().await;
            let (mut before, mut n_idle) = (work.now(), 0);
            while n_idle < 1000 {
                turn().await;
                let now = work.now();
                for ((most, now), before) in most.iter_mut().zip(now).zip(before) {
                    *most = (*most).max(now - before);
                }
                let is_whole = matches!(lister.len(), 0 | 26_999 | 27_000 | N);
                assert!(is_whole, "half of a list: {}", lister.len());
                n_turns += 1;
                n_idle = if now == before { n_idle + 1 } else { 0 };
                before = now;
            }
        }
        (most, n_turns)
    });
    let ([transformed, indexed, handled], n_turns) = tasks.join_next().await.unwrap().unwrap();
    assert!(n_turns > 2 * N / OBJECTS_PER_POLL_MAX, "{n_turns}");
    // Each task may have a second poll between two turns, because it woke itself.
    assert!(transformed <= 2 * EVENTS_PER_POLL_MAX, "{transformed}");
    assert!(indexed <= 2 * OBJECTS_PER_POLL_MAX, "{indexed}");
    assert!(handled <= 2 * 128, "tokio's budget: {handled}");
    pass(10).await;
    let cached: BTreeMap<_, _> = running
        .informer
        .lister()
        .snapshot()
        .iter()
        .map(|object| (object.key().clone(), object.resource_version().to_owned()))
        .collect();
    assert_eq!(cached.len(), 26_999);
    assert_eq!(*folded.lock(), cached);
    let by_index = running.informer.lister().objects_by_index("first", "o000").unwrap();
    assert_eq!(by_index.len(), 899, "a tenth and one of a thousand were deleted");
    running.end().await;
}

/// The queue of a blocked handler joins two relists. The state between them had a second owner
/// while it was freed, so it was freed in one piece afterwards.
#[tokio::test(start_paused = true)]
async fn state_that_a_blocked_handler_skips_is_freed_in_slices() {
    const N: usize = 5_000;
    let named = |list: usize| (0..N).map(move |n| (list * N + n, 1));
    let script = Script::new([
        list("10", named(1)),
        broken_watch(),
        list("20", named(2)),
        broken_watch(),
        list("30", named(3)),
    ]);
    let (began, n_transformed) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let begins = began.clone();
    let builder = builder(&script).transform(move |object| {
        if n_transformed.fetch_add(1, Relaxed) == 2 * N {
            // The third list.
            begins.notify_one();
        }
        Ok(object)
    });
    struct Stuck(tokio::sync::watch::Receiver<bool>);
    impl setpoint_informer::Handler<ConfigMap> for Stuck {
        async fn handle(&mut self, _: Event<ConfigMap>) {
            self.0.wait_for(|released| *released).await.unwrap();
        }
    }
    let (release, released) = tokio::sync::watch::channel(false);
    let running = Running::start_with(builder, |informer| {
        informer.add_handler(Stuck(released), HandlerOptions::default()).unwrap();
    });
    let lister = running.informer.lister();
    while &*lister.resource_version() != "20" {
        pass(1).await;
    }
    let mut names: Vec<Weak<str>> =
        lister.snapshot().iter().map(|object| Arc::downgrade(&object.key().name)).collect();
    assert_eq!(names.len(), N);
    began.notified().await;
    // A task on the same thread, which runs as often as the one that frees.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut most, mut n_turns) = (0, 0);
        while !names.is_empty() && n_turns < 10_000 {
            turn().await;
            n_turns += 1;
            let n_before = names.len();
            names.retain(|name| name.strong_count() > 0);
            most = most.max(n_before - names.len());
        }
        (names.len(), most)
    });
    let (n_alive, most) = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(n_alive, 0, "freed");
    // Each task may have a second poll between two turns, because it woke itself.
    assert!(most <= 2 * OBJECTS_PER_POLL_MAX, "{most} objects in one poll");
    release.send_replace(true);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_added_during_a_relist_has_all_objects() {
    const N: usize = 2000;
    let script = Script::new([
        list("10", (0..N).map(|n| (n, 1))),
        broken_watch(),
        list("20", (0..N).map(|n| (n, 2))),
    ]);
    let running = Running::start(builder(&script));
    pass(50).await;
    let informer = running.informer.clone();
    let mut n_added = 0;
    // Adds an index in each of the first turns during the relist.
    while &*informer.lister().resource_version() != "20" {
        if n_added < 5 {
            informer
                .add_object_index(format!("i{n_added}"), |_: &Object<ConfigMap>| {
                    vec!["x".to_owned()]
                })
                .unwrap();
            n_added += 1;
        }
        match n_added < 5 {
            true => tokio::time::sleep(Duration::from_secs(20)).await,
            false => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    for n in 0..n_added {
        let objects = informer.lister().objects_by_index(&format!("i{n}"), "x").unwrap();
        assert_eq!(objects.len(), N);
        assert!(objects.iter().all(|object| object.resource_version() == "2"));
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn handler_blocked_across_relists_gets_the_difference() {
    let script = Script::new([
        list("10", [(1, 1), (2, 1)].into_iter()),
        broken_watch(),
        list("20", [(2, 2), (3, 2)].into_iter()),
        broken_watch(),
        list("30", [(3, 3), (4, 3)].into_iter()),
        broken_watch(),
        list("40", [(3, 3), (5, 4)].into_iter()),
    ]);
    let log = Log::default();
    let (release, released) = tokio::sync::watch::channel(false);
    struct Stuck(Log, tokio::sync::watch::Receiver<bool>);
    impl setpoint_informer::Handler<ConfigMap> for Stuck {
        async fn handle(&mut self, event: Event<ConfigMap>) {
            self.1.wait_for(|released| *released).await.unwrap();
            self.0.write(&event);
        }
    }
    let running = Running::start_with(builder(&script), |informer| {
        let stuck = Stuck(log.clone(), released);
        informer.add_handler(stuck, HandlerOptions::default()).unwrap();
    });
    pass(500).await;
    release.send_replace(true);
    pass(1).await;
    let (o1, o2, o3, o5) = (name(1), name(2), name(3), name(5));
    assert_eq!(
        log.take(),
        [
            // Taken from the queue before it was blocked.
            format!("+{o1}@1!"),
            format!("+{o2}@1!"),
            format!("-{o1}@1?"),
            format!("{o2}@1>{o2}@2"),
            format!("+{o3}@2"),
            // The later relists are merged into one.
            format!("-{o2}@2?"),
            format!("{o3}@2>{o3}@3"),
            format!("+{o5}@4"),
        ]
    );
    running.end().await;
}
