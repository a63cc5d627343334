//! A control plane with the Network controller, against which the story is played. Everything
//! derives from one seed.

use crate::inline::at_once;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use kube_client::Client;
use kube_client::client::Body;
use network::backend::{Allocation, Backend, BackendError, Desired, Existing, LocalBackend, Owner};
use setpoint::ControlPlane;
use setpoint::object::time::{Clock, Timestamp};
use setpoint::runtime::{ControllerHandle, ControllerState, Manager};
use setpoint::store::fault::{self, FaultStore};
use setpoint::store::{MemoryStore, RangeRequest, Store};
use setpoint::testenv::wire::{Crash, Faults, Wire};
use setpoint_cli::story::{self, Events, Journal, StepOutcome};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;

/// How long a killed controller stays down.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long the run continues after the story's end.
const AFTERWARDS: Duration = Duration::from_secs(70);

/// The address registry on disk, with immediate calls: the thread that the disk answers on must not
/// change the result.
pub(crate) struct AtOnce(LocalBackend);

impl AtOnce {
    pub(crate) async fn open(path: &Path) -> Self {
        Self(at_once(LocalBackend::open(path)).unwrap())
    }
}

impl Backend for AtOnce {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        Box::pin(async move { at_once(self.0.ensure(owner, desired)) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        Box::pin(async move { at_once(self.0.get(owner)) })
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        Box::pin(async move { at_once(self.0.release(owner)) })
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play {
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
    pub(crate) crash: Option<Crash>,
    pub(crate) events: Events,
    /// The store's faults, until the story's end.
    pub(crate) store: fault::Faults,
}

impl Play {
    /// No faults.
    pub(crate) fn clean(seed: u64) -> Self {
        Self {
            seed,
            faults: Faults::default(),
            crash: None,
            events: Events::Arrive,
            store: fault::Faults::default(),
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Played {
    /// The outcomes of the steps.
    pub(crate) outcomes: Vec<StepOutcome>,
    /// Why the story failed, if it did.
    pub(crate) error: Option<String>,
    /// Every request, watch frame and log line.
    pub(crate) trace: String,
    /// The networks on disk at the end.
    pub(crate) held: Vec<(String, String)>,
    /// The keys of all objects at the end, except events.
    pub(crate) keys: Vec<String>,
    /// Number of requests of the controller during the story, and afterwards.
    pub(crate) n_requests: (usize, usize),
    /// Number of write requests.
    pub(crate) n_writes: usize,
}

/// Plays the story on its own runtime.
pub(crate) fn play(play: Play) -> Played {
    let journal = Journal::new();
    let subscriber = tracing_subscriber::registry().with(journal.clone());
    let _subscriber_guard = setpoint_log::testing::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(play, journal, folder.path().join("networks.json")))
}

async fn live(play: Play, journal: Journal, registry: PathBuf) -> Played {
    let trace = crate::replay::trace();
    let store = FaultStore::new(MemoryStore::default(), fault::Faults::default(), play.seed);
    let plane = ControlPlane::builder().simulated(play.seed).store(Arc::new(store.clone())).build();
    let person = Wire::clean(plane.client(), "person", trace.clone());
    let wire = Wire::new(plane.client(), "controller", trace.clone(), play.faults, play.crash);
    let mut ready = plane.ready();
    let stop = CancellationToken::new();
    let stop_controller = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(plane.run(stop.clone()));
    ready.wait_for(|ready| *ready).await.unwrap();

    let present = Arc::new(Mutex::new(None::<ControllerHandle>));
    let mut controlling = JoinSet::new();
    controlling.spawn(lives(
        wire.clone(),
        play.seed,
        registry.clone(),
        present.clone(),
        stop_controller.clone(),
    ));
    let reconciles = || {
        let present = present.lock().unwrap();
        present.as_ref().is_some_and(|handle| handle.state() == ControllerState::Running)
    };
    let mut outcomes = Vec::new();
    let client = patient(person.client());
    store.set_faults(play.store);
    let error = story::run(&client, reconciles, &journal, play.events, |outcome| {
        for line in journal.drain() {
            trace.line(line);
        }
        trace.line(format_args!("{}\n{}", outcome.title, outcome.observed));
        outcomes.push(outcome.clone());
    })
    .await;
    store.set_faults(fault::Faults::default());
    let n_requests = wire.n_requests();
    tokio::time::sleep(AFTERWARDS).await;
    let n_requests = (n_requests, wire.n_requests() - n_requests);
    stop_controller.cancel();
    while let Some(ended) = controlling.join_next().await {
        ended.unwrap();
    }
    for line in journal.drain() {
        trace.line(line);
    }
    let range = store.inner().range(RangeRequest::prefix("")).await.unwrap();
    let mut keys: Vec<String> = range
        .value
        .entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.key).into_owned())
        .filter(|key| !key.contains("/events/"))
        .collect();
    keys.sort();
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        ended.unwrap().unwrap();
    }
    let held = at_once(at_once(LocalBackend::open(registry)).unwrap().all());
    Played {
        outcomes,
        error: error.err().map(|error| chain(&error)),
        trace: trace.text(),
        held,
        keys,
        n_requests,
        n_writes: wire.n_writes(),
    }
}

/// A client that retries if the server cannot answer. A 404 of a repeated delete means that the
/// object was deleted.
fn patient(inner: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let mut n_tries = 0;
            loop {
                let again = http::Request::from_parts(parts.clone(), Body::from(body.clone()));
                let mut answer = inner.send(again).await?;
                let status = answer.status();
                n_tries += 1;
                if !(status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS) {
                    if parts.method == Method::DELETE
                        && status == StatusCode::NOT_FOUND
                        && n_tries > 1
                    {
                        *answer.status_mut() = StatusCode::OK;
                    }
                    return Ok::<_, kube_client::Error>(answer);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    Client::new(service, "default")
}

/// Formats an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Runs the controller, restarting it after each crash.
pub(crate) async fn lives(
    wire: Wire,
    seed: u64,
    registry: PathBuf,
    present: Arc<Mutex<Option<ControllerHandle>>>,
    stop: CancellationToken,
) {
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    loop {
        let backend = Arc::new(AtOnce::open(&registry).await);
        let mut manager = Manager::builder(wire.client())
            .clock(clock.clone())
            .seed(seed)
            .cache(
                network::controller::cache()
                    .backoff(Duration::from_millis(200), Duration::from_secs(2)),
            )
            .build();
        let handle = manager.add(network::controller::controller(backend).unwrap()).unwrap();
        *present.lock().unwrap() = Some(handle);
        let mut life = JoinSet::new();
        life.spawn(manager.run(stop.clone()));
        tokio::select! {
            biased;
            () = wire.crashed() => life.shutdown().await,
            ended = life.join_next() => {
                ended.unwrap().unwrap().unwrap();
                return;
            }
        }
        *present.lock().unwrap() = None;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}
