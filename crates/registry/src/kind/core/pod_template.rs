//! PodTemplates.
use crate::kind::{Kind, Members, pod_default};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// PodTemplate.
pub(in crate::kind) static KIND: Kind =
    Kind { returns_deleted: true, default, cells: Some(cells), ..Kind::plain("", "PodTemplate") };

fn default(object: &mut Members, _version: &str) {
    pod_default::template(object);
}

fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = cell::containers(object, "template.spec.containers");
    vec![cell::name(object), names, images, cell::labels(object, "template.metadata.labels").into()]
}
