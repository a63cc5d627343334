//! Table columns: how a kind's rows are printed (spec: api-server §3.1, crd §9).
//!
//! A built-in kind's headings come from the facts table and its cells from a printer, one function a kind, grouped as the API groups
//! are. Kinds without a printer show their name and when they were created. A custom resource's headings and JSONPaths come from its
//! definition. Cells are computed from the object's tree and the moment that is given as *now*; nothing here reads a clock.

mod admission;
mod age;
mod batch;
mod cell;
mod cluster;
mod config;
mod custom;
mod event;
mod network;
mod pod;
mod scaling;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use serde_json::Value;
use setpoint_object::jsonpath::JsonPath;
use setpoint_object::time::Timestamp;

pub use age::{age_of, human_duration};

/// Computes the cells of one object, in heading order.
pub type Printer = fn(&Value, Timestamp) -> Vec<Value>;

/// Column headings and how cells are computed.
#[derive(Debug, Clone)]
pub struct Columns {
    /// Headings.
    pub definitions: Vec<ColumnDefinition>,
    /// Where cells come from.
    pub cells: Cells,
}
/// Where cells come from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cells {
    /// A printer of a built-in kind: (object, now) → cells in heading order.
    Builtin(Printer),
    /// Name, then JSONPaths; a path that does not parse has empty cells.
    Paths(Vec<Option<JsonPath>>),
}
/// One heading, as a Table's `columnDefinitions` writes it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ColumnDefinition {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub ty: String,
    /// `name` for the column that holds the object's name, or what the definition says.
    pub format: String,
    /// What the column says; empty for built-in kinds.
    pub description: String,
    /// 0: always shown; greater: shown with `-o wide`.
    pub priority: i32,
}
impl ColumnDefinition {
    fn new(name: &str, ty: &str, format: &str) -> Self {
        Self {
            name: name.to_owned(),
            ty: ty.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority: 0,
        }
    }
}

impl Columns {
    /// The columns of a built-in kind; `Name` and `Created At` when it has no printer.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Self {
        let row = setpoint_facts::resource_of_kind(group, version, kind);
        let definitions: Vec<ColumnDefinition> = row
            .into_iter()
            .flat_map(|row| row.columns)
            .map(|column| ColumnDefinition {
                priority: i32::from(column.priority),
                ..ColumnDefinition::new(column.name, column.ty, column.format)
            })
            .collect();
        match printer(group, version, kind) {
            Some(printer) if !definitions.is_empty() => {
                Self { definitions, cells: Cells::Builtin(printer) }
            }
            _ => Self {
                definitions: vec![
                    ColumnDefinition::new("Name", "string", "name"),
                    ColumnDefinition::new("Created At", "date", ""),
                ],
                cells: Cells::Builtin(created_at),
            },
        }
    }
    /// The columns of a custom resource version, from `additionalPrinterColumns` (may be null).
    pub fn custom(columns: &Value) -> Self {
        custom::columns(columns)
    }
    /// The cells of one object, as many as there are headings.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.cells {
            Cells::Builtin(printer) => printer(object, now),
            Cells::Paths(paths) => custom::row(&self.definitions, paths, object, now),
        }
    }
}

/// The printer of a built-in kind.
fn printer(group: &str, version: &str, kind: &str) -> Option<Printer> {
    Some(match (group, kind) {
        ("", "Pod") => pod::pod,
        ("", "PodTemplate") => workloads::pod_template,
        ("", "ReplicationController") => workloads::replication_controller,
        ("apps", "ReplicaSet") => workloads::replica_set,
        ("apps", "Deployment") => workloads::deployment,
        ("apps", "StatefulSet") => workloads::stateful_set,
        ("apps", "DaemonSet") => workloads::daemon_set,
        ("apps", "ControllerRevision") => workloads::controller_revision,
        ("batch", "Job") => batch::job,
        ("batch", "CronJob") => batch::cron_job,
        ("autoscaling", "HorizontalPodAutoscaler") if version == "v1" => scaling::autoscaler_v1,
        ("autoscaling", "HorizontalPodAutoscaler") => scaling::autoscaler,
        ("policy", "PodDisruptionBudget") => scaling::disruption_budget,
        ("", "ConfigMap") => config::config_map,
        ("", "Secret") => config::secret,
        ("", "ServiceAccount") => config::name_and_age,
        ("", "ResourceQuota") => config::resource_quota,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => config::binding,
        ("coordination.k8s.io", "Lease") => config::lease,
        ("certificates.k8s.io", "CertificateSigningRequest") => config::signing_request,
        ("", "Event") => event::core,
        ("events.k8s.io", "Event") => event::events,
        ("", "Service") => network::service,
        ("", "Endpoints") => network::endpoints,
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice,
        ("networking.k8s.io", "Ingress") => network::ingress,
        ("networking.k8s.io", "IngressClass") => network::ingress_class,
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy,
        ("networking.k8s.io", "IPAddress") => network::ip_address,
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr,
        ("", "PersistentVolumeClaim") => storage::claim,
        ("", "PersistentVolume") => storage::volume,
        ("storage.k8s.io", "StorageClass") => storage::class,
        ("storage.k8s.io", "CSIDriver") => storage::driver,
        ("storage.k8s.io", "CSINode") => storage::node,
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class,
        ("", "Namespace") => cluster::namespace,
        ("", "Node") => cluster::node,
        ("", "ComponentStatus") => cluster::component_status,
        ("apiregistration.k8s.io", "APIService") => cluster::api_service,
        ("node.k8s.io", "RuntimeClass") => cluster::runtime_class,
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => cluster::flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => cluster::priority_level,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => config::name_and_age,
        ("resource.k8s.io", "ResourceClaim") => cluster::resource_claim,
        ("resource.k8s.io", "ResourceSlice") => cluster::resource_slice,
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => admission::webhooks,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => admission::validating,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => admission::mutating,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => admission::binding,
        _ => return None,
    })
}

/// Kinds without a printer: name and creation time as written.
fn created_at(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "metadata.creationTimestamp").into()]
}
