//! The defaults that Kubernetes applies in code, for built-in kinds.
//!
//! They run on a tree that [`crate::decode::conform`] has put in order, so "absent" covers null and, for plain fields, zero. What
//! is allocated or depends on the request (clusterIP, uid labels of Jobs, a Namespace's finalizers, tolerations from admission) is
//! not here: the registry's strategies do that.

mod access;
mod autoscaling;
mod batch;
mod container;
mod fill;
mod network;
mod node;
mod pod;
mod resource;
mod storage;
mod volume;
mod workload;

use crate::node::{TypeSchema, View};
use fill::Fill;
use serde_json::Value;

/// Fills a built-in object as Kubernetes' versioned defaulting does (Deployment strategy, Pod policies, Service type, …), the
/// defaults that the published schema declares included. A Secret's `stringData` moves into `data` here, as its conversion does.
pub fn apply_builtin(
    group: &str,
    version: &str,
    kind: &str,
    schema: &TypeSchema,
    value: &mut Value,
) {
    declared(schema.view(), value);
    let Some(object) = value.as_object_mut() else { return };
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object),
        ("", "ReplicationController") => workload::replication_controller(object),
        ("", "Service") => network::service(object),
        ("", "Endpoints") => network::endpoints(object),
        ("", "Secret") => access::secret(object),
        ("", "Node") => node::node(object),
        ("", "LimitRange") => node::limit_range(object),
        ("", "PersistentVolume") => storage::volume(object),
        ("", "PersistentVolumeClaim") => storage::claim(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("batch", "Job") => batch::job(object),
        ("batch", "CronJob") => batch::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(object, version),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            access::binding(object);
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => access::webhooks(object, kind == "MutatingWebhookConfiguration"),
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy",
        ) => {
            access::admission_policy(object);
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => access::admission_policy_binding(object),
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = object.object("spec").and_then(|spec| spec.object("service")) {
                service.absent("port", 443);
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            crate::crd::default_definition(value);
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            object.absent("preemptionPolicy", "PreemptLowerPriority");
        }
        ("storage.k8s.io", "StorageClass") => storage::class(object),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver(object),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            node::flow_schema(object);
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            node::priority_level(object);
        }
        ("resource.k8s.io", _) => resource::devices(object, kind),
        _ => {}
    }
}

/// Fills absent scalars that have a declared default. A default that the field's encoding would leave out is none.
fn declared(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, id) in &schema.node().properties {
                let property = schema.at(*id);
                let Some(default) = &property.default else { continue };
                let omitted = property.omit_empty
                    && matches!(default, Value::String(text) if text.is_empty());
                if !omitted && !default.is_object() && !members.contains_key(name.as_ref()) {
                    members.insert(name.clone().into_owned(), default.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if (member.is_object() || member.is_array())
                    && let Some(property) = schema.member(name)
                {
                    declared(property, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| declared(schema, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
