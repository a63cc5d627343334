//! IngressClasses.
use crate::kind::{Fill, Kind, Members};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// IngressClass.
pub(in crate::kind) static KIND: Kind =
    Kind { default, cells: Some(cells), ..Kind::plain("networking.k8s.io", "IngressClass") };

fn default(object: &mut Members, _version: &str) {
    if let Some(parameters) = object.object("spec").and_then(|spec| spec.object("parameters")) {
        parameters.absent("scope", "Cluster");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = cell::at(object, "spec.parameters");
    let shown = if parameters.is_null() {
        cell::NONE.to_owned()
    } else {
        let (kind, name) = (cell::text(parameters, "kind"), cell::text(parameters, "name"));
        match cell::text(parameters, "apiGroup") {
            "" => format!("{kind}/{name}"),
            group => format!("{kind}.{group}/{name}"),
        }
    };
    vec![
        cell::name(object),
        cell::text(object, "spec.controller").into(),
        shown.into(),
        cell::age(object, now),
    ]
}
