//! LimitRanges.
use crate::kind::{Fill, Kind, Members};
use serde_json::Value;

/// LimitRange.
pub(in crate::kind) static KIND: Kind =
    Kind { create_on_update: true, default, ..Kind::plain("", "LimitRange") };

/// LimitRange: for containers, the default limit is the maximum; the default request is the default
/// limit, or else the minimum.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    for item in spec.each("limits") {
        if item.text("type") == "Container" {
            inherit(item, "max", "default");
            inherit(item, "default", "defaultRequest");
            inherit(item, "min", "defaultRequest");
        }
    }
}

fn inherit(item: &mut Members, from: &str, to: &str) {
    let Some(Value::Object(source)) = item.get(from).cloned() else { return };
    if let Some(target) = item.object_or_new(to) {
        for (name, quantity) in source {
            target.absent(&name, quantity);
        }
    }
}
