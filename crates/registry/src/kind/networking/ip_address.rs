//! IPAddresses.
use crate::kind::Kind;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// IPAddress.
pub(in crate::kind) static KIND: Kind =
    Kind { cells: Some(cells), ..Kind::plain("networking.k8s.io", "IPAddress") };

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
