//! The calls of a metrics handle.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use parking_lot::Mutex;
use setpoint_workqueue::{Metrics, WorkQueue};

#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Metrics for Log {
    fn added(&self) {
        self.0.lock().push("added".to_owned());
    }
    fn handed_out(&self, queued_for: Duration) {
        self.0.lock().push(format!("handed out after {queued_for:?}"));
    }
    fn done(&self, worked_for: Duration) {
        self.0.lock().push(format!("done after {worked_for:?}"));
    }
    fn retried(&self) {
        self.0.lock().push("retried".to_owned());
    }
}

/// The table of section 6. MET-2: ages are current.
#[tokio::test(start_paused = true)]
async fn each_event_is_reported_once_with_its_times() {
    let log = Arc::new(Log::default());
    let queue = WorkQueue::builder().metrics(log.clone()).build();
    let sleep = |ms| tokio::time::advance(Duration::from_millis(ms));

    queue.add("a");
    queue.add("a");
    sleep(3).await;
    let item = queue.get().await.unwrap();
    queue.add("a");
    sleep(5).await;
    assert_eq!(
        (queue.stats().unfinished, queue.stats().longest_running),
        (Duration::from_millis(5), Duration::from_millis(5))
    );
    item.done();
    sleep(2).await;
    assert_eq!(
        queue.stats().oldest_queued,
        Duration::from_millis(7),
        "wanted since the add, not since done"
    );
    queue.get().await.unwrap().done();
    queue.add_after("b", Duration::from_millis(10));
    sleep(12).await;
    queue.get().await.unwrap().done();

    expect![[r#"
        added
        handed out after 3ms
        added
        done after 5ms
        handed out after 7ms
        done after 0ns
        retried
        added
        handed out after 0ns
        done after 0ns"#]]
    .assert_eq(&log.0.lock().join("\n"));
}

/// MET-1: each bound is ten times the one before, from 10 ns to 1000 s.
#[test]
fn buckets_are_those_of_client_go() {
    let bounds = setpoint_workqueue::metrics::BUCKETS;
    assert_eq!(
        bounds.map(|bound| bound.as_nanos()),
        std::array::from_fn(|n| 10_u128.pow(n as u32 + 1))
    );
}
