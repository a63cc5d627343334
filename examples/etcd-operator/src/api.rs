//! The types `EtcdCluster` and `EtcdBackup`: spec and status.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;
use std::collections::BTreeMap;

/// The label of all objects that the operator creates. Only these are cached.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGED_BY: &str = "etcd-operator";
/// The label of everything that belongs to a cluster: the cluster's name.
pub const CLUSTER_LABEL: &str = "etcd.example.dev/cluster";
/// The label of a member's pod and claim: its number.
pub const MEMBER_LABEL: &str = "etcd.example.dev/member";
/// The label of pods whose members vote; clients are sent to these.
pub const VOTER_LABEL: &str = "etcd.example.dev/voter";
/// The annotation with the hash of the spec that an object was created from.
pub const TEMPLATE_ANNOTATION: &str = "etcd.example.dev/template";

/// The condition of a cluster with a majority of answering members.
pub const AVAILABLE: &str = "Available";
/// The condition of a cluster that is being changed to match its spec.
pub const PROGRESSING: &str = "Progressing";
/// The condition of a cluster that has a fault, whether or not it is available.
pub const DEGRADED: &str = "Degraded";
/// The condition of a backup whose file is complete and synced.
pub const COMPLETE: &str = "Complete";

/// An etcd cluster.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "etcd.example.dev",
    version = "v1",
    kind = "EtcdCluster",
    namespaced,
    status = "EtcdClusterStatus",
    scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"),
    printcolumn = r#"{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyMembers"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".status.version"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    crates(kube_core = "setpoint::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.restoreFrom) == has(oldSelf.restoreFrom) && (!has(self.restoreFrom) || self.restoreFrom == oldSelf.restoreFrom)",
        "message": "restoreFrom cannot be changed: a cluster is restored when it is created",
    },
    {
        "rule": "self.storage == oldSelf.storage",
        "message": "storage cannot be changed",
    },
    {
        "rule": "self.addresses == oldSelf.addresses",
        "message": "addresses cannot be changed",
    },
]))]
pub struct EtcdClusterSpec {
    /// Number of voting members: 1 to 9. Use an odd number: an even one tolerates no more failures
    /// than the next smaller odd one.
    #[schemars(range(min = 1, max = 9))]
    pub size: u32,
    /// The version, as `3.5.21`. A change replaces the pods one at a time. Only to the same or the
    /// next minor version, as etcd allows.
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub version: String,
    /// The image. Default: `gcr.io/etcd-development/etcd:v` and the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The program of the image. Default: `etcd`. On a process node, which reads no images: the
    /// path of etcd on the machine.
    #[serde(default = "default_command")]
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// The command that makes a member's folder from a snapshot; the file and the flags of the
    /// member follow. Default: `etcdutl snapshot restore`. Before etcd 3.5: `etcdctl snapshot
    /// restore`.
    #[serde(default = "default_restore_command")]
    #[schemars(length(min = 1))]
    pub restore_command: Vec<String>,
    /// More flags for etcd, such as `--quota-backend-bytes=8589934592`. A change replaces the pods
    /// one at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// The claim of each member.
    pub storage: Storage,
    /// How members and clients reach a member.
    #[serde(default)]
    pub addresses: Addresses,
    /// Time after which a member that does not answer is replaced, in seconds. A member whose data
    /// is known to be lost is replaced at once.
    #[serde(default = "default_replace_after")]
    #[schemars(range(min = 1, max = 86400))]
    pub replace_after_seconds: u32,
    /// The backup that the cluster starts with. Default: it starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,
    /// Resources of each member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Labels of the nodes on which members run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

fn default_command() -> Vec<String> {
    vec!["etcd".to_owned()]
}

fn default_restore_command() -> Vec<String> {
    ["etcdutl", "snapshot", "restore"].map(str::to_owned).to_vec()
}

fn default_replace_after() -> u32 {
    300
}

/// The claim of a member.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Its size, as `8Gi`.
    pub size: String,
    /// Its class. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// How a member is reached.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addresses {
    /// By the DNS name of its pod.
    #[default]
    Dns,
    /// By the address of its pod. Only where a pod of the same name keeps its address, as on a
    /// process node.
    PodIp,
}

/// Where a cluster's first data comes from.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.backup) != has(self.location)", "message": "either backup or location"},
]))]
pub struct RestoreFrom {
    /// An EtcdBackup of this namespace. The cluster waits until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// A file that no EtcdBackup describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

/// A file in a claim or in a folder of a node.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.claimName) != has(self.hostPath)", "message": "either claimName or hostPath"},
]))]
pub struct Location {
    /// A claim of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// A folder of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// The file in it. Default, for a backup: its name and `.db`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"))]
    pub file: Option<String>,
}

/// What an etcd cluster is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word: `Creating`, `Running`, `Scaling`, `Healing`, `Upgrading`, `Blocked`, `NoQuorum`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// etcd's id of the cluster, in hexadecimal digits. Once it is set, only the data of removed
    /// members is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Number of members, with learners.
    #[serde(default)]
    pub size: u32,
    /// Number of members that answer.
    #[serde(default)]
    pub ready_members: u32,
    /// The lowest version that a member runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The members, as etcd lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// Where clients reach the voting members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// `Available`, `Progressing`, `Degraded`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A member.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name, which is that of its pod; empty before it has started.
    pub name: String,
    /// etcd's id of it, in hexadecimal digits.
    pub id: String,
    /// Whether it is a learner, which does not vote yet.
    pub is_learner: bool,
    /// Whether it answers and a majority agrees with it.
    pub is_ready: bool,
    /// Its version, while it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A backup of a cluster: one snapshot, taken when the object is created.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "etcd.example.dev",
    version = "v1",
    kind = "EtcdBackup",
    namespaced,
    status = "EtcdBackupStatus",
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".spec.cluster"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Revision", "type": "integer", "jsonPath": ".status.revision"}"#,
    printcolumn = r#"{"name": "Bytes", "type": "integer", "jsonPath": ".status.sizeBytes"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    crates(kube_core = "setpoint::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a backup cannot be changed: create another"},
]))]
pub struct EtcdBackupSpec {
    /// The cluster, in the same namespace.
    pub cluster: String,
    /// Where the snapshot is written.
    pub destination: Location,
    /// Time for all attempts to write the snapshot, in seconds from the first one. After that the
    /// backup has failed.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 86400))]
    pub deadline_seconds: u32,
}

fn default_deadline() -> u32 {
    3600
}

/// What a backup is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// `Pending`, `Running`, `Retrying`, `Complete`, `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why it waits or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The file, below the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The snapshot has every write up to this revision, and maybe later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The size of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// The version of the member that it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// How many attempts have failed.
    #[serde(default)]
    pub failed_attempts: u32,
    /// When the last of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Time>,
    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// `Complete`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl EtcdClusterSpec {
    /// The image.
    pub fn image(&self) -> String {
        let default = || format!("gcr.io/etcd-development/etcd:v{}", self.version);
        self.image.clone().unwrap_or_else(default)
    }
}

impl EtcdBackup {
    /// The file, below the destination.
    pub fn file(&self) -> String {
        let default = || format!("{}.db", self.name_any());
        self.spec.destination.file.clone().unwrap_or_else(default)
    }
}
