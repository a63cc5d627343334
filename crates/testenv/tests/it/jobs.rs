//! Jobs and CronJobs, as a user sees them.

use crate::cluster::{Cluster, Fate, condition, controllers, has, pod_spec, until_either};
use crate::storms::observer::at_every_change;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::collections::BTreeSet;
use std::time::Duration;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A Job with these members of its spec.
fn job(name: &str, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": pod_spec()}},
    });
    for (member, value) in spec.as_object().unwrap() {
        job["spec"][member] = value.clone();
    }
    job
}

fn path(name: &str) -> String {
    format!("{JOBS}/{name}")
}

fn index(pod: &Value) -> i64 {
    pod["metadata"]["annotations"][INDEX].as_str().unwrap().parse().unwrap()
}

fn is_active(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        && pod["metadata"]["deletionTimestamp"].is_null()
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn job_completes_with_its_pods(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let user = async {
        cluster.create(JOBS, &job("j", json!({"completions": 3, "parallelism": 2}))).await;
        let done = cluster.until(&path("j"), |job| has(job, "Complete")).await;
        let status = &done["status"];
        assert_eq!(status["succeeded"], 3, "{done:#}");
        assert!(status["failed"].is_null() && status["active"].is_null(), "{done:#}");
        assert_eq!((&status["ready"], &status["terminating"]), (&json!(0), &json!(0)));
        assert_eq!(status["uncountedTerminatedPods"], json!({}));
        for kind in ["SuccessCriteriaMet", "Complete"] {
            let held = condition(&done, kind);
            assert_eq!(held["reason"], "CompletionsReached");
            assert_eq!(held["message"], "Reached expected number of succeeded pods");
            assert!(held["lastProbeTime"].is_string());
        }
        assert!(status["startTime"].is_string() && status["completionTime"].is_string());
        let pods = cluster.list(PODS).await;
        assert_eq!(pods.len(), 3);
        for pod in pods {
            assert!(pod["metadata"]["finalizers"].is_null(), "it is counted");
            assert_eq!(pod["metadata"]["generateName"], "j-");
            assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "j");
            let owner = &pod["metadata"]["ownerReferences"][0];
            assert_eq!(
                (&owner["controller"], &owner["blockOwnerDeletion"]),
                (&json!(true), &json!(true))
            );
            let manager = &pod["metadata"]["managedFields"][0]["manager"];
            assert_eq!(manager, "kube-controller-manager");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let events = cluster.events("Job").await;
        assert_eq!(events.len(), 4, "{events:#?}");
        assert!(events[0].starts_with("Normal SuccessfulCreate Created pod: j-"), "{events:#?}");
        assert_eq!(events[3], "Normal Completed Job completed");
    };
    cluster.with_kubelets(|_| Fate::Succeed, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn indexed_job_runs_each_index_once(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let spec = json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"});
    let user = async {
        cluster.create(JOBS, &job("x", spec)).await;
        let done = cluster.until(&path("x"), |job| has(job, "Complete")).await;
        assert_eq!(done["status"]["completedIndexes"], "0-4");
        assert_eq!(done["status"]["succeeded"], 5);
        let pods = cluster.list(PODS).await;
        let indexes: BTreeSet<i64> = pods.iter().map(index).collect();
        assert_eq!((pods.len(), indexes), (5, (0..5).collect()));
        for pod in pods {
            let n = index(&pod);
            assert_eq!(pod["metadata"]["labels"][INDEX], n.to_string());
            assert_eq!(pod["spec"]["hostname"], format!("x-{n}"));
            assert!(pod["metadata"]["name"].as_str().unwrap().starts_with(&format!("x-{n}-")));
            let variable = &pod["spec"]["containers"][0]["env"][0];
            assert_eq!(variable["name"], "JOB_COMPLETION_INDEX");
            let field = &variable["valueFrom"]["fieldRef"]["fieldPath"];
            assert_eq!(field, &format!("metadata.labels['{INDEX}']"));
        }
    };
    cluster.with_kubelets(|_| Fate::Succeed, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn failed_pods_are_replaced_later_and_later_until_the_limit(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let user = async {
        let before = env.clock().now();
        cluster.create(JOBS, &job("f", json!({"backoffLimit": 2}))).await;
        let done = cluster.until(&path("f"), |job| has(job, "Failed")).await;
        // Two replacements, 10 s and 20 s after a failure.
        let took = env.clock().now().since(before).as_secs();
        assert!((28..50).contains(&took), "{took} s");
        assert_eq!(done["status"]["failed"], 3);
        assert!(done["status"]["completionTime"].is_null());
        for kind in ["FailureTarget", "Failed"] {
            let held = condition(&done, kind);
            assert_eq!(held["reason"], "BackoffLimitExceeded");
            assert_eq!(held["message"], "Job has reached the specified backoff limit");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let events = cluster.events("Job").await;
        let last = "Warning BackoffLimitExceeded Job has reached the specified backoff limit";
        assert_eq!(events.last().unwrap(), last);
    };
    cluster.with_kubelets(|_| Fate::Fail(1), user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn limit_per_index_fails_single_indexes(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let spec = json!({
        "completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
    });
    let fate = |pod: &Value| if index(pod) % 2 == 0 { Fate::Succeed } else { Fate::Fail(3) };
    let user = async {
        cluster.create(JOBS, &job("p", spec)).await;
        let done = cluster.until(&path("p"), |job| has(job, "Failed")).await;
        let status = &done["status"];
        assert_eq!(status["completedIndexes"], "0,2");
        assert_eq!(status["failedIndexes"], "1,3");
        assert_eq!((&status["succeeded"], &status["failed"]), (&json!(2), &json!(4)));
        assert_eq!(condition(&done, "Failed")["reason"], "FailedIndexes");
        let pods = cluster.list(PODS).await;
        let counts = "batch.kubernetes.io/job-index-failure-count";
        let second = pods.iter().filter(|pod| pod["metadata"]["annotations"][counts] == "1");
        assert_eq!(second.map(index).collect::<BTreeSet<_>>(), BTreeSet::from([1, 3]));

        let spec = json!({
            "completions": 4, "parallelism": 1, "completionMode": "Indexed",
            "backoffLimitPerIndex": 0, "maxFailedIndexes": 0,
        });
        cluster.create(JOBS, &job("m", spec)).await;
        let done = cluster.until(&path("m"), |job| has(job, "Failed")).await;
        assert_eq!(condition(&done, "Failed")["reason"], "MaxFailedIndexesExceeded");
        assert_eq!(done["status"]["failedIndexes"], "1");
    };
    cluster.with_kubelets(fate, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn policies_decide_about_failures_and_success(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let policy = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]});
    let fate = |pod: &Value| match pod["metadata"]["labels"]["job-name"].as_str() {
        Some("fails") => Fate::Fail(42),
        Some("ignores") => Fate::Fail(7),
        _ if index(pod) == 2 => Fate::Succeed,
        _ => Fate::Run,
    };
    let user = async {
        cluster.create(JOBS, &job("fails", json!({"podFailurePolicy": policy}))).await;
        let done = cluster.until(&path("fails"), |job| has(job, "Failed")).await;
        let failed = condition(&done, "Failed");
        assert_eq!(failed["reason"], "PodFailurePolicy");
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with("Container c for pod default/fails-"), "{message}");
        assert!(message.ends_with("failed with exit code 42 matching FailJob rule at index 0"));
        assert_eq!(done["status"]["failed"], 1);

        let spec = json!({"podFailurePolicy": policy, "backoffLimit": 0});
        cluster.create(JOBS, &job("ignores", spec)).await;
        cluster
            .until_all(PODS, |pods| {
                pods.iter().filter(|pod| pod["metadata"]["labels"]["job-name"] == "ignores").count()
                    > 2
            })
            .await;
        let going = cluster.get(&path("ignores")).await.unwrap();
        assert!(going["status"]["failed"].is_null() && !has(&going, "FailureTarget"), "{going:#}");

        let spec = json!({
            "completions": 4, "parallelism": 4, "completionMode": "Indexed",
            "successPolicy": {"rules": [{"succeededIndexes": "2-3", "succeededCount": 1}]},
        });
        cluster.create(JOBS, &job("succeeds", spec)).await;
        let done = cluster.until(&path("succeeds"), |job| has(job, "Complete")).await;
        let met = condition(&done, "SuccessCriteriaMet");
        assert_eq!(met["reason"], "SuccessPolicy");
        assert_eq!(met["message"], "Matched rules at index 0");
        assert_eq!(done["status"]["completedIndexes"], "2");
        assert!(done["status"]["failed"].is_null(), "the pods that were stopped have not failed");
    };
    cluster.with_kubelets(fate, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn deadline_ends_a_job(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let user = async {
        cluster.create(JOBS, &job("d", json!({"activeDeadlineSeconds": 30}))).await;
        let done = cluster.until(&path("d"), |job| has(job, "Failed")).await;
        let failed = condition(&done, "Failed");
        assert_eq!(failed["reason"], "DeadlineExceeded");
        assert_eq!(failed["message"], "Job was active longer than specified deadline");
        assert_eq!(done["status"]["failed"], 1);
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn suspended_job_has_no_pods_and_starts_again(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let user = async {
        cluster.create(JOBS, &job("s", json!({"parallelism": 2, "suspend": true}))).await;
        let held = cluster.until(&path("s"), |job| has(job, "Suspended")).await;
        assert_eq!(condition(&held, "Suspended")["reason"], "JobSuspended");
        assert!(held["status"]["startTime"].is_null() && cluster.list(PODS).await.is_empty());
        cluster.patch(&path("s"), &json!({"spec": {"suspend": false}})).await;
        let held = cluster.until(&path("s"), |job| job["status"]["ready"] == 2).await;
        let resumed = condition(&held, "Suspended");
        assert_eq!(
            (&resumed["status"], &resumed["reason"]),
            (&json!("False"), &json!("JobResumed"))
        );
        assert!(held["status"]["startTime"].is_string());
        cluster.patch(&path("s"), &json!({"spec": {"suspend": true}})).await;
        cluster.until_all(PODS, <[Value]>::is_empty).await;
        let held = cluster.until(&path("s"), |job| has(job, "Suspended")).await;
        let held = match held["status"]["terminating"].as_i64() {
            Some(0) => held,
            _ => cluster.until(&path("s"), |job| job["status"]["terminating"] == 0).await,
        };
        assert!(held["status"]["startTime"].is_null());
        assert!(held["status"]["failed"].is_null(), "{held:#}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let events = cluster.events("Job").await;
        let has_event = |text: &str| events.iter().any(|event| event == text);
        assert!(has_event("Normal Suspended Job suspended"), "{events:#?}");
        assert!(has_event("Normal Resumed Job resumed"), "{events:#?}");
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn jobs_of_other_controllers_and_jobs_without_work(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    cluster.create(JOBS, &job("other", json!({"managedBy": "example.com/queue"}))).await;
    cluster.create(JOBS, &job("none", json!({"completions": 0}))).await;
    cluster.until(&path("none"), |job| has(job, "Complete")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(cluster.list(PODS).await.is_empty());
    let other = cluster.get(&path("other")).await.unwrap();
    assert!(other["status"]["startTime"].is_null(), "{other:#}");
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn pods_of_a_deleted_job_are_released(env: &TestEnv) {
    let cluster = Cluster::start(env, "job");
    let user = async {
        cluster.create(JOBS, &job("gone", json!({"parallelism": 3, "completions": 3}))).await;
        let pods = cluster.until_all(PODS, |pods| pods.len() == 3).await;
        assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"] == json!([FINALIZER])));
        cluster.delete(&path("gone"), &json!({"propagationPolicy": "Background"})).await;
        cluster.until_all(PODS, <[Value]>::is_empty).await;

        cluster.create(JOBS, &job("left", json!({}))).await;
        cluster.until_all(PODS, |pods| pods.len() == 1).await;
        cluster.delete(&path("left"), &json!({"propagationPolicy": "Orphan"})).await;
        let is_free = |pod: &Value| {
            pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null()
        };
        cluster.until_all(PODS, |pods| pods.iter().all(is_free)).await;
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn finished_job_is_deleted_after_its_time(env: &TestEnv) {
    let cluster = Cluster::start(env, "job,ttl-after-finished");
    let user = async {
        cluster.create(JOBS, &job("t", json!({"ttlSecondsAfterFinished": 100}))).await;
        cluster.until(&path("t"), |job| has(job, "Complete")).await;
        let done = env.clock().now();
        cluster.until(&path("t"), Value::is_null).await;
        let took = env.clock().now().since(done).as_secs();
        assert!((98..110).contains(&took), "{took} s");
        cluster.until_all(PODS, <[Value]>::is_empty).await;
    };
    cluster.with_kubelets(|_| Fate::Succeed, user).await;
}

fn cron_job(name: &str, schedule: &str, spec: Value) -> Value {
    let template = job("template", json!({}))["spec"].clone();
    let mut cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": schedule, "jobTemplate": {
            "metadata": {"labels": {"of": name}, "annotations": {"a": "b"}}, "spec": template,
        }},
    });
    for (member, value) in spec.as_object().unwrap() {
        cron_job["spec"][member] = value.clone();
    }
    cron_job
}

fn cron_path(name: &str) -> String {
    format!("{CRON_JOBS}/{name}")
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn cron_job_creates_jobs_at_its_times_and_keeps_the_last_ones(env: &TestEnv) {
    let cluster = Cluster::start(env, "job,cronjob");
    let user = async {
        // The environment starts at midnight, UTC: nine in Tokyo.
        let spec = json!({"timeZone": "Asia/Tokyo", "successfulJobsHistoryLimit": 2});
        cluster.create(CRON_JOBS, &cron_job("c", "30 10-13 * * *", spec)).await;
        // The last run was a quarter of an hour ago: events are kept for an hour.
        tokio::time::sleep(Duration::from_secs(4 * 3600 + 45 * 60)).await;
        let jobs = cluster.list(JOBS).await;
        let names: Vec<&str> =
            jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap()).collect();
        let minutes =
            |time: &str| setpoint_object::time::Timestamp::parse(time).unwrap().0.as_secs() / 60;
        let name = |time: &str| format!("c-{}", minutes(time));
        assert_eq!(names, [name("2026-01-01T03:30:00Z"), name("2026-01-01T04:30:00Z")]);
        let meta = &jobs[0]["metadata"];
        assert_eq!(meta["labels"]["of"], "c");
        let scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp";
        assert_eq!(meta["annotations"][scheduled], "2026-01-01T12:30:00+09:00");
        assert_eq!(meta["annotations"]["a"], "b");
        assert_eq!(meta["ownerReferences"][0]["controller"], true);
        let held = cluster.get(&cron_path("c")).await.unwrap();
        assert_eq!(held["status"]["lastScheduleTime"], "2026-01-01T04:30:00Z");
        assert!(held["status"]["active"].is_null());
        assert_eq!(held["status"]["lastSuccessfulTime"], jobs[1]["status"]["completionTime"]);
        let events = cluster.events("CronJob").await;
        let last = name("2026-01-01T04:30:00Z");
        assert!(events.contains(&format!("Normal SuccessfulCreate Created job {last}")));
        let seen = format!("Normal SawCompletedJob Saw completed job: {last}, condition: Complete");
        assert!(events.contains(&seen), "{events:#?}");
    };
    cluster.with_kubelets(|_| Fate::Succeed, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn schedule_that_no_day_fits_is_an_event(env: &TestEnv) {
    let cluster = Cluster::start(env, "job,cronjob");
    cluster.create(CRON_JOBS, &cron_job("never", "0 0 31 2 *", json!({}))).await;
    cluster.create(CRON_JOBS, &cron_job("leap", "0 0 29 2 *", json!({}))).await;
    let off = json!({"suspend": true});
    cluster.create(CRON_JOBS, &cron_job("off", "0 0 30 2 *", off)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let event = "Warning InvalidSchedule invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second";
    assert_eq!(cluster.events("CronJob").await, [event]);
    assert_eq!(cluster.list(JOBS).await, Vec::<Value>::new());
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn concurrency_policy_decides_about_running_jobs(env: &TestEnv) {
    let cluster = Cluster::start(env, "job,cronjob");
    let user = async {
        for policy in ["Allow", "Forbid", "Replace"] {
            let spec = json!({"concurrencyPolicy": policy});
            let name = policy.to_lowercase();
            cluster.create(CRON_JOBS, &cron_job(&name, "*/10 * * * *", spec)).await;
        }
        tokio::time::sleep(Duration::from_secs(35 * 60)).await;
        let jobs = cluster.list(JOBS).await;
        let of =
            |name: &str| jobs.iter().filter(|job| job["metadata"]["labels"]["of"] == name).count();
        assert_eq!((of("allow"), of("forbid"), of("replace")), (3, 1, 1));
        let active = async |name: &str| {
            let held = cluster.get(&cron_path(name)).await.unwrap();
            held["status"]["active"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(active("allow").await, 3);
        assert_eq!((active("forbid").await, active("replace").await), (1, 1));
        let events = cluster.events("CronJob").await;
        let forbidden = "Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid";
        assert!(events.iter().any(|event| event == forbidden), "{events:#?}");
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn missed_runs_are_made_up_for_once(env: &TestEnv) {
    // No controller runs yet.
    let cluster = Cluster::of(env);
    let deadline = json!({"startingDeadlineSeconds": 60});
    cluster.create(CRON_JOBS, &cron_job("many", "* * * * *", json!({}))).await;
    cluster.create(CRON_JOBS, &cron_job("late", "0 * * * *", deadline)).await;
    cluster.create(CRON_JOBS, &cron_job("off", "* * * * *", json!({"suspend": true}))).await;
    tokio::time::sleep(Duration::from_secs(3 * 3600 + 120 + 30)).await;
    let cluster = Cluster::start(env, "cronjob");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let jobs = cluster.list(JOBS).await;
    let owners: Vec<&Value> = jobs.iter().map(|job| &job["metadata"]["labels"]["of"]).collect();
    assert_eq!(owners, ["many"]);
    let held = cluster.get(&cron_path("many")).await.unwrap();
    assert_eq!(held["status"]["lastScheduleTime"], "2026-01-01T03:02:00Z");
    let events = cluster.events("CronJob").await;
    assert!(
        events.iter().any(|event| event.starts_with("Warning TooManyMissedTimes")),
        "{events:#?}"
    );
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn job_that_the_status_lacks_counts_as_one_of_it(env: &TestEnv) {
    // No controller runs yet: the Jobs are those whose creation was not answered.
    let cluster = Cluster::of(env);
    let run = "2026-01-01T00:10:00Z";
    let minutes = setpoint_object::time::Timestamp::parse(run).unwrap().0.as_secs() / 60;
    let later = |name: &str| format!("{name}-{}", minutes + 10);
    for name in ["forbid", "replace", "once", "by-hand"] {
        let spec = match name {
            "replace" | "by-hand" => json!({"concurrencyPolicy": "Replace"}),
            // Its finished Job must not be forgotten before its run is noted.
            "once" => json!({"successfulJobsHistoryLimit": 0, "startingDeadlineSeconds": 10_000}),
            _ => json!({"concurrencyPolicy": "Forbid"}),
        };
        let schedule = if name == "once" { "10 0 * * *" } else { "*/10 * * * *" };
        let held = cluster.create(CRON_JOBS, &cron_job(name, schedule, spec)).await;
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "name": name,
            "uid": held["metadata"]["uid"], "controller": true,
        });
        let mut one = job(&format!("{name}-{minutes}"), json!({}));
        one["metadata"]["ownerReferences"] = json!([owner]);
        // As `kubectl create job --from`.
        one["metadata"]["annotations"] = match name {
            "by-hand" => json!({"cronjob.kubernetes.io/instantiate": "manual"}),
            _ => json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": run}),
        };
        cluster.create(JOBS, &one).await;
    }
    let now = env.clock().now().rfc3339();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
    let done = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    cluster.patch(&format!("{JOBS}/once-{minutes}/status"), &done).await;
    tokio::time::sleep(Duration::from_secs(21 * 60)).await;
    let cluster = Cluster::start(env, "cronjob");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let jobs = cluster.list(JOBS).await;
    let names: Vec<&str> =
        jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap()).collect();
    let forgotten = |name: &str| format!("{name}-{minutes}");
    let expected = [forgotten("by-hand"), later("by-hand"), forgotten("forbid"), later("replace")];
    assert_eq!(names, expected);
    let last = async |name: &str| {
        let held = cluster.get(&cron_path(name)).await.unwrap();
        held["status"]["lastScheduleTime"].as_str().unwrap().to_owned()
    };
    assert_eq!((last("forbid").await, last("once").await), (run.to_owned(), run.to_owned()));
    assert_eq!(last("replace").await, "2026-01-01T00:20:00Z");
    let events = cluster.events("CronJob").await;
    let unexpected = "Warning UnexpectedJob Saw a job that the controller did not create or forgot";
    let of: Vec<&String> = events.iter().filter(|event| event.starts_with(unexpected)).collect();
    assert_eq!(of, [&format!("{unexpected}: {}", forgotten("by-hand"))]);
}

/// Two Jobs, of which one is scaled while it runs, with failing pods, and one that fails.
struct Batch;

impl Scenario for Batch {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let manager = controllers(life.manager(), &life.client, &life.clock, "job")?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        let n_max = std::cell::Cell::new(0);
        let fate = |pod: &Value| match pod["metadata"]["labels"]["job-name"].as_str() {
            Some("bad") => Fate::Fail(1),
            _ => Fate::Succeed,
        };
        let user = async {
            let spec = json!({
                "completions": 3, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 9,
            });
            cluster.create(JOBS, &job("good", spec)).await;
            let spec = json!({"backoffLimit": 1, "parallelism": 1});
            cluster.create(JOBS, &job("bad", spec)).await;
            for (name, end) in [("good", "Complete"), ("bad", "Failed")] {
                let done = cluster.until(&path(name), |job| has(job, end)).await;
                assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
            }
        };
        let watch = at_every_change(env, "/registry/pods/", |pods, change| {
            for (name, parallelism) in [("good", 2), ("bad", 1)] {
                let of_job = |pod: &&Value| pod["metadata"]["labels"]["job-name"] == name;
                let n = pods.values().filter(of_job).filter(|pod| is_active(pod)).count();
                assert!(n <= parallelism, "{change}: {name} has {n} pods");
                n_max.set(n_max.get().max(n));
            }
        });
        until_either(watch, cluster.with_kubelets(fate, user)).await;
        assert!(n_max.get() > 0);
        let pods = cluster.list(PODS).await;
        for (name, phase, n) in [("good", "Succeeded", 3), ("bad", "Failed", 2)] {
            let of_job = |pod: &&Value| pod["metadata"]["labels"]["job-name"] == name;
            let ended = pods.iter().filter(of_job).filter(|pod| pod["status"]["phase"] == phase);
            assert_eq!(ended.count(), n, "{name}");
        }
    }
}

#[test]
fn job_has_no_pod_too_many_and_counts_each_once_with_every_plan() {
    let n = check(&Batch, &Plans::new().crashes().storms(15));
    assert!(n > 20, "{n} plans");
}
