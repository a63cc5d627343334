//! EndpointSlices of Endpoints that users write, for Services without selectors.

use super::pack::pack;
use super::{Family, MANAGED_BY, SERVICE_NAME, Service, Slice, TRIGGER_TIME, WORKERS, slice_owner};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::pod_control::{is_namespace_terminating, name_prefix, precondition};
use crate::workload::{COMPONENT, fresh};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use setpoint_informer::Object;
use setpoint_object::cidr::parse_address;
use setpoint_object::label::Selector;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, ObjectReference, Request, Watch,
    controller_reference,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The controller's name.
const NAME: &str = "endpointslice-mirroring-controller";
/// The value of the label of its slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// What its events name as their source, as in the reference.
const EVENT_SOURCE: &str = "endpoint-slice-mirroring-controller";
/// The most endpoints of a slice, and the most addresses of a subset that are mirrored: 1000, as in
/// kube-controller-manager.
const ENDPOINTS_MAX: usize = 1000;
/// The label of Endpoints that are not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotations that are not copied.
const OWN_ANNOTATIONS: [&str; 3] =
    ["kubectl.kubernetes.io/last-applied-configuration", TRIGGER_TIME, LEADER];
/// The annotation of Endpoints that are a lock of an election.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The controller of mirrored EndpointSlices.
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointSliceMirroring(());

impl EndpointSliceMirroring {
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
        let same_name = |object: &Object<Service>| {
            let key = object.key();
            vec![Request::new(key.namespace.clone(), key.name.clone())]
        };
        let of_slice = |slice: &Object<Slice>| slice_owner(slice, MANAGER);
        let controller = Controller::builder(NAME)
            .for_(Watch::<Endpoints>::new())
            .maps(Watch::<Service>::new(), same_name)
            .maps(Watch::<Slice>::new().index_labels(), of_slice)
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let endpoints = client.api::<Endpoints>().get(request)?.filter(|held| is_mirrored(held));
        let service = client.api::<Service>().get(request)?;
        let service = service.filter(|service| service.spec.selector.is_none());
        let endpoints = endpoints.filter(|_| service.is_some());
        let api = client.api::<Slice>();
        let slices = fresh::lister::<Slice>(context, &client, &request.namespace).await?;
        let own = format!("{SERVICE_NAME}={},{MANAGED_BY}={MANAGER}", request.name);
        let slices = slices.namespaced(request.namespace.clone()).list(&Selector::parse(&own)?)?;
        let slices: Vec<Arc<Slice>> = slices
            .into_iter()
            .filter(|slice| slice.metadata.deletion_timestamp.is_none())
            .collect();
        let mut held: BTreeMap<(String, String), Vec<Arc<Slice>>> = BTreeMap::new();
        let mut doomed = Vec::new();
        let uid = endpoints.as_ref().and_then(|endpoints| endpoints.metadata.uid.clone());
        for slice in slices {
            let owners = slice.metadata.owner_references.iter().flatten();
            if owners.into_iter().any(|owner| Some(&owner.uid) == uid.as_ref()) {
                let ports = serde_json::to_string(slice.ports())?;
                held.entry((slice.address_type.clone(), ports)).or_default().push(slice);
            } else {
                doomed.push(slice);
            }
        }
        if let Some(endpoints) = endpoints {
            let owner = controller_reference(&*endpoints, &())?;
            let (labels, annotations) = metadata_of(&endpoints, &request.name);
            let (groups, skipped) = mirrored(&endpoints)?;
            skipped.tell(context, &endpoints);
            let (mut new, mut unused) = (Vec::new(), Vec::new());
            for ((family, text), (ports, wanted)) in groups {
                let slices = held.remove(&(family.clone(), text)).unwrap_or_default();
                let refs: Vec<&Slice> = slices.iter().map(|slice| &**slice).collect();
                let packed = pack(&refs, wanted, ENDPOINTS_MAX);
                new.extend(packed.create.into_iter().map(|endpoints| Slice {
                    metadata: ObjectMeta {
                        generate_name: Some(name_prefix(&request.name)),
                        namespace: Some(request.namespace.to_string()),
                        labels: Some(labels.clone()),
                        annotations: Some(annotations.clone()),
                        owner_references: Some(vec![owner.clone()]),
                        ..ObjectMeta::default()
                    },
                    address_type: family.clone(),
                    endpoints: Some(endpoints),
                    ports: Some(ports.clone()),
                }));
                let mut update: BTreeMap<usize, Vec<Endpoint>> =
                    packed.update.into_iter().collect();
                for (at, slice) in slices.into_iter().enumerate() {
                    if packed.delete.contains(&at) {
                        unused.push(slice);
                        continue;
                    }
                    let endpoints = update.remove(&at);
                    let is_same = slice.metadata.labels.as_ref() == Some(&labels)
                        && slice.metadata.annotations.clone().unwrap_or_default() == annotations;
                    if endpoints.is_some() || !is_same {
                        let mut slice = Slice::clone(&slice);
                        slice.endpoints = endpoints.or(slice.endpoints);
                        slice.metadata.labels = Some(labels.clone());
                        slice.metadata.annotations = Some(annotations.clone());
                        api.replace(&slice).await?;
                    }
                }
            }
            // A slice to delete becomes one to create.
            unused.extend(std::mem::take(&mut held).into_values().flatten());
            let mut spare: BTreeMap<String, Vec<Arc<Slice>>> = BTreeMap::new();
            for slice in unused {
                spare.entry(slice.address_type.clone()).or_default().push(slice);
            }
            let mut create = Vec::new();
            for mut slice in new {
                let Some(old) = spare.get_mut(&slice.address_type).and_then(Vec::pop) else {
                    create.push(slice);
                    continue;
                };
                slice.metadata.generate_name = None;
                slice.metadata.name.clone_from(&old.metadata.name);
                slice.metadata.resource_version.clone_from(&old.metadata.resource_version);
                api.replace(&slice).await?;
            }
            if !create.is_empty() && !fresh::is_live(&client.api(), &*endpoints).await? {
                return Ok(Action::await_change());
            }
            for slice in create {
                match api.create(&slice).await {
                    Err(error) if is_namespace_terminating(&error) => {}
                    created => _ = created?,
                }
            }
            doomed.extend(spare.into_values().flatten());
        }
        doomed.extend(held.into_values().flatten());
        for slice in doomed {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let uid = slice.metadata.uid.as_deref().unwrap_or_default();
            api.delete(&Request::new(request.namespace.clone(), name), &precondition(uid)).await?;
        }
        Ok(Action::await_change())
    }
}

/// Whether Endpoints are to be mirrored.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let annotations = endpoints.metadata.annotations.as_ref();
    labels.and_then(|labels| labels.get(SKIP)).is_none_or(|skip| skip != "true")
        && annotations.is_none_or(|annotations| !annotations.contains_key(LEADER))
}

/// The labels and annotations of the slices of Endpoints.
fn metadata_of(
    endpoints: &Endpoints,
    service: &str,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.remove(SKIP);
    labels.insert(SERVICE_NAME.to_owned(), service.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&name.as_str()));
    (labels, annotations)
}

/// Endpoints by address type and by their ports as text, with the ports.
type Groups = BTreeMap<(String, String), (Vec<EndpointPort>, Vec<Endpoint>)>;

/// The numbers of addresses that are not mirrored.
#[derive(Debug, Default)]
struct Skipped {
    /// They are none.
    invalid: usize,
    /// All, with those above the most of a subset.
    all: usize,
}

impl Skipped {
    /// Says in events of the Endpoints what is not mirrored.
    fn tell(&self, context: &Context, endpoints: &Endpoints) {
        let recorder = context.recorder().as_component(EVENT_SOURCE);
        let reference = ObjectReference::of(endpoints);
        let Self { invalid, all } = self;
        if *invalid > 0 {
            let note =
                format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            recorder.warning(&reference, "InvalidIPAddress", note);
        }
        if all > invalid {
            let note = format!(
                "A max of {ENDPOINTS_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {all} addresses were skipped"
            );
            recorder.warning(&reference, "TooManyAddressesToMirror", note);
        }
    }
}

/// The endpoints of Endpoints, by address type and ports, and what is left out.
fn mirrored(endpoints: &Endpoints) -> Result<(Groups, Skipped), BoxError> {
    let (mut groups, mut skipped) = (Groups::new(), Skipped::default());
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let text = serde_json::to_string(&ports)?;
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let mut n_mirrored = 0;
        for (address, is_ready) in ready.chain(unready) {
            if n_mirrored == ENDPOINTS_MAX {
                skipped.all += 1;
                continue;
            }
            let Some(ip) = parse_address(&address.ip) else {
                skipped.invalid += 1;
                skipped.all += 1;
                continue;
            };
            n_mirrored += 1;
            let key = (Family::of(ip).as_str().to_owned(), text.clone());
            let (_, group) = groups.entry(key).or_insert_with(|| (ports.clone(), Vec::new()));
            group.push(endpoint(address, is_ready));
        }
    }
    Ok((groups, skipped))
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}
