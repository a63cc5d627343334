//! Watches one resource of a remote server and applies its events to the graph.

use super::Shared;
use crate::api::Resource;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use setpoint_informer::{
    CachePolicy, ClientSource, Event, HandlerOptions, HandlerRegistration, InformerStatus, Key,
    SharedInformer,
};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A started monitor.
pub(super) struct Monitor {
    registration: Option<HandlerRegistration>,
    status: watch::Receiver<InformerStatus>,
}

impl Monitor {
    /// Waits until the first list has been applied to the graph, or the server refuses it (403,
    /// 404).
    pub(super) async fn settled(&mut self) {
        let synced = async {
            match &self.registration {
                // An error means that the informer was stopped, so it will not sync.
                Some(registration) => drop(registration.synced().await),
                None => std::future::pending().await,
            }
        };
        let is_refused = |status: &InformerStatus| {
            let degraded = status.degraded.as_ref();
            status.has_stopped || degraded.is_some_and(|degraded| degraded.refused_since.is_some())
        };
        let refused = async { drop(self.status.wait_for(is_refused).await) };
        // Cancel safe: both only wait for a state.
        tokio::select! {
            biased;
            () = synced => {}
            () = refused => {}
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
            .seed(shared.seed_of(resource))
            .build();
    let api_version: Arc<str> = resource.api_version().into();
    let kind: Arc<str> = resource.kind.as_str().into();
    let handler = {
        let (shared, api_version, kind) = (shared.clone(), api_version.clone(), kind.clone());
        move |event: Event<DynamicObject>| {
            let Some(object) = event.object() else { return };
            match &event {
                Event::Deleted { .. } => shared.forget(object.uid(), &kind),
                _ => shared.observe(&api_version, &kind, &object.skim()),
            }
            // It was deleted and created again between two lists.
            if let Event::Updated { old, new } = &event
                && old.uid() != new.uid()
            {
                shared.forget(old.uid(), &kind);
            }
        }
    };
    // A handler is refused only after the informer has stopped, and this one has not started.
    let registration = informer.add_handler(handler, HandlerOptions::default()).ok();
    let status = informer.watch_status();
    tasks.spawn({
        let shared = shared.clone();
        async move {
            // Objects that an earlier monitor of the resource has observed may have been deleted
            // since.
            if informer.synced().await.is_ok() {
                let lister = informer.lister();
                shared.forget_absent(&api_version, &kind, |uid, of| {
                    let found = lister.object(&Key::new(of.namespace.clone(), of.name.clone()));
                    found.is_some_and(|found| *found.uid() == **uid)
                });
            }
        }
    });
    tasks.spawn(worker.run(stop));
    Monitor { registration, status }
}
