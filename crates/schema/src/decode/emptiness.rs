//! Which empty values of optional fields vanish when Go encodes a struct.
//!
//! A plain Go field with `omitempty` vanishes when it is zero; a pointer stays when it points at a zero. The published schemas do
//! not tell the two apart, so this is knowledge of the types: strings are plain unless listed, booleans and integers are
//! pointers unless listed.
use crate::node::{Node, Shape};
use serde_json::Value;

/// Strings that are pointers: (struct, field).
const POINTER_STRINGS: &[(&str, &str)] = &[
    ("AppArmorProfile", "localhostProfile"),
    ("ContainerPort", "protocol"),
    ("CronJobSpec", "timeZone"),
    ("CustomResourceSubresourceScale", "labelSelectorPath"),
    ("CustomResourceDefinitionVersion", "deprecationWarning"),
    ("Endpoint", "hostname"),
    ("Endpoint", "nodeName"),
    ("Endpoint", "zone"),
    ("EndpointAddress", "nodeName"),
    ("EndpointPort", "appProtocol"),
    ("EndpointPort", "name"),
    ("GRPCAction", "service"),
    ("HostPathVolumeSource", "type"),
    ("IngressClassParametersReference", "apiGroup"),
    ("IngressClassParametersReference", "namespace"),
    ("IngressSpec", "ingressClassName"),
    ("JSONSchemaProps", "$ref"),
    ("JobSpec", "managedBy"),
    ("LeaseSpec", "holderIdentity"),
    ("LeaseSpec", "preferredHolder"),
    ("PersistentVolumeClaimSpec", "storageClassName"),
    ("PersistentVolumeClaimSpec", "volumeAttributesClassName"),
    ("PersistentVolumeClaimStatus", "currentVolumeAttributesClassName"),
    ("PersistentVolumeSpec", "volumeAttributesClassName"),
    ("PodDNSConfigOption", "value"),
    ("PodSpec", "runtimeClassName"),
    ("SeccompProfile", "localhostProfile"),
    ("SecurityContext", "procMount"),
    ("ServicePort", "appProtocol"),
    ("ServiceReference", "path"),
    ("ServiceSpec", "loadBalancerClass"),
    ("TypedLocalObjectReference", "apiGroup"),
    ("TypedObjectReference", "apiGroup"),
    ("TypedObjectReference", "namespace"),
    ("ValidationRule", "reason"),
    ("VolumeAttachmentSource", "persistentVolumeName"),
    ("WebhookClientConfig", "url"),
    ("WindowsSecurityContextOptions", "gmsaCredentialSpec"),
    ("WindowsSecurityContextOptions", "gmsaCredentialSpecName"),
    ("WindowsSecurityContextOptions", "runAsUserName"),
];

/// Booleans that are plain.
const PLAIN_BOOLEANS: &[&str] = &[
    "deprecated",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "globalDefault",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "insecureSkipTLSVerify",
    "nullable",
    "paused",
    "preserveUnknownFields",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "uniqueItems",
    "unschedulable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];

/// Integers that are plain.
const PLAIN_INTEGERS: &[&str] = &[
    "active",
    "availableReplicas",
    "count",
    "currentReplicas",
    "failed",
    "failureThreshold",
    "fullyLabeledReplicas",
    "generation",
    "healthCheckNodePort",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "nodePort",
    "number",
    "numberAvailable",
    "numberUnavailable",
    "observedGeneration",
    "periodSeconds",
    "priority",
    "readyReplicas",
    "succeeded",
    "successThreshold",
    "timeoutSeconds",
    "unavailableReplicas",
    "updatedNumberScheduled",
    "updatedReplicas",
];

/// Exceptions to the lists above, which go by field name alone: pointers after all.
const POINTERS: &[(&str, &str)] = &[
    ("CSIVolumeSource", "readOnly"),
    ("ClientIPConfig", "timeoutSeconds"),
    ("JobStatus", "ready"),
    ("MutatingWebhook", "timeoutSeconds"),
    ("PodSpec", "priority"),
    ("ValidatingWebhook", "timeoutSeconds"),
];

/// Whether an optional field with this value is left out.
pub(super) fn vanishes(owner: &str, field: &str, schema: &Node, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && schema.shape == Shape::Array,
        // A struct that is there stays; a map that is empty does not.
        Value::Object(members) => {
            members.is_empty() && schema.properties.is_empty() && schema.additional.is_some()
        }
        Value::String(text) => {
            text.is_empty()
                && schema.shape == Shape::String
                && !POINTER_STRINGS.contains(&(owner, field))
        }
        Value::Bool(false) => {
            schema.shape == Shape::Boolean
                && PLAIN_BOOLEANS.contains(&field)
                && !POINTERS.contains(&(owner, field))
        }
        Value::Number(n) => {
            n.as_i64() == Some(0)
                && schema.shape == Shape::Integer
                && (PLAIN_INTEGERS.contains(&field)
                    || (field == "replicas" && owner == "DeploymentStatus"))
                && !POINTERS.contains(&(owner, field))
        }
        _ => false,
    }
}
