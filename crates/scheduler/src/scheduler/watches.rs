//! What the scheduler watches, and where it goes in the state.

use super::{Shared, object};
use crate::group::PodGroup;
use crate::labels::strings;
use crate::node::Node;
use crate::plugins::change;
use crate::plugins::claims::{Claim as DeviceClaim, Class, Slice, TaintRule};
use crate::pod::OwnerKind;
use crate::view::{Budget, Claim, LateClass, Volume};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{self, Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_runtime::source::Enqueue;
use setpoint_runtime::{ControllerBuilder, Request, Watch};
use std::sync::Arc;

/// Pods, nodes and namespaces.
pub(super) fn pods_and_nodes(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    cycles
        .handles(Watch::<v1::Pod>::new(), {
            let shared = shared.clone();
            move |event: &Event<v1::Pod>, keys: &Enqueue<'_, Request>| {
                shared.on_pod(event, keys);
            }
        })
        .handles(
            Watch::<v1::Node>::new(),
            shared.on(|state, key, node| {
                state.put_node(&key.name, node.map(Node::read));
            }),
        )
        .handles(
            Watch::<Namespace>::new(),
            shared.on(|state, key, namespace| {
                let labels = namespace.map(|namespace| strings(&namespace["metadata"]["labels"]));
                state.put_namespace(key.name.clone(), labels);
            }),
        )
}

/// Objects whose pods are spread over nodes.
pub(super) fn owners(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    let selector = |owner: &Value| Selector::from_object(&owner["spec"]["selector"]).ok().flatten();
    cycles
        .handles(
            Watch::<v1::Service>::new(),
            shared.on(|state, key, service| state.view.put_service(key, service)),
        )
        .handles(
            Watch::<v1::ReplicationController>::new(),
            shared.on_owner(OwnerKind::ReplicationController, |owner| {
                let labels = json!({"matchLabels": owner["spec"]["selector"]});
                Selector::from_object(&labels).ok().flatten()
            }),
        )
        .handles(Watch::<ReplicaSet>::new(), shared.on_owner(OwnerKind::ReplicaSet, selector))
        .handles(Watch::<StatefulSet>::new(), shared.on_owner(OwnerKind::StatefulSet, selector))
}

/// Volumes, their claims, and where they can be used.
pub(super) fn volumes(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    cycles
        .handles(
            Watch::<PersistentVolumeClaim>::new(),
            shared.on(|state, key, claim| {
                state.view.put_claim(key, claim.map(Claim::read));
                state.changed(change::VOLUME);
            }),
        )
        .handles(
            Watch::<PersistentVolume>::new(),
            shared.on(|state, key, volume| {
                state.view.put_volume(&key.name, volume.map(Volume::read));
                state.changed(change::VOLUME);
            }),
        )
        .handles(
            Watch::<StorageClass>::new(),
            shared.on(|state, key, class| {
                match class.and_then(LateClass::read) {
                    Some(class) => {
                        let classes = &mut state.view.late_classes;
                        classes.insert(key.name.clone(), Arc::new(class));
                    }
                    None => _ = state.view.late_classes.remove(&key.name),
                }
                state.changed(change::VOLUME);
            }),
        )
        .handles(
            Watch::<CSINode>::new(),
            shared.on(|state, key, node| {
                state.view.put_csi_node(&key.name, node);
                state.changed(change::NODE);
            }),
        )
        .handles(
            Watch::<VolumeAttachment>::new(),
            shared.on(|state, key, attachment| {
                state.view.put_attachment(&key.name, attachment);
                if attachment.is_none() {
                    state.changed(change::VOLUME);
                }
            }),
        )
}

/// Budgets that preemption respects.
pub(super) fn budgets(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    cycles.handles(
        Watch::<PodDisruptionBudget>::new(),
        shared.on(|state, key, budget| match budget.map(|budget| Arc::new(Budget::read(budget))) {
            Some(budget) => _ = state.view.budgets.insert(key.clone(), budget),
            None => _ = state.view.budgets.remove(key),
        }),
    )
}

/// Devices, their classes and their claims.
pub(super) fn devices(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    cycles
        .handles(
            Watch::<DeviceClass>::new(),
            shared.on(|state, key, class| {
                state.view.inventory.put_class(&key.name, class.map(Class::read));
                state.changed(change::CLASS);
            }),
        )
        .handles(Watch::<ResourceSlice>::new(), {
            let shared = shared.clone();
            move |event: &Event<ResourceSlice>, _: &Enqueue<'_, Request>| {
                // Read before the lock: a slice may have many devices.
                let slice = object(event).as_ref().map(Slice::read);
                shared.put(|state| {
                    state.view.inventory.put_slice(&event.key().name, slice);
                    state.changed(change::DEVICE);
                });
            }
        })
        .handles(Watch::<ResourceClaim>::new(), {
            let shared = shared.clone();
            move |event: &Event<ResourceClaim>, _: &Enqueue<'_, Request>| {
                let key = event.key();
                let earlier = shared.state.lock().view.inventory.claim(key).cloned();
                let read = |claim: Value| DeviceClaim::read(&claim, earlier.as_deref());
                let claim = object(event).map(read);
                shared.put(|state| state.put_device_claim(key, claim));
            }
        })
}

/// DeviceTaintRules, in the version that kube-scheduler reads.
pub(super) fn taint_rules(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    let rules = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "resource.k8s.io/v1beta2".to_owned(),
        kind: "DeviceTaintRule".to_owned(),
        plural: "devicetaintrules".to_owned(),
    };
    cycles.handles(
        Watch::<DynamicObject>::dynamic(rules).cluster_scoped(),
        shared.on(|state, key, rule| {
            let inventory = &mut state.view.inventory;
            if inventory.put_rule(&key.name, rule.and_then(TaintRule::read)) {
                state.changed(change::DEVICE);
            }
        }),
    )
}

/// PodGroups.
pub(super) fn pod_groups(cycles: ControllerBuilder, shared: &Arc<Shared>) -> ControllerBuilder {
    cycles.handles(
        Watch::<DynamicObject>::dynamic(pod_group_resource()),
        shared.on(|state, key, group| state.put_group(key, group.map(PodGroup::read))),
    )
}

/// PodGroups in the version that kube-scheduler reads.
pub(crate) fn pod_group_resource() -> ApiResource {
    ApiResource {
        group: "scheduling.k8s.io".to_owned(),
        version: "v1alpha2".to_owned(),
        api_version: "scheduling.k8s.io/v1alpha2".to_owned(),
        kind: "PodGroup".to_owned(),
        plural: "podgroups".to_owned(),
    }
}
