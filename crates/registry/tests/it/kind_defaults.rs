//! Create requests and the objects that Kubernetes 1.36 stored: decoding and defaulting give the
//! same, except for fields that are allocated, set by admission or set by a strategy.
use serde_json::Value;
use setpoint_registry::kind;
use setpoint_schema::{builtin, decode};

const CASES: &str = include_str!("../data/defaults.json");

/// Paths that are set elsewhere: (kind or `*`, path prefix).
const ELSEWHERE: &[(&str, &str)] = &[
    // Metadata: generation, namespace from the URL, finalizers from admission.
    ("*", "metadata.generation"),
    ("*", "metadata.namespace"),
    ("*", "metadata.finalizers"),
    ("Namespace", "metadata.labels"),
    ("Namespace", "spec"),
    ("Namespace", "status"),
    // Admission.
    ("Pod", "spec.priority"),
    ("Pod", "spec.preemptionPolicy"),
    ("Pod", "spec.tolerations"),
    ("Pod", "status"),
    ("Node", "spec.taints"),
    // Allocation.
    ("Service", "spec.clusterIP"),
    ("Service", "spec.clusterIPs"),
    ("Service", "spec.ipFamilies"),
    ("Service", "spec.ipFamilyPolicy"),
    ("Service", "spec.ports.nodePort"),
    // Strategies.
    ("DaemonSet", "metadata.annotations"),
    ("Job", "metadata.labels"),
    ("Job", "spec.selector"),
    ("Job", "spec.manualSelector"),
    ("Job", "spec.template.metadata"),
    ("PersistentVolume", "status.lastPhaseTransitionTime"),
    ("CustomResourceDefinition", "status"),
];

#[test]
fn decoding_and_defaulting_give_the_objects_that_kubernetes_stored() {
    let file: Value = serde_json::from_str(CASES).unwrap();
    let mut differences = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let mut object = case["sent"].clone();
        let kind = object["kind"].as_str().unwrap().to_owned();
        let api_version = object["apiVersion"].as_str().unwrap().to_owned();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let schema = builtin::type_schema(group, version, &kind).unwrap();
        let mut problems = Vec::new();
        decode::conform(&schema, &kind, &mut object, &mut problems).unwrap();
        assert!(problems.is_empty(), "{kind}: {problems:?}");
        kind::fill_defaults(group, version, &kind, &schema, &mut object);
        let again = object.clone();
        kind::fill_defaults(group, version, &kind, &schema, &mut object);
        assert_eq!(object, again, "{kind}: defaulting is idempotent");
        decode::conform(&schema, &kind, &mut object, &mut problems).unwrap();
        assert_eq!(object, again, "{kind}: what is stored decodes to itself");
        compare(&kind, "", &object, &case["stored"], &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn compare(kind: &str, path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    if ours == theirs
        || ELSEWHERE.iter().any(|(k, prefix)| {
            (*k == "*" || *k == kind)
                && (path == *prefix
                    || path.strip_prefix(prefix).is_some_and(|p| p.starts_with('.')))
        })
    {
        return;
    }
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => compare(kind, &inner, a, b, differences),
                    (a, b) => {
                        // A missing member is compared as a marker, so that ELSEWHERE can exclude
                        // it.
                        let marker = Value::from("(absent)");
                        compare(
                            kind,
                            &inner,
                            a.unwrap_or(&marker),
                            b.unwrap_or(&marker),
                            differences,
                        );
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                compare(kind, path, a, b, differences);
            }
        }
        _ => differences.push(format!("{kind} {path}: {ours} instead of {theirs}")),
    }
}
