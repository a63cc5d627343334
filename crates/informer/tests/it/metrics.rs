//! Metrics (spec §2.7).
use crate::support::*;
use parking_lot::Mutex;
use setpoint_informer::metrics::Metrics;
use setpoint_informer::source::scripted::{Answer, Script};
use setpoint_informer::{Event, HandlerOptions, MetricsRegistry};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn record(&self, line: String) {
        self.0.lock().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Metrics for Seen {
    fn listed(&self, _: Duration, n_items: usize) {
        self.record(format!("listed {n_items}"));
    }
    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        self.record(format!("watched {} {n_events} {is_short}", took.as_secs()));
    }
    fn last_resource_version(&self, resource_version: u64) {
        self.record(format!("at {resource_version}"));
    }
    fn processed(&self, _: Duration, n_deltas: usize, n_queued: usize) {
        self.record(format!("processed {n_deltas} {n_queued}"));
    }
    fn store(&self, resource_version: Option<u64>, n_objects: usize) {
        self.record(format!("store {resource_version:?} {n_objects}"));
    }
    fn handlers(&self, pending: usize, pending_most: usize) {
        self.record(format!("handlers {pending} {pending_most}"));
    }
    fn handler_panicked(&self) {
        self.record("panicked".to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn spec_2_7_informer_reports_metrics_and_frees_its_name_at_its_end() {
    let seen = Seen::default();
    let made = Arc::new(Mutex::new(Vec::new()));
    let (sink, names) = (seen.clone(), made.clone());
    let registry = MetricsRegistry::new(move |informer, resource| {
        names.lock().push(format!("{informer} {}", resource.resource));
        Arc::new(sink.clone())
    });
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(5), modified("a", 7)]),
        Answer::Watch(vec![]),
        page("1234567890123456789", &[]),
    ]);
    let running = Running::start_with(builder(&script).metrics(&registry, "main"), |informer| {
        let panics =
            |event: Event<_>| assert!(event.in_initial_list(), "this handler panics on it");
        informer.add_handler(panics, HandlerOptions::default()).unwrap();
    });
    settle().await;
    assert_eq!(
        seen.take(),
        ["at 5", "listed 2", "processed 1 0", "store Some(5) 2", "handlers 2 2"]
    );
    pass(6).await;
    assert_eq!(
        seen.take(),
        [
            "at 7",
            "watched 5 1 false",
            "watched 0 0 true",
            "processed 1 0",
            "store Some(7) 2",
            "handlers 1 1",
            "panicked"
        ]
    );
    pass(10).await;
    assert_eq!(seen.take()[..2], ["at 567890123456789", "listed 0"]);

    let second = builder(&Script::new([])).metrics(&registry, "main").build();
    assert_eq!(made.lock().len(), 1, "the name is taken");
    drop(second);
    let informer = running.informer.clone();
    running.end().await;
    let third = builder(&Script::new([])).metrics(&registry, "main").build();
    assert_eq!(*made.lock(), ["main configmaps"; 2], "it has ended, although a handle exists");
    drop((informer, third));
    drop(builder(&Script::new([])).metrics(&registry, "main").build());
    assert_eq!(made.lock().len(), 3, "dropping a worker that never ran frees the name, too");
}
