//! Where pods run: affinity, tolerations and spreading.
use crate::features::{Feature, FeatureGates};
use crate::kind::at::{At, check};
use crate::kind::{Report, text};
use serde_json::Value;
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// Affinity to nodes and pods, and its opposite.
pub(super) fn affinity(spec: &At<'_, '_>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let at = spec.get("affinity");
    if let Some(nodes) = at.given("nodeAffinity") {
        if let Some(selector) = nodes.given(REQUIRED) {
            node_selector(&selector, true);
        }
        for term in nodes.each(PREFERRED) {
            weight(&term);
            node_term(&term.get("preference"), false);
        }
    }
    for member in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = at.given(member) else { continue };
        for term in pods.each(REQUIRED) {
            pod_term(&term);
        }
        for term in pods.each(PREFERRED) {
            weight(&term);
            pod_term(&term.get("podAffinityTerm"));
        }
    }
}
fn weight(term: &At<'_, '_>) {
    let weight = term.int_of("weight");
    if !(1..=100).contains(&weight) {
        term.get("weight").invalid_as(&weight.into(), "must be in the range 1-100");
    }
}

/// A selector of nodes. `values`: its values are label values.
pub(in crate::kind) fn node_selector(at: &At<'_, '_>, values: bool) {
    let terms = at.get("nodeSelectorTerms");
    if terms.need_for("must have at least one node selector term") {
        for term in terms.items() {
            node_term(&term, values);
        }
    }
}
fn node_term(at: &At<'_, '_>, label_values: bool) {
    for requirement in at.each("matchExpressions") {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        match operator.text() {
            "In" | "NotIn" => {
                values.need_for("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" => {
                if values.len() > 0 {
                    values.forbidden(
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    values
                        .required("must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
            }
            _ => operator.invalid("not a valid selector operator"),
        }
        label_name(&requirement.get("key"));
        if label_values {
            for value in values.items() {
                value.faults(name::label_value(value.text()));
            }
        }
    }
    for requirement in at.each("matchFields") {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() != 1 => values.required(
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            _ => operator.invalid("not a valid selector operator"),
        }
        if requirement.text_of("key") == "metadata.name" {
            for value in values.items() {
                value.faults(name::dns1123_subdomain(value.text()));
            }
        } else {
            requirement.get("key").invalid("not a valid field selector key");
        }
    }
}
fn label_name(at: &At<'_, '_>) {
    let text = at.text();
    for fault in name::qualified_name(text) {
        at.invalid_as(&text.into(), fault);
    }
}

fn pod_term(at: &At<'_, '_>) {
    at.get("labelSelector").selector();
    at.get("namespaceSelector").selector();
    for namespace in at.list_of("namespaces") {
        for fault in name::dns1123_label(namespace.as_str().unwrap_or_default()) {
            at.get("namespace").invalid_as(namespace, fault);
        }
    }
    label_keys(at, &["matchLabelKeys", "mismatchLabelKeys"]);
    let key = at.get("topologyKey");
    key.need_for("can not be empty");
    label_name(&key);
}

/// Keys of labels that are merged into a label selector: they need one, and are not in it.
fn label_keys(at: &At<'_, '_>, members: &[&str]) {
    for member in members {
        let keys = at.get(member);
        if keys.len() == 0 {
            continue;
        }
        if !at.has("labelSelector") {
            keys.forbidden("must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            label_name(&key);
        }
    }
    // A merged key is an expression of the selector. A second one with the same key repeats it.
    let places: HashMap<&str, usize> =
        at.texts_of("matchLabelKeys").enumerate().map(|(i, key)| (key, i)).collect();
    let labels = at.get("labelSelector.matchLabels").value.as_object();
    let mut seen: HashSet<&str> = labels.into_iter().flatten().map(|(key, _)| &**key).collect();
    for expression in at.list_of("labelSelector.matchExpressions") {
        let key = text(expression, "key");
        if let Some(i) = places.get(key).filter(|_| seen.contains(key)) {
            at.report(|path| {
                let detail = "exists in both matchLabelKeys and labelSelector";
                field::Error::invalid(path.index(*i), &key.into(), detail)
            });
        }
        seen.insert(key);
    }
    let other: HashSet<&str> = at.texts_of("mismatchLabelKeys").collect();
    for key in at.each("matchLabelKeys").filter(|key| other.contains(key.text())) {
        key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// What is wrong with lists of tolerations of a document that is no object, by their paths.
pub(crate) fn toleration_errors(document: &Value, paths: &[&str]) -> field::Errors {
    let mut errors = Report::new(FeatureGates::default());
    check(document, None, &mut errors, |at| {
        paths.iter().for_each(|path| tolerations(&at.get(path), false));
    });
    errors.into_errors()
}

/// Whether the tolerations of pods may compare numbers: with the feature, or if those that are
/// stored do.
pub(in crate::kind) fn may_compare(tolerations: &At<'_, '_>) -> bool {
    let compares = |toleration: &Value| matches!(text(toleration, "operator"), "Lt" | "Gt");
    tolerations.is_on(Feature::TaintTolerationComparisonOperators)
        || tolerations.stored().as_array().is_some_and(|stored| stored.iter().any(compares))
}

/// Tolerations of taints. `may_compare`: they may compare numbers.
pub(in crate::kind) fn tolerations(at: &At<'_, '_>, may_compare: bool) {
    for toleration in at.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        key.named_if_set(name::qualified_name);
        let shown = |text: &str| Value::from(text);
        if key.text().is_empty() && operator.text() != "Exists" {
            operator.invalid_as(
                &shown(operator.text()),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let effect = toleration.get("effect");
        if toleration.has("tolerationSeconds") && effect.text() != "NoExecute" {
            effect.invalid_as(
                &shown(effect.text()),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        let value = toleration.text_of("value");
        match operator.text() {
            "Equal" | "" => {
                let faults = name::label_value(value);
                if !faults.is_empty() {
                    operator.invalid_as(&shown(value), faults.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    operator.invalid_as(
                        &shown(value),
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            "Lt" | "Gt" if may_compare => comparison(&toleration.get("value")),
            "Lt" | "Gt" => operator.unsupported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.unsupported(&["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            taint_effect(&effect);
        }
    }
}
/// The number with which a toleration compares.
fn comparison(value: &At<'_, '_>) {
    let text = value.text();
    let shown = Value::from(text);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() {
        value.invalid_as(&shown, "must be non-empty");
    } else if !is_decimal || digits.is_empty() || digits.starts_with('0') && text != "0" {
        value.invalid_as(&shown, "must be a valid decimal integer in canonical form");
    }
    if text.parse::<i64>().is_err() {
        // In the words of Go's parser.
        let why =
            if is_decimal && !digits.is_empty() { "value out of range" } else { "invalid syntax" };
        value
            .invalid_as(&shown, format!("strconv.ParseInt: parsing {}: {why}", field::quote(text)));
    }
}
/// Keys of labels beside a label selector: they need one, and are not in it.
fn own_label_keys(at: &At<'_, '_>) {
    let keys = at.get("matchLabelKeys");
    if keys.len() > 0 && !at.has("labelSelector") {
        keys.forbidden("must not be specified when labelSelector is not set");
    }
    let labels = at.get("labelSelector.matchLabels").value.as_object();
    let expressions = at.list_of("labelSelector.matchExpressions");
    let selected: HashSet<&str> = labels
        .into_iter()
        .flatten()
        .map(|(key, _)| &**key)
        .chain(expressions.iter().map(|expression| text(expression, "key")))
        .collect();
    for key in keys.items() {
        label_name(&key);
        if selected.contains(key.text()) {
            key.invalid("exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// What a taint does to pods.
pub(in crate::kind) fn taint_effect(at: &At<'_, '_>) {
    at.one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}

/// How pods spread over the parts of a cluster.
pub(super) fn spread(spec: &At<'_, '_>) {
    let constraints = spec.list_of("topologySpreadConstraints");
    let identity =
        |constraint| (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    let mut left: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in constraints {
        *left.entry(identity(constraint)).or_default() += 1;
    }
    for at in spec.each("topologySpreadConstraints") {
        let skew = at.int_of("maxSkew");
        if skew <= 0 {
            at.get("maxSkew").invalid_as(&skew.into(), "must be greater than zero");
        }
        at.get("topologyKey").need_for("can not be empty");
        let action = at.get("whenUnsatisfiable");
        action.choice(&["DoNotSchedule", "ScheduleAnyway"]);
        // Each repetition is reported at the constraint before it.
        let (key, when) = identity(at.value);
        let rest = left.entry((key, when)).or_default();
        *rest = rest.saturating_sub(1);
        if *rest > 0 {
            at.get("{topologyKey, whenUnsatisfiable}")
                .report(|path| field::Error::duplicate(path, &format!("{{{key}, {when}}}").into()));
        }
        let domains = at.get("minDomains");
        if domains.is_set() {
            domains.positive("must be greater than zero");
            if action.text() != "DoNotSchedule" {
                domains.invalid(format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                ));
            }
        }
        for member in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            at.get(member).one_of_if_set(&["Honor", "Ignore"]);
        }
        match at.is_on(Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge) {
            true => label_keys(&at, &["matchLabelKeys"]),
            false => own_label_keys(&at),
        }
        at.get("labelSelector").selector();
    }
}
