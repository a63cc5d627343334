//! Kinds of `resource.k8s.io`.
mod capacity;
mod device;
pub(super) mod resource_claim;
pub(super) mod resource_slice;
mod selector;

use crate::kind::at::check;
use crate::kind::{Kind, MetadataChecks, resources};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;

/// DeviceClass.
pub(super) static DEVICE_CLASS: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    checks_prefix: false,
    returns_deleted: true,
    validate: |class, old, errors| {
        if old.is_none() {
            validate_class(class, None, errors);
        }
    },
    // The API looks at the whole metadata first.
    validate_change: |class, old, errors| validate_class(class, old, errors),
    // Expressions are compiled.
    validates_slowly: true,
    cells: Some(cell::name_and_age),
    rules: "selectors, configurations",
    ..Kind::plain("resource.k8s.io", "DeviceClass")
};

/// Validates a class: how its devices are selected and configured.
fn validate_class(class: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    check(class, old, errors, |at| {
        selector::selectors(&at.get("spec.selectors"));
        device::configurations(&at.get("spec.config"));
        let extended = at.get("spec.extendedResourceName");
        if extended.is_set() && !resources::is_extended(extended.text()) {
            extended.invalid("must be a valid extended resource name");
        }
    });
}
