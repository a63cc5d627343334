//! Versions that Kubernetes stored once and no longer serves.
//!
//! A kube-apiserver stores an object in the present version with the object's next change. Objects
//! that nobody changes keep the version that they were stored in, however often the cluster is
//! upgraded, and kube-apiservers still read these versions. Those whose messages and members are
//! the ones of `v1` are read here, too (by `staging/src/k8s.io/api/*/*/generated.proto`).
//!
//! Not read: Ingresses of `v1beta1`, EndpointSlices of `v1beta1` and what controllers write all the
//! time, such as Leases.
use crate::kind::FormerVersion;
use crate::kind::policy::pod_disruption_budget;
use serde_json::Value;

/// Retired versions of kinds of a group.
struct Retired {
    group: &'static str,
    versions: &'static [&'static str],
    kinds: &'static [&'static str],
    /// Changes what has another meaning in `v1`.
    convert: fn(&mut Value),
}

const RETIRED: &[Retired] = &[
    Retired {
        group: "admissionregistration.k8s.io",
        versions: &["v1beta1"],
        kinds: &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        convert: as_it_is,
    },
    Retired { group: "batch", versions: &["v1beta1"], kinds: &["CronJob"], convert: as_it_is },
    Retired {
        group: "flowcontrol.apiserver.k8s.io",
        versions: &["v1beta1", "v1beta2", "v1beta3"],
        kinds: &["FlowSchema"],
        convert: as_it_is,
    },
    Retired {
        group: "flowcontrol.apiserver.k8s.io",
        versions: &["v1beta1", "v1beta2", "v1beta3"],
        kinds: &["PriorityLevelConfiguration"],
        convert: rename_shares,
    },
    Retired {
        group: "networking.k8s.io",
        versions: &["v1beta1"],
        kinds: &["IngressClass"],
        convert: as_it_is,
    },
    Retired {
        group: "node.k8s.io",
        versions: &["v1beta1"],
        kinds: &["RuntimeClass"],
        convert: as_it_is,
    },
    Retired {
        group: "policy",
        versions: &["v1beta1"],
        kinds: &["PodDisruptionBudget"],
        convert: pod_disruption_budget::from_v1beta1,
    },
    Retired {
        group: "rbac.authorization.k8s.io",
        versions: &["v1beta1"],
        kinds: &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
        convert: as_it_is,
    },
    Retired {
        group: "scheduling.k8s.io",
        versions: &["v1beta1"],
        kinds: &["PriorityClass"],
        convert: as_it_is,
    },
    Retired {
        group: "storage.k8s.io",
        versions: &["v1beta1"],
        kinds: &["StorageClass", "VolumeAttachment", "CSIDriver", "CSINode", "CSIStorageCapacity"],
        convert: as_it_is,
    },
];

fn as_it_is(_: &mut Value) {}

/// The name that the shares of a priority level had before `v1beta3`. In protobuf they have a
/// number, which is the same.
fn rename_shares(level: &mut Value) {
    let limited = level.pointer_mut("/spec/limited").and_then(Value::as_object_mut);
    if let Some(limited) = limited
        && let Some(shares) = limited.remove("assuredConcurrencyShares")
    {
        limited.insert("nominalConcurrencyShares".to_owned(), shares);
    }
}

/// The retired versions of a kind that is stored in `v1`.
pub(crate) fn versions(group: &str, kind: &str) -> impl Iterator<Item = FormerVersion> {
    let of_kind = move |retired: &&Retired| retired.group == group && retired.kinds.contains(&kind);
    RETIRED.iter().filter(of_kind).flat_map(|retired| {
        let former = move |version| FormerVersion {
            version,
            same_messages: true,
            is_stored: false,
            convert: retired.convert,
        };
        retired.versions.iter().copied().map(former)
    })
}

/// Group, version and kind of all.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = [&'static str; 3]> {
    RETIRED.iter().flat_map(|retired| {
        let of_version =
            move |version| retired.kinds.iter().map(move |kind| [retired.group, version, *kind]);
        retired.versions.iter().copied().flat_map(of_version)
    })
}
