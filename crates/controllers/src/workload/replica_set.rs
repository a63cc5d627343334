//! ReplicaSets and ReplicationControllers: keep a number of pods of one template.
//!
//! # Theory
//!
//! Both kinds have one engine. One pass over a key:
//!
//! 1. *Claims* pods: adopts matching pods without a controller and releases pods that no longer
//!    match ([`setpoint_runtime::adopt`]). Pods that have finished or are being deleted do not
//!    count.
//! 2. Creates the missing pods in batches of 1, 2, 4 …, or deletes those that are too many, by the
//!    order of `rank`; at most 500 in a pass.
//! 3. Writes the status, with the pods as they were at the start of the pass. A pass that could not
//!    create or delete sets the condition `ReplicaFailure`. One that had nothing to create or
//!    delete rests for a time in proportion to the number of pods, so that thousands of pods that
//!    start do not cost a pass each.
//!
//! A pass reads its own writes (`fresh`), so it needs no expectations. Nobody else creates
//! pods of the owner, and one key has one pass at a time; so there are never more pods than
//! replicas, unless the number is lowered or pods are adopted.

mod rank;
mod status;
#[cfg(test)]
mod tests;

use super::by_label::{self, BY_LABEL, Labels};
use super::pod::{self, BY_CONTROLLER, Pod, controller_key, orphan_key};
use super::pod_control::{BURST_MAX, PodControl, pod_from_template, rest, slow_start};
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};
use serde::Deserialize;
use serde_json::Value;
use setpoint_informer::{Cacheable, Event};
use setpoint_object::label::Selector;
use setpoint_runtime::adopt::Claim;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, ClientError, Context, Controller, Manager, ObjectReference, Request,
    Watch, controller_reference,
};
pub(crate) use status::ReplicaStatus;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Number of objects that are processed at the same time: 5, as in the reference.
const WORKERS: usize = 5;

view! {
    /// A ReplicaSet.
    ReplicaSet of apps::ReplicaSet {
        /// The spec.
        spec: ReplicaSpec,
        /// The observed state.
        status: ReplicaStatus,
    }
}

view! {
    /// A ReplicationController.
    ReplicationController of core::ReplicationController {
        /// The spec.
        spec: ReplicaSpec,
        /// The observed state.
        status: ReplicaStatus,
    }
}

/// `spec` of both kinds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSpec {
    /// The number of pods; the server's default is 1.
    pub(crate) replicas: Option<i32>,
    /// How long a pod must be ready to be available.
    pub(crate) min_ready_seconds: i32,
    /// A LabelSelector; for ReplicationControllers a map of labels.
    pub(crate) selector: Value,
    /// The template of pods.
    pub(crate) template: Value,
}

impl ReplicaSpec {
    /// The number of pods that are wanted.
    pub(crate) fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

/// One of the two kinds.
pub(crate) trait Replicated: Cacheable<DynamicType = ()> {
    /// The controller's name in events.
    const NAME: &'static str;
    /// Whether its status counts terminating pods.
    const COUNTS_TERMINATING: bool;

    /// `spec`.
    fn spec(&self) -> &ReplicaSpec;
    /// `status`.
    fn status(&self) -> &ReplicaStatus;
    /// The selector of its pods; `None` if it matches nothing or cannot be read.
    fn selector(&self) -> Option<Selector>;
    /// The values of the index [`BY_LABEL`].
    fn required_labels(&self) -> Vec<String>;
}

impl Replicated for ReplicaSet {
    const NAME: &'static str = "replicaset-controller";
    const COUNTS_TERMINATING: bool = true;

    fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaStatus {
        &self.status
    }

    fn selector(&self) -> Option<Selector> {
        Selector::from_object(&self.spec.selector).ok().flatten()
    }

    fn required_labels(&self) -> Vec<String> {
        by_label::required_by(self.namespace(), &self.spec.selector)
    }
}

impl Replicated for ReplicationController {
    const NAME: &'static str = "replication-controller";
    const COUNTS_TERMINATING: bool = false;

    fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaStatus {
        &self.status
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.selector.as_object()?;
        let label =
            |(key, value): (&'_ String, &'_ Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let labels: Vec<_> = labels.iter().filter_map(label).collect();
        // An empty selector matches nothing.
        let selector = Selector::from_labels(labels.iter().map(|(key, value)| (&**key, &**value)));
        selector.ok().filter(|_| !labels.is_empty())
    }

    fn required_labels(&self) -> Vec<String> {
        let labels = self.spec.selector.as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((&**key, value.as_str()?)));
        by_label::required(self.namespace(), labels)
    }
}

/// The controller of ReplicaSets.
#[derive(Clone, Debug)]
#[must_use]
pub struct ReplicaSetController(());

impl ReplicaSetController {
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
        add::<ReplicaSet>(manager)
    }
}

/// The controller of ReplicationControllers.
#[derive(Clone, Debug)]
#[must_use]
pub struct ReplicationControllerController(());

impl ReplicationControllerController {
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
        add::<ReplicationController>(manager)
    }
}

fn add<O: Replicated>(manager: &mut Manager) -> Result<(), BoxError> {
    let owners = Watch::<O>::new().index(BY_LABEL, O::required_labels);
    let pods = Watch::<Pod>::new().index(BY_CONTROLLER, pod::by_controller);
    let controller = Controller::builder(O::NAME)
        .for_(owners.index(BY_CONTROLLER, by_controller::<O>))
        .owns(pods.index_labels())
        .watches_with(Watch::<Pod>::new(), |event, client| owners_of_orphan::<O>(event, client))
        .concurrency(WORKERS)
        .sync_timeout(None)
        .build(Boxed(Replicas::<O>(PhantomData)))?;
    manager.add(controller)?;
    Ok(())
}

/// The function of the index of owners by their own controller.
pub(crate) fn by_controller<O: Replicated>(owner: &O) -> Vec<String> {
    vec![controller_key(owner)]
}

/// The owners that may adopt a pod without a controller. After a change only if its labels or its
/// controller have changed.
fn owners_of_orphan<O: Replicated>(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    // A pod that is being deleted is not adopted.
    let (old, new) = match event {
        Event::Updated { old, new } => (Some(old), new),
        Event::Deleted { .. } => return Vec::new(),
        event => match event.object() {
            Some(new) => (None, new),
            None => return Vec::new(),
        },
    };
    let Ok(pod) = new.get() else { return Vec::new() };
    if controller_of(&*pod).is_some() || pod.is_being_deleted() {
        return Vec::new();
    }
    let is_same = old.and_then(|old| old.get().ok()).is_some_and(|old| {
        old.uid() == pod.uid()
            && old.metadata.labels == pod.metadata.labels
            && controller_of(&*old).is_none()
    });
    if is_same {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let owners = Labels::of(&*pod).candidates::<O>(client);
    let selects =
        |owner: &Arc<O>| owner.selector().is_some_and(|selector| pod.is_selected(&selector));
    let owners = owners.into_iter().filter(selects);
    owners
        .map(|owner| Request::new(namespace, owner.meta().name.as_deref().unwrap_or_default()))
        .collect()
}

struct Replicas<O>(PhantomData<fn() -> O>);

impl<O: Replicated> BoxedReconciler for Replicas<O> {
    type Error = BoxError;

    /// One pass over one owner.
    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let owners = client.api::<O>();
        let Some(owner) = owners.get_own(request).await? else { return Ok(Action::await_change()) };
        let Some(selector) = owner.selector() else { return Ok(Action::await_change()) };
        let pods = fresh::lister::<Pod>(context, &client, &request.namespace).await?;
        let uid = owner.meta().uid.as_deref().unwrap_or_default();
        let mut active = pods.by_index(BY_CONTROLLER, uid)?;
        active.extend(pods.by_index(BY_CONTROLLER, &orphan_key(&request.namespace))?);
        let inactive: Vec<_> = active.extract_if(.., |pod| !pod.is_active()).collect();
        let claimed =
            Claim::of(&owners, &*owner, &selector)?.claim(&client.api::<Pod>(), active).await?;
        let active: Vec<&Pod> = claimed.children.iter().map(|pod| &**pod).collect();
        let n_terminating = inactive
            .iter()
            .filter(|pod| {
                pod.is_terminating() && pod.is_controlled_by(uid) && pod.is_selected(&selector)
            })
            .count();

        let now = context.clock().now();
        let managed = match owner.meta().deletion_timestamp {
            Some(_) => Ok(()),
            None => manage(context, &client, &*owner, &active).await,
        };
        let status = status::of(&*owner, &active, n_terminating, managed.as_ref().err(), now);
        status::write(&owners, &*owner, &status).await?;
        managed?;
        // A pass that creates or deletes pods may have more of them to do.
        let is_settled = i32::try_from(active.len()) == Ok(owner.spec().replicas());
        let rest = if is_settled { rest(active.len()) } else { Duration::ZERO };
        let min = owner.spec().min_ready_seconds;
        let action = match min {
            0 => None,
            _ => pod::next_available(active, min, context.clock().now()).map(Action::requeue_after),
        };
        Ok(action.unwrap_or_else(Action::await_change).rest(rest))
    }
}

/// Creates the missing pods, or deletes those that are too many.
async fn manage<O: Replicated>(
    context: &Context,
    client: &Client,
    owner: &O,
    active: &[&Pod],
) -> Result<(), ClientError> {
    let wanted = usize::try_from(owner.spec().replicas()).unwrap_or_default();
    let reference = ObjectReference::of(owner);
    let control = PodControl::new(context, client, &reference);
    if active.len() < wanted {
        let Ok(owner_reference) = controller_reference(owner, &()) else { return Ok(()) };
        if !fresh::is_live(&client.api(), owner).await? {
            return Ok(());
        }
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let pod = pod_from_template(&owner.spec().template, namespace, &owner_reference);
        let n = (wanted - active.len()).min(BURST_MAX);
        return slow_start(n, |_| control.create(&pod)).await;
    }
    let n = (active.len() - wanted).min(BURST_MAX);
    if n == 0 {
        return Ok(());
    }
    let mut doomed = active.to_vec();
    if n < active.len() {
        let related = rank::pods_by_node(client, owner);
        rank::sort(&mut doomed, &related, context.clock().now());
    }
    control.delete_all(&doomed[..n]).await
}
