//! The controller of backups: one pod per backup runs `etcd-operator save`.
//!
//! | the backup | what happens |
//! |---|---|
//! | new, and a member answers | a pod is made that has the destination as a volume |
//! | its pod has succeeded | what the pod reports becomes the status, and the pod is deleted |
//! | its pod has failed | the status says why, the pod is deleted, and after a pause another one is made |
//! | its deadline is over | it has failed, and its pod is deleted |
//! | complete or failed | nothing more: another backup is another object |
//!
//! The number of failed attempts is in the status, and each attempt has a pod of its own name. So a
//! crash between two writes neither counts an attempt twice nor loses one.
//!
//! Deleting the object leaves the file.

use crate::api::{
    COMPLETE, EtcdBackup, EtcdBackupStatus, EtcdCluster, MANAGED_BY, MANAGED_BY_LABEL,
};
use crate::etcd::CLIENT_PORT;
use crate::objects::{backup_volume, bracketed, typed};
use crate::observe::{ended, ip_of, is_owned};
use crate::save::Report;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use setpoint::kube_client::api::DeleteParams;
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The controller's name.
pub const NAME: &str = "etcd-backup";
/// The pause while no member answers.
const POLL: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt. It doubles with each further one.
const RETRY_MIN: Duration = Duration::from_secs(10);
/// The longest pause between attempts.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Where the destination is in the pod.
const FOLDER: &str = "/var/lib/backup";
/// Where the pod leaves its report.
const REPORT: &str = "/dev/termination-log";

/// This program, which the pods of backups run to save snapshots.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The image that contains it.
    pub image: String,
    /// Its path in that image, or on a process node on the machine.
    pub command: String,
}

/// The controller, to be added to a manager.
///
/// # Errors
///
/// None: these options are valid.
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
        let found = context.client().api::<EtcdBackup>().get_own(&request).await?;
        let Some(backup) = found.filter(|found| found.meta().deletion_timestamp.is_none()) else {
            return Ok(Action::await_change());
        };
        let attempts = Attempts { backup: &backup, request: &request, context: &context };
        let mut status = backup.status.clone().unwrap_or_default();
        let n = status.failed_attempts;
        if let Some(last) = n.checked_sub(1) {
            attempts.delete(last).await?;
        }
        if matches!(&*status.phase, "Complete" | "Failed") {
            attempts.delete(n).await?;
            return Ok(Action::await_change());
        }
        let action = match attempts.pod(n)? {
            Some(pod) => attempts.follow(&pod, &mut status),
            None => self.begin(&attempts, &mut status).await?,
        };
        attempts.write(status).await?;
        Ok(action)
    }
}

/// The attempts of one backup.
struct Attempts<'a> {
    backup: &'a EtcdBackup,
    request: &'a Request,
    context: &'a Context,
}

impl Attempts<'_> {
    /// The pod of an attempt.
    fn key(&self, n: u32) -> Request {
        let Request { namespace, name } = self.request;
        let pod = match n {
            0 => format!("{name}-backup"),
            n => format!("{name}-backup-{n}"),
        };
        Request::new(&**namespace, &*pod)
    }

    fn pod(&self, n: u32) -> Result<Option<Arc<Pod>>, BoxError> {
        let uid = self.backup.meta().uid.as_deref().unwrap_or_default();
        let pod = self.context.client().api::<Pod>().get(&self.key(n))?;
        Ok(pod.filter(|pod| is_owned(&pod.metadata, uid)))
    }

    async fn delete(&self, n: u32) -> Result<(), BoxError> {
        if self.pod(n)?.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let pods = self.context.client().api::<Pod>();
            pods.delete(&self.key(n), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// The remaining time until the deadline, if the first attempt has begun.
    fn time_left(&self, status: &EtcdBackupStatus) -> Duration {
        let all = Duration::from_secs(self.backup.spec.deadline_seconds.into());
        match status.start_time.as_ref().and_then(timestamp) {
            Some(start) => (start + all).since(self.context.clock().now()),
            None => all,
        }
    }

    fn fail(&self, status: &mut EtcdBackupStatus) -> Action {
        "Failed".clone_into(&mut status.phase);
        let seconds = self.backup.spec.deadline_seconds;
        let last = status.message.take().unwrap_or_else(|| "the pod does not end".to_owned());
        status.message = Some(format!("no snapshot was written within {seconds} s: {last}"));
        Action::await_change()
    }

    /// What the pod says.
    fn follow(&self, pod: &Pod, status: &mut EtcdBackupStatus) -> Action {
        if status.start_time.is_none() {
            status.start_time.clone_from(&pod.metadata.creation_timestamp);
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let containers =
            pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let message = containers.filter_map(ended).find_map(|ended| ended.message.clone());
        let message = message.unwrap_or_default();
        let failed = match phase {
            Some("Succeeded") => match serde_json::from_str::<Report>(&message) {
                Ok(report) => {
                    "Complete".clone_into(&mut status.phase);
                    status.message = None;
                    status.file = Some(self.backup.file());
                    status.revision = Some(report.revision);
                    status.size_bytes = Some(report.size_bytes);
                    status.version = Some(report.version);
                    status.completion_time = now(self.context);
                    return Action::await_change();
                }
                Err(_) => format!("the pod reports no backup: {message}"),
            },
            Some("Failed") => {
                let reason = pod.status.as_ref().and_then(|status| status.reason.clone());
                let said = Some(message).filter(|message| !message.is_empty());
                said.or(reason).unwrap_or_else(|| "the pod has failed".to_owned())
            }
            _ => {
                let left = self.time_left(status);
                if left.is_zero() {
                    return self.fail(status);
                }
                "Running".clone_into(&mut status.phase);
                return Action::requeue_after(left);
            }
        };
        "Retrying".clone_into(&mut status.phase);
        status.message = Some(failed);
        status.failed_attempts += 1;
        status.last_failure_time = now(self.context);
        match self.time_left(status).is_zero() {
            true => self.fail(status),
            false => Action::requeue_after(pause(status.failed_attempts)),
        }
    }

    /// Writes the status, if it says anything new.
    async fn write(&self, mut status: EtcdBackupStatus) -> Result<(), BoxError> {
        let reason = match &*status.phase {
            "Retrying" => "AttemptFailed",
            other => other,
        };
        let message = match (&status.message, &*status.phase) {
            (Some(message), _) => message.clone(),
            (None, "Complete") => "the snapshot is whole and on the disk".to_owned(),
            (None, _) => "a pod writes the snapshot".to_owned(),
        };
        let (generation, now) = (self.backup.meta().generation, self.context.clock().now());
        let (is_complete, reason) = (status.phase == "Complete", reason.to_owned());
        let conditions = &mut status.conditions;
        set_condition(conditions, COMPLETE, is_complete, &reason, &message, generation, now);
        if self.backup.status.as_ref() != Some(&status) {
            let apply = Apply::<EtcdBackup>::new(self.request).status(&status).force();
            self.context.client().api::<EtcdBackup>().status().apply(&apply).await?;
        }
        Ok(())
    }
}

/// The pause after a number of failed attempts.
fn pause(n_failed: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << n_failed.saturating_sub(1).min(10)).min(RETRY_MAX)
}

fn timestamp(time: &Time) -> Option<Timestamp> {
    Timestamp::parse(&time.0.to_string())
}

fn now(context: &Context) -> Option<Time> {
    serde_json::from_value(context.clock().now().rfc3339().into()).ok()
}

impl Backups {
    /// Makes the pod of the next attempt, if it is time and a member answers.
    async fn begin(
        &self,
        attempts: &Attempts<'_>,
        status: &mut EtcdBackupStatus,
    ) -> Result<Action, BoxError> {
        let Attempts { backup, request, context } = *attempts;
        if attempts.time_left(status).is_zero() {
            return Ok(attempts.fail(status));
        }
        if let Some(failed) = status.last_failure_time.as_ref().and_then(timestamp) {
            let due = failed + pause(status.failed_attempts);
            let left = due.since(context.clock().now());
            if !left.is_zero() {
                return Ok(Action::requeue_after(left));
            }
        }
        match self.endpoints(backup, request, context)? {
            Ok(endpoints) => {
                let pod = self.pod(backup, &attempts.key(status.failed_attempts), &endpoints)?;
                context.client().api::<Pod>().create(&pod).await?;
                "Running".clone_into(&mut status.phase);
                status.message = None;
                if status.start_time.is_none() {
                    status.start_time = now(context);
                }
                Ok(Action::requeue_after(attempts.time_left(status)))
            }
            Err(why) => {
                "Pending".clone_into(&mut status.phase);
                status.message = Some(why);
                Ok(Action::requeue_after(POLL))
            }
        }
    }

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
