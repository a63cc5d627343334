//! The rules of autoscalers: bounds, target, metrics and behavior.
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::{Report, resources, text};
use serde_json::Value;
use setpoint_object::name;

/// The longest period of a policy, and the longest stabilization window, in seconds.
const PERIOD_MAX: i64 = 1800;
const WINDOW_MAX: i64 = 3600;

/// Validates a new or changed autoscaler.
pub(super) fn validate(autoscaler: &Value, old: Option<&Value>, errors: &mut Report) {
    check(autoscaler, old, errors, |at| {
        let spec = at.get("spec");
        let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
        let may_be_zero = spec.is_on(Feature::HPAScaleToZero) || least.stored() == 0;
        let bound = i64::from(!may_be_zero);
        if least.int().is_some_and(|least| least < bound) {
            least.invalid(format!("must be greater than or equal to {bound}"));
        }
        match spec.int_of("maxReplicas") {
            0 => most.required("must be set and greater than 0"),
            n if n < 0 => most.invalid("must be greater than or equal to 1"),
            _ => {}
        }
        if least.int().is_some_and(|least| spec.int_of("maxReplicas") < least) {
            most.invalid_as(
                &spec.int_of("maxReplicas").into(),
                "must be greater than or equal to `minReplicas`",
            );
        }
        let target = spec.get("scaleTargetRef");
        reference(&target);
        let version = target.get("apiVersion");
        let group = version.text().rsplit_once('/').map_or("", |(group, _)| group);
        // The only kind of the core group that can be scaled.
        if group.is_empty() && target.text_of("kind") != "ReplicationController" {
            version.invalid_as(&version.text().into(), "apiVersion must specify API group");
        }
        for metric in spec.each("metrics") {
            validate_metric(&metric);
        }
        let can_wake = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
        if least.int() == Some(0) && !spec.list_of("metrics").iter().any(can_wake) {
            spec.get("metrics").forbidden(
                "must specify at least one Object or External metric to support scaling to zero replicas",
            );
        }
        for direction in ["scaleUp", "scaleDown"] {
            if let Some(rules) = spec.get("behavior").given(direction) {
                scaling(&rules);
            }
        }
    });
}

/// Validates a write through `/status`.
pub(super) fn validate_status(autoscaler: &Value, old: Option<&Value>, errors: &mut Report) {
    check(autoscaler, old, errors, |at| {
        for member in ["status.currentReplicas", "status.desiredReplicas"] {
            at.get(member).not_negative();
        }
    });
}

fn reference(at: &At<'_, '_>) {
    at.get("kind").named(name::path_segment);
    at.get("name").named(name::path_segment);
    let version = at.get("apiVersion");
    if version.text().matches('/').count() > 1 {
        let shown = version.text();
        version.invalid(format!("unexpected GroupVersion string: {shown}"));
    }
}

/// The sources of metrics, and the member of each.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn validate_metric(at: &At<'_, '_>) {
    let kind = at.get("type");
    kind.need_for("must specify a metric source type");
    let names = SOURCES.map(|(name, _)| name);
    kind.choice(&names);
    let expected = SOURCES.into_iter().find(|(name, _)| *name == kind.text());
    let order = ["object", "external", "pods", "resource", "containerResource"];
    if let Some(member) = order.into_iter().find(|member| at.has(member)) {
        validate_source(&at.get(member), member);
    }
    // The API reports an unknown type again here.
    let Some((_, expected)) = expected else {
        kind.choice(&names);
        return forbid_others(at, "", &order);
    };
    if !at.has(expected) {
        at.get(expected).required("must populate information for the given metric source");
    }
    forbid_others(at, expected, &order);
}

/// One source, that of the type.
fn forbid_others(at: &At<'_, '_>, expected: &str, order: &[&'static str]) {
    let n_given = order.iter().filter(|member| at.has(member)).count();
    if n_given != 1 {
        for member in order.iter().filter(|member| **member != expected && at.has(member)) {
            at.get(member).forbidden("must populate the given metric source only");
        }
    }
}

fn validate_source(at: &At<'_, '_>, member: &str) {
    let target = at.get("target");
    let by_name = |detail: &str| {
        let name = at.get("metric.name");
        if name.need_for(detail) {
            name.faults(name::path_segment(name.text()));
        }
    };
    match member {
        "object" | "external" | "pods" => {
            if member == "object" {
                reference(&at.get("describedObject"));
            }
            by_name("must specify a metric name");
        }
        _ => {
            let resource = at.get("name");
            if resource.need_for("must specify a resource name") && member == "containerResource" {
                resources::container_name(&resource, resource.text());
            }
            let container = at.get("container");
            if member == "containerResource" && container.need_for("must specify a container") {
                container.faults(name::dns1123_label(container.text()));
            }
        }
    }
    validate_target(&target);
    let (value, average) = (target.get("value"), target.get("averageValue"));
    let utilization = target.get("averageUtilization");
    match member {
        "object" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        "external" if value.is_set() && average.is_set() => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.is_set() => {
            average.required("must specify a positive target averageValue");
        }
        "resource" | "containerResource" => match (utilization.is_set(), average.is_set()) {
            (false, false) => {
                utilization.required("must set either a target raw value or a target utilization");
            }
            (true, true) => {
                average.forbidden("may not set both a target raw value and a target utilization");
            }
            _ => {}
        },
        _ => {}
    }
}

fn validate_target(at: &At<'_, '_>) {
    let kind = at.get("type");
    kind.need_for("must specify a metric target type");
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        let shown = kind.text().into();
        kind.invalid_as(&shown, "must be either Utilization, Value, or AverageValue");
    }
    for member in ["value", "averageValue"] {
        resources::positive(&at.get(member), "must be positive");
    }
    at.get("averageUtilization").positive("must be greater than 0");
}

fn scaling(rules: &At<'_, '_>) {
    let window = rules.get("stabilizationWindowSeconds");
    if let Some(seconds) = window.int() {
        if seconds < 0 {
            window.invalid("must be greater than or equal to zero");
        }
        if seconds > WINDOW_MAX {
            window.invalid(format!("must be less than or equal to {WINDOW_MAX}"));
        }
    }
    rules.get("selectPolicy").one_of_if_set(&["Disabled", "Max", "Min"]);
    let policies = rules.get("policies");
    policies.need_for("must specify at least one Policy");
    for policy in policies.items() {
        policy.get("type").choice(&["Percent", "Pods"]);
        for member in ["value", "periodSeconds"] {
            let number = policy.int_of(member);
            if number <= 0 {
                policy.get(member).invalid_as(&number.into(), "must be greater than zero");
            }
        }
        if policy.int_of("periodSeconds") > PERIOD_MAX {
            policy
                .get("periodSeconds")
                .invalid(format!("must be less than or equal to {PERIOD_MAX}"));
        }
    }
    resources::not_negative(&rules.get("tolerance"));
}
