//! What neither the published schemas nor the Go declarations at hand say.

use super::schemas::Definitions;
use super::{GoField, GoFields, Presence};
use serde_json::Value;

use Presence::{Always, Null, Omitted, Pointer};

/// Fields of the API registration types: their Go module is not among the sources.
const AGGREGATOR: &[(&str, &[(&str, Presence)])] = &[
    (
        "APIService",
        &[
            ("kind", Omitted),
            ("apiVersion", Omitted),
            ("metadata", Always),
            ("spec", Always),
            ("status", Always),
        ],
    ),
    (
        "APIServiceCondition",
        &[
            ("type", Always),
            ("status", Always),
            ("lastTransitionTime", Null),
            ("reason", Omitted),
            ("message", Omitted),
        ],
    ),
    (
        "APIServiceList",
        &[("kind", Omitted), ("apiVersion", Omitted), ("metadata", Always), ("items", Null)],
    ),
    (
        "APIServiceSpec",
        &[
            ("service", Pointer),
            ("group", Omitted),
            ("version", Omitted),
            ("insecureSkipTLSVerify", Omitted),
            ("caBundle", Omitted),
            ("groupPriorityMinimum", Always),
            ("versionPriority", Always),
        ],
    ),
    ("APIServiceStatus", &[("conditions", Omitted)]),
    ("ServiceReference", &[("namespace", Omitted), ("name", Omitted), ("port", Pointer)]),
];
const AGGREGATOR_PREFIX: &str = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.";

/// Structs that apply treats as one value although the published schemas do not say so (patch.md's table against a live server).
const ATOMIC: &[&str] = &[];

/// Adds the overrides.
pub(crate) fn apply(definitions: &mut Definitions, fields: &mut GoFields) {
    for (name, list) in AGGREGATOR {
        let list = list
            .iter()
            .map(|(name, presence)| GoField {
                name: (*name).to_owned(),
                presence: *presence,
                default: None,
                protobuf: Vec::new(),
            })
            .collect();
        fields.insert(format!("{AGGREGATOR_PREFIX}{name}"), list);
    }
    for name in ATOMIC {
        if let Some(Value::Object(definition)) = definitions.get_mut(*name) {
            definition.insert("x-kubernetes-map-type".to_owned(), Value::from("atomic"));
        }
    }
}
