//! Which names a definition gets, and its conditions: a pure function of all definitions.
use super::Definition;
use crate::write::set_condition;
use serde_json::{Map, Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_schema::crd::{Approval, approval_of, ca_bundle_valid, condition_is_true};
use std::collections::{BTreeMap, BTreeSet};

/// Gives every definition the status it should have; the names of those whose status changed.
///
/// Who was created first takes a name; the others take what is free, and are looked at again whenever anything changes.
pub(super) fn settle(
    definitions: &mut BTreeMap<String, Definition>,
    now: Timestamp,
) -> Vec<String> {
    let mut order: Vec<(u64, String)> =
        definitions.iter().map(|(name, d)| (d.created.0, name.clone())).collect();
    order.sort_unstable();
    let mut changed = Vec::new();
    for (_, name) in order {
        // A definition on its way out keeps the names it has.
        let going = |d: &&Definition| !d.object.deletion_timestamp().is_empty();
        let Some(definition) = definitions.get(&name).filter(|d| !going(d)) else { continue };
        let used = Used::of(definitions, group(&definition.object));
        let mut object = definition.object.clone();
        status(&mut object, &used, now);
        if let Some(definition) = definitions.get_mut(&name)
            && definition.object["status"] != object["status"]
        {
            definition.object = object;
            changed.push(name);
        }
    }
    changed
}

fn group(definition: &Value) -> &str {
    definition["spec"]["group"].as_str().unwrap_or("")
}

/// The accepted names of a group: resources (plural, singular, short) and kinds (kind, list kind) do not mix.
#[derive(Debug, Default)]
struct Used {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}
impl Used {
    fn of(definitions: &BTreeMap<String, Definition>, wanted: &str) -> Self {
        let mut used = Self::default();
        for definition in definitions.values().filter(|d| group(&d.object) == wanted) {
            let accepted = &definition.object["status"]["acceptedNames"];
            let texts = |names: &[&str]| -> Vec<String> {
                let texts = names.iter().filter_map(|name| accepted[*name].as_str());
                texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
            };
            used.resources.extend(texts(&["plural", "singular"]));
            used.kinds.extend(texts(&["kind", "listKind"]));
            let short = accepted["shortNames"].as_array().into_iter().flatten();
            used.resources.extend(short.filter_map(Value::as_str).map(str::to_owned));
        }
        used
    }
}

fn status(definition: &mut Value, used: &Used, now: Timestamp) {
    let (accepted, conflict) = names(definition, used);
    if !definition["status"].is_object() {
        definition["status"] = json!({"conditions": null, "storedVersions": []});
    }
    definition["status"]["acceptedNames"] = Value::Object(accepted);
    let set = |definition: &mut Value, ty: &str, status: &str, reason: &str, message: &str| {
        let condition = json!({"type": ty, "status": status, "reason": reason, "message": message});
        let list = definition["status"]["conditions"].as_array();
        let present = list.into_iter().flatten().find(|c| c["type"] == ty);
        // A condition that says the same already keeps what else it has.
        let same = present.is_some_and(|c| {
            ["status", "reason", "message"].iter().all(|part| c[*part] == condition[*part])
        });
        if !same {
            set_condition(definition, condition, now);
        }
    };
    let named = conflict.is_none();
    match conflict {
        None => set(definition, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => set(definition, "NamesAccepted", "False", reason, &message),
    }
    if !condition_is_true(definition, "Established") {
        let bundle = definition.pointer("/spec/conversion/webhook/clientConfig/caBundle");
        let trusted =
            bundle.and_then(Value::as_str).is_none_or(|b| b.is_empty() || ca_bundle_valid(b));
        let (status, reason, message) = match (named, trusted) {
            (false, _) => ("False", "NotAccepted", "not all names are accepted"),
            (true, false) => {
                ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
            }
            (true, true) => {
                ("True", "InitialNamesAccepted", "the initial names have been accepted")
            }
        };
        set(definition, "Established", status, reason, message);
    }
    const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";
    match approval_of(definition) {
        Approval::NotNeeded => {}
        Approval::Approved(url) => {
            let message = format!("approved in {url}");
            set(definition, CONFORMANT, "True", "ApprovedAnnotation", &message);
        }
        Approval::Unapproved(text) => {
            let message = format!("not approved: {text:?}");
            set(definition, CONFORMANT, "False", "UnapprovedAnnotation", &message);
        }
        Approval::Missing => {
            let message = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
            set(definition, CONFORMANT, "False", "MissingAnnotation", message);
        }
        Approval::Invalid(text) => {
            let message = format!(
                "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111: {text:?}"
            );
            set(definition, CONFORMANT, "False", "InvalidAnnotation", &message);
        }
    }
}

/// The names it has from now on, and the last conflict: (reason, message).
fn names(definition: &Value, used: &Used) -> (Map<String, Value>, Option<(&'static str, String)>) {
    let wanted = &definition["spec"]["names"];
    let held = &definition["status"]["acceptedNames"];
    let mut accepted = held.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let taken = |name: &str| format!("{name:?} is already in use");
    for (field, pool, reason) in [
        ("plural", &used.resources, "PluralConflict"),
        ("singular", &used.resources, "SingularConflict"),
        ("shortNames", &used.resources, "ShortNamesConflict"),
        ("kind", &used.kinds, "KindConflict"),
        ("listKind", &used.kinds, "ListKindConflict"),
    ] {
        if wanted[field] == held[field] {
            continue;
        }
        let texts = |value: &'_ Value| -> Vec<String> {
            match value {
                Value::String(text) => vec![text.clone()],
                list => list
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|text| text.as_str().map(str::to_owned))
                    .collect(),
            }
        };
        // A short name that is its own already does not clash with itself.
        let own = texts(&held[field]);
        let clashes: Vec<String> = texts(&wanted[field])
            .into_iter()
            .filter(|name| !own.contains(name) && pool.contains(name))
            .map(|name| taken(&name))
            .collect();
        match clashes.as_slice() {
            [] => copy(&mut accepted, field, &wanted[field]),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    copy(&mut accepted, "categories", &wanted["categories"]);
    (accepted, conflict)
}

fn copy(accepted: &mut Map<String, Value>, field: &str, value: &Value) {
    if value.is_null() {
        accepted.remove(field);
    } else {
        accepted.insert(field.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests;
