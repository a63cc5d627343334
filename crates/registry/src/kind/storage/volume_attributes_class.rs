//! VolumeAttributesClasses.
use crate::kind::at::{check, same};
use crate::kind::format::caseless_qualified_name;
use crate::kind::volume::parameters;
use crate::kind::{FormerVersion, Kind, MetadataCheck, MetadataChecks, Report, versions};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// VolumeAttributesClass.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("storage.k8s.io", "v1")),
    convert: Some(versions::SAME_MEMBERS),
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    returns_deleted: true,
    validate,
    validate_change,
    cells: Some(cells),
    rules: "driver, parameters; immutable",
    formers: &[FormerVersion::stored_until(34, "v1beta1")],
    ..Kind::plain("storage.k8s.io", "VolumeAttributesClass")
};

/// A class never changes.
fn validate_change(class: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(class, None, errors, |at| {
            for member in ["driverName", "parameters"] {
                if !same(at.get(member).value, &old[member]) {
                    at.get(member).forbidden(format!("updates to {member} are forbidden."));
                }
            }
        });
    }
}
/// Validates a class.
fn validate(class: &Value, old: Option<&Value>, errors: &mut Report) {
    check(class, old, errors, |at| {
        caseless_qualified_name(&at.get("driverName"));
        parameters(&at.get("parameters"));
        at.get("parameters").need_for("must contain at least one key/value pair");
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "driverName").into(), cell::age(object, now)]
}
