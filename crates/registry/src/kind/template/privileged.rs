//! Containers with all rights of their node, where a server does not allow them.
use super::ALL_CONTAINERS;
use crate::kind::at::check;
use crate::kind::{Kind, Report};
use serde_json::Value;

/// Reports privileged containers that the stored object does not have.
pub(crate) fn refuse_privileged(
    kind: &Kind,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Report,
) {
    if kind.pod_spec.is_empty() {
        return;
    }
    check(object, old, errors, |at| {
        let spec = at.get(kind.pod_spec);
        for container in ALL_CONTAINERS.iter().flat_map(|list| spec.each(list)) {
            let privileged = container.get("securityContext.privileged");
            if container.is("securityContext.privileged") {
                privileged.forbidden("disallowed by cluster policy");
            }
        }
    });
}
