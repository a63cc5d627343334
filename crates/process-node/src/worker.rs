//! The worker of one pod.
//!
//! # Theory
//!
//! A worker owns everything of its pod: its folder, its containers' states, the tasks that run
//! them. It waits for a change of the pod, a report of a container or a time; then it starts and
//! stops what the new state calls for, and writes the status if that has changed. It ends when the
//! pod is deleted, and leaves no process.

mod start;
mod stop;
mod turn;

use crate::container::{Change, Ended, Report, Stop, grace_period};
use crate::env::PodAddresses;
use crate::logs::Log;
use crate::shared::{Shared, VisiblePod, log_path};
use crate::status::{Conditions, List, State, Tracked, Verdict, View, is_over};
use crate::tokens::Tokens;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube_core::params::{DeleteParams, Patch, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_nodes::restart::ContainerPolicy;
use setpoint_object::error::chain;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::client::ClientError;
use setpoint_runtime::{Client, EventRecorder, ObjectReference, Request};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubelet";
/// The pause before what has failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often volumes are brought up to date.
const REFRESH: Duration = Duration::from_secs(30);
/// Reports that wait for the worker.
const REPORTS_WAITING: usize = 64;
/// The grace period of a pod that is gone from the server, and of all pods when the node stops.
const SHORT_GRACE: Duration = Duration::from_secs(2);

/// The newest version of a pod; `None` once it is deleted.
pub(crate) type Seen = Option<Arc<Pod>>;

/// What a worker is made of.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) key: Request,
    pub(crate) pod: Arc<Pod>,
    pub(crate) seen: watch::Receiver<Seen>,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
    /// The pod has no room on its node.
    pub(crate) is_too_many: bool,
}

/// The running part of a container.
#[derive(Default)]
struct Live {
    stop: Option<watch::Sender<Option<Stop>>>,
    /// When it starts, if it waits.
    due: Option<Instant>,
    /// It restarts with any policy, because its image has changed.
    is_replaced: bool,
}

/// The worker of a pod.
pub(crate) struct Worker {
    parts: Parts,
    uid: String,
    folder: PathBuf,
    addresses: PodAddresses,
    visible: Arc<VisiblePod>,
    containers: Vec<Tracked>,
    live: BTreeMap<String, Live>,
    began: Timestamp,
    volumes: Option<BTreeMap<String, PathBuf>>,
    volumes_due: Instant,
    tokens: Tokens,
    verdict: Option<Verdict>,
    /// All containers are being stopped, and then start again as in a new pod.
    is_restarting_all: bool,
    /// The grace period of the pod's end, and when it is over. It may become shorter.
    ending: Option<(Duration, Instant)>,
    conditions: Conditions,
    /// The status that the server has.
    written: Value,
    write_due: Option<Instant>,
    reports: mpsc::Sender<Report>,
    incoming: mpsc::Receiver<Report>,
    runs: JoinSet<()>,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> Self {
        let pod = &parts.pod;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let status = pod.status.as_ref();
        let shown = status.and_then(|status| status.pod_ip.as_ref()).and_then(|ip| ip.parse().ok());
        let name = parts.key.to_string();
        let ip = parts.shared.addresses.lock().assign(&name, &uid, shown);
        let visible = Arc::new(VisiblePod { ip, containers: Mutex::default() });
        parts.shared.pods.lock().insert(uid.clone(), visible.clone());
        let now = parts.clock.now();
        let began = status.and_then(|status| status.start_time.as_ref());
        let began = began.and_then(|time| Timestamp::parse(&time.0.to_string())).unwrap_or(now);
        let mut conditions = Conditions::new();
        for known in status.iter().flat_map(|status| status.conditions.iter().flatten()) {
            let since = known.last_transition_time.as_ref();
            let since = since.map_or_else(|| now.rfc3339(), |time| time.0.to_string());
            conditions.insert(known.type_.clone(), (known.status.clone(), since));
        }
        let (reports, incoming) = mpsc::channel(REPORTS_WAITING);
        let mut worker = Self {
            folder: parts.shared.pod_folder(&uid),
            tokens: Tokens::of_pod(&uid),
            uid,
            addresses: PodAddresses { pod: ip, host: Ipv4Addr::LOCALHOST },
            visible,
            containers: Vec::new(),
            live: BTreeMap::new(),
            began,
            volumes: None,
            volumes_due: Instant::now(),
            verdict: None,
            is_restarting_all: false,
            ending: None,
            conditions,
            written: Value::Null,
            write_due: None,
            reports,
            incoming,
            runs: JoinSet::new(),
            parts,
        };
        worker.track();
        worker
    }

    fn pod(&self) -> &Pod {
        &self.parts.pod
    }

    /// Takes in the containers of the pod's spec, with what their statuses say of earlier runs.
    fn track(&mut self) {
        let pod = self.parts.pod.clone();
        let Some(spec) = &pod.spec else { return };
        let (policy, status) = (spec.restart_policy.as_deref(), pod.status.as_ref());
        let init = spec.init_containers.iter().flatten().map(|one| {
            let is_sidecar = one.restart_policy.as_deref() == Some("Always");
            (one.clone(), if is_sidecar { List::Sidecar } else { List::Init })
        });
        let main = spec.containers.iter().map(|one| (one.clone(), List::Main));
        // The same members, and one that names a container to look at.
        let ephemeral = spec.ephemeral_containers.iter().flatten().filter_map(|one| {
            let one = serde_json::from_value(serde_json::to_value(one).ok()?).ok()?;
            Some((one, List::Ephemeral))
        });
        let all: Vec<(Container, List)> = init.chain(main).chain(ephemeral).collect();
        for (container, list) in all {
            let known = self.containers.iter_mut().find(|one| one.container.name == container.name);
            if let Some(known) = known {
                let live = self.live.entry(container.name.clone()).or_default();
                if known.container.image != container.image
                    && let Some(stop) = &live.stop
                    && stop.borrow().is_none()
                {
                    live.is_replaced = true;
                    let deadline = Instant::now() + grace_of(&pod);
                    stop.send_replace(Some(Stop { deadline, is_turn: true }));
                }
                known.container = container;
                continue;
            }
            let statuses = status.and_then(|status| match list {
                List::Init | List::Sidecar => status.init_container_statuses.as_ref(),
                List::Main => status.container_statuses.as_ref(),
                List::Ephemeral => status.ephemeral_container_statuses.as_ref(),
            });
            let mut statuses = statuses.into_iter().flatten();
            let status = statuses.find(|status| status.name == container.name);
            let policy = list.policy(&container, policy);
            let tracked = self.tracked(container, list, policy, status);
            let name = tracked.container.name.clone();
            let visible = crate::shared::Visible {
                log: (!tracked.id.is_empty())
                    .then(|| Log::closed(log_path(&self.folder, &name, tracked.n_restarts))),
                ..Default::default()
            };
            self.visible.containers.lock().insert(name, visible);
            self.containers.push(tracked);
        }
    }

    fn tracked(
        &self,
        container: Container,
        list: List,
        policy: ContainerPolicy,
        status: Option<&ContainerStatus>,
    ) -> Tracked {
        let has_init = self.pod().spec.as_ref().is_some_and(|spec| spec.init_containers.is_some());
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let now = self.parts.clock.now();
        let state = status.and_then(|status| status.state.as_ref());
        let ended = state.and_then(|state| state.terminated.as_ref()).map(|ended| Ended {
            code: ended.exit_code,
            reason: if ended.exit_code == 0 { "Completed" } else { "Error" },
            message: ended.message.clone().unwrap_or_default(),
            started_at: None,
            finished_at: now,
        });
        // It ran when the node ended, and was killed with it.
        let lost = state.and_then(|state| state.running.as_ref()).map(|_| Ended {
            code: 137,
            reason: "ContainerStatusUnknown",
            message: "The container could not be located when the node started".to_owned(),
            started_at: None,
            finished_at: now,
        });
        let waiting = State::Waiting { reason: reason.to_owned(), message: String::new() };
        let id = status.and_then(|status| status.container_id.as_deref()).unwrap_or_default();
        Tracked {
            container,
            list,
            policy,
            state: ended.or(lost).map_or(waiting, State::Ended),
            last: None,
            n_restarts: status.map_or(0, |status| status.restart_count),
            id: id.trim_start_matches("process://").to_owned(),
            is_started: false,
            is_ready: false,
            is_live: false,
        }
    }

    /// Runs the pod until it is deleted or the node stops.
    pub(crate) async fn run(mut self) {
        if self.parts.is_too_many && self.written.is_null() && !is_over(self.pod()) {
            self.reject("OutOfpods", "Node didn't have enough resource: pods");
        }
        loop {
            let is_gone = self.parts.seen.borrow().is_none();
            if self.parts.stop.is_cancelled() || is_gone {
                self.stop_all(SHORT_GRACE);
                self.drain_runs().await;
                self.forget(is_gone).await;
                return;
            }
            if self.is_deleted() && self.finish_deletion().await {
                self.forget(true).await;
                return;
            }
            self.advance().await;
            self.sync_status().await;
            self.wait().await;
        }
    }

    /// Waits for what changes the pod's state.
    async fn wait(&mut self) {
        let due = self.due();
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let stop = self.parts.stop.clone();
        tokio::select! {
            biased;
            // Cancel safe: all of these wait for a state, or take a whole message.
            () = stop.cancelled() => {}
            changed = self.parts.seen.changed() => {
                if changed.is_err() {
                    // The node has ended without a word.
                    self.parts.stop.cancel();
                }
                let newest = self.parts.seen.borrow_and_update().clone();
                if let Some(pod) = newest {
                    self.parts.pod = pod;
                    self.track();
                    // Fields of the pod may be in files.
                    self.volumes_due = Instant::now();
                }
            }
            Some(report) = self.incoming.recv() => {
                self.take(report);
                while let Ok(report) = self.incoming.try_recv() {
                    self.take(report);
                }
            }
            Some(_) = self.runs.join_next() => {}
            () = timer => {}
        }
    }

    /// When something is to be done without an event.
    fn due(&self) -> Option<Instant> {
        if is_over(self.pod()) || self.is_closing() {
            return self.write_due;
        }
        let now = Instant::now();
        let deadline = self.deadline().map(|left| now + left);
        let others = deadline.into_iter().chain(self.write_due);
        // Nothing is brought up until all containers have ended.
        if self.is_restarting_all {
            return others.min();
        }
        let starts = self.turns(now).map(|(_, at)| at);
        starts.chain(others).chain([self.volumes_due]).min()
    }

    /// The time that is left of `activeDeadlineSeconds`.
    fn deadline(&self) -> Option<Duration> {
        let seconds = self.pod().spec.as_ref()?.active_deadline_seconds?;
        let end = self.began + Duration::from_secs(u64::try_from(seconds).ok()?);
        Some(end.since(self.parts.clock.now()))
    }

    fn is_deleted(&self) -> bool {
        self.pod().metadata.deletion_timestamp.is_some()
    }

    fn take(&mut self, report: Report) {
        let Report { container, change } = report;
        let Some(tracked) = self.containers.iter_mut().find(|one| one.container.name == container)
        else {
            return;
        };
        match change {
            Change::Running(since) => tracked.state = State::Running(since),
            Change::Started => tracked.is_started = true,
            Change::Ready(is_ready) => tracked.is_ready = is_ready,
            Change::Event { is_warning, reason, message } => {
                let path = format!("spec.{}{{{container}}}", tracked.list.of_spec());
                self.event(is_warning, reason, message, path);
            }
            Change::Ended(ended) => self.take_end(&container, ended),
        }
    }

    fn start_nothing(&mut self) {
        self.live.values_mut().for_each(|live| live.due = None);
    }

    /// Whether no container starts any more: the pod is ending, or has nothing left to do.
    fn is_closing(&self) -> bool {
        let of = |list: List| self.containers.iter().filter(move |one| one.list == list);
        let is_done = of(List::Main).all(|one| one.final_code().is_some());
        let has_failed = of(List::Init).any(|one| one.final_code().is_some_and(|code| code != 0));
        self.is_ending() || is_done || has_failed
    }

    fn is_ending(&self) -> bool {
        self.is_deleted() || self.verdict.is_some() || self.parts.stop.is_cancelled()
    }

    /// Starts and stops what the state calls for.
    async fn advance(&mut self) {
        // What follows writes it, or it is no longer to be written.
        self.write_due.take_if(|due| *due <= Instant::now());
        if is_over(self.pod()) {
            // Another client may have said so.
            if self.containers.iter().any(|one| one.is_live) {
                self.stop_in_order(grace_of(self.pod()));
            }
            return;
        }
        if self.deadline().is_some_and(|left| left.is_zero()) && self.verdict.is_none() {
            let message = "Pod was active on the node longer than the specified deadline";
            self.event(false, "DeadlineExceeded", message.to_owned(), String::new());
            self.verdict =
                Some(Verdict { reason: "DeadlineExceeded", message: message.to_owned() });
        }
        if self.is_deleted() {
            self.stop_in_order(grace_period(self.pod().metadata.deletion_grace_period_seconds));
            return;
        }
        if self.verdict.is_some() {
            self.stop_in_order(grace_of(self.pod()));
            return;
        }
        match self.is_closing() {
            true => self.stop_in_order(grace_of(self.pod())),
            false if self.is_restarting_all => self.stop_to_restart(grace_of(self.pod())),
            false => self.bring_up().await,
        }
    }

    /// Waits for the end of all runs.
    async fn drain_runs(&mut self) {
        loop {
            tokio::select! {
                // Cancel safe: both take whole messages.
                ended = self.runs.join_next() => if ended.is_none() { break },
                Some(report) = self.incoming.recv() => self.take(report),
            }
        }
        while let Ok(report) = self.incoming.try_recv() {
            self.take(report);
        }
    }

    /// Ends a deleted pod: true once it is gone from the server.
    async fn finish_deletion(&mut self) -> bool {
        if self.live.values().any(|live| live.stop.is_some()) || !self.runs.is_empty() {
            return false;
        }
        if !is_over(self.pod()) && !self.sync_status().await {
            return false;
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let pods = self.parts.client.api::<Pod>().field_manager(FIELD_MANAGER);
        match pods.delete(&self.parts.key, &params).await {
            // With finalizers it stays; its processes and files need not.
            Ok(()) => true,
            Err(error) if is_absent(&error) => true,
            Err(error) => {
                tracing::warn!(error = chain(&error), pod = %self.parts.key, "delete a pod that has ended");
                self.write_due = Some(Instant::now() + RETRY);
                false
            }
        }
    }

    /// Leaves nothing of the pod; its files stay if it may start again.
    async fn forget(&mut self, is_gone: bool) {
        self.parts.shared.pods.lock().remove(&self.uid);
        if !is_gone {
            return;
        }
        self.parts.shared.addresses.lock().release(&self.uid);
        if let Err(error) = tokio::fs::remove_dir_all(&self.folder).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(error = chain(&error), pod = %self.parts.key, "remove the folder of a pod");
        }
    }

    fn reject(&mut self, reason: &'static str, message: &str) {
        self.event(true, reason, message.to_owned(), String::new());
        let message = format!("Pod was rejected: {message}");
        self.verdict = Some(Verdict { reason, message });
    }

    /// Writes the status if it has changed; false if it must be tried again.
    async fn sync_status(&mut self) -> bool {
        if is_over(self.pod()) {
            return true;
        }
        let view = View {
            pod: &self.parts.pod,
            containers: &self.containers,
            addresses: self.addresses,
            began: self.began,
            now: self.parts.clock.now(),
            verdict: self.verdict.as_ref(),
            is_ending: self.is_deleted(),
            is_restarting_all: self.is_restarting_all,
        };
        let (status, conditions) = view.status(&self.conditions);
        if status == self.written {
            return true;
        }
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        let pods = self.parts.client.api::<Pod>().field_manager(FIELD_MANAGER);
        let statuses = pods.subresource::<Value>("status");
        match statuses.patch(&self.parts.key, &Patch::Strategic(patch)).await {
            Ok(_) => {
                (self.written, self.conditions, self.write_due) = (status, conditions, None);
                true
            }
            Err(error) if is_absent(&error) => true,
            Err(error) => {
                tracing::warn!(error = chain(&error), pod = %self.parts.key, "write the status of a pod");
                self.write_due = Some(Instant::now() + RETRY);
                false
            }
        }
    }

    fn event(&self, is_warning: bool, reason: &str, message: String, field_path: String) {
        let mut reference = ObjectReference::default();
        "v1".clone_into(&mut reference.api_version);
        "Pod".clone_into(&mut reference.kind);
        reference.namespace = self.parts.key.namespace.to_string();
        reference.name = self.parts.key.name.to_string();
        reference.uid.clone_from(&self.uid);
        reference.field_path = field_path;
        match is_warning {
            true => self.parts.recorder.warning(&reference, reason, message),
            false => self.parts.recorder.normal(&reference, reason, message),
        }
    }
}

/// The pod is gone, or another has its name.
fn is_absent(error: &ClientError) -> bool {
    error.is_not_found() || error.is_conflict()
}

fn grace_of(pod: &Pod) -> Duration {
    grace_period(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds))
}

#[cfg(test)]
mod tests;
