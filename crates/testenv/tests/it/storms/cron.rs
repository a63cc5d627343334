//! CronJobs in virtual time.

use super::observer::{Objects, at_every_change};
use crate::cluster::{Cluster, controllers, has, until_either};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// How long all CronJobs may take to run in their rhythm: longer than the back-offs of all faults.
const PATIENCE: Duration = Duration::from_secs(45_000);
/// The time between a change and the next look at running Jobs.
const LOOK: Duration = Duration::from_secs(5);
/// The minutes since the epoch when plays start: 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600 / 60;

/// CronJobs with every concurrency policy, all of them every two minutes, for at least thirteen
/// minutes.
///
/// | at every change | in the end |
/// |---|---|
/// | each Job is of a run, and no run has two | the last runs of each CronJob came one after the other |
/// | of `Forbid` and `Replace` one Job runs at most | |
///
/// While requests fail, a run may be missed: when the next one is due, it is not made up for.
struct Rhythm;

/// The name, the policy, how long a Job runs, and the minutes from one run with a Job to the next.
const CRONS: [(&str, &str, Duration, u64); 3] = [
    ("allow", "Allow", Duration::from_secs(10), 2),
    // While one runs, the next is due; when it has ended, the deadline of that one is over.
    ("forbid", "Forbid", Duration::from_secs(170), 4),
    ("replace", "Replace", Duration::MAX, 2),
];
/// The minutes of the runs that have a Job if nothing fails, in thirteen minutes.
const RUNS: [(&str, &[u64]); 3] =
    [("allow", &[2, 4, 6, 8, 10, 12]), ("forbid", &[2, 6, 10]), ("replace", &[2, 4, 6, 8, 10, 12])];
/// The number of last runs that came one after the other.
const IN_RHYTHM: usize = 3;

fn cron_job(name: &str, policy: &str) -> Value {
    let template = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
    }});
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {
            "schedule": "*/2 * * * *", "concurrencyPolicy": policy,
            "successfulJobsHistoryLimit": 2,
            "jobTemplate": {"metadata": {"labels": {"of": name}}, "spec": {"template": template}},
        },
    });
    if policy == "Forbid" {
        object["spec"]["startingDeadlineSeconds"] = 40.into();
    }
    object
}

fn is_running(job: &Value) -> bool {
    !has(job, "Complete") && job["metadata"]["deletionTimestamp"].is_null()
}

/// Completes a Job, as its controller would.
async fn complete(env: &TestEnv, cluster: &Cluster, job: &Value) {
    let now = env.clock().now().rfc3339();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
    let status = json!({"status": {
        "startTime": job["metadata"]["creationTimestamp"], "completionTime": now,
        "succeeded": 1, "ready": 0, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let path = format!("{JOBS}/{}/status", job["metadata"]["name"].as_str().unwrap());
    match cluster.send("PATCH", &path, "application/merge-patch+json", &status).await {
        Ok(_) => {}
        // It was replaced, or is complete already: the answer was lost.
        Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 422) => {}
        Err(error) => panic!("{path}: {error}"),
    }
}

impl Scenario for Rhythm {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let manager = controllers(life.manager(), &life.client, &life.clock, "cronjob")?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        play(env).await;
    }
}

/// The minutes since the start of the runs that have a Job, by CronJob.
type Runs = BTreeMap<String, BTreeSet<u64>>;

/// Has the CronJobs run, and then takes them to a state without Jobs. Returns their runs.
async fn play(env: &TestEnv) -> Runs {
    let cluster = Cluster::of(env);
    let began = Instant::now();
    let runs = RefCell::new(Runs::new());
    let watch = at_every_change(env, "/registry/jobs/", |jobs: &Objects, change| {
        if change.creates() {
            let (of, minute) = run_of(&change.new);
            assert_eq!(minute % 2, 0, "{change} is of no run");
            let is_new = runs.borrow_mut().entry(of).or_default().insert(minute);
            assert!(is_new, "{change} runs for the second time");
        }
        for (name, policy, ..) in CRONS {
            let of = |job: &&Value| job["metadata"]["labels"]["of"] == name;
            let n = jobs.values().filter(of).filter(|job| is_running(job)).count();
            assert!(policy == "Allow" || n <= 1, "{change}: {n} Jobs of {name} run");
        }
    });
    // Plays the controller of Jobs.
    let (is_ending, ending) = (Cell::new(false), Notify::new());
    let work = async {
        let mut since: BTreeMap<String, Instant> = BTreeMap::new();
        let mut changes = cluster.changes();
        loop {
            let mut next = Duration::MAX;
            for job in cluster.list(JOBS).await.iter().filter(|job| is_running(job)) {
                let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
                let of = &job["metadata"]["labels"]["of"];
                let (_, _, time, _) = CRONS.iter().find(|(name, ..)| of == name).unwrap();
                let since = *since.entry(uid).or_insert_with(Instant::now);
                if is_ending.get() || since.elapsed() >= *time {
                    complete(env, &cluster, job).await;
                } else {
                    next = next.min(*time - since.elapsed());
                }
            }
            let changed = async {
                changes.next().await;
                tokio::time::sleep(LOOK).await;
            };
            tokio::select! {
                biased;
                () = ending.notified() => {}
                _ = tokio::time::timeout(next, changed) => {}
            }
            changes.skip();
        }
    };
    let user = async {
        for (name, policy, ..) in CRONS {
            cluster.create(CRON_JOBS, &cron_job(name, policy)).await;
        }
        tokio::time::sleep(Duration::from_secs(13 * 60)).await;
        let mut changes = cluster.changes();
        while !CRONS.iter().all(|cron| is_in_rhythm(cron, &runs.borrow())) {
            assert!(began.elapsed() < PATIENCE, "{runs:?}");
            changes.next().await;
        }
        for (name, ..) in CRONS {
            let path = format!("{CRON_JOBS}/{name}");
            cluster.patch(&path, &json!({"spec": {"suspend": true}})).await;
        }
        is_ending.set(true);
        ending.notify_one();
        for (name, ..) in CRONS {
            let is_idle = |cron: &Value| {
                cron["status"]["active"].is_null()
                    && cron["status"]["lastSuccessfulTime"].is_string()
            };
            cluster.until(&format!("{CRON_JOBS}/{name}"), is_idle).await;
            let has_history = |jobs: &[Value]| {
                jobs.iter().filter(|job| job["metadata"]["labels"]["of"] == name).count() <= 2
            };
            cluster.until_all(JOBS, has_history).await;
        }
        // Which runs are the last ones depends on the faults.
        for job in cluster.list(JOBS).await {
            let path = format!("{JOBS}/{}", job["metadata"]["name"].as_str().unwrap());
            cluster.delete(&path, &json!({"propagationPolicy": "Background"})).await;
        }
    };
    until_either(watch, until_either(user, work)).await;
    runs.into_inner()
}

/// The CronJob of a Job, and the minute of its run since the start.
fn run_of(job: &Value) -> (String, u64) {
    let (of, minutes) = job["metadata"]["name"].as_str().unwrap().rsplit_once('-').unwrap();
    (of.to_owned(), minutes.parse::<u64>().unwrap() - START)
}

/// Whether the last runs of a CronJob came one after the other.
fn is_in_rhythm((name, _, _, step): &(&str, &str, Duration, u64), runs: &Runs) -> bool {
    let runs: Vec<u64> = runs.get(*name).into_iter().flatten().copied().collect();
    let last = &runs[runs.len().saturating_sub(IN_RHYTHM)..];
    last.len() == IN_RHYTHM && last.windows(2).all(|pair| pair[1] - pair[0] == *step)
}

#[test]
fn cron_jobs_run_once_at_each_time_with_every_plan() {
    check(&Rhythm, &Plans::new().storms(10));
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn every_run_has_its_job_if_nothing_fails(env: &TestEnv) {
    Cluster::start(env, "cronjob");
    let runs = play(env).await;
    let expected = RUNS.map(|(name, minutes)| (name.to_owned(), minutes.iter().copied().collect()));
    assert_eq!(runs, Runs::from(expected));
}
