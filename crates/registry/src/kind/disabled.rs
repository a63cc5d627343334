//! Members of features that kube-apiserver 1.36 has off by default. It drops them from what clients
//! send, and so does this server, so that an object is the same on both.
use super::Kind;
use serde_json::Value;

/// The members of pods, each with the gate that keeps it; empty: there is none here.
const OF_PODS: [(&str, &str); 6] = [
    ("containers[].lifecycle.stopSignal", ""),
    ("initContainers[].lifecycle.stopSignal", ""),
    ("ephemeralContainers[].lifecycle.stopSignal", ""),
    ("schedulingGroup", "GenericWorkload"),
    ("volumes[].projected.sources[].clusterTrustBundle", ""),
    ("volumes[].projected.sources[].podCertificate", "PodCertificateRequest"),
];

/// Drops the disabled members of a new object, with these feature gates on. A member that the
/// stored object uses anywhere stays.
pub(crate) fn drop_from(kind: &Kind, object: &mut Value, old: Option<&Value>, gates: &[&str]) {
    if !gates.contains(&kind.disabled_without) {
        for path in kind.disabled {
            drop_one(path, object, old);
        }
    }
    if kind.pod_spec.is_empty() {
        return;
    }
    let spec = format!("/{}", kind.pod_spec.replace('.', "/"));
    let old = old.and_then(|old| old.pointer(&spec));
    let Some(spec) = object.pointer_mut(&spec) else { return };
    for (path, _) in OF_PODS.iter().filter(|(_, gate)| !gates.contains(gate)) {
        drop_one(path, spec, old);
    }
}

fn drop_one(path: &str, object: &mut Value, old: Option<&Value>) {
    if !old.is_some_and(|old| uses(old, path)) {
        remove(object, path);
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
    let Some(members) = value.as_object_mut() else { return };
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

    fn dropped(group: &str, kind: &str, mut object: Value, old: Option<&Value>) -> Value {
        drop_from(rows::of(group, kind).unwrap(), &mut object, old, &[]);
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
        let gates = ["CoordinatedLeaderElection"];
        drop_from(rows::of(group, "Lease").unwrap(), &mut kept, None, &gates);
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
        drop_from(rows::of("", "Pod").unwrap(), &mut kept, None, &["PodCertificateRequest"]);
        assert_eq!(kept, pod(json!([certificate, {}])));
    }
}
