//! Quotas.
use crate::kind::{Kind, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ResourceQuota.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    cells: Some(cells),
    ..Kind::with_status("", "ResourceQuota", StatusMeta::All, "{}")
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<&String> = cell::at(object, "status.hard")
        .as_object()
        .into_iter()
        .flat_map(|hard| hard.keys())
        .collect();
    hard.sort_unstable();
    for resource in hard {
        // Resource names contain dots, so they cannot be part of a path.
        let of = |path: &str| match cell::at(object, path).get(resource) {
            Some(Value::String(amount)) => amount.clone(),
            Some(other) => other.to_string(),
            None => "0".to_owned(),
        };
        let entry = format!("{resource}: {}/{}", of("status.used"), of("status.hard"));
        if resource.starts_with("limits") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![
        cell::name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        cell::age(object, now),
    ]
}
