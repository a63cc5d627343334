//! IPAddresses.
use crate::kind::at::check;
use crate::kind::{Kind, NameRule};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// IPAddress.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Address,
    validate,
    cells: Some(cells),
    rules: "its name is an address, parent; immutable parent",
    ..Kind::plain("networking.k8s.io", "IPAddress")
};

/// Validates an address: what it belongs to never changes.
fn validate(address: &Value, old: Option<&Value>, errors: &mut field::Errors) {
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
