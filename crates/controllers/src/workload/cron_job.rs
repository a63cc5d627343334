//! CronJobs: Jobs at times of a schedule.
//!
//! # Theory
//!
//! One pass over a CronJob looks at its Jobs and at the last run that is due:
//!
//! 1. It deletes the oldest finished Jobs beyond the history limits.
//! 2. It notes the Jobs of runs that the status lacks, and removes finished and missing Jobs from
//!    `status.active`.
//! 3. If a run came since `status.lastScheduleTime`, it creates the Job of the last one, unless the
//!    policy forbids it or it is too late. The others are missed.
//! 4. It writes the status, and comes back at the next run.
//!
//! The name of a Job has the time of its run, so no run has two. The status may lack a Job: the
//! answer to its create was lost, or the status could not be written. The next pass notes it, so
//! that `Forbid` and `Replace` count it although another run may be due by then; and until then it
//! is not deleted, so that its run does not come twice. kube-controller-manager finds such a Job
//! only while its run is the last one that is due; after that two Jobs may run.
//!
//! A changed schedule applies from the pass that sees it; the times that it would have had before
//! are not made up for. The rules are those of kube-controller-manager's `cronjob-controller`.
//! Without a time zone it computes in UTC.

mod due;

use super::difference::difference;
use super::job::object::{Job, timestamp};
use super::job::time;
use super::pod::{BY_CONTROLLER, controller_key};
use super::pod_control::{is_namespace_terminating, message, precondition};
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use due::{Due, Timing};
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::batch::v1::CronJobStatus;
use k8s_openapi::api::core::v1::ObjectReference as Reference;
use kube_core::params::{Patch, PropagationPolicy};
use kube_core::{ApiResource, DynamicObject, ObjectMeta};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
    controller_reference,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The controller's name in events.
const NAME: &str = "cronjob-controller";
/// Number of CronJobs that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// How long after a run its pass starts: 100 ms, as in kube-controller-manager, because clocks
/// differ.
const AFTER_RUN: Duration = Duration::from_millis(100);
/// The annotation of a Job with the time of its run.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

view! {
    /// A CronJob.
    CronJob of batch::CronJob {
        /// The spec.
        spec: CronJobSpec,
        /// The observed state.
        status: CronJobStatus,
    }
}

/// `spec` of a CronJob.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobSpec {
    schedule: String,
    time_zone: Option<String>,
    starting_deadline_seconds: Option<i64>,
    /// `Allow`, `Forbid` or `Replace`.
    concurrency_policy: String,
    suspend: Option<bool>,
    /// The template of its Jobs, as JSON.
    job_template: Value,
    successful_jobs_history_limit: Option<i32>,
    failed_jobs_history_limit: Option<i32>,
}

/// The controller of CronJobs.
#[derive(Clone, Debug)]
#[must_use]
pub struct CronJobController(());

impl CronJobController {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let controller = Controller::builder(NAME)
            .for_(Watch::<CronJob>::new())
            .owns(Watch::<Job>::new().index(BY_CONTROLLER, by_controller))
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(CronJobs::default()))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The function of the index of Jobs by their controller.
fn by_controller(job: &Job) -> Vec<String> {
    vec![controller_key(job)]
}

#[derive(Default)]
struct CronJobs {
    /// The schedules that were seen last, and from when they apply. Entries go with the CronJob.
    schedules: Mutex<BTreeMap<Request, Seen>>,
}

/// A schedule of a CronJob.
struct Seen {
    uid: String,
    schedule: String,
    time_zone: Option<String>,
    from: Timestamp,
}

impl BoxedReconciler for CronJobs {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let namespace = &*request.namespace;
        let all = fresh::lister::<CronJob>(context, &client, namespace).await?;
        let Some(cron_job) = all.get_key(request)? else {
            self.schedules.lock().remove(request);
            return Ok(Action::await_change());
        };
        let jobs = fresh::lister::<Job>(context, &client, namespace).await?;
        let uid = cron_job.metadata.uid.clone().unwrap_or_default();
        let jobs = jobs.by_index(BY_CONTROLLER, &uid)?;
        let now = context.clock().now();
        let from = self.applies_from(request, &uid, &cron_job.spec, now);
        let mut pass = Pass {
            context,
            client: &client,
            reference: ObjectReference::of(&*cron_job),
            status: cron_job.status.clone(),
            cron_job: &cron_job,
            now,
        };
        pass.clean_up(&jobs).await;
        let result = pass.run(&jobs, from).await;
        let written = pass.write_status().await;
        let action = result?;
        written?;
        Ok(action)
    }
}

impl CronJobs {
    /// From when the schedule applies: from the pass that sees its change, or always.
    fn applies_from(
        &self,
        request: &Request,
        uid: &str,
        spec: &CronJobSpec,
        now: Timestamp,
    ) -> Timestamp {
        let mut all = self.schedules.lock();
        let seen = all.get(request).filter(|seen| seen.uid == uid);
        let is_same =
            |seen: &Seen| seen.schedule == spec.schedule && seen.time_zone == spec.time_zone;
        let from = match seen {
            Some(seen) if is_same(seen) => return seen.from,
            Some(_) => now,
            None => Timestamp::default(),
        };
        let (schedule, time_zone) = (spec.schedule.clone(), spec.time_zone.clone());
        all.insert(request.clone(), Seen { uid: uid.to_owned(), schedule, time_zone, from });
        from
    }
}

/// A pass over one CronJob.
struct Pass<'a> {
    context: &'a Context,
    client: &'a Client,
    reference: ObjectReference,
    cron_job: &'a CronJob,
    /// The status to write.
    status: CronJobStatus,
    now: Timestamp,
}

impl Pass<'_> {
    fn normal(&self, reason: &str, note: impl Into<String>) {
        self.context.recorder().normal(&self.reference, reason, note);
    }

    fn warning(&self, reason: &str, note: impl Into<String>) {
        self.context.recorder().warning(&self.reference, reason, note);
    }

    fn name(&self) -> &str {
        self.cron_job.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.cron_job.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn active(&self) -> Vec<Reference> {
        self.status.active.clone().unwrap_or_default()
    }

    fn is_active(&self, uid: &str) -> bool {
        self.active().iter().any(|active| active.uid.as_deref() == Some(uid))
    }

    fn remove_active(&mut self, uid: &str) {
        let mut active = self.active();
        active.retain(|active| active.uid.as_deref() != Some(uid));
        self.status.active = Some(active).filter(|active| !active.is_empty());
    }

    /// Deletes the oldest finished Jobs beyond the limits.
    async fn clean_up(&mut self, jobs: &[Arc<Job>]) {
        let spec = &self.cron_job.spec;
        for (kind, limit) in [
            ("Complete", spec.successful_jobs_history_limit),
            ("Failed", spec.failed_jobs_history_limit),
        ] {
            let Some(limit) = limit else { continue };
            let mut ended: Vec<&Arc<Job>> = jobs
                .iter()
                .filter(|job| job.finished().is_some_and(|end| end.type_ == kind))
                .filter(|job| !job.is_being_deleted() && self.forgotten(job).is_none())
                .collect();
            // Jobs that never started come last.
            ended.sort_by_key(|job| {
                let started = job.status.start_time.as_ref().map(|time| time.0);
                (started.is_none(), started, job.name())
            });
            let limit = usize::try_from(limit).unwrap_or_default();
            let n = ended.len().saturating_sub(limit);
            for job in ended.into_iter().take(n) {
                _ = self.delete(job).await;
            }
        }
    }

    /// Deletes a Job with its pods.
    async fn delete(&mut self, job: &Job) -> Result<(), BoxError> {
        let key = Request::new(job.namespace(), job.name());
        let mut params = precondition(job.uid());
        params.propagation_policy = Some(PropagationPolicy::Background);
        match self.client.api::<Job>().delete(&key, &params).await {
            // It may still be the same Job, which must be gone before the next one is created.
            Err(error) if error.is_conflict() => return Err(error.into()),
            Err(error) => {
                self.warning("FailedDelete", format!("Deleted job: {}", message(&error)));
                return Err(error.into());
            }
            Ok(()) => self.normal("SuccessfulDelete", format!("Deleted job {}", job.name())),
        }
        self.remove_active(job.uid());
        Ok(())
    }

    /// Updates the list of active Jobs, and starts due runs.
    async fn run(&mut self, jobs: &[Arc<Job>], from: Timestamp) -> Result<Action, BoxError> {
        self.observe(jobs);
        self.drop_missing(jobs).await?;
        let spec = &self.cron_job.spec;
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let timing = match Timing::of(&spec.schedule, spec.time_zone.as_deref()) {
            Ok(timing) => timing,
            Err((reason, note)) => {
                self.warning(reason, note);
                return Ok(Action::await_change());
            }
        };
        if spec.suspend == Some(true) {
            return Ok(Action::await_change());
        }
        let created = self.cron_job.metadata.creation_timestamp.as_ref().and_then(timestamp);
        let last = self.status.last_schedule_time.as_ref().and_then(timestamp);
        let since = last.or(created).unwrap_or(self.now).max(from);
        let deadline = spec.starting_deadline_seconds;
        let deadline = deadline.map(|s| Duration::from_secs(u64::try_from(s).unwrap_or_default()));
        let due = timing.due(since, self.now, deadline);
        let next = timing.next(since, self.now);
        let action = match next {
            Some(next) => Action::requeue_after((next + AFTER_RUN).since(self.now)),
            None => Action::await_change(),
        };
        let Some(Due { run, is_many }) = due else {
            if next.is_none() {
                // A day that no month has.
                let why = "time difference between two schedules is less than 1 second";
                let note = format!("invalid schedule: {} : {why}", spec.schedule);
                self.warning("InvalidSchedule", note);
            }
            return Ok(action);
        };
        if is_many {
            self.warning(
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            );
        }
        let name = job_name(self.name(), run);
        let is_done = self.active().iter().any(|active| active.name.as_deref() == Some(&*name));
        if is_done || last == Some(run) {
            return Ok(action);
        }
        match &*spec.concurrency_policy {
            "Forbid" if self.status.active.is_some() => {
                self.normal(
                    "JobAlreadyActive",
                    "Not starting job because prior execution is running and concurrency policy is Forbid",
                );
                return Ok(action);
            }
            "Replace" => {
                for active in self.active() {
                    let uid = active.uid.as_deref().unwrap_or_default();
                    if let Some(job) = jobs.iter().find(|job| job.uid() == uid) {
                        self.delete(job).await?;
                        continue;
                    }
                    // Not in the cache yet, or no longer of this CronJob.
                    let name = active.name.as_deref().unwrap_or_default();
                    let key = Request::new(self.namespace(), name);
                    match self.client.api::<Job>().get_live(&key).await? {
                        Some(live) if live.uid() == uid => self.delete(&live).await?,
                        _ => self.remove_active(uid),
                    }
                }
            }
            _ => {}
        }
        let annotation = timing.local(run);
        if let Some(job) = self.create(&name, &annotation).await? {
            let mut active = self.active();
            active.push(job);
            self.status.active = Some(active);
            self.status.last_schedule_time = Some(time(run));
        }
        Ok(action)
    }

    /// Notes finished Jobs, those that the status lacks, and unexpected ones.
    fn observe(&mut self, jobs: &[Arc<Job>]) {
        // Compared with the status as it is before the first of them is noted.
        let mut forgotten: Vec<_> =
            jobs.iter().filter_map(|job| Some((self.forgotten(job)?, job))).collect();
        forgotten.sort_by_key(|(run, _)| *run);
        for (run, job) in forgotten {
            if job.finished().is_none() {
                let mut active = self.active();
                active.push(reference(job.metadata.clone()));
                self.status.active = Some(active);
            }
            self.status.last_schedule_time = Some(time(run));
        }
        for job in jobs {
            let is_active = self.is_active(job.uid());
            let Some(end) = job.finished() else {
                if !is_active {
                    let note = "Saw a job that the controller did not create or forgot";
                    self.warning("UnexpectedJob", format!("{note}: {}", job.name()));
                }
                continue;
            };
            if is_active {
                self.remove_active(job.uid());
                let note = format!("Saw completed job: {}, condition: {}", job.name(), end.type_);
                self.normal("SawCompletedJob", note);
            }
            let completed = job.status.completion_time.as_ref();
            let latest = self.status.last_successful_time.as_ref();
            if end.type_ == "Complete"
                && let Some(completed) = completed
                && latest.is_none_or(|latest| latest.0 < completed.0)
            {
                self.status.last_successful_time = Some(completed.clone());
            }
        }
    }

    /// The run of a Job that this controller created, but did not write to the status: it is later
    /// than the last one there. Jobs that users make of a CronJob have no such annotation.
    fn forgotten(&self, job: &Job) -> Option<Timestamp> {
        if self.is_active(job.uid()) {
            return None;
        }
        let annotations = job.metadata.annotations.as_ref()?;
        let run = Timestamp::parse(annotations.get(SCHEDULED)?)?;
        let last = self.status.last_schedule_time.as_ref().and_then(timestamp);
        let is_later = last.is_none_or(|last| run > last);
        (is_later && job.name() == job_name(self.name(), run)).then_some(run)
    }

    /// Removes active Jobs that do not exist any more.
    async fn drop_missing(&mut self, jobs: &[Arc<Job>]) -> Result<(), BoxError> {
        for active in self.active() {
            let uid = active.uid.as_deref().unwrap_or_default();
            if jobs.iter().any(|job| job.uid() == uid) {
                continue;
            }
            let name = active.name.as_deref().unwrap_or_default();
            let key = Request::new(self.namespace(), name);
            let live = self.client.api::<Job>().get_live(&key).await?;
            if live.is_none_or(|live| live.uid() != uid) {
                self.normal("MissingJob", format!("Active job went missing: {name}"));
                self.remove_active(uid);
            }
        }
        Ok(())
    }

    /// Creates the Job of a run; it may exist from an earlier pass. Returns its reference; `None`
    /// if the name belongs to a Job of another owner, or the CronJob is gone.
    async fn create(&self, name: &str, at: &str) -> Result<Option<Reference>, BoxError> {
        if !fresh::is_live(&self.client.api(), self.cron_job).await? {
            return Ok(None);
        }
        let template = &self.cron_job.spec.job_template;
        let owner = controller_reference(self.cron_job, &())?;
        let uid = owner.uid.clone();
        let resource = ApiResource::erase::<batch::Job>(&());
        let mut job = DynamicObject::new(name, &resource).within(self.namespace());
        let text = |member: &str| -> BTreeMap<String, String> {
            let members = template["metadata"][member].as_object().into_iter().flatten();
            members
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        job.metadata.labels = Some(text("labels")).filter(|labels| !labels.is_empty());
        let mut annotations = text("annotations");
        annotations.insert(SCHEDULED.to_owned(), at.to_owned());
        job.metadata.annotations = Some(annotations);
        job.metadata.owner_references = Some(vec![owner]);
        job.data = json!({"spec": template["spec"]});
        let api = self.client.api_with::<DynamicObject>(resource);
        let created = match api.create(&job).await {
            Ok(created) => {
                self.normal("SuccessfulCreate", format!("Created job {name}"));
                created.metadata
            }
            Err(error) if error.is_already_exists() => {
                let key = Request::new(self.namespace(), name);
                let live = self.client.api::<Job>().get_live(&key).await?;
                let Some(live) = live else { return Err(error.into()) };
                if controller_of(&live).is_none_or(|owner| owner.uid != uid) {
                    return Ok(None);
                }
                live.metadata
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let note = format!("Error creating job: {}", message(&error));
                    self.warning("FailedCreate", note);
                }
                return Err(error.into());
            }
        };
        Ok(Some(reference(created)))
    }

    /// Writes the status if it differs, in the version that was read.
    async fn write_status(&self) -> Result<(), BoxError> {
        let old = serde_json::to_value(&self.cron_job.status)?;
        let patch = difference(&old, &serde_json::to_value(&self.status)?);
        if patch.is_empty() {
            return Ok(());
        }
        let meta = &self.cron_job.metadata;
        let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": patch}));
        let key = Request::new(self.namespace(), self.name());
        ignore_not_found(self.client.api::<CronJob>().patch_status(&key, &patch).await)?;
        Ok(())
    }
}

/// The name of the Job of a run.
fn job_name(cron_job: &str, run: Timestamp) -> String {
    format!("{cron_job}-{}", run.0.as_secs() / 60)
}

/// A reference to a Job, for the status.
fn reference(job: ObjectMeta) -> Reference {
    Reference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.namespace,
        name: job.name,
        uid: job.uid,
        resource_version: job.resource_version,
        ..Reference::default()
    }
}
