//! Which volume fits a claim. No requests.

use super::{Claim, Volume};
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::quantity::Quantity;
use std::collections::BTreeSet;
use std::ops::Range;

/// Number of access modes that there are.
const MODES_MAX: usize = 4;
/// Comes after all names and numbers.
const LAST: char = char::MAX;

/// The amount in `map.storage`; zero if there is none.
pub(super) fn storage(map: &Value) -> Quantity {
    let text = map["storage"].as_str().unwrap_or_default();
    Quantity::parse(text).unwrap_or_default()
}

fn mode(spec: &Value) -> &str {
    spec["volumeMode"].as_str().unwrap_or("Filesystem")
}

fn modes(spec: &Value) -> BTreeSet<&str> {
    spec["accessModes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn attributes(spec: &Value) -> &str {
    spec["volumeAttributesClassName"].as_str().unwrap_or_default()
}

/// The class; empty if there is none. The annotation is older than the field, and goes first.
pub(super) fn class<'a>(annotation: Option<&'a str>, spec: &'a Value) -> &'a str {
    annotation.unwrap_or_else(|| spec["storageClassName"].as_str().unwrap_or_default())
}

impl Volume {
    /// Whether it is reserved for a claim, or bound to it.
    pub(super) fn is_bound_to(&self, claim: &Claim) -> bool {
        let reference = &self.spec["claimRef"];
        let uid = reference["uid"].as_str().unwrap_or_default();
        reference.is_object()
            && reference["name"] == claim.name()
            && reference["namespace"] == claim.namespace()
            && (uid.is_empty() || uid == claim.uid())
    }

    /// Whether its mode differs from the claim's.
    pub(super) fn has_other_mode(&self, claim: &Claim) -> bool {
        mode(&self.spec) != mode(&claim.spec)
    }

    /// Why a volume that a claim names does not fit it. The texts are kube-controller-manager's.
    pub(super) fn mismatch(&self, claim: &Claim) -> Option<String> {
        let requested = storage(&claim.spec["resources"]["requests"]);
        if self.metadata.deletion_timestamp.is_some() {
            return Some(format!("the volume is marked for deletion {:?}", self.name()));
        }
        let why = if storage(&self.spec["capacity"]).compare(&requested).is_lt() {
            "requested PV is too small"
        } else if self.class() != claim.class() {
            "storageClassName does not match"
        } else if attributes(&self.spec) != attributes(&claim.spec) {
            "volumeAttributesClassName does not match"
        } else if self.has_other_mode(claim) {
            "incompatible volumeMode"
        } else if !modes(&claim.spec).is_subset(&modes(&self.spec)) {
            "incompatible accessMode"
        } else {
            return None;
        };
        Some(why.to_owned())
    }
}

/// A claim, and what it asks of volumes.
pub(super) struct Wanted<'c> {
    claim: &'c Claim,
    size: Quantity,
    modes: BTreeSet<&'c str>,
    /// `None`: cannot be read, matches nothing.
    selector: Option<Selector>,
}

impl<'c> Wanted<'c> {
    pub(super) fn by(claim: &'c Claim) -> Self {
        let selector = match &claim.spec["selector"] {
            Value::Null => Some(Selector::everything()),
            selector => Selector::from_object(selector).ok().flatten(),
        };
        let size = storage(&claim.spec["resources"]["requests"]);
        Self { claim, size, modes: modes(&claim.spec), selector }
    }

    /// Whether a volume has the size, the modes and the attributes.
    fn is_met_by(&self, volume: &Volume) -> bool {
        volume.metadata.deletion_timestamp.is_none()
            && !storage(&volume.spec["capacity"]).compare(&self.size).is_lt()
            && !volume.has_other_mode(self.claim)
            && attributes(&volume.spec) == attributes(&self.claim.spec)
            && self.modes.is_subset(&modes(&volume.spec))
    }

    /// Whether a volume that is free may be bound to the claim.
    pub(super) fn is_met_by_free(&self, volume: &Volume) -> bool {
        let labels = volume.metadata.labels.as_ref();
        let is_selected =
            |selector: &Selector| selector.matches(|label| labels?.get(label).map(String::as_str));
        volume.spec["claimRef"].is_null()
            && volume.phase() == "Available"
            && volume.class() == self.claim.class()
            && self.is_met_by(volume)
            && self.selector.as_ref().is_some_and(is_selected)
    }

    /// The best of the volumes that are reserved for the claim: the one with the fewest modes, the
    /// smallest capacity, and the first name.
    pub(super) fn reserved<'v>(
        &self,
        volumes: impl Iterator<Item = &'v Volume>,
    ) -> Option<&'v Volume> {
        let fitting =
            volumes.filter(|volume| volume.is_bound_to(self.claim) && self.is_met_by(volume));
        fitting.min_by_key(|volume| (rank(volume), volume.name()))
    }

    /// The ranges of the index of free volumes that may be bound to the claim: by the number of
    /// their modes, and in them by capacity and name. So the first one that fits is the best.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<String>> {
        let group = group(self.claim.class(), &self.claim.spec);
        let size = sortable(&self.size);
        let fewest = self.modes.len().max(1);
        (fewest..=MODES_MAX)
            .map(move |n| format!("{group}{n}\0{size}")..format!("{group}{n}\0{LAST}"))
    }
}

/// The function of the index of free volumes: groups of those that the same claims ask for, in them
/// by the number of modes and by capacity.
pub(super) fn by_capacity(volume: &Volume) -> Vec<String> {
    if !volume.spec["claimRef"].is_null() {
        return Vec::new();
    }
    let group = group(volume.class(), &volume.spec);
    vec![format!("{group}{}", rank(volume))]
}

/// The order of volumes that fit, as text: by the number of modes and by capacity.
fn rank(volume: &Volume) -> String {
    let n_modes = modes(&volume.spec).len().clamp(1, MODES_MAX);
    format!("{n_modes}\0{}", sortable(&storage(&volume.spec["capacity"])))
}

/// The function of the index of claims without a volume: the same groups, in them by what the
/// claims ask for.
pub(super) fn by_request(claim: &Claim) -> Vec<String> {
    if !claim.volume().is_empty() {
        return Vec::new();
    }
    let size = sortable(&storage(&claim.spec["resources"]["requests"]));
    vec![format!("{}{size}", group(claim.class(), &claim.spec))]
}

/// The range of the index of claims without a volume that a volume is large enough for.
pub(super) fn requests_of(volume: &Volume) -> Range<String> {
    let group = group(volume.class(), &volume.spec);
    let size = sortable(&storage(&volume.spec["capacity"]));
    group.clone()..format!("{group}{size}{LAST}")
}

/// The range of the index of claims without a volume that are of a class.
pub(super) fn requests_of_class(class: &str) -> Range<String> {
    format!("{class}\0")..format!("{class}\0{LAST}")
}

/// What a volume and its claim have in common.
fn group(class: &str, spec: &Value) -> String {
    format!("{class}\0{}\0{}\0", mode(spec), attributes(spec))
}

/// An amount of bytes, sorted as text. Those of a byte are one.
fn sortable(size: &Quantity) -> String {
    format!("{:019}", size.value().max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(spec: Value) -> Claim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
        });
        for (member, value) in spec.as_object().unwrap() {
            claim["spec"][member] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn volume(name: &str, size: &str, spec: Value) -> Volume {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"v": name}},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}},
            "status": {"phase": "Available"},
        });
        for (member, value) in spec.as_object().unwrap() {
            volume["spec"][member] = value.clone();
        }
        serde_json::from_value(volume).unwrap()
    }

    #[test]
    fn smallest_volume_that_fits_is_best() {
        let other = json!({"claimRef": {"namespace": "n", "name": "x"}});
        let block = json!({"volumeMode": "Block"});
        let many = json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]});
        let gold = json!({"storageClassName": "gold"});
        let mine = json!({"claimRef": {"namespace": "n", "name": "c"}});
        let all = [
            volume("small", "1Gi", json!({})),
            volume("large", "9Gi", json!({})),
            volume("fits", "3Gi", json!({})),
            volume("also", "3Gi", json!({})),
            volume("taken", "2Gi", other),
            volume("block", "2Gi", block.clone()),
            volume("many", "2Gi", many),
            volume("gold", "2Gi", gold.clone()),
        ];
        let best = |spec: Value, all: &[Volume]| {
            let claim = claim(spec);
            let wanted = Wanted::by(&claim);
            let mut free: Vec<_> = all
                .iter()
                .flat_map(|v| by_capacity(v).into_iter().map(move |at| (at, v)))
                .collect();
            free.sort_by(|one, other| (&one.0, one.1.name()).cmp(&(&other.0, other.1.name())));
            let within = |range: Range<String>| {
                free.iter().filter(move |(at, _)| range.contains(at)).map(|(_, volume)| *volume)
            };
            let fitting = |volume: &&Volume| wanted.is_met_by_free(volume);
            let found = wanted
                .reserved(all.iter())
                .or_else(|| wanted.ranges().flat_map(within).find(fitting));
            // A volume finds its claims, too.
            if let Some(found) = found.filter(|volume| volume.spec["claimRef"].is_null()) {
                assert!(requests_of(found).contains(&by_request(&claim)[0]));
            }
            assert!(requests_of_class(claim.class()).contains(&by_request(&claim)[0]));
            found.map_or("", Volume::name).to_owned()
        };
        assert_eq!(best(json!({}), &all), "also");
        assert_eq!(best(block, &all), "block");
        assert_eq!(best(gold, &all), "gold");
        assert_eq!(best(json!({"accessModes": ["ReadWriteMany"]}), &all), "many");
        let selector = json!({"selector": {"matchLabels": {"v": "large"}}});
        assert_eq!(best(selector, &all), "large");
        let large = json!({"resources": {"requests": {"storage": "10Gi"}}});
        assert_eq!(best(large, &all), "");
        let reserved = [volume("fits", "3Gi", json!({})), volume("mine", "20Gi", mine)];
        assert_eq!(best(json!({}), &reserved), "mine");
    }

    #[test]
    fn mismatches_have_names() {
        for (spec, why) in [
            (json!({}), None),
            (
                json!({"resources": {"requests": {"storage": "4Gi"}}}),
                Some("requested PV is too small"),
            ),
            (json!({"storageClassName": "x"}), Some("storageClassName does not match")),
            (json!({"volumeMode": "Block"}), Some("incompatible volumeMode")),
            (json!({"accessModes": ["ReadWriteMany"]}), Some("incompatible accessMode")),
        ] {
            let found = volume("v", "3Gi", json!({})).mismatch(&claim(spec));
            assert_eq!(found.as_deref(), why);
        }
    }
}
