//! The nodes that are ours, their pods, and the addresses of both.

use crate::kubelet::Rejection;
use crate::kubelet::resize::{self, Resize, Room, Wanted};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_object::cidr::{Families, Family};
use setpoint_object::pod_phase;
use setpoint_runtime::Request;
use setpoint_runtime::source::KeySink;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, OnceLock};

/// The label of nodes that stages move. Value: `true`.
pub const NODE_LABEL: &str = "nodes.setpoint.dev/simulated";
/// The addresses of nodes: 172.16.0.0/12 has room for a million.
const OF_NODES: Addresses = Addresses {
    four: Ipv4Addr::new(172, 16, 0, 0),
    six: Ipv6Addr::new(0xfd00, 0x172, 0x16, 0, 0, 0, 0, 0),
};
/// The addresses of pods. Each node has a block of a thousand.
const OF_PODS: Addresses = Addresses {
    four: Ipv4Addr::new(10, 64, 0, 0),
    six: Ipv6Addr::new(0xfd00, 0x10, 0x64, 0, 0, 0, 0, 0),
};
/// The first address of nodes.
const NODES_START: u32 = OF_NODES.four.to_bits() + 2;
/// The largest number of nodes: as many as there are blocks of pod addresses.
pub const NODES_MAX: u32 = 12_000;
/// The first address of pods.
const PODS_START: u32 = OF_PODS.four.to_bits();
/// Bits of a block of pod addresses.
const BLOCK_BITS: u32 = 10;

/// Two networks, one of each family. Their addresses have the number of the one of IPv4, so that
/// one number is allocated for both.
struct Addresses {
    four: Ipv4Addr,
    six: Ipv6Addr,
}

impl Addresses {
    /// The number of an address; of IPv6, only of one in the network.
    fn number(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(address) => {
                let offset = address.to_bits().checked_sub(self.six.to_bits())?;
                self.four.to_bits().checked_add(u32::try_from(offset).ok()?)
            }
        }
    }

    /// The addresses of a number, that of the primary family first.
    fn texts(&self, number: u32, families: Families) -> Vec<String> {
        let text = |family| match family {
            Family::V4 => Ipv4Addr::from_bits(number).to_string(),
            Family::V6 => {
                let offset = number.wrapping_sub(self.four.to_bits());
                Ipv6Addr::from_bits(self.six.to_bits() + u128::from(offset)).to_string()
            }
        };
        let Families { primary, is_dual } = families;
        let secondary = is_dual.then(|| primary.other());
        [primary].into_iter().chain(secondary).map(text).collect()
    }
}

/// What the controllers know of nodes and pods.
pub(crate) struct World {
    families: Families,
    inner: Mutex<Inner>,
    /// The keys of pods.
    pub(crate) pods: OnceLock<KeySink<Request>>,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: BTreeMap<Arc<str>, Node>,
    taken: BTreeSet<u32>,
    /// All positions below are taken, so that a new node need not look at each.
    first_free: u32,
    pods: BTreeMap<Request, Pod>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Request>>,
}

#[derive(Debug)]
struct Node {
    /// Its position among the addresses.
    idx: u32,
    /// The pod address that was given last.
    last: u32,
    used: BTreeSet<u32>,
    /// What it has for pods; none if it does not say.
    has: Option<Room>,
    /// How many pods it takes.
    n_pods: Option<i64>,
}

#[derive(Debug)]
struct Pod {
    uid: String,
    node: Arc<str>,
    ip: Option<u32>,
    ports: Vec<Port>,
    has_started: bool,
    /// The node has taken it in, which its status does not show yet.
    is_admitted: bool,
    /// What it has of the node.
    room: Room,
    /// A resize that the node has granted and that its status does not show.
    granted: Option<Wanted>,
    /// A resize that waits for room.
    waiting: Option<Wanted>,
}

impl Pod {
    /// Whether its node runs it.
    fn is_in(&self) -> bool {
        self.has_started || self.is_admitted
    }

    /// What the node has set aside for it.
    fn held(&self) -> Room {
        self.granted.as_ref().map_or(self.room, |granted| granted.room)
    }
}

/// What is read of every pod.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SeenPod {
    metadata: SeenMeta,
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Debug, Deserialize, Serialize)]
struct SeenMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    containers: Vec<SeenContainer>,
    #[serde(default)]
    init_containers: Vec<SeenContainer>,
    #[serde(default)]
    resources: Value,
    #[serde(default)]
    overhead: Value,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenContainer {
    #[serde(default)]
    name: String,
    #[serde(default)]
    restart_policy: Value,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    resources: Value,
}

/// A port of a container.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    host_port: u16,
    #[serde(default, rename = "hostIP")]
    host_ip: String,
    #[serde(default)]
    protocol: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenStatus {
    #[serde(default)]
    phase: String,
    #[serde(default, rename = "podIP")]
    pod_ip: String,
    #[serde(default)]
    start_time: String,
    #[serde(default)]
    container_statuses: Vec<SeenAmounts>,
    #[serde(default)]
    init_container_statuses: Vec<SeenAmounts>,
    #[serde(default)]
    resources: Value,
}

/// What a container has.
#[derive(Debug, Deserialize, Serialize)]
struct SeenAmounts {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resources: Value,
}

impl Port {
    fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.host_port == other.host_port
            && self.protocol == other.protocol
            && (self.host_ip == other.host_ip || any(&self.host_ip) || any(&other.host_ip))
    }
}

impl World {
    /// No nodes and pods yet. They get addresses of these families.
    pub(crate) fn new(families: Families) -> Self {
        Self { families, inner: Mutex::default(), pods: OnceLock::new() }
    }

    /// Takes in a node, or its absence. Returns whether it is ours.
    pub(crate) fn put_node(&self, name: &Arc<str>, node: Option<&Value>) -> bool {
        let is_ours = node.is_some_and(|node| node["metadata"]["labels"][NODE_LABEL] == "true");
        let mut inner = self.inner.lock();
        if !is_ours {
            if let Some(node) = inner.nodes.remove(name) {
                inner.taken.remove(&node.idx);
                inner.first_free = inner.first_free.min(node.idx);
            }
            return false;
        }
        let (has, n_pods) = node.map(Room::of_node).unwrap_or_default();
        if let Some(known) = inner.nodes.get_mut(name) {
            let had = std::mem::replace(&mut known.has, has).unwrap_or_default();
            known.n_pods = n_pods;
            let has_grown = has.unwrap_or_default().exceeds(had);
            let granted = if has_grown { inner.grant(name) } else { Vec::new() };
            drop(inner);
            self.look_again(granted);
            return true;
        }
        let known = node.and_then(address_of).and_then(|address| OF_NODES.number(address));
        let known = known.map(|number| number.wrapping_sub(NODES_START));
        let known = known.filter(|idx| *idx < NODES_MAX && !inner.taken.contains(idx));
        while inner.taken.contains(&inner.first_free) {
            inner.first_free += 1;
        }
        let free = Some(inner.first_free).filter(|idx| *idx < NODES_MAX);
        let Some(idx) = known.or(free) else {
            tracing::warn!(node = %name, "there are too many simulated nodes");
            return false;
        };
        inner.taken.insert(idx);
        let here: Vec<Request> = inner.by_node.get(name).into_iter().flatten().cloned().collect();
        let used = here.iter().filter_map(|key| inner.pods.get(key)?.ip).collect();
        inner.nodes.insert(name.clone(), Node { idx, last: 0, used, has, n_pods });
        drop(inner);
        // Its pods may have been seen before it.
        self.look_again(here);
        true
    }

    /// Moves pods that have not changed.
    fn look_again(&self, pods: Vec<Request>) {
        if let Some(keys) = self.pods.get() {
            pods.into_iter().for_each(|key| keys.add(key));
        }
    }

    /// Takes in a pod, or its absence. Returns whether it is on a node of ours.
    pub(crate) fn put_pod(&self, key: &Request, pod: Option<SeenPod>) -> bool {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let is_over = |pod: &SeenPod| pod_phase::is_terminal(&pod.status.phase);
        let seen = pod.as_ref().filter(|pod| !pod.spec.node_name.is_empty() && !is_over(pod));
        let mut earlier = inner.pods.remove(key);
        let held = earlier.as_ref().map(|earlier| (earlier.node.clone(), earlier.held()));
        // Resizes that are decided are not yet in every event.
        let same = earlier
            .as_mut()
            .filter(|earlier| seen.is_some_and(|seen| earlier.uid == seen.metadata.uid));
        let (granted, waiting, is_admitted) = match same {
            Some(same) => (same.granted.take(), same.waiting.take(), same.is_admitted),
            None => (None, None, false),
        };
        // The address that a pod was given before its status shows it.
        let given = match (&earlier, seen) {
            (Some(earlier), Some(seen)) if earlier.uid == seen.metadata.uid => earlier.ip,
            _ => None,
        };
        if let Some(earlier) = earlier {
            if let (Some(ip), Some(node)) = (earlier.ip, inner.nodes.get_mut(&earlier.node)) {
                node.used.remove(&ip);
            }
            if let Some(keys) = inner.by_node.get_mut(&earlier.node) {
                keys.remove(key);
                if keys.is_empty() {
                    inner.by_node.remove(&earlier.node);
                }
            }
        }
        if let Some(seen) = seen {
            let node: Arc<str> = seen.spec.node_name.as_str().into();
            let shown = seen.status.pod_ip.parse().ok();
            let shown = shown.and_then(|address| OF_PODS.number(address));
            let ip = shown.filter(|_| !seen.spec.host_network).or(given);
            if let (Some(ip), Some(node)) = (ip, inner.nodes.get_mut(&node)) {
                node.used.insert(ip);
            }
            let ports = seen.spec.containers.iter().flat_map(|container| &container.ports);
            let is_current = |wanted: &Wanted| wanted.generation == seen.metadata.generation;
            // What was decoded can be encoded.
            let room = serde_json::to_value(seen).map(|seen| resize::allocated(&seen));
            let room = room.unwrap_or_default();
            let pod = Pod {
                uid: seen.metadata.uid.clone(),
                node: node.clone(),
                ip,
                ports: ports.filter(|port| port.host_port > 0).cloned().collect(),
                has_started: !seen.status.start_time.is_empty(),
                is_admitted,
                room,
                granted: granted.filter(|granted| is_current(granted) && granted.room != room),
                waiting: waiting.filter(is_current),
            };
            inner.by_node.entry(node).or_default().insert(key.clone());
            inner.pods.insert(key.clone(), pod);
        }
        let holds = inner.pods.get(key).map(Pod::held).unwrap_or_default();
        let freed = held.filter(|(_, held)| held.exceeds(holds));
        let granted = freed.map(|(node, _)| inner.grant(&node)).unwrap_or_default();
        let node = pod.map(|pod| pod.spec.node_name).unwrap_or_default();
        let is_ours = inner.nodes.contains_key(&*node);
        drop(guard);
        self.look_again(granted);
        is_ours
    }

    /// Decides on a resize of a pod. One that is deferred is decided again when its node has more
    /// room.
    pub(crate) fn resize(&self, key: &Request, uid: &str, wanted: Wanted) -> Resize {
        let mut inner = self.inner.lock();
        let Some(pod) = inner.pods.get_mut(key).filter(|pod| pod.uid == uid) else {
            // Gone, or on another node: an event follows.
            return Resize::None;
        };
        (pod.granted, pod.waiting) = (None, Some(wanted.clone()));
        let (node, grows) = (pod.node.clone(), wanted.room.exceeds(pod.room));
        if grows && let Some((_, message)) = inner.lack(&node, key, wanted.room, |_| true) {
            return Resize::Deferred(message);
        }
        let Some(pod) = inner.pods.get_mut(key) else { return Resize::None };
        let held = pod.held();
        pod.granted = pod.waiting.take();
        let granted = if held.exceeds(wanted.room) { inner.grant(&node) } else { Vec::new() };
        drop(inner);
        self.look_again(granted);
        Resize::Granted
    }

    /// Takes a pod in that has not started, or says why its node cannot.
    pub(crate) fn admit(&self, key: &Request, uid: &str) -> Result<(), Rejection> {
        let mut inner = self.inner.lock();
        let Some(pod) = inner.pods.get(key).filter(|pod| pod.uid == uid && !pod.is_in()) else {
            return Ok(());
        };
        let node = pod.node.clone();
        let here = inner.by_node.get(&node).into_iter().flatten().filter(|other| *other != key);
        let here: Vec<&Pod> =
            here.filter_map(|other| inner.pods.get(other)).filter(|pod| pod.is_in()).collect();
        if let Some(max) = inner.nodes.get(&node).and_then(|node| node.n_pods)
            && here.len() as i64 >= max
        {
            let message = no_room("pods", 1, here.len() as i64, max);
            return Err(Rejection { reason: "OutOfpods", message });
        }
        if let Some((reason, message)) = inner.lack(&node, key, pod.held(), Pod::is_in) {
            return Err(Rejection { reason, message });
        }
        let ports = here.iter().flat_map(|other| &other.ports);
        if ports.clone().any(|port| pod.ports.iter().any(|own| own.conflicts(port))) {
            let message = "Node didn't have free ports for the requested pod ports".to_owned();
            return Err(Rejection { reason: "NodePorts", message });
        }
        if let Some(pod) = inner.pods.get_mut(key) {
            pod.is_admitted = true;
        }
        Ok(())
    }

    /// Whether a node is ours.
    pub(crate) fn has_node(&self, node: &str) -> bool {
        self.inner.lock().nodes.contains_key(node)
    }

    /// The addresses of a node of ours; none of another one.
    pub(crate) fn host_ips(&self, node: &str) -> Vec<String> {
        let inner = self.inner.lock();
        let number = inner.nodes.get(node).map(|node| NODES_START + node.idx);
        number.map(|number| OF_NODES.texts(number, self.families)).unwrap_or_default()
    }

    /// The addresses of a node of ours as its status lists them.
    pub(crate) fn node_addresses(&self, node: &str) -> Value {
        let ips = self.host_ips(node);
        // They are merged by type otherwise.
        let replaces = (ips.len() > 1).then(|| json!({"$patch": "replace"}));
        let ips = ips.into_iter().map(|ip| json!({"type": "InternalIP", "address": ip}));
        let name = json!({"type": "Hostname", "address": node});
        replaces.into_iter().chain(ips).chain([name]).collect()
    }

    /// The addresses of a pod on a node of ours; new ones if it has none. None if the node has no
    /// more.
    pub(crate) fn pod_ips(&self, key: &Request, uid: &str) -> Vec<String> {
        let number = self.pod_number(key, uid);
        number.map(|number| OF_PODS.texts(number, self.families)).unwrap_or_default()
    }

    fn pod_number(&self, key: &Request, uid: &str) -> Option<u32> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let pod = inner.pods.get_mut(key).filter(|pod| pod.uid == uid)?;
        if pod.ip.is_some() {
            return pod.ip;
        }
        let node = inner.nodes.get_mut(&pod.node)?;
        let (start, size) = (PODS_START + (node.idx << BLOCK_BITS), 1 << BLOCK_BITS);
        // In turn, so that an address is not used again at once. The first is the node's own.
        let mut offsets = (0..size - 2).map(|n| 2 + (node.last + n) % (size - 2));
        let ip = offsets.find(|offset| !node.used.contains(&(start + offset)))? + start;
        node.last = ip - start - 1;
        node.used.insert(ip);
        pod.ip = Some(ip);
        Some(ip)
    }
}

impl Inner {
    /// What a node lacks to give a pod this much beside other pods: a kubelet's reason and message.
    fn lack(
        &self,
        node: &Arc<str>,
        key: &Request,
        wanted: Room,
        counts: impl Fn(&Pod) -> bool,
    ) -> Option<(&'static str, String)> {
        let has = self.nodes.get(node)?.has?;
        let others = self.by_node.get(node).into_iter().flatten().filter(|other| *other != key);
        let used = others
            .filter_map(|other| self.pods.get(other).filter(|pod| counts(pod)))
            .fold(Room::default(), |sum, pod| sum.plus(pod.held()));
        let lacks = |wanted: i64, used: i64, has: i64| wanted > 0 && wanted > has - used;
        if lacks(wanted.cpu, used.cpu, has.cpu) {
            return Some(("OutOfcpu", no_room("cpu", wanted.cpu, used.cpu, has.cpu)));
        }
        let (wanted, used, has) = (wanted.memory, used.memory, has.memory);
        lacks(wanted, used, has).then(|| ("OutOfmemory", no_room("memory", wanted, used, has)))
    }

    /// Sets room aside for the resizes that wait on a node and fit now, in the order of their
    /// ranks. Returns their pods.
    fn grant(&mut self, node: &Arc<str>) -> Vec<Request> {
        let Some(has) = self.nodes.get(node).and_then(|node| node.has) else { return Vec::new() };
        let here = self.by_node.get(node).into_iter().flatten();
        let here: Vec<&Request> = here.collect();
        let mut used = Room::default();
        let mut waiting = Vec::new();
        for key in here {
            let Some(pod) = self.pods.get(key) else { continue };
            used = used.plus(pod.held());
            if let Some(wanted) = &pod.waiting {
                waiting.push((wanted.rank.clone(), wanted.room, pod.held(), key.clone()));
            }
        }
        waiting.sort();
        let mut granted = Vec::new();
        for (_, wanted, held, key) in waiting {
            let after = used.minus(held).plus(wanted);
            if after.exceeds(has) && wanted.exceeds(held) {
                continue;
            }
            used = after;
            if let Some(pod) = self.pods.get_mut(&key) {
                pod.granted = pod.waiting.take();
            }
            granted.push(key);
        }
        granted
    }
}

fn no_room(name: &str, wanted: i64, used: i64, has: i64) -> String {
    format!(
        "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, \
         capacity: {has}"
    )
}

/// The first address in a node's status.
fn address_of(node: &Value) -> Option<IpAddr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests;
