//! The objects of a cluster: their names and contents.

use crate::api::{
    Addresses, CLUSTER_LABEL, EtcdCluster, Location, MANAGED_BY, MANAGED_BY_LABEL, MEMBER_LABEL,
    TEMPLATE_ANNOTATION, VOTER_LABEL,
};
use crate::etcd::{CLIENT_PORT, PEER_PORT};
use crate::plan::Entry;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::prelude::*;
use twox_hash::XxHash3_64;

/// The container of etcd.
pub const ETCD: &str = "etcd";
/// The init container that restores a backup.
pub const RESTORE: &str = "restore";

/// The mount path of a member's claim.
const DATA: &str = "/var/lib/etcd";
/// The data of a member, in its claim. A folder below it, because a claim may have a `lost+found`.
const DATA_DIR: &str = "/var/lib/etcd/data";
/// The mount path of the backup.
const BACKUP: &str = "/var/lib/backup";

/// A snapshot to restore: its volume and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The volume of the pod.
    pub volume: Value,
    /// The file in it.
    pub file: String,
}

/// A volume of a pod, named `backup`.
pub fn backup_volume(location: &Location) -> Value {
    match (&location.claim_name, &location.host_path) {
        (Some(claim), _) => {
            json!({"name": "backup", "persistentVolumeClaim": {"claimName": claim}})
        }
        (None, path) => json!({"name": "backup", "hostPath": {"path": path}}),
    }
}

/// A cluster's objects.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    /// The cluster.
    pub cluster: &'a EtcdCluster,
    /// Its key.
    pub key: &'a Request,
}

impl Objects<'_> {
    /// The name of a member, its pod and its claim.
    pub fn member(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.key.name)
    }

    /// The key of a member's pod and claim.
    pub fn member_key(&self, ordinal: u32) -> Request {
        Request::new(&*self.key.namespace, &*self.member(ordinal))
    }

    /// The key of the ConfigMap of entries.
    pub fn entries_key(&self) -> Request {
        Request::new(&*self.key.namespace, &*format!("{}-members", self.key.name))
    }

    /// The key of the Service of clients.
    pub fn clients_key(&self) -> Request {
        Request::new(&*self.key.namespace, &*format!("{}-client", self.key.name))
    }

    /// The host of a member.
    pub fn host(&self, ordinal: u32, pod_ip: Option<&str>) -> Option<String> {
        match self.cluster.spec.addresses {
            Addresses::Dns => {
                let Request { namespace, name } = self.key;
                Some(format!("{}.{name}.{namespace}.svc", self.member(ordinal)))
            }
            Addresses::PodIp => pod_ip.filter(|ip| !ip.is_empty()).map(bracketed),
        }
    }

    /// Where other members reach a member.
    pub fn peer_url(&self, ordinal: u32, pod_ip: Option<&str>) -> Option<String> {
        Some(format!("http://{}:{PEER_PORT}", self.host(ordinal, pod_ip)?))
    }

    /// The labels by which the cluster's pods are selected.
    pub fn selector(&self) -> Value {
        json!({CLUSTER_LABEL: &*self.key.name})
    }

    /// The labels of an object that belongs to the cluster.
    fn labels(&self) -> [(&'static str, String); 2] {
        let name = self.key.name.to_string();
        [(CLUSTER_LABEL, name), (MANAGED_BY_LABEL, MANAGED_BY.to_owned())]
    }

    fn owner(&self) -> Result<OwnerReference, BoxError> {
        Ok(controller_reference(self.cluster, &())?)
    }

    fn metadata(&self, name: &str, labels: Value) -> Result<Value, BoxError> {
        Ok(json!({
            "name": name, "namespace": &*self.key.namespace, "labels": labels,
            "ownerReferences": [self.owner()?],
        }))
    }

    fn member_labels(&self, ordinal: u32) -> Value {
        json!({
            CLUSTER_LABEL: &*self.key.name,
            MEMBER_LABEL: ordinal.to_string(),
            MANAGED_BY_LABEL: MANAGED_BY,
        })
    }

    /// The claim of a member.
    ///
    /// # Errors
    ///
    /// The cluster has no uid, or the spec makes no claim.
    pub fn claim(&self, ordinal: u32) -> Result<PersistentVolumeClaim, BoxError> {
        let storage = &self.cluster.spec.storage;
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
        });
        if let Some(class) = &storage.storage_class_name {
            spec["storageClassName"] = class.as_str().into();
        }
        let metadata = self.metadata(&self.member(ordinal), self.member_labels(ordinal))?;
        typed(json!({"metadata": metadata, "spec": spec}))
    }

    /// What a pod runs. Its hash says whether a pod is current.
    fn template(&self) -> Value {
        let spec = &self.cluster.spec;
        let host = match spec.addresses {
            Addresses::Dns => {
                format!("$(POD_NAME).{}.{}.svc", self.key.name, self.key.namespace)
            }
            Addresses::PodIp => "$(POD_IP)".to_owned(),
        };
        let listen = match spec.addresses {
            Addresses::Dns => "0.0.0.0",
            Addresses::PodIp => "$(POD_IP)",
        };
        let mut args = vec![
            "--name=$(POD_NAME)".to_owned(),
            format!("--data-dir={DATA_DIR}"),
            format!("--listen-peer-urls=http://{listen}:{PEER_PORT}"),
            format!("--listen-client-urls=http://{listen}:{CLIENT_PORT}"),
            format!("--initial-advertise-peer-urls=http://{host}:{PEER_PORT}"),
            format!("--advertise-client-urls=http://{host}:{CLIENT_PORT}"),
            "--initial-cluster=$(INITIAL_CLUSTER)".to_owned(),
            "--initial-cluster-state=$(INITIAL_CLUSTER_STATE)".to_owned(),
            // No other cluster's members, at an address that was once theirs, are taken for ours.
            "--initial-cluster-token=$(CLUSTER_UID)".to_owned(),
        ];
        args.extend(spec.extra_args.iter().cloned());
        json!({
            "name": ETCD,
            "image": spec.image(),
            "command": spec.command,
            "args": args,
            "ports": [
                {"name": "client", "containerPort": CLIENT_PORT},
                {"name": "peer", "containerPort": PEER_PORT},
            ],
            "resources": spec.resources,
            "volumeMounts": [{"name": "data", "mountPath": DATA}],
            "readinessProbe": {
                "httpGet": {"path": "/health", "port": CLIENT_PORT},
                "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3,
            },
            // The last lines of a member that does not start say whether its data is lost.
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    }

    /// The hash of what a pod runs.
    pub fn template_hash(&self) -> String {
        let node_selector = &self.cluster.spec.node_selector;
        hash_of(&json!([self.template(), node_selector]))
    }

    /// The pod of a member. The first one of a cluster may restore a backup.
    ///
    /// # Errors
    ///
    /// The cluster has no uid, or the spec makes no pod.
    pub fn pod(
        &self,
        ordinal: u32,
        is_voter: bool,
        restore: Option<&Source>,
    ) -> Result<Pod, BoxError> {
        let (name, entries) = (self.member(ordinal), self.entries_key());
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let entry = |name: &str, key: String| {
            json!({"name": name, "valueFrom": {
                "configMapKeyRef": {"name": &*entries.name, "key": key},
            }})
        };
        let env = json!([
            {"name": "CLUSTER_UID", "value": self.cluster.meta().uid},
            field("POD_NAME", "metadata.name"),
            field("POD_IP", "status.podIP"),
            // etcd does not start before the entry is there.
            entry("INITIAL_CLUSTER", name.clone()),
            entry("INITIAL_CLUSTER_STATE", state_key(&name)),
        ]);
        let mut etcd = self.template();
        etcd["env"] = env.clone();
        let mut volumes = vec![json!({
            "name": "data", "persistentVolumeClaim": {"claimName": name},
        })];
        let mut init = Vec::new();
        if let Some(source) = restore {
            let spec = &self.cluster.spec;
            // The flags that say which member this is.
            let is_wanted = |flag: &&Value| {
                let names = ["--name=", "--data-dir=", "--initial-advertise", "--initial-cluster="];
                let token = "--initial-cluster-token=";
                let flag = flag.as_str().unwrap_or_default();
                flag.starts_with(token) || names.iter().any(|name| flag.starts_with(name))
            };
            let flags = etcd["args"].as_array().into_iter().flatten().filter(is_wanted).cloned();
            let file = json!(format!("{BACKUP}/{}", source.file));
            let args: Vec<Value> = std::iter::once(file).chain(flags).collect();
            init.push(json!({
                "name": RESTORE, "image": spec.image(), "command": spec.restore_command,
                "args": args, "env": env,
                "volumeMounts": [
                    {"name": "data", "mountPath": DATA},
                    {"name": "backup", "mountPath": BACKUP},
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }));
            volumes.push(source.volume.clone());
        }
        let mut labels = self.member_labels(ordinal);
        if is_voter {
            labels[VOTER_LABEL] = "true".into();
        }
        let mut metadata = self.metadata(&name, labels.clone())?;
        metadata["annotations"] = json!({TEMPLATE_ANNOTATION: self.template_hash()});
        typed(json!({
            "metadata": metadata,
            "spec": {
                "hostname": name,
                "subdomain": &*self.key.name,
                "automountServiceAccountToken": false,
                "nodeSelector": self.cluster.spec.node_selector,
                "affinity": {"podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": self.selector()},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }],
                }},
                "initContainers": init,
                "containers": [etcd],
                "volumes": volumes,
            },
        }))
    }

    /// The Service that gives members their names.
    ///
    /// # Errors
    ///
    /// The cluster has no uid.
    pub fn peers(&self) -> Result<Apply<Service>, BoxError> {
        Ok(Apply::new(self.key).owner(&self.owner()?).labels(self.labels()).spec(json!({
            "clusterIP": "None",
            // Members find each other before they are ready.
            "publishNotReadyAddresses": true,
            "selector": self.selector(),
            "ports": [
                {"name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT},
                {"name": "peer", "port": PEER_PORT, "targetPort": PEER_PORT},
            ],
        })))
    }

    /// The Service of clients: the voting members that are ready. Clients of etcd hold long
    /// connections and choose among the members themselves, so its name resolves to all of them.
    ///
    /// # Errors
    ///
    /// The cluster has no uid.
    pub fn clients(&self) -> Result<Apply<Service>, BoxError> {
        let selector = json!({CLUSTER_LABEL: &*self.key.name, VOTER_LABEL: "true"});
        let ports = json!([{"name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT}]);
        let apply = Apply::new(&self.clients_key()).owner(&self.owner()?);
        Ok(apply
            .labels(self.labels())
            .spec(json!({"clusterIP": "None", "selector": selector, "ports": ports})))
    }

    /// The budget that lets nobody evict two members at a time.
    ///
    /// # Errors
    ///
    /// The cluster has no uid.
    pub fn budget(&self) -> Result<Apply<PodDisruptionBudget>, BoxError> {
        let apply = Apply::new(self.key).owner(&self.owner()?);
        Ok(apply.labels(self.labels()).spec(json!({
            "maxUnavailable": 1, "selector": {"matchLabels": self.selector()},
        })))
    }

    /// The ConfigMap of entries, empty.
    ///
    /// # Errors
    ///
    /// The cluster has no uid.
    pub fn entries(&self) -> Result<Apply<ConfigMap>, BoxError> {
        let apply = Apply::new(&self.entries_key()).owner(&self.owner()?);
        Ok(apply.labels(self.labels()))
    }
}

/// The second key of an entry.
fn state_key(member: &str) -> String {
    format!("{member}.state")
}

/// The merge patch that writes an entry: the members that etcd is told of, and the state. `others`
/// are names and addresses.
pub fn entry_patch(
    member: &str,
    entry: Option<Entry>,
    url: &str,
    others: &[(String, String)],
) -> Value {
    let own = format!("{member}={url}");
    let (members, state) = match entry {
        None => (Value::Null, Value::Null),
        Some(Entry::New) => (own.into(), "new".into()),
        // Without others, etcd with an empty folder finds nobody to ask, and ends.
        Some(Entry::Sealed) => (own.into(), "existing".into()),
        Some(Entry::Joining) => {
            let others = others.iter().map(|(name, url)| format!("{name}={url},"));
            (format!("{}{own}", others.collect::<String>()).into(), "existing".into())
        }
    };
    json!({"data": {member: members, state_key(member): state}})
}

/// The entry of a member, and the address in it.
pub fn read_entry(map: &ConfigMap, member: &str) -> Option<(Entry, String)> {
    let data = map.data.as_ref()?;
    let text = data.get(member)?;
    let own = text.split(',').next_back().and_then(|one| one.split_once('='));
    let url = own.map(|(_, url)| url.to_owned()).unwrap_or_default();
    let entry = match (data.get(&state_key(member)).map(String::as_str), text.contains(',')) {
        (Some("new"), _) => Entry::New,
        (_, true) => Entry::Joining,
        (_, false) => Entry::Sealed,
    };
    Some((entry, url))
}

/// The hash of a part of an object.
pub(crate) fn hash_of(part: &Value) -> String {
    format!("{:016x}", XxHash3_64::oneshot(part.to_string().as_bytes()))
}

/// An address of IPv6 in brackets.
pub fn bracketed(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() }
}

pub(crate) fn typed<T: DeserializeOwned>(object: Value) -> Result<T, BoxError> {
    Ok(serde_json::from_value(object)?)
}
