//! ResourceClaims and ResourceClaimTemplates.
use crate::kind::{Fill, Kind, Members, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ResourceClaim.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    default,
    cells: Some(cells),
    ..Kind::with_status("resource.k8s.io", "ResourceClaim", StatusMeta::All, "{}")
};

/// ResourceClaimTemplate.
pub(in crate::kind) static TEMPLATE: Kind = Kind {
    returns_deleted: true,
    default: default_template,
    cells: Some(cell::name_and_age),
    ..Kind::plain("resource.k8s.io", "ResourceClaimTemplate")
};

fn default(claim: &mut Members, _version: &str) {
    devices(claim.object("spec"));
}
fn default_template(template: &mut Members, _version: &str) {
    devices(template.object("spec").and_then(|spec| spec.object("spec")));
}
fn devices(spec: Option<&mut Members>) {
    let Some(devices) = spec.and_then(|spec| spec.object("devices")) else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.object("exactly") {
            count(exactly);
        }
        request.each("firstAvailable").for_each(count);
    }
}

fn count(request: &mut Members) {
    request.absent("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.absent("count", 1);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if cell::deleting(object) {
        states.push("deleted");
    }
    if cell::has(object, "status.allocation") {
        states.push("allocated");
        if cell::len(object, "status.reservedFor") > 0 {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    vec![cell::name(object), states.join(",").into(), cell::age(object, now)]
}
