//! The controller of backups: one pod per backup runs `etcd-operator save`.
//!
//! | the backup | what happens |
//! |---|---|
//! | new, and a member answers | a pod is made that has the destination as a volume |
//! | its pod has succeeded | what the pod reports becomes the status, and the pod is deleted |
//! | its pod has failed | the status says why, and the pod is deleted |
//! | complete or failed | nothing more: another backup is another object |
//!
//! Deleting the object leaves the file.

use crate::api::{EtcdBackup, EtcdBackupStatus, EtcdCluster, MANAGED_BY, MANAGED_BY_LABEL};
use crate::etcd::CLIENT_PORT;
use crate::objects::{backup_volume, bracketed, typed};
use crate::observe::{ended, ip_of};
use crate::save::Report;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use setpoint::kube_client::api::DeleteParams;
use setpoint::prelude::*;
use std::time::Duration;

/// The controller's name.
pub const NAME: &str = "etcd-backup";
/// The pause while no member answers.
const POLL: Duration = Duration::from_secs(5);
/// Where the destination is in the pod.
const FOLDER: &str = "/var/lib/backup";
/// Where the pod leaves its report.
const REPORT: &str = "/dev/termination-log";

/// The program that saves snapshots: this one.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The image that it is in.
    pub image: String,
    /// Its path in that image, or on a process node on the machine.
    pub command: String,
}

/// The controller, to be added to a manager.
///
/// # Errors
///
/// Never, as it is built here; the builder's own rules say when.
pub fn controller(agent: Agent) -> Result<Controller, BuildError> {
    Controller::builder(NAME)
        .for_(Watch::<EtcdBackup>::new())
        .owns(Watch::<Pod>::new())
        .build(Backups { agent })
}

/// The reconciler of backups.
struct Backups {
    agent: Agent,
}

impl Reconciler for Backups {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let found = context.client().api::<EtcdBackup>().get(&request)?;
        let Some(backup) = found.filter(|found| found.meta().deletion_timestamp.is_none()) else {
            return Ok(Action::await_change());
        };
        let pods = context.client().api::<Pod>();
        let key = Request::new(&*request.namespace, &*format!("{}-backup", request.name));
        let uid = backup.meta().uid.as_deref();
        let pod = pods.get(&key)?.filter(|pod| {
            let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
            owners.iter().any(|owner| Some(&*owner.uid) == uid)
        });
        let phase = backup.status.as_ref().map(|status| status.phase.as_str());
        if matches!(phase, Some("Complete" | "Failed")) {
            if pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
                pods.delete(&key, &DeleteParams::default()).await?;
            }
            return Ok(Action::await_change());
        }
        let (status, action) = match pod {
            Some(pod) => (followed(&backup, &pod, &context), Action::await_change()),
            None => match self.endpoints(&backup, &request, &context)? {
                Ok(endpoints) => {
                    pods.create(&self.pod(&backup, &key, &endpoints)?).await?;
                    (status("Running", None), Action::await_change())
                }
                Err(why) => (status("Pending", Some(why)), Action::requeue_after(POLL)),
            },
        };
        if backup.status.as_ref() != Some(&status) {
            let apply = Apply::<EtcdBackup>::new(&request).status(&status).force();
            context.client().api::<EtcdBackup>().status().apply(&apply).await?;
        }
        Ok(action)
    }
}

fn status(phase: &str, message: Option<String>) -> EtcdBackupStatus {
    EtcdBackupStatus { phase: phase.to_owned(), message, ..EtcdBackupStatus::default() }
}

/// What the pod says.
fn followed(backup: &EtcdBackup, pod: &Pod, context: &Context) -> EtcdBackupStatus {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let message = containers.filter_map(ended).find_map(|ended| ended.message.clone());
    let message = message.unwrap_or_default();
    match phase {
        Some("Succeeded") => match serde_json::from_str::<Report>(&message) {
            Ok(report) => EtcdBackupStatus {
                phase: "Complete".to_owned(),
                message: None,
                file: Some(backup.file()),
                revision: Some(report.revision),
                size_bytes: Some(report.size_bytes),
                version: Some(report.version),
                completion_time: now(context),
            },
            Err(_) => status("Failed", Some(format!("the pod reports no backup: {message}"))),
        },
        Some("Failed") => status("Failed", Some(message)),
        _ => status("Running", None),
    }
}

fn now(context: &Context) -> Option<Time> {
    serde_json::from_value(context.clock().now().rfc3339().into()).ok()
}

impl Backups {
    /// The addresses of the members that answer, or why there is none.
    fn endpoints(
        &self,
        backup: &EtcdBackup,
        request: &Request,
        context: &Context,
    ) -> Result<Result<Vec<String>, String>, BoxError> {
        let name = &backup.spec.cluster;
        let key = Request::new(&*request.namespace, name.as_str());
        let cluster = context.client().api::<EtcdCluster>().get(&key)?;
        let Some(cluster) = cluster else {
            return Ok(Err(format!("there is no EtcdCluster {name}")));
        };
        let pods = context.client().api::<Pod>();
        let mut endpoints = Vec::new();
        let members = cluster.status.iter().flat_map(|status| &status.members);
        for member in members.filter(|member| member.is_ready && !member.is_learner) {
            let pod = pods.get(&Request::new(&*request.namespace, member.name.as_str()))?;
            if let Some(ip) = pod.as_deref().and_then(ip_of) {
                endpoints.push(format!("http://{}:{CLIENT_PORT}", bracketed(ip)));
            }
        }
        let none = || format!("no voting member of {name} is ready");
        Ok(if endpoints.is_empty() { Err(none()) } else { Ok(endpoints) })
    }

    fn pod(
        &self,
        backup: &EtcdBackup,
        key: &Request,
        endpoints: &[String],
    ) -> Result<Pod, BoxError> {
        let mut args = vec!["save".to_owned()];
        args.extend(endpoints.iter().map(|endpoint| format!("--endpoint={endpoint}")));
        args.push(format!("--file={FOLDER}/{}", backup.file()));
        args.push(format!("--report={REPORT}"));
        typed(json!({
            "metadata": {
                "name": &*key.name, "namespace": &*key.namespace,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "ownerReferences": [controller_reference(backup, &())?],
            },
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "save", "image": self.agent.image, "command": [self.agent.command],
                    "args": args,
                    "volumeMounts": [{"name": "backup", "mountPath": FOLDER}],
                    "terminationMessagePath": REPORT,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }],
                "volumes": [backup_volume(&backup.spec.destination)],
            },
        }))
    }
}
