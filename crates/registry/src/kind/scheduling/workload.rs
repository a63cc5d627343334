//! Workloads: templates of the PodGroups of one application.
use super::policy::{featured, immutable, is_same, policy, unique};
use crate::features::Feature;
use crate::kind::at::check;
use crate::kind::{Context, Kind, Report, list};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::{field, name};

/// Workload.
pub(in crate::kind) static KIND: Kind = Kind {
    prepare,
    validate,
    validate_change,
    cells: Some(cell::name_and_age),
    rules: "controller, templates of groups; immutable",
    ..Kind::plain("scheduling.k8s.io", "Workload")
};

const TEMPLATES_MAX: usize = 8;

/// Members of a template that belong to features.
const FEATURED: [(&str, Feature); 5] = [
    (SHOWN, Feature::TopologyAwareWorkloadScheduling),
    ("resourceClaims", Feature::DRAWorkloadResourceClaims),
    ("disruptionMode", Feature::WorkloadAwarePreemption),
    ("priorityClassName", Feature::WorkloadAwarePreemption),
    ("priority", Feature::WorkloadAwarePreemption),
];
const SHOWN: &str = "schedulingConstraints";

/// A template keeps a member of a feature that is off only if the stored template in its place has
/// it.
fn prepare(context: &Context<'_>, workload: &mut Value, old: Option<&Value>) {
    let stored = old.map_or(&[][..], |old| list(&old["spec"], "podGroupTemplates"));
    let templates = workload.pointer_mut("/spec/podGroupTemplates").and_then(Value::as_array_mut);
    for (i, template) in templates.into_iter().flatten().enumerate() {
        let Some(members) = template.as_object_mut() else { continue };
        let has = |member: &str| {
            stored.get(i).is_some_and(|stored| !is_same(&stored[member], &Value::Null))
        };
        let is_off = |member: &str| {
            let feature = FEATURED.iter().find(|(name, _)| *name == member);
            feature.is_some_and(|(_, feature)| !context.features.is_on(*feature))
        };
        members.retain(|member, _| !is_off(member) || has(member));
        // Of these members, the one that the API shows when it is not set.
        members.entry(SHOWN).or_insert(Value::Null);
    }
}

fn validate(workload: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_some() {
        return;
    }
    check(workload, None, errors, |at| {
        let spec = at.get("spec");
        if let Some(controller) = spec.given("controllerRef") {
            controller.get("apiGroup").named_if_set(name::long_name);
            controller.get("kind").named(name::path_segment);
            controller.get("name").named(name::path_segment);
        }
        let templates = spec.get("podGroupTemplates");
        if templates.at_most(TEMPLATES_MAX) && templates.need() {
            unique(&templates, |template| {
                let shown = shown(template.value);
                template.report(|path| field::Error {
                    shown: Some(shown),
                    ..field::Error::duplicate(path, &Value::Null)
                });
            });
            for template in templates.items() {
                template.get("name").named(name::short_name);
                policy(&template.get("schedulingPolicy"));
                featured(&template);
            }
        }
    });
}

/// A new template as the API shows it: in the order of a Go struct.
fn shown(template: &Value) -> String {
    let given = &template["schedulingPolicy"];
    let mut policy = json!({});
    if !given["basic"].is_null() {
        policy["basic"] = json!({});
    }
    if !given["gang"].is_null() {
        let count = given["gang"]["minCount"].as_i64().unwrap_or(0);
        policy["gang"] = json!({"minCount": count});
    }
    let name = field::quote(crate::kind::text(template, "name"));
    let policy = field::show(&policy);
    format!("{{\"name\":{name},\"schedulingPolicy\":{policy},\"schedulingConstraints\":null}}")
}

fn validate_change(workload: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return };
    check(workload, None, errors, |at| {
        let spec = at.get("spec");
        immutable(&spec.get("controllerRef"), &old["spec"]["controllerRef"]);
        let (templates, stored) =
            (spec.get("podGroupTemplates"), &old["spec"]["podGroupTemplates"]);
        if !is_same(templates.value, stored) {
            immutable(&templates, stored);
            _ = templates.at_most(TEMPLATES_MAX) && templates.need();
        }
    });
}
