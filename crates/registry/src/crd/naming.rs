//! The names and conditions of definitions: a pure function of all definitions.
use super::Definition;
use crate::kind::set_condition;
use serde_json::{Map, Value, json};
use setpoint_object::error::aggregate;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_schema::crd::{
    Approval, StructureFault, approval_of, ca_bundle_valid, condition_is_true,
};
use std::collections::{BTreeMap, BTreeSet};

/// The accepted names of every group, and the definitions that wait for one.
#[derive(Debug, Default)]
pub(super) struct Names {
    groups: BTreeMap<String, Group>,
}
#[derive(Debug, Default)]
struct Group {
    used: Used,
    /// Definitions that did not get all their names: creation revision and name.
    waiting: BTreeSet<(u64, String)>,
    /// A name was released since the waiting definitions were last checked.
    has_released: bool,
}
/// Names in use, with the number of their users. Resources (plural, singular, short) and kinds
/// (kind, list kind) are separate.
#[derive(Debug, Default)]
struct Used {
    resources: BTreeMap<String, usize>,
    kinds: BTreeMap<String, usize>,
}

impl Names {
    /// Adds the names of a definition.
    pub(super) fn take(&mut self, definition: &Value) {
        let group = self.groups.entry(group(definition).to_owned()).or_default();
        group.take(&definition["status"]["acceptedNames"]);
    }
    /// Removes a definition and releases its names.
    pub(super) fn release(&mut self, definition: &Definition) {
        let object = &definition.object;
        let Some(group) = self.groups.get_mut(group(object)) else { return };
        group.release(&object["status"]["acceptedNames"]);
        group.waiting.remove(&(definition.created.0, object.name().to_owned()));
    }
    /// Sets the status of the touched definitions, and of those that wait for a released name.
    /// Returns the names of the definitions whose status changed.
    ///
    /// The oldest definition gets a name. The others get the free ones, and are checked again when
    /// a name of their group is released. The cost depends on the names of those definitions, not
    /// on the number of all definitions.
    pub(super) fn settle(
        &mut self,
        definitions: &mut BTreeMap<String, Definition>,
        touched: &BTreeSet<String>,
        now: Timestamp,
    ) -> Vec<String> {
        let mut queue: BTreeSet<(u64, String)> = touched
            .iter()
            .filter_map(|name| Some((definitions.get(name)?.created.0, name.clone())))
            .collect();
        let mut changed = Vec::new();
        loop {
            for group in self.groups.values_mut().filter(|group| group.has_released) {
                group.has_released = false;
                queue.extend(group.waiting.iter().cloned());
            }
            self.groups.retain(|_, group| !group.is_empty());
            let Some((created, name)) = queue.pop_first() else { return changed };
            let Some(definition) = definitions.get_mut(&name) else { continue };
            let object = &mut definition.object;
            let group = self.groups.entry(group(object).to_owned()).or_default();
            // A terminating definition keeps its names.
            if !object.deletion_timestamp().is_empty() {
                group.waiting.remove(&(created, name));
                continue;
            }
            let status = status(object, definition.fault.as_ref(), &group.used, now);
            if object["status"] != status {
                group.take(&status["acceptedNames"]);
                group.release(&object["status"]["acceptedNames"]);
                object["status"] = status;
                changed.push(name.clone());
            }
            if condition_is_true(object, "NamesAccepted") {
                group.waiting.remove(&(created, name));
            } else {
                group.waiting.insert((created, name));
            }
        }
    }
}
impl Group {
    fn is_empty(&self) -> bool {
        self.used.resources.is_empty() && self.used.kinds.is_empty() && self.waiting.is_empty()
    }
    fn take(&mut self, accepted: &Value) {
        let (resources, kinds) = names_of(accepted);
        resources.for_each(|name| *self.used.resources.entry(name.to_owned()).or_default() += 1);
        kinds.for_each(|name| *self.used.kinds.entry(name.to_owned()).or_default() += 1);
    }
    fn release(&mut self, accepted: &Value) {
        let (resources, kinds) = names_of(accepted);
        let mut has_released = false;
        let mut drop_one = |pool: &mut BTreeMap<String, usize>, name: &str| {
            let Some(n) = pool.get_mut(name) else { return };
            *n -= 1;
            if *n == 0 {
                pool.remove(name);
                has_released = true;
            }
        };
        resources.for_each(|name| drop_one(&mut self.used.resources, name));
        kinds.for_each(|name| drop_one(&mut self.used.kinds, name));
        self.has_released |= has_released;
    }
}
/// Accepted names: those of resources, and those of kinds.
fn names_of(accepted: &Value) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
    let texts = move |names: [&'static str; 2]| {
        let texts = names.into_iter().filter_map(move |name| accepted[name].as_str());
        texts.filter(|text| !text.is_empty())
    };
    let short = accepted["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    (texts(["plural", "singular"]).chain(short), texts(["kind", "listKind"]))
}

fn group(definition: &Value) -> &str {
    definition["spec"]["group"].as_str().unwrap_or("")
}

/// The status that a definition should have.
fn status(
    definition: &Value,
    fault: Option<&StructureFault>,
    used: &Used,
    now: Timestamp,
) -> Value {
    let (accepted, conflict) = names(definition, used);
    let mut shell = json!({"status": definition["status"]});
    if !shell["status"].is_object() {
        shell["status"] = json!({"conditions": null, "storedVersions": []});
    }
    shell["status"]["acceptedNames"] = Value::Object(accepted);
    conditions(definition, &mut shell, conflict, now);
    structure_condition(&mut shell, fault, now);
    shell["status"].take()
}

/// Sets the conditions in `shell`, which has the new status.
fn conditions(
    definition: &Value,
    shell: &mut Value,
    conflict: Option<(&'static str, String)>,
    now: Timestamp,
) {
    let set = |shell: &mut Value, ty: &str, status: &str, reason: &str, message: &str| {
        set(shell, [ty, status, reason, message], now);
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

/// Sets a condition: type, status, reason and message.
fn set(shell: &mut Value, [ty, status, reason, message]: [&str; 4], now: Timestamp) {
    let condition = json!({"type": ty, "status": status, "reason": reason, "message": message});
    let list = shell["status"]["conditions"].as_array();
    let present = list.into_iter().flatten().find(|c| c["type"] == ty);
    // An equal condition keeps its other members.
    let same = present.is_some_and(|c| {
        ["status", "reason", "message"].iter().all(|part| c[*part] == condition[*part])
    });
    if !same {
        set_condition(shell, condition, now);
    }
}

/// Sets the condition of a definition whose schemas are not structural, or removes it.
fn structure_condition(shell: &mut Value, fault: Option<&StructureFault>, now: Timestamp) {
    const NON_STRUCTURAL: &str = "NonStructuralSchema";
    match fault {
        Some(StructureFault::Violations(message)) => {
            set(shell, [NON_STRUCTURAL, "True", "Violations", message], now);
        }
        Some(StructureFault::Unsupported(message)) => {
            set(shell, [NON_STRUCTURAL, "Unknown", "StructuralError", message], now);
        }
        None => {
            if let Some(list) = shell["status"]["conditions"].as_array_mut() {
                list.retain(|condition| condition["type"] != NON_STRUCTURAL);
            }
        }
    }
}

/// The accepted names, and the last conflict: (reason, message).
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
        // A short name that it has already does not conflict with itself.
        let own = texts(&held[field]);
        let clashes: Vec<String> = texts(&wanted[field])
            .into_iter()
            .filter(|name| !own.contains(name) && pool.contains_key(name))
            .map(|name| taken(&name))
            .collect();
        match clashes.as_slice() {
            [] => copy(&mut accepted, field, &wanted[field]),
            clashes => conflict = Some((reason, aggregate(clashes))),
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
