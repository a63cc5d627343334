//! PriorityClasses: bounded and immutable values.
use crate::kind::at::check;
use crate::kind::{Fill, FormerVersion, Kind, Members, Report};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;

/// PriorityClass.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate,
    steps_generation: false,
    cells: Some(cells),
    rules: "values, reserved names, preemption; immutable",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("scheduling.k8s.io", "PriorityClass")
};

fn default(class: &mut Members, _version: &str) {
    class.absent("preemptionPolicy", "PreemptLowerPriority");
}

/// The highest value of a PriorityClass of a user: one billion, as Kubernetes'
/// `HighestUserDefinablePriority`.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

/// The classes with the reserved prefix.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Validates the value: bounded and immutable.
fn validate(class: &Value, old: Option<&Value>, errors: &mut Report) {
    let value = class["value"].as_i64().unwrap_or(0);
    let name = class.name();
    if let Some(old) = old {
        if old["value"].as_i64().unwrap_or(0) != value {
            errors.push(field::Error::forbidden(
                field::Path::new("value"),
                "may not be changed in an update.",
            ));
        }
        check(class, None, errors, |at| {
            at.get("preemptionPolicy").immutable(&old["preemptionPolicy"]);
        });
        return;
    }
    if name.starts_with("system-") {
        if let Some(problem) = system_problem(class, name, value) {
            errors.push(field::Error::forbidden(
                field::Path::new("metadata.name"),
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                ),
            ));
        }
    } else if value > USER_PRIORITY_MAX {
        errors.push(field::Error::forbidden(
            field::Path::new("value"),
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"),
        ));
    }
    check(class, None, errors, |at| {
        at.get("preemptionPolicy").one_of(&["PreemptLowerPriority", "Never"]);
    });
}

/// Why a class with a reserved name is none of the system's.
fn system_problem(class: &Value, name: &str, value: i64) -> Option<String> {
    let Some((_, known)) = SYSTEM_CLASSES.iter().find(|(n, _)| *n == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *known != value {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    let is_default = class["globalDefault"].as_bool() == Some(true);
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::int(object, "value").into(),
        (cell::at(object, "globalDefault") == true).into(),
        cell::age(object, now),
        cell::text_or(object, "preemptionPolicy", "PreemptLowerPriority").into(),
    ]
}
