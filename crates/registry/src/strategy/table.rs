//! The rows: which kind does what (spec: api-server §5, §9–12).
use super::*;

const fn with_status(meta: StatusMeta, initial: &'static str) -> Strategy {
    Strategy { status: Some(StatusRule { meta, initial }), ..PLAIN }
}

static PLAIN_ROW: Strategy = PLAIN;
static POD: Strategy = Strategy {
    returns_deleted: true,
    graceful: true,
    prepare: pod::prepare,
    prepare_status: pod::prepare_status,
    validate: pod::validate,
    warnings: pod::warnings,
    ..with_status(StatusMeta::Pod, "{}")
};
static SERVICE: Strategy = Strategy {
    name: NameRule::Label,
    create_on_update: true,
    returns_deleted: true,
    prepare: service::prepare,
    validate: service::validate,
    ..with_status(StatusMeta::All, r#"{"loadBalancer":{}}"#)
};
static NAMESPACE: Strategy = Strategy {
    name: NameRule::Label,
    returns_deleted: true,
    finalizers_in_spec: true,
    first_delete: Some(namespace::mark_namespace),
    prepare: namespace::prepare_namespace,
    ..with_status(StatusMeta::All, r#"{"phase":"Active"}"#)
};
static NODE: Strategy = with_status(
    StatusMeta::All,
    r#"{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"","bootID":"","containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"","machineID":"","operatingSystem":"","osImage":"","systemUUID":""}}"#,
);
static DEPLOYMENT: Strategy = Strategy {
    annotations_step_generation: true,
    validate: workload::validate,
    ..with_status(StatusMeta::ButLabels, "{}")
};
static REPLICA_SET: Strategy =
    Strategy { validate: workload::validate, ..with_status(StatusMeta::All, r#"{"replicas":0}"#) };
static REPLICATION_CONTROLLER: Strategy = Strategy {
    orphans_by_default: true,
    validate: workload::validate_controller,
    ..with_status(StatusMeta::All, r#"{"replicas":0}"#)
};
static STATEFUL_SET: Strategy = Strategy {
    name: NameRule::Label,
    validate: workload::validate_stateful_set,
    ..with_status(StatusMeta::All, r#"{"availableReplicas":0,"replicas":0}"#)
};
static DAEMON_SET: Strategy = Strategy {
    prepare: workload::prepare_daemon_set,
    validate: workload::validate,
    ..with_status(
        StatusMeta::All,
        r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
    )
};
static JOB: Strategy = Strategy {
    orphans_by_default: true,
    prepare: job::prepare,
    validate: job::validate,
    ..with_status(StatusMeta::All, "{}")
};
static CRON_JOB: Strategy = Strategy {
    name: NameRule::CronJob,
    validate: job::validate_cron,
    ..with_status(StatusMeta::All, "{}")
};
static CONFIG_MAP: Strategy = Strategy { validate: config::validate_config_map, ..PLAIN };
static SECRET: Strategy =
    Strategy { prepare: config::prepare_secret, validate: config::validate_secret, ..PLAIN };
static RETURNED: Strategy = Strategy { returns_deleted: true, ..PLAIN };
static SERVICE_ACCOUNT: Strategy = Strategy { returns_deleted: true, ..PLAIN };
static VOLUME_CLAIM: Strategy = Strategy {
    returns_deleted: true,
    validate: storage::validate_claim,
    ..with_status(StatusMeta::All, r#"{"phase":"Pending"}"#)
};
static VOLUME: Strategy = Strategy {
    returns_deleted: true,
    prepare: storage::prepare_volume,
    ..with_status(StatusMeta::All, r#"{"phase":"Pending"}"#)
};
static RESOURCE_QUOTA: Strategy =
    Strategy { returns_deleted: true, ..with_status(StatusMeta::All, "{}") };
static EVENT: Strategy =
    Strategy { create_on_update: true, collected: false, validate: event::validate_event, ..PLAIN };
static STORAGE_CLASS: Strategy =
    Strategy { returns_deleted: true, validate: storage::validate_storage_class, ..PLAIN };
static ENDPOINT_SLICE: Strategy = Strategy { validate: network::validate_endpoint_slice, ..PLAIN };
static UPSERT: Strategy = Strategy { create_on_update: true, ..PLAIN };
static RBAC: Strategy = Strategy {
    name: NameRule::Segment,
    create_on_update: true,
    validate: rbac::validate_rbac,
    ..PLAIN
};
static LEASE: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    validate: lease::validate_lease,
    ..PLAIN
};
static RUNTIME_CLASS: Strategy =
    Strategy { create_on_update: true, unconditional_update: false, ..PLAIN };
static CONDITIONAL: Strategy = Strategy { unconditional_update: false, ..PLAIN };
static CONDITIONAL_RETURNED: Strategy =
    Strategy { unconditional_update: false, returns_deleted: true, ..PLAIN };
static VOLUME_ATTACHMENT: Strategy = Strategy {
    unconditional_update: false,
    returns_deleted: true,
    ..with_status(StatusMeta::All, r#"{"attached":false}"#)
};
static BUDGET: Strategy = Strategy {
    unconditional_update: false,
    validate: budget::validate_budget,
    ..with_status(
        StatusMeta::All,
        r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
    )
};
static INGRESS: Strategy = Strategy {
    validate: network::validate_ingress,
    ..with_status(StatusMeta::All, r#"{"loadBalancer":{}}"#)
};
static AUTOSCALER: Strategy = Strategy {
    validate: autoscaler::validate_autoscaler,
    ..with_status(StatusMeta::All, r#"{"currentMetrics":null,"desiredReplicas":0}"#)
};
static CERTIFICATE_REQUEST: Strategy = Strategy {
    prepare: certificate::prepare_certificate_request,
    prepare_status: certificate::prepare_certificate_status,
    validate: certificate::validate_certificate_request,
    ..with_status(StatusMeta::All, "{}")
};
static DEFINITION: Strategy = Strategy {
    unconditional_update: false,
    first_delete: Some(definition::mark),
    prepare: definition::prepare,
    prepare_status: definition::prepare_status,
    validate: definition::validate,
    warnings: setpoint_schema::crd::definition_warnings,
    ..with_status(StatusMeta::Nothing, "{}")
};
static API_SERVICE: Strategy =
    Strategy { unconditional_update: false, ..with_status(StatusMeta::Nothing, "{}") };
static PRIORITY_CLASS: Strategy = Strategy { validate: priority::validate_priority_class, ..PLAIN };
static STATUS: Strategy = with_status(StatusMeta::All, "{}");
static STATUS_ALONE: Strategy = with_status(StatusMeta::Nothing, "{}");
static POLICY_WITH_STATUS: Strategy =
    Strategy { unconditional_update: false, ..with_status(StatusMeta::Nothing, "{}") };
static CLAIM_DEVICE: Strategy =
    Strategy { returns_deleted: true, ..with_status(StatusMeta::All, "{}") };

impl Strategy {
    /// The row of a built-in kind.
    pub(crate) fn built_in(group: &str, kind: &str) -> &'static Self {
        match (group, kind) {
            ("", "Pod") => &POD,
            ("", "Service") => &SERVICE,
            ("", "Namespace") => &NAMESPACE,
            ("", "Node") => &NODE,
            ("", "ConfigMap") => &CONFIG_MAP,
            ("", "Secret") => &SECRET,
            ("", "ServiceAccount") => &SERVICE_ACCOUNT,
            ("", "PersistentVolumeClaim") => &VOLUME_CLAIM,
            ("", "PersistentVolume") => &VOLUME,
            ("", "ResourceQuota") => &RESOURCE_QUOTA,
            ("", "ReplicationController") => &REPLICATION_CONTROLLER,
            ("" | "events.k8s.io", "Event") => &EVENT,
            ("", "Endpoints" | "LimitRange") => &UPSERT,
            ("apps", "Deployment") => &DEPLOYMENT,
            ("apps", "ReplicaSet") => &REPLICA_SET,
            ("apps", "StatefulSet") => &STATEFUL_SET,
            ("apps", "DaemonSet") => &DAEMON_SET,
            ("batch", "Job") => &JOB,
            ("batch", "CronJob") => &CRON_JOB,
            ("autoscaling", "HorizontalPodAutoscaler") => &AUTOSCALER,
            ("policy", "PodDisruptionBudget") => &BUDGET,
            ("networking.k8s.io", "Ingress") => &INGRESS,
            ("networking.k8s.io", "ServiceCIDR") => &STATUS,
            ("certificates.k8s.io", "CertificateSigningRequest") => &CERTIFICATE_REQUEST,
            ("rbac.authorization.k8s.io", _) => &RBAC,
            ("coordination.k8s.io", "Lease") => &LEASE,
            ("node.k8s.io", "RuntimeClass") => &RUNTIME_CLASS,
            ("scheduling.k8s.io", "PriorityClass") => &PRIORITY_CLASS,
            ("storage.k8s.io", "CSIDriver" | "CSINode") => &CONDITIONAL_RETURNED,
            ("storage.k8s.io", "CSIStorageCapacity") => &CONDITIONAL,
            ("storage.k8s.io", "VolumeAttachment") => &VOLUME_ATTACHMENT,
            ("storage.k8s.io", "StorageClass") => &STORAGE_CLASS,
            ("discovery.k8s.io", "EndpointSlice") => &ENDPOINT_SLICE,
            ("storage.k8s.io", "VolumeAttributesClass") | ("", "PodTemplate") => &RETURNED,
            ("resource.k8s.io", "ResourceClaim") => &CLAIM_DEVICE,
            ("resource.k8s.io", _) => &RETURNED,
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &POLICY_WITH_STATUS,
            ("admissionregistration.k8s.io", _) => &CONDITIONAL,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => &DEFINITION,
            ("apiregistration.k8s.io", "APIService") => &API_SERVICE,
            ("flowcontrol.apiserver.k8s.io", _) => &STATUS_ALONE,
            _ => &PLAIN_ROW,
        }
    }
}
