//! ComponentStatuses: always an empty list, for old clients.
use crate::kind::Kind;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ComponentStatus.
pub(in crate::kind) static KIND: Kind = Kind {
    cells: Some(cells),
    deprecation: "v1 ComponentStatus is deprecated in v1.19+",
    ..Kind::plain("", "ComponentStatus")
};

fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let (mut status, mut message, mut error) = ("Unknown", "", "");
    if let Some(healthy) = cell::condition(object, "conditions", "Healthy") {
        status = if cell::text(healthy, "status") == "True" { "Healthy" } else { "Unhealthy" };
        (message, error) = (cell::text(healthy, "message"), cell::text(healthy, "error"));
    }
    vec![cell::name(object), status.into(), message.into(), error.into()]
}
