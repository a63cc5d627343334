//! Warnings for new pods and templates: what is valid and probably not meant.
use super::ALL_CONTAINERS;
use crate::kind::text;
use serde_json::Value;
use setpoint_object::field;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Maximum number of warnings: each is a header.
const WARNINGS_MAX: usize = 32;

/// Volume sources that nothing serves any more, with the API's words.
const DEPRECATED: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings for a pod.
pub(in crate::kind) fn of_pod(pod: &Value) -> Vec<String> {
    of_spec(&pod["spec"], &field::Path::new("spec"))
}
/// Warnings for a template at a path.
pub(in crate::kind) fn of_template(template: &Value, path: &str) -> Vec<String> {
    of_spec(&template["spec"], &field::Path::new(path).child("spec"))
}

fn items<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    crate::kind::list(value, member).iter().enumerate()
}

fn of_spec(spec: &Value, path: &field::Path) -> Vec<String> {
    let all = RefCell::new(Vec::new());
    let add = |warning: String| {
        if all.borrow().len() < WARNINGS_MAX {
            all.borrow_mut().push(warning);
        }
    };
    let warn = |path: field::Path, message: String| add(format!("{path}: {message}"));
    const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";
    for (i, constraint) in items(spec, "topologySpreadConstraints") {
        if constraint.get("labelSelector").is_none() {
            let path = path.child("topologySpreadConstraints").index(i).child("labelSelector");
            warn(path, NO_SELECTOR.to_owned());
        }
    }
    for (i, volume) in items(spec, "volumes") {
        for (source, message) in DEPRECATED {
            if volume.get(source).is_some() {
                let shown = if source == "storageos" { "storageOS" } else { source };
                warn(path.child("volumes").index(i).child(shown), message.to_owned());
            }
        }
    }
    for (_, volume) in items(spec, "volumes") {
        let has_no_member = |source: &Value| source.as_object().is_some_and(|one| one.is_empty());
        for (_, source) in items(&volume["projected"], "sources") {
            if has_no_member(source) {
                let name = field::quote(text(volume, "name"));
                add(format!("volume {name} (Projected) has no sources provided"));
            }
        }
    }
    for (list, member, noun) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")]
    {
        let mut seen = HashSet::new();
        for (i, item) in items(spec, list) {
            let value = text(item, member);
            let path = path.child(list).index(i).child(member);
            if value.is_empty() && list == "imagePullSecrets" {
                warn(path, "invalid empty name \"\"".to_owned());
            } else if !seen.insert(value) {
                warn(path, format!("duplicate {noun} {}", field::quote(value)));
            }
        }
    }
    let mut ports = HashMap::new();
    let mut port_names = HashMap::new();
    for list in ALL_CONTAINERS {
        for (i, container) in items(spec, list) {
            let path = path.child(list).index(i);
            let mut variables = HashSet::new();
            for (j, variable) in items(container, "env") {
                let name = text(variable, "name");
                let reference = format!("$({name})");
                let value = text(variable, "value");
                // A variable may add to the one of the same name before it.
                let extends = value.contains(&reference) && value != reference;
                if !variables.insert(name) && !extends {
                    warn(
                        path.child("env").index(j),
                        format!(
                            "hides previous definition of {}, which may be dropped when using apply",
                            field::quote(name)
                        ),
                    );
                }
            }
            for (j, port) in items(container, "ports") {
                let path = path.child("ports").index(j);
                let key = (
                    port["containerPort"].as_i64(),
                    text(port, "protocol"),
                    text(port, "hostIP"),
                    port["hostPort"].as_i64(),
                );
                match ports.get(&key) {
                    Some(other) => {
                        warn(path.clone(), format!("duplicate port definition with {other}"));
                    }
                    None => {
                        ports.insert(key, path.clone());
                    }
                }
                let name = text(port, "name");
                let host_ip = text(port, "hostIP");
                if !host_ip.is_empty() && port["hostPort"].as_i64().unwrap_or(0) == 0 {
                    let number = port["containerPort"].as_i64().unwrap_or(0);
                    let protocol = text(port, "protocol");
                    warn(
                        path.clone(),
                        format!(
                            "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}"
                        ),
                    );
                }
                if name.is_empty() {
                    continue;
                }
                match port_names.get(name) {
                    Some(other) => warn(
                        path,
                        format!(
                            "duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                            field::quote(name)
                        ),
                    ),
                    None => {
                        port_names.insert(name, path);
                    }
                }
            }
        }
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        warn(
            path.child("terminationGracePeriodSeconds"),
            "must be >= 0; negative values are invalid and will be treated as 1".to_owned(),
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = &spec["affinity"][kind];
        for (list, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ] {
            for (i, term) in items(terms, list) {
                let mut path = path.child("affinity").child(kind).child(list).index(i);
                let mut term = term;
                if !inner.is_empty() {
                    (path, term) = (path.child(inner), &term[inner]);
                }
                if term.get("labelSelector").is_none() {
                    warn(path.child("labelSelector"), NO_SELECTOR.to_owned());
                }
            }
        }
    }
    all.into_inner()
}
