//! DaemonSets: one pod on each node that fits.
//!
//! # Theory
//!
//! A pod is tied to its node by a required node affinity, and the scheduler binds it; so it is
//! known for which node a pod is meant before it is bound. One pass:
//!
//! 1. For each node: creates a missing pod, deletes finished pods (after a back-off per node) and
//!    pods that are too many or do not belong there.
//! 2. For `RollingUpdate`, replaces pods of older revisions: with `maxUnavailable`, old pods are
//!    deleted first; with `maxSurge`, the new pod is created beside the old one, which is deleted
//!    when the new one is available.
//! 3. Writes the status, and shortens the history.
//!
//! A pass reads its own writes (`fresh`), so no node gets two pods.

mod node;
mod status;
mod sync;

use super::by_label::{self, BY_LABEL, Labels};
use super::history::{ControllerRevision, History, revisions};
use super::pod::{self, BY_CONTROLLER, Pod, orphan_key};
use super::pod_control::rest;
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::readable::readable;
use crate::setup::Setup;
use k8s_openapi::api::apps::v1 as apps;
use node::Node;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_runtime::adopt::Claim;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};
use status::DaemonSetStatus;
use std::sync::Arc;
use sync::{Backoffs, Sync};

/// The controller's name in events.
const NAME: &str = "daemonset-controller";
/// Number of DaemonSets that are processed at the same time: 2, as in the reference.
const WORKERS: usize = 2;
/// The label of a revision's hash, on revisions and pods.
const HASH_LABEL: &str = "controller-revision-hash";
/// The label of the deprecated generation of the template.
const GENERATION_LABEL: &str = "pod-template-generation";
/// The annotation of a DaemonSet with that generation.
const GENERATION: &str = "deprecated.daemonset.template.generation";

view! {
    /// A DaemonSet.
    DaemonSet of apps::DaemonSet {
        /// The spec.
        spec: DaemonSetSpec,
        /// The observed state.
        status: DaemonSetStatus,
    }
}

/// `spec` of a DaemonSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    selector: Value,
    template: Value,
    update_strategy: Value,
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
}

impl DaemonSet {
    /// Whether a pod is of the newest revision: by its hash, or by its generation, as in the
    /// reference.
    fn is_updated(&self, pod: &Pod, hash: &str) -> bool {
        let generation = self.metadata.annotations.as_ref().and_then(|all| all.get(GENERATION));
        pod.label(HASH_LABEL) == hash
            || generation.is_some_and(|generation| pod.label(GENERATION_LABEL) == generation)
    }
}

/// The controller of DaemonSets.
#[derive(Clone, Debug)]
#[must_use]
pub struct DaemonSetController(());

impl DaemonSetController {
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
            .for_(Watch::<DaemonSet>::new().index(BY_LABEL, by_label))
            .owns(Watch::<Pod>::new().index(BY_CONTROLLER, pod::by_controller))
            .watches_with(Watch::<Pod>::new(), owners_of_orphan)
            .owns(revisions())
            .watches_with(Watch::<Node>::new(), all_sets)
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Daemons { backoffs: Mutex::default() }))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// All DaemonSets, if a node was added, removed or changed in what decides about its pods.
fn all_sets(event: &Event<Node>, client: &Client) -> Vec<Request> {
    if let Event::Updated { old, new } = event
        && let (Ok(old), Ok(new)) = (old.get(), new.get())
        && !old.differs(&new)
    {
        return Vec::new();
    }
    let sets = readable(&client.api::<DaemonSet>().select());
    let key = |set: &Arc<DaemonSet>| {
        Request::new(set.metadata.namespace.as_deref().unwrap_or_default(), set.name())
    };
    sets.iter().map(key).collect()
}

/// The function of the index of its kind by a label that is required.
fn by_label(set: &DaemonSet) -> Vec<String> {
    by_label::required_by(set.namespace(), &set.spec.selector)
}

/// The sets that may adopt a pod without a controller.
fn owners_of_orphan(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    let is_deleted = matches!(event, Event::Deleted { .. });
    let pod = event.object().filter(|_| !is_deleted).and_then(|pod| pod.get().ok());
    let Some(pod) = pod.filter(|pod| controller_of(&**pod).is_none()) else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let all = Labels::of(&*pod).candidates::<DaemonSet>(client);
    let owns = |set: &Arc<DaemonSet>| {
        let selector = Selector::from_object(&set.spec.selector).ok().flatten();
        selector.is_some_and(|selector| pod.is_selected(&selector))
    };
    let owners = all.into_iter().filter(owns);
    owners.map(|set| Request::new(namespace, set.name())).collect()
}

struct Daemons {
    backoffs: Mutex<Backoffs>,
}

impl BoxedReconciler for Daemons {
    type Error = BoxError;

    /// One pass over a DaemonSet.
    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let sets = client.api::<DaemonSet>();
        let Some(set) = sets.get_own(request).await? else { return Ok(Action::await_change()) };
        let selector = Selector::from_object(&set.spec.selector).ok().flatten();
        let Some(selector) = selector.filter(|selector| !selector.is_everything()) else {
            return Ok(Action::await_change());
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let lister = fresh::lister::<Pod>(context, &client, &request.namespace).await?;
        let mut candidates = lister.by_index(BY_CONTROLLER, set.uid())?;
        candidates.extend(lister.by_index(BY_CONTROLLER, &orphan_key(&request.namespace))?);
        let claim = Claim::of(&sets, &*set, &selector)?;
        let pods = claim.claim(&client.api::<Pod>(), candidates).await?.children;
        let nodes = client.api::<Node>().list(None, &Selector::everything())?;

        let n_collisions = set.status.collision_count.unwrap_or(0);
        let mut history =
            History::read(context, &client, &*set, &selector, HASH_LABEL, n_collisions).await?;
        let Some(update) = history.update(&set.spec.template).await? else {
            return Ok(Action::await_change());
        };
        let hash = update.label(HASH_LABEL).to_owned();
        let sync = Sync::new(context, &client, &set, &pods, &nodes, &hash);
        let done = sync.run(&self.backoffs).await;
        let n_collisions = (history.n_collisions > 0).then_some(history.n_collisions);
        // Also after an error, because other steps may have succeeded.
        sync.write_status(n_collisions).await?;
        let wait = done?;
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        let is_live = |revision: &ControllerRevision| {
            let of_revision = revision.label(HASH_LABEL);
            of_revision == hash || pods.iter().any(|pod| pod.label(HASH_LABEL) == of_revision)
        };
        history.truncate(limit, is_live).await?;
        let rest = rest(pods.len());
        Ok(wait.map_or_else(Action::await_change, Action::requeue_after).rest(rest))
    }
}
