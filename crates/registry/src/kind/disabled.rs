//! Members of features that are off. They are dropped from what clients send, as kube-apiserver
//! does, so that an object is the same on both.
use super::Kind;
use crate::features::{Feature, FeatureGates};
use serde_json::Value;
use std::collections::HashSet;

/// Members that only a feature keeps; `None`: nothing keeps them. Paths as `spec.items[].name`,
/// with `*` for any key, and `name!text` for a member with another text. If the stored object uses
/// one of them, all stay.
pub type Disabled = (Option<Feature>, &'static [&'static str]);

/// The members of pods.
const OF_PODS: [Disabled; 10] = [
    (
        Some(Feature::ClusterTrustBundleProjection),
        &["volumes[].projected.sources[].clusterTrustBundle"],
    ),
    (
        Some(Feature::ContainerRestartRules),
        &[
            "initContainers[].restartPolicy!Always",
            "initContainers[].restartPolicyRules",
            "containers[].restartPolicy",
            "containers[].restartPolicyRules",
            "ephemeralContainers[].restartPolicy",
            "ephemeralContainers[].restartPolicyRules",
        ],
    ),
    (
        Some(Feature::ContainerStopSignals),
        &[
            "containers[].lifecycle.stopSignal",
            "initContainers[].lifecycle.stopSignal",
            "ephemeralContainers[].lifecycle.stopSignal",
        ],
    ),
    (
        Some(Feature::EnvFiles),
        &[
            "containers[].env[].valueFrom.fileKeyRef",
            "initContainers[].env[].valueFrom.fileKeyRef",
            "ephemeralContainers[].env[].valueFrom.fileKeyRef",
        ],
    ),
    (
        Some(Feature::DynamicResourceAllocation),
        &[
            "resourceClaims",
            "containers[].resources.claims",
            "initContainers[].resources.claims",
            "ephemeralContainers[].resources.claims",
        ],
    ),
    (Some(Feature::GenericWorkload), &["schedulingGroup"]),
    (Some(Feature::HostnameOverride), &["hostnameOverride"]),
    (
        Some(Feature::MatchLabelKeysInPodTopologySpread),
        &["topologySpreadConstraints[].matchLabelKeys"],
    ),
    (Some(Feature::PodLevelResources), &["resources"]),
    (Some(Feature::PodCertificateRequest), &["volumes[].projected.sources[].podCertificate"]),
];

/// Drops the disabled members of a new object. Those that the stored object uses stay.
pub(crate) fn drop_from(
    kind: &Kind,
    object: &mut Value,
    old: Option<&Value>,
    features: FeatureGates,
) {
    drop_all(kind.disabled, object, old, features);
    if kind.pod_spec.is_empty() {
        return;
    }
    let spec = format!("/{}", kind.pod_spec.replace('.', "/"));
    let old = old.and_then(|old| old.pointer(&spec));
    let Some(spec) = object.pointer_mut(&spec) else { return };
    drop_all(&OF_PODS, spec, old, features);
    if !features.is_on(Feature::ImageVolume) && !old.is_some_and(|old| uses(old, IMAGE)) {
        drop_images(spec);
    }
}

/// What only [`Feature::ImageVolume`] keeps of pods.
const IMAGE: &str = "volumes[].image";

/// Drops volumes that are images, with their mounts.
fn drop_images(spec: &mut Value) {
    if !uses(spec, IMAGE) {
        return;
    }
    let is_image = |volume: &Value| uses(volume, "image");
    let volumes = super::list(spec, "volumes").iter();
    let images: HashSet<String> = volumes
        .filter(|volume| is_image(volume))
        .map(|volume| name_of(volume).to_owned())
        .collect();
    drop_items(spec, "volumes", is_image);
    for member in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(member).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            drop_items(container, "volumeMounts", |mount| images.contains(name_of(mount)));
        }
    }
}

fn name_of(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

/// Drops items of a list, which goes with its last one.
fn drop_items(value: &mut Value, member: &str, is_dropped: impl Fn(&Value) -> bool) {
    let Some(members) = value.as_object_mut() else { return };
    let Some(items) = members.get_mut(member).and_then(Value::as_array_mut) else { return };
    items.retain(|item| !is_dropped(item));
    if items.is_empty() {
        members.remove(member);
    }
}

fn drop_all(
    disabled: &[Disabled],
    object: &mut Value,
    old: Option<&Value>,
    features: FeatureGates,
) {
    for (feature, paths) in disabled {
        let is_used = |old: &Value| paths.iter().any(|path| uses(old, path));
        if !feature.is_some_and(|feature| features.is_on(feature)) && !old.is_some_and(is_used) {
            paths.iter().for_each(|path| remove(object, path));
        }
    }
}

/// The first step of a path, whether it is a list, and the rest.
fn step(path: &str) -> (&str, bool, Option<&str>) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    match first.strip_suffix("[]") {
        Some(list) => (list, true, rest),
        None => (first, false, rest),
    }
}

fn uses(value: &Value, path: &str) -> bool {
    let (name, is_list, rest) = step(path);
    if name == "*" {
        let rest = rest.unwrap_or_default();
        return value.as_object().into_iter().flatten().any(|(_, value)| uses(value, rest));
    }
    if let Some((name, text)) = name.split_once('!') {
        return value.get(name).is_some_and(|value| !value.is_null() && value != text);
    }
    match (value.get(name), rest) {
        (None | Some(Value::Null), _) => false,
        (Some(Value::Array(items)), Some(rest)) if is_list => {
            items.iter().any(|item| uses(item, rest))
        }
        (Some(value), Some(rest)) => uses(value, rest),
        (Some(_), None) => true,
    }
}

fn remove(value: &mut Value, path: &str) {
    let (name, is_list, rest) = step(path);
    let is_used = rest.is_some() || uses(value, path);
    let name = name.split_once('!').map_or(name, |(name, _)| name);
    let Some(members) = value.as_object_mut().filter(|_| is_used) else { return };
    match (name, rest) {
        (_, None) => drop(members.remove(name)),
        // A lifecycle that has nothing else.
        ("lifecycle", Some(rest)) => {
            let lifecycle = members.get_mut(name).and_then(Value::as_object_mut);
            let is_empty = lifecycle
                .is_some_and(|lifecycle| lifecycle.remove(rest).is_some() && lifecycle.is_empty());
            if is_empty {
                members.remove(name);
            }
        }
        ("*", Some(rest)) => members.values_mut().for_each(|value| remove(value, rest)),
        (_, Some(rest)) => match members.get_mut(name) {
            Some(Value::Array(items)) if is_list => {
                items.iter_mut().for_each(|item| remove(item, rest));
            }
            Some(value) => remove(value, rest),
            None => {}
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::rows;
    use serde_json::json;

    /// An object that uses a path.
    fn using(path: &str) -> Value {
        let (name, is_list, rest) = step(path);
        let below = rest.map_or(json!("x"), using);
        let name = name.split_once('!').map_or(name, |(name, _)| name);
        json!({ name: if is_list { json!([below]) } else { below } })
    }

    #[test]
    fn each_member_of_a_feature_is_dropped_with_it_and_kept_with_it() {
        let of_kinds = rows::ROWS.into_iter().flat_map(|kind| kind.disabled);
        for (feature, paths) in of_kinds.chain(&OF_PODS) {
            let Some(feature) = *feature else { continue };
            let gates = FeatureGates::switching(feature);
            for path in *paths {
                let old = using(path);
                for (is_on, old, is_kept) in
                    [(false, None, false), (false, Some(&old), true), (true, None, true)]
                {
                    let (mut object, rows) = (using(path), [(Some(feature), *paths)]);
                    drop_all(&rows, &mut object, old, gates.with(feature, is_on));
                    assert_eq!(uses(&object, path), is_kept, "{feature:?} {path}");
                }
            }
        }
        // A text that is left alone.
        let path = "containers[].restartPolicy!Always";
        let sidecar = json!({"containers": [{"restartPolicy": "Always"}]});
        let mut object = sidecar.clone();
        remove(&mut object, path);
        assert!(object == sidecar && !uses(&sidecar, path));
    }

    fn dropped(group: &str, kind: &str, mut object: Value, old: Option<&Value>) -> Value {
        let features = FeatureGates::default();
        drop_from(rows::of(group, kind).unwrap(), &mut object, old, features);
        object
    }

    #[test]
    fn members_of_features_that_are_off_are_dropped_unless_they_are_stored() {
        let lease = json!({"spec": {"holderIdentity": "a", "strategy": "OldestEmulationVersion"}});
        let group = "coordination.k8s.io";
        assert_eq!(
            dropped(group, "Lease", lease.clone(), None),
            json!({"spec": {"holderIdentity": "a"}})
        );
        assert_eq!(dropped(group, "Lease", lease.clone(), Some(&lease)), lease);
        let mut kept = lease.clone();
        let features = [Feature::CoordinatedLeaderElection].into();
        drop_from(rows::of(group, "Lease").unwrap(), &mut kept, None, features);
        assert_eq!(kept, lease);

        let slice = json!({"spec": {"devices": [{"attributes": {"a": {"ints": [1]}}}]}});
        let bare = json!({"spec": {"devices": [{"attributes": {"a": {}}}]}});
        assert_eq!(dropped("resource.k8s.io", "ResourceSlice", slice, None), bare);

        let source = json!({"clusterTrustBundle": {"name": "b", "path": "p"}});
        let spec = json!({
            "containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGTERM"}}],
            "volumes": [{"name": "v", "projected": {"sources": [source]}}],
        });
        let bare = json!({
            "containers": [{"name": "c"}],
            "volumes": [{"name": "v", "projected": {"sources": [{}]}}],
        });
        let job = json!({"spec": {"template": {"spec": spec}}});
        let expected = json!({"spec": {"template": {"spec": bare}}});
        assert_eq!(dropped("batch", "Job", job, None), expected);

        let pod =
            |sources: Value| json!({"spec": {"volumes": [{"projected": {"sources": sources}}]}});
        let certificate = json!({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}});
        let mut kept = pod(json!([certificate, {"clusterTrustBundle": {}}]));
        let features = [Feature::PodCertificateRequest].into();
        drop_from(rows::of("", "Pod").unwrap(), &mut kept, None, features);
        assert_eq!(kept, pod(json!([certificate, {}])));
    }
}
