//! ServiceCIDRs.
use crate::kind::{Kind, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ServiceCIDR.
pub(in crate::kind) static KIND: Kind = Kind {
    cells: Some(cells),
    ..Kind::with_status("networking.k8s.io", "ServiceCIDR", StatusMeta::All, "{}")
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let cidrs = cell::strings(object, "spec.cidrs").join(",");
    vec![cell::name(object), cidrs.into(), cell::age(object, now)]
}
