//! Which names a definition gets, and its conditions: a pure function of all definitions.
use super::Definition;
use crate::kind::set_condition;
use serde_json::{Map, Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_schema::crd::{Approval, approval_of, ca_bundle_valid, condition_is_true};
use std::collections::{BTreeMap, BTreeSet};

/// Gives every definition the status it should have; the names of those whose status changed.
///
/// Who was created first takes a name; the others take what is free, and are looked at again whenever anything changes. Costs a
/// look at each definition's names and conditions, not at its schemas.
pub(super) fn settle(
    definitions: &mut BTreeMap<String, Definition>,
    now: Timestamp,
) -> Vec<String> {
    let mut pools: BTreeMap<String, Used> = BTreeMap::new();
    for Definition { object, .. } in definitions.values() {
        let pool = pools.entry(group(object).to_owned()).or_default();
        pool.take(&object["status"]["acceptedNames"]);
    }
    // A definition on its way out keeps the names it has.
    let mut order: Vec<(u64, &mut Definition)> = definitions
        .values_mut()
        .filter(|d| d.object.deletion_timestamp().is_empty())
        .map(|d| (d.created.0, d))
        .collect();
    order.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.object.name().cmp(y.object.name())));
    let mut changed = Vec::new();
    for (_, definition) in order {
        let pool = pools.entry(group(&definition.object).to_owned()).or_default();
        let status = status(&definition.object, pool, now);
        if definition.object["status"] != status {
            pool.take(&status["acceptedNames"]);
            definition.object["status"] = status;
            changed.push(definition.object.name().to_owned());
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
    /// Notes accepted names.
    fn take(&mut self, accepted: &Value) {
        let texts = |names: [&str; 2]| {
            let texts = names.map(|name| accepted[name].as_str().unwrap_or_default());
            texts.into_iter().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        self.resources.extend(texts(["plural", "singular"]));
        self.kinds.extend(texts(["kind", "listKind"]));
        let short = accepted["shortNames"].as_array().into_iter().flatten();
        self.resources.extend(short.filter_map(Value::as_str).map(str::to_owned));
    }
}

/// The status a definition should have.
fn status(definition: &Value, used: &Used, now: Timestamp) -> Value {
    let (accepted, conflict) = names(definition, used);
    let mut shell = json!({"status": definition["status"]});
    if !shell["status"].is_object() {
        shell["status"] = json!({"conditions": null, "storedVersions": []});
    }
    shell["status"]["acceptedNames"] = Value::Object(accepted);
    conditions(definition, &mut shell, conflict, now);
    shell["status"].take()
}

/// Sets the conditions in `shell`, which holds the new status.
fn conditions(
    definition: &Value,
    shell: &mut Value,
    conflict: Option<(&'static str, String)>,
    now: Timestamp,
) {
    let set = |shell: &mut Value, ty: &str, status: &str, reason: &str, message: &str| {
        let condition = json!({"type": ty, "status": status, "reason": reason, "message": message});
        let list = shell["status"]["conditions"].as_array();
        let present = list.into_iter().flatten().find(|c| c["type"] == ty);
        // A condition that says the same already keeps what else it has.
        let same = present.is_some_and(|c| {
            ["status", "reason", "message"].iter().all(|part| c[*part] == condition[*part])
        });
        if !same {
            set_condition(shell, condition, now);
        }
    };
    let named = conflict.is_none();
    match conflict {
        None => set(shell, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => set(shell, "NamesAccepted", "False", reason, &message),
    }
    if !condition_is_true(shell, "Established") {
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
        set(shell, "Established", status, reason, message);
    }
    const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";
    match approval_of(definition) {
        Approval::NotNeeded => {}
        Approval::Approved(url) => {
            let message = format!("approved in {url}");
            set(shell, CONFORMANT, "True", "ApprovedAnnotation", &message);
        }
        Approval::Unapproved(text) => {
            let message = format!("not approved: {text:?}");
            set(shell, CONFORMANT, "False", "UnapprovedAnnotation", &message);
        }
        Approval::Missing => {
            let message = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
            set(shell, CONFORMANT, "False", "MissingAnnotation", message);
        }
        Approval::Invalid(text) => {
            let message = format!(
                "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111: {text:?}"
            );
            set(shell, CONFORMANT, "False", "InvalidAnnotation", &message);
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
