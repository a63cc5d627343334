//! Endpoints of Services with selectors.

use super::subsets::{repack, truncate};
use super::trigger::Triggers;
use super::{
    HEADLESS, Service, TRIGGER_TIME, WORKERS, addresses_in, hostname, is_endpoint, is_ready,
    labels, services_of, target_ref,
};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::pod_control::{is_namespace_terminating, message, precondition, rest};
use crate::workload::{COMPONENT, fresh, pod};
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, ServicePort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use setpoint_informer::Event;
use setpoint_runtime::{
    Action, Api, BoxError, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The controller's name.
const NAME: &str = "endpoints-controller";
/// The controller's name in events.
const COMPONENT_OF_EVENTS: &str = "endpoint-controller";
/// The label of Endpoints with their controller, and its value.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The annotation of Endpoints with too many addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The annotation of Endpoints that hold an election, which need no Service.
const ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";
/// The most addresses: 1000, as in kube-controller-manager.
const ADDRESSES_MAX: usize = 1000;

/// The controller of Endpoints.
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointsController(());

impl EndpointsController {
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
        let all = AllEndpoints::default();
        let leftovers = all.leftovers.clone();
        // Changes by others stay until the Service or a pod changes.
        let of_endpoints = move |event: &Event<Endpoints>| {
            let key = event.key();
            let key = Request::new(key.namespace.clone(), key.name.clone());
            match event {
                Event::Added { in_initial_list: true, .. } => {
                    _ = leftovers.lock().insert(key.clone())
                }
                Event::Deleted { .. } => _ = leftovers.lock().remove(&key),
                _ => return Vec::new(),
            }
            vec![key]
        };
        let controller = Controller::builder(NAME)
            .for_(super::watch())
            .watches(Watch::<Endpoints>::new(), of_endpoints)
            .watches_with(Watch::<pod::Pod>::new().index_labels(), services_of)
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(all))?;
        manager.add(controller)?;
        Ok(())
    }
}

#[derive(Default)]
struct AllEndpoints {
    triggers: Triggers,
    /// The Services that exist: their Endpoints go with them.
    services: Mutex<BTreeSet<Request>>,
    /// Endpoints from before the process, until a Service of the name is seen: their Service may
    /// have been deleted meanwhile.
    leftovers: Arc<Mutex<BTreeSet<Request>>>,
}

impl BoxedReconciler for AllEndpoints {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let api = client.api::<Endpoints>();
        let held = fresh::lister::<Endpoints>(context, &client, &request.namespace).await?;
        let held = held.get_key(request)?;
        let Some(service) = client.api::<Service>().get(request)? else {
            self.triggers.forget(request);
            let was_seen = self.services.lock().contains(request);
            let is_own = |held: &Endpoints| {
                held.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED_BY))
            };
            let is_leftover = self.leftovers.lock().contains(request);
            let is_election = |held: &Endpoints| {
                let annotations = held.metadata.annotations.as_ref();
                annotations.is_some_and(|annotations| annotations.contains_key(ELECTION))
            };
            let held =
                held.filter(|held| was_seen || is_own(held) || is_leftover && !is_election(held));
            if let Some(held) = held {
                // The cache of Services may be older than that of Endpoints.
                if client.api::<Service>().get_live(request).await?.is_some() {
                    return Ok(Action::requeue());
                }
                let uid = held.metadata.uid.as_deref().unwrap_or_default();
                api.delete(request, &precondition(uid)).await?;
            }
            self.services.lock().remove(request);
            return Ok(Action::await_change());
        };
        self.services.lock().insert(request.clone());
        self.leftovers.lock().remove(request);
        let Some(selector) = service.selector().filter(|_| service.has_endpoints()) else {
            return Ok(Action::await_change());
        };
        let pods = client.api::<Pod>().select().namespace(service.namespace()).labels(selector);
        let pods = pods.all()?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let trigger = self.triggers.since_last(request, &service, &pods);
        let mut subsets = subsets(&service, &pods);
        let is_truncated = truncate(&mut subsets, ADDRESSES_MAX);
        let labels = labels_of(&service);
        let annotations = held.as_ref().and_then(|held| held.metadata.annotations.as_ref());
        let is_same = held.as_ref().is_some_and(|held| {
            let held_subsets = held.subsets.as_deref().unwrap_or_default();
            // Others may have written them in another layout or order.
            (held_subsets == subsets || repack(held_subsets) == subsets)
                && held.metadata.labels.as_ref() == Some(&labels)
                && annotations.is_some_and(|all| all.contains_key(OVER_CAPACITY)) == is_truncated
        });
        let action = Action::await_change().rest(rest(pods.len()));
        if is_same {
            return Ok(action);
        }
        let mut annotations = annotations.cloned().unwrap_or_default();
        match trigger {
            Some(trigger) => _ = annotations.insert(TRIGGER_TIME.to_owned(), trigger),
            None => _ = annotations.remove(TRIGGER_TIME),
        }
        match is_truncated {
            true => _ = annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned()),
            false => _ = annotations.remove(OVER_CAPACITY),
        }
        let metadata = match &held {
            Some(held) => held.metadata.clone(),
            None => ObjectMeta {
                name: Some(service.name().to_owned()),
                namespace: Some(service.namespace().to_owned()),
                ..ObjectMeta::default()
            },
        };
        let wanted = Endpoints {
            metadata: ObjectMeta {
                labels: Some(labels),
                annotations: Some(annotations),
                ..metadata
            },
            subsets: Some(subsets).filter(|subsets| !subsets.is_empty()),
        };
        write(context, &api, &wanted, held.is_some()).await?;
        Ok(action)
    }
}

async fn write(
    context: &Context,
    api: &Api<Endpoints>,
    wanted: &Endpoints,
    exists: bool,
) -> Result<(), BoxError> {
    let written = if exists { api.replace(wanted).await } else { api.create(wanted).await };
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_namespace_terminating(&error) => Ok(()),
        Err(error) => {
            let name = wanted.metadata.name.as_deref().unwrap_or_default();
            let namespace = wanted.metadata.namespace.as_deref().unwrap_or_default();
            let (reason, what) = match exists {
                true => ("FailedToUpdateEndpoint", "Failed to update endpoint"),
                false => ("FailedToCreateEndpoint", "Failed to create endpoint for service"),
            };
            let note = format!("{what} {namespace}/{name}: {}", message(&error));
            let recorder = context.recorder().as_component(COMPONENT_OF_EVENTS);
            recorder.warning(&ObjectReference::of(wanted), reason, note);
            Err(error.into())
        }
    }
}

fn labels_of(service: &Service) -> BTreeMap<String, String> {
    let mut labels = labels(service.metadata.labels.as_ref(), &[HEADLESS]);
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), COMPONENT_OF_EVENTS.to_owned());
    labels
}

/// The addresses of the pods, and their ports.
fn subsets(service: &Service, pods: &[&Pod]) -> Vec<EndpointSubset> {
    let publishes_all = service.spec.publish_not_ready_addresses;
    let mut all = Vec::new();
    for pod in pods.iter().filter(|pod| is_endpoint(pod)) {
        if pod.metadata.deletion_timestamp.is_some() && !publishes_all {
            continue;
        }
        let family = service.families().first().copied();
        let address = family.and_then(|family| addresses_in(pod, family).into_iter().next());
        let Some(ip) = address else { continue };
        let ports = ports(service, pod);
        // A Service with an address needs ports.
        if ports.is_empty() && !(service.spec.ports.is_empty() && service.is_headless()) {
            continue;
        }
        let address = Some(vec![EndpointAddress {
            ip,
            hostname: hostname(pod, service),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            target_ref: Some(target_ref(pod)),
        }]);
        let (addresses, not_ready_addresses) = match publishes_all || is_ready(pod) {
            true => (address, None),
            false => (None, address),
        };
        all.push(EndpointSubset { addresses, not_ready_addresses, ports: Some(ports) });
    }
    repack(&all)
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let port = |(port, number): (&ServicePort, i32)| EndpointPort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: number,
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    };
    service.ports_of(pod).into_iter().map(port).collect()
}
