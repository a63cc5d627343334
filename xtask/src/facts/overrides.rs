//! Data that neither the published schemas nor the available Go declarations contain.

use super::schemas::Definitions;
use super::{GoField, GoFields, Presence};
use serde_json::Value;

use Presence::{Always, Null, Omitted, Pointer};

/// A field: its name, presence and protobuf number (0: none).
type Row = (&'static str, Presence, u8);

/// Fields of the API registration types, whose Go module is not among the sources.
const AGGREGATOR: &[(&str, &[Row])] = &[
    (
        "APIService",
        &[
            ("kind", Omitted, 0),
            ("apiVersion", Omitted, 0),
            ("metadata", Always, 1),
            ("spec", Always, 2),
            ("status", Always, 3),
        ],
    ),
    (
        "APIServiceCondition",
        &[
            ("type", Always, 1),
            ("status", Always, 2),
            ("lastTransitionTime", Null, 3),
            ("reason", Omitted, 4),
            ("message", Omitted, 5),
        ],
    ),
    (
        "APIServiceList",
        &[
            ("kind", Omitted, 0),
            ("apiVersion", Omitted, 0),
            ("metadata", Always, 1),
            ("items", Null, 2),
        ],
    ),
    (
        "APIServiceSpec",
        &[
            ("service", Pointer, 1),
            ("group", Omitted, 2),
            ("version", Omitted, 3),
            ("insecureSkipTLSVerify", Omitted, 4),
            ("caBundle", Omitted, 5),
            ("groupPriorityMinimum", Always, 7),
            ("versionPriority", Always, 8),
        ],
    ),
    ("APIServiceStatus", &[("conditions", Omitted, 1)]),
    ("ServiceReference", &[("namespace", Omitted, 1), ("name", Omitted, 2), ("port", Pointer, 3)]),
];
const AGGREGATOR_PREFIX: &str = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.";

/// Structs that apply treats as one value although the published schemas do not declare it
/// (verified against a live server, see patch.md's table).
const ATOMIC: &[&str] = &[];

/// Adds the overrides.
pub(crate) fn apply(definitions: &mut Definitions, fields: &mut GoFields) {
    for (name, list) in AGGREGATOR {
        let list = list
            .iter()
            .map(|(name, presence, number)| GoField {
                name: (*name).to_owned(),
                presence: *presence,
                default: None,
                protobuf: if *number == 0 { Vec::new() } else { vec![*number] },
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
