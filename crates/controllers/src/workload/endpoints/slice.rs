//! EndpointSlices of Services with selectors.

use super::pack::pack;
use super::trigger::Triggers;
use super::{
    Family, HEADLESS, MANAGED_BY, SERVICE_NAME, Service, Slice, TRIGGER_TIME, WORKERS,
    addresses_in, hostname, is_endpoint, is_ready, labels, services_of, target_ref,
};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::pod_control::{is_namespace_terminating, name_prefix, precondition, rest};
use crate::workload::{COMPONENT, fresh, pod};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::metadata::PartialObjectMeta;
use serde_json::json;
use setpoint_informer::Object;
use setpoint_object::error::aggregate;
use setpoint_object::label::Selector;
use setpoint_runtime::{
    Action, BoxError, Client, ClientError, Context, Controller, Manager, ObjectReference, Request,
    Watch, controller_reference,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The controller's name.
const NAME: &str = "endpointslice-controller";
/// The value of the label of its slices.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// What its events name as their source, as in the reference.
const EVENT_SOURCE: &str = "endpoint-slice-controller";
/// The most endpoints of a slice: 100, as in kube-controller-manager.
const ENDPOINTS_MAX: usize = 100;
/// The label of nodes with their zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The controller of EndpointSlices.
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointSliceController(());

impl EndpointSliceController {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let controller = Controller::builder(NAME)
            .for_(super::watch())
            .maps(Watch::<Slice>::new().index_labels(), service_of)
            .watches_with(Watch::<pod::Pod>::new().index_labels(), services_of)
            .watches(Watch::<Node>::metadata(), |_| Vec::new())
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Slices::default()))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The Service of a slice that this controller manages.
fn service_of(slice: &Object<Slice>) -> Vec<Request> {
    super::slice_owner(slice, MANAGER)
}

#[derive(Default)]
struct Slices {
    triggers: Triggers,
}

impl BoxedReconciler for Slices {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let Some(service) = client.api::<Service>().get(request)? else {
            // The garbage collector deletes the slices.
            self.triggers.forget(request);
            return Ok(Action::await_change());
        };
        let Some(selector) = service.selector().filter(|_| service.has_endpoints()) else {
            return Ok(Action::await_change());
        };
        let slices = fresh::lister::<Slice>(context, &client, &request.namespace).await?;
        let of_service = format!("{SERVICE_NAME}={},{MANAGED_BY}={MANAGER}", request.name);
        let slices =
            slices.namespaced(request.namespace.clone()).list(&Selector::parse(&of_service)?)?;
        let slices: Vec<Arc<Slice>> = slices
            .into_iter()
            .filter(|slice| slice.metadata.deletion_timestamp.is_none())
            .collect();
        let pods = client.api::<Pod>().select().namespace(service.namespace()).labels(selector);
        let pods = pods.all()?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let trigger = self.triggers.since_last(request, &service, &pods);
        let (wanted, skipped) = wanted(&client, &service, &pods)?;
        let writes = Writes::of(&service, &slices, wanted)?;
        writes.write(&client, &service, trigger.as_deref()).await?;
        let mut action = Action::await_change();
        if !skipped.is_empty() {
            // Until their nodes are known.
            action = Action::requeue();
            let (namespace, name) = (service.namespace(), service.name());
            let note = format!(
                "Error updating Endpoint Slices for Service {namespace}/{name}: {}",
                aggregate(&skipped)
            );
            let recorder = context.recorder().as_component(EVENT_SOURCE);
            let reference = ObjectReference::of(&*service);
            recorder.warning(&reference, "FailedToUpdateEndpointSlices", note);
        }
        Ok(action.rest(rest(pods.len())))
    }
}

/// The ports of slices, as text and as they are.
type Ports = (String, Vec<EndpointPort>);
/// Endpoints by family and ports.
type Wanted = BTreeMap<Family, Vec<(Ports, Vec<Endpoint>)>>;

/// The endpoints that are wanted, by family and ports; and what says of each pod that was left out
/// that its node does not exist.
fn wanted(
    client: &Client,
    service: &Service,
    pods: &[&Pod],
) -> Result<(Wanted, Vec<String>), BoxError> {
    let nodes = client.metadata::<Node>();
    let mut all: BTreeMap<Family, BTreeMap<String, (Ports, Vec<Endpoint>)>> =
        service.families().into_iter().map(|family| (family, BTreeMap::new())).collect();
    let mut skipped = Vec::new();
    for pod in pods.iter().filter(|pod| is_endpoint(pod)) {
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = match node_name.filter(|name| !name.is_empty()) {
            Some(name) => nodes.get(&Request::cluster(name))?,
            None => None,
        };
        let ports = ports(service, pod);
        for (family, by_ports) in &mut all {
            let addresses = addresses_in(pod, *family);
            if addresses.is_empty() {
                continue;
            }
            let (_, endpoints) =
                by_ports.entry(ports.0.clone()).or_insert_with(|| (ports.clone(), Vec::new()));
            if node.is_none() && !service.spec.publish_not_ready_addresses {
                skipped.push(format!(
                    "skipping Pod {} for Service {}/{}: Node {} Not Found",
                    pod.metadata.name.as_deref().unwrap_or_default(),
                    service.namespace(),
                    service.name(),
                    node_name.unwrap_or_default()
                ));
            } else {
                endpoints.push(endpoint(service, pod, node.as_deref(), addresses));
            }
        }
    }
    let of_family = |(family, by_ports): (Family, BTreeMap<String, _>)| {
        (family, by_ports.into_values().collect())
    };
    Ok((all.into_iter().map(of_family).collect(), skipped))
}

fn ports(service: &Service, pod: &Pod) -> Ports {
    let port = |(port, number): (&k8s_openapi::api::core::v1::ServicePort, i32)| EndpointPort {
        // A port without a name has an empty one.
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    };
    let ports: Vec<EndpointPort> = service.ports_of(pod).into_iter().map(port).collect();
    (text_of(&ports), ports)
}

/// Ports as text, the same for any order.
fn text_of(ports: &[EndpointPort]) -> String {
    let mut texts: Vec<String> =
        ports.iter().filter_map(|port| serde_json::to_string(port).ok()).collect();
    texts.sort_unstable();
    texts.join(",")
}

fn endpoint(
    service: &Service,
    pod: &Pod,
    node: Option<&PartialObjectMeta<Node>>,
    addresses: Vec<String>,
) -> Endpoint {
    let is_serving = is_ready(pod);
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    let is_ready = service.spec.publish_not_ready_addresses || (is_serving && !is_terminating);
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let node_name = node_name.filter(|name| !name.is_empty());
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
    let zone = zone.filter(|zone| !zone.is_empty());
    Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: hostname(pod, service),
        target_ref: Some(target_ref(pod)),
        hints: hints(service, is_ready, zone.as_deref(), node_name.as_deref()),
        node_name,
        zone,
        ..Endpoint::default()
    }
}

/// The hints of `trafficDistribution`: clients near an endpoint prefer it.
fn hints(
    service: &Service,
    is_ready: bool,
    zone: Option<&str>,
    node: Option<&str>,
) -> Option<EndpointHints> {
    let distribution = service.spec.traffic_distribution.as_deref().filter(|_| is_ready)?;
    let hints = match (distribution, zone, node) {
        ("PreferClose" | "PreferSameZone", Some(zone), _) => json!({"forZones": [{"name": zone}]}),
        ("PreferSameNode", Some(zone), Some(node)) => {
            json!({"forZones": [{"name": zone}], "forNodes": [{"name": node}]})
        }
        ("PreferSameNode", None, Some(node)) => json!({"forNodes": [{"name": node}]}),
        _ => return None,
    };
    // By JSON, because earlier versions of the type have no nodes.
    serde_json::from_value(hints).ok()
}

/// What a pass writes.
#[derive(Debug, Default)]
struct Writes {
    create: Vec<Slice>,
    update: Vec<Slice>,
    delete: Vec<Arc<Slice>>,
}

impl Writes {
    fn of(service: &Service, slices: &[Arc<Slice>], wanted: Wanted) -> Result<Self, BoxError> {
        let owner = controller_reference(service, &())?;
        let slice_labels = labels_of(service);
        let mut writes = Self::default();
        // Slices of an earlier Service of this name, or of a family that it has no more.
        let is_own = |slice: &&Arc<Slice>| {
            let owners = slice.metadata.owner_references.iter().flatten();
            let family = Family::named(&slice.address_type);
            owners.into_iter().any(|held| held.uid == owner.uid)
                && family.is_some_and(|family| wanted.contains_key(&family))
        };
        let (own, others): (Vec<_>, Vec<_>) = slices.iter().partition(is_own);
        writes.delete.extend(others.into_iter().cloned());
        for (family, by_ports) in wanted {
            let of_family = own.iter().filter(|slice| slice.address_type == family.as_str());
            let mut held: BTreeMap<String, Vec<&Arc<Slice>>> = BTreeMap::new();
            for slice in of_family {
                held.entry(text_of(slice.ports())).or_default().push(slice);
            }
            let new = |ports: &[EndpointPort], endpoints| {
                new_slice(service, &owner, &slice_labels, family, ports, endpoints)
            };
            let (mut create, mut delete) = (Vec::new(), Vec::new());
            let mut n_kept = 0;
            for ((text, ports), endpoints) in by_ports {
                let slices = held.remove(&text).unwrap_or_default();
                let refs: Vec<&Slice> = slices.iter().map(|slice| &***slice).collect();
                let packed = pack(&refs, endpoints, ENDPOINTS_MAX);
                n_kept += slices.len() - packed.delete.len();
                create.extend(packed.create.into_iter().map(|endpoints| new(&ports, endpoints)));
                delete.extend(packed.delete.iter().filter_map(|at| slices.get(*at).copied()));
                let mut update: BTreeMap<usize, Vec<Endpoint>> =
                    packed.update.into_iter().collect();
                for (at, slice) in
                    slices.iter().enumerate().filter(|(at, _)| !packed.delete.contains(at))
                {
                    let endpoints = update.remove(&at);
                    let has_labels = slice.metadata.labels.as_ref() == Some(&slice_labels);
                    if endpoints.is_some() || !has_labels {
                        let mut slice = Slice::clone(slice);
                        slice.endpoints = endpoints.or(slice.endpoints);
                        slice.metadata.labels = Some(slice_labels.clone());
                        writes.update.push(slice);
                    }
                }
            }
            delete.extend(held.into_values().flatten());
            if n_kept == 0 && create.is_empty() {
                // A Service without endpoints has one slice without endpoints.
                match delete.iter().position(|slice| is_placeholder(slice, &slice_labels)) {
                    Some(at) => _ = delete.remove(at),
                    None => create.push(new(&[], Vec::new())),
                }
            }
            // A slice to delete becomes one to create.
            let n_reused = create.len().min(delete.len());
            let reused = create.split_off(create.len() - n_reused);
            for (mut slice, old) in reused.into_iter().zip(delete.drain(..n_reused)) {
                slice.metadata.name.clone_from(&old.metadata.name);
                slice.metadata.resource_version.clone_from(&old.metadata.resource_version);
                writes.update.push(slice);
            }
            writes.create.append(&mut create);
            writes.delete.extend(delete.into_iter().cloned());
        }
        Ok(writes)
    }

    async fn write(
        self,
        client: &Client,
        service: &Service,
        trigger: Option<&str>,
    ) -> Result<(), ClientError> {
        let (api, services) = (client.api::<Slice>(), client.api::<Service>());
        let dated = |mut slice: Slice| {
            let annotations = slice.metadata.annotations.get_or_insert_default();
            match trigger {
                Some(trigger) => {
                    _ = annotations.insert(TRIGGER_TIME.to_owned(), trigger.to_owned())
                }
                None => _ = annotations.remove(TRIGGER_TIME),
            }
            slice
        };
        if !self.create.is_empty() && fresh::is_live(&services, service).await? {
            for slice in self.create {
                match api.create(&dated(slice)).await {
                    Err(error) if is_namespace_terminating(&error) => return Ok(()),
                    created => _ = created?,
                }
            }
        }
        for slice in self.update {
            api.replace(&dated(slice)).await?;
        }
        for slice in self.delete {
            let meta = &slice.metadata;
            let key = Request::new(service.namespace(), meta.name.as_deref().unwrap_or_default());
            api.delete(&key, &precondition(meta.uid.as_deref().unwrap_or_default())).await?;
        }
        Ok(())
    }
}

/// Whether a slice has no endpoints and no ports, as that of a Service without pods.
fn is_placeholder(slice: &Slice, labels: &BTreeMap<String, String>) -> bool {
    slice.endpoints().is_empty()
        && slice.ports().is_empty()
        && slice.metadata.labels.as_ref() == Some(labels)
}

/// The labels of a Service's slices.
fn labels_of(service: &Service) -> BTreeMap<String, String> {
    let own = service.metadata.labels.as_ref();
    let mut labels = labels(own, &[SERVICE_NAME, MANAGED_BY, HEADLESS]);
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name().to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn new_slice(
    service: &Service,
    owner: &OwnerReference,
    labels: &BTreeMap<String, String>,
    family: Family,
    ports: &[EndpointPort],
    endpoints: Vec<Endpoint>,
) -> Slice {
    Slice {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(service.name())),
            namespace: Some(service.namespace().to_owned()),
            labels: Some(labels.clone()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        address_type: family.as_str().to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports.to_vec()),
    }
}
