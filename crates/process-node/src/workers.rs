//! Which pods have workers. A worker that panics starts again after a pause.

use crate::worker::Seen;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use setpoint_nodes::restart::backoff;
use setpoint_object::panic::message;
use setpoint_runtime::Request;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The shortest pause before a worker starts again. Processes of the one before end in it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// What a worker starts with.
pub(crate) struct Start {
    pub(crate) key: Request,
    pub(crate) pod: Arc<Pod>,
    pub(crate) seen: watch::Receiver<Seen>,
    /// How many others run.
    pub(crate) n_running: usize,
}

/// The workers of pods. `S` makes their futures.
pub(crate) struct Workers<S> {
    start: S,
    entries: BTreeMap<Request, Entry>,
    running: JoinSet<End>,
}

/// A pod and its worker.
struct Entry {
    uid: String,
    /// The pod's newest version, never `None`.
    seen: watch::Sender<Seen>,
    started: Instant,
    n_panics: i64,
    /// When its worker starts again, after a panic.
    due: Option<Instant>,
}

/// The end of a worker.
struct End {
    key: Request,
    uid: String,
    panic: Option<String>,
}

impl<S, F> Workers<S>
where
    S: Fn(Start) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    pub(crate) fn new(start: S) -> Self {
        Self { start, entries: BTreeMap::new(), running: JoinSet::new() }
    }

    /// Tells the worker of a pod of its newest version. A new pod gets a worker.
    pub(crate) fn take(&mut self, key: Request, seen: Seen) {
        let uid = seen.as_ref().and_then(|pod| pod.metadata.uid.clone());
        if let Some(entry) = self.entries.remove(&key) {
            let has_worker = entry.due.is_some() || !entry.seen.is_closed();
            if uid.as_ref() == Some(&entry.uid) && has_worker {
                entry.seen.send_replace(seen);
                self.entries.insert(key, entry);
                return;
            }
            let last = entry.seen.send_replace(None);
            if let Some(pod) = last.filter(|_| entry.due.is_some()) {
                // A worker has failed, and another removes what is left of the pod.
                self.spawn(key.clone(), entry.uid, pod, entry.seen.subscribe());
            }
        }
        if let (Some(uid), Some(pod)) = (uid, seen) {
            let sender = watch::Sender::new(Some(pod.clone()));
            let seen = sender.subscribe();
            let started = Instant::now();
            let entry = Entry { uid: uid.clone(), seen: sender, started, n_panics: 0, due: None };
            self.entries.insert(key.clone(), entry);
            self.spawn(key, uid, pod, seen);
        }
    }

    /// Sees to the next end of a worker, or the next start of one that has failed. Waits for ever
    /// if there is none. Cancel safe.
    pub(crate) async fn next(&mut self) {
        let due = self.entries.values().filter_map(|entry| entry.due).min();
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Cancel safe: takes a whole message.
            Some(ended) = self.running.join_next() => if let Ok(end) = ended {
                self.take_end(end);
            },
            () = timer => self.start_due(),
        }
    }

    /// Waits for the end of all workers.
    pub(crate) async fn drain(mut self) {
        while self.running.join_next().await.is_some() {}
    }

    fn spawn(&mut self, key: Request, uid: String, pod: Arc<Pod>, seen: watch::Receiver<Seen>) {
        let n_running = self.running.len();
        let work = (self.start)(Start { key: key.clone(), pod, seen, n_running });
        self.running.spawn(async move {
            // What workers share is behind locks, and whole whenever a worker may panic.
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            let panic = ended.err().map(|panic| message(&*panic).to_owned());
            End { key, uid, panic }
        });
    }

    fn take_end(&mut self, End { key, uid, panic }: End) {
        if let Some(panic) = &panic {
            tracing::error!(panic, pod = %key, "the worker of a pod");
        }
        // Another worker may have the key.
        let entry = self.entries.get_mut(&key);
        let Some(entry) = entry.filter(|entry| entry.uid == uid && entry.seen.is_closed()) else {
            return;
        };
        if panic.is_none() {
            self.entries.remove(&key);
            return;
        }
        entry.n_panics += 1;
        let pause = backoff(entry.n_panics, entry.started.elapsed()).max(PAUSE_MIN);
        entry.due = Some(Instant::now() + pause);
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (key, entry) in &mut self.entries {
            if entry.due.take_if(|due| *due <= now).is_some()
                && let Some(pod) = entry.seen.borrow().clone()
            {
                entry.started = now;
                due.push((key.clone(), entry.uid.clone(), pod, entry.seen.subscribe()));
            }
        }
        for (key, uid, pod, seen) in due {
            self.spawn(key, uid, pod, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use serde_json::json;

    /// What workers do.
    type Diary = Arc<Mutex<Vec<String>>>;

    fn pod(uid: &str, color: &str) -> Seen {
        let meta = json!({"name": "p", "uid": uid, "labels": {"color": color}});
        let pod: Pod = serde_json::from_value(json!({"metadata": meta})).unwrap();
        Some(Arc::new(pod))
    }

    fn color(pod: &Pod) -> &str {
        &pod.metadata.labels.as_ref().unwrap()["color"]
    }

    /// Workers that panic for red pods, and run for others until they are gone.
    fn workers(
        diary: &Diary,
    ) -> Workers<impl Fn(Start) -> futures::future::BoxFuture<'static, ()>> {
        let diary = diary.clone();
        Workers::new(move |start: Start| {
            let diary = diary.clone();
            async move {
                let Start { pod, mut seen, .. } = start;
                let is_gone = seen.borrow().is_none();
                let text = if is_gone { "removes" } else { "starts" };
                diary.lock().push(format!("{text} {}", color(&pod)));
                assert!(is_gone || color(&pod) != "red", "red");
                seen.wait_for(Option::is_none).await.unwrap();
            }
            .boxed()
        })
    }

    async fn pass(
        workers: &mut Workers<impl Fn(Start) -> futures::future::BoxFuture<'static, ()>>,
        seconds: u64,
    ) {
        let all = async {
            loop {
                workers.next().await;
            }
        };
        let passed = tokio::time::timeout(Duration::from_secs(seconds), all).await;
        assert!(passed.is_err());
    }

    /// Its entry stayed: no other worker ever looked at the pod.
    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_starts_again_with_the_newest_version() {
        let diary = Diary::default();
        let (mut workers, key) = (workers(&diary), Request::new("d", "p"));
        workers.take(key.clone(), pod("1", "red"));
        pass(&mut workers, 9).await;
        assert_eq!(*diary.lock(), ["starts red"], "10 s have not passed");
        pass(&mut workers, 2).await;
        assert_eq!(*diary.lock(), ["starts red"; 2]);
        pass(&mut workers, 18).await;
        workers.take(key.clone(), pod("1", "blue"));
        assert_eq!(diary.lock().len(), 2, "the pause is longer now");
        pass(&mut workers, 5).await;
        assert_eq!(diary.lock()[2..], ["starts blue"]);
        workers.take(key, None);
        pass(&mut workers, 1000).await;
        assert_eq!((diary.lock().len(), workers.entries.len()), (3, 0));
        workers.drain().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_pod_is_removed_though_its_worker_has_failed() {
        let diary = Diary::default();
        let (mut workers, key) = (workers(&diary), Request::new("d", "p"));
        workers.take(key.clone(), pod("1", "red"));
        pass(&mut workers, 1).await;
        workers.take(key.clone(), pod("2", "blue"));
        pass(&mut workers, 1000).await;
        assert_eq!(*diary.lock(), ["starts red", "removes red", "starts blue"]);
        workers.take(key, None);
        workers.drain().await;
    }
}
