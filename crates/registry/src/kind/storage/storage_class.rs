//! StorageClasses: the provisioner is immutable.
use crate::kind::at::check;
use crate::kind::volume::{class_title, parameters};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataChecks, Report, format, list, node_label, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// StorageClass.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    returns_deleted: true,
    default,
    validate,
    validate_change,
    warnings,
    update_warnings: |class, _| warnings(class),
    cells: Some(cells),
    rules: "provisioner, parameters, modes, topologies; immutable",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("storage.k8s.io", "StorageClass")
};

/// Annotations that mark the default storage class.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// The most often that one term is reported as a duplicate: each of many would be for each other.
const DUPLICATES_MAX: usize = 16;

fn default(object: &mut Members, _version: &str) {
    object.absent("reclaimPolicy", "Delete");
    object.absent("volumeBindingMode", "Immediate");
}

fn warnings(class: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (i, term) in list(class, "allowedTopologies").iter().enumerate() {
        for (j, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
            if let Some(message) = node_label::deprecation(text(expression, "key")) {
                all.push(format!(
                    "allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"
                ));
            }
        }
    }
    all
}

/// Validates a storage class: only expansion, mounts and topologies change.
fn validate(class: &Value, old: Option<&Value>, errors: &mut Report) {
    check(class, old, errors, |at| {
        format::caseless_qualified_name(&at.get("provisioner"));
        parameters(&at.get("parameters"));
        // An empty one is accepted.
        let policy = at.get("reclaimPolicy");
        if !policy.text().is_empty() {
            policy.one_of_if_set(&["Delete", "Retain"]);
        }
        at.get("volumeBindingMode").one_of_given(&["Immediate", "WaitForFirstConsumer"]);
        let mut terms: HashMap<_, usize> = HashMap::new();
        let n_terms = at.list_of("allowedTopologies").len();
        for term in at.each("allowedTopologies") {
            let mut keys = HashSet::new();
            for expression in term.each("matchLabelExpressions") {
                let values = expression.get("values");
                values.need();
                let mut seen = HashSet::new();
                values.items().for_each(|value| value.unique(&mut seen));
                let key = expression.get("key");
                key.faults(name::qualified_name(key.text()));
                key.unique(&mut keys);
            }
            let expressions = term.get("matchLabelExpressions");
            // The original compares each term also with as many empty ones as there are terms.
            let values = values_by_key(expressions.value);
            let n_empty = if values.is_empty() { n_terms } else { 0 };
            let n_same = terms.entry(values).or_default();
            for _ in 0..(n_empty + *n_same).min(DUPLICATES_MAX) {
                expressions.duplicate_of("");
            }
            *n_same += 1;
        }
    });
}
fn validate_change(class: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return };
    check(class, None, errors, |at| {
        for member in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            at.get(member).immutable(&old[member]);
        }
    });
}

/// The values of each key of a topology term, in order.
fn values_by_key(expressions: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut by_key = BTreeMap::new();
    for expression in expressions.as_array().into_iter().flatten() {
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect();
        by_key.insert(expression["key"].as_str().unwrap_or_default(), values);
    }
    by_key
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_title(object, &DEFAULT_CLASS),
        cell::text(object, "provisioner").into(),
        cell::text_or(object, "reclaimPolicy", "Delete").into(),
        cell::text_or(object, "volumeBindingMode", "Immediate").into(),
        (cell::at(object, "allowVolumeExpansion") == true).into(),
        cell::age(object, now),
    ]
}
