//! Jobs: pods that run to their end.
//!
//! # Theory
//!
//! One pass over a Job:
//!
//! 1. Claims its pods, and counts what they are now (`state`).
//! 2. Decides whether the Job is to end: by a policy, a limit or a deadline; otherwise creates the
//!    missing pods or deletes those that are too many, and looks whether enough have succeeded.
//! 3. Counts ended pods, each once (`track`). A Job that is to end first says so by the condition
//!    `SuccessCriteriaMet` or `FailureTarget`. When its last pod has ended, it gets `Complete` or
//!    `Failed`.
//!
//! A pod that was created for the Job carries a finalizer until it is counted. Pods whose Job is
//! gone lose it too: their keys are those of the Job, or, without a controller, `pod/<name>`.
//!
//! A pass with nothing to create, delete or count rests for a time in proportion to the active
//! pods, so that thousands of pods that start do not cost a pass each.
//!
//! Passes read their own writes (`fresh`), so a Job never has more pods than
//! `parallelism`, unless that is lowered. The back-off of failed pods is in memory (`backoff`).
//! The rules are those of kube-controller-manager's `job-controller`.

mod backoff;
mod gang;
mod indexes;
pub(crate) mod object;
mod pods;
mod policy;
mod state;
mod track;

use super::by_label::{self, BY_LABEL, Labels};
use super::difference::difference;
use super::pod::{self, BY_CONTROLLER, is_ready, orphan_key};
use super::pod_control::{rest, slow_start};
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::setup::Setup;
use backoff::Backoff;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube_core::params::Patch;
use object::Job;
use parking_lot::Mutex;
use pods::JobPods;
use serde_json::json;
use setpoint_informer::{Event, Object};
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, ClientError, Context, Controller, Manager, ObjectReference,
    RateLimits, Request, Watch,
};
pub(super) use state::time;
use state::{Plan, State, condition, count, is_tracked, set_condition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use track::{Tracked, some};

/// The controller's name in events.
const NAME: &str = "job-controller";
/// Number of Jobs that are processed at the same time: 5, as kube-controller-manager.
const WORKERS: usize = 5;
/// Shortest and longest back-off after a failed pass, as in kube-controller-manager.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The index of pods by the name of the Job that controls them: `namespace/name`.
const BY_JOB: &str = "job";
/// The start of the key of a pod without a controller. Names of Jobs have no slash.
const POD: &str = "pod/";

/// The controller of Jobs.
#[derive(Clone, Debug)]
#[must_use]
pub struct JobController {
    has_workloads: bool,
}

impl JobController {
    /// Creates a controller. Client, clock and seed are the manager's; its setting is
    /// [`workloads_of_jobs`](Setup::workloads_of_jobs).
    pub fn new(setup: Setup) -> Self {
        Self { has_workloads: setup.has_workloads_of_jobs() }
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pods =
            Watch::<pod::Pod>::new().index(BY_CONTROLLER, pod::by_controller).index(BY_JOB, by_job);
        let controller = Controller::builder(NAME)
            .for_(Watch::<Job>::new().index(BY_LABEL, by_label))
            .maps(pods, job_of)
            .watches_with(Watch::<pod::Pod>::new(), of_orphan)
            .concurrency(WORKERS)
            .rate_limiter(RateLimits::new().backoff(BACKOFF.0, BACKOFF.1))
            .sync_timeout(None);
        let controller = match self.has_workloads {
            // They are only read: nothing follows from their changes, as in the reference.
            true => controller
                .watches(gang::watch_workloads(), |_| Vec::new())
                .watches(gang::watch_groups(), |_| Vec::new()),
            false => controller,
        };
        let jobs = Jobs { has_workloads: self.has_workloads, ..Jobs::default() };
        manager.add(controller.build(Boxed(jobs))?)?;
        Ok(())
    }
}

/// The name of the Job that controls a pod.
fn job_name(pod: &pod::Pod) -> Option<&str> {
    let controller = controller_of(pod)?;
    let is_job = controller.kind == "Job" && controller.api_version.starts_with("batch/");
    is_job.then_some(controller.name.as_str())
}

/// The function of the index [`BY_JOB`].
fn by_job(pod: &pod::Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    job_name(pod).map(|job| format!("{namespace}/{job}")).into_iter().collect()
}

/// The key of the Job that controls a pod.
fn job_of(pod: &Object<pod::Pod>) -> Vec<Request> {
    let Ok(pod) = pod.get() else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    job_name(&pod).map(|job| Request::new(namespace, job)).into_iter().collect()
}

/// The keys of the Jobs that may adopt a pod without a controller; or its own, if it is tracked.
fn of_orphan(event: &Event<pod::Pod>, client: &Client) -> Vec<Request> {
    let pod = match event {
        Event::Deleted { .. } => return Vec::new(),
        event => event.object().and_then(|object| object.get().ok()),
    };
    let Some(pod) = pod.filter(|pod| controller_of(&**pod).is_none()) else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let finalizers = pod.metadata.finalizers.iter().flatten();
    let is_tracked = finalizers.into_iter().any(|finalizer| finalizer == state::FINALIZER);
    let mut keys = adopters(&pod, client);
    if keys.is_empty() && is_tracked {
        keys.push(Request::new(namespace, format!("{POD}{}", pod.name())));
    }
    keys
}

/// The function of the index of its kind by a label that is required.
fn by_label(job: &Job) -> Vec<String> {
    by_label::required_by(job.namespace(), &job.spec.selector)
}

/// The Jobs whose selectors match a pod.
fn adopters(pod: &pod::Pod, client: &Client) -> Vec<Request> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if pod.is_being_deleted() {
        return Vec::new();
    }
    let jobs = Labels::of(pod).candidates::<Job>(client).into_iter().filter(|job| {
        !job.is_being_deleted() && job.selector().is_some_and(|selector| pod.is_selected(&selector))
    });
    jobs.map(|job| Request::new(namespace, job.name())).collect()
}

#[derive(Default)]
struct Jobs {
    /// Jobs get Workloads.
    has_workloads: bool,
    /// The back-off of Jobs with failed pods, with the Job's uid. Entries go with the Job.
    backoff: Mutex<BTreeMap<Request, (String, Backoff)>>,
}

impl BoxedReconciler for Jobs {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        if let Some(pod) = request.name.strip_prefix(POD) {
            release_orphan(&client, &Request::new(request.namespace.clone(), pod)).await?;
            return Ok(Action::await_change());
        }
        let job =
            fresh::lister::<Job>(context, &client, &request.namespace).await?.get_key(request)?;
        let pods = fresh::lister::<Pod>(context, &client, &request.namespace).await?;
        let of_name = pods.by_index(BY_JOB, &format!("{}/{}", request.namespace, request.name))?;
        let uid = job.as_ref().map(|job| job.uid().to_owned()).unwrap_or_default();
        release_of_others(&client, request, &of_name, &uid).await?;
        let Some(job) = job else {
            self.forget(request);
            return Ok(Action::await_change());
        };
        let is_finished = job.finished().is_some();
        if is_finished {
            self.forget(request);
        }
        if job.is_managed_elsewhere() {
            return Ok(Action::await_change());
        }
        if is_finished {
            // It counts no more. Pods of other Jobs of its name are released already.
            let is_own = |pod: &&Pod| controller_of(*pod).is_some_and(|job| job.uid == uid);
            let pods = of_name.iter().map(|pod| &**pod).filter(|pod| is_tracked(pod));
            release(&client, &pods.filter(is_own).collect::<Vec<_>>()).await?;
            return Ok(Action::await_change());
        }
        let reference = ObjectReference::of(&*job);
        let mode = job.spec.completion_mode.as_deref().unwrap_or("NonIndexed");
        if !matches!(mode, "NonIndexed" | "Indexed") {
            let note = "Skipped Job sync because completion mode is unknown";
            context.recorder().warning(&reference, "UnknownCompletionMode", note);
            return Ok(Action::await_change());
        }
        let Some(selector) = job.selector() else { return Ok(Action::await_change()) };
        let mut candidates = pods.by_index(BY_CONTROLLER, job.uid())?;
        candidates.extend(pods.by_index(BY_CONTROLLER, &orphan_key(&request.namespace))?);
        let mut writer = JobPods { context, client: &client, job: &job, reference, group: None };
        let pods = writer.claim(candidates, &selector).await?;
        if self.has_workloads {
            writer.group = gang::group_of(&writer, pods.len()).await?;
        }
        let now = context.clock().now();
        let pods = pods.iter().map(|pod| &**pod).collect();
        let state = State::new(&job, pods, self.backoff_of(request, job.uid()));
        self.sync(request, &writer, &state, now).await
    }
}

impl Jobs {
    /// The pass over a Job that has not ended.
    async fn sync(
        &self,
        request: &Request,
        writer: &JobPods<'_>,
        state: &State<'_>,
        now: Timestamp,
    ) -> Result<Action, BoxError> {
        let job = state.job;
        let mut status = job.status.clone();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !job.is_suspended() {
            status.start_time = Some(time(now));
        }
        let mut numbers = Numbers {
            active: count(&state.active),
            ready: state.n_ready,
            terminating: state.n_terminating,
        };
        let mut wait = state.until_deadline(now);
        let mut errors = FirstError::new();
        let mut finished = state.verdict(now);
        if finished.is_some() {
            let (deleted, failed) = writer.delete(&state.active, true).await;
            numbers.delete(&deleted);
            if failed.has_failed() {
                // Not all pods are known to end.
                finished = None;
            }
            errors = failed;
        } else if !job.is_being_deleted() {
            let managed = manage(writer, state, &mut numbers, now).await;
            if let Some(until) = errors.note(managed) {
                wait = wait.into_iter().chain(until).min();
            }
        }
        if finished.is_none() && !errors.has_failed() {
            if state.is_complete(numbers.active) {
                let message = "Reached expected number of succeeded pods";
                finished =
                    Some(condition("SuccessCriteriaMet", "CompletionsReached", message, now));
            } else if !job.is_being_deleted() {
                suspend_or_resume(writer, &mut status, now);
            }
        }
        status.active = some(numbers.active);
        status.ready = Some(numbers.ready);
        status.terminating = Some(numbers.terminating);
        let tracked = state.track(status, finished, now);
        self.write(request, writer, &tracked, state.backoff, now).await?;
        // A pass that creates, deletes or counts pods may have more of them to do.
        let is_settled = tracked.release.is_empty() && numbers.active == count(&state.active);
        let rest = if is_settled { rest(state.active.len()) } else { Duration::ZERO };
        errors.into_result()?;
        match wait {
            Some(wait) if !wait.is_zero() => Ok(Action::requeue_after(wait).rest(rest)),
            _ => Ok(Action::await_change().rest(rest)),
        }
    }

    /// Writes the steps of tracking.
    async fn write(
        &self,
        request: &Request,
        writer: &JobPods<'_>,
        tracked: &Tracked<'_>,
        backoff: Backoff,
        now: Timestamp,
    ) -> Result<(), BoxError> {
        let job = writer.job;
        let mut version = job.metadata.resource_version.clone();
        let written = write_status(writer, &job.status, &tracked.status, &mut version).await?;
        if !written {
            return Ok(());
        }
        self.backoff.lock().insert(request.clone(), (job.uid().to_owned(), backoff));
        let (released, errors) = writer.release(&tracked.release).await;
        let mut status = tracked.status.clone();
        let finished = tracked.count(&mut status, &released, now);
        let written = write_status(writer, &tracked.status, &status, &mut version).await?;
        if let Some(finished) = finished.filter(|_| written) {
            record_end(writer, &status, &finished);
        }
        Ok(errors.into_result()?)
    }

    fn backoff_of(&self, request: &Request, uid: &str) -> Backoff {
        let all = self.backoff.lock();
        all.get(request)
            .filter(|(of, _)| of == uid)
            .map(|(_, backoff)| *backoff)
            .unwrap_or_default()
    }

    fn forget(&self, request: &Request) {
        self.backoff.lock().remove(request);
    }
}

/// Numbers of a status, kept up while pods are created and deleted.
struct Numbers {
    active: i32,
    ready: i32,
    terminating: i32,
}

impl Numbers {
    fn delete(&mut self, pods: &[&Pod]) {
        let n = count(pods);
        self.active -= n;
        self.terminating += n;
        self.ready -= count(pods.iter().filter(|pod| is_ready(pod)));
    }
}

/// Creates or deletes pods. Returns when to look again.
async fn manage(
    writer: &JobPods<'_>,
    state: &State<'_>,
    numbers: &mut Numbers,
    now: Timestamp,
) -> Result<Option<Duration>, ClientError> {
    match state.plan(now) {
        Plan::Keep => Ok(None),
        Plan::Wait(wait) => Ok(Some(wait)),
        Plan::Delete(pods) => {
            let (deleted, errors) = writer.delete(&pods, false).await;
            numbers.delete(&deleted);
            errors.into_result().map(|()| None)
        }
        Plan::Create(_) if !fresh::is_live(&writer.client.api(), writer.job).await? => Ok(None),
        Plan::Create(indexes) => {
            let n_created = Mutex::new(0);
            let created = slow_start(indexes.len(), async |n| {
                let index = indexes.get(n).copied().flatten();
                writer.create(state, index).await?;
                *n_created.lock() += 1;
                Ok(())
            });
            let created = created.await;
            numbers.active += n_created.into_inner();
            created.map(|()| None)
        }
    }
}

/// Writes the condition `Suspended`, with its events. A resumed Job starts again.
fn suspend_or_resume(writer: &JobPods<'_>, status: &mut JobStatus, now: Timestamp) {
    let is_suspended = writer.job.is_suspended();
    let (reason, message) = match is_suspended {
        true => ("JobSuspended", "Job suspended"),
        false => ("JobResumed", "Job resumed"),
    };
    let mut wanted = condition("Suspended", reason, message, now);
    if !is_suspended {
        "False".clone_into(&mut wanted.status);
    }
    if set_condition(status, wanted) {
        let event = if is_suspended { "Suspended" } else { "Resumed" };
        writer.context.recorder().normal(&writer.reference, event, message);
        status.start_time = (!is_suspended).then(|| time(now));
    }
}

fn record_end(writer: &JobPods<'_>, status: &JobStatus, finished: &JobCondition) {
    let recorder = writer.context.recorder();
    if finished.type_ != "Complete" {
        let reason = finished.reason.as_deref().unwrap_or_default();
        let message = finished.message.clone().unwrap_or_default();
        return recorder.warning(&writer.reference, reason, message);
    }
    let completions = writer.job.spec.completions;
    if completions.is_some_and(|completions| status.succeeded.unwrap_or(0) > completions) {
        let message = "Too many succeeded pods running after completion count reached";
        recorder.warning(&writer.reference, "TooManySucceededPods", message);
    }
    recorder.normal(&writer.reference, "Completed", "Job completed");
}

/// Writes a status if it differs, in the version that was read. Returns whether the Job still
/// exists; `version` becomes the new one.
async fn write_status(
    writer: &JobPods<'_>,
    old: &JobStatus,
    new: &JobStatus,
    version: &mut Option<String>,
) -> Result<bool, BoxError> {
    let patch = difference(&serde_json::to_value(old)?, &serde_json::to_value(new)?);
    if patch.is_empty() {
        return Ok(true);
    }
    let metadata = json!({"uid": writer.job.uid(), "resourceVersion": version});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": patch}));
    let key = Request::new(writer.job.namespace(), writer.job.name());
    let written = ignore_not_found(writer.client.api::<Job>().patch_status(&key, &patch).await)?;
    let Some(job) = written else { return Ok(false) };
    *version = job.metadata.resource_version;
    Ok(true)
}

/// Removes the finalizer from pods that a Job of this name controls, but not the one that exists.
async fn release_of_others(
    client: &Client,
    request: &Request,
    pods: &[Arc<Pod>],
    uid: &str,
) -> Result<(), BoxError> {
    let is_other = |pod: &&Pod| controller_of(*pod).is_some_and(|job| job.uid != uid);
    let pods = pods.iter().map(|pod| &**pod);
    let others: Vec<&Pod> = pods.filter(|pod| is_tracked(pod)).filter(is_other).collect();
    if others.is_empty() {
        return Ok(());
    }
    // The cache of Jobs may be behind that of pods.
    let live = client.api::<Job>().get_live(request).await?;
    let live = live.as_ref().map(Job::uid).unwrap_or_default();
    let is_other = |pod: &&Pod| controller_of(*pod).is_some_and(|job| job.uid != live);
    let others: Vec<&Pod> = others.into_iter().filter(is_other).collect();
    release(client, &others).await
}

/// Removes the finalizer from pods that no Job counts.
async fn release(client: &Client, pods: &[&Pod]) -> Result<(), BoxError> {
    let (_, errors) = pods::release(&client.api::<Pod>(), pods).await;
    Ok(errors.into_result()?)
}

/// Removes the finalizer from a pod without a controller that no Job adopts.
async fn release_orphan(client: &Client, key: &Request) -> Result<(), BoxError> {
    let Some(pod) = client.api::<pod::Pod>().get_own(key).await? else { return Ok(()) };
    if controller_of(&*pod).is_some() || !adopters(&pod, client).is_empty() {
        return Ok(());
    }
    let Some(pod) = client.api::<Pod>().get(key)? else { return Ok(()) };
    let pods: &[&Pod] = if is_tracked(&pod) { &[&*pod] } else { &[] };
    release(client, pods).await
}

#[cfg(test)]
mod tests;
