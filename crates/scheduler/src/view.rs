//! What a scheduling cycle sees of the cluster.

use crate::crowd::{Crowds, zone_of};
use crate::labels::{Labels, NodeSelector, items, strings, text};
use crate::node::{Node, NodeInfo};
use crate::plugins::claims::Inventory;
use crate::pod::{Owner, Pod};
use imbl::OrdMap;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::quantity::Quantity;
use setpoint_runtime::Request;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation that named a class before there was a field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The node that a claim's volume is made for.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes exist already.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The cluster. A clone is a snapshot: it shares everything with the original until one of them
/// changes, and then only what changed is copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) nodes: OrdMap<Arc<str>, Arc<NodeInfo>>,
    /// Pods that wait for room on a node that preemption makes.
    pub(crate) nominated: OrdMap<Arc<str>, Arc<Vec<Arc<Pod>>>>,
    pub(crate) namespaces: OrdMap<Arc<str>, Arc<Labels>>,
    pub(crate) claims: OrdMap<Request, Arc<Claim>>,
    pub(crate) volumes: OrdMap<Arc<str>, Arc<Volume>>,
    /// Volumes that a claim may be given, by class and name.
    pub(crate) free_volumes: OrdMap<(Arc<str>, Arc<str>), Arc<Volume>>,
    /// What claims of assumed pods get.
    promises: OrdMap<Request, Promise>,
    /// The volumes among them, with their claims.
    promised_volumes: OrdMap<Arc<str>, Request>,
    /// The storage classes that wait for the first consumer of a claim.
    pub(crate) late_classes: OrdMap<Arc<str>, Arc<LateClass>>,
    pub(crate) budgets: OrdMap<Request, Arc<Budget>>,
    /// How many volumes of a CSI driver a node takes, by node and driver: only where there is a
    /// limit.
    pub(crate) volume_limits: OrdMap<Arc<str>, Arc<BTreeMap<Arc<str>, i64>>>,
    /// The volumes that are attached to a node, by node and the attachment's name.
    pub(crate) attachments: OrdMap<Arc<str>, Arc<BTreeMap<Arc<str>, Attachment>>>,
    /// The nodes of attachments.
    attachment_nodes: OrdMap<Arc<str>, Arc<str>>,
    /// Devices, and claims of them.
    pub(crate) inventory: Inventory,
    /// The labels that Services select; none without a selector.
    pub(crate) services: OrdMap<Request, Arc<Labels>>,
    /// What owners of pods select.
    pub(crate) owners: OrdMap<Owner, Arc<Selector>>,
    /// Assigned pods that are alike.
    pub(crate) crowds: Crowds,
    /// The zones, with the number of their nodes.
    pub(crate) zones: OrdMap<Arc<str>, usize>,
    /// Number of nodes that exist.
    pub(crate) n_nodes: usize,
    /// Number of assigned pods with affinity to pods.
    pub(crate) n_affine: usize,
}

impl View {
    /// Puts a pod on its node, in place of the same pod as it was before.
    pub(crate) fn put_pod(&mut self, pod: Arc<Pod>) {
        let zone = self.zone(&pod.node);
        let before = self.change(&pod.node, |info| info.add(pod.clone()));
        let is_alike = |before: &Arc<Pod>| {
            before.labels == pod.labels && before.is_deleting == pod.is_deleting
        };
        if before.as_ref().is_some_and(is_alike) {
            return;
        }
        if let Some(before) = before {
            self.crowds.count(&before, zone.clone(), -1);
        }
        self.crowds.count(&pod, zone, 1);
    }

    /// Takes a pod from its node.
    pub(crate) fn take_pod(&mut self, pod: &Pod) {
        let zone = self.zone(&pod.node);
        if let Some(before) = self.change(&pod.node, |info| info.remove(&pod.uid)) {
            self.crowds.count(&before, zone, -1);
        }
    }

    /// A pod no longer waits for room on the node that it is nominated for. Returns whether some
    /// pods waited there.
    pub(crate) fn withdraw(&mut self, pod: &Pod) -> bool {
        let Some(mut pods) = self.nominated.remove(&pod.nominated) else { return false };
        Arc::make_mut(&mut pods).retain(|other| other.key != pod.key);
        if !pods.is_empty() {
            self.nominated.insert(pod.nominated.clone(), pods);
        }
        true
    }

    fn zone(&self, node: &Arc<str>) -> Option<Arc<str>> {
        self.nodes.get(node).and_then(|info| zone_of(info.node.as_deref()?))
    }

    /// Takes in a node, or its absence.
    pub(crate) fn put_node(&mut self, name: &Arc<str>, node: Option<Node>) {
        let (before, after) = (self.zone(name), node.as_ref().and_then(zone_of));
        if before != after {
            let pods = self.nodes.get(name).map(|info| info.pods.clone()).unwrap_or_default();
            for pod in pods.values() {
                self.crowds.count(pod, before.clone(), -1);
                self.crowds.count(pod, after.clone(), 1);
            }
            if let Some(zone) = before
                && let Some(n) = self.zones.remove(&zone)
                && n > 1
            {
                self.zones.insert(zone, n - 1);
            }
            if let Some(zone) = after {
                let n = self.zones.get(&zone).copied().unwrap_or_default();
                self.zones.insert(zone, n + 1);
            }
        }
        self.change(name, |info| info.node = node.map(Arc::new));
    }

    /// What the Services of a namespace select.
    pub(crate) fn services_of(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Labels> {
        self.services
            .range(Request::new(namespace.clone(), "")..)
            .take_while(move |(key, _)| key.namespace == *namespace)
            .map(|(_, selector)| &**selector)
    }

    /// Takes in a Service, or its absence.
    pub(crate) fn put_service(&mut self, key: &Request, service: Option<&Value>) {
        let selector = service.map(|service| strings(&service["spec"]["selector"]));
        match selector.filter(|selector| !selector.is_empty()) {
            Some(selector) => _ = self.services.insert(key.clone(), Arc::new(selector)),
            None => _ = self.services.remove(key),
        }
    }

    /// Takes in what an owner selects, or its absence.
    pub(crate) fn put_owner(&mut self, owner: Owner, selector: Option<Selector>) {
        match selector {
            Some(selector) => _ = self.owners.insert(owner, Arc::new(selector)),
            None => _ = self.owners.remove(&owner),
        }
    }

    /// Changes one node, and removes it if nothing is left of it.
    fn change<T>(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodeInfo) -> T) -> T {
        let mut info = self.nodes.remove(name).unwrap_or_default();
        let before = (usize::from(info.node.is_some()), info.n_affine);
        let answer = change(Arc::make_mut(&mut info));
        self.n_nodes = self.n_nodes + usize::from(info.node.is_some()) - before.0;
        self.n_affine = self.n_affine + info.n_affine - before.1;
        if !info.is_empty() {
            self.nodes.insert(name.clone(), info);
        }
        answer
    }

    /// Takes in a claim, or its absence. One that is bound needs no promise.
    pub(crate) fn put_claim(&mut self, key: &Request, claim: Option<Claim>) {
        if claim.as_ref().is_none_or(|claim| !claim.volume.is_empty()) {
            self.break_promise(key);
        }
        match claim {
            Some(claim) => _ = self.claims.insert(key.clone(), Arc::new(claim)),
            None => _ = self.claims.remove(key),
        }
    }

    /// Takes in a volume, or its absence.
    pub(crate) fn put_volume(&mut self, name: &Arc<str>, volume: Option<Volume>) {
        let volume = volume.map(Arc::new);
        let before = match &volume {
            Some(volume) => self.volumes.insert(name.clone(), volume.clone()),
            None => self.volumes.remove(name),
        };
        if let Some(before) = before {
            self.free_volumes.remove(&(before.class.clone(), name.clone()));
        }
        if let Some(volume) = volume.filter(|volume| volume.offer.is_some()) {
            self.free_volumes.insert((volume.class.clone(), name.clone()), volume);
        }
    }

    /// Takes in a CSINode, or its absence.
    pub(crate) fn put_csi_node(&mut self, name: &Arc<str>, node: Option<&Value>) {
        let limit = |driver: &Value| {
            Some((text(&driver["name"]).into(), driver["allocatable"]["count"].as_i64()?))
        };
        let drivers = node.map_or(&[][..], |node| items(&node["spec"]["drivers"]));
        let limits: BTreeMap<_, _> = drivers.iter().filter_map(limit).collect();
        match limits.is_empty() {
            true => _ = self.volume_limits.remove(name),
            false => _ = self.volume_limits.insert(name.clone(), Arc::new(limits)),
        }
    }

    /// Takes in a VolumeAttachment, or its absence.
    pub(crate) fn put_attachment(&mut self, name: &Arc<str>, attachment: Option<&Value>) {
        if let Some(node) = self.attachment_nodes.remove(name)
            && let Some(mut attached) = self.attachments.remove(&node)
        {
            Arc::make_mut(&mut attached).remove(name);
            if !attached.is_empty() {
                self.attachments.insert(node, attached);
            }
        }
        let Some(spec) = attachment.map(|attachment| &attachment["spec"]) else { return };
        if let Some(volume) = spec["source"]["persistentVolumeName"].as_str() {
            let node: Arc<str> = text(&spec["nodeName"]).into();
            let driver = text(&spec["attacher"]).into();
            let mut attached = self.attachments.remove(&node).unwrap_or_default();
            let attachment = Attachment { driver, volume: volume.into() };
            Arc::make_mut(&mut attached).insert(name.clone(), attachment);
            self.attachments.insert(node.clone(), attached);
            self.attachment_nodes.insert(name.clone(), node);
        }
    }

    /// What a claim gets, if an assumed pod waits for it.
    pub(crate) fn promise(&self, claim: &Request) -> Option<&Promise> {
        self.promises.get(claim)
    }

    /// Whether a volume is promised to a claim.
    pub(crate) fn is_promised(&self, volume: &str) -> bool {
        self.promised_volumes.contains_key(volume)
    }

    /// Promises something to a claim, unless it has a promise.
    pub(crate) fn make_promise(&mut self, claim: &Request, promise: Promise) {
        if self.promises.contains_key(claim) {
            return;
        }
        if let Some(volume) = &promise.volume {
            self.promised_volumes.insert(volume.clone(), claim.clone());
        }
        self.promises.insert(claim.clone(), promise);
    }

    /// Ends what a pod's claims were promised because of the pod.
    pub(crate) fn break_promises_of(&mut self, pod: &Pod) {
        for name in &pod.spec.claims {
            let key = Request::new(pod.key.namespace.clone(), &**name);
            if self.promises.get(&key).is_some_and(|promise| promise.pod == pod.uid) {
                self.break_promise(&key);
            }
        }
    }

    fn break_promise(&mut self, claim: &Request) {
        if let Some(volume) = self.promises.remove(claim).and_then(|promise| promise.volume) {
            self.promised_volumes.remove(&volume);
        }
    }

    /// The labels of a namespace.
    pub(crate) fn labels_of(&self, namespace: &str) -> Option<Arc<Labels>> {
        self.namespaces.get(namespace).cloned()
    }
}

/// A volume that is attached to a node.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) driver: Arc<str>,
    /// The name of the PersistentVolume.
    pub(crate) volume: Arc<str>,
}

/// What the claim of an assumed pod gets.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    /// The uid of the pod.
    pub(crate) pod: Arc<str>,
    /// The pod's node.
    pub(crate) node: Arc<str>,
    /// The volume that exists; otherwise one is made.
    pub(crate) volume: Option<Arc<str>>,
}

/// A PersistentVolumeClaim.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The uid of its controller; empty if it has none.
    pub(crate) controller: Arc<str>,
    pub(crate) is_deleting: bool,
    /// Empty until it is bound.
    pub(crate) volume: Arc<str>,
    /// It names a volume that it is not bound to yet.
    pub(crate) is_named: bool,
    /// The node that its volume is made for; empty if none is chosen.
    pub(crate) selected_node: Arc<str>,
    pub(crate) class: Arc<str>,
    pub(crate) amount: Quantity,
    access_modes: Vec<String>,
    mode: String,
    attributes: String,
    /// Which volumes it may have; `None` matches nothing.
    selector: Option<Selector>,
}

impl Claim {
    pub(crate) fn read(claim: &Value) -> Self {
        let annotations = &claim["metadata"]["annotations"];
        let is_bound = !annotations["pv.kubernetes.io/bind-completed"].is_null()
            || claim["status"]["phase"] == "Bound";
        let spec = &claim["spec"];
        let volume = text(&spec["volumeName"]);
        let owners = claim["metadata"]["ownerReferences"].as_array();
        let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        Self {
            controller: controller.map(|owner| text(&owner["uid"])).unwrap_or_default().into(),
            is_deleting: !claim.deletion_timestamp().is_empty(),
            volume: if is_bound { volume.into() } else { Arc::default() },
            is_named: !is_bound && !volume.is_empty(),
            selected_node: text(&annotations[SELECTED_NODE]).into(),
            class: class_of(claim),
            amount: amount(&spec["resources"]["requests"]),
            access_modes: texts(&spec["accessModes"]),
            mode: mode_of(spec),
            attributes: text(&spec["volumeAttributesClassName"]).to_owned(),
            selector: match &spec["selector"] {
                Value::Null => Some(Selector::everything()),
                selector => Selector::from_object(selector).ok().flatten(),
            },
        }
    }

    /// Whether one pod may use it at a time.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

fn class_of(object: &Value) -> Arc<str> {
    let annotated = object["metadata"]["annotations"][CLASS].as_str();
    annotated.unwrap_or_else(|| text(&object["spec"]["storageClassName"])).into()
}

fn mode_of(spec: &Value) -> String {
    spec["volumeMode"].as_str().unwrap_or("Filesystem").to_owned()
}

fn amount(amounts: &Value) -> Quantity {
    Quantity::parse(text(&amounts["storage"])).unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).iter().map(|item| text(item).to_owned()).collect()
}

/// A storage class that waits for the first consumer of a claim.
#[derive(Debug, Default)]
pub(crate) struct LateClass {
    pub(crate) provisioner: Arc<str>,
    /// Whether volumes are made for its claims.
    pub(crate) provisions: bool,
    /// Labels of the nodes that volumes can be made for, with their values. One of these terms must
    /// match; without any, all nodes do.
    topologies: Vec<Vec<(String, Vec<String>)>>,
}

impl LateClass {
    /// Reads a class; `None` if it does not wait.
    pub(crate) fn read(class: &Value) -> Option<Self> {
        if class["volumeBindingMode"] != "WaitForFirstConsumer" {
            return None;
        }
        let expression = |one: &Value| (text(&one["key"]).to_owned(), texts(&one["values"]));
        let term =
            |term: &Value| items(&term["matchLabelExpressions"]).iter().map(expression).collect();
        let provisioner = text(&class["provisioner"]);
        Some(Self {
            provisioner: provisioner.into(),
            provisions: !provisioner.is_empty() && provisioner != NO_PROVISIONER,
            topologies: items(&class["allowedTopologies"]).iter().map(term).collect(),
        })
    }

    /// Whether a volume can be made for a node.
    pub(crate) fn provisions_for(&self, node: &Node) -> bool {
        let holds = |(key, values): &(String, Vec<String>)| {
            node.labels.get(key).is_some_and(|value| values.contains(value))
        };
        self.provisions
            && (self.topologies.is_empty()
                || self.topologies.iter().any(|term| term.iter().all(holds)))
    }
}

/// The labels of volumes that limit them to nodes.
const TOPOLOGY: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A PersistentVolume.
#[derive(Debug)]
pub(crate) struct Volume {
    class: Arc<str>,
    /// The CSI driver, and its name of the volume.
    pub(crate) csi: Option<(Arc<str>, Arc<str>)>,
    /// What it offers to a claim; `None` if it has or had one, or is being deleted.
    offer: Option<Offer>,
    affinity: Option<NodeSelector>,
    /// Labels of zones and regions, each with the values that fit.
    topology: Vec<(String, Vec<String>)>,
}

/// What a free volume offers.
#[derive(Debug)]
struct Offer {
    capacity: Quantity,
    access_modes: Vec<String>,
    mode: String,
    attributes: String,
    labels: Labels,
}

impl Volume {
    pub(crate) fn read(volume: &Value) -> Self {
        let labels = strings(&volume["metadata"]["labels"]);
        let spec = &volume["spec"];
        let is_free = spec["claimRef"].is_null()
            && volume["status"]["phase"] == "Available"
            && volume.deletion_timestamp().is_empty();
        let offer = is_free.then(|| Offer {
            capacity: amount(&spec["capacity"]),
            access_modes: texts(&spec["accessModes"]),
            mode: mode_of(spec),
            attributes: text(&spec["volumeAttributesClassName"]).to_owned(),
            labels: labels.clone(),
        });
        let topology = labels.into_iter().filter(|(key, _)| TOPOLOGY.contains(&key.as_str()));
        let values = |value: String| value.split("__").map(str::to_owned).collect();
        let csi = spec["csi"].as_object().map(|csi| {
            let own = |member: &str| csi.get(member).map_or("", text).into();
            (own("driver"), own("volumeHandle"))
        });
        Self {
            class: class_of(volume),
            csi,
            offer,
            affinity: NodeSelector::read(&volume["spec"]["nodeAffinity"]["required"]),
            topology: topology.map(|(key, value)| (key, values(value))).collect(),
        }
    }

    /// Its capacity, if it is free and fits a claim of its class.
    pub(crate) fn capacity_for(&self, claim: &Claim) -> Option<&Quantity> {
        let offer = self.offer.as_ref()?;
        let fits = !offer.capacity.compare(&claim.amount).is_lt()
            && offer.mode == claim.mode
            && offer.attributes == claim.attributes
            && claim.access_modes.iter().all(|mode| offer.access_modes.contains(mode))
            && claim.selector.as_ref().is_some_and(|selector| {
                selector.matches(|key| offer.labels.get(key).map(String::as_str))
            });
        fits.then_some(&offer.capacity)
    }

    /// The host names that its node affinity allows; `None` if it does not limit them.
    pub(crate) fn hosts(&self) -> Option<Vec<&str>> {
        self.affinity.as_ref()?.hosts()
    }

    /// Whether its node affinity includes a node.
    pub(crate) fn has_affinity(&self, node: &Node) -> bool {
        self.affinity.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
    }

    /// Whether it is in the node's zone. A node without such labels is everywhere.
    pub(crate) fn is_in_zone(&self, node: &Node) -> bool {
        let is_anywhere = !TOPOLOGY.iter().any(|key| node.labels.contains_key(*key));
        is_anywhere
            || self.topology.iter().all(|(key, values)| {
                node.labels.get(key).is_some_and(|value| values.contains(value))
            })
    }
}

/// A PodDisruptionBudget.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) allowed: i64,
    /// Pods whose disruption has been counted already.
    disrupted: Labels,
    selector: Option<Selector>,
}

impl Budget {
    pub(crate) fn read(budget: &Value) -> Self {
        let selector = &budget["spec"]["selector"];
        Self {
            allowed: budget["status"]["disruptionsAllowed"].as_i64().unwrap_or_default(),
            disrupted: strings(&budget["status"]["disruptedPods"]),
            selector: Selector::from_object(selector).ok().flatten(),
        }
    }

    /// Whether a pod of its namespace counts.
    pub(crate) fn covers(&self, pod: &Pod) -> bool {
        !pod.labels.is_empty()
            && self.selector.as_ref().is_some_and(|selector| pod.is_selected(selector))
            && !self.disrupted.contains_key(&*pod.key.name)
    }
}
