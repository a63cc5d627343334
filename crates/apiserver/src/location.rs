//! Where the proxies of pods, Services and nodes lead, as kube-apiserver finds it.
//!
//! | resource | name | goes to |
//! |---|---|---|
//! | `pods` | `[scheme:]name[:port]` | the pod's first address; without a port, the first one of its containers |
//! | `services` | `[scheme:]name[:port]`, the port by number or by name | a ready endpoint that is a pod of the namespace |
//! | `nodes` | `[scheme:]name[:port]` | its kubelet; with another port, that port of the node |
//!
//! Addresses of pods and nodes that only their own machine reaches are refused.

use crate::connector::{Connector, Location, Peer};
use serde_json::Value;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::{ApiError, GroupResource, GroupVersionResource, Reason, Skim};
use setpoint_registry::kind::ProxiedTo;
use setpoint_registry::{Objects, ProxyName, Registry, Target, is_reachable};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The feature of kubelets that speak all protocols of WebSockets, as nodes declare it.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// Where a kubelet is.
#[derive(Debug)]
pub(crate) struct Kubelet {
    pub(crate) location: Location,
    /// Whether it speaks the newest protocols of WebSockets. Others speak SPDY in their place.
    pub(crate) has_websockets: bool,
}

/// Finds where a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locator<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) connector: &'a dyn Connector,
    /// Which of several endpoints is the next one.
    pub(crate) turn: &'a AtomicUsize,
}

impl Locator<'_> {
    /// The peer that a proxied request is for. `object`: the pod, the Service or the node; null for
    /// a Service that does not exist.
    ///
    /// # Errors
    ///
    /// 400 for names, addresses and ports that are not connected to, 404 for a Service without
    /// Endpoints, 503 if nothing serves it.
    pub(crate) async fn of_proxy(
        self,
        target: &Target,
        object: &Value,
    ) -> Result<Option<Location>, ApiError> {
        let named = ProxyName::of(target)?;
        match target.resource.kind.proxied_to {
            ProxiedTo::Nothing => Ok(None),
            ProxiedTo::Address => of_pod(named, object).map(Some),
            ProxiedTo::Endpoints => self.of_service(target, named, object).await.map(Some),
            ProxiedTo::Kubelet => self.of_node(named, object),
        }
    }

    /// The kubelet of a node; `None`: the node has none.
    ///
    /// # Errors
    ///
    /// 404 if there is no such node.
    pub(crate) async fn of_kubelet(self, node: &str) -> Result<Option<Kubelet>, ApiError> {
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let found = self.registry.objects().get(&nodes, "", node).await?;
        // kube-apiserver names the resource of the request.
        let found = found.ok_or_else(|| ApiError::not_found(&core("pods"), node))?;
        let node = parse(&found.bytes)?;
        let Some((host, port)) = self.connector.kubelet(&node)? else { return Ok(None) };
        let mut features = list(&node["status"]["declaredFeatures"]).iter();
        Ok(Some(Kubelet {
            location: location(Peer::Kubelet, true, host, port),
            has_websockets: features.any(|feature| feature == WEBSOCKETS),
        }))
    }

    fn of_node(self, named: ProxyName<'_>, node: &Value) -> Result<Option<Location>, ApiError> {
        let Some((host, own_port)) = self.connector.kubelet(node)? else { return Ok(None) };
        let found = match named.port {
            "" => location(Peer::Kubelet, true, host, own_port),
            port if port == own_port.to_string() => location(Peer::Kubelet, true, host, own_port),
            port => location(Peer::Anyone, named.is_secure, host, number(port)?),
        };
        Ok(Some(Location { is_global: true, ..found }))
    }

    async fn of_service(
        self,
        target: &Target,
        named: ProxyName<'_>,
        service: &Value,
    ) -> Result<Location, ApiError> {
        let mut port_name = named.port;
        if let Ok(number) = named.port.parse::<i64>() {
            let ports = service["spec"]["ports"].as_array().into_iter().flatten();
            let Some(port) = ports.into_iter().find(|port| port["port"] == number) else {
                let name = named.name;
                return Err(unavailable(format!(
                    "no service port {number} found for service {name:?}"
                )));
            };
            port_name = port["name"].as_str().unwrap_or_default();
        }
        let objects = self.registry.objects();
        let Target { namespace, name: full_name, .. } = target;
        let subsets = subsets(objects, namespace, named.name).await?;
        if subsets.is_empty() {
            let name = named.name;
            return Err(unavailable(format!("no endpoints available for service {name:?}")));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for subset in rotated(&subsets, turn) {
            let Some(port) = subset.ports.iter().find(|(name, _)| name == port_name) else {
                continue;
            };
            for address in rotated(&subset.addresses, turn) {
                if is_pod(objects, namespace, address).await? {
                    let (host, port) = (address.ip.clone(), port.1);
                    return Ok(location(Peer::Anyone, named.is_secure, host, port));
                }
            }
        }
        Err(unavailable(format!("no endpoints available for service {full_name:?}")))
    }
}

fn of_pod(named: ProxyName<'_>, pod: &Value) -> Result<Location, ApiError> {
    let status = &pod["status"];
    let address = status["podIPs"][0]["ip"].as_str().or(status["podIP"].as_str());
    let host = address.unwrap_or_default().to_owned();
    if !is_reachable(&host) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let port = match named.port {
        "" => {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports = containers.filter_map(|one| one["ports"][0]["containerPort"].as_u64());
            let of_scheme = if named.is_secure { 443 } else { 80 };
            ports.next().and_then(|port| u16::try_from(port).ok()).unwrap_or(of_scheme)
        }
        port => number(port)?,
    };
    Ok(location(Peer::Anyone, named.is_secure, host, port))
}

fn location(peer: Peer, is_secure: bool, host: String, port: u16) -> Location {
    Location {
        peer,
        is_secure,
        host,
        port,
        path: String::new(),
        query: String::new(),
        prefix: None,
        is_global: false,
    }
}

/// A port of a pod or a node, where ports have no names.
fn number(port: &str) -> Result<u16, ApiError> {
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::bad_request(format!("port {port:?} is not a number")));
    }
    let why = || format!("error trying to reach service: dial tcp: address {port}: invalid port");
    port.parse().map_err(|_| unavailable(why()))
}

/// Addresses with the same ports.
#[derive(Debug, Default)]
struct Subset {
    addresses: Vec<Endpoint>,
    ports: Vec<(String, u16)>,
}

/// A ready address.
#[derive(Debug)]
struct Endpoint {
    ip: String,
    /// Namespace and name of its pod.
    pod: Option<(String, String)>,
}

impl Endpoint {
    fn of(ip: &Value, target: &Value) -> Option<Self> {
        let text = |member: &str| target[member].as_str().unwrap_or_default().to_owned();
        Some(Self {
            ip: ip.as_str()?.to_owned(),
            pod: target.is_object().then(|| (text("namespace"), text("name"))),
        })
    }
}

/// The ready addresses of a Service: of its Endpoints, or of its EndpointSlices if it has none.
///
/// # Errors
///
/// 404 if it has neither.
async fn subsets(
    objects: Objects<'_>,
    namespace: &str,
    name: &str,
) -> Result<Vec<Subset>, ApiError> {
    let endpoints = GroupVersionResource::new("", "v1", "endpoints");
    let found = match objects.get(&endpoints, namespace, name).await {
        // Endpoints may be turned off.
        Err(error) if error.code() == 404 => None,
        found => found?,
    };
    if let Some(found) = found {
        let found = parse(&found.bytes)?;
        let subsets = list(&found["subsets"]).iter().map(|subset| Subset {
            addresses: list(&subset["addresses"])
                .iter()
                .filter_map(|address| Endpoint::of(&address["ip"], &address["targetRef"]))
                .collect(),
            ports: ports(&subset["ports"]),
        });
        return Ok(subsets.collect());
    }
    let slices = GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices");
    let slices = match objects.list(&slices, namespace).await {
        Err(error) if error.code() == 404 => Vec::new(),
        slices => slices?,
    };
    let mut subsets = Vec::new();
    for slice in slices {
        let is_of_service = Skim::of(&slice.bytes)
            .is_ok_and(|skim| skim.label("kubernetes.io/service-name") == Some(name));
        if !is_of_service {
            continue;
        }
        let slice = parse(&slice.bytes)?;
        // Absent counts as ready.
        let ready =
            list(&slice["endpoints"]).iter().filter(|one| one["conditions"]["ready"] != false);
        let addresses = ready
            .flat_map(|one| list(&one["addresses"]).iter().map(|ip| (ip, &one["targetRef"])))
            .filter_map(|(ip, target)| Endpoint::of(ip, target));
        subsets.push(Subset { addresses: addresses.collect(), ports: ports(&slice["ports"]) });
    }
    match subsets.is_empty() {
        // kube-apiserver names the resource of the request.
        true => Err(ApiError::not_found(&core("services"), name)),
        false => Ok(subsets),
    }
}

fn ports(ports: &Value) -> Vec<(String, u16)> {
    let ports = list(ports).iter().filter_map(|port| {
        let number = port["port"].as_u64().and_then(|port| u16::try_from(port).ok())?;
        Some((port["name"].as_str().unwrap_or_default().to_owned(), number))
    });
    ports.collect()
}

/// Whether an endpoint is a pod of the namespace: only pods are proxied to, so that Endpoints
/// written by a user do not lead into other networks.
async fn is_pod(
    objects: Objects<'_>,
    namespace: &str,
    endpoint: &Endpoint,
) -> Result<bool, ApiError> {
    let Some((of, name)) = &endpoint.pod else { return Ok(false) };
    if of != namespace {
        return Ok(false);
    }
    let pods = GroupVersionResource::new("", "v1", "pods");
    let Some(found) = objects.get(&pods, namespace, name).await? else { return Ok(false) };
    let pod = parse(&found.bytes)?;
    let mut addresses = list(&pod["status"]["podIPs"]).iter();
    Ok(pod.name() == name && addresses.any(|address| address["ip"] == *endpoint.ip))
}

/// The items, beginning with another one each time.
fn rotated<T>(items: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let (before, after) = items.split_at(turn.checked_rem(items.len()).unwrap_or_default());
    after.iter().chain(before)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn core(resource: &str) -> GroupResource {
    GroupResource { group: "".into(), resource: resource.into() }
}

fn parse(object: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(object).map_err(ApiError::internal)
}

fn unavailable(message: String) -> ApiError {
    ApiError::new(503, Reason::ServiceUnavailable, message)
}
