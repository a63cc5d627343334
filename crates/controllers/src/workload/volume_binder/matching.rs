//! Which volume fits a claim. No requests.

use super::{Claim, Volume};
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::quantity::Quantity;
use std::collections::BTreeSet;

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

/// The volume that fits a claim best: one that is reserved for it, or the one with the fewest
/// modes, the smallest capacity, and the first name. If the claim waits for its consumer, only a
/// reserved one.
pub(super) fn best<'v>(
    claim: &Claim,
    volumes: impl Iterator<Item = &'v Volume>,
    waits: bool,
) -> Option<&'v Volume> {
    let requested = storage(&claim.spec["resources"]["requests"]);
    let wanted = modes(&claim.spec);
    // A selector that cannot be read matches nothing.
    let selector = match &claim.spec["selector"] {
        Value::Null => Some(Selector::everything()),
        selector => Selector::from_object(selector).ok().flatten(),
    };
    let is_selected = |volume: &Volume| {
        let labels = volume.metadata.labels.as_ref();
        selector.as_ref().is_some_and(|selector| {
            selector.matches(|label| labels?.get(label).map(String::as_str))
        })
    };
    let fitting = volumes.filter(|volume| {
        let is_free = volume.spec["claimRef"].is_null() || volume.is_bound_to(claim);
        is_free
            && volume.metadata.deletion_timestamp.is_none()
            && !storage(&volume.spec["capacity"]).compare(&requested).is_lt()
            && !volume.has_other_mode(claim)
            && attributes(&volume.spec) == attributes(&claim.spec)
            && wanted.is_subset(&modes(&volume.spec))
    });
    let candidates = fitting.filter(|volume| {
        volume.is_bound_to(claim)
            || !waits
                && volume.status["phase"] == "Available"
                && volume.class() == claim.class()
                && is_selected(volume)
    });
    candidates.min_by(|one, other| {
        let is_other = |volume: &Volume| !volume.is_bound_to(claim);
        let size = |volume: &Volume| storage(&volume.spec["capacity"]);
        is_other(one)
            .cmp(&is_other(other))
            .then_with(|| modes(&one.spec).len().cmp(&modes(&other.spec).len()))
            .then_with(|| size(one).compare(&size(other)))
            .then_with(|| one.name().cmp(other.name()))
    })
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
        let best = |spec: Value, all: &[Volume], waits: bool| {
            let found = super::best(&claim(spec), all.iter(), waits);
            found.map_or("", Volume::name).to_owned()
        };
        assert_eq!(best(json!({}), &all, false), "also");
        assert_eq!(best(json!({}), &all, true), "", "it waits");
        assert_eq!(best(block, &all, false), "block");
        assert_eq!(best(gold, &all, false), "gold");
        assert_eq!(best(json!({"accessModes": ["ReadWriteMany"]}), &all, false), "many");
        let selector = json!({"selector": {"matchLabels": {"v": "large"}}});
        assert_eq!(best(selector, &all, false), "large");
        let large = json!({"resources": {"requests": {"storage": "10Gi"}}});
        assert_eq!(best(large, &all, false), "");
        let reserved = [volume("fits", "3Gi", json!({})), volume("mine", "20Gi", mine)];
        assert_eq!(best(json!({}), &reserved, false), "mine");
        assert_eq!(best(json!({}), &reserved, true), "mine", "also while it waits");
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
