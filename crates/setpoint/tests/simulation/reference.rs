//! A reference controller over Networks, and the conditions that must hold once it has caught up.
//!
//! Each Network gets a finalizer, a ConfigMap with a controller reference, and a status. A second
//! controller only reads ConfigMaps. Both record the version at which they last saw each key.

use crate::harness::{Ground, Person, ProcessId, World, maps};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, Patch};
use kube_core::Resource;
use network::api::{CRD_YAML, Network, NetworkSpec};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use setpoint::runtime::{
    Action, BoxError, CacheOptions, Context, Controller, ControllerHandle, Finalize, Manager,
    ManagerBuilder, Reconciler, Request, Watch, create_or_update, finalizer,
    owner::set_controller_reference,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The name of the writing controller.
pub(crate) const ACTS: &str = "acts";
/// The name of the reading controller.
pub(crate) const LOOKS: &str = "looks";
/// The finalizer.
const FINALIZER: &str = "example.com/simulation";
/// Number of concurrent passes.
const CONCURRENCY: usize = 3;

/// How the reconcilers behave, in all lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Temper {
    /// Probability that a pass fails before it has done anything.
    pub error: f64,
    /// Probability that it panics there.
    pub panic: f64,
    /// Probability that it takes up to 3 s.
    pub slow: f64,
}

impl Default for Temper {
    /// No failures.
    fn default() -> Self {
        Self { error: 0.0, panic: 0.0, slow: 0.0 }
    }
}

/// The observations and actions of passes, in all lives. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<SeenState>>);

#[derive(Default)]
struct SeenState {
    /// The resourceVersion that the last pass of a process's controller over a key saw; `None` if
    /// the object did not exist.
    versions: BTreeMap<(ProcessId, Arc<str>, String), Option<String>>,
    n_injected: u64,
    handles: Vec<ControllerHandle>,
}

impl Seen {
    fn note<K: Resource>(
        &self,
        process: ProcessId,
        context: &Context,
        request: &Request,
        object: Option<&K>,
    ) {
        let version = object.map(|object| object.meta().resource_version.clone().unwrap());
        let key = (process, context.controller().into(), request.to_string());
        self.0.lock().unwrap().versions.insert(key, version);
    }

    /// Number of injected failures.
    pub(crate) fn n_injected(&self) -> u64 {
        self.0.lock().unwrap().n_injected
    }

    /// Drops the handles: the handle of a controller that was never run holds its sources, and so
    /// the client.
    pub(crate) fn drop_handles(&self) {
        self.0.lock().unwrap().handles.clear();
    }

    /// The handles of all controllers of all lives.
    pub(crate) fn handles(&self) -> Vec<ControllerHandle> {
        self.0.lock().unwrap().handles.clone()
    }

    /// The keys whose current version a process's controller has not seen. Objects deleted before
    /// its start are ignored.
    fn behind(&self, process: ProcessId, controller: &str, present: &[Value]) -> Vec<String> {
        let state = self.0.lock().unwrap();
        let mut behind = Vec::new();
        let mut there = BTreeMap::new();
        for object in present {
            let meta = &object["metadata"];
            let key = format!(
                "{}/{}",
                meta["namespace"].as_str().unwrap(),
                meta["name"].as_str().unwrap()
            );
            there.insert(key, meta["resourceVersion"].as_str().unwrap().to_owned());
        }
        let versions = state.versions.iter().filter(|((by, ..), _)| *by == process);
        for ((_, of, key), seen) in versions {
            if &**of == controller && there.get(key) != seen.as_ref() {
                behind.push(format!("{controller} {key}: saw {seen:?}, is {:?}", there.get(key)));
            }
        }
        for key in there.keys() {
            if !state.versions.contains_key(&(process, controller.into(), key.clone())) {
                behind.push(format!("{controller} {key}: never seen"));
            }
        }
        behind
    }
}

/// The state that both reconcilers share.
#[derive(Clone)]
struct Common {
    ground: Ground,
    seen: Seen,
    temper: Temper,
    rng: Arc<Mutex<SmallRng>>,
}

impl Common {
    /// Sometimes fails, panics or waits.
    async fn maybe_fail(&self) -> Result<(), BoxError> {
        let (error, panic, slow, pause) = {
            let mut rng = self.rng.lock().unwrap();
            (
                rng.random::<f64>(),
                rng.random::<f64>(),
                rng.random::<f64>(),
                rng.random_range(1..3000),
            )
        };
        if slow < self.temper.slow {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let is_panic = panic < self.temper.panic;
        if is_panic || error < self.temper.error {
            self.seen.0.lock().unwrap().n_injected += 1;
        }
        if is_panic {
            // As a panic, but without the output of the panic hook.
            std::panic::resume_unwind(Box::new("a panic on purpose"));
        }
        if error < self.temper.error { Err("an error on purpose".into()) } else { Ok(()) }
    }
}

struct Acts(Common);

impl Reconciler for Acts {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let Self(common) = self;
        let _pass = common.ground.pass(context.controller(), &request);
        common.maybe_fail().await?;
        let networks = context.client().api::<Network>();
        let network = networks.get(&request)?;
        common.seen.note(common.ground.id(), &context, &request, network.as_deref());
        let Some(network) = network else { return Ok(Action::await_change()) };
        let pass = async |asked| match asked {
            Finalize::Apply(network) => apply(&request, &network, &context).await,
            Finalize::Cleanup(_) => {
                match context
                    .client()
                    .api::<ConfigMap>()
                    .delete(&request, &DeleteParams::default())
                    .await
                {
                    Err(error) if !error.is_not_found() => Err(error.into()),
                    _ => Ok(Action::await_change()),
                }
            }
        };
        Ok(finalizer(&networks, FINALIZER, network, pass).await?)
    }
}

async fn apply(
    request: &Request,
    network: &Network,
    context: &Context,
) -> Result<Action, BoxError> {
    let maps = context.client().api::<ConfigMap>();
    let mut refused = None;
    create_or_update(&maps, request, |existing| {
        let mut map = existing.unwrap_or_default();
        map.metadata.name = Some(request.name.to_string());
        map.metadata.namespace = Some(request.namespace.to_string());
        map.data = Some([("cidr".to_owned(), network.spec.cidr.clone())].into());
        refused = set_controller_reference(network, &(), &mut map).err();
        map
    })
    .await?;
    if let Some(refused) = refused {
        return Err(refused.into());
    }
    let mut status = network.status.clone().unwrap_or_default();
    let before = status.clone();
    status.cidr = Some(network.spec.cidr.clone());
    status.observed_generation = network.metadata.generation;
    if status != before {
        let patch = Patch::Merge(json!({ "status": status }));
        context.client().api::<Network>().patch_status(request, &patch).await?;
    }
    Ok(Action::await_change())
}

struct Looks(Common);

impl Reconciler for Looks {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let Self(common) = self;
        let _pass = common.ground.pass(context.controller(), &request);
        common.maybe_fail().await?;
        let map = context.client().api::<ConfigMap>().get(&request)?;
        common.seen.note(common.ground.id(), &context, &request, map.as_deref());
        Ok(Action::await_change())
    }
}

/// A manager with both controllers.
pub(crate) fn manager(ground: &Ground, seen: &Seen, temper: Temper) -> Manager {
    manager_with(ground, seen, temper, |builder| builder)
}

/// A manager with both controllers and a further choice.
pub(crate) fn manager_with(
    ground: &Ground,
    seen: &Seen,
    temper: Temper,
    choose: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
) -> Manager {
    let rng = Arc::new(Mutex::new(SmallRng::seed_from_u64(ground.seed)));
    let common = Common { ground: ground.clone(), seen: seen.clone(), temper, rng };
    let builder = Manager::builder(ground.client())
        .clock(ground.clock())
        .seed(ground.seed)
        .cache(CacheOptions::new().backoff(Duration::from_millis(200), Duration::from_secs(2)));
    let mut manager = choose(builder).build();
    let acts = Controller::builder(ACTS)
        .for_(Watch::<Network>::new())
        .owns(Watch::<ConfigMap>::new())
        .concurrency(CONCURRENCY)
        .sync_timeout(None)
        .build(Acts(common.clone()))
        .unwrap();
    let looks = Controller::builder(LOOKS)
        .for_(Watch::<ConfigMap>::new())
        .sync_timeout(None)
        .build(Looks(common))
        .unwrap();
    let handles = [manager.add(acts).unwrap(), manager.add(looks).unwrap()];
    seen.0.lock().unwrap().handles.extend(handles);
    manager
}

/// Networks of the default namespace, or one of them.
pub(crate) fn networks(name: &str) -> String {
    let path = format!("/apis/samplecrd.k8s.io/v1/namespaces/default/networks/{name}");
    path.trim_end_matches('/').to_owned()
}

/// A Network manifest.
pub(crate) fn network(name: &str, cidr: &str) -> Value {
    let spec = NetworkSpec { cidr: cidr.into(), gateway: "10.0.0.1".into() };
    serde_json::to_value(Network::new(name, spec)).unwrap()
}

/// Installs the definition.
pub(crate) fn define_networks(world: &mut World) {
    let crd: Value = serde_saphyr::from_str(CRD_YAML).unwrap();
    world.ask(|person| async move {
        person.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
        while person.get(&networks("")).await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Describes all violated conditions.
async fn violations(person: &Person, seen: &Seen, at_work: ProcessId) -> Vec<String> {
    let networks = person.list(&networks("")).await;
    let maps = person.list(&maps("default", "")).await;
    let mut violations = seen.behind(at_work, ACTS, &networks);
    violations.extend(seen.behind(at_work, LOOKS, &maps));
    for network in &networks {
        let (meta, status) = (&network["metadata"], &network["status"]);
        let name = &meta["name"];
        if !meta["deletionTimestamp"].is_null() {
            violations.push(format!("{name} is still being deleted"));
        }
        if meta["finalizers"] != json!([FINALIZER]) {
            violations.push(format!("{name} has finalizers {}", meta["finalizers"]));
        }
        let is_current = status["observedGeneration"] == meta["generation"]
            && status["cidr"] == network["spec"]["cidr"];
        if !is_current {
            violations
                .push(format!("{name} generation {} has status {status}", meta["generation"]));
        }
        let child = maps.iter().find(|map| map["metadata"]["name"] == *name);
        let is_right = child.is_some_and(|map| {
            map["data"]["cidr"] == network["spec"]["cidr"]
                && map["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]
        });
        if !is_right {
            violations.push(format!("{name} has the child {child:?}"));
        }
    }
    for map in &maps {
        let name = &map["metadata"]["name"];
        if !networks.iter().any(|network| network["metadata"]["name"] == *name) {
            violations.push(format!("nobody owns {name}"));
        }
    }
    violations
}

/// Waits until all conditions hold, and the running process has seen the current version of every
/// key.
#[track_caller]
pub(crate) fn converge(
    world: &mut World,
    seen: &Seen,
    limit: Duration,
    at_work: impl Fn(&World) -> ProcessId,
) {
    let end = world.now() + limit;
    loop {
        let (seen, at_work) = (seen.clone(), at_work(world));
        let violations =
            world.ask(move |person| async move { violations(&person, &seen, at_work).await });
        if violations.is_empty() {
            return;
        }
        assert!(world.now() < end, "after {limit:?}:\n{}", violations.join("\n"));
        world.run_for(Duration::from_secs(2));
    }
}
