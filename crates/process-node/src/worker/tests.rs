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
