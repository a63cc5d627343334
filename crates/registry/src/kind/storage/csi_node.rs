//! CSINodes.
use crate::features::Feature;
use crate::kind::at::check;
use crate::kind::workload::rest_is_same;
use crate::kind::{FormerVersion, Kind, MetadataCheck, MetadataChecks, Report, format, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// CSINode.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    unconditional_update: false,
    returns_deleted: true,
    validate,
    cells: Some(cells),
    rules: "drivers and their keys; immutable except capacity",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("storage.k8s.io", "CSINode")
};

/// Maximum length of a node's name for a driver, in bytes.
const NODE_ID_MAX: usize = 256;

/// Validates the drivers of a node: each once, and only its capacity changes.
fn validate(node: &Value, old: Option<&Value>, errors: &mut Report) {
    check(node, old, errors, |at| {
        let mut names = HashSet::new();
        for driver in at.each("spec.drivers") {
            format::driver(&driver.get("name"));
            let id = driver.get("nodeID");
            id.need();
            if id.text().len() > NODE_ID_MAX {
                id.invalid(format!("must be {NODE_ID_MAX} characters or less"));
            }
            driver.get("allocatable.count").not_negative();
            driver.get("name").unique(&mut names);
            let mut keys = HashSet::new();
            for key in driver.list_of("topologyKeys") {
                // The API's paths lack the member.
                let at = driver.with(key);
                at.need();
                at.unique(&mut keys);
                at.faults(name::qualified_name(at.text()));
            }
        }
    });
    let Some(old) = old else { return };
    check(node, None, errors, |at| {
        let drivers = at.get("spec.drivers");
        let mut now: HashMap<&str, Vec<&Value>> = HashMap::new();
        for driver in drivers.list() {
            now.entry(text(driver, "name")).or_default().push(driver);
        }
        let may_change: &[&str] = match at.is_on(Feature::MutableCSINodeAllocatableCount) {
            true => &["allocatable"],
            false => &[],
        };
        // In the order of the stored drivers. Names are unique there.
        for old in list(&old["spec"], "drivers") {
            for driver in now.remove(text(old, "name")).into_iter().flatten() {
                if !rest_is_same(driver, old, may_change) {
                    drivers.invalid_as(driver, "field is immutable");
                }
            }
        }
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "spec.drivers").into(), cell::age(object, now)]
}
