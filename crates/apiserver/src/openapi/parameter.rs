//! Query and path parameters of operations.

use super::Dialect;
use serde_json::{Value, json};

/// Name and JSON type of a query parameter.
pub(super) type Query = (&'static str, &'static str);

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

/// A parameter of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Parameter {
    /// A part of the path: `namespace`, `name`.
    Path(&'static str),
    Query(Query),
}

impl Parameter {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Path(name) | Self::Query((name, _)) => name,
        }
    }

    /// Where it is, as in documents.
    pub(super) fn place(self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Query(_) => "query",
        }
    }

    /// As in a document.
    pub(super) fn build(self, dialect: Dialect, description: Option<&str>) -> Value {
        let ty = match self {
            Self::Path(_) => "string",
            Self::Query((_, ty)) => ty,
        };
        let mut out = json!({"in": self.place(), "name": self.name()});
        match dialect {
            Dialect::V2 => (out["type"], out["uniqueItems"]) = (ty.into(), true.into()),
            Dialect::V3 => out["schema"] = json!({"type": ty, "uniqueItems": true}),
        }
        if let Self::Path(_) = self {
            out["required"] = true.into();
        }
        if let Some(description) = description {
            out["description"] = description.into();
        }
        out
    }
}

/// The parameter of operations with this place and name.
pub(super) fn known(place: &str, name: &str) -> Option<Parameter> {
    let in_path = ["name", "namespace", "path"].map(Parameter::Path);
    let lists = [LIST, WRITE, PATCH, DELETE, &[PRETTY]];
    let options = ["exec", "log", "portforward", "proxy"].map(of_subresource);
    let in_query = lists.into_iter().chain(options).flatten().copied().map(Parameter::Query);
    let mut all = in_path.into_iter().chain(in_query);
    all.find(|parameter| parameter.place() == place && parameter.name() == name)
}
