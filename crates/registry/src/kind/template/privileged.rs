//! Containers with all rights of their node, where a server does not allow them.
use super::ALL_CONTAINERS;
use crate::kind::Kind;
use crate::kind::at::check;
use serde_json::Value;
use setpoint_object::field;

/// The kinds with pods or their templates: group, kind, path of the pod's specification.
const SPECS: [(&str, &str, &str); 9] = [
    ("", "Pod", "spec"),
    ("", "PodTemplate", "template.spec"),
    ("", "ReplicationController", "spec.template.spec"),
    ("apps", "DaemonSet", "spec.template.spec"),
    ("apps", "Deployment", "spec.template.spec"),
    ("apps", "ReplicaSet", "spec.template.spec"),
    ("apps", "StatefulSet", "spec.template.spec"),
    ("batch", "CronJob", "spec.jobTemplate.spec.template.spec"),
    ("batch", "Job", "spec.template.spec"),
];

/// Reports privileged containers that the stored object does not have.
pub(crate) fn refuse_privileged(
    kind: &Kind,
    object: &Value,
    old: Option<&Value>,
    errors: &mut field::Errors,
) {
    let Some((.., path)) = SPECS.iter().find(|spec| (spec.0, spec.1) == (kind.group, kind.kind))
    else {
        return;
    };
    check(object, old, errors, |at| {
        let spec = at.get(path);
        for container in ALL_CONTAINERS.iter().flat_map(|list| spec.each(list)) {
            let privileged = container.get("securityContext.privileged");
            if container.is("securityContext.privileged") {
                privileged.forbidden("disallowed by cluster policy");
            }
        }
    });
}
