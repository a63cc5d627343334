//! One watched resource: from its events into the graph.

use super::Shared;
use super::graph::{Coordinates, Observation, OwnerReference};
use crate::api::Resource;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use setpoint_informer::{
    CachePolicy, ClientSource, Event, HandlerOptions, HandlerRegistration, SharedInformer,
};
use setpoint_object::Skim;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The finalizer of a deletion that waits for dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that leaves dependents alone.
pub(super) const ORPHAN: &str = "orphan";

/// A started monitor.
pub(super) struct Monitor {
    registration: Option<HandlerRegistration>,
}

impl Monitor {
    /// Waits until the graph has taken in the first list, or the monitor has ended.
    pub(super) async fn synced(&self) {
        if let Some(registration) = &self.registration {
            // An error says that it was stopped, which is as final.
            let _ = registration.synced().await;
        }
    }
}

/// Starts watching one resource.
pub(super) fn start(
    shared: &Arc<Shared>,
    resource: &Resource,
    tasks: &mut JoinSet<()>,
    stop: CancellationToken,
) -> Monitor {
    let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
    let api_resource = ApiResource::from_gvk_with_plural(&kind, &resource.resource);
    let source =
        ClientSource::dynamic::<DynamicObject>(shared.api.client().clone(), &api_resource, None);
    let (informer, worker) =
        SharedInformer::<DynamicObject>::builder_dynamic(source, &api_resource)
            .policy(CachePolicy::Metadata)
            .build();
    let handler = {
        let shared = shared.clone();
        let api_version = resource.api_version();
        let kind = resource.kind.clone();
        move |event: Event<DynamicObject>| take_in(&shared, &api_version, &kind, &event)
    };
    // A handler is refused only after the informer has stopped, and this one has not begun.
    let registration = informer.add_handler(handler, HandlerOptions::default()).ok();
    tasks.spawn(worker.run(stop));
    Monitor { registration }
}

fn take_in(shared: &Shared, api_version: &str, kind: &str, event: &Event<DynamicObject>) {
    let Some(object) = event.object() else { return };
    let look_at = match event {
        Event::Deleted { .. } => shared.graph.lock().forget(&object.uid().into()),
        _ => {
            let observation = observation(api_version, kind, &object.skim());
            shared.graph.lock().observe(observation)
        }
    };
    shared.look_at(look_at);
    if kind == "CustomResourceDefinition" {
        shared.rediscover.notify_one();
    }
}

fn observation(api_version: &str, kind: &str, skim: &Skim<'_>) -> Observation {
    let has = |wanted: &str| skim.finalizers.iter().any(|finalizer| finalizer == wanted);
    Observation {
        uid: (&*skim.uid).into(),
        coordinates: Coordinates {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: skim.namespace.to_string(),
            name: skim.name.to_string(),
        },
        owners: skim
            .owner_references
            .iter()
            .map(|owner| OwnerReference {
                api_version: owner.api_version.to_string(),
                kind: owner.kind.to_string(),
                name: owner.name.to_string(),
                uid: (&*owner.uid).into(),
                block_owner_deletion: owner.block_owner_deletion,
            })
            .collect(),
        deleting: !skim.deletion_timestamp.is_empty(),
        foreground: has(FOREGROUND),
        orphan: has(ORPHAN),
    }
}
