//! Metrics of queues without a controller, as text (work queue, section 6).

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use setpoint_runtime::metrics::{Metrics, QueueCollector, QueueMetrics};
use setpoint_workqueue::{AddOptions, Priorities, WorkQueue, metrics::Recorder};

type Queue = (&'static str, Arc<Recorder>, WorkQueue<u32>);

/// The metrics of queues as text.
fn exposition(queues: Vec<Queue>) -> Metrics {
    let metrics = Metrics::new();
    let collector = QueueCollector::new(move || {
        let queues = queues.iter().map(|(name, recorder, queue)| QueueMetrics {
            name: (*name).into(),
            recorder: recorder.clone(),
            stats: queue.stats(),
            levels: queue.levels(),
        });
        queues.collect()
    });
    metrics.update(|registry| registry.register_collector(Box::new(collector)));
    metrics
}

/// The lines without comments, and without zeros of histograms.
fn lines(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.ends_with(" 0.0"));
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

    let [of_plain, of_strict] = recorders;
    let queues = vec![("a\"b\\c", of_plain, plain.clone()), ("strict", of_strict, strict.clone())];
    let text = exposition(queues).prometheus();
    expect![[r#"
        workqueue_depth{name="a\"b\\c",controller="a\"b\\c",priority=""} 2
        workqueue_depth{name="strict",controller="strict",priority="0"} 2
        workqueue_depth{name="strict",controller="strict",priority="-100"} 1
        workqueue_adds_total{name="a\"b\\c",controller="a\"b\\c"} 3
        workqueue_adds_total{name="strict",controller="strict"} 4
        workqueue_queue_duration_seconds_sum{name="a\"b\\c",controller="a\"b\\c"} 0.2
        workqueue_queue_duration_seconds_count{name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{le="1.0",name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{le="10.0",name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{le="100.0",name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{le="1000.0",name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_bucket{le="+Inf",name="a\"b\\c",controller="a\"b\\c"} 1
        workqueue_queue_duration_seconds_sum{name="strict",controller="strict"} 0.2
        workqueue_queue_duration_seconds_count{name="strict",controller="strict"} 1
        workqueue_queue_duration_seconds_bucket{le="1.0",name="strict",controller="strict"} 1
        workqueue_queue_duration_seconds_bucket{le="10.0",name="strict",controller="strict"} 1
        workqueue_queue_duration_seconds_bucket{le="100.0",name="strict",controller="strict"} 1
        workqueue_queue_duration_seconds_bucket{le="1000.0",name="strict",controller="strict"} 1
        workqueue_queue_duration_seconds_bucket{le="+Inf",name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_sum{name="strict",controller="strict"} 3.0
        workqueue_work_duration_seconds_count{name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_bucket{le="10.0",name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_bucket{le="100.0",name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_bucket{le="1000.0",name="strict",controller="strict"} 1
        workqueue_work_duration_seconds_bucket{le="+Inf",name="strict",controller="strict"} 1
        workqueue_retries_total{name="a\"b\\c",controller="a\"b\\c"} 2
        workqueue_unfinished_work_seconds{name="a\"b\\c",controller="a\"b\\c"} 3.0
        workqueue_longest_running_processor_seconds{name="a\"b\\c",controller="a\"b\\c"} 3.0
        workqueue_waiting{name="a\"b\\c",controller="a\"b\\c"} 1.0
        workqueue_oldest_ready_seconds{name="a\"b\\c",controller="a\"b\\c",priority=""} 3.2
        workqueue_oldest_ready_seconds{name="strict",controller="strict",priority="0"} 3.2
        workqueue_oldest_ready_seconds{name="strict",controller="strict",priority="-100"} 3.2"#]]
    .assert_eq(&lines(&text));
}

/// MET-3: more than 25 priorities lose their labels for good. MET-4 and property 16: the sum stays
/// right.
#[test]
fn too_many_priorities_lose_their_labels() {
    let recorder = Arc::new(Recorder::new());
    let queue =
        WorkQueue::builder().priorities(Priorities::Strict).metrics(recorder.clone()).build();
    let metrics = exposition(vec![("q", recorder.clone(), queue.clone())]);
    let depth = || {
        let text = metrics.prometheus();
        let depth = text.lines().filter(|line| line.starts_with("workqueue_depth"));
        depth.map(str::to_owned).collect::<Vec<_>>()
    };
    (0..25).for_each(|key| queue.add_with(key, AddOptions::default().priority(key as i32)));
    assert_eq!(depth().len(), 25);
    queue.add_with(3, AddOptions::default().priority(7));
    assert_eq!(depth().len(), 24, "a raised key moved from one level to the other");
    queue.add_with(25, AddOptions::default().priority(25));
    let exceeded = |n| {
        [format!(
            "workqueue_depth{{name=\"q\",controller=\"q\",priority=\"exceeded_cardinality_limit\"}} {n}"
        )]
    };
    assert_eq!(depth(), exceeded(26));
    while queue.try_get().is_some() {}
    assert_eq!(depth(), exceeded(0));
}
