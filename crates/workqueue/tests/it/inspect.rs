//! Inspection of keys (MET-6).

use std::time::Duration;

use setpoint_workqueue::{ADDS_MAX, AddOptions, OwnedItem, Phase, Priorities, Tag, WorkQueue};

/// MET-6.
#[tokio::test(start_paused = true)]
async fn each_key_shows_its_phase_age_due_time_and_attempts() {
    let queue = WorkQueue::builder().priorities(Priorities::Strict).ages(true).build();
    let ms = Duration::from_millis;
    for key in ["held", "returning", "dirty"] {
        queue.add(key);
    }
    let held: Vec<_> = (0..3).map(|_| queue.try_get().unwrap()).collect();
    tokio::time::advance(ms(2)).await;
    queue.add_after("returning", ms(10));
    queue.add("dirty");
    queue.add_rate_limited("waiting");
    queue.add_with("queued", AddOptions::default().priority(3));
    tokio::time::advance(ms(1)).await;

    let seen = |key| {
        let entry = queue.entry(&key).unwrap();
        (entry.phase, entry.age, entry.due_in, entry.priority, entry.requeues)
    };
    assert_eq!(seen("held"), (Phase::InFlight, Some(ms(3)), None, 0, 0));
    assert_eq!(seen("returning"), (Phase::Returning, Some(ms(3)), Some(ms(9)), 0, 0));
    assert_eq!(seen("dirty"), (Phase::Dirty, Some(ms(3)), None, 0, 0));
    assert_eq!(seen("waiting"), (Phase::Waiting, Some(ms(1)), Some(ms(4)), 0, 1));
    assert_eq!(seen("queued"), (Phase::Queued, Some(ms(1)), None, 3, 0));
    assert_eq!(queue.entry(&"unknown"), None);

    assert_eq!(queue.entries(2).len(), 2);
    let mut keys: Vec<_> = queue.entries(10).into_iter().map(|entry| entry.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["dirty", "held", "queued", "returning", "waiting"]);

    drop(held);
    assert_eq!(seen("returning"), (Phase::Waiting, Some(ms(1)), Some(ms(9)), 0, 0));
    assert_eq!(seen("dirty"), (Phase::Queued, Some(ms(1)), None, 0, 0));
    assert_eq!(queue.entry(&"held"), None, "a key that is done is absent");
    assert_eq!(queue.entries(10).len(), 4);
}

/// A hand-out has its tag, its number of adds, and how long the first of them waited.
#[tokio::test(start_paused = true)]
async fn hand_out_has_its_tag_its_adds_and_its_wait() {
    let queue = WorkQueue::builder().ages(true).build();
    let ms = Duration::from_millis;
    let plain = AddOptions::default();
    let seen = |item: &OwnedItem<&str>| (item.tag(), item.n_adds(), item.waited());

    queue.add("a");
    queue.add_with("a", plain.tag(Tag(1, 2)));
    queue.add_with("a", plain.tag(Tag(3, 0)));
    tokio::time::advance(ms(4)).await;
    let item = queue.try_get().unwrap();
    assert_eq!(item.tag_and_waited(), (Tag(1, 2), Some(ms(4))));
    let item = item.into_owned();
    assert_eq!(seen(&item), (Tag(1, 2), 3, Some(ms(4))), "the first tag");
    assert_eq!(queue.entry(&"a").unwrap().tag, Tag(1, 2));

    // While the key is held, the next hand-out begins. A plain add replaces the timer it consumes.
    queue.add_with("a", plain.after(ms(10)).tag(Tag(4, 0)));
    queue.add_with("a", plain.after(ms(20)).tag(Tag(5, 0)));
    assert_eq!(seen(&item).0, Tag(1, 2));
    item.done();
    assert_eq!(queue.entry(&"a").unwrap().tag, Tag(4, 0), "the later due time decides nothing");
    queue.add_with("a", plain.tag(Tag(6, 0)));
    let item = queue.try_get().unwrap().into_owned();
    assert_eq!(seen(&item), (Tag(6, 0), 3, Some(ms(0))));

    // A cancelled delay leaves no trace.
    queue.add_with("a", plain.after(ms(10)).tag(Tag(7, 0)));
    assert!(queue.cancel_delayed(&"a"));
    queue.add("a");
    item.done();
    let item = queue.try_get().unwrap().into_owned();
    assert_eq!(seen(&item), (Tag::NONE, 1, Some(ms(0))));

    for _ in 0..=ADDS_MAX {
        queue.add("b");
    }
    assert_eq!(queue.try_get().unwrap().n_adds(), ADDS_MAX);
}

/// MET-6: ages are recorded only on request.
#[tokio::test(start_paused = true)]
async fn ages_are_none_unless_turned_on() {
    let queue = WorkQueue::builder().build();
    queue.add("a");
    assert_eq!(queue.entry(&"a").unwrap().age, None);
    assert_eq!(queue.stats().oldest_queued, Duration::ZERO);
}

/// Keys that are done stay in the table for a while, invisibly.
#[tokio::test]
async fn many_keys_come_and_go_in_order() {
    let queue = WorkQueue::builder().build();
    for round in 0..4_u32 {
        // Some keys of the round before, and some new ones.
        let keys = || round * 2_500..round * 2_500 + 5_000;
        keys().for_each(|key| queue.add(key));
        for key in keys() {
            let item = queue.try_get().unwrap();
            assert_eq!(*item.key(), key);
            if key % 3 == 0 {
                queue.add(key);
            }
        }
        for key in keys().filter(|key| key % 3 == 0) {
            assert_eq!(*queue.try_get().unwrap().key(), key);
        }
        assert!(queue.try_get().is_none() && queue.entries(1).is_empty());
        assert_eq!(queue.stats(), setpoint_workqueue::Stats::default());
    }
}
