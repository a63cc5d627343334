//! Kinds of `resource.k8s.io`.
mod admin_access;
mod capacity;
mod device;
pub(super) mod device_taint_rule;
pub(super) mod pool_status_request;
pub(super) mod resource_claim;
pub(super) mod resource_slice;
mod selector;
mod status_rights;
mod v1beta1;

use crate::features::Feature;
use crate::kind::at::check;
use crate::kind::{FormerVersion, Kind, MetadataChecks, Report, resources, versions};
use crate::table::cell;
use serde_json::Value;

/// The stored form of the kinds that are stable.
const STORAGE: Option<(&str, &str)> = Some(("resource.k8s.io", "v1"));
/// What Kubernetes 1.33 and 1.34 store.
const FORMERS: &[FormerVersion] = &[FormerVersion::stored_until(34, "v1beta2")];
/// The stored form of the others, as Kubernetes 1.36 has it.
const STORAGE_ALPHA: Option<(&str, &str)> = Some(("resource.k8s.io", "v1alpha3"));

/// DeviceClass.
pub(super) static DEVICE_CLASS: Kind = Kind {
    storage: STORAGE,
    formers: FORMERS,
    convert: Some(versions::SAME_MEMBERS),
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
    disabled: &[(Some(Feature::DRAExtendedResource), &["spec.extendedResourceName"])],
    cells: Some(cell::name_and_age),
    rules: "selectors, configurations",
    ..Kind::plain("resource.k8s.io", "DeviceClass")
};

/// Validates a class: how its devices are selected and configured.
fn validate_class(class: &Value, old: Option<&Value>, errors: &mut Report) {
    check(class, old, errors, |at| {
        selector::selectors(&at.get("spec.selectors"));
        device::configurations(&at.get("spec.config"));
        let extended = at.get("spec.extendedResourceName");
        if extended.is_set() && !resources::is_extended(extended.text()) {
            extended.invalid("must be a valid extended resource name");
        }
    });
}
