//! IPAddresses.
use crate::kind::at::check;
use crate::kind::{Kind, MetadataChecks, NameRule, Report, versions};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::cidr::Family;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::net::IpAddr;

/// The label with the address's family.
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// The label with the owner of the object.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The owner of the objects of Services' addresses: the reference server's allocator.
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// IPAddress.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("networking.k8s.io", "v1")),
    convert: Some(versions::SAME_MEMBERS),
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    names: NameRule::Address,
    validate,
    validate_change,
    cells: Some(cells),
    rules: "its name is an address, parent; immutable parent",
    ..Kind::plain("networking.k8s.io", "IPAddress")
};

/// Validates an address: what it belongs to never changes.
fn validate(address: &Value, old: Option<&Value>, errors: &mut Report) {
    check(address, old, errors, |at| {
        let parent = at.get("spec.parentRef");
        if !parent.is_set() {
            return parent.required("");
        }
        parent.get("group").named_if_set(name::dns1123_subdomain);
        parent.get("resource").named(name::path_segment);
        parent.get("name").named(name::path_segment);
        parent.get("namespace").named_if_set(name::path_segment);
    });
}
/// The parent never changes.
fn validate_change(address: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(address, None, errors, |at| {
            at.get("spec.parentRef").immutable(&old["spec"]["parentRef"]);
        });
    }
}

fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let parent = cell::at(object, "spec.parentRef");
    let shown = if cell::has(object, "spec.parentRef") {
        let mut shown = cell::text(parent, "resource").to_lowercase();
        for (separator, member) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
            let part = cell::text(parent, member);
            if !part.is_empty() {
                shown.push_str(separator);
                shown.push_str(part);
            }
        }
        shown
    } else {
        cell::NONE.to_owned()
    };
    vec![cell::name(object), shown.into()]
}

/// The object of a Service's cluster address, as the reference server's allocator creates it.
pub(crate) fn of_service(address: IpAddr, service: &Value, uid: &str, now: &str) -> Value {
    let owned = json!({
        "f:metadata": {"f:labels": {".": {}, (format!("f:{FAMILY}")): {}, (format!("f:{MANAGED_BY}")): {}}},
        "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
    });
    json!({
        "kind": KIND.kind,
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address.to_string(),
            "uid": uid,
            "creationTimestamp": now,
            "labels": {FAMILY: Family::of(address).as_str(), MANAGED_BY: ALLOCATOR},
            "managedFields": [{
                "manager": "kube-apiserver",
                "operation": "Update",
                "apiVersion": "networking.k8s.io/v1",
                "time": now,
                "fieldsType": "FieldsV1",
                "fieldsV1": owned,
            }],
        },
        "spec": {"parentRef": {
            "resource": "services",
            "namespace": service.namespace(),
            "name": service.name(),
        }},
    })
}
/// Whether the allocator owns the object.
pub(crate) fn is_allocated(address: &Value) -> bool {
    address["metadata"]["labels"][MANAGED_BY] == ALLOCATOR
}
/// Whether the allocator owns the object, and made it for this Service.
pub(crate) fn is_of_service(address: &Value, service: &Value) -> bool {
    let parent = &address["spec"]["parentRef"];
    is_allocated(address)
        && cell::text(parent, "group").is_empty()
        && parent["resource"] == "services"
        && parent["namespace"] == service.namespace()
        && parent["name"] == service.name()
}
