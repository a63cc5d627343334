//! CSIDrivers.
use crate::kind::{Fill, Kind, Members};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// CSIDriver.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    returns_deleted: true,
    default,
    cells: Some(cells),
    ..Kind::plain("storage.k8s.io", "CSIDriver")
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("attachRequired", true);
    spec.absent("podInfoOnMount", false);
    spec.absent("storageCapacity", false);
    spec.absent("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.absent("volumeLifecycleModes", json!(["Persistent"]));
    spec.absent("requiresRepublish", false);
    spec.absent("seLinuxMount", false);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = cell::at(object, "spec");
    let modes = cell::strings(spec, "volumeLifecycleModes").join(",");
    let tokens = match cell::at(spec, "tokenRequests") {
        Value::Array(tokens) => {
            tokens.iter().map(|token| cell::text(token, "audience")).collect::<Vec<_>>().join(",")
        }
        _ => cell::UNSET.to_owned(),
    };
    let is = |path: &str| Value::from(cell::at(spec, path) == true);
    vec![
        cell::name(object),
        cell::at(spec, "attachRequired").as_bool().unwrap_or(true).into(),
        is("podInfoOnMount"),
        is("storageCapacity"),
        tokens.into(),
        is("requiresRepublish"),
        if modes.is_empty() { cell::NONE.into() } else { modes.into() },
        cell::age(object, now),
    ]
}
