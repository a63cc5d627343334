//! Validation of pods and pod templates.
use crate::kind::{
    list, not_negative, one_of, text, validate_annotations, validate_labels, validate_port_number,
};
use serde_json::Value;
use setpoint_object::{field, name};
use std::collections::{BTreeMap, HashSet};

/// Validates the labels of a template. The API's path to them omits `metadata`.
pub(super) fn validate_template_labels(
    template: &Value,
    path: &field::Path,
    errors: &mut field::Errors,
) {
    validate_labels(template["metadata"].get("labels"), &path.child("labels"), errors);
}
/// Validates a workload's template.
pub(super) fn validate_template(template: &Value, path: &field::Path, errors: &mut field::Errors) {
    validate_template_labels(template, path, errors);
    let annotations = template["metadata"].get("annotations");
    validate_annotations(annotations, &path.child("metadata.annotations"), errors);
    validate_spec(&template["spec"], &path.child("spec"), errors);
}

pub(super) fn validate_spec(spec: &Value, path: &field::Path, errors: &mut field::Errors) {
    let volumes = validate_volumes(list(spec, "volumes"), &path.child("volumes"), errors);
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(field::Error::required(path.child("containers"), ""));
    }
    let mut names = HashSet::new();
    for (member, containers) in
        [("containers", containers), ("initContainers", list(spec, "initContainers"))]
    {
        let path = path.child(member);
        for (i, container) in containers.iter().enumerate() {
            validate_container(container, &volumes, &mut names, &path.index(i), errors);
        }
    }
    one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec, "dnsPolicy", &policies, path, errors);
    validate_labels(spec.get("nodeSelector"), &path.child("nodeSelector"), errors);
    not_negative(spec, "terminationGracePeriodSeconds", path, errors);
    if let Some(deadline) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        errors.push(field::Error::invalid(
            path.child("activeDeadlineSeconds"),
            &deadline.into(),
            format!("must be between 1 and {}, inclusive", i32::MAX),
        ));
    }
    for (member, check) in [
        ("serviceAccountName", name::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", name::dns1123_subdomain),
        ("hostname", name::dns1123_label),
        ("subdomain", name::dns1123_label),
    ] {
        let given = text(spec, member);
        if !given.is_empty() {
            for message in check(given) {
                errors.push(field::Error::invalid(path.child(member), &given.into(), message));
            }
        }
    }
}

/// Validates the name of a volume or a container: a unique label.
fn validate_name<'a>(
    item: &'a Value,
    names: &mut HashSet<&'a str>,
    path: &field::Path,
    errors: &mut field::Errors,
) {
    let (name, path) = (text(item, "name"), path.child("name"));
    if name.is_empty() {
        return errors.push(field::Error::required(path, ""));
    }
    for message in name::dns1123_label(name) {
        errors.push(field::Error::invalid(path.clone(), &name.into(), message));
    }
    if !names.insert(name) {
        errors.push(field::Error::duplicate(path, &name.into()));
    }
}
/// Validates volumes and returns the names that mounts may use.
fn validate_volumes<'a>(
    volumes: &'a [Value],
    path: &field::Path,
    errors: &mut field::Errors,
) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        validate_name(volume, &mut names, &path, errors);
        let sources = volume.as_object().map_or(0, |v| v.keys().filter(|k| *k != "name").count());
        if sources == 0 {
            errors.push(field::Error::required(path.clone(), "must specify a volume type"));
        }
        for (source, member) in [
            ("hostPath", "path"),
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
        ] {
            if volume.get(source).is_some_and(|s| text(s, member).is_empty()) {
                errors.push(field::Error::required(path.child(source).child(member), ""));
            }
        }
    }
    names
}

fn validate_container<'a>(
    container: &'a Value,
    volumes: &HashSet<&str>,
    names: &mut HashSet<&'a str>,
    path: &field::Path,
    errors: &mut field::Errors,
) {
    validate_name(container, names, path, errors);
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(field::Error::required(path.child("image"), ""));
    } else if image.trim() != image {
        errors.push(field::Error::invalid(
            path.child("image"),
            &image.into(),
            "must not have leading or trailing whitespace",
        ));
    }
    validate_ports(list(container, "ports"), &path.child("ports"), errors);
    for (i, variable) in list(container, "env").iter().enumerate() {
        if text(variable, "name").is_empty() {
            errors.push(field::Error::required(path.child("env").index(i).child("name"), ""));
        }
    }
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = path.child("volumeMounts").index(i);
        let volume = text(mount, "name");
        if volume.is_empty() {
            errors.push(field::Error::required(path.child("name"), ""));
        } else if !volumes.contains(volume) {
            errors.push(field::Error::not_found(path.child("name"), &volume.into()));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(field::Error::required(path.child("mountPath"), ""));
        }
    }
    one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
}

fn validate_ports(ports: &[Value], path: &field::Path, errors: &mut field::Errors) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(field::Error::duplicate(path.child("name"), &name.into()));
        }
        let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
        if number == 0 {
            errors.push(field::Error::required(path.child("containerPort"), ""));
        } else {
            validate_port_number(number, path.child("containerPort"), errors);
        }
        if let Some(host) = port.get("hostPort").and_then(Value::as_i64).filter(|p| *p != 0) {
            validate_port_number(host, path.child("hostPort"), errors);
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`, from the cpu and memory requests and limits of the
/// containers.
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let mut requests: BTreeMap<(usize, &str), &str> = BTreeMap::new();
    let mut limits: BTreeMap<(usize, &str), &str> = BTreeMap::new();
    let containers: Vec<&Value> =
        list(spec, "containers").iter().chain(list(spec, "initContainers")).collect();
    for (i, container) in containers.iter().enumerate() {
        for (member, into) in [("requests", &mut requests), ("limits", &mut limits)] {
            for name in ["cpu", "memory"] {
                let amount = text(&container["resources"][member], name);
                if !amount.is_empty() && amount != "0" {
                    into.insert((i, name), amount);
                }
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let is_limited = limits.len() == 2 * containers.len();
    // A limit without a request is also the request.
    let is_reserved = requests.iter().all(|(key, amount)| limits.get(key) == Some(amount));
    if is_limited && is_reserved { "Guaranteed" } else { "Burstable" }
}
