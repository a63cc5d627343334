//! Environment variables of containers, and the fields of a pod that they and files can have.
use crate::features::Feature;
use crate::kind::at::At;
use crate::kind::format;
use setpoint_object::quantity::Quantity;
use setpoint_object::{field, name};

/// Fields that a variable can have, sorted.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that a file can have, sorted.
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Resources of a container that a variable or a file can have, sorted.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// The variables of a container, and where others come from.
pub(super) fn variables(at: &At<'_, '_>) {
    for variable in at.each("env") {
        let name = variable.get("name");
        if name.need() {
            name.faults(format::variable_name(name.text()));
        }
        if let Some(from) = variable.given("valueFrom") {
            value_from(&from, !variable.text_of("value").is_empty());
        }
    }
    let sources = at.get("envFrom");
    for source in sources.items() {
        let prefix = source.get("prefix");
        prefix.faults(format::variable_name(prefix.text()));
        let mut n_sources = 0;
        for member in ["configMapRef", "secretRef"] {
            if let Some(from) = source.given(member) {
                n_sources += 1;
                from.get("name").named(prefix_of_name);
            }
        }
        match n_sources {
            0 => sources.invalid_union("must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => sources.invalid_union("may not have more than one field specified at a time"),
        }
    }
}

/// The API takes the name of a source of variables for the beginning of a name: it may end in a
/// dash.
fn prefix_of_name(text: &str) -> Vec<String> {
    match text.strip_suffix('-').and_then(|rest| Some(&rest[..rest.char_indices().last()?.0])) {
        Some(rest) => name::dns1123_subdomain(&format!("{rest}a")),
        None => name::dns1123_subdomain(text),
    }
}

fn value_from(at: &At<'_, '_>, has_value: bool) {
    let mut n_sources = 0;
    if let Some(field) = at.given("fieldRef") {
        n_sources += 1;
        field_ref(&field, &FIELDS);
    }
    if let Some(resource) = at.given("resourceFieldRef") {
        n_sources += 1;
        resource_ref(&resource, false);
    }
    for member in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = at.given(member) {
            n_sources += 1;
            let name = key.get("name");
            let text = name.text();
            for fault in name::dns1123_subdomain(text) {
                name.invalid_as(&text.into(), fault);
            }
            key.get("key").named(name::config_key);
        }
    }
    if let Some(key) = at.given("fileKeyRef") {
        n_sources += 1;
        key.get("key").named(format::variable_name);
        key.get("volumeName").named(name::dns1123_label);
        let path = key.get("path");
        if path.need() {
            format::no_backsteps(&path, path.text());
        }
    }
    if n_sources == 0 {
        at.invalid_union(
            match at.is_on(Feature::EnvFiles) {
                true => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                false => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
            },
        );
    } else if has_value {
        at.invalid_union("may not be specified when `value` is not empty");
    } else if n_sources > 1 {
        at.invalid_union("may not have more than one field specified at a time");
    }
}

/// A field of the pod in a file.
pub(super) fn file_field_ref(at: &At<'_, '_>) {
    field_ref(at, &FILE_FIELDS);
}
fn field_ref(at: &At<'_, '_>, supported: &[&str]) {
    if !at.get("apiVersion").need() || !at.get("fieldPath").need() {
        return;
    }
    let path = at.get("fieldPath");
    if at.text_of("apiVersion") != "v1" {
        return path.invalid(format!(
            "error converting fieldPath: unsupported pod version: {}",
            at.text_of("apiVersion")
        ));
    }
    let subscript = path
        .text()
        .split_once("['")
        .and_then(|(map, rest)| rest.strip_suffix("']").map(|key| (map, key)))
        .filter(|(map, _)| !map.is_empty());
    match subscript {
        Some(("metadata.annotations", key)) => {
            for fault in name::qualified_name(&key.to_lowercase()) {
                at.invalid_as(&key.to_lowercase().into(), fault);
            }
        }
        Some(("metadata.labels", key)) => {
            for fault in name::qualified_name(key) {
                at.invalid_as(&key.into(), fault);
            }
        }
        Some(_) => path.invalid(format!(
            "error converting fieldPath: field label does not support subscript: {}",
            path.text()
        )),
        None if supported.contains(&path.text()) => {}
        // The older name of `spec.nodeName`.
        None if path.text() == "spec.host" => {
            const NEWER: &str = "spec.nodeName";
            if !supported.contains(&NEWER) {
                path.report(|path| field::Error::not_supported(path, &NEWER.into(), supported));
            }
        }
        None if is_label(path.text()) => path.unsupported(supported),
        None => path.invalid(format!(
            "error converting fieldPath: field label not supported: {}",
            path.text()
        )),
    }
}
/// Whether it is a field of pods that has a name in the API.
fn is_label(path: &str) -> bool {
    FIELDS.contains(&path)
        || FILE_FIELDS.contains(&path)
        || matches!(
            path,
            "spec.restartPolicy" | "spec.schedulerName" | "status.phase" | "spec.host"
        )
}

/// A resource of a container, for a file with the container's name.
pub(super) fn resource_ref(at: &At<'_, '_>, in_file: bool) {
    let resource = at.get("resource");
    let has_container = !in_file || at.get("containerName").need();
    if has_container && resource.need() {
        let name = resource.text();
        let is_huge =
            ["requests.hugepages-", "limits.hugepages-"].iter().any(|p| name.starts_with(p));
        if !RESOURCES.contains(&name) && !is_huge {
            resource.unsupported(&RESOURCES);
        }
    }
    divisor(at, resource.text());
}
fn divisor(at: &At<'_, '_>, resource: &str) {
    let divisor = at.get("divisor");
    let Some(quantity) = divisor.quantity().filter(|q| !Quantity::is_zero(q)) else { return };
    let name = resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."));
    let Some(name) = name else { return };
    const SIZES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let (supported, noun): (&[&str], _) = match name {
        "cpu" => (&["1m", "1"], "cpu"),
        "memory" => (&SIZES, "memory"),
        "ephemeral-storage" => (&SIZES, "local ephemeral storage"),
        name if name.starts_with("hugepages-") => (&SIZES, "hugepages"),
        _ => return,
    };
    if supported.contains(&quantity.as_str()) {
        return;
    }
    let values = match noun {
        "cpu" => "1m and 1".to_owned(),
        _ => SIZES.join(", "),
    };
    divisor.report(|path| {
        let detail =
            format!("only divisor's values {values} are supported with the {noun} resource");
        field::Error::invalid(path, &resource.into(), detail)
    });
}
