//! What a new cluster lacks of the [roles of the start](super::BOOTSTRAP) where features are off
//! that are on by default. By `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`.

use crate::features::{Feature, FeatureGates};
use serde_json::Value;

use super::Objects;

/// What only a feature gives a role.
#[derive(Debug, Clone, Copy)]
enum Part {
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
const PARTS: [(Feature, &str, Part); 14] = [
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

/// Takes what a new cluster lacks from the objects of the start.
pub(super) fn drop_from(objects: &mut Objects, gates: FeatureGates) {
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

#[cfg(test)]
mod tests {
    use super::super::BOOTSTRAP;
    use super::*;
    use crate::features::{Emulation, Release};

    #[test]
    fn each_part_is_there_and_goes_with_its_feature() {
        let all: Objects = serde_json::from_str(BOOTSTRAP).unwrap();
        assert!(has_all(FeatureGates::default()));
        for (feature, role, part) in PARTS {
            let mut releases = (Release::OLDEST.minor()..=Release::PRESENT.minor()).rev();
            let off = releases.find_map(|minor| {
                let emulation = Emulation::of(Release::of_minor(minor)).unwrap();
                let gates = FeatureGates::emulating(emulation).with(feature, false);
                (!gates.is_on(feature)).then_some(gates)
            });
            assert!(!has_all(off.unwrap()));
            let mut left = all.clone();
            for roles in left.values_mut() {
                roles.retain(|object| object["metadata"]["name"] == role);
            }
            let before = left.clone();
            drop_from(&mut left, off.unwrap());
            assert_ne!(left, before, "{feature:?} {role} {part:?}");
        }
    }

    #[test]
    fn a_role_keeps_its_other_rules() {
        let mut objects: Objects = serde_json::from_str(BOOTSTRAP).unwrap();
        drop_from(&mut objects, FeatureGates::default().with(Feature::ComponentFlagz, false));
        let monitoring =
            objects["clusterroles"].iter().find(|role| role["metadata"]["name"] == MONITORING);
        let paths = &monitoring.unwrap()["rules"][0]["nonResourceURLs"];
        assert!(has(paths, "/statusz") && has(paths, "/livez") && !has(paths, "/flagz"));
    }
}
