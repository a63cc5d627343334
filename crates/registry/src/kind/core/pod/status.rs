//! What a node agent reports of a pod.
use crate::kind::at::{At, check};
use crate::kind::template::is_sidecar;
use crate::kind::{format, list, text};
use serde_json::Value;
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// Validates a write through `/status`.
pub(super) fn validate(pod: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    check(pod, old, errors, |at| {
        let status = at.get("status");
        conditions(&status);
        status.get("nominatedNodeName").named_if_set(name::dns1123_subdomain);
        if status.int_of("observedGeneration") < 0 {
            status.get("observedGeneration").invalid("must be a non-negative integer");
        }
        claims(&status, at.list_of("spec.resourceClaims"));
        addresses(&status.get("podIPs"));
        let first = status.list_of("hostIPs").first();
        if let Some(first) = first.filter(|first| text(first, "ip") != status.text_of("hostIP")) {
            status.get("hostIPs").report(|path| {
                let path = path.index(0).child("ip");
                let shown = text(first, "ip").into();
                field::Error::invalid(path, &shown, "must be equal to `hostIP`")
            });
        }
        addresses(&status.get("hostIPs"));
    });
    let Some(old) = old else { return };
    check(pod, None, errors, |at| {
        let status = at.get("status");
        let bound = &old["spec"]["nodeName"];
        let nominated = status.get("nominatedNodeName");
        if bound.as_str().is_some_and(|node| !node.is_empty())
            && !nominated.text().is_empty()
            && nominated.text() != text(&old["status"], "nominatedNodeName")
        {
            nominated.forbidden("may not be set on pods that are already bound to a node");
        }
        for (member, containers) in [
            ("containerStatuses", "containers"),
            ("initContainerStatuses", "initContainers"),
            ("ephemeralContainerStatuses", ""),
        ] {
            states(&status, member, &old["status"], &old["spec"], containers);
        }
        if status.has("qosClass") {
            status.get("qosClass").immutable(&old["status"]["qosClass"]);
        }
    });
}

fn conditions(status: &At<'_, '_>) {
    for condition in status.each("conditions") {
        if condition.int_of("observedGeneration") < 0 {
            condition.get("observedGeneration").invalid("must be a non-negative integer");
        }
        let kind = condition.get("type");
        if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
            condition.shown_as("Type", kind.value).faults(name::qualified_name(kind.text()));
        }
    }
}

fn claims(status: &At<'_, '_>, claims: &[Value]) {
    let known: HashSet<&str> = claims.iter().map(|claim| text(claim, "name")).collect();
    let mut seen = HashSet::new();
    for claim in status.each("resourceClaimStatuses") {
        let name = claim.get("name");
        if !known.contains(name.text()) {
            name.invalid("must match the name of an entry in `spec.resourceClaims`");
        }
        name.unique(&mut seen);
        claim.get("resourceClaimName").formed(name::dns1123_subdomain);
    }
}

/// At most one address of each family.
fn addresses(at: &At<'_, '_>) {
    for item in at.items() {
        for fault in format::ip(item.text_of("ip")) {
            item.invalid_as(item.get("ip").value, fault);
        }
    }
    if at.len() > 1 {
        let six = |item: &Value| text(item, "ip").contains(':');
        let n_six = at.list().iter().filter(|item| six(item)).count();
        if at.len() > 2 || n_six != 1 {
            at.invalid("may specify no more than one IP for each IP family");
        }
    }
}

/// A container that has ended for good stays ended.
fn states(status: &At<'_, '_>, member: &str, old: &Value, spec: &Value, containers: &str) {
    if !containers.is_empty() && text(spec, "restartPolicy") == "Always" {
        return;
    }
    let has_rule: HashSet<&str> = list(spec, containers)
        .iter()
        .filter(|container| is_sidecar(container) || container.get("restartPolicy").is_some())
        .map(|container| text(container, "name"))
        .collect();
    let now: HashMap<&str, &Value> =
        status.list_of(member).iter().map(|status| (text(status, "name"), status)).collect();
    let retries = !containers.is_empty() && text(spec, "restartPolicy") == "OnFailure";
    for (i, before) in list(old, member).iter().enumerate() {
        let terminated = &before["state"]["terminated"];
        let may_restart = has_rule.contains(text(before, "name"))
            || retries && terminated["exitCode"].as_i64().unwrap_or(0) != 0;
        if terminated.is_null() || may_restart {
            continue;
        }
        let runs = now
            .get(text(before, "name"))
            .is_some_and(|status| status["state"]["terminated"].is_null());
        if runs {
            status.get(member).report(|path| {
                let path = path.index(i).child("state");
                field::Error::forbidden(path, "may not be transitioned to non-terminated state")
            });
        }
    }
}
