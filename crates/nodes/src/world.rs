//! The nodes that are ours, their pods, and the addresses of both.

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint_runtime::Request;
use setpoint_runtime::source::KeySink;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

/// The label of nodes that stages move. Value: `true`.
pub const NODE_LABEL: &str = "nodes.setpoint.dev/simulated";
/// The first address of nodes: 172.16.0.0/12 has room for a million.
const NODES_START: u32 = u32::from_be_bytes([172, 16, 0, 2]);
/// The largest number of nodes: as many as there are blocks of pod addresses.
pub const NODES_MAX: u32 = 12_000;
/// The first address of pods. Each node has a block of a thousand.
const PODS_START: u32 = u32::from_be_bytes([10, 64, 0, 0]);
/// Bits of a block of pod addresses.
const BLOCK_BITS: u32 = 10;

/// What the controllers know of nodes and pods.
#[derive(Default)]
pub(crate) struct World {
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
}

#[derive(Debug)]
struct Pod {
    uid: String,
    node: Arc<str>,
    ip: Option<u32>,
    ports: Vec<Port>,
    has_started: bool,
}

/// What is read of every pod.
#[derive(Debug, Deserialize)]
pub(crate) struct SeenPod {
    metadata: SeenMeta,
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Debug, Deserialize)]
struct SeenMeta {
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    containers: Vec<SeenContainer>,
}

#[derive(Debug, Deserialize)]
struct SeenContainer {
    #[serde(default)]
    ports: Vec<Port>,
}

/// A port of a container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    host_port: u16,
    #[serde(default, rename = "hostIP")]
    host_ip: String,
    #[serde(default)]
    protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenStatus {
    #[serde(default)]
    phase: String,
    #[serde(default, rename = "podIP")]
    pod_ip: String,
    #[serde(default)]
    start_time: String,
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
        if inner.nodes.contains_key(name) {
            return true;
        }
        let known = node.and_then(address_of).map(|ip| u32::from(ip).wrapping_sub(NODES_START));
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
        inner.nodes.insert(name.clone(), Node { idx, last: 0, used });
        drop(inner);
        // Its pods may have been seen before it.
        if let Some(keys) = self.pods.get() {
            here.into_iter().for_each(|key| keys.add(key));
        }
        true
    }

    /// Takes in a pod, or its absence. Returns whether it is on a node of ours.
    pub(crate) fn put_pod(&self, key: &Request, pod: Option<SeenPod>) -> bool {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let is_over = |pod: &SeenPod| matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let seen = pod.as_ref().filter(|pod| !pod.spec.node_name.is_empty() && !is_over(pod));
        let earlier = inner.pods.remove(key);
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
            let shown = seen.status.pod_ip.parse::<Ipv4Addr>().ok().map(u32::from);
            let ip = shown.filter(|_| !seen.spec.host_network).or(given);
            if let (Some(ip), Some(node)) = (ip, inner.nodes.get_mut(&node)) {
                node.used.insert(ip);
            }
            let ports = seen.spec.containers.iter().flat_map(|container| &container.ports);
            let pod = Pod {
                uid: seen.metadata.uid.clone(),
                node: node.clone(),
                ip,
                ports: ports.filter(|port| port.host_port > 0).cloned().collect(),
                has_started: !seen.status.start_time.is_empty(),
            };
            inner.by_node.entry(node).or_default().insert(key.clone());
            inner.pods.insert(key.clone(), pod);
        }
        let node = pod.map(|pod| pod.spec.node_name).unwrap_or_default();
        inner.nodes.contains_key(&*node)
    }

    /// The address of a node of ours.
    pub(crate) fn host_ip(&self, node: &str) -> Option<String> {
        let idx = self.inner.lock().nodes.get(node)?.idx;
        Some(Ipv4Addr::from(NODES_START + idx).to_string())
    }

    /// The address of a pod on a node of ours; a new one if it has none.
    pub(crate) fn pod_ip(&self, key: &Request, uid: &str) -> Option<String> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let pod = inner.pods.get_mut(key).filter(|pod| pod.uid == uid)?;
        if let Some(ip) = pod.ip {
            return Some(Ipv4Addr::from(ip).to_string());
        }
        let node = inner.nodes.get_mut(&pod.node)?;
        let (start, size) = (PODS_START + (node.idx << BLOCK_BITS), 1 << BLOCK_BITS);
        // In turn, so that an address is not used again at once. The first is the node's own.
        let mut offsets = (0..size - 2).map(|n| 2 + (node.last + n) % (size - 2));
        let ip = offsets.find(|offset| !node.used.contains(&(start + offset)))? + start;
        node.last = ip - start - 1;
        node.used.insert(ip);
        pod.ip = Some(ip);
        Some(Ipv4Addr::from(ip).to_string())
    }

    /// Whether a pod that has started has a host port that another pod on the node requests.
    pub(crate) fn has_port_conflict(&self, key: &Request) -> bool {
        let inner = self.inner.lock();
        let Some(pod) = inner.pods.get(key).filter(|pod| !pod.ports.is_empty()) else {
            return false;
        };
        let others =
            inner.by_node.get(&pod.node).into_iter().flatten().filter(|other| *other != key);
        let started =
            others.filter_map(|other| inner.pods.get(other)).filter(|pod| pod.has_started);
        started
            .flat_map(|other| &other.ports)
            .any(|port| pod.ports.iter().any(|own| own.conflicts(port)))
    }
}

/// The address in a node's status.
fn address_of(node: &Value) -> Option<Ipv4Addr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(node: &str, port: u16, status: Value) -> Option<SeenPod> {
        let container = json!({"ports": [{"hostPort": port, "protocol": "TCP"}]});
        let pod = json!({"metadata": {"uid": "u"}, "status": status,
            "spec": {"nodeName": node, "containers": [container]}});
        serde_json::from_value(pod).ok()
    }

    #[test]
    fn addresses_are_unique_and_are_found_again() {
        let world = World::default();
        let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}}});
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(world.put_node(&a, Some(&node)));
        let mut known = node.clone();
        known["status"] = json!({"addresses": [{"type": "InternalIP", "address": "172.16.0.9"}]});
        assert!(world.put_node(&b, Some(&known)));
        assert_eq!(world.host_ip("a").unwrap(), "172.16.0.2");
        assert_eq!(world.host_ip("b").unwrap(), "172.16.0.9");
        assert_eq!(world.host_ip("c"), None);
        let key = |n: usize| Request::new("default", format!("p{n}"));
        let mut ips = BTreeSet::new();
        for n in 0..1022 {
            assert!(world.put_pod(&key(n), seen("a", 0, json!({}))));
            let ip = world.pod_ip(&key(n), "u").unwrap();
            assert_eq!(world.pod_ip(&key(n), "u"), Some(ip.clone()));
            assert!(ips.insert(ip));
        }
        assert!(world.put_pod(&key(5000), seen("a", 0, json!({}))));
        assert_eq!(world.pod_ip(&key(5000), "u"), None, "the block is full");
        world.put_pod(&key(7), None);
        assert!(ips.contains(&world.pod_ip(&key(5000), "u").unwrap()));
        assert!(!world.put_pod(&key(1), seen("other", 0, json!({}))));
    }

    #[test]
    fn the_position_of_a_node_that_left_is_used_again() {
        let world = World::default();
        let node = json!({"metadata": {"labels": {NODE_LABEL: "true"}}});
        let name = |n: u32| -> Arc<str> { format!("n{n}").into() };
        for n in 0..NODES_MAX {
            assert!(world.put_node(&name(n), Some(&node)));
        }
        assert!(!world.put_node(&name(NODES_MAX), Some(&node)), "no address is left");
        let address = world.host_ip("n7000").unwrap();
        world.put_node(&name(7000), None);
        world.put_node(&name(9000), None);
        assert!(world.put_node(&name(NODES_MAX), Some(&node)));
        assert_eq!(world.host_ip(&name(NODES_MAX)), Some(address));
        assert!(world.put_node(&name(9000), Some(&node)));
        assert!(!world.put_node(&name(7000), Some(&node)));
    }

    #[test]
    fn a_port_is_taken_by_a_pod_that_has_started() {
        let world = World::default();
        let (first, second) = (Request::new("d", "first"), Request::new("d", "second"));
        world.put_pod(&first, seen("a", 80, json!({})));
        world.put_pod(&second, seen("a", 80, json!({})));
        assert!(!world.has_port_conflict(&second));
        world.put_pod(&first, seen("a", 80, json!({"startTime": "2026-01-01T00:00:00Z"})));
        assert!(world.has_port_conflict(&second));
        world.put_pod(&first, seen("a", 80, json!({"phase": "Succeeded"})));
        assert!(!world.has_port_conflict(&second));
    }
}
