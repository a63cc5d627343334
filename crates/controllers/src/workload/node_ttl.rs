//! The annotation `node.alpha.kubernetes.io/ttl` of nodes: for how many seconds a kubelet may use a
//! Secret or ConfigMap that it has read. The more nodes, the longer.
//!
//! The times, and the numbers of nodes at which they change, are those of kube-controller-manager's
//! `ttl-controller`.

use super::COMPONENT;
use super::view::view;
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, Reconciler, Request, Watch,
};
use std::sync::Arc;

/// The controller's name.
const NAME: &str = "ttl-controller";
/// Number of nodes that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// The annotation.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The sizes of a step, and its time. They overlap, so that a few nodes more or less change
/// nothing.
#[derive(Debug)]
struct Step {
    min: usize,
    max: usize,
    seconds: u32,
}

const fn step(min: usize, max: usize, seconds: u32) -> Step {
    Step { min, max, seconds }
}

const STEPS: [Step; 5] = [
    step(0, 100, 0),
    step(90, 500, 15),
    step(450, 1000, 30),
    step(900, 2000, 60),
    step(1800, usize::MAX, 300),
];

view! {
    /// A Node.
    Node of core::Node {}
}

/// The present step. It depends on the steps before, because they overlap.
#[derive(Debug, Default)]
struct Present(Mutex<usize>);

impl Present {
    /// Follows the number of nodes; whether the step has changed.
    fn follow(&self, n_nodes: usize) -> bool {
        let mut at = self.0.lock();
        let before = *at;
        while STEPS.get(*at).is_some_and(|step| n_nodes > step.max) {
            *at += 1;
        }
        while STEPS.get(*at).is_some_and(|step| n_nodes < step.min) {
            *at -= 1;
        }
        *at != before
    }

    fn seconds(&self) -> u32 {
        STEPS.get(*self.0.lock()).map_or(0, |step| step.seconds)
    }
}

/// The controller that annotates nodes.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeTtlController(());

impl NodeTtlController {
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
        let present = Arc::new(Present::default());
        let follows = present.clone();
        let controller = Controller::builder(NAME)
            .watches_with(Watch::<Node>::new(), move |event: &Event<Node>, client: &Client| {
                concerned(event, client, &follows)
            })
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Pass(present))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// A new node, or one whose annotation was changed; all, if there are now so many or so few that
/// the time changes.
fn concerned(event: &Event<Node>, client: &Client, present: &Present) -> Vec<Request> {
    if let Event::Updated { old, new } = event {
        let (old, new) = (old.skim(), new.skim());
        let has_changed = old.annotation(ANNOTATION) != new.annotation(ANNOTATION);
        return has_changed.then(|| event.key().clone()).into_iter().collect();
    }
    let Ok(nodes) = client.api::<Node>().lister() else { return vec![event.key().clone()] };
    match present.follow(nodes.len()) {
        true => {
            let all = nodes.objects(&Selector::everything());
            all.iter().map(|node| node.key().clone()).collect()
        }
        false => vec![event.key().clone()],
    }
}

struct Pass(Arc<Present>);

impl Reconciler for Pass {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let nodes = client.api::<Node>();
        let Some(node) = nodes.get(&request)? else { return Ok(Action::await_change()) };
        let seconds = self.0.seconds();
        let annotations = node.metadata.annotations.as_ref();
        let found = annotations.and_then(|all| all.get(ANNOTATION)?.parse::<u32>().ok());
        if found != Some(seconds) {
            let annotations = json!({ANNOTATION: seconds.to_string()});
            let metadata = json!({"uid": node.metadata.uid, "annotations": annotations});
            let patch = Patch::Merge(json!({"metadata": metadata}));
            // Boxed, so that a worker that waits for work is small.
            ignore_not_found(Box::pin(nodes.patch(&request, &patch)).await)?;
        }
        Ok(Action::await_change())
    }
}

#[cfg(test)]
mod tests {
    use super::Present;

    #[test]
    fn the_time_follows_the_number_of_nodes_with_room_between_the_steps() {
        let present = Present::default();
        let mut times = Vec::new();
        for n in [0, 100, 101, 95, 90, 89, 501, 449, 450, 2001, 1800, 1799, 0] {
            present.follow(n);
            times.push(present.seconds());
        }
        assert_eq!(times, [0, 0, 15, 15, 15, 0, 30, 15, 15, 300, 300, 60, 0]);
        assert!(!present.follow(50) && present.follow(5000));
    }
}
