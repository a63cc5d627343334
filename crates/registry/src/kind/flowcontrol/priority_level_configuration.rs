//! PriorityLevelConfigurations.
use crate::kind::{Fill, Kind, Members, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// PriorityLevelConfiguration.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    cells: Some(cells),
    ..Kind::with_status(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        StatusMeta::Nothing,
        "{}",
    )
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    if let Some(exempt) = spec.object("exempt") {
        exempt.absent("nominalConcurrencyShares", 0);
        exempt.absent("lendablePercent", 0);
    }
    let Some(limited) = spec.object("limited") else { return };
    limited.absent("nominalConcurrencyShares", 30);
    limited.absent("lendablePercent", 0);
    if let Some(queuing) = limited.object("limitResponse").and_then(|r| r.object("queuing")) {
        // Zero counts as missing.
        for (name, value) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
            if queuing.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
                queuing.insert(name.to_owned(), value.into());
            }
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &str| match cell::at(object, path).as_i64() {
        Some(number) => Value::from(number),
        None => Value::from(cell::NONE),
    };
    vec![
        cell::name(object),
        cell::text(object, "spec.type").into(),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        cell::age(object, now),
    ]
}
