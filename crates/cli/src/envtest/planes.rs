//! Control planes in one process: one for each test, with a kubeconfig of its own, on a port of its
//! own. They share nothing but the process.
//!
//! The time of a plane passes as that of the machine. One with [virtual time](super::virtual_time)
//! can be advanced; it has threads of its own.
//!
//! A snapshot is a fork of the plane's store, which takes no time. A reset writes the differences
//! between the plane and a snapshot into the store, so it costs what has changed, and watches and
//! controllers see it as ordinary changes: resourceVersions go on.

use super::control::{Answer, json, no_method, not_found};
use super::virtual_time::{self, ADVANCE_MAX, Advancer, PACE, advancer};
use crate::admission::AdmissionOptions;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json as value};
use setpoint::apiserver::listen::{LIMITS, Limits};
use setpoint::apiserver::{Anonymous, Body};
use setpoint::object::error::chain;
use setpoint::object::time::Clock;
use setpoint::object::{ApiError, Reason};
use setpoint::registry::{NodePorts, Registry, RuntimeConfig, ServiceNetworks};
use setpoint::store::{MemoryStore, Op, RangeRequest, Store, StoreError, Txn, VALUE_BYTES_MAX};
use setpoint::{ControlPlane, Selection, ServeOptions, Serving, SharedParts, SimulatedNodes};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum number of planes at the same time.
const PLANES_MAX: usize = 512;
/// How many of them may have virtual time, which takes two threads each.
const VIRTUAL_MAX: usize = 32;
/// Maximum number of snapshots of a plane.
const SNAPSHOTS_MAX: usize = 64;
/// Maximum number of orders that wait.
const ORDERS_MAX: usize = 64;
/// The keys of all objects.
const KEYS: &str = "/registry/";

/// What all planes are made of.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) controllers: Selection,
    pub(crate) admission: AdmissionOptions,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) service_networks: ServiceNetworks,
    pub(crate) node_ports: NodePorts,
    pub(crate) runtime_config: RuntimeConfig,
    pub(crate) nodes: Option<SimulatedNodes>,
    pub(crate) allow_privileged: bool,
}

/// Gives orders to the worker.
#[derive(Debug, Clone)]
pub(crate) struct Planes(mpsc::Sender<Order>);

/// Owns the planes.
#[derive(Debug)]
pub(crate) struct PlanesWorker {
    template: Arc<Template>,
    /// Of the planes with the machine's time.
    shared_parts: SharedParts,
    orders: mpsc::Receiver<Order>,
    planes: BTreeMap<u64, Plane>,
    last_id: u64,
}

#[derive(Debug)]
struct Plane {
    url: String,
    store: MemoryStore,
    registry: Registry,
    snapshots: BTreeMap<String, MemoryStore>,
    /// Advances its time, if that is virtual.
    advancer: Option<Advancer>,
    /// Ends it.
    stop: CancellationToken,
}

/// A plane that is bound but does not run yet.
struct Opened {
    serving: Serving,
    registry: Registry,
}

/// How an opened plane is reached, and what its worker needs.
struct Handles {
    url: String,
    document: Value,
    registry: Registry,
    ready: watch::Receiver<bool>,
}

impl Opened {
    fn handles(&self) -> Handles {
        let Self { serving, registry } = self;
        Handles {
            url: serving.url().to_owned(),
            document: access(serving),
            registry: registry.clone(),
            ready: serving.ready(),
        }
    }

    /// Runs until `stop`.
    async fn run(self, id: u64, stop: CancellationToken) {
        if let Err(error) = self.serving.run(stop).await {
            tracing::error!(error = chain(&error), id, "a control plane has failed");
        }
    }
}

/// What a client needs to reach a server as its administrator.
pub(crate) fn access(serving: &Serving) -> Value {
    value!({
        "url": serving.url(),
        "kubeconfig": serving.kubeconfig(),
        "certificateAuthority": serving.ca(),
        "token": serving.token(),
    })
}

/// A plane that has begun to start.
#[derive(Debug)]
struct Created {
    /// Its number, and how it is reached.
    document: Value,
    ready: watch::Receiver<bool>,
    stop: CancellationToken,
}

#[derive(Debug)]
enum Order {
    Create {
        is_virtual: bool,
        reply: oneshot::Sender<Result<Created, ApiError>>,
    },
    /// What advances the time of a plane.
    Advancer(u64, oneshot::Sender<Result<Advancer, ApiError>>),
    /// Answers with a document.
    Other(Other, oneshot::Sender<Result<Value, ApiError>>),
}

#[derive(Debug)]
enum Other {
    List,
    Delete(u64),
    Snapshot(u64, String),
    Reset(u64, String),
}

impl Planes {
    /// No planes yet.
    pub(crate) fn new(template: Template) -> (Self, PlanesWorker) {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        let template = Arc::new(template);
        let worker = PlanesWorker {
            template,
            shared_parts: SharedParts::default(),
            orders,
            planes: BTreeMap::new(),
            last_id: 0,
        };
        (Self(sender), worker)
    }

    /// POST makes one, GET lists them, DELETE ends one; POST to `snapshot`, `reset` and `advance`
    /// of one.
    pub(super) async fn answer(&self, method: &Method, path: &[&str], body: &Value) -> Answer {
        let id = |id: &str| id.parse::<u64>().map_err(|_| not_found(id));
        let name = || body["name"].as_str().unwrap_or_default().to_owned();
        let other = match (method, path) {
            (&Method::POST, []) => {
                return self.create(body["follow"] == true, body["virtualTime"] == true).await;
            }
            (&Method::POST, [plane, "advance"]) => return self.advance(id(plane)?, body).await,
            (&Method::GET, []) => Other::List,
            (&Method::DELETE, [plane]) => Other::Delete(id(plane)?),
            (&Method::POST, [plane, "snapshot"]) => Other::Snapshot(id(plane)?, name()),
            (&Method::POST, [plane, "reset"]) => Other::Reset(id(plane)?, name()),
            (_, [] | [_] | [_, "snapshot" | "reset" | "advance"]) => return Err(no_method(method)),
            _ => return Err(not_found(&path.join("/"))),
        };
        let (reply, answer) = oneshot::channel();
        self.0.send(Order::Other(other, reply)).await.map_err(|_| stopping())?;
        Ok(json(StatusCode::OK, &answer.await.map_err(|_| stopping())??))
    }

    /// Makes a plane and waits until it is ready. With `follow` the answer stays open, and the
    /// plane ends with it.
    async fn create(&self, follow: bool, is_virtual: bool) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.0.send(Order::Create { is_virtual, reply }).await.map_err(|_| stopping())?;
        let created = answer.await.map_err(|_| stopping())??;
        let Created { document, mut ready, stop } = created;
        // Ends the plane if the client disconnects before it has the answer.
        let guard = stop.clone().drop_guard();
        ready.wait_for(|ready| *ready).await.map_err(|_| stopping())?;
        if !follow {
            _ = guard.disarm();
            return Ok(json(StatusCode::CREATED, &document));
        }
        let line = Bytes::from(format!("{document}\n"));
        let open = futures::stream::once(stop.cancelled_owned()).filter_map(move |()| {
            // The guard lives as long as the stream.
            let _guard = &guard;
            futures::future::ready(None)
        });
        let body = futures::stream::once(futures::future::ready(line)).chain(open);
        let mut answer = Response::new(Body::stream(body));
        *answer.status_mut() = StatusCode::CREATED;
        Ok(answer)
    }
}

impl Planes {
    /// Advances the time of a plane by `seconds`; answers with the time that is reached.
    async fn advance(&self, id: u64, body: &Value) -> Answer {
        let by = body["seconds"].as_f64().and_then(|n| Duration::try_from_secs_f64(n).ok());
        let Some(by) = by.filter(|by| *by <= ADVANCE_MAX) else {
            let most = ADVANCE_MAX.as_secs();
            return Err(ApiError::bad_request(format!("seconds must be a number, at most {most}")));
        };
        let (reply, answer) = oneshot::channel();
        self.0.send(Order::Advancer(id, reply)).await.map_err(|_| stopping())?;
        let advancer = answer.await.map_err(|_| stopping())??;
        let reached = advancer.advance(by).await.ok_or_else(stopping)?;
        Ok(json(StatusCode::OK, &value!({"id": id, "time": reached.rfc3339_micro()})))
    }
}

fn stopping() -> ApiError {
    ApiError::new(503, Reason::ServiceUnavailable, "the server is stopping")
}

impl Plane {
    /// Whether it has not been deleted: one that is ending still counts.
    fn is_present(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

impl PlanesWorker {
    /// Runs until `stop`, then ends all planes.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut running: JoinSet<u64> = JoinSet::new();
        loop {
            let order = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `join_next` has taken no result.
                Some(ended) = running.join_next() => {
                    match ended {
                        Ok(id) => _ = self.planes.remove(&id),
                        Err(error) => tracing::error!(error = chain(&error), "a control plane has panicked"),
                    }
                    continue;
                }
                // Cancel safe: a dropped `recv` has taken no order.
                order = self.orders.recv() => order,
            };
            // A client that has disconnected needs no answer.
            match order {
                Some(Order::Create { is_virtual, reply }) => {
                    let created = self.create(is_virtual, &mut running, &stop).await;
                    if let Err(Ok(created)) = reply.send(created) {
                        created.stop.cancel();
                    }
                }
                Some(Order::Advancer(id, reply)) => _ = reply.send(self.advancer(id)),
                Some(Order::Other(other, reply)) => _ = reply.send(self.other(other).await),
                None => break,
            }
        }
        for plane in self.planes.values() {
            plane.stop.cancel();
        }
        while running.join_next().await.is_some() {}
    }

    async fn create(
        &mut self,
        is_virtual: bool,
        running: &mut JoinSet<u64>,
        stop: &CancellationToken,
    ) -> Result<Created, ApiError> {
        if self.planes.len() >= PLANES_MAX {
            let why = format!("there are {PLANES_MAX} control planes: delete one");
            return Err(ApiError::too_many_requests(why, 1));
        }
        let n_virtual = self.planes.values().filter(|plane| plane.advancer.is_some()).count();
        if is_virtual && n_virtual >= VIRTUAL_MAX {
            let why = format!("there are {VIRTUAL_MAX} control planes with virtual time");
            return Err(ApiError::too_many_requests(why, 1));
        }
        self.last_id += 1;
        let (id, stop) = (self.last_id, stop.child_token());
        let (template, store) = (self.template.clone(), MemoryStore::default());
        let (handles, advancer) = if is_virtual {
            let (reply, opened) = oneshot::channel();
            let (advancer, orders) = advancer();
            let (store, stop) = (store.clone(), stop.clone());
            running.spawn_blocking(move || {
                let work = async |clock| match open(&template, None, &store, clock, PACE).await {
                    Ok(opened) => {
                        _ = reply.send(Ok(opened.handles()));
                        opened.run(id, stop).await;
                    }
                    Err(error) => _ = reply.send(Err(error)),
                };
                if let Err(error) = virtual_time::run(orders, work) {
                    tracing::error!(
                        error = chain(&error),
                        id,
                        "run a control plane with virtual time"
                    );
                }
                id
            });
            // It ends without a reply if the system refuses a runtime.
            let refused = || ApiError::internal("the system refuses a runtime");
            (opened.await.map_err(|_| refused())??, Some(advancer))
        } else {
            let shared = Some(self.shared_parts.clone());
            let opened = open(&template, shared, &store, Clock::wall(), 1).await?;
            let (handles, stop) = (opened.handles(), stop.clone());
            running.spawn(async move {
                opened.run(id, stop).await;
                id
            });
            (handles, None)
        };
        let Handles { url, mut document, registry, ready } = handles;
        document["id"] = id.into();
        let created = Created { document, ready, stop: stop.clone() };
        let snapshots = BTreeMap::new();
        self.planes.insert(id, Plane { url, store, registry, snapshots, advancer, stop });
        Ok(created)
    }

    fn advancer(&self, id: u64) -> Result<Advancer, ApiError> {
        let plane = self.planes.get(&id).filter(|plane| plane.is_present());
        let plane = plane.ok_or_else(|| not_found(&format!("plane {id}")))?;
        plane.advancer.clone().ok_or_else(|| {
            ApiError::bad_request(
                "its time passes as that of the machine: make it with {\"virtualTime\": true}",
            )
        })
    }

    async fn other(&mut self, other: Other) -> Result<Value, ApiError> {
        let (Other::Delete(id) | Other::Snapshot(id, _) | Other::Reset(id, _)) = other else {
            let show = |(id, plane): (&u64, &Plane)| {
                let snapshots: Vec<&String> = plane.snapshots.keys().collect();
                value!({"id": id, "url": plane.url, "snapshots": snapshots})
            };
            let present = self.planes.iter().filter(|(_, plane)| plane.is_present());
            return Ok(value!({"items": present.map(show).collect::<Vec<_>>()}));
        };
        let plane = self.planes.get_mut(&id).filter(|plane| plane.is_present());
        let plane = plane.ok_or_else(|| not_found(&format!("plane {id}")))?;
        match other {
            Other::Snapshot(_, name) => {
                let n = plane.snapshots.len();
                if n >= SNAPSHOTS_MAX && !plane.snapshots.contains_key(&name) {
                    let why = format!("the control plane has {SNAPSHOTS_MAX} snapshots");
                    return Err(ApiError::too_many_requests(why, 1));
                }
                plane.snapshots.insert(name.clone(), plane.store.fork());
                Ok(value!({"id": id, "name": name}))
            }
            Other::Reset(_, name) => {
                let snapshot = plane.snapshots.get(&name);
                let snapshot = snapshot.ok_or_else(|| not_found(&format!("snapshot {name:?}")))?;
                let n = reset(&plane.store, snapshot).await.map_err(ApiError::internal)?;
                plane.registry.reload_service_numbers().await?;
                Ok(value!({"id": id, "name": name, "changed": n}))
            }
            Other::Delete(_) | Other::List => {
                plane.stop.cancel();
                Ok(value!({"id": id}))
            }
        }
    }
}

/// Opens a plane. Its time passes at most `pace` times as fast as its peers'.
async fn open(
    template: &Template,
    shared_parts: Option<SharedParts>,
    store: &MemoryStore,
    clock: Clock,
    pace: u32,
) -> Result<Opened, ApiError> {
    let features = template.runtime_config.features();
    let admission = template.admission.open(features).await.map_err(ApiError::internal)?;
    let mut plane = ControlPlane::builder()
        .store(Arc::new(store.clone()))
        .clock(clock)
        .controllers(template.controllers.clone())
        .service_networks(template.service_networks)
        .node_ports(template.node_ports)
        .runtime_config(template.runtime_config.clone())
        .allow_privileged(template.allow_privileged)
        .anonymous(Anonymous::Everywhere)
        .rbac();
    plane = admission.apply(plane);
    if let Some(parts) = shared_parts {
        plane = plane.shared_parts(parts);
    }
    if let Some(nodes) = &template.nodes {
        plane = plane.nodes(nodes.clone());
    }
    let plane = plane.build();
    let mut options = ServeOptions::new((Ipv4Addr::LOCALHOST, 0)).limits(Limits { pace, ..LIMITS });
    if let Some(path) = &template.client_ca_file {
        options = options.client_ca_file(path);
    }
    if let Some(path) = &template.token_auth_file {
        options = options.token_auth_file(path);
    }
    let registry = plane.server().registry().clone();
    let serving = plane.serve(options).await.map_err(ApiError::internal)?;
    Ok(Opened { serving, registry })
}

/// Writes the differences to a snapshot; returns the number of keys. One commit, unless it would be
/// larger than a commit may be.
async fn reset(store: &MemoryStore, snapshot: &MemoryStore) -> Result<usize, StoreError> {
    let present = store.range(RangeRequest::prefix(KEYS)).await?.value.entries;
    let wanted = snapshot.range(RangeRequest::prefix(KEYS)).await?.value.entries;
    let values: BTreeMap<&Bytes, &Bytes> = present.iter().map(|kv| (&kv.key, &kv.value)).collect();
    let keys: BTreeSet<&Bytes> = wanted.iter().map(|kv| &kv.key).collect();
    let gone = present.iter().filter(|kv| !keys.contains(&kv.key));
    let changed = wanted.iter().filter(|kv| values.get(&kv.key) != Some(&&kv.value));
    let mut ops: Vec<Op> = changed.map(|kv| Op::Put(kv.key.clone(), kv.value.clone())).collect();
    ops.extend(gone.map(|kv| Op::Delete(kv.key.clone())));
    let n = ops.len();
    let size = |op: &Op| match op {
        Op::Put(key, value) => key.len() + value.len(),
        Op::Delete(key) => key.len(),
    };
    let (mut commit, mut n_bytes) = (Vec::new(), 0);
    for op in ops {
        n_bytes += size(&op);
        if n_bytes > VALUE_BYTES_MAX {
            n_bytes = size(&op);
            store.commit(Txn { ops: std::mem::take(&mut commit), ..Txn::default() }).await?;
        }
        commit.push(op);
    }
    if !commit.is_empty() {
        store.commit(Txn { ops: commit, ..Txn::default() }).await?;
    }
    Ok(n)
}
