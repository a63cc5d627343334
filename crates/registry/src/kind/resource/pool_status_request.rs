//! ResourcePoolStatusRequests: a question about the devices of pools, answered in the status.
use super::{STORAGE_ALPHA, device};
use crate::kind::at::{At, check};
use crate::kind::condition::conditions;
use crate::kind::{Fill, Kind, MetadataChecks, StatusMeta, format};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// ResourcePoolStatusRequest.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: STORAGE_ALPHA,
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    unconditional_update: false,
    default: |request, _| {
        if let Some(spec) = request.object("spec") {
            spec.absent("limit", POOLS_BY_DEFAULT);
        }
    },
    validate,
    validate_change,
    validate_status,
    cells: Some(cells),
    rules: "driver, pool, limit; immutable; `status`, which is set once",
    ..Kind::with_status("resource.k8s.io", "ResourcePoolStatusRequest", StatusMeta::Identity, "")
};

const POOLS_BY_DEFAULT: i64 = 100;
const POOLS_MAX: usize = 1000;
const CONDITIONS_MAX: usize = 10;
const ERROR_BYTES_MAX: usize = 256;

fn validate(request: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    if old.is_none() {
        check(request, None, errors, |at| {
            let spec = at.get("spec");
            spec.get("driver").named(format::caseless_subdomain);
            if spec.has("poolName") {
                device::pool_name(&spec.get("poolName"));
            }
            spec.get("limit").between(1, POOLS_MAX as i64);
        });
    }
}
fn validate_change(request: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    if let Some(old) = old {
        check(request, None, errors, |at| at.get("spec").immutable(&old["spec"]));
    }
}

fn validate_status(request: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let before = old.map_or(&Value::Null, |old| &old["status"]);
    check(request, None, errors, |at| {
        let status = at.get("status");
        if !before.is_null() {
            return status.immutable(before);
        }
        if !status.is_set() {
            return;
        }
        let list = status.get("conditions");
        conditions(&list);
        list.at_most(CONDITIONS_MAX);
        at_least(&status.get("poolCount"), 0, true);
        let pools = status.get("pools");
        if pools.at_most(POOLS_MAX) {
            pools.items().for_each(|at| pool(&at));
        }
    });
}
/// The devices of one pool.
fn pool(pool: &At<'_, '_>) {
    pool.get("driver").named(format::caseless_subdomain);
    device::pool_name(&pool.get("poolName"));
    at_least(&pool.get("generation"), 0, false);
    at_least(&pool.get("resourceSliceCount"), 1, false);
    for devices in ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"] {
        at_least(&pool.get(devices), 0, false);
    }
    pool.get("nodeName").formed(name::dns1123_subdomain);
    let error = pool.get("validationError");
    if error.text().len() > ERROR_BYTES_MAX {
        error.too_long(ERROR_BYTES_MAX);
    }
}
fn at_least(at: &At<'_, '_>, lowest: i64, is_required: bool) {
    match at.int() {
        None if is_required => at.required(""),
        Some(number) if number < lowest => {
            at.invalid(format!("must be greater than or equal to {lowest}"));
        }
        _ => {}
    }
}

fn cells(request: &Value, now: Timestamp) -> Vec<Value> {
    let pools = cell::list(request, "status.pools");
    let is_true = |ty: &str| cell::condition_is_true(request, ty);
    let (is_complete, has_failed) = (is_true("Complete"), is_true("Failed"));
    let n_pools = cell::int(request, "status.poolCount");
    let sum = |devices: &str| -> String {
        match cell::has(request, "status") && !has_failed {
            false => "-".to_owned(),
            true => pools.iter().map(|pool| cell::int(pool, devices)).sum::<i64>().to_string(),
        }
    };
    let n_errors = match cell::has(request, "status") && !has_failed {
        false => "-".to_owned(),
        true => pools.iter().filter(|pool| cell::has(pool, "validationError")).count().to_string(),
    };
    let n_shown = pools.len();
    let status = match (is_complete, has_failed) {
        (true, _) if n_pools > n_shown as i64 => format!("Complete ({n_shown}/{n_pools} pools)"),
        (true, _) => "Complete".to_owned(),
        (false, true) => "Failed".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    let completed = cell::condition(request, "status.conditions", "Complete")
        .filter(|_| is_complete)
        .map_or(cell::NONE.to_owned(), |condition| {
            age::age_of(cell::text(condition, "lastTransitionTime"), now)
        });
    vec![
        cell::name(request),
        cell::text(request, "spec.driver").into(),
        sum("totalDevices").into(),
        sum("availableDevices").into(),
        sum("allocatedDevices").into(),
        sum("unavailableDevices").into(),
        n_errors.into(),
        n_pools.into(),
        status.into(),
        completed.into(),
    ]
}
