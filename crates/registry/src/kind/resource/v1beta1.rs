//! `resource.k8s.io/v1beta1`: a request has the members of `exactly`, and a device has its members
//! in `basic`. `v1beta2` has the members of `v1`.
use crate::kind::versions::{flatten, nest, with_v1beta1};
use crate::kind::{Fill, Members};
use serde_json::Value;

/// The members of a request that `v1` has in `exactly`.
const EXACTLY: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];

/// ResourceClaim.
pub(super) fn convert_claim(claim: &mut Value, from: &str, to: &str) -> bool {
    with_v1beta1(
        claim,
        (from, to),
        |claim| requests(claim.object("spec"), to_exactly),
        |claim| requests(claim.object("spec"), from_exactly),
    )
}

/// ResourceClaimTemplate.
pub(super) fn convert_template(template: &mut Value, from: &str, to: &str) -> bool {
    fn spec(template: &mut Members) -> Option<&mut Members> {
        template.object("spec").and_then(|spec| spec.object("spec"))
    }
    with_v1beta1(
        template,
        (from, to),
        |template| requests(spec(template), to_exactly),
        |template| requests(spec(template), from_exactly),
    )
}

/// ResourceSlice.
pub(super) fn convert_slice(slice: &mut Value, from: &str, to: &str) -> bool {
    with_v1beta1(
        slice,
        (from, to),
        |slice| devices(slice, |device| flatten(device, "basic")),
        |slice| {
            devices(slice, |device| {
                let name = device.remove("name");
                let basic = Value::Object(std::mem::take(device));
                device.extend(name.map(|name| ("name".to_owned(), name)));
                device.insert("basic".to_owned(), basic);
            });
        },
    )
}

fn requests(spec: Option<&mut Members>, change: fn(&mut Members)) {
    if let Some(devices) = spec.and_then(|spec| spec.object("devices")) {
        devices.each("requests").for_each(change);
    }
}
/// `v1beta1` always has a class, which is empty if the request has alternatives.
fn to_exactly(request: &mut Members) {
    if request.text("deviceClassName").is_empty() {
        request.remove("deviceClassName");
    }
    nest(request, &EXACTLY, "exactly");
}
fn from_exactly(request: &mut Members) {
    flatten(request, "exactly");
    request.absent("deviceClassName", "");
}

fn devices(slice: &mut Members, change: fn(&mut Members)) {
    if let Some(spec) = slice.object("spec") {
        spec.each("devices").for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const V1: &str = "resource.k8s.io/v1";
    const V1BETA1: &str = "resource.k8s.io/v1beta1";

    #[test]
    fn claims_convert_to_v1beta1_and_back() {
        let v1 = json!({"spec": {"devices": {"requests": [
            {"name": "one", "exactly": {"deviceClassName": "gpu", "count": 1}},
            {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]},
        ]}}});
        let mut claim = v1.clone();
        assert!(convert_claim(&mut claim, V1, V1BETA1));
        let flat = json!([
            {"name": "one", "deviceClassName": "gpu", "count": 1},
            {"name": "any", "deviceClassName": "",
             "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]},
        ]);
        assert_eq!(claim["spec"]["devices"]["requests"], flat);
        assert!(convert_claim(&mut claim, V1BETA1, V1));
        assert_eq!(claim, v1);
        assert!(convert_claim(&mut claim, V1, "resource.k8s.io/v1beta2"));
        assert_eq!(claim, v1);
        assert!(!convert_claim(&mut claim, V1, "apps/v1"));
        let mut template = json!({"spec": v1.clone()});
        assert!(convert_template(&mut template, V1, V1BETA1));
        assert_eq!(template["spec"]["spec"]["devices"]["requests"], flat);
        assert!(convert_template(&mut template, V1BETA1, V1));
        assert_eq!(template["spec"], v1);
    }

    #[test]
    fn devices_convert_to_v1beta1_and_back() {
        let v1 = json!({"spec": {"driver": "d", "devices": [
            {"name": "a", "attributes": {"model": {"string": "x"}}, "allNodes": true},
            {"name": "b"},
        ]}});
        let mut slice = v1.clone();
        assert!(convert_slice(&mut slice, V1, V1BETA1));
        let nested = json!([
            {"name": "a", "basic": {"attributes": {"model": {"string": "x"}}, "allNodes": true}},
            {"name": "b", "basic": {}},
        ]);
        assert_eq!(slice["spec"]["devices"], nested);
        assert!(convert_slice(&mut slice, V1BETA1, V1));
        assert_eq!(slice, v1);
    }
}
