//! Pods as the scheduler sees them: read once per change of their spec.

use crate::amounts::{self, Amounts};
use crate::disk::Disk;
use crate::labels::{Labels, NodeSelector, NodeSelectorTerm, items, list_of, strings, text};
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::pod_phase;
use setpoint_object::taint::Toleration;
use setpoint_object::time::Timestamp;
use setpoint_runtime::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A pod. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) key: Request,
    pub(crate) uid: Arc<str>,
    pub(crate) labels: Arc<Labels>,
    /// The owner that spreads it, if it has one.
    pub(crate) owner: Option<Owner>,
    /// The node it is assigned to; empty if none.
    pub(crate) node: Arc<str>,
    /// The node that preemption makes room on; empty if none.
    pub(crate) nominated: Arc<str>,
    /// The names of the claims of devices that were made for it, by its own name of each; `None`:
    /// none is needed.
    pub(crate) generated: Arc<BTreeMap<String, Option<Arc<str>>>>,
    /// It has a deletion time.
    pub(crate) is_deleting: bool,
    /// Its phase is `Succeeded` or `Failed`: it uses nothing.
    pub(crate) is_over: bool,
    /// `status.startTime`.
    pub(crate) started: Option<Timestamp>,
    pub(crate) generation: i64,
    pub(crate) spec: Arc<PodSpec>,
}

/// An owner whose pods should be spread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) kind: OwnerKind,
    pub(crate) key: Request,
}

/// The kinds of owners whose pods should be spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerKind {
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

impl Owner {
    fn of(pod: &Value) -> Option<Self> {
        let owners = items(&pod["metadata"]["ownerReferences"]);
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        let kind = match (text(&owner["apiVersion"]), text(&owner["kind"])) {
            ("apps/v1", "ReplicaSet") => OwnerKind::ReplicaSet,
            ("apps/v1", "StatefulSet") => OwnerKind::StatefulSet,
            ("v1", "ReplicationController") => OwnerKind::ReplicationController,
            _ => return None,
        };
        Some(Self { kind, key: Request::new(pod.namespace(), text(&owner["name"])) })
    }
}

/// What the scheduler needs of a pod's spec.
#[derive(Debug, Default)]
pub(crate) struct PodSpec {
    /// The name of the pod's scheduler.
    pub(crate) scheduler: String,
    pub(crate) is_gated: bool,
    pub(crate) priority: i32,
    /// Its `preemptionPolicy` is `Never`.
    pub(crate) never_preempts: bool,
    /// What it takes of its node, also while it is resized.
    pub(crate) requests: Amounts,
    /// CPU and memory for scores.
    pub(crate) scored: (i64, i64),
    /// Required values of node labels: `nodeSelector`.
    pub(crate) node_selector: Labels,
    pub(crate) node_affinity: Option<NodeSelector>,
    pub(crate) preferred_nodes: Vec<(i64, NodeSelectorTerm)>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) affinity: Vec<PodTerm>,
    pub(crate) anti_affinity: Vec<PodTerm>,
    /// Preferred affinity, and anti-affinity with a negative weight.
    pub(crate) preferred_pods: Vec<(i64, PodTerm)>,
    pub(crate) spread: Vec<Spread>,
    /// Names of claims; of ephemeral volumes, the name they will have.
    pub(crate) claims: Vec<String>,
    /// Those of ephemeral volumes: the pod must control them.
    pub(crate) own_claims: BTreeSet<String>,
    /// Disks that the pod names itself.
    pub(crate) disks: Vec<Disk>,
    /// Claims of devices.
    pub(crate) device_claims: Vec<DeviceClaim>,
    /// The name of its PodGroup.
    pub(crate) group: Option<Arc<str>>,
}

/// A claim of devices of a pod.
#[derive(Debug, Clone)]
pub(crate) struct DeviceClaim {
    /// The pod's own name of it.
    pub(crate) of: String,
    pub(crate) name: ClaimName,
}

/// The name of a claim of devices.
#[derive(Debug, Clone)]
pub(crate) enum ClaimName {
    /// The pod says it.
    Given(Arc<str>),
    /// The claim is made from a template, and the pod's status says it.
    Generated,
}

impl DeviceClaim {
    fn read(claim: &Value) -> Self {
        let name = claim["resourceClaimName"].as_str().map(|name| ClaimName::Given(name.into()));
        Self { of: text(&claim["name"]).to_owned(), name: name.unwrap_or(ClaimName::Generated) }
    }
}

/// A port of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    pub(crate) port: u16,
    pub(crate) protocol: String,
    /// `0.0.0.0` for all addresses.
    pub(crate) ip: String,
}

impl HostPort {
    /// Whether two pods cannot have both.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| matches!(ip, "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// A term of affinity to other pods.
#[derive(Debug, Clone)]
pub(crate) struct PodTerm {
    selector: Option<Selector>,
    namespaces: Vec<String>,
    /// Namespaces by their labels; `None` selects none in addition.
    namespace_selector: Option<Selector>,
    pub(crate) topology_key: String,
}

impl PodTerm {
    fn read(term: &Value, namespace: &str, own: &Labels) -> Self {
        let mut namespaces: Vec<String> =
            items(&term["namespaces"]).iter().map(|name| text(name).to_owned()).collect();
        let namespace_selector = Selector::from_object(&term["namespaceSelector"]).ok().flatten();
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        Self {
            selector: with_label_keys(term, own),
            namespaces,
            namespace_selector,
            topology_key: text(&term["topologyKey"]).to_owned(),
        }
    }

    /// Whether it means a pod. `labels_of` returns the labels of a namespace.
    pub(crate) fn matches(
        &self,
        pod: &Pod,
        labels_of: impl Fn(&str) -> Option<Arc<Labels>>,
    ) -> bool {
        let namespace = &*pod.key.namespace;
        let is_here = || {
            self.namespaces.iter().any(|name| name == namespace)
                || self.namespace_selector.as_ref().is_some_and(|selector| {
                    selector.is_everything()
                        || labels_of(namespace).is_some_and(|labels| {
                            selector.matches(|key| labels.get(key).map(String::as_str))
                        })
                })
        };
        self.selector.as_ref().is_some_and(|selector| pod.is_selected(selector)) && is_here()
    }
}

/// The label selector of a term, with the requirements of `matchLabelKeys` and
/// `mismatchLabelKeys`. `None` matches nothing.
fn with_label_keys(term: &Value, own: &Labels) -> Option<Selector> {
    let mut selector = term.get("labelSelector")?.clone();
    let keys = |member: &str| -> Vec<String> {
        items(&term[member]).iter().map(|key| text(key).to_owned()).collect()
    };
    // The API server adds these when it creates a pod; a second time changes nothing.
    for (member, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in keys(member) {
            let Some(value) = own.get(&key) else { continue };
            let expression =
                serde_json::json!({"key": key, "operator": operator, "values": [value]});
            match selector["matchExpressions"].as_array_mut() {
                Some(list) => list.push(expression),
                None => selector["matchExpressions"] = Value::Array(vec![expression]),
            }
        }
    }
    Selector::from_object(&selector).ok().flatten()
}

/// A topology spread constraint.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    /// `DoNotSchedule`; otherwise it is a preference.
    pub(crate) is_required: bool,
    pub(crate) min_domains: usize,
    selector: Option<Selector>,
    /// Nodes that the pod's node affinity excludes are not counted (`nodeAffinityPolicy: Honor`).
    pub(crate) honors_affinity: bool,
    /// Nodes with taints that the pod does not tolerate are not counted.
    pub(crate) honors_taints: bool,
}

impl Spread {
    fn read(constraint: &Value, own: &Labels) -> Self {
        Self {
            max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
            topology_key: text(&constraint["topologyKey"]).to_owned(),
            is_required: constraint["whenUnsatisfiable"] != "ScheduleAnyway",
            min_domains: constraint["minDomains"].as_u64().map_or(1, |n| n as usize),
            selector: with_label_keys(constraint, own),
            honors_affinity: constraint["nodeAffinityPolicy"] != "Ignore",
            honors_taints: constraint["nodeTaintsPolicy"] == "Honor",
        }
    }

    /// Whether it counts a pod of the namespace that the constraint is in.
    pub(crate) fn counts(&self, pod: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|selector| pod.is_selected(selector))
    }
}

impl Pod {
    /// Reads a pod. `earlier` is the same pod before: if its spec is the same, and so are the
    /// amounts that its node gives it, it is not read again.
    pub(crate) fn read(pod: &Value, earlier: Option<&Self>) -> Self {
        let labels = Arc::new(strings(&pod["metadata"]["labels"]));
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or_default();
        let phase = text(&pod["status"]["phase"]);
        let key = Request::new(pod.namespace(), pod.name());
        let requests = Amounts::of(&setpoint_quota::pod::requests_of(pod));
        let generated = |claim: &Value| {
            let name = claim["resourceClaimName"].as_str().map(Arc::from);
            (text(&claim["name"]).to_owned(), name)
        };
        let generated = items(&pod["status"]["resourceClaimStatuses"]).iter().map(generated);
        let spec = match earlier {
            Some(earlier)
                if generation > 0
                    && earlier.generation == generation
                    && *earlier.uid == *pod.uid()
                    && earlier.labels == labels
                    && earlier.spec.requests == requests =>
            {
                earlier.spec.clone()
            }
            _ => Arc::new(PodSpec::read(pod, &labels, requests)),
        };
        Self {
            key,
            uid: pod.uid().into(),
            labels,
            owner: Owner::of(pod),
            node: text(&pod["spec"]["nodeName"]).into(),
            nominated: text(&pod["status"]["nominatedNodeName"]).into(),
            generated: Arc::new(generated.collect()),
            is_deleting: !pod.deletion_timestamp().is_empty(),
            is_over: pod_phase::is_terminal(phase),
            started: Timestamp::parse(text(&pod["status"]["startTime"])),
            generation,
            spec,
        }
    }

    /// Whether a selector matches its labels.
    pub(crate) fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(|key| self.labels.get(key).map(String::as_str))
    }

    /// Whether it uses resources of its node.
    pub(crate) fn occupies(&self) -> bool {
        !self.node.is_empty() && !self.is_over
    }

    /// Whether it waits for a scheduler with this name. A pod behind gates waits too.
    pub(crate) fn waits_for(&self, scheduler: &str) -> bool {
        self.node.is_empty()
            && !self.is_deleting
            && !self.is_over
            && self.spec.scheduler == scheduler
    }

    /// The pod as it will be on a node.
    pub(crate) fn on(&self, node: &Arc<str>) -> Self {
        Self { node: node.clone(), ..self.clone() }
    }
}

impl PodSpec {
    fn read(pod: &Value, labels: &Labels, requests: Amounts) -> Self {
        let spec = &pod["spec"];
        let namespace = pod.namespace();
        let affinity = &spec["affinity"];
        let required = |kind: &str| {
            let terms = &affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"];
            items(terms).iter().map(|term| PodTerm::read(term, namespace, labels)).collect()
        };
        let preferred = |kind: &str, sign: i64| {
            let terms = &affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"];
            let weight = move |term: &Value| term["weight"].as_i64().unwrap_or_default() * sign;
            let read = move |term: &Value| {
                (weight(term), PodTerm::read(&term["podAffinityTerm"], namespace, labels))
            };
            items(terms).iter().map(read).collect::<Vec<_>>()
        };
        let mut preferred_pods = preferred("podAffinity", 1);
        preferred_pods.extend(preferred("podAntiAffinity", -1));
        let nodes = &affinity["nodeAffinity"];
        let preferred_nodes = items(&nodes["preferredDuringSchedulingIgnoredDuringExecution"]);
        let containers = || items(&spec["containers"]).iter();
        let keeps_running = |container: &&Value| container["restartPolicy"] == "Always";
        let sidecars = || items(&spec["initContainers"]).iter().filter(keeps_running);
        let ports = containers().chain(sidecars()).flat_map(|container| items(&container["ports"]));
        let text_or = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
        let port = |port: &Value| {
            let number = u16::try_from(port["hostPort"].as_u64()?).ok().filter(|port| *port > 0)?;
            Some(HostPort {
                port: number,
                protocol: text_or(&port["protocol"], "TCP"),
                ip: Some(text(&port["hostIP"]))
                    .filter(|ip| !ip.is_empty())
                    .unwrap_or("0.0.0.0")
                    .to_owned(),
            })
        };
        let named = |volume: &Value| {
            volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)
        };
        let own = |volume: &Value| {
            let is_own = named(volume).is_none() && volume["ephemeral"].is_object();
            is_own.then(|| format!("{}-{}", pod.name(), text(&volume["name"])))
        };
        let claim = |volume: &Value| named(volume).or_else(|| own(volume));
        Self {
            scheduler: text_or(&spec["schedulerName"], "default-scheduler"),
            is_gated: !items(&spec["schedulingGates"]).is_empty(),
            priority: spec["priority"].as_i64().map_or(0, |n| n as i32),
            never_preempts: spec["preemptionPolicy"] == "Never",
            scored: amounts::scored(spec, &requests),
            requests,
            node_selector: strings(&spec["nodeSelector"]),
            node_affinity: NodeSelector::read(
                &nodes["requiredDuringSchedulingIgnoredDuringExecution"],
            ),
            preferred_nodes: preferred_nodes
                .iter()
                .map(|term| {
                    let weight = term["weight"].as_i64().unwrap_or_default();
                    (weight, NodeSelectorTerm::read(&term["preference"]))
                })
                .collect(),
            tolerations: list_of(&spec["tolerations"]),
            ports: ports.filter_map(port).collect(),
            affinity: required("podAffinity"),
            anti_affinity: required("podAntiAffinity"),
            preferred_pods,
            spread: items(&spec["topologySpreadConstraints"])
                .iter()
                .map(|constraint| Spread::read(constraint, labels))
                .collect(),
            claims: items(&spec["volumes"]).iter().filter_map(claim).collect(),
            own_claims: items(&spec["volumes"]).iter().filter_map(own).collect(),
            disks: items(&spec["volumes"]).iter().filter_map(Disk::read).collect(),
            device_claims: items(&spec["resourceClaims"]).iter().map(DeviceClaim::read).collect(),
            group: spec["schedulingGroup"]["podGroupName"].as_str().map(Arc::from),
        }
    }

    /// Whether the node's labels fit `nodeSelector` and the required node affinity.
    pub(crate) fn selects_node(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.node_affinity.as_ref().is_none_or(|selector| selector.matches(name, labels))
    }
}
