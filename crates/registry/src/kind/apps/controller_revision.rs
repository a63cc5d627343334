//! ControllerRevisions.
use crate::kind::{Kind, not_supported};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ControllerRevision.
pub(in crate::kind) static KIND: Kind = Kind {
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::plain("apps", "ControllerRevision")
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = cell::list(object, "metadata.ownerReferences")
        .iter()
        .find(|owner| cell::at(owner, "controller") == true)
        .map_or_else(
            || cell::NONE.to_owned(),
            |owner| {
                let kind = cell::text(owner, "kind").to_lowercase();
                match cell::text(owner, "apiVersion").split_once('/') {
                    Some((group, _)) => format!("{kind}.{group}/{}", cell::text(owner, "name")),
                    None => format!("{kind}/{}", cell::text(owner, "name")),
                }
            },
        );
    vec![
        cell::name(object),
        owner.into(),
        cell::int(object, "revision").into(),
        cell::age(object, now),
    ]
}
