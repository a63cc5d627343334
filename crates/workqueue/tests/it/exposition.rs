//! Metrics as text: section 6 of the rules.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use setpoint_workqueue::{
    AddOptions, Priorities, WorkQueue,
    metrics::{Exposed, Recorder, exposition},
};

fn exposed<'a>(name: &'a str, recorder: &'a Recorder, queue: &WorkQueue<u32>) -> Exposed<'a> {
    Exposed { name, recorder, stats: queue.stats(), levels: queue.levels() }
}

/// The lines without comments, and without zeros of histograms.
fn lines(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Names and labels as in client-go; current ages; families that client-go lacks (MET-6).
#[tokio::test(start_paused = true)]
async fn families_have_the_names_of_client_go() {
    let recorders = [Arc::new(Recorder::new()), Arc::new(Recorder::new())];
    let plain = WorkQueue::builder().metrics(recorders[0].clone()).build();
    let strict =
        WorkQueue::builder().priorities(Priorities::Strict).metrics(recorders[1].clone()).build();
    plain.add(1);
    plain.add(1);
    plain.add_after(2, Duration::from_secs(60));
    plain.add_after(3, Duration::ZERO);
    strict.add_with(1, AddOptions::default().priority(-100));
    strict.add(2);
    strict.add_after(3, Duration::ZERO);
    tokio::time::advance(Duration::from_millis(200)).await;
    let held = (plain.try_get().unwrap(), strict.try_get().unwrap());
    plain.add(1);
    strict.add(2);
    tokio::time::advance(Duration::from_secs(3)).await;
    drop(held.1);

    let text = exposition(&[
        exposed("a\"b\\c", &recorders[0], &plain),
        exposed("strict", &recorders[1], &strict),
    ]);
    expect![[r#"
        workqueue_depth{name="a\"b\\c",controller="a\"b\\c",priority=""} 2
        workqueue_depth{name="strict",controller="strict",priority="0"} 2
        workqueue_depth{name="strict",controller="strict",priority="-100"} 1
    "#]]
    .assert_eq(&(lines(&text).lines().take(3).collect::<Vec<_>>().join("\n") + "\n"));
    expect![[r#"
        workqueue_depth{name="a\"b\\c",controller="a\"b\\c",priority=""} 2
        workqueue_depth{name="strict",controller="strict",priority="0"} 2
        workqueue_depth{name="strict",controller="strict",priority="-100"} 1
        workqueue_adds_total{name="a\"b\\c",controller="a\"b\\c"} 3
        workqueue_adds_total{name="strict",controller="strict"} 4
        workqueue_queue_duration_seconds_bucket{name="a\"b\\c",controller="a\"b\\c",le="1"} 1
        workqueue_queue_duration_seconds_bucket{name="a\"b\\c",controller="a\"b\\c",le="10"} 1
        workqueue_queue_duration_seconds_bucket{name="a\"b\\c",controller="a\"b\\c",le="100"} 1
        workqueue_queue_duration_seconds_bucket{name="a\"b\\c",controller="a\"b\\c",le="1000"} 1
        workqueue_queue_duration_seconds_bucket{name="a\"b\\c",controller="a\"b\\c",le="+Inf"} 1
        workqueue_queue_duration_seconds_sum{name="a\"b\\c",controller="a\"b\\c"} 0.2
        workqueue_queue_duration_seconds_count{name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{name="strict",controller="strict",le="1"} 1
        workqueue_queue_duration_seconds_bucket{name="strict",controller="strict",le="10"} 1
        workqueue_queue_duration_seconds_bucket{name="strict",controller="strict",le="100"} 1
        workqueue_queue_duration_seconds_bucket{name="strict",controller="strict",le="1000"} 1
        workqueue_queue_duration_seconds_bucket{name="strict",controller="strict",le="+Inf"} 1
        workqueue_queue_duration_seconds_sum{name="strict",controller="strict"} 0.2
        workqueue_queue_duration_seconds_count{name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_bucket{name="strict",controller="strict",le="10"} 1
        workqueue_work_duration_seconds_bucket{name="strict",controller="strict",le="100"} 1
        workqueue_work_duration_seconds_bucket{name="strict",controller="strict",le="1000"} 1
        workqueue_work_duration_seconds_bucket{name="strict",controller="strict",le="+Inf"} 1
        workqueue_work_duration_seconds_sum{name="strict",controller="strict"} 3
        workqueue_work_duration_seconds_count{name="strict",controller="strict"} 1
        workqueue_unfinished_work_seconds{name="a\"b\\c",controller="a\"b\\c"} 3
        workqueue_longest_running_processor_seconds{name="a\"b\\c",controller="a\"b\\c"} 3
        workqueue_retries_total{name="a\"b\\c",controller="a\"b\\c"} 2
        workqueue_waiting{name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_oldest_ready_seconds{name="a\"b\\c",controller="a\"b\\c",priority=""} 3.2
        workqueue_oldest_ready_seconds{name="strict",controller="strict",priority="0"} 3.2
        workqueue_oldest_ready_seconds{name="strict",controller="strict",priority="-100"} 3.2"#]]
    .assert_eq(&lines(&text));
}

/// MET-1: each bound is ten times the one before, from 10 ns to 1000 s. A bound belongs to its
/// bucket.
#[test]
fn buckets_are_those_of_client_go() {
    let bounds = setpoint_workqueue::metrics::BUCKETS;
    assert_eq!(
        bounds.map(|bound| bound.as_nanos()),
        std::array::from_fn(|n| 10_u128.pow(n as u32 + 1))
    );
}

/// MET-3: more than 25 priorities lose their labels for good. MET-4 and property 16: the sum stays
/// right.
#[test]
fn too_many_priorities_lose_their_labels() {
    let recorder = Arc::new(Recorder::new());
    let queue =
        WorkQueue::builder().priorities(Priorities::Strict).metrics(recorder.clone()).build();
    let depth = |queue: &WorkQueue<u32>| {
        let text = exposition(&[exposed("q", &recorder, queue)]);
        let depth = text.lines().filter(|line| line.starts_with("workqueue_depth"));
        depth.map(str::to_owned).collect::<Vec<_>>()
    };
    (0..25).for_each(|key| queue.add_with(key, AddOptions::default().priority(key as i32)));
    assert_eq!(depth(&queue).len(), 25);
    queue.add_with(3, AddOptions::default().priority(7));
    assert_eq!(depth(&queue).len(), 24, "a raised key moved from one level to the other");
    queue.add_with(25, AddOptions::default().priority(25));
    let exceeded = |n| {
        [format!(
            "workqueue_depth{{name=\"q\",controller=\"q\",priority=\"exceeded_cardinality_limit\"}} {n}"
        )]
    };
    assert_eq!(depth(&queue), exceeded(26));
    while queue.try_get().is_some() {}
    assert_eq!(depth(&queue), exceeded(0));
}
