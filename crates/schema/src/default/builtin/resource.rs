//! Dynamic resource claims.
use super::fill::{Fill, Object};

/// ResourceClaim and ResourceClaimTemplate.
pub(super) fn devices(object: &mut Object, kind: &str) {
    let spec = match kind {
        "ResourceClaim" => object.object("spec"),
        "ResourceClaimTemplate" => object.object("spec").and_then(|spec| spec.object("spec")),
        _ => None,
    };
    let Some(devices) = spec.and_then(|spec| spec.object("devices")) else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.object("exactly") {
            count(exactly);
        }
        request.each("firstAvailable").for_each(count);
    }
}

fn count(request: &mut Object) {
    request.absent("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.absent("count", 1);
    }
}
