//! ServiceCIDRs.
use crate::features::Feature;
use crate::kind::address::{self, Cidr};
use crate::kind::at::{At, check};
use crate::kind::{Kind, Report, StatusMeta, StatusRule, versions};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;

/// ServiceCIDR.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("networking.k8s.io", "v1")),
    convert: Some(versions::SAME_MEMBERS),
    validate,
    cells: Some(cells),
    rules: "ranges; only a second one can be added",
    status: Some(StatusRule {
        reset_with: Some(Feature::ServiceCIDRStatusFieldWiping),
        ..StatusRule::new(StatusMeta::Identity, "{}")
    }),
    ..Kind::plain("networking.k8s.io", "ServiceCIDR")
};

/// Validates ranges: one of each family. Only a second one can be added.
fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return check(object, None, errors, |at| ranges(&at.get("spec"))) };
    check(object, None, errors, |at| {
        let list = at.get("spec.cidrs");
        let before = crate::kind::list(&old["spec"], "cidrs");
        let is_same_length = list.len() == before.len();
        if !is_same_length && (before.len(), list.len()) != (1, 2) {
            return list.immutable(&old["spec"]["cidrs"]);
        }
        for (range, before) in list.items().zip(before) {
            range.immutable(before);
        }
        if !is_same_length {
            ranges(&at.get("spec"));
        }
    });
}
fn ranges(spec: &At<'_, '_>) {
    let list = spec.get("cidrs");
    if !list.need_for("at least one CIDR required") {
        return;
    }
    if list.len() > 2 {
        // A struct of Go.
        return list.invalid_as(&json!({"CIDRs": list.value}), "may only hold up to 2 values");
    }
    for range in list.items() {
        range.faults(address::canonical_cidr(range.text()));
    }
    // Also of ranges that are no canonical ones.
    let is_four = |range: &str| Some(Cidr::parse(range)?.first().to_canonical().is_ipv4());
    let families: Vec<_> = spec.texts_of("cidrs").map(is_four).collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        list.invalid("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
    }
}

/// The networks that Services may have addresses of: those of an object that is not being deleted
/// and has no condition that it is not ready. One without the condition is used, because there may
/// be no controller that sets it.
pub(crate) fn ready_networks(object: &Value) -> impl Iterator<Item = &str> {
    let conditions = crate::kind::list(&object["status"], "conditions");
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let is_ready = ready.is_none_or(|ready| ready["status"] == "True")
        && object.deletion_timestamp().is_empty();
    let networks = if is_ready { crate::kind::list(&object["spec"], "cidrs") } else { &[] };
    networks.iter().filter_map(Value::as_str)
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let cidrs = cell::strings(object, "spec.cidrs").join(",");
    vec![cell::name(object), cidrs.into(), cell::age(object, now)]
}
