//! Claims of devices: made from the templates that pods name, and released when pods have ended.
//!
//! # Theory
//!
//! | controller | of | does |
//! |---|---|---|
//! | `resource_claim` | pods | makes a claim for each template that a pod names, writes the claims' names to `status.resourceClaimStatuses`, and reserves allocated claims for pods that have a node already |
//! | `resource_claim_reservations` (`reservations.rs`) | claims | removes pods that have ended from `status.reservedFor`; without any left, the allocation and its finalizer; deletes the claim of a pod that has ended |
//!
//! A claim has a generated name. It belongs to its pod by its controller reference, and to one
//! claim of the pod by an annotation: a claim whose name could not be written to the pod's status
//! is found again, so none is made twice. Claims are looked for in a cache that shows this
//! process's writes (`fresh`). Devices are allocated by the scheduler. The rules and the texts are
//! those of kube-controller-manager's `resourceclaim-controller`.

mod reservations;

use super::view::view;
use super::{COMPONENT, fresh, pod_control};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use kube_core::params::{Patch, PatchParams};
use kube_core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::pod_phase;
use setpoint_runtime::client::ClientError;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Predicate, Request,
    Watch,
};

/// The controller's name in events.
const NAME: &str = "resource_claim";
/// The field manager of the names in a pod's status.
const STATUS_MANAGER: &str = "ResourceClaimController";
/// Number of pods, and of claims, that are processed at the same time.
const WORKERS: usize = 8;
/// The annotation of a generated claim: which of the pod's claims it is.
const CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The longest base of a generated name: 57, which leaves room for a hyphen and five characters.
const BASE_MAX: usize = 57;
/// How many consumers a claim may have: 256, a limit of the API.
const RESERVATIONS_MAX: usize = 256;
/// The index of pods by the claims and templates that they name.
const BY_USE: &str = "resource-claims";
/// The index of claims by the pod that they are made for.
const BY_POD: &str = "pod-of-claim";

view! {
    /// A pod.
    Pod of core::Pod {
        /// The spec.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    node_name: String,
    resource_claims: Vec<PodClaim>,
}

/// A claim that a pod names, or the template that it is made from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodClaim {
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    phase: String,
    resource_claim_statuses: Vec<Generated>,
    /// The claim that the scheduler has made for extended resources.
    extended_resource_claim_status: Option<Extended>,
}

/// Which claim was made for a template.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Generated {
    name: String,
    /// `None`: none is needed.
    resource_claim_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extended {
    resource_claim_name: String,
}

view! {
    /// A ResourceClaim.
    Claim of resource::ResourceClaim {
        /// The observed state.
        status: ClaimStatus,
    }
}

/// `status` of a claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    /// The allocated devices, as JSON; null: none.
    pub(super) allocation: Value,
    /// The consumers, as JSON.
    pub(super) reserved_for: Vec<Value>,
}

view! {
    /// A ResourceClaimTemplate.
    Template of resource::ResourceClaimTemplate {
        /// Metadata and spec of claims, as JSON.
        spec: Value,
    }
}

/// What is known of a claim that a pod names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named<'a> {
    /// The pod's user has made it.
    ByUser(&'a str),
    /// It was made for the pod.
    Generated(&'a str),
    /// It is not needed.
    Unneeded,
    /// Its name is not in the pod's status.
    Unknown,
}

impl Pod {
    /// Empty before the pod is scheduled.
    pub(super) fn node_name(&self) -> &str {
        &self.spec.node_name
    }

    /// Whether its containers do not run, and never will.
    fn is_done(&self) -> bool {
        pod_phase::is_terminal(&self.status.phase)
            || self.is_being_deleted() && self.spec.node_name.is_empty()
    }

    fn named<'a>(&'a self, claim: &'a PodClaim) -> Named<'a> {
        if let Some(name) = &claim.resource_claim_name {
            return Named::ByUser(name);
        }
        let mut generated = self.status.resource_claim_statuses.iter();
        match generated.find(|generated| generated.name == claim.name) {
            Some(Generated { resource_claim_name: Some(name), .. }) => Named::Generated(name),
            Some(_) => Named::Unneeded,
            None => Named::Unknown,
        }
    }

    /// What is known of each claim of its spec.
    pub(super) fn named_claims(&self) -> impl Iterator<Item = Named<'_>> {
        self.spec.resource_claims.iter().map(|claim| self.named(claim))
    }

    /// The names of its claims, as far as they are known.
    fn claims(&self) -> impl Iterator<Item = &str> {
        let names = self.named_claims().filter_map(|named| match named {
            Named::ByUser(name) | Named::Generated(name) => Some(name),
            Named::Unneeded | Named::Unknown => None,
        });
        let extended = self.status.extended_resource_claim_status.iter();
        names.chain(extended.map(|claim| &*claim.resource_claim_name))
    }

    /// The values of the index.
    fn uses(&self) -> Vec<String> {
        let namespace = self.namespace();
        let templates = self.spec.resource_claims.iter();
        let templates = templates.filter_map(|claim| claim.resource_claim_template_name.as_ref());
        let templates = templates.map(|name| of_template(namespace, name));
        self.claims().map(|name| of_claim(namespace, name)).chain(templates).collect()
    }
}

impl Claim {
    /// The uid of the pod that it was made for.
    fn pod_uid(&self) -> Option<&str> {
        controller_of(self).filter(|owner| owner.kind == "Pod").map(|owner| &*owner.uid)
    }

    pub(super) fn is_for(&self, pod: &Pod) -> bool {
        self.pod_uid() == Some(pod.uid())
    }

    pub(super) fn is_reserved_for(&self, pod: &Pod) -> bool {
        self.status.reserved_for.iter().any(|consumer| consumer["uid"] == pod.uid())
    }
}

/// The value of the index for a claim.
fn of_claim(namespace: &str, name: &str) -> String {
    format!("claim/{namespace}/{name}")
}

/// The value of the index for a template.
fn of_template(namespace: &str, name: &str) -> String {
    format!("template/{namespace}/{name}")
}

/// The controller of device claims.
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceClaimController(());

impl ResourceClaimController {
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
        let concerned = Predicate::new(|event: &Event<Pod>| {
            !matches!(event, Event::Deleted { .. }) && event.object().is_some_and(has_claims)
        });
        let claims = Watch::<Claim>::new().index(BY_POD, |claim: &Claim| {
            claim.pod_uid().into_iter().map(str::to_owned).collect()
        });
        let controller = Controller::builder(NAME)
            .for_(Watch::<Pod>::new().index(BY_USE, Pod::uses).filter(concerned))
            .watches_with(claims, |event: &Event<Claim>, client: &Client| {
                let key = event.key();
                users(client, &of_claim(&key.namespace, &key.name))
            })
            .watches_with(Watch::<Template>::new(), |event: &Event<Template>, client: &Client| {
                let key = event.key();
                users(client, &of_template(&key.namespace, &key.name))
            })
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        reservations::add_to(manager)
    }
}

/// Whether a pod names claims. Decodes nothing, because hardly any pod does.
pub(super) fn has_claims(pod: &Object<Pod>) -> bool {
    pod.json().is_some_and(|json| memchr::memmem::find(&json, b"esourceClaim").is_some())
}

/// The pods with a value of the index.
fn users(client: &Client, value: &str) -> Vec<Request> {
    let pods = client.api::<Pod>().lister().ok();
    let pods = pods.and_then(|pods| pods.objects_by_index(BY_USE, value).ok());
    pods.into_iter().flatten().map(|pod| pod.key().clone()).collect()
}

/// Why a claim of a pod was not made.
#[derive(Debug, thiserror::Error)]
enum ResourceClaimError {
    /// There is no such template.
    #[error("resource claim template {0:?}: resourceclaimtemplate.resource.k8s.io {0:?} not found")]
    NoTemplate(String),
    /// The server refused it.
    #[error("create ResourceClaim : {0}")]
    Create(String),
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        pass(request, context).await?;
        Ok(Action::await_change())
    }
}

async fn pass(request: &Request, context: &Context) -> Result<(), BoxError> {
    let client = context.client().field_manager(COMPONENT);
    let Some(pod) = client.api::<Pod>().get(request)? else { return Ok(()) };
    if pod.is_being_deleted() || pod.is_done() {
        return Ok(());
    }
    generate(request, context, &client, &pod).await?;
    if !pod.spec.node_name.is_empty() {
        reserve(&client, &pod).await?;
    }
    Ok(())
}

/// Makes the claims that are missing, and writes their names to the pod's status.
async fn generate(
    request: &Request,
    context: &Context,
    client: &Client,
    pod: &Pod,
) -> Result<(), BoxError> {
    let namespace = pod.namespace();
    let exists = |name: &str| -> Result<bool, ClientError> {
        let claim = client.api::<Claim>().get(&Request::new(namespace, name))?;
        Ok(claim.is_some_and(|claim| claim.is_for(pod)))
    };
    let (mut names, mut missing) = (Vec::new(), Vec::new());
    for claim in &pod.spec.resource_claims {
        let Some(template) = &claim.resource_claim_template_name else { continue };
        match pod.named(claim) {
            Named::Generated(name) if exists(name)? => {
                names.push((&*claim.name, Some(name.to_owned())));
            }
            Named::Unneeded => names.push((&*claim.name, None)),
            Named::Generated(_) | Named::Unknown => missing.push((claim, template)),
            Named::ByUser(_) => {}
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let claims = fresh::lister::<Claim>(context, client, &request.namespace).await?;
    if !fresh::is_live(&client.api(), pod).await? {
        return Ok(());
    }
    for (claim, template) in missing {
        let own = claims.by_index(BY_POD, pod.uid())?;
        let found = own.iter().find(|found| {
            let annotations = found.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(CLAIM_NAME)) == Some(&claim.name)
        });
        let name = match found {
            Some(found) => found.name().to_owned(),
            None => match make(client, pod, claim, template).await {
                Ok(name) => name,
                Err(error) => {
                    let why = pod_control::message(&*error);
                    let note = format!("PodResourceClaim {}: {why}", claim.name);
                    let pod = ObjectReference::of(pod);
                    context.recorder().warning(&pod, "FailedResourceClaimCreation", note);
                    return Err(error);
                }
            },
        };
        names.push((&*claim.name, Some(name)));
    }
    let names = names.iter().map(|(claim, name)| match name {
        Some(name) => json!({"name": claim, "resourceClaimName": name}),
        None => json!({"name": claim}),
    });
    let status = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": &*request.name, "uid": pod.uid()},
        "status": {"resourceClaimStatuses": names.collect::<Vec<_>>()},
    });
    let params = PatchParams::apply(STATUS_MANAGER).force();
    client.api::<Pod>().status().patch_with(request, &Patch::Apply(&status), &params).await?;
    Ok(())
}

/// Makes a claim from a template; returns its name.
async fn make(
    client: &Client,
    pod: &Pod,
    claim: &PodClaim,
    template: &str,
) -> Result<String, BoxError> {
    let namespace = pod.namespace();
    let Some(found) = client.api::<Template>().get(&Request::new(namespace, template))? else {
        return Err(ResourceClaimError::NoTemplate(template.to_owned()).into());
    };
    let mut annotations = match &found.spec["metadata"]["annotations"] {
        Value::Object(annotations) => annotations.clone(),
        _ => serde_json::Map::new(),
    };
    annotations.insert(CLAIM_NAME.to_owned(), claim.name.clone().into());
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let body: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": base(pod_name, &claim.name), "namespace": namespace,
            "labels": found.spec["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod.uid(),
                "controller": true,
            }],
        },
        "spec": found.spec["spec"],
    }))?;
    let resource = ApiResource::erase::<resource::ResourceClaim>(&());
    match client.api_with::<DynamicObject>(resource).create(&body).await {
        Ok(made) => Ok(made.metadata.name.unwrap_or_default()),
        Err(error) => Err(ResourceClaimError::Create(pod_control::message(&error)).into()),
    }
}

/// The base of a generated name. A long one has the beginnings of both names, by their lengths.
fn base(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= BASE_MAX {
        return whole;
    }
    // Names are ASCII.
    let part = |name: &str| name.get(..name.len() * BASE_MAX / whole.len()).map(str::to_owned);
    match (part(pod), part(claim)) {
        (Some(pod), Some(claim)) => format!("{pod}-{claim}"),
        _ => whole,
    }
}

/// Reserves the allocated claims of a pod that has a node, as one that was not scheduled has it.
async fn reserve(client: &Client, pod: &Pod) -> Result<(), BoxError> {
    for claim in &pod.spec.resource_claims {
        let (Named::ByUser(name) | Named::Generated(name)) = pod.named(claim) else { continue };
        let key = Request::new(pod.namespace(), name);
        let Some(found) = client.api::<Claim>().get(&key)? else { continue };
        let is_own = claim.resource_claim_name.is_some() || found.is_for(pod);
        let consumers = &found.status.reserved_for;
        let is_allocated = !found.status.allocation.is_null();
        if !is_own
            || !is_allocated
            || found.is_reserved_for(pod)
            || consumers.len() >= RESERVATIONS_MAX
        {
            continue;
        }
        let mut consumers = consumers.clone();
        consumers.push(json!({
            "resource": "pods", "name": pod.metadata.name, "uid": pod.uid(),
        }));
        reservations::write(client, &key, &found, &json!({"reservedFor": consumers})).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_base_has_the_beginnings_of_both_names() {
        assert_eq!(base("web", "gpu"), "web-gpu-");
        assert_eq!(base(&"p".repeat(40), &"c".repeat(15)).len(), 57, "just fits");
        let long = base(&"p".repeat(253), &"c".repeat(63));
        assert_eq!(long, format!("{}-{}", "p".repeat(45), "c".repeat(11)));
        assert!(long.len() <= BASE_MAX);
    }

    #[test]
    fn a_pod_is_found_by_what_it_names() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p"},
            "spec": {"resourceClaims": [
                {"name": "a", "resourceClaimTemplateName": "t"},
                {"name": "b", "resourceClaimName": "mine"},
                {"name": "c", "resourceClaimTemplateName": "u"},
                {"name": "d", "resourceClaimTemplateName": "t"},
            ]},
            "status": {
                "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-x"}, {"name": "c"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "more"},
            },
        }))
        .unwrap();
        let named: Vec<_> = pod.spec.resource_claims.iter().map(|claim| pod.named(claim)).collect();
        let expected =
            [Named::Generated("p-a-x"), Named::ByUser("mine"), Named::Unneeded, Named::Unknown];
        assert_eq!(named, expected);
        let claims = ["claim/n/p-a-x", "claim/n/mine", "claim/n/more"];
        assert_eq!(
            pod.uses(),
            [&claims[..], &["template/n/t", "template/n/u", "template/n/t"]].concat()
        );
    }
}
