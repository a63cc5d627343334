//! How built-in types merge under strategic merge patch and apply (spec: patch §4.1).

use super::field;
use crate::{DEFINITIONS, definition};

/// Field, strategy, merge key, list type, map keys, one field per line; `-` means none.
fn check(package: &str, table: &str) {
    for line in table.trim().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [path, ..] = words[..] else { panic!("{line}") };
        let (ty, name) = path.split_once('.').unwrap();
        let field = field(&format!("io.k8s.{package}.{ty}"), name);
        let or = |text: &'static str, or: &'static str| if text.is_empty() { or } else { text };
        let keys = field.list_map_keys.join(",");
        let got = [
            path,
            or(field.patch_strategy, "-"),
            or(field.merge_key, "-"),
            or(field.list_type, "atomic"),
            if keys.is_empty() { "-" } else { &keys },
        ];
        assert_eq!(got, words[..]);
    }
}

#[test]
fn core() {
    check(
        "api.core.v1",
        "
        PodSpec.containers merge name map name
        PodSpec.initContainers merge name map name
        PodSpec.ephemeralContainers merge name map name
        PodSpec.volumes merge,retainKeys name map name
        PodSpec.imagePullSecrets merge name map name
        PodSpec.hostAliases merge ip map ip
        PodSpec.topologySpreadConstraints merge topologyKey map topologyKey,whenUnsatisfiable
        PodSpec.schedulingGates merge name map name
        PodSpec.resourceClaims merge,retainKeys name map name
        PodSpec.tolerations - - atomic -
        PodSpec.readinessGates - - atomic -
        Container.ports merge containerPort map containerPort,protocol
        EphemeralContainer.ports merge containerPort map containerPort,protocol
        Container.env merge name map name
        Container.volumeMounts merge mountPath map mountPath
        Container.volumeDevices merge devicePath map devicePath
        Container.command - - atomic -
        Container.args - - atomic -
        Container.envFrom - - atomic -
        Container.resizePolicy - - atomic -
        ResourceRequirements.claims - - map name
        PodStatus.conditions merge type map type
        PodStatus.podIPs merge ip map ip
        PodStatus.hostIPs merge ip atomic -
        PodStatus.containerStatuses - - atomic -
        PodStatus.resourceClaimStatuses merge,retainKeys name map name
        ContainerStatus.volumeMounts merge mountPath map mountPath
        ContainerStatus.allocatedResourcesStatus merge name map name
        ServiceSpec.ports merge port map port,protocol
        ServiceSpec.clusterIPs - - atomic -
        ServiceSpec.externalIPs - - atomic -
        ServiceStatus.conditions merge type map type
        NamespaceStatus.conditions merge type map type
        PersistentVolumeClaimStatus.conditions merge type map type
        NodeStatus.conditions merge type map type
        LoadBalancerStatus.ingress - - atomic -
        ServiceAccount.secrets merge name map name
        ServiceAccount.imagePullSecrets - - atomic -
        NodeSpec.podCIDRs merge - set -
        NodeSpec.taints - - atomic -
        NodeStatus.addresses merge type map type
        Endpoints.subsets - - atomic -
        ",
    );
}

#[test]
fn other_groups() {
    check(
        "api.apps.v1",
        "
        DeploymentStatus.conditions merge type map type
        StatefulSetStatus.conditions merge type map type
        StatefulSetSpec.volumeClaimTemplates - - atomic -
        ",
    );
    check("api.batch.v1", "JobStatus.conditions merge type atomic -");
    check(
        "api.admissionregistration.v1",
        "
        ValidatingWebhookConfiguration.webhooks merge name map name
        MutatingWebhook.matchConditions merge name map name
        ValidatingAdmissionPolicySpec.variables merge name map name
        MutatingAdmissionPolicySpec.variables - - atomic -
        ValidatingAdmissionPolicyBindingSpec.validationActions - - set -
        ValidatingAdmissionPolicyStatus.conditions - - map type
        ",
    );
    check("api.certificates.v1", "CertificateSigningRequestStatus.conditions - - map type");
    check(
        "apiextensions-apiserver.pkg.apis.apiextensions.v1",
        "CustomResourceDefinitionStatus.conditions - - map type",
    );
    check(
        "api.resource.v1",
        "
        ResourceClaimStatus.devices - - map driver,device,pool,shareID
        ResourceClaimStatus.reservedFor merge uid map uid
        ",
    );
    check("api.storage.v1", "CSINodeSpec.drivers merge name map name");
    check("api.discovery.v1", "Endpoint.addresses - - set -");
    check("api.flowcontrol.v1", "ResourcePolicyRule.verbs - - set -");
    check(
        "api.autoscaling.v2",
        "
        HorizontalPodAutoscalerSpec.metrics - - atomic -
        HorizontalPodAutoscalerStatus.conditions merge type map type
        ",
    );
    check("api.policy.v1", "PodDisruptionBudgetStatus.conditions merge type map type");
    check(
        "kube-aggregator.pkg.apis.apiregistration.v1",
        "APIServiceStatus.conditions merge type map type",
    );
    check(
        "apimachinery.pkg.apis.meta.v1",
        "
        ObjectMeta.ownerReferences merge uid map uid
        ObjectMeta.finalizers merge - set -
        ObjectMeta.managedFields - - atomic -
        ",
    );
}

#[test]
fn atomic_structs() {
    let atomic = |name: &str| {
        let at = definition(&format!("io.k8s.{name}")).unwrap_or_else(|| panic!("no {name}"));
        DEFINITIONS[usize::from(at)].atomic
    };
    let core = [
        "ObjectReference",
        "LocalObjectReference",
        "SecretKeySelector",
        "ConfigMapKeySelector",
        "ResourceFieldSelector",
        "ObjectFieldSelector",
        "FileKeySelector",
        "NodeSelector",
        "NodeSelectorTerm",
        "TopologySelectorTerm",
        "SecretReference",
        "ScopeSelector",
        "TypedLocalObjectReference",
        "EndpointAddress",
        "EndpointPort",
    ];
    for name in core {
        assert!(atomic(&format!("api.core.v1.{name}")), "{name}");
    }
    for name in ["ParamKind", "ParamRef", "MatchResources", "NamedRuleWithOperations", "Variable"] {
        assert!(atomic(&format!("api.admissionregistration.v1.{name}")), "{name}");
    }
    for name in [
        "api.rbac.v1.RoleRef",
        "api.rbac.v1.Subject",
        "api.networking.v1.ServiceBackendPort",
        "api.discovery.v1.EndpointPort",
        "api.autoscaling.v1.CrossVersionObjectReference",
        "apimachinery.pkg.apis.meta.v1.LabelSelector",
        "apimachinery.pkg.apis.meta.v1.OwnerReference",
    ] {
        assert!(atomic(name), "{name}");
    }
    assert!(!atomic("api.autoscaling.v2.CrossVersionObjectReference"));
    assert!(!atomic("api.apps.v1.DeploymentStrategy"));
}
