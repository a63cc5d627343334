//! CSIDrivers.
use crate::features::Feature;
use crate::kind::at::check;
use crate::kind::{Context, Fill, FormerVersion, Kind, Members, Report};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use std::collections::HashSet;

/// CSIDriver.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    returns_deleted: true,
    default,
    prepare,
    validate,
    warnings,
    update_warnings,
    warns_with: Some(Feature::CSIServiceAccountTokenSecrets),
    disabled: &[
        (Some(Feature::CSIServiceAccountTokenSecrets), &["spec.serviceAccountTokenInSecrets"]),
        (
            Some(Feature::MutableCSINodeAllocatableCount),
            &["spec.nodeAllocatableUpdatePeriodSeconds"],
        ),
        (Some(Feature::VolumeLimitScaling), &["spec.preventPodSchedulingIfMissing"]),
    ],
    cells: Some(cells),
    rules: "policies, tokens, modes; immutable attachment and modes",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("storage.k8s.io", "CSIDriver")
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("attachRequired", true);
    spec.absent("podInfoOnMount", false);
    spec.absent("storageCapacity", false);
    spec.absent("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.absent("volumeLifecycleModes", json!(["Persistent"]));
    spec.absent("requiresRepublish", false);
    spec.absent("seLinuxMount", false);
}

/// The generation begins with the first change. A member of a feature has its default while that is
/// on.
fn prepare(context: &Context<'_>, driver: &mut Value, old: Option<&Value>) {
    if context.features.is_on(Feature::VolumeLimitScaling)
        && let Some(spec) = driver.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.absent("preventPodSchedulingIfMissing", false);
    }
    let Some(old) = old else { return };
    let stored = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let generation = stored.wrapping_add(i64::from(driver["spec"] != old["spec"]));
    if generation != 0 {
        driver["metadata"]["generation"] = generation.into();
    }
}

/// Tokens in volume attributes may be logged.
fn warnings(driver: &Value) -> Vec<String> {
    let spec = &driver["spec"];
    let has_tokens = spec["tokenRequests"].as_array().is_some_and(|requests| !requests.is_empty());
    if !has_tokens || !spec["serviceAccountTokenInSecrets"].is_null() {
        return Vec::new();
    }
    vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()]
}

fn update_warnings(driver: &Value, old: &Value) -> Vec<String> {
    let tokens = |driver: &Value| driver["spec"].get("tokenRequests").cloned();
    if tokens(driver) == tokens(old) { Vec::new() } else { warnings(driver) }
}

/// Lifetimes of tokens in seconds.
const TOKEN_MIN: i64 = 600;
const TOKEN_MAX: i64 = 1 << 32;
/// The shortest period between two reports of a node's capacity, in seconds.
const PERIOD_MIN: i64 = 10;

/// Validates a driver: whether it attaches and how long its volumes live never changes.
fn validate(driver: &Value, old: Option<&Value>, errors: &mut Report) {
    check(driver, old, errors, |at| {
        let spec = at.get("spec");
        spec.get("fsGroupPolicy").one_of_if_set(&["File", "None", "ReadWriteOnceWithFSType"]);
        let mut audiences = HashSet::new();
        for request in spec.each("tokenRequests") {
            if !audiences.insert(request.text_of("audience")) {
                request.get("audience").duplicate_of(request.text_of("audience"));
                continue;
            }
            let seconds = request.get("expirationSeconds");
            if seconds.int().is_some_and(|seconds| seconds < TOKEN_MIN) {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if seconds.int().is_some_and(|seconds| seconds > TOKEN_MAX) {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
        }
        let modes = spec.get("volumeLifecycleModes");
        for mode in modes.list() {
            modes.with(mode).one_of_if_set(&["Persistent", "Ephemeral"]);
        }
        let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
        if period.int().is_some_and(|seconds| seconds < PERIOD_MIN) {
            period.invalid("must be greater than or equal to 10 seconds");
        }
        let secrets = spec.get("serviceAccountTokenInSecrets");
        if secrets.is_set() && spec.list_of("tokenRequests").is_empty() {
            secrets
                .invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
        }
    });
    if let Some(old) = old {
        check(driver, None, errors, |at| {
            let (spec, before) = (at.get("spec"), &old["spec"]);
            // As the API spells it here.
            spec.shown_as("attachedRequired", spec.get("attachRequired").value)
                .immutable(&before["attachRequired"]);
            spec.get("volumeLifecycleModes").immutable(&before["volumeLifecycleModes"]);
        });
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = cell::at(object, "spec");
    let modes = cell::strings(spec, "volumeLifecycleModes").join(",");
    let tokens = match cell::at(spec, "tokenRequests") {
        Value::Array(tokens) => {
            tokens.iter().map(|token| cell::text(token, "audience")).collect::<Vec<_>>().join(",")
        }
        _ => cell::UNSET.to_owned(),
    };
    let is = |path: &str| Value::from(cell::at(spec, path) == true);
    vec![
        cell::name(object),
        cell::at(spec, "attachRequired").as_bool().unwrap_or(true).into(),
        is("podInfoOnMount"),
        is("storageCapacity"),
        tokens.into(),
        is("requiresRepublish"),
        if modes.is_empty() { cell::NONE.into() } else { modes.into() },
        cell::age(object, now),
    ]
}
