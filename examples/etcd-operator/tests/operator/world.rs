//! A world without containers: pods that run as if a kubelet ran them, and etcd in memory.

use etcd_operator::api::CLUSTER_LABEL;
use etcd_operator::etcd::{Etcd, EtcdError, Listed, Look, Members};
use etcd_operator::plan::quorum;
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use setpoint::kube_client;
use setpoint::testenv::TestEnv;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often the kubelet looks.
const STEP: Duration = Duration::from_millis(300);
/// A member with no data and no others, as etcd says it.
const NO_DATA: &str = "cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs";

/// Clusters by name, and what was done to them that must not be.
#[derive(Debug, Clone, Default)]
pub(crate) struct World(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    clusters: BTreeMap<String, Cluster>,
    violations: Vec<String>,
    /// Pods that do not run, because their node fails.
    down: BTreeSet<String>,
    /// Attempts at a backup that fail, because its folder cannot be written.
    n_failing_saves: u32,
}

#[derive(Debug, Default)]
struct Cluster {
    members: Vec<Listed>,
    n_members: u64,
    /// The member whose data a claim has, by the claim's uid.
    data: BTreeMap<String, u64>,
    /// What runs, by address: member and version.
    running: BTreeMap<String, (u64, String)>,
}

impl Cluster {
    /// The number of members that vote, and of those of them that run.
    fn voters(&self) -> (usize, usize) {
        let voters = self.members.iter().filter(|member| !member.is_learner);
        let ids: Vec<u64> = voters.map(|voter| voter.id).collect();
        let n_running = self.running.values().filter(|(id, _)| ids.contains(id)).count();
        (ids.len(), n_running)
    }

    fn has_quorum(&self) -> bool {
        let (n, n_running) = self.voters();
        n > 0 && n_running >= quorum(n)
    }

    fn leader(&self) -> u64 {
        let is_running = |id: u64| self.running.values().any(|(running, _)| *running == id);
        let mut voters = self.members.iter().filter(|member| !member.is_learner);
        voters.find(|voter| is_running(voter.id)).map_or(0, |voter| voter.id)
    }
}

impl World {
    /// What must be the same at the end of every play.
    pub(crate) fn outside(&self) -> Value {
        let inner = self.0.lock().unwrap();
        let members = inner.clusters.iter().map(|(name, cluster)| {
            let members = cluster.members.iter();
            let members: Vec<Value> =
                members.map(|one| json!([one.name, one.peer_urls, one.is_learner])).collect();
            (name.clone(), Value::from(members))
        });
        let members: serde_json::Map<_, _> = members.collect();
        json!({"violations": inner.violations, "members": members})
    }

    /// Loses the data of a member.
    pub(crate) fn lose(&self, cluster: &str, name: &str) {
        let mut inner = self.0.lock().unwrap();
        let cluster = inner.clusters.get_mut(cluster).unwrap();
        let member = cluster.members.iter().find(|member| member.name == name).unwrap().id;
        cluster.data.retain(|_, id| *id != member);
    }

    /// The nodes of these pods fail, and those of all others work. Pods that are made again under
    /// these names do not run either.
    pub(crate) fn set_down(&self, pods: &[&str]) {
        self.0.lock().unwrap().down = pods.iter().map(|name| (*name).to_owned()).collect();
    }

    /// The first attempts at each backup fail.
    pub(crate) fn fail_saves(&self, n: u32) {
        self.0.lock().unwrap().n_failing_saves = n;
    }

    /// The number of members of a cluster that vote, and of those of them that run.
    pub(crate) fn voters(&self, cluster: &str) -> (usize, usize) {
        let inner = self.0.lock().unwrap();
        inner.clusters.get(cluster).map_or((0, 0), Cluster::voters)
    }

    /// Calls `act` on the cluster that has one of the addresses, if it has a majority.
    fn with<T>(
        &self,
        endpoints: &[String],
        act: impl FnOnce(&mut Cluster, &mut Vec<String>) -> T,
    ) -> Result<T, EtcdError> {
        let mut inner = self.0.lock().unwrap();
        let Inner { clusters, violations, .. } = &mut *inner;
        let runs = |cluster: &&mut Cluster| {
            endpoints.iter().any(|endpoint| cluster.running.contains_key(endpoint))
        };
        let cluster = clusters.values_mut().find(runs).filter(|cluster| cluster.has_quorum());
        Ok(act(cluster.ok_or(EtcdError::NoEndpoint)?, violations))
    }
}

impl Etcd for World {
    fn members<'a>(&'a self, endpoints: &'a [String]) -> BoxFuture<'a, Result<Members, EtcdError>> {
        let members = self
            .with(endpoints, |cluster, _| Members { cluster_id: 7, list: cluster.members.clone() });
        Box::pin(async move { members })
    }

    fn look<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<Look, EtcdError>> {
        let inner = self.0.lock().unwrap();
        let found = inner.clusters.values().find_map(|cluster| {
            let (id, version) = cluster.running.get(endpoint)?;
            Some(Look {
                id: *id,
                version: version.clone(),
                leader: cluster.leader(),
                revision: 1,
                is_healthy: cluster.has_quorum(),
            })
        });
        Box::pin(async move { found.ok_or(EtcdError::NoEndpoint) })
    }

    fn add_learner<'a>(
        &'a self,
        endpoints: &'a [String],
        peer_url: &'a str,
    ) -> BoxFuture<'a, Result<(), EtcdError>> {
        let added = self.with(endpoints, |cluster, violations| {
            if cluster.members.iter().any(|member| member.peer_urls[0] == peer_url) {
                return;
            }
            if cluster.members.iter().any(|member| member.is_learner) {
                violations.push(format!("a second learner, {peer_url}"));
            }
            cluster.n_members += 1;
            cluster.members.push(Listed {
                id: cluster.n_members,
                name: String::new(),
                peer_urls: vec![peer_url.to_owned()],
                is_learner: true,
            });
        });
        Box::pin(async move { added })
    }

    fn promote<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<bool, EtcdError>> {
        let promoted = self.with(endpoints, |cluster, _| {
            let is_running = cluster.running.values().any(|(running, _)| *running == id);
            let member = cluster.members.iter_mut().find(|member| member.id == id);
            member.filter(|_| is_running).map(|member| member.is_learner = false).is_some()
        });
        Box::pin(async move { promoted })
    }

    fn remove<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<(), EtcdError>> {
        let removed = self.with(endpoints, |cluster, violations| {
            let is_voter = cluster.members.iter().any(|one| one.id == id && !one.is_learner);
            let runs = cluster.running.values().any(|(running, _)| *running == id);
            let (n, n_running) = cluster.voters();
            if is_voter && runs && n_running < n {
                violations.push(format!("{id} runs, and {} others do not", n - n_running));
            }
            cluster.members.retain(|member| member.id != id);
            if !cluster.has_quorum() {
                violations.push(format!("no majority without {id}"));
            }
        });
        Box::pin(async move { removed })
    }
}

/// Sends a request; returns the answer, or `None` for a 404, 409 or 422.
pub(crate) async fn request(
    env: &TestEnv,
    method: &str,
    path: &str,
    body: &Value,
) -> Option<Value> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    match env.client().request(request.body(body).unwrap()).await {
        Ok(answer) => Some(answer),
        Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => None,
        Err(error) => panic!("{method} {path}: {error:?}"),
    }
}

const CORE: &str = "/api/v1/namespaces/default";

/// Runs pods and removes those that are being deleted, without end: looks after changes of objects
/// and of the world.
pub(crate) async fn kubelet(env: &TestEnv, world: &World) {
    let mut changes = env.changes();
    let mut seen = None;
    loop {
        tokio::time::sleep(STEP).await;
        // What changes from here on is for the next look.
        let inputs = Some(world.inputs());
        if changes.next().now_or_never().is_none() && inputs == seen {
            continue;
        }
        seen = inputs;
        let [pods, claims, maps] = ["pods", "persistentvolumeclaims", "configmaps"]
            .map(|resource| format!("{CORE}/{resource}"));
        let pods = request(env, "GET", &pods, &Value::Null).await.unwrap();
        let claims = request(env, "GET", &claims, &Value::Null).await.unwrap();
        let maps = request(env, "GET", &maps, &Value::Null).await.unwrap();
        for cluster in world.0.lock().unwrap().clusters.values_mut() {
            cluster.running.clear();
        }
        let mut statuses = Vec::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                // A deletion that the store has cut in two: the collector of pods ends it.
                let name = pod["metadata"]["name"].as_str().unwrap();
                let now = json!({"gracePeriodSeconds": 0});
                request(env, "DELETE", &format!("{CORE}/pods/{name}"), &now).await;
                continue;
            }
            let status = match pod["metadata"]["labels"][CLUSTER_LABEL].as_str() {
                Some(cluster) => world.run(cluster, pod, &claims, &maps),
                None => world.save(pod),
            };
            statuses.push((pod, status));
        }
        for (pod, mut status) in statuses {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let is_ready = status["conditions"][0]["status"].clone();
            if pod["status"]["conditions"][0]["status"] == is_ready
                && pod["status"]["containerStatuses"] == status["containerStatuses"]
            {
                continue;
            }
            status["conditions"][0]["lastTransitionTime"] = env.clock().now().rfc3339().into();
            let patch = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status});
            request(env, "PATCH", &format!("{CORE}/pods/{name}/status"), &patch).await;
        }
    }
}

/// The status of a pod that has saved a backup, or could not.
fn saved(can_write: bool) -> Value {
    let (phase, code, message) = match can_write {
        true => {
            let report = json!({"revision": 5, "sizeBytes": 100, "version": "3.5.1"});
            ("Succeeded", 0, report.to_string())
        }
        false => ("Failed", 1, "write the snapshot: No space left on device".to_owned()),
    };
    json!({
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "save", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "message": message}},
        }],
    })
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["items"].as_array()?.iter().find(|object| object["metadata"]["name"] == name)
}

impl World {
    /// All that a kubelet's next look depends on, other than objects.
    fn inputs(&self) -> String {
        let inner = self.0.lock().unwrap();
        let clusters = inner
            .clusters
            .iter()
            .map(|(name, cluster)| format!("{name} {:?} {:?}", cluster.members, cluster.data));
        let clusters: Vec<String> = clusters.collect();
        format!("{clusters:?} {:?} {}", inner.down, inner.n_failing_saves)
    }

    /// Runs the pod of an attempt at a backup; returns its status.
    fn save(&self, pod: &Value) -> Value {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let (_, attempt) = name.rsplit_once("-backup").unwrap();
        let attempt = attempt.strip_prefix('-').map_or(0, |n| n.parse().unwrap());
        saved(attempt >= self.0.lock().unwrap().n_failing_saves)
    }

    /// Runs a member; returns the status of its pod.
    fn run(&self, cluster: &str, pod: &Value, claims: &Value, maps: &Value) -> Value {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let ordinal: u8 = name.rsplit_once('-').unwrap().1.parse().unwrap();
        let ip = format!("10.{}.0.{}", cluster.len(), ordinal + 1);
        let mut inner = self.0.lock().unwrap();
        if inner.down.contains(name) {
            let shown = pod["status"]["podIP"].as_str();
            return json!({
                "phase": "Pending", "podIP": shown,
                "podIPs": shown.map(|ip| json!([{"ip": ip}])),
                "conditions": [{"type": "Ready", "status": "False"}],
                // Nobody says more of them.
                "containerStatuses": pod["status"]["containerStatuses"],
            });
        }
        let known = inner.clusters.entry(cluster.to_owned()).or_default();
        let claim = named(claims, name).map(|claim| claim["metadata"]["uid"].as_str().unwrap());
        let map = named(maps, &format!("{cluster}-members"));
        let entry = map.and_then(|map| map["data"][name].as_str());
        let state = map.and_then(|map| map["data"][format!("{name}.state")].as_str());
        let mut is_running = false;
        let mut message = None;
        if let (Some(claim), Some(entry), Some(state)) = (claim, entry, state) {
            let (url, data) = (format!("http://{ip}:2380"), known.data.get(claim).copied());
            let is_alone = !entry.contains(',');
            let member = match data {
                Some(id) => known.members.iter().find(|member| member.id == id).map(|one| one.id),
                None if state == "new" && known.members.is_empty() => {
                    known.n_members += 1;
                    let id = known.n_members;
                    known.members.push(Listed {
                        id,
                        name: name.to_owned(),
                        peer_urls: vec![url],
                        is_learner: false,
                    });
                    Some(id)
                }
                None if is_alone => {
                    message = Some(NO_DATA);
                    None
                }
                None => {
                    let listed = known.members.iter_mut();
                    let mut new =
                        listed.filter(|one| one.name.is_empty() && one.peer_urls[0] == url);
                    new.next().map(|member| {
                        name.clone_into(&mut member.name);
                        member.id
                    })
                }
            };
            if let Some(id) = member {
                is_running = true;
                known.data.insert(claim.to_owned(), id);
                let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
                let version = image.rsplit_once(":v").unwrap().1.to_owned();
                known.running.insert(format!("http://{ip}:2379"), (id, version));
            }
        }
        let state = match message {
            Some(message) => json!({"terminated": {"exitCode": 1, "message": message}}),
            None if is_running => json!({"running": {}}),
            None => json!({"waiting": {"reason": "ContainerCreating"}}),
        };
        let ready = if is_running { "True" } else { "False" };
        json!({
            "phase": if is_running { "Running" } else { "Pending" },
            "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{
                "name": "etcd", "image": "", "imageID": "", "ready": is_running, "restartCount": 0,
                "state": state,
            }],
        })
    }
}
