//! Kinds of `storage.k8s.io`.
pub(super) mod csi_driver;
pub(super) mod csi_node;
pub(super) mod storage_class;
pub(super) mod volume_attachment;
pub(super) mod volume_attributes_class;

use crate::kind::at::check;
use crate::kind::{FormerVersion, Kind, MetadataChecks, Report, node_label, resources};
use serde_json::Value;
use setpoint_object::{field, name};

/// CSIStorageCapacity.
pub(super) static CSI_STORAGE_CAPACITY: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    unconditional_update: false,
    validate: validate_capacity,
    validate_change: validate_capacity_change,
    warnings: capacity_warnings,
    update_warnings: |capacity, _| capacity_warnings(capacity),
    rules: "class, topology, amount; immutable class and topology",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("storage.k8s.io", "CSIStorageCapacity")
};

fn capacity_warnings(capacity: &Value) -> Vec<String> {
    node_label::of_selector(&capacity["nodeTopology"], &field::Path::new("nodeTopology"))
}

/// Validates how much of a class there is.
fn validate_capacity(capacity: &Value, old: Option<&Value>, errors: &mut Report) {
    check(capacity, old, errors, |at| {
        at.get("nodeTopology").selector();
        let class = at.get("storageClassName");
        for fault in name::dns1123_subdomain(class.text()) {
            class.invalid_as(&class.text().into(), fault);
        }
        resources::not_negative(&at.get("capacity"));
    });
}
/// The class and the nodes never change.
fn validate_capacity_change(capacity: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(capacity, None, errors, |at| {
            // An empty selector is of all nodes, none is of none.
            let nodes = at.get("nodeTopology");
            match nodes.value.is_null() == old["nodeTopology"].is_null() {
                true => nodes.immutable(&old["nodeTopology"]),
                false => nodes.invalid("field is immutable"),
            }
            at.get("storageClassName").immutable(&old["storageClassName"]);
        });
    }
}
