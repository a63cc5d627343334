//! Profiles of AppArmor and seccomp: members of security contexts, and the older annotations.
use super::ALL_CONTAINERS;
use crate::kind::at::At;
use crate::kind::{format, list, text};
use serde_json::{Value, json};
use setpoint_object::field;

/// The annotations of seccomp profiles: of the pod, and before the name of a container.
pub(super) const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The annotation of a container's AppArmor profile, before its name.
pub(in crate::kind) const APP_ARMOR_OF_CONTAINER: &str =
    "container.apparmor.security.beta.kubernetes.io/";
/// The warning for the latter.
pub(super) const APP_ARMOR_WARNING: &str =
    r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;

/// Maximum length of the name of an AppArmor profile in bytes, as of a path.
const APP_ARMOR_MAX: usize = 4095;
const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// Before the name of a profile of the node, in annotations.
const LOCALHOST: &str = "localhost/";

/// The member that says which system calls are allowed.
pub(super) fn seccomp(at: &At<'_, '_>) {
    if !at.is_set() {
        return;
    }
    let (kind, profile) = (at.get("type"), at.get("localhostProfile"));
    if kind.need_for("type is required when seccompProfile is set") {
        kind.one_of_if_set(&TYPES);
    }
    if kind.text() != "Localhost" {
        if profile.is_set() {
            profile.invalid_as(at.value, "can only be set when seccomp type is Localhost");
        }
    } else if profile.is_set() {
        format::descending_path(&profile, profile.text());
    } else {
        profile.required("must be set when seccomp type is Localhost");
    }
}

/// The older annotations: those for seccomp, that of the pod first, then those for AppArmor.
pub(super) fn annotations(at: &At<'_, '_>, spec: &At<'_, '_>) {
    let of_pod = at.shown_as(SECCOMP_OF_POD, &at.value[SECCOMP_OF_POD]);
    if of_pod.is_set() {
        seccomp_annotation(&of_pod);
    }
    let all = at.value.as_object();
    for (key, value) in all.into_iter().flatten() {
        if key.starts_with(SECCOMP_OF_CONTAINER) {
            seccomp_annotation(&at.shown_as(key, value));
        }
    }
    for (key, _) in all.into_iter().flatten() {
        if let Some(container) = key.strip_prefix(APP_ARMOR_OF_CONTAINER) {
            app_armor_annotation(&at.key(key), container, spec);
        }
    }
}

/// The annotation that says which system calls are allowed.
fn seccomp_annotation(at: &At<'_, '_>) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix(LOCALHOST) {
            Some(path) => format::descending_path(at, path),
            None => at.invalid("must be a valid seccomp profile"),
        },
    }
}

/// The member that names an AppArmor profile.
pub(super) fn app_armor(at: &At<'_, '_>) {
    if !at.is_set() {
        return;
    }
    let (kind, profile) = (at.get("type"), at.get("localhostProfile"));
    if kind.need_for("type is required when appArmorProfile is set") {
        kind.one_of_if_set(&TYPES);
    }
    match kind.text() {
        "Localhost" => {
            if profile.text().trim() != profile.text() {
                profile.invalid("must not be padded with whitespace");
            } else {
                profile.need_for("must be set when AppArmor type is Localhost");
            }
            if profile.text().len() > APP_ARMOR_MAX {
                profile.too_long(APP_ARMOR_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" if profile.is_set() => {
            profile.invalid("can only be set when AppArmor type is Localhost");
        }
        _ => {}
    }
}

/// The annotation that names the AppArmor profile of a container of a pod.
fn app_armor_annotation(at: &At<'_, '_>, container: &str, spec: &At<'_, '_>) {
    let is_named =
        |list: &str| spec.list_of(list).iter().any(|item| text(item, "name") == container);
    if !ALL_CONTAINERS.into_iter().any(is_named) {
        at.invalid_as(&container.into(), "container not found");
    }
    let profile = at.text();
    let is_known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !is_known && !profile.starts_with(LOCALHOST) {
        let profile = field::quote(profile);
        at.invalid(format!("invalid AppArmor profile name: {profile}"));
    }
}

/// Annotations that say something else than the members.
pub(super) fn agreement(annotations: &Value, spec: &At<'_, '_>) {
    if !annotations.is_object() {
        return;
    }
    let context = spec.get("securityContext");
    seccomp_agrees(annotations.get(SECCOMP_OF_POD), &context.get("seccompProfile"));
    let annotation_of = |prefix: &str, container: &At<'_, '_>| {
        annotations.get(format!("{prefix}{}", container.text_of("name")))
    };
    for list in ALL_CONTAINERS {
        for container in spec.each(list) {
            let annotation = annotation_of(SECCOMP_OF_CONTAINER, &container);
            seccomp_agrees(annotation, &container.get("securityContext.seccompProfile"));
        }
    }
    if is_windows(spec.value) {
        return;
    }
    let of_pod = context.get("appArmorProfile");
    for list in ALL_CONTAINERS {
        for container in spec.each(list) {
            let annotation = annotation_of(APP_ARMOR_OF_CONTAINER, &container);
            let own = container.get("securityContext.appArmorProfile");
            // The profile of the pod is reported at the container.
            let profile = if own.is_set() { own.value } else { of_pod.value };
            agrees(annotation, &own.with(profile), "apparmor", &["runtime/default"]);
        }
    }
}
fn seccomp_agrees(annotation: Option<&Value>, profile: &At<'_, '_>) {
    agrees(annotation, profile, "seccomp", &["runtime/default", "docker/default"]);
}
/// `default`: the annotations for the profile of the runtime.
fn agrees(annotation: Option<&Value>, profile: &At<'_, '_>, noun: &str, default: &[&str]) {
    let Some(annotation) = annotation.and_then(Value::as_str) else { return };
    let is_same = match profile.text_of("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => default.contains(&annotation),
        "Localhost" => match annotation.strip_prefix(LOCALHOST) {
            Some(name) if profile.get("localhostProfile").value != name => {
                let message = format!("{noun} profile in annotation and field must match");
                return profile.get("localhostProfile").forbidden(message);
            }
            name => name.is_some(),
        },
        _ => true,
    };
    if !is_same {
        let message = format!("{noun} type in annotation and field must match");
        profile.get("type").forbidden(message);
    }
}

/// The AppArmor profile of an annotation, as a member has it.
pub(super) fn app_armor_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = annotation.strip_prefix(LOCALHOST).filter(|name| !name.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}
/// The same if the member would be valid.
fn valid_app_armor_of(annotation: &str) -> Option<Value> {
    app_armor_of(annotation).filter(|profile| {
        let name = text(profile, "localhostProfile");
        name.trim() == name && name.len() <= APP_ARMOR_MAX
    })
}

/// The annotation for a container without an AppArmor profile of its own.
fn annotation_for<'a>(annotations: &'a Value, container: &Value) -> Option<&'a str> {
    if !container["securityContext"]["appArmorProfile"].is_null() {
        return None;
    }
    annotations.get(format!("{APP_ARMOR_OF_CONTAINER}{}", text(container, "name")))?.as_str()
}
fn is_windows(spec: &Value) -> bool {
    spec["os"]["name"] == "windows"
}

/// Gives the containers of a new pod the AppArmor profiles that its annotations name, for node
/// agents that read the members only. What the pod's own profile says already is left out.
pub(in crate::kind) fn take_app_armor(pod: &mut Value) {
    let annotations = pod["metadata"]["annotations"].take();
    if annotations.is_object() && !is_windows(&pod["spec"]) {
        let of_pod = pod["spec"]["securityContext"]["appArmorProfile"].clone();
        for list in ALL_CONTAINERS {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let annotation = annotation_for(&annotations, container);
                let profile = annotation.and_then(valid_app_armor_of);
                let Some(profile) = profile.filter(|profile| *profile != of_pod) else { continue };
                let Some(container) = container.as_object_mut() else { continue };
                let context = container.entry("securityContext").or_insert_with(|| json!({}));
                if let Some(context) = context.as_object_mut() {
                    context.insert("appArmorProfile".to_owned(), profile);
                }
            }
        }
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        match annotations.is_null() {
            true => drop(metadata.remove("annotations")),
            false => drop(metadata.insert("annotations".to_owned(), annotations)),
        }
    }
}

/// Warnings for a new pod, before [`take_app_armor`]: of annotations that become members, and of
/// those that name no profile.
pub(in crate::kind) fn app_armor_warnings(pod: &Value) -> Vec<String> {
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    if is_windows(spec) {
        return Vec::new();
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    let mut warnings = Vec::new();
    for container in ALL_CONTAINERS.into_iter().flat_map(|name| list(spec, name)) {
        let Some(annotation) = annotation_for(annotations, container) else { continue };
        if valid_app_armor_of(annotation).is_none_or(|profile| profile != *of_pod) {
            let key = format!("{APP_ARMOR_OF_CONTAINER}{}", text(container, "name"));
            let path = field::Path::new("metadata").child("annotations").key(&key);
            warnings.push(format!("{path}: {APP_ARMOR_WARNING}"));
        }
    }
    warnings
}
