use super::*;
use crate::address::Addresses;
use setpoint_runtime::Manager;
use std::sync::atomic::{AtomicU64, Ordering};

/// A worker, and what it needs.
struct Fixture {
    worker: Worker,
    /// Tokens that were asked for.
    n_tokens: Arc<AtomicU64>,
    _folder: tempfile::TempDir,
}

/// The worker of a pod whose server gives tokens and fails otherwise.
fn fixture(spec: Value) -> Fixture {
    let n_tokens = Arc::new(AtomicU64::new(0));
    let (folder, n) = (tempfile::tempdir().unwrap(), n_tokens.clone());
    let service = tower::service_fn(move |request: http::Request<kube_client::client::Body>| {
        let is_token = request.uri().path().ends_with("/token");
        let token = n.fetch_add(u64::from(is_token), Ordering::Relaxed).to_string();
        let status = json!({"token": token, "expirationTimestamp": "1970-01-01T01:00:00Z"});
        let answer = json!({"metadata": {}, "spec": {"audiences": []}, "status": status});
        let code = if is_token { 201 } else { 500 };
        let body = kube_client::client::Body::from(serde_json::to_vec(&answer).unwrap());
        async move { http::Response::builder().status(code).body(body) }
    });
    let manager = Manager::new(kube_client::Client::new(service, "default")).handle();
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec});
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
    // Nobody sees another version.
    let (_, seen) = watch::channel(Some(pod.clone()));
    let shared = Shared {
        folder: folder.path().to_owned(),
        run: "test".to_owned(),
        nodes: std::collections::BTreeSet::new(),
        addresses: Mutex::new(Addresses::default()),
        pods: Mutex::default(),
        n_commands: AtomicU64::new(0),
    };
    let worker = Worker::new(Parts {
        shared: Arc::new(shared),
        client: manager.client().clone(),
        recorder: manager.recorder(FIELD_MANAGER),
        clock: Clock::starting_at(Timestamp::default()),
        key: Request::new("d", "p"),
        pod,
        seen,
        stop: CancellationToken::new(),
        is_too_many: false,
    });
    Fixture { worker, n_tokens, _folder: folder }
}

impl Fixture {
    fn tracked(&mut self, name: &str) -> &mut Tracked {
        let found = self.worker.containers.iter_mut().find(|one| one.container.name == name);
        found.unwrap()
    }

    fn live(&mut self, name: &str) -> &mut Live {
        self.worker.live.entry(name.to_owned()).or_default()
    }

    /// The container has a process.
    fn starts(&mut self, name: &str) {
        self.live(name).stop = Some(watch::channel(None).0);
        self.tracked(name).is_live = true;
    }

    fn runs(&mut self, name: &str) {
        self.starts(name);
        self.tracked(name).state = State::Running(Timestamp::default());
    }

    /// The container has ended, and its pause is over.
    fn is_due(&mut self, name: &str) {
        let reason = "CrashLoopBackOff".to_owned();
        self.tracked(name).state = State::Waiting { reason, message: String::new() };
        self.live(name).due = Some(Instant::now());
    }

    /// How long the worker rests if nothing happens.
    async fn rest(&mut self) -> Option<Duration> {
        tokio::time::advance(Duration::from_secs(1)).await;
        self.worker.advance().await;
        self.worker.due().map(|due| due.saturating_duration_since(Instant::now()))
    }
}

/// It turned without a rest, and made the status again each time.
#[tokio::test(start_paused = true)]
async fn a_worker_rests_while_a_sidecar_holds_up_a_container_whose_pause_is_over() {
    let mut fixture = fixture(json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}],
    }));
    fixture.runs("s");
    fixture.is_due("a");
    assert_eq!(fixture.rest().await, Some(REFRESH));
    assert!(fixture.live("a").stop.is_none());
    // It has no command: the next try has a pause of its own.
    fixture.tracked("s").is_started = true;
    assert_eq!(fixture.worker.due(), fixture.live("a").due);
    assert_eq!(fixture.rest().await, Some(RETRY));
}

#[tokio::test(start_paused = true)]
async fn a_worker_rests_while_a_hook_holds_up_a_container_whose_pause_is_over() {
    let hook = json!({"postStart": {"sleep": {"seconds": 1000}}});
    let containers = json!([{"name": "a", "lifecycle": hook}, {"name": "b"}]);
    let mut fixture = fixture(json!({"containers": containers}));
    fixture.starts("a");
    fixture.is_due("b");
    assert_eq!(fixture.rest().await, Some(REFRESH));
    fixture.runs("a");
    assert_eq!(fixture.rest().await, Some(RETRY));
}

#[tokio::test(start_paused = true)]
async fn a_worker_rests_until_all_containers_have_ended_that_are_to_start_again() {
    let mut fixture = fixture(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    fixture.runs("a");
    fixture.is_due("b");
    fixture.worker.is_restarting_all = true;
    assert_eq!(fixture.rest().await, None);
}

/// Its containers started without them.
#[tokio::test(start_paused = true)]
async fn no_container_starts_before_the_volumes_are_there() {
    let volumes = json!([{"name": "v", "nfs": {"server": "s", "path": "/"}}]);
    let mut fixture = fixture(json!({"containers": [{"name": "a"}], "volumes": volumes}));
    assert_eq!(fixture.rest().await, Some(RETRY));
    fixture.is_due("a");
    let before = fixture.live("a").due;
    assert_eq!(fixture.rest().await, Some(RETRY - Duration::from_secs(1)));
    assert_eq!(fixture.live("a").due, before);
}

/// A write was due for ever once the status that could not be written was the written one again.
#[tokio::test(start_paused = true)]
async fn a_worker_rests_though_a_write_has_failed() {
    let mut fixture = fixture(json!({"containers": [{"name": "a"}]}));
    fixture.runs("a");
    fixture.worker.verdict = Some(Verdict { reason: "Test", message: String::new() });
    assert!(!fixture.worker.sync_status().await);
    assert_eq!(fixture.rest().await, Some(RETRY - Duration::from_secs(1)));
    tokio::time::advance(RETRY).await;
    assert_eq!(fixture.rest().await, None);
}

/// Other clients may write a status; the sum overflowed.
#[tokio::test(start_paused = true)]
async fn a_container_starts_after_any_number_of_restarts() {
    let containers = json!([{"name": "a", "command": ["true"]}]);
    let mut fixture = fixture(json!({"containers": containers}));
    fixture.is_due("a");
    fixture.tracked("a").n_restarts = i32::MAX;
    fixture.tracked("a").last = Some(Ended {
        code: 1,
        reason: "Error",
        message: String::new(),
        started_at: None,
        finished_at: Timestamp::default(),
    });
    assert_eq!(fixture.rest().await, Some(REFRESH));
    assert!(fixture.tracked("a").is_live);
    assert_eq!(fixture.tracked("a").n_restarts, i32::MAX);
}

/// There was a new one at each look at the volumes.
#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_once_in_its_lifetime() {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let volumes = json!([{"name": "v", "projected": {"sources": [token]}}]);
    let mut fixture = fixture(json!({"containers": [{"name": "a"}], "volumes": volumes}));
    fixture.runs("a");
    let file = fixture.worker.folder.join("volumes/v/token");
    for (seconds, token) in [(0, "0"), (30, "0"), (30, "0"), (3000, "1")] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        fixture.worker.advance().await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    }
    assert_eq!(fixture.n_tokens.load(Ordering::Relaxed), 2);
}
