//! ControllerRevisions.
use crate::kind::at::check;
use crate::kind::{Kind, MetadataCheck, MetadataChecks, Report};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ControllerRevision.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    validate,
    cells: Some(cells),
    rules: "data and number; immutable data",
    ..Kind::plain("apps", "ControllerRevision")
};

/// Validates a revision: its data is an object that never changes.
fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| at.get("revision").not_negative());
    check(object, None, errors, |at| {
        let data = at.get("data");
        match old {
            // Compared as a whole: without data is not the same as with empty data.
            Some(old) if *data.value != old["data"] => data.invalid("field is immutable"),
            Some(_) => {}
            None if !data.is_set() => data.required("data is mandatory"),
            None if !data.value.is_object() => data.required("data must be a valid JSON object"),
            None => {}
        }
    });
}

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
