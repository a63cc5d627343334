//! Controllers that are wired by hand, over every kind of queue.
use crate::support::{added, bookmark, deleted, page, settle, wait};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use setpoint_informer::controller::{
    Change, Controller, LogObserver, ProcessError, RESTART_AFTER, apply,
};
use setpoint_informer::delta::{
    Batch, Delta, DeltaFifo, DeltaQueue, KnownObjects, OrderedFifo, QueueClosed, Synced,
};
use setpoint_informer::intake::RecordIntake;
use setpoint_informer::reflector::{Reflector, Resync};
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{Key, Record, ResourceType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Store(Mutex<BTreeMap<Key, Record>>);

impl KnownObjects<Record> for Store {
    fn keys(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }

    fn get(&self, key: &Key) -> Option<Record> {
        self.0.lock().get(key).cloned()
    }
}

fn queues(store: &Arc<Store>) -> [Arc<dyn DeltaQueue<Record>>; 3] {
    [
        Arc::new(OrderedFifo::new()),
        Arc::new(OrderedFifo::with_known_objects(store.clone())),
        Arc::new(DeltaFifo::new(store.clone())),
    ]
}

fn reflector(script: &Script, queue: &Arc<dyn DeltaQueue<Record>>) -> Reflector<Record> {
    let resource_type = ResourceType::of::<ConfigMap>(&());
    Reflector::new(
        Arc::new(script.clone()),
        resource_type.clone(),
        Box::new(RecordIntake::new(resource_type.clone())),
        queue.clone(),
        Arc::new(LogObserver::new(&resource_type)),
        Default::default(),
        SmallRng::seed_from_u64(1),
    )
}

/// A controller that runs.
struct Running {
    synced: Synced,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), QueueClosed>>,
}

impl Running {
    fn start(
        reflector: Reflector<Record>,
        queue: &Arc<dyn DeltaQueue<Record>>,
        process: impl FnMut(Batch<Record>) -> Result<(), ProcessError> + Send + 'static,
    ) -> Self {
        let controller = Controller::new(reflector, queue.clone(), process);
        let (synced, stop) = (controller.synced(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(controller.run(stop.clone()));
        Self { synced, stop, tasks }
    }

    async fn ended(&mut self) -> Result<(), QueueClosed> {
        self.tasks.join_next().await.unwrap().unwrap()
    }
}

fn names(store: &Store) -> Vec<String> {
    store.0.lock().keys().map(|key| key.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn ctl_1_controller_updates_a_custom_store_and_closes_its_queue_at_the_stop() {
    let store = Arc::new(Store::default());
    for queue in queues(&store) {
        store.0.lock().clear();
        let watch = vec![added("c", 3), deleted("a", 4), bookmark(5), Step::Hang];
        let script = Script::new([page("2", &[("a", 1), ("b", 2)]), Answer::Watch(watch)]);
        let held = store.clone();
        let changes = Arc::new(Mutex::new(Vec::new()));
        let telling = changes.clone();
        let mut running = Running::start(reflector(&script, &queue), &queue, move |batch| {
            apply(batch, &mut *held.0.lock(), |change| telling.lock().push(change));
            Ok(())
        });
        running.synced.wait().await.unwrap();
        assert!(names(&store).iter().any(|name| name == "b"), "the first list is readable");
        settle().await;
        assert_eq!(names(&store), ["b", "c"]);
        let initial =
            |change: &Change<Record>| matches!(change, Change::Added { in_initial_list: true, .. });
        assert_eq!(changes.lock().iter().filter(|change| initial(change)).count(), 2, "FIFO-23");
        running.stop.cancel();
        assert_eq!(running.ended().await, Ok(()));
        assert!(queue.offer(Delta::SyncAll).is_err(), "the queue is closed");
    }
}

/// A controller whose first process call takes a second of work in another task.
struct Slow(Arc<Mutex<Vec<usize>>>);

impl setpoint_informer::controller::Process<Record> for Slow {
    async fn process(&mut self, batch: Batch<Record>) -> Result<(), ProcessError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.lock().push(batch.deltas.len());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn ctl_2_stop_drops_queued_deltas_and_waits_for_the_running_call() {
    let queue: Arc<dyn DeltaQueue<Record>> = Arc::new(OrderedFifo::new());
    let watch = vec![added("b", 2), added("c", 3), Step::Hang];
    let script = Script::new([page("1", &[("a", 1)]), Answer::Watch(watch)]);
    let processed = Arc::new(Mutex::new(Vec::new()));
    let controller =
        Controller::new(reflector(&script, &queue), queue.clone(), Slow(processed.clone()));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(stop.clone()));
    settle().await;
    stop.cancel();
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), Ok(()));
    assert_eq!(*processed.lock(), [1], "only the list; watch events are dropped");
    assert_eq!(queue.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn ctl_4_fifo_20_panic_or_failure_loses_only_its_batch() {
    let queue: Arc<dyn DeltaQueue<Record>> = Arc::new(OrderedFifo::new());
    let steps = ["panic", "error", "fine"].map(|name| [added(name, 2), wait(0), bookmark(3)]);
    let watch = steps.into_iter().flatten().chain([Step::Hang]).collect();
    let script = Script::new([page("1", &[]), Answer::Watch(watch)]);
    let log: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
    let (writing, start) = (log.clone(), Instant::now());
    let mut running = Running::start(reflector(&script, &queue), &queue, move |batch| {
        for delta in batch {
            let Some(key) = delta.key() else { continue };
            writing.lock().push((key.name.to_string(), start.elapsed()));
            match &*key.name {
                "panic" => panic!("a process function that panics"),
                "error" => return Err("no".into()),
                _ => {}
            }
        }
        Ok(())
    });
    running.synced.wait().await.unwrap();
    tokio::time::sleep(2 * RESTART_AFTER).await;
    let log: Vec<(String, Duration)> = log.lock().clone();
    let (names, times): (Vec<_>, Vec<_>) = log.into_iter().unzip();
    assert_eq!(names, ["panic", "error", "fine"], "each once");
    assert!(times[1] - times[0] >= RESTART_AFTER && times[2] - times[1] < RESTART_AFTER);
    running.stop.cancel();
    assert_eq!(running.ended().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn controller_ends_when_another_owner_closes_its_queue() {
    let queue: Arc<dyn DeltaQueue<Record>> = Arc::new(OrderedFifo::new());
    let script = Script::new([page("1", &[("a", 1)]), Answer::Watch(vec![Step::Hang])]);
    let mut running = Running::start(reflector(&script, &queue), &queue, |_| Ok(()));
    running.synced.wait().await.unwrap();
    queue.close();
    assert_eq!(running.ended().await, Err(QueueClosed));
}

#[tokio::test(start_paused = true)]
async fn dropped_controller_ends_its_tasks_and_closes_its_queue() {
    let queue: Arc<dyn DeltaQueue<Record>> = Arc::new(OrderedFifo::new());
    let script = Script::new([page("1", &[("a", 1)]), Answer::Watch(vec![Step::Hang])]);
    let mut running = Running::start(reflector(&script, &queue), &queue, |_| Ok(()));
    running.synced.wait().await.unwrap();
    running.tasks.shutdown().await;
    settle().await;
    assert!(queue.offer(Delta::SyncAll).is_err());
    assert_eq!(Arc::strong_count(&queue), 1, "no task has a reference to it");
}

#[tokio::test(start_paused = true)]
async fn evt_5_fifo_5_fifo_13_resync_reports_every_object_over_every_queue() {
    let store = Arc::new(Store::default());
    for queue in queues(&store) {
        store.0.lock().clear();
        let script =
            Script::new([page("2", &[("a", 1), ("b", 2)]), Answer::Watch(vec![Step::Hang])]);
        let resync = Resync { period: Duration::from_secs(60), is_due: Box::new(|| true) };
        let held = store.clone();
        let updated = Arc::new(Mutex::new(0));
        let counted = updated.clone();
        let reflector = reflector(&script, &queue).resync(resync);
        let mut running = Running::start(reflector, &queue, move |batch| {
            apply(batch, &mut *held.0.lock(), |change| {
                *counted.lock() += usize::from(matches!(change, Change::Updated { .. }));
            });
            Ok(())
        });
        running.synced.wait().await.unwrap();
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert_eq!(*updated.lock(), 4);
        running.stop.cancel();
        assert_eq!(running.ended().await, Ok(()));
    }
}
