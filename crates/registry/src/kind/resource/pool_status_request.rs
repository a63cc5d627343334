//! ResourcePoolStatusRequests: a question about the devices of pools, answered in the status.
use super::STORAGE_ALPHA;
use crate::kind::at::{At, check, same};
use crate::kind::condition::conditions;
use crate::kind::{Fill, Kind, MetadataChecks, Report, StatusMeta, format};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

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

fn validate(request: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_none() {
        check(request, None, errors, |at| {
            let spec = at.get("spec");
            driver(&spec.get("driver"));
            if spec.has("poolName") {
                pool_name(&spec.get("poolName"));
            }
            let limit = spec.get("limit");
            at_least(&limit, 1, false);
            if limit.int().is_some_and(|limit| limit > POOLS_MAX as i64) {
                limit.invalid(format!("must be less than or equal to {POOLS_MAX}"));
            }
        });
    }
}
fn validate_change(request: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(request, None, errors, |at| {
            let spec = at.get("spec");
            if !same(spec.value, &old["spec"]) {
                // The API does not show a struct here.
                spec.invalid_as(&Value::Null, "field is immutable");
            }
        });
    }
}

fn validate_status(request: &Value, old: Option<&Value>, errors: &mut Report) {
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
    driver(&pool.get("driver"));
    if pool.get("poolName").need() {
        pool_name(&pool.get("poolName"));
    }
    let generation = pool.get("generation");
    match generation.int().unwrap_or(0) {
        0 => generation.required(""),
        _ => at_least(&generation, 0, false),
    }
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
/// The name of a driver, in any case.
fn driver(at: &At<'_, '_>) {
    if at.need() && !format::caseless_subdomain(at.text()).is_empty() {
        at.invalid("an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')");
    }
}
/// Subdomains with slashes between them. Messages count them.
fn pool_name(at: &At<'_, '_>) {
    if at.text().len() > name::SUBDOMAIN_MAX {
        at.too_long(name::SUBDOMAIN_MAX);
    }
    for (n, part) in at.text().split('/').enumerate() {
        if part.is_empty() {
            at.invalid(format!("segment {n}: must not be empty"));
            continue;
        }
        for fault in name::dns1123_subdomain(part) {
            at.invalid_as(&part.into(), format!("segment {n}: {fault}"));
        }
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
    let has_counts = cell::has(request, "status") && !has_failed;
    let shown = |count: i64| if has_counts { count.to_string() } else { "-".to_owned() };
    let sum = |devices: &str| shown(pools.iter().map(|pool| cell::int(pool, devices)).sum());
    let n_errors = pools.iter().filter(|pool| cell::has(pool, "validationError")).count();
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
        shown(n_errors as i64).into(),
        n_pools.into(),
        status.into(),
        completed.into(),
    ]
}
