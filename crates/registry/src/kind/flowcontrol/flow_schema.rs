//! FlowSchemas.
use crate::kind::{Fill, Kind, Members, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// FlowSchema.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    cells: Some(cells),
    ..Kind::with_status("flowcontrol.apiserver.k8s.io", "FlowSchema", StatusMeta::Nothing, "{}")
};

/// FlowSchema. Zero counts as missing.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
        spec.insert("matchingPrecedence".to_owned(), 1000.into());
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = cell::condition(object, "status.conditions", "Dangling");
    vec![
        cell::name(object),
        cell::text(object, "spec.priorityLevelConfiguration.name").into(),
        cell::int(object, "spec.matchingPrecedence").into(),
        cell::text_or(object, "spec.distinguisherMethod.type", cell::NONE).into(),
        cell::age(object, now),
        dangling.map_or("?", |found| cell::text(found, "status")).into(),
    ]
}
