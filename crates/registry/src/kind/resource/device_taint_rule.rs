//! DeviceTaintRules: a taint for all devices that a selector chooses.
use super::{STORAGE_ALPHA, device};
use crate::kind::at::check;
use crate::kind::condition::conditions;
use crate::kind::{Context, Kind, MetadataChecks, Report, StatusMeta, format, versions};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// DeviceTaintRule.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: STORAGE_ALPHA,
    convert: Some(versions::SAME_MEMBERS),
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    prepare,
    validate,
    validate_status,
    cells: Some(cells),
    rules: "selector, taint; `status`",
    ..Kind::with_status("resource.k8s.io", "DeviceTaintRule", StatusMeta::Identity, "{}")
};

const CONDITIONS_MAX: usize = 8;

/// A taint is dated, and a change of its effect dates it anew.
fn prepare(context: &Context<'_>, rule: &mut Value, old: Option<&Value>) {
    let before = old.map_or(&Value::Null, |old| &old["spec"]["taint"]);
    let Some(taint) = rule.pointer_mut("/spec/taint").filter(|taint| taint.is_object()) else {
        return;
    };
    let has_new_effect = !before.is_null() && taint["effect"] != before["effect"];
    if taint["timeAdded"].is_null() || has_new_effect && taint["timeAdded"] == before["timeAdded"] {
        taint["timeAdded"] = context.now.rfc3339().into();
    }
}

fn validate(rule: &Value, old: Option<&Value>, errors: &mut Report) {
    check(rule, old, errors, |at| {
        let selector = at.get("spec.deviceSelector");
        if selector.has("driver") {
            format::driver(&selector.get("driver"));
        }
        if selector.has("pool") {
            device::pool_name(&selector.get("pool"));
        }
        if selector.has("device") {
            device::name(&selector.get("device"));
        }
        device::taint(&at.get("spec.taint"));
    });
}

fn validate_status(rule: &Value, old: Option<&Value>, errors: &mut Report) {
    check(rule, old, errors, |at| {
        let list = at.get("status.conditions");
        conditions(&list);
        list.at_most(CONDITIONS_MAX);
    });
}

fn cells(rule: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path: &str| cell::text(rule, path).into();
    let dated = match cell::text(rule, "spec.taint.timeAdded") {
        "" => "".into(),
        time => age::age_of(time, now).into(),
    };
    vec![
        cell::name(rule),
        text("spec.taint.key"),
        text("spec.taint.value"),
        text("spec.taint.effect"),
        dated,
        cell::age(rule, now),
    ]
}
