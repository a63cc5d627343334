//! ResourceClaims and ResourceClaimTemplates.
use super::device;
use crate::kind::at::{At, check};
use crate::kind::condition::conditions;
use crate::kind::{Fill, Kind, Members, MetadataCheck, StatusMeta, format, template, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};
use std::collections::HashSet;

/// ResourceClaim.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: &[MetadataCheck::Whole, MetadataCheck::Change],
    returns_deleted: true,
    default,
    validate,
    validate_change,
    validate_status,
    // Expressions are compiled.
    validates_slowly: true,
    cells: Some(cells),
    rules: "requests, constraints, configurations; immutable; `status`. Not: costs of expressions",
    ..Kind::with_status("resource.k8s.io", "ResourceClaim", StatusMeta::All, "{}")
};

/// ResourceClaimTemplate.
pub(in crate::kind) static TEMPLATE: Kind = Kind {
    changed_metadata: &[MetadataCheck::Whole, MetadataCheck::Change],
    returns_deleted: true,
    default: default_template,
    validate: validate_template,
    validate_change,
    validates_slowly: true,
    cells: Some(cell::name_and_age),
    rules: "the claim; immutable. Not: costs of expressions",
    ..Kind::plain("resource.k8s.io", "ResourceClaimTemplate")
};

fn default(claim: &mut Members, _version: &str) {
    devices(claim.object("spec"));
}
fn default_template(template: &mut Members, _version: &str) {
    devices(template.object("spec").and_then(|spec| spec.object("spec")));
}
fn devices(spec: Option<&mut Members>) {
    let Some(devices) = spec.and_then(|spec| spec.object("devices")) else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.object("exactly") {
            count(exactly);
        }
        request.each("firstAvailable").for_each(count);
    }
}

fn count(request: &mut Members) {
    request.absent("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.absent("count", 1);
    }
}

/// Limits of a status.
const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;

/// Validates a claim: it never changes.
fn validate(claim: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    // Nothing else of a spec that may not change is checked.
    if old.is_none() {
        check(claim, None, errors, |at| device::claim(&at.get("spec.devices")));
    }
}
/// The spec of a claim or template never changes.
fn validate_change(claim: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    if let Some(old) = old {
        check(claim, None, errors, |at| at.get("spec").immutable(&old["spec"]));
    }
}
/// Validates a template: it never changes.
fn validate_template(object: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        template::metadata_of_template(&spec.get("metadata"));
        device::claim(&spec.get("spec.devices"));
    });
}

/// Validates what a scheduler and drivers report.
fn validate_status(claim: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let was_allocated = old.is_some_and(|old| !old["status"]["allocation"].is_null());
    check(claim, old, errors, |at| {
        let status = at.get("status");
        let consumers = status.get("reservedFor");
        if consumers.at_most(CONSUMERS_MAX) {
            let mut seen = HashSet::new();
            for consumer in consumers.items() {
                for member in ["resource", "name", "uid"] {
                    consumer.get(member).need();
                }
                if !seen.insert(consumer.text_of("uid")) {
                    consumer.duplicate_of(consumer.text_of("uid"));
                }
            }
        }
        if consumers.len() > 0 && !status.has("allocation") {
            consumers.forbidden("may not be specified when `allocated` is not set");
        }
        reported(&status);
        // An allocation never changes, so that it is checked once.
        if let Some(allocation) = status.given("allocation").filter(|_| !was_allocated) {
            allocated(&allocation, &at.get("spec.devices"));
        }
    });
    let Some(old) = old else { return };
    check(claim, None, errors, |at| {
        let status = at.get("status");
        let before = &old["status"];
        if !before["allocation"].is_null() && status.has("allocation") {
            status.get("allocation").immutable(&before["allocation"]);
        }
        let known: HashSet<&str> = crate::kind::list(before, "reservedFor")
            .iter()
            .map(|consumer| text(consumer, "uid"))
            .collect();
        let adds = status
            .list_of("reservedFor")
            .iter()
            .any(|consumer| !known.contains(text(consumer, "uid")));
        if adds && !claim.deletion_timestamp().is_empty() {
            status.get("reservedFor").forbidden(
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            );
        }
    });
}
fn allocated(at: &At<'_, '_>, claim: &At<'_, '_>) {
    let known = device::requests_of(claim);
    let results = at.get("devices.results");
    if results.at_most(RESULTS_MAX) {
        for result in results.items() {
            device::reference(&result.get("request"), &known);
            format::driver(&result.get("driver"));
            device::pool_name(&result.get("pool"));
            result.get("device").named(name::dns1123_label);
        }
    }
    for config in at.each("devices.config") {
        config.get("source").one_of(&["FromClaim", "FromClass"]);
        for request in config.each("requests") {
            device::reference(&request, &known);
        }
        device::configuration(&config);
    }
}
/// What drivers report of devices: of allocated ones, each once.
fn reported(status: &At<'_, '_>) {
    let identity =
        |device| ["driver", "pool", "device", "shareID"].map(|member| text(device, member));
    let allocated: HashSet<[&str; 4]> =
        status.list_of("allocation.devices.results").iter().map(identity).collect();
    let mut seen = HashSet::new();
    for device in status.each("devices") {
        format::driver(&device.get("driver"));
        device::pool_name(&device.get("pool"));
        device.get("device").named(name::dns1123_label);
        if device.has("shareID") {
            device::share(&device.get("shareID"));
        }
        let shown = identity(device.value)[..3].join("/");
        if !allocated.contains(&identity(device.value)) {
            device.invalid_as(&shown.as_str().into(), "must be an allocated device in the claim");
        }
        if !seen.insert(identity(device.value)) {
            device.duplicate_of(&shown);
        }
        device.get("conditions").at_most(CONDITIONS_MAX);
        conditions(&device.get("conditions"));
        if device.get("data").len() > 0 {
            device::object(&device.get("data"), DATA_BYTES_MAX);
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if cell::deleting(object) {
        states.push("deleted");
    }
    if cell::has(object, "status.allocation") {
        states.push("allocated");
        if cell::len(object, "status.reservedFor") > 0 {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    vec![cell::name(object), states.join(",").into(), cell::age(object, now)]
}
