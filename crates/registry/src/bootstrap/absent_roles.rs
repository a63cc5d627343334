//! What a new cluster lacks of the roles of the start where features are off that are on by
//! default. By `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`.

use crate::features::{Feature, FeatureGates};
use serde_json::Value;
use std::collections::BTreeMap;

/// What only a feature gives a role.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// All of it, and its binding.
    Whole,
    /// The rules of a group.
    Group(&'static str),
    /// The rules of a resource with a verb, whose name is enough in the role.
    Verb(&'static str, &'static str),
    /// A path that is no resource.
    Path(&'static str),
}

use Part::{Group, Path, Verb, Whole};

const DEVICES: &str = "resource.k8s.io";
const SCHEDULER: &str = "system:kube-scheduler";
const CLAIMS: &str = "system:controller:resource-claim-controller";
const TAINTS: &str = "system:controller:device-taint-eviction-controller";
const MONITORING: &str = "system:monitoring";

/// What features give roles.
pub(crate) const PARTS: [(Feature, &str, Part); 14] = [
    (Feature::ComponentFlagz, MONITORING, Path("/flagz")),
    (Feature::ComponentStatusz, MONITORING, Path("/statusz")),
    (Feature::DRADeviceTaints, TAINTS, Whole),
    (Feature::DRAExtendedResource, SCHEDULER, Verb("resourceclaims", "create")),
    (
        Feature::DRAResourceClaimGranularStatusAuthorization,
        CLAIMS,
        Verb("resourceclaims/binding", "patch"),
    ),
    (
        Feature::DRAResourceClaimGranularStatusAuthorization,
        SCHEDULER,
        Verb("resourceclaims/binding", "patch"),
    ),
    (Feature::DynamicResourceAllocation, "system:aggregate-to-edit", Group(DEVICES)),
    (Feature::DynamicResourceAllocation, "system:aggregate-to-view", Group(DEVICES)),
    (Feature::DynamicResourceAllocation, CLAIMS, Whole),
    (Feature::DynamicResourceAllocation, TAINTS, Whole),
    (Feature::DynamicResourceAllocation, SCHEDULER, Group(DEVICES)),
    (Feature::DynamicResourceAllocation, SCHEDULER, Verb("pods/finalizers", "update")),
    (Feature::DynamicResourceAllocation, "system:node", Group(DEVICES)),
    (
        Feature::VolumeAttributesClass,
        "system:controller:volumeattributesclass-protection-controller",
        Whole,
    ),
];

/// The parts of features that are off.
fn parts(gates: FeatureGates) -> impl Iterator<Item = (&'static str, Part)> {
    let off = PARTS.iter().filter(move |(feature, ..)| !gates.is_on(*feature));
    off.map(|(_, role, part)| (*role, *part))
}

/// Whether a new cluster has all roles of the start.
pub(crate) fn has_all(gates: FeatureGates) -> bool {
    parts(gates).next().is_none()
}

/// Takes what a new cluster lacks from the roles and bindings of the start, by resource.
pub(crate) fn drop_from(objects: &mut BTreeMap<String, Vec<Value>>, gates: FeatureGates) {
    for (role, part) in parts(gates) {
        for (resource, all) in &mut *objects {
            match part {
                Whole => all.retain(|object| object["metadata"]["name"] != role),
                _ if resource != "clusterroles" => {}
                _ => {
                    let is_role = |object: &&mut Value| object["metadata"]["name"] == role;
                    if let Some(role) = all.iter_mut().find(is_role) {
                        drop_rules(role, part);
                    }
                }
            }
        }
    }
}

fn drop_rules(role: &mut Value, part: Part) {
    let Some(rules) = role["rules"].as_array_mut() else { return };
    rules.retain_mut(|rule| match part {
        Whole => false,
        Group(group) => !has(&rule["apiGroups"], group),
        Verb(resource, verb) => !has(&rule["resources"], resource) || !has(&rule["verbs"], verb),
        Path(path) => match rule["nonResourceURLs"].as_array_mut() {
            Some(paths) => {
                paths.retain(|known| known != path);
                !paths.is_empty()
            }
            None => true,
        },
    });
}

fn has(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|item| item == wanted)
}
