//! Query and path parameters of operations.

use super::Dialect;
use serde_json::{Value, json};

/// Name and JSON type of a query parameter.
type Query = (&'static str, &'static str);

/// Parameters of list, watch and deletecollection.
pub(super) const LIST: &[Query] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
/// Parameters of create and update.
pub(super) const WRITE: &[Query] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
/// Parameters of patch. Clients check here whether the server supports field validation and dry
/// runs.
pub(super) const PATCH: &[Query] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
/// Parameters of delete.
pub(super) const DELETE: &[Query] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
/// Parameters of every operation.
pub(super) const PRETTY: Query = ("pretty", "string");

/// The version of a custom resource that is read.
pub(super) const RESOURCE_VERSION: Query = ("resourceVersion", "string");

/// Parameters of every operation on a subresource: the options of its kind.
pub(super) fn of_subresource(name: &str) -> &'static [Query] {
    const STREAMS: [Query; 5] = [
        ("container", "string"),
        ("stderr", "boolean"),
        ("stdin", "boolean"),
        ("stdout", "boolean"),
        ("tty", "boolean"),
    ];
    const COMMAND: [Query; 6] =
        [("command", "string"), STREAMS[0], STREAMS[1], STREAMS[2], STREAMS[3], STREAMS[4]];
    match name {
        "attach" => &STREAMS,
        "exec" => &COMMAND,
        "portforward" => &[("ports", "integer")],
        "proxy" => &[("path", "string")],
        "log" => &[
            ("container", "string"),
            ("follow", "boolean"),
            ("insecureSkipTLSVerifyBackend", "boolean"),
            ("limitBytes", "integer"),
            ("previous", "boolean"),
            ("sinceSeconds", "integer"),
            ("stream", "string"),
            ("tailLines", "integer"),
            ("timestamps", "boolean"),
        ],
        _ => &[],
    }
}

/// A query parameter.
pub(super) fn query((name, ty): Query, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({"in": "query", "name": name, "type": ty, "uniqueItems": true}),
        Dialect::V3 => {
            json!({"in": "query", "name": name, "schema": {"type": ty, "uniqueItems": true}})
        }
    }
}

/// A parameter in the path: `namespace`, `name`.
pub(super) fn path(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({
            "in": "path", "name": name, "required": true, "type": "string", "uniqueItems": true,
        }),
        Dialect::V3 => json!({
            "in": "path", "name": name, "required": true,
            "schema": {"type": "string", "uniqueItems": true},
        }),
    }
}
