//! Metadata of embedded resources: the rules of any object's. A name is a path segment, and may be
//! missing.
use super::report::Report;
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use setpoint_object::name;

/// Maximum total bytes of keys and values of annotations: 256 KiB, as `TotalAnnotationSizeLimitB`.
const ANNOTATIONS_BYTES_MAX: usize = 262_144;
/// The most references beyond the first controller that are reported, with the whole list each.
const CONTROLLERS_SHOWN_MAX: usize = 4;

/// Checks metadata at a path.
pub(super) fn validate(metadata: &Value, path: &Path, report: &mut Report) {
    let text = |member: &str| metadata.get(member).and_then(Value::as_str).unwrap_or_default();
    let base = text("generateName");
    // A prefix may be `.` or `..`.
    if !matches!(base, "" | "." | "..") {
        faults(path.child("generateName"), base, name::path_segment(base), report);
    }
    if !text("name").is_empty() {
        faults(path.child("name"), text("name"), name::path_segment(text("name")), report);
    }
    if !text("namespace").is_empty() {
        let found = name::dns1123_label(text("namespace"));
        faults(path.child("namespace"), text("namespace"), found, report);
    }
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        let detail = "must be greater than or equal to 0";
        report.push(Error::invalid(path.child("generation"), &generation.into(), detail));
    }
    let labels = path.child("labels");
    for (key, value) in members(metadata, "labels") {
        let value = value.as_str().unwrap_or_default();
        faults(labels.clone(), key, name::qualified_name(key), report);
        faults(labels.clone(), value, name::label_value(value), report);
    }
    annotations(metadata, &path.child("annotations"), report);
    owners(metadata, &path.child("ownerReferences"), report);
    finalizers(metadata, &path.child("finalizers"), report);
}

fn faults(path: Path, shown: &str, found: Vec<String>, report: &mut Report) {
    for fault in found {
        report.push(Error::invalid(path.clone(), &shown.into(), fault));
    }
}

fn members<'v>(
    metadata: &'v Value,
    name: &str,
) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
    metadata.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn annotations(metadata: &Value, path: &Path, report: &mut Report) {
    let mut n_bytes = 0;
    for (key, value) in members(metadata, "annotations") {
        faults(path.clone(), key, name::qualified_name(&key.to_lowercase()), report);
        n_bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if n_bytes > ANNOTATIONS_BYTES_MAX {
        report.push(Error::too_long(path.clone(), ANNOTATIONS_BYTES_MAX));
    }
}

fn owners(metadata: &Value, path: &Path, report: &mut Report) {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let Some(owners) = owners else { return };
    let mut controller: Option<String> = None;
    let mut n_more = 0;
    for owner in owners {
        let text = |member: &str| owner.get(member).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        // What has two slashes cannot be read: it has neither group nor version.
        let has_version = !version.is_empty() && !version.contains('/');
        for (member, is_there, detail) in [
            ("apiVersion", has_version, "version must not be empty"),
            ("kind", !kind.is_empty(), "must not be empty"),
            ("name", !text("name").is_empty(), "must not be empty"),
            ("uid", !text("uid").is_empty(), "must not be empty"),
        ] {
            if !is_there {
                report.push(Error::invalid(path.child(member), &text(member).into(), detail));
            }
        }
        if (group, version, kind) == ("", "v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            report.push(Error::invalid(path.clone(), owner, detail));
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let this = format!("{kind}/{}", text("name"));
        match &controller {
            None => controller = Some(this),
            Some(_) if n_more == CONTROLLERS_SHOWN_MAX => {}
            Some(first) => {
                n_more += 1;
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                report.push(Error::invalid(path.clone(), &owners.clone().into(), detail));
            }
        }
    }
}

fn finalizers(metadata: &Value, path: &Path, report: &mut Report) {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let Some(finalizers) = finalizers else { return };
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        faults(path.clone(), finalizer, name::qualified_name(finalizer), report);
    }
    let has = |wanted: &str| finalizers.iter().any(|finalizer| finalizer == wanted);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        report.push(Error::invalid(path.clone(), &finalizers.clone().into(), detail));
    }
}
