//! Reads of own writes (IDX-10, spec §8 and §10).
use crate::support::*;
use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_informer::source::ListPage;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{AtLeastError, Key, Lister, SharedInformer, Stopped};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn is_waiting(lister: &Lister<ConfigMap>, version: &str) -> bool {
    lister.at_least(version).now_or_never().is_none()
}

#[tokio::test(start_paused = true)]
async fn idx_10_read_waits_exactly_until_the_version_of_a_write() {
    let script = Script::new([
        page("98", &[("a", 3)]),
        Answer::Watch(vec![
            wait(10),
            modified("a", 99),
            wait(10),
            bookmark(105),
            wait(10),
            deleted("a", 1100),
            Step::Hang,
        ]),
    ]);
    let running = Running::start(builder(&script));
    let lister = running.informer.lister();
    let start = Instant::now();
    // Waits for late and early versions, several for one version, in any order.
    let waits = ["1100", "99", "98", "1", "105", "99", "1099", "100"].map(|version| {
        let lister = lister.clone();
        async move {
            lister.at_least(version).await.unwrap();
            (version, start.elapsed().as_secs())
        }
    });
    let at = join_all(waits).await;
    let want = [
        ("1100", 30),
        ("99", 10),
        ("98", 0),
        ("1", 0),
        ("105", 20),
        ("99", 10),
        ("1099", 30),
        ("100", 20),
    ];
    assert_eq!(at, want, "length counts before digits");
    assert!(lister.get("ns", "a").unwrap().is_none());
    assert!(is_waiting(&lister, "1101"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn idx_10_wait_for_one_object_ends_with_its_deletion() {
    let script = Script::new([
        page("5", &[("a", 3)]),
        Answer::Watch(vec![wait(10), modified("b", 8), wait(10), deleted("a", 12), Step::Hang]),
    ]);
    let running = Running::start(builder(&script));
    let lister = running.informer.lister();
    let start = Instant::now();
    let at = |name: &'static str, version: &'static str| {
        let lister = lister.clone();
        async move {
            lister.at_least_for(&key(name), version).await.unwrap();
            start.elapsed().as_secs()
        }
    };
    let at = join_all([at("a", "3"), at("b", "8"), at("a", "10"), at("zz", "7")]).await;
    assert_eq!(at, [0, 10, 20, 10]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_21_versions_of_replayed_additions_are_not_the_version_of_the_cache() {
    // A list without a version: the watch without a version replays the existing objects.
    let script = Script::new([
        page("", &[]),
        Answer::Watch(vec![added("a", 9), added("b", 4), wait(10), added("c", 11), wait(10)]),
        Answer::Watch(vec![
            added("d", 20),
            wait(10),
            modified("b", 12),
            added("e", 21),
            Step::Hang,
        ]),
    ]);
    let running = Running::start(builder(&script));
    pass(1).await;
    let lister = running.informer.lister();
    assert_eq!((running.cache().len(), &*lister.resource_version()), (2, ""));
    assert!(is_waiting(&lister, "4"), "other objects at version 4 may be missing");
    let start = Instant::now();
    lister.at_least_for(&key("a"), "9").await.unwrap();
    lister.at_least_for(&key("c"), "10").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 9, "the version of a single object is reliable");
    pass(15).await;
    assert_eq!((running.cache().len(), &*lister.resource_version()), (4, ""));
    lister.at_least("12").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 29);
    settle().await;
    assert_eq!(
        &*lister.resource_version(),
        "21",
        "from the first change on, versions are in order"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn relist_sets_the_version_even_to_an_older_one() {
    let script = Script::new([
        page("50", &[]),
        Answer::Watch(vec![wait(10), fails(expired())]),
        no_list(expired()),
        page("40", &[]),
        Answer::Watch(vec![wait(10), fails(expired())]),
        page("60", &[]),
    ]);
    let running = Running::start(builder(&script));
    let lister = running.informer.lister();
    lister.at_least("50").await.unwrap();
    pass(15).await;
    assert_eq!(&*lister.resource_version(), "40", "a server that was restored from a backup");
    assert!(is_waiting(&lister, "50"));
    lister.at_least("50").await.unwrap();
    assert_eq!(&*lister.resource_version(), "60");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn unordered_versions_are_errors_and_a_dropped_wait_is_removed() {
    let script = Script::new([page("5", &[])]);
    let running = Running::start(builder(&script));
    let lister = running.informer.lister();
    for bad in ["", "0", "v7", "-1", "007"] {
        let error = lister.at_least(bad).await.unwrap_err();
        assert_eq!(error, AtLeastError::Unordered(bad.to_owned()));
    }
    for _ in 0..100 {
        assert!(is_waiting(&lister, "6"));
    }
    let mut waits = JoinSet::new();
    for _ in 0..3 {
        let lister = lister.clone();
        waits.spawn(async move { lister.at_least("6").await });
    }
    settle().await;
    running.end().await;
    while let Some(waited) = waits.join_next().await {
        assert_eq!(waited.unwrap(), Err(AtLeastError::Stopped(Stopped)));
    }
    assert_eq!(lister.at_least("6").await, Err(AtLeastError::Stopped(Stopped)));
    lister.at_least("5").await.unwrap();

    let script = Script::new([Answer::List(Ok(ListPage::new("rev-5", vec![])))]);
    let running = Running::start(builder(&script));
    let lister = running.informer.lister();
    let incomparable = Err(AtLeastError::Incomparable("rev-5".to_owned()));
    assert_eq!(lister.at_least("6").await, incomparable, "the wait fails when the version arrives");
    assert_eq!(lister.at_least("6").await, incomparable, "a later wait fails at once");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_waiter_misses_a_version_on_any_thread() {
    let events = (10..2000).map(|version| modified("a", version)).chain([Step::Hang]).collect();
    let script = Script::new([page("5", &[]), Answer::Watch(events)]);
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(script).seed(0).build();
    let stop = CancellationToken::new();
    let (mut run, mut waits) = (JoinSet::new(), JoinSet::new());
    for version in (1..2000).rev() {
        let (lister, informer) = (informer.lister(), informer.clone());
        waits.spawn(async move {
            if version % 3 == 0 {
                informer.synced().await.unwrap();
            }
            let version = version.to_string();
            match version.len() % 2 {
                0 => lister.at_least(&version).await.unwrap(),
                _ => lister.at_least_for(&key("a"), &version).await.unwrap(),
            }
        });
    }
    run.spawn(worker.run(stop.clone()));
    while let Some(waited) = waits.join_next().await {
        waited.unwrap();
    }
    stop.cancel();
    run.join_next().await.unwrap().unwrap();
}
