//! PodGroups: pods that are scheduled together.
use super::policy::{featured, immutable, is_same, policy, union, unique};
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::condition::conditions;
use crate::kind::{Context, Kind, Members, Report, StatusMeta, StatusRule, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// PodGroup.
pub(in crate::kind) static KIND: Kind = Kind {
    status: Some(StatusRule {
        owned_through_main: true,
        ..StatusRule::new(StatusMeta::Identity, "{}")
    }),
    prepare,
    prepare_status,
    validate,
    validate_change,
    validate_status,
    disabled: &[
        (Some(Feature::TopologyAwareWorkloadScheduling), &["spec.schedulingConstraints"]),
        (Some(Feature::DRAWorkloadResourceClaims), &["spec.resourceClaims"]),
        (Some(Feature::WorkloadAwarePreemption), &["spec.priorityClassName"]),
        (Some(Feature::WorkloadAwarePreemption), &["spec.priority"]),
    ],
    cells: Some(cells),
    rules: "template, policy; immutable; `status`",
    ..Kind::plain("scheduling.k8s.io", "PodGroup")
};

/// Maximum number of resource claims of a group.
const CLAIMS_MAX: usize = 4;
/// The mode of disruption of a group without one. Others belong to a feature.
const BY_POD: &str = "Pod";

fn prepare(context: &Context<'_>, group: &mut Value, old: Option<&Value>) {
    if old.is_none()
        && !context.features.is_on(Feature::WorkloadAwarePreemption)
        && let Some(spec) = spec_of(group)
    {
        spec.insert("disruptionMode".to_owned(), BY_POD.into());
    }
}
fn spec_of(group: &mut Value) -> Option<&mut Members> {
    group
        .as_object_mut()?
        .entry("spec")
        .or_insert_with(|| Value::Object(Members::new()))
        .as_object_mut()
}

/// Claims in the status belong to a feature. While it is off, they stay if the group has claims.
fn prepare_status(context: &Context<'_>, group: &mut Value, old: &Value) {
    let has_claims = context.features.is_on(Feature::DRAWorkloadResourceClaims);
    if !has_claims
        && list(&old["spec"], "resourceClaims").is_empty()
        && let Some(status) = group.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("resourceClaimStatuses");
    }
}

fn validate(group: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_some() {
        return;
    }
    check(group, None, errors, |at| {
        let spec = at.get("spec");
        if let Some(reference) = spec.given("podGroupTemplateRef") {
            union(&reference, &["workload"]);
            if let Some(template) = reference.given("workload") {
                template.get("workloadName").named(name::long_name);
                template.get("podGroupTemplateName").named(name::short_name);
            }
        }
        policy(&spec.get("schedulingPolicy"));
        featured(&spec);
    });
}

fn validate_change(group: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old.map(|old| &old["spec"]) else { return };
    check(group, None, errors, |at| {
        let spec = at.get("spec");
        immutable(&spec.get("podGroupTemplateRef"), &old["podGroupTemplateRef"]);
        immutable(&spec.get("schedulingPolicy"), &old["schedulingPolicy"]);
        // What is left of features that are off can only be removed, but for claims.
        let keeps = |member: &str, feature: Feature| {
            let (new, old) = (spec.get(member), &old[member]);
            if spec.is_on(feature) {
                return immutable(&new, old);
            }
            // An empty mode is one that is set.
            let is_set = new.value != "" || member == "disruptionMode";
            if new.is_set() && is_set && !is_same(new.value, old) {
                new.forbidden("");
            }
        };
        keeps("schedulingConstraints", Feature::TopologyAwareWorkloadScheduling);
        let (claims, stored) = (spec.get("resourceClaims"), &old["resourceClaims"]);
        if !is_same(claims.value, stored) {
            immutable(&claims, stored);
            claims.at_most(CLAIMS_MAX);
        }
        for member in ["disruptionMode", "priorityClassName", "priority"] {
            keeps(member, Feature::WorkloadAwarePreemption);
        }
    });
}

fn validate_status(group: &Value, old: Option<&Value>, errors: &mut Report) {
    let stored = old.map_or(&Value::Null, |old| &old["status"]["resourceClaimStatuses"]);
    check(group, None, errors, |at| {
        conditions(&at.get("status.conditions"));
        let claims = at.get("status.resourceClaimStatuses");
        let known = at.list_of("spec.resourceClaims");
        for claim in claims.items() {
            let name = claim.get("name");
            if !known.iter().any(|known| text(known, "name") == name.text()) {
                let why = "must match the name of an entry in `spec.resourceClaims`";
                name.invalid_as(&name.text().into(), why);
            }
        }
        if !is_same(claims.value, stored) && claims.at_most(CLAIMS_MAX) {
            each_claim(&claims, stored);
        }
    });
}
/// Each claim has a name of its own. Those that are stored are not checked again.
fn each_claim(claims: &At<'_, '_>, stored: &Value) {
    unique(claims, |claim| claim.duplicate());
    let stored = stored.as_array().map_or(&[][..], Vec::as_slice);
    for claim in claims.items().filter(|claim| !stored.contains(claim.value)) {
        claim.get("resourceClaimName").formed(name::long_name);
    }
}

fn cells(group: &Value, now: Timestamp) -> Vec<Value> {
    let condition = |kind: &str| cell::condition(group, "status.conditions", kind);
    let policy = if cell::has(group, "spec.schedulingPolicy.gang") { "Gang" } else { "Basic" };
    let status = match (condition("DisruptionTarget"), condition("PodGroupScheduled")) {
        (Some(condition), _) => text(condition, "reason"),
        (None, Some(condition)) if text(condition, "status") == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    };
    let workload = match cell::has(group, "spec.podGroupTemplateRef.workload") {
        true => cell::text(group, "spec.podGroupTemplateRef.workload.workloadName"),
        false => cell::NONE,
    };
    vec![cell::name(group), policy.into(), workload.into(), status.into(), cell::age(group, now)]
}
