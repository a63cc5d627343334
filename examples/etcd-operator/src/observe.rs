//! Observes a cluster: its objects and the answers of its members, as the [`State`] of a decision.

use crate::api::{CLUSTER_LABEL, EtcdCluster, TEMPLATE_ANNOTATION};
use crate::etcd::{CLIENT_PORT, Etcd, EtcdError, Look, Members};
use crate::objects::{ETCD, Objects, RESTORE, bracketed, read_entry};
use crate::plan::{self, Claim, Entry, Member, Slot, State};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use setpoint::kube_client::api::ListParams;
use setpoint::kube_core::ObjectMeta;
use setpoint::object::label::Selector;
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use setpoint::runtime::Client;
use std::collections::BTreeMap;
use std::time::Duration;

/// etcd's error for a sealed entry without data.
const DATA_LOST: &str = "could not retrieve cluster information";
/// Maximum number of members that are observed, with those that are being removed.
pub const SLOTS_MAX: usize = 32;

/// The source of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The cache, which may be stale.
    Cache,
    /// The server.
    Server,
}

/// The observed state of a cluster.
#[derive(Debug)]
pub struct Observed {
    /// The cluster.
    pub cluster: EtcdCluster,
    /// The input of the decision.
    pub state: State,
    /// The pods, by number.
    pub pods: BTreeMap<u32, Pod>,
    /// The claims, by number.
    pub claims: BTreeMap<u32, PersistentVolumeClaim>,
    /// The members, as etcd lists them.
    pub members: Option<Members>,
    /// Why the members are unknown.
    pub failed: Option<EtcdError>,
    /// The status of each member, by id.
    pub looks: BTreeMap<u64, Look>,
    /// The addresses of the members for clients, the healthy voting ones first.
    pub endpoints: Vec<(u64, String)>,
}

impl Observed {
    /// Addresses to send a change to: not that of the member it concerns, unless there is no other.
    pub fn endpoints_without(&self, id: u64) -> Vec<String> {
        let (own, mut others): (Vec<_>, Vec<_>) =
            self.endpoints.iter().partition(|(known, _)| *known == id);
        others.extend(own);
        others.into_iter().map(|(_, endpoint)| endpoint.clone()).collect()
    }
}

/// Observes a cluster; `None` if it does not exist or has another uid.
///
/// # Errors
///
/// The server or the cache fails. An etcd that does not answer is not an error.
pub async fn observe<E: Etcd>(
    etcd: &E,
    client: &Client,
    clock: &Clock,
    key: &Request,
    uid: &str,
    from: From,
) -> Result<Option<Observed>, BoxError> {
    let clusters = client.api::<EtcdCluster>();
    let cluster = match from {
        From::Cache => clusters.get(key)?.map(|cluster| (*cluster).clone()),
        From::Server => clusters.get_live(key).await?,
    };
    let Some(cluster) = cluster.filter(|found| found.meta().uid.as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let objects = Objects { cluster: &cluster, key };
    let pods = list::<Pod>(client, key, uid, from).await?;
    let claims = list::<PersistentVolumeClaim>(client, key, uid, from).await?;
    let maps = client.api::<ConfigMap>();
    let map = match from {
        From::Cache => maps.get(&objects.entries_key())?.map(|map| (*map).clone()),
        From::Server => maps.get_live(&objects.entries_key()).await?,
    };
    let map = map.filter(|map| is_owned(map.meta(), uid)).unwrap_or_default();
    let silence_max = Duration::from_secs(cluster.spec.replace_after_seconds.into());
    let hash = objects.template_hash();
    let mut slots = BTreeMap::<u32, Slot>::new();
    let keys = map.data.iter().flatten().filter_map(|(name, _)| ordinal_of(key, name));
    for ordinal in keys.chain(pods.keys().copied()).chain(claims.keys().copied()) {
        if slots.len() >= SLOTS_MAX {
            break;
        }
        slots.entry(ordinal).or_insert_with(|| {
            let pod = pods.get(&ordinal);
            let entry = read_entry(&map, &objects.member(ordinal));
            let own_url = || objects.peer_url(ordinal, ip_of(pod?));
            Slot {
                ordinal,
                claim: match claims.get(&ordinal) {
                    None => Claim::Absent,
                    Some(claim) if claim.metadata.deletion_timestamp.is_some() => Claim::Deleting,
                    Some(_) => Claim::Present,
                },
                pod: pod.map(|pod| view(pod, &hash, entry.as_ref(), clock, silence_max)),
                url: entry.as_ref().map(|(_, url)| url.clone()).or_else(own_url),
                entry: entry.map(|(entry, _)| entry),
            }
        });
    }
    let mut observed = Observed {
        state: State {
            size: cluster.spec.size,
            has_begun: cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some()),
            refused: refused(&cluster, key),
            slots: slots.into_values().collect(),
            members: None,
        },
        cluster,
        pods,
        claims,
        members: None,
        failed: None,
        looks: BTreeMap::new(),
        endpoints: Vec::new(),
    };
    query_members(etcd, &mut observed, key).await;
    Ok(Some(observed))
}

/// Queries etcd. The slots must have been read before: the decision relies on this order.
async fn query_members<E: Etcd>(etcd: &E, observed: &mut Observed, key: &Request) {
    let ips = observed.pods.values().filter_map(ip_of);
    let reachable = ips.map(|ip| format!("http://{}:{CLIENT_PORT}", bracketed(ip)));
    let reachable: Vec<String> = reachable.collect();
    let looks = join_all(reachable.iter().map(|endpoint| etcd.look(endpoint))).await;
    let mut endpoints: Vec<(bool, u64, String)> = Vec::new();
    for (endpoint, look) in reachable.iter().zip(looks) {
        if let Ok(look) = look {
            endpoints.push((!look.is_healthy, look.id, endpoint.clone()));
            observed.looks.insert(look.id, look);
        }
    }
    endpoints.sort();
    observed.endpoints = endpoints.into_iter().map(|(_, id, endpoint)| (id, endpoint)).collect();
    let endpoints: Vec<String> = observed.endpoints.iter().map(|(_, one)| one.clone()).collect();
    let members = match etcd.members(&endpoints).await {
        Ok(members) => members,
        Err(error) => {
            observed.failed = Some(error);
            return;
        }
    };
    let known = observed.cluster.status.as_ref().and_then(|status| status.cluster_id.as_deref());
    // Another cluster's member has the address.
    if known.is_some_and(|known| known != hex(members.cluster_id)) {
        return;
    }
    let slots = &observed.state.slots;
    let list = members.list.iter().map(|listed| {
        let by_url =
            |slot: &&Slot| slot.url.as_ref().is_some_and(|url| listed.peer_urls.contains(url));
        let by_url = slots.iter().find(by_url).map(|slot| slot.ordinal);
        let look = observed.looks.get(&listed.id);
        Member {
            id: listed.id,
            name: listed.name.clone(),
            ordinal: by_url.or_else(|| ordinal_of(key, &listed.name)),
            is_learner: listed.is_learner,
            is_healthy: look.is_some_and(|look| look.is_healthy),
            is_leader: look.is_some_and(|look| look.leader == listed.id),
        }
    });
    let list: Vec<_> = list.collect();
    // A cluster begins with its first member alone.
    let is_first = list.len() == 1 && list[0].ordinal == Some(0);
    if known.is_none() && !is_first {
        return;
    }
    let learners: Vec<u64> =
        members.list.iter().filter(|member| member.is_learner).map(|member| member.id).collect();
    // Learners refuse most calls.
    observed.endpoints.sort_by_key(|(id, _)| learners.contains(id));
    observed.state.members = Some(list);
    observed.members = Some(members);
}

/// The number of a member, from the name of an object.
fn ordinal_of(key: &Request, name: &str) -> Option<u32> {
    let number = name.strip_prefix(&*key.name)?.strip_prefix('-')?;
    let ordinal: u32 = number.parse().ok()?;
    (ordinal.to_string() == number).then_some(ordinal)
}

/// Whether an object belongs to the one with this uid.
pub(crate) fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// The objects of a cluster, by number.
async fn list<K>(
    client: &Client,
    key: &Request,
    uid: &str,
    from: From,
) -> Result<BTreeMap<u32, K>, BoxError>
where
    K: setpoint::informer::Cacheable + Clone,
    K::DynamicType: Default,
{
    let (api, namespace) = (client.api::<K>(), Some(&*key.namespace));
    let found: Vec<K> = match from {
        From::Cache => {
            let selector = Selector::from_labels([(CLUSTER_LABEL, &*key.name)])?;
            api.list(namespace, &selector)?.iter().map(|object| (**object).clone()).collect()
        }
        From::Server => {
            let params = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", key.name));
            api.list_live(namespace, &params).await?
        }
    };
    let owned = found.into_iter().filter(|object| is_owned(object.meta(), uid));
    let numbered =
        owned.filter_map(|object| Some((ordinal_of(key, object.meta().name.as_deref()?)?, object)));
    Ok(numbered.collect())
}

/// The address of a pod.
pub fn ip_of(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    status.pod_ip.as_deref().filter(|ip| !ip.is_empty())
}

fn view(
    pod: &Pod,
    hash: &str,
    entry: Option<&(Entry, String)>,
    clock: &Clock,
    silence_max: Duration,
) -> plan::Pod {
    let annotations = pod.metadata.annotations.as_ref();
    let made_from = annotations.and_then(|all| all.get(TEMPLATE_ANNOTATION));
    let silent = silent_since(pod).map(|since| clock.now().since(since));
    plan::Pod {
        is_deleting: pod.metadata.deletion_timestamp.is_some(),
        is_current: made_from.is_some_and(|made_from| made_from == hash),
        has_lost_data: matches!(entry, Some((Entry::Sealed, _))) && has_lost_data(pod),
        has_failed_restore: has_failed_restore(pod),
        is_silent: silent.is_some_and(|silent| silent >= silence_max),
    }
}

/// Since when a pod is not ready. One that is being deleted counts only after it should be gone.
fn silent_since(pod: &Pod) -> Option<Timestamp> {
    let time = |time: &Time| Timestamp::parse(&time.0.to_string());
    let deadline = pod.metadata.deletion_timestamp.as_ref().and_then(time);
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if conditions.clone().any(|known| known.type_ == "Ready" && known.status == "True") {
        return deadline;
    }
    let changed = conditions.filter_map(|known| known.last_transition_time.as_ref());
    changed.chain(&pod.metadata.creation_timestamp).filter_map(time).chain(deadline).max()
}

fn has_lost_data(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.filter(|status| status.name == ETCD).any(|status| {
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        let message = ended(status).and_then(|ended| ended.message.as_deref());
        !is_running && message.is_some_and(|message| message.contains(DATA_LOST))
    })
}

/// The restore has failed more than once.
fn has_failed_restore(pod: &Pod) -> bool {
    let statuses = pod.status.iter();
    let mut statuses = statuses.flat_map(|status| status.init_container_statuses.iter().flatten());
    statuses.any(|status| {
        let has_failed = ended(status).is_some_and(|ended| ended.exit_code != 0);
        status.name == RESTORE && status.restart_count >= 2 && has_failed
    })
}

/// The last end of a container.
pub fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let now = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    now.or_else(|| status.last_state.as_ref().and_then(|state| state.terminated.as_ref()))
}

/// Why no pod may be made from the spec.
fn refused(cluster: &EtcdCluster, key: &Request) -> Option<String> {
    if key.name.len() > 52 || key.name.contains('.') {
        return Some("the name must be a DNS label of at most 52 characters".to_owned());
    }
    let running = cluster.status.as_ref().and_then(|status| status.version.as_deref())?;
    let running = semver::Version::parse(running).ok()?;
    let wanted = semver::Version::parse(&cluster.spec.version).ok()?;
    let is_next = wanted.major == running.major
        && (running.minor..=running.minor + 1).contains(&wanted.minor);
    (!is_next).then(|| {
        format!("etcd {running} goes to its own or the next minor version only, not to {wanted}")
    })
}

/// An id in hexadecimal digits, as etcdctl prints it.
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}
