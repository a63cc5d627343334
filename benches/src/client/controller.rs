//! A controller whose reconciler does nothing, or looks at its object: this project's, and
//! kube-runtime's.
//!
//! Both reconcile every Pod of the list, then those of the events, then every Pod several times,
//! triggered from inside the process. The end of a phase is detected from outside: the count of
//! reconciles stops changing. CPU time is taken at its last change.
use super::usage::Usage;
use super::{Findings, Look, Run};
use anyhow::ensure;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::core::{ObjectMeta, Resource};
use kube_runtime::{controller, watcher};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use setpoint::informer::CachePolicy;
use setpoint::prelude::*;
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Number of times that all Pods are triggered from inside.
const TRIGGERS: u64 = 10;

/// The count must not change for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);

/// The reconcilers' counter and triggers.
struct Shared {
    n_reconciles: AtomicU64,
    is_syncing: AtomicBool,
    /// The keys reconciled first, to be triggered later.
    keys: Mutex<Vec<Request>>,
}

impl Shared {
    fn new(run: &Run) -> Arc<Self> {
        // With allocation counting, nothing is triggered.
        let is_syncing = !run.args.sync_only;
        Arc::new(Self {
            n_reconciles: AtomicU64::new(0),
            is_syncing: AtomicBool::new(is_syncing),
            keys: Mutex::default(),
        })
    }

    fn count(&self) {
        self.n_reconciles.fetch_add(1, Relaxed);
    }

    /// Waits until there are `n_min` reconciles more than `first` and the count stops changing;
    /// returns the count, and the CPU and wall time of the last change.
    async fn until_quiet(
        &self,
        first: u64,
        n_min: u64,
    ) -> anyhow::Result<(u64, Duration, Instant)> {
        let mut last = (first, Usage::cpu()?, Instant::now());
        loop {
            tokio::time::sleep(LOOK).await;
            let n = self.n_reconciles.load(Relaxed);
            if n != last.0 {
                last = (n, Usage::cpu()?, Instant::now());
            } else if last.2.elapsed() > QUIET_PERIOD && n - first >= n_min {
                return Ok((n - first, last.1, last.2));
            }
            ensure!(last.2.elapsed() < Duration::from_secs(60), "{} of {n_min}", n - first);
        }
    }
}

/// The phases, which are the same for both controllers.
async fn phases(
    mut run: Run,
    shared: &Shared,
    trigger: mpsc::Sender<()>,
) -> anyhow::Result<Findings> {
    let n_objects = run.facts.n_objects;
    let (n, cpu, at) = shared.until_quiet(0, n_objects).await?;
    ensure!(n == n_objects, "{n} reconciles of {n_objects} objects");
    run.sync_ends(n)?;
    run.findings.sync_cpu = (cpu - run.phase.1).as_secs_f64();
    run.findings.sync_wall = (at - run.phase.0).as_secs_f64();
    shared.is_syncing.store(false, Relaxed);
    if run.wants_events() {
        // Read before triggering, because workers on other threads do not wait for this one.
        let first = shared.n_reconciles.load(Relaxed);
        run.events_begin().await?;
        let (n, cpu, at) = shared.until_quiet(first, n_objects).await?;
        run.findings.n_events = run.facts.n_events;
        run.findings.n_calls = n;
        run.findings.events_cpu = (cpu - run.phase.1).as_secs_f64();
        run.findings.events_wall = (at - run.phase.0).as_secs_f64();

        let phase = (Instant::now(), Usage::cpu()?);
        for _ in 0..TRIGGERS {
            let first = shared.n_reconciles.load(Relaxed);
            trigger.send(()).await?;
            let (n, cpu, at) = shared.until_quiet(first, n_objects).await?;
            run.findings.n_triggered += n;
            run.findings.triggered_cpu = (cpu - phase.1).as_secs_f64();
            run.findings.triggered_wall = (at - phase.0).as_secs_f64();
        }
    }
    Ok(run.findings)
}

/// An object with a node's name in it.
pub(super) trait OnNode:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + Debug + 'static
{
    fn node_name(&self) -> Option<&str>;
}

impl OnNode for Pod {
    fn node_name(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }
}

/// A Pod for one who needs three fields of it, beside its name.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ThreeFields {
    metadata: Identity,
    spec: Placement,
}

/// Metadata of which only this is declared; kube-runtime needs all of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Named")]
struct Identity(ObjectMeta);

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    namespace: Option<String>,
    resource_version: Option<String>,
}

impl From<Named> for Identity {
    fn from(named: Named) -> Self {
        let Named { name, namespace, resource_version } = named;
        Self(ObjectMeta { name: Some(name), namespace, resource_version, ..ObjectMeta::default() })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    node_name: Option<String>,
}

impl OnNode for ThreeFields {
    fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }
}

impl Resource for ThreeFields {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata.0
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata.0
    }
}

/// This project's: a manager, a controller, its default cache and queue.
pub(super) async fn setpoint<K: OnNode>(mut run: Run) -> anyhow::Result<Findings> {
    let looks = run.args.look != Look::Nothing;
    let shared = Shared::new(&run);
    let (trigger, triggered) = mpsc::channel(1);
    run.sync_begins()?;
    let (counted, keyed) = (shared.clone(), shared.clone());
    let reconcile = move |request: Request, context: Context| {
        counted.count();
        if looks {
            let object = match context.client().api::<K>().get(&request) {
                Ok(object) => object,
                Err(error) => return ready(Err(error)),
            };
            black_box(object.as_deref().and_then(OnNode::node_name));
        }
        if counted.is_syncing.load(Relaxed) {
            counted.keys.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        }
        ready(Ok::<_, ClientError>(Action::await_change()))
    };
    let mut builder = Controller::builder("bench")
        .for_(Watch::<K>::new())
        .channel_of(triggered, move |()| {
            keyed.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
        .concurrency(run.args.workers);
    if run.args.no_explain {
        builder = builder.explain(0);
    }
    let mut options = CacheOptions::new();
    match &*run.args.policy {
        "decoded" => options = options.policy(CachePolicy::Decoded),
        policy => ensure!(policy == "compact", "no controller is measured with {policy}"),
    }
    if run.args.room {
        options = options.decoded_bytes(8 << 30);
    }
    let mut manager = Manager::builder(run.client.clone()).cache(options).build();
    manager.add(builder.build(reconcile)?)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    let findings = phases(run, &shared, trigger).await?;
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(findings)
}

/// kube-runtime's: a controller, which keeps its store by itself.
pub(super) async fn kube_runtime<K: OnNode>(mut run: Run) -> anyhow::Result<Findings> {
    let looks = run.args.look != Look::Nothing;
    let shared = Shared::new(&run);
    let (trigger, triggered) = mpsc::channel(1);
    run.sync_begins()?;
    let triggers = stream::unfold(triggered, |mut triggered| async move {
        triggered.recv().await.map(|()| ((), triggered))
    });
    let config = watcher::Config::default().any_semantic();
    let config = if run.args.stream { config.streaming_lists() } else { config };
    let reconcile = move |object: Arc<K>, shared: Arc<Shared>| {
        shared.count();
        if looks {
            black_box(object.node_name());
        }
        ready(Ok::<_, Infallible>(controller::Action::await_change()))
    };
    let running = kube_runtime::Controller::new(Api::<K>::all(run.client.clone()), config)
        .with_config(controller::Config::default().concurrency(run.args.workers as u16))
        .reconcile_all_on(triggers)
        .run(reconcile, |_, error: &Infallible, _| match *error {}, shared.clone())
        .for_each(|_| ready(()));
    let mut tasks = JoinSet::new();
    tasks.spawn(running);
    phases(run, &shared, trigger).await
}
