//! Endpoints of Services: which pods serve them, as EndpointSlices and as Endpoints.
//!
//! # Theory
//!
//! | controller | reads | keeps |
//! |---|---|---|
//! | [`EndpointSliceController`] | Services with selectors, pods, nodes | their slices, of at most 100 endpoints |
//! | [`EndpointsController`] | Services with selectors, pods | the Endpoints of the same name |
//! | [`EndpointSliceMirroring`] | Services without selectors, their Endpoints | slices with the same addresses |
//!
//! A pod is an endpoint if the Service selects it, it has an address, and it has not finished. All
//! pods of a Service are compared in one pass. A slice stays as it is unless one of its endpoints
//! changed; new ones fill changed slices first (`pack`). So a change of one pod changes one
//! slice.
//!
//! Each has kube-controller-manager's rules. Not implemented: the hints of
//! `service.kubernetes.io/topology-mode: Auto`. Those of `trafficDistribution` are.

mod legacy;
mod mirror;
mod pack;
mod slice;
mod subsets;
mod trigger;

pub use legacy::EndpointsController;
pub use mirror::EndpointSliceMirroring;
pub use slice::EndpointSliceController;

use super::by_label::{self, BY_LABEL, Labels};
use super::pod::is_ready;
use super::view::view;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{Pod, PodStatus, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use setpoint_informer::{Event, Object};
use setpoint_object::cidr::{Family, parse_address};
use setpoint_object::label::Selector;
use setpoint_object::pod_phase;
use setpoint_runtime::{Client, Request, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Number of Services that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// The label of a Service's slices with its name.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of slices with their controller.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of endpoints of Services without an address.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation with the time of the change that led to a write.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

view! {
    /// A Service.
    Service of core::Service {
        /// The spec.
        spec: ServiceSpec,
    }
}

/// `spec` of a Service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    selector: Option<BTreeMap<String, String>>,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    ip_families: Vec<String>,
    ports: Vec<ServicePort>,
    publish_not_ready_addresses: bool,
    #[serde(rename = "type")]
    kind: String,
    traffic_distribution: Option<String>,
}

view! {
    /// An EndpointSlice. In JSON, lists may be null.
    Slice of EndpointSlice {
        /// `IPv4` or `IPv6`.
        address_type: String,
        /// The endpoints.
        endpoints: Option<Vec<Endpoint>>,
        /// The ports of all endpoints.
        ports: Option<Vec<EndpointPort>>,
    }
}

impl Slice {
    fn endpoints(&self) -> &[Endpoint] {
        self.endpoints.as_deref().unwrap_or_default()
    }

    fn ports(&self) -> &[EndpointPort] {
        self.ports.as_deref().unwrap_or_default()
    }
}

/// A slice is written as a whole: its controller owns all of it.
impl Serialize for Slice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": self.metadata, "addressType": self.address_type,
            "endpoints": self.endpoints(), "ports": self.ports(),
        });
        slice.serialize(serializer)
    }
}

impl Service {
    /// Whether a controller keeps its endpoints: it has a selector and is no alias of a host.
    fn has_endpoints(&self) -> bool {
        self.spec.selector.is_some() && self.spec.kind != "ExternalName"
    }

    fn is_headless(&self) -> bool {
        matches!(&*self.spec.cluster_ip, "" | "None")
    }

    /// The selector of its pods.
    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.selector.as_ref()?.iter();
        Selector::from_labels(labels.map(|(key, value)| (&**key, &**value))).ok()
    }

    /// The families of its addresses, the first one first.
    fn families(&self) -> Vec<Family> {
        let families: Vec<Family> =
            self.spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
        if !families.is_empty() {
            return families;
        }
        match self.spec.cluster_ip.parse() {
            Ok(address) => vec![Family::of(address)],
            Err(_) => vec![Family::V4, Family::V6],
        }
    }

    /// The ports of a pod that the Service's ports lead to, with the Service's port. Ports that the
    /// pod does not have are left out.
    fn ports_of(&self, pod: &Pod) -> Vec<(&ServicePort, i32)> {
        let ports = self.spec.ports.iter();
        ports.filter_map(|port| Some((port, target(port, pod)?))).collect()
    }
}

/// The number of a Service port's target in a pod.
fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let protocol = |name: &Option<String>| name.clone().unwrap_or_else(|| "TCP".to_owned());
    let found = ports.find(|found| {
        found.name.as_ref() == Some(name) && protocol(&found.protocol) == protocol(&port.protocol)
    })?;
    Some(found.container_port)
}

/// The addresses of a pod.
fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let all = status.pod_ips.iter().flatten().map(|address| address.ip.as_str());
    let mut all: Vec<IpAddr> = all.filter_map(parse_address).collect();
    if all.is_empty() {
        all.extend(status.pod_ip.as_deref().and_then(parse_address));
    }
    all
}

/// The addresses of a pod in a family.
fn addresses_in(pod: &Pod, family: Family) -> Vec<String> {
    let all = pod.status.as_ref().map(addresses).unwrap_or_default().into_iter();
    all.filter(|address| Family::of(*address) == family)
        .map(|address| address.to_string())
        .collect()
}

/// Whether a pod may be an endpoint: it has an address and has not finished.
fn is_endpoint(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let is_finished = status.phase.as_deref().is_some_and(pod_phase::is_terminal);
    !is_finished && !addresses(status).is_empty()
}

/// The host name of a pod, if the Service is its subdomain.
fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_subdomain = spec.subdomain.as_deref() == Some(service.name())
        && pod.metadata.namespace.as_deref() == Some(service.namespace());
    spec.hostname.clone().filter(|name| is_subdomain && !name.is_empty())
}

/// A reference to a pod.
fn target_ref(pod: &Pod) -> core::ObjectReference {
    core::ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..core::ObjectReference::default()
    }
}

/// The watch of Services, with the index of their selectors.
fn watch() -> Watch<Service> {
    Watch::new().index(BY_LABEL, |service: &Service| {
        let labels = service.spec.selector.iter().flatten();
        by_label::required(service.namespace(), labels.map(|(key, value)| (&**key, &**value)))
    })
}

/// The Services that select a pod, before or after a change.
fn services_of(event: &Event<super::pod::Pod>, client: &Client) -> Vec<Request> {
    let namespace = &event.key().namespace;
    let labels = Labels::of_event(event);
    let selects = |service: &Arc<Service>| {
        let selector = service.spec.selector.as_ref();
        service.has_endpoints() && selector.is_some_and(|selector| labels.have(selector))
    };
    let services = labels.candidates::<Service>(client).into_iter().filter(selects);
    let names: BTreeSet<String> = services.map(|service| service.name().to_owned()).collect();
    names.into_iter().map(|name| Request::new(namespace.clone(), name)).collect()
}

/// The labels of endpoints of a Service: the Service's own, without those that controllers set.
fn labels(own: Option<&BTreeMap<String, String>>, without: &[&str]) -> BTreeMap<String, String> {
    let mut labels = own.cloned().unwrap_or_default();
    labels.retain(|label, _| !without.contains(&label.as_str()));
    labels
}

/// The Service of a slice that a controller manages.
fn slice_owner(slice: &Object<Slice>, manager: &str) -> Vec<Request> {
    let skim = slice.skim();
    match (skim.label(MANAGED_BY), skim.label(SERVICE_NAME)) {
        (Some(by), Some(service)) if by == manager => {
            vec![Request::new(slice.key().namespace.clone(), service)]
        }
        _ => Vec::new(),
    }
}
