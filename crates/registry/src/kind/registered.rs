//! The kinds that the reference's decoders know, served or not: a body of one of them is refused
//! for its version or its kind, and not as unknown.
use setpoint_object::field::quote;
use setpoint_object::{GroupVersion, GroupVersionKind, UNVERSIONED_KINDS};

/// The kinds without a schema here, by group version. Their lists are registered too.
const UNSERVED: [(&str, &str); 30] = [
    (
        "v1",
        "List NodeProxyOptions PodAttachOptions PodExecOptions PodLogOptions PodPortForwardOptions PodProxyOptions PodStatusResult RangeAllocation SerializedReference ServiceProxyOptions",
    ),
    ("admission.k8s.io/v1", "AdmissionReview"),
    ("admission.k8s.io/v1beta1", "AdmissionReview"),
    (
        "admissionregistration.k8s.io/v1alpha1",
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    ),
    (
        "admissionregistration.k8s.io/v1beta1",
        "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io/v1beta1", "ConversionReview CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1beta1", "APIService"),
    ("apps/v1beta1", "ControllerRevision Deployment DeploymentRollback Scale StatefulSet"),
    ("apps/v1beta2", "ControllerRevision DaemonSet Deployment ReplicaSet Scale StatefulSet"),
    ("authentication.k8s.io/v1alpha1", "SelfSubjectReview"),
    ("authentication.k8s.io/v1beta1", "SelfSubjectReview TokenReview"),
    (
        "authorization.k8s.io/v1beta1",
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    ),
    ("batch/v1beta1", "CronJob"),
    ("certificates.k8s.io/v1beta1", "CertificateSigningRequest"),
    ("coordination.k8s.io/v1beta1", "Lease"),
    ("discovery.k8s.io/v1beta1", "EndpointSlice"),
    ("events.k8s.io/v1beta1", "Event"),
    (
        "extensions/v1beta1",
        "DaemonSet Deployment DeploymentRollback Ingress NetworkPolicy ReplicaSet Scale",
    ),
    ("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema PriorityLevelConfiguration"),
    ("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema PriorityLevelConfiguration"),
    ("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema PriorityLevelConfiguration"),
    ("networking.k8s.io/v1beta1", "Ingress IngressClass"),
    ("node.k8s.io/v1alpha1", "RuntimeClass"),
    ("node.k8s.io/v1beta1", "RuntimeClass"),
    ("policy/v1beta1", "Eviction PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1alpha1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    ("scheduling.k8s.io/v1beta1", "PriorityClass"),
    ("storage.k8s.io/v1alpha1", "CSIStorageCapacity VolumeAttachment VolumeAttributesClass"),
    (
        "storage.k8s.io/v1beta1",
        "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment",
    ),
];
/// The kinds of every registered group version.
const OPTIONS: [&str; 7] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// The decoder of an endpoint's group, as errors name it. Each knows its own groups only.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Whether the decoder of an endpoint's group knows a kind.
pub(crate) fn is_registered(found: &GroupVersionKind, group: &str) -> bool {
    let GroupVersionKind { group: of, version, kind } = found;
    if UNVERSIONED_KINDS.contains(&&**kind) {
        return true;
    }
    if scheme(of) != scheme(group) {
        return false;
    }
    if setpoint_facts::kind(of, version, kind).is_some() {
        return true;
    }
    let text = GroupVersion::new(of.clone(), version.clone()).to_string();
    let unserved = UNSERVED.iter().find(|(version, _)| *version == text).map(|(_, kinds)| *kinds);
    if OPTIONS.contains(&&**kind) {
        let is_served =
            |row: &setpoint_facts::Resource| row.group == &**of && row.version == &**version;
        return unserved.is_some() || setpoint_facts::RESOURCES.iter().any(is_served);
    }
    let single = kind.strip_suffix("List").unwrap_or(kind);
    unserved.is_some_and(|kinds| kinds.split(' ').any(|known| *known == **kind || known == single))
}

/// The version of the types that the reference's server works with.
pub(crate) const INTERNAL: &str = "__internal";

/// Why a kind that the decoder of an endpoint's group does not know is none.
pub(crate) fn unregistered(found: &GroupVersionKind, group: &str) -> String {
    let of = match &*found.version {
        INTERNAL => format!("the internal version of group {}", quote(&found.group)),
        _ => format!("version {}", quote(&found.group_version().to_string())),
    };
    let scheme = scheme(group);
    format!("no kind {} is registered for {of} in scheme \"{scheme}\"", quote(&found.kind))
}

/// Whether a kind is a type of requests or answers that all versions share.
pub(crate) fn is_of_meta(kind: &str) -> bool {
    UNVERSIONED_KINDS.contains(&kind) || OPTIONS.contains(&kind)
}

/// Whether the internal version of a kind's group has it, too: it has no options.
pub(crate) fn is_registered_internally(found: &GroupVersionKind) -> bool {
    !OPTIONS.contains(&&*found.kind) && is_registered(found, &found.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_former_versions_lists_and_options_are_known() {
        for (version, kind, known) in [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "DeploymentList", true),
            ("apps/v1beta1", "Deployment", true),
            ("apps/v1beta2", "DaemonSetList", true),
            ("apps/v1beta1", "DaemonSet", false),
            ("apps/v9", "Deployment", false),
            ("policy/v1", "Eviction", true),
            ("policy/v1beta1", "Eviction", true),
            ("v1", "Status", true),
            ("apps/v9", "Status", true),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", false),
            ("v1", "List", true),
            ("apps/v1", "DeleteOptions", true),
            ("apps/v9", "DeleteOptions", false),
        ] {
            let found = GroupVersion::parse(version).unwrap().kind(kind);
            assert_eq!(is_registered(&found, "policy"), known, "{version} {kind}");
        }
    }
}
