//! ResourceClaims and ResourceClaimTemplates.
use super::{FORMERS, STORAGE, admin_access, device, status_rights, v1beta1};
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::condition::conditions;
use crate::kind::{
    Context, Fill, Kind, Members, MetadataChecks, Needs, Report, StatusMeta, StatusRule, address,
    format, template, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use std::collections::HashSet;

/// The members of a spec at a path that features keep; then those of a status that belong to the
/// consumed capacity, and further rows.
macro_rules! disabled {
    ($spec:literal, [$($status:literal),*], $($row:expr),*) => {
        &[
            (
                Some(Feature::DRAPrioritizedList),
                &[concat!($spec, ".devices.requests[].firstAvailable")],
            ),
            (
                Some(Feature::DRADeviceTaints),
                &[
                    concat!($spec, ".devices.requests[].exactly.tolerations"),
                    concat!($spec, ".devices.requests[].firstAvailable[].tolerations"),
                ],
            ),
            (
                Some(Feature::DRAConsumableCapacity),
                &[
                    concat!($spec, ".devices.constraints[].distinctAttribute"),
                    concat!($spec, ".devices.requests[].exactly.capacity"),
                    concat!($spec, ".devices.requests[].firstAvailable[].capacity"),
                    $($status),*
                ],
            ),
            $($row),*
        ]
    };
}

/// ResourceClaim.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: STORAGE,
    formers: FORMERS,
    convert: Some(v1beta1::convert_claim),
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    returns_deleted: true,
    status: Some(StatusRule { has_tables: false, ..StatusRule::new(StatusMeta::Identity, "{}") }),
    default,
    prepare_status,
    validate,
    validate_change,
    validate_status,
    // Expressions are compiled.
    validates_slowly: true,
    needs: Needs {
        namespace_label: admin_access::of_claim,
        status_rights: status_rights::status_rights,
        ..Needs::NONE
    },
    disabled: disabled!(
        "spec",
        [
            "status.allocation.devices.results[].shareID",
            "status.allocation.devices.results[].consumedCapacity",
            "status.devices[].shareID"
        ],
        (
            Some(Feature::DRADeviceBindingConditions),
            &[
                "status.allocation.devices.results[].bindingConditions",
                "status.allocation.devices.results[].bindingFailureConditions",
            ],
        ),
        (Some(Feature::DRAResourceClaimDeviceStatus), &["status.devices"]),
        (
            Some(Feature::DRAAdminAccess),
            &[
                "spec.devices.requests[].exactly.adminAccess",
                "status.allocation.devices.results[].adminAccess",
            ],
        )
    ),
    cells: Some(cells),
    rules: "requests, constraints, configurations; immutable; `status`",
    ..Kind::plain("resource.k8s.io", "ResourceClaim")
};

/// ResourceClaimTemplate.
pub(in crate::kind) static TEMPLATE: Kind = Kind {
    storage: STORAGE,
    formers: FORMERS,
    convert: Some(v1beta1::convert_template),
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    returns_deleted: true,
    default: default_template,
    validate: validate_template,
    validate_change,
    validates_slowly: true,
    needs: Needs { namespace_label: admin_access::of_template, ..Needs::NONE },
    disabled: disabled!(
        "spec.spec",
        [],
        (Some(Feature::DRAAdminAccess), &["spec.spec.devices.requests[].exactly.adminAccess"])
    ),
    cells: Some(cell::name_and_age),
    rules: "the claim; immutable",
    ..Kind::plain("resource.k8s.io", "ResourceClaimTemplate")
};

fn default(claim: &mut Members, version: &str) {
    devices(claim.object("spec"), version);
}
fn default_template(template: &mut Members, version: &str) {
    devices(template.object("spec").and_then(|spec| spec.object("spec")), version);
}
fn devices(spec: Option<&mut Members>, version: &str) {
    let Some(devices) = spec.and_then(|spec| spec.object("devices")) else { return };
    for request in devices.each("requests") {
        if version == "v1beta1" && !request.text("deviceClassName").is_empty() {
            count(request);
        } else if let Some(exactly) = request.object("exactly") {
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
/// Configurations of the class and of the claim.
const ALLOCATED_CONFIGS_MAX: usize = 64;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
/// Limits of what is reported of a network device, in bytes, and the most addresses.
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_BYTES_MAX: usize = 128;
const ADDRESSES_MAX: usize = 16;

/// The identity of an allocated device. A device without a share has an empty one.
type Identity<'v> = [&'v str; 4];
fn identity(device: &Value) -> Identity<'_> {
    ["driver", "pool", "device", "shareID"].map(|member| text(device, member))
}
fn allocated_devices(status: &Value) -> HashSet<Identity<'_>> {
    let results = status["allocation"]["devices"]["results"].as_array();
    results.into_iter().flatten().map(identity).collect()
}

/// Drops what was reported of devices that are no longer allocated.
fn prepare_status(_: &Context<'_>, claim: &mut Value, old: &Value) {
    let Some(mut devices) = claim.pointer_mut("/status/devices").map(Value::take) else { return };
    let (before, now) = (allocated_devices(&old["status"]), allocated_devices(&claim["status"]));
    if let Some(devices) = devices.as_array_mut() {
        devices.retain(|device| {
            let device = identity(device);
            now.contains(&device) || !before.contains(&device)
        });
    }
    let is_empty = devices.as_array().is_some_and(Vec::is_empty);
    if let Some(status) = claim["status"].as_object_mut() {
        if is_empty || devices.is_null() {
            status.remove("devices");
        } else {
            status.insert("devices".to_owned(), devices);
        }
    }
}

/// Validates a claim: it never changes.
fn validate(claim: &Value, old: Option<&Value>, errors: &mut Report) {
    // Nothing else of a spec that may not change is checked.
    if old.is_none() {
        check(claim, None, errors, |at| device::claim(&at.get("spec.devices")));
    }
}
/// The spec of a claim or template never changes.
fn validate_change(claim: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(claim, None, errors, |at| at.get("spec").immutable(&old["spec"]));
    }
}
/// Validates a template: it never changes.
fn validate_template(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        template::metadata_of_template(&spec.get("metadata"));
        device::claim(&spec.get("spec.devices"));
    });
}

/// Validates what a scheduler and drivers report.
fn validate_status(claim: &Value, old: Option<&Value>, errors: &mut Report) {
    let was_allocated = old.is_some_and(|old| !old["status"]["allocation"].is_null());
    check(claim, old, errors, |at| {
        let status = at.get("status");
        let consumers = status.get("reservedFor");
        device::set(&consumers, CONSUMERS_MAX, "uid", |consumer| {
            for member in ["resource", "name", "uid"] {
                consumer.get(member).need();
            }
        });
        reported(&status);
        if consumers.len() > 0 && !status.has("allocation") {
            consumers.forbidden("may not be specified when `allocated` is not set");
        }
    });
    let before = old.map_or(&Value::Null, |old| &old["status"]);
    check(claim, None, errors, |at| {
        let status = at.get("status");
        let Some(allocation) = status.given("allocation") else { return };
        if !claim.deletion_timestamp().is_empty() {
            let stored = crate::kind::list(before, "reservedFor");
            let known: HashSet<_> = stored.iter().map(consumer).collect();
            let mut consumers = status.list_of("reservedFor").iter().map(consumer);
            if !consumers.all(|consumer| known.contains(&consumer)) {
                status.get("reservedFor").forbidden(
                    "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
                );
            }
        }
        // An allocation never changes, so that it is checked once.
        match was_allocated {
            true => allocation.immutable(&before["allocation"]),
            false => allocated(&allocation, &at.get("spec.devices")),
        }
    });
}
/// The identity of an object that uses a claim.
fn consumer(consumer: &Value) -> [&str; 4] {
    ["apiGroup", "resource", "name", "uid"].map(|member| text(consumer, member))
}
fn allocated(at: &At<'_, '_>, claim: &At<'_, '_>) {
    let known = device::requests_of(claim);
    let results = at.get("devices.results");
    if results.at_most(RESULTS_MAX) {
        for result in results.items() {
            device::reference(&result.get("request"), &known);
            format::driver(&result.get("driver"));
            device::pool_name(&result.get("pool"));
            device::name(&result.get("device"));
            device::binding(&result);
            if result.has("shareID") {
                device::share(&result.get("shareID"));
            }
        }
    }
    let configs = at.get("devices.config");
    if configs.at_most(ALLOCATED_CONFIGS_MAX) {
        for config in configs.items() {
            config.get("source").one_of(&["FromClaim", "FromClass"]);
            device::references(&config.get("requests"), &known);
            device::configuration(&config);
        }
    }
    let nodes = at.get("nodeSelector");
    if nodes.is_set() {
        template::node_selector(&nodes, true);
    }
}
/// What drivers report of devices: of allocated ones, each once.
fn reported(status: &At<'_, '_>) {
    let allocated = allocated_devices(status.value);
    let (mut seen, mut twice) = (HashSet::new(), Vec::new());
    for device in status.each("devices") {
        format::driver(&device.get("driver"));
        device::pool_name(&device.get("pool"));
        device::name(&device.get("device"));
        if device.has("shareID") {
            device::share(&device.get("shareID"));
        }
        if !allocated.contains(&identity(device.value)) {
            device.report(|path| field::Error {
                shown: Some(shown(device.value)),
                ..field::Error::invalid(
                    path,
                    &Value::Null,
                    "must be an allocated device in the claim",
                )
            });
        }
        if !seen.insert(identity(device.value)) {
            twice.push((device.path(), shown(device.value)));
        }
        device.get("conditions").at_most(CONDITIONS_MAX);
        conditions(&device.get("conditions"));
        if device.has("data") {
            device::object(&device.get("data"), DATA_BYTES_MAX);
        }
        network(&device.get("networkData"));
    }
    for (path, shown) in twice {
        status.report(|_| field::Error {
            shown: Some(shown),
            ..field::Error::duplicate(path, &Value::Null)
        });
    }
}
/// The identity of a device as the API shows it: a struct of Go.
fn shown(device: &Value) -> String {
    let members = ["Driver", "Pool", "Device", "ShareID"].into_iter().zip(identity(device));
    device::shown(members.map(|(name, value)| (name, Value::from(value))))
}

/// The interface of a network device.
fn network(at: &At<'_, '_>) {
    for (member, most) in
        [("interfaceName", INTERFACE_BYTES_MAX), ("hardwareAddress", HARDWARE_BYTES_MAX)]
    {
        if at.text_of(member).len() > most {
            at.get(member).too_long(most);
        }
    }
    device::set(&at.get("ips"), ADDRESSES_MAX, "", |address| {
        address.faults(address::interface_address(address.text()));
    });
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
