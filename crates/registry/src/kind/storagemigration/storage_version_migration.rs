//! StorageVersionMigrations: a resource whose objects are to be stored in its current version.
use crate::kind::at::{At, check, same_in_all};
use crate::kind::condition::{conditions, is_true, shown};
use crate::kind::{Kind, MetadataChecks, Report, StatusMeta};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{name, resource_version};

/// StorageVersionMigration.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    unconditional_update: false,
    validate,
    validate_change,
    validate_status,
    cells: Some(cells),
    rules: "resource; immutable; `status`, whose end and version are set once",
    ..Kind::with_status(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        StatusMeta::Identity,
        "{}",
    )
};

/// The conditions that a migration may have, and of which its column shows the last true one.
const STATES: [&str; 3] = ["Running", SUCCEEDED, FAILED];
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

fn validate(migration: &Value, old: Option<&Value>, errors: &mut Report) {
    check(migration, old, errors, |at| {
        let spec = at.get("spec.resource");
        let resource = spec.get("resource");
        if resource.need_for("resource is required to be set") {
            joined(&resource, name::dns1035_label(resource.text()));
        }
        let group = spec.get("group");
        if !group.text().is_empty() {
            joined(&group, name::dns1123_subdomain(group.text()));
        }
    });
}
/// One error for all faults.
fn joined(at: &At<'_, '_>, faults: Vec<String>) {
    if !faults.is_empty() {
        at.invalid(faults.join(","));
    }
}

fn validate_change(migration: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return };
    check(migration, None, errors, |at| {
        let spec = at.get("spec");
        if !same_in_all(spec.value, &old["spec"]) {
            let resource = spec.get("resource");
            let shown = json!({"Resource": {
                "group": resource.text_of("group"), "resource": resource.text_of("resource"),
            }});
            spec.invalid_as(&shown, "field is immutable");
        }
    });
}

fn validate_status(migration: &Value, old: Option<&Value>, errors: &mut Report) {
    let before = old.map_or(&Value::Null, |old| &old["status"]);
    check(migration, None, errors, |at| {
        let status = at.get("status");
        let version = status.get("resourceVersion");
        if !version.text().is_empty() && !resource_version::has_order(version.text()) {
            let text = version.text();
            version.invalid(format!("resource version is not well formed: {text}"));
        }
        let list = status.get("conditions");
        conditions(&list);
        let stored = before["resourceVersion"].as_str().unwrap_or_default();
        if !stored.is_empty() {
            version.immutable_text(&before["resourceVersion"]);
        }
        let is = |kind: &str| is_true(list.value, kind);
        if is(SUCCEEDED) && is(FAILED) {
            shown(&list, "Both success and failed conditions cannot be true at the same time");
        }
        for (kind, word) in [(SUCCEEDED, "Success"), (FAILED, "Failed")] {
            if is_true(&before["conditions"], kind) && !is(kind) {
                let why = format!("{word} condition cannot be set to false once it is true");
                shown(&list, &why);
            }
        }
    });
}

fn cells(migration: &Value, _: Timestamp) -> Vec<Value> {
    let text = |path: &str| cell::text(migration, path);
    let (group, resource) = (text("spec.resource.group"), text("spec.resource.resource"));
    let resource = match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    let conditions = cell::list(migration, "status.conditions").iter().rev();
    let state = conditions
        .filter(|condition| cell::text(condition, "status") == "True")
        .map(|condition| cell::text(condition, "type"))
        .find(|kind| STATES.contains(kind));
    vec![cell::name(migration), resource.into(), state.unwrap_or("Unknown").into()]
}
