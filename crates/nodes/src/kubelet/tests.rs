//! A pod's life: the states that a client sees, one after the other.

use super::*;
use serde_json::{Value, json};

/// A pod and its clock.
struct Life {
    pod: Value,
    now: Timestamp,
    rejection: Option<Rejection>,
    resize: Resize,
}

/// Merges a patch of a status as the server does: conditions by type, other lists as a whole.
fn merge(status: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return };
    for (key, value) in patch {
        if key != "conditions" {
            status[&key] = value;
            continue;
        }
        for condition in value.as_array().cloned().unwrap_or_default() {
            let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
            if condition["$patch"] == "delete" {
                all.retain(|old| old["type"] != condition["type"]);
                status["conditions"] = all.into();
                continue;
            }
            match all.iter_mut().find(|old| old["type"] == condition["type"]) {
                Some(old) => {
                    for (key, value) in condition.as_object().unwrap() {
                        old[key] = value.clone();
                    }
                }
                None => all.push(condition),
            }
            status["conditions"] = all.into();
        }
    }
}

impl Life {
    fn new(spec: Value) -> Self {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
            "spec": spec, "status": {"phase": "Pending"},
        });
        Self { pod, now: Timestamp::from_secs(1_000), rejection: None, resize: Resize::None }
    }

    fn around(&self) -> Surroundings {
        Surroundings {
            now: self.now,
            host_ips: vec!["172.16.0.2".into()],
            pod_ips: vec!["10.64.0.2".into()],
            rejection: self.rejection.clone(),
            resize: self.resize.clone(),
        }
    }

    /// One pass; returns when the next is due.
    fn pass(&mut self) -> Plan {
        let mut plan = run(&self.pod, &self.around());
        merge(&mut self.pod["status"], plan.status.take());
        plan
    }

    /// Passes until nothing more is due before `seconds` have passed; each state once.
    fn live(&mut self, seconds: u64) -> Vec<String> {
        let end = self.now + Duration::from_secs(seconds);
        let mut seen: Vec<String> = Vec::new();
        for _ in 0..200 {
            let plan = self.pass();
            let state = self.show();
            if seen.last() != Some(&state) {
                seen.push(state);
            }
            match plan.due {
                Some(due) if due <= end => self.now = due.max(self.now + Duration::from_millis(1)),
                _ => return seen,
            }
        }
        panic!("it never comes to rest: {seen:?}");
    }

    /// `Running c:running/1 ready`.
    fn show(&self) -> String {
        let status = &self.pod["status"];
        let mut text = text(&status["phase"]).to_owned();
        for member in ["initContainerStatuses", "containerStatuses"] {
            for one in items(&status[member]) {
                let state = one["state"].as_object().unwrap();
                let (kind, detail) = state.iter().next().unwrap();
                let detail = match kind.as_str() {
                    "waiting" => super::text(&detail["reason"]).to_owned(),
                    "terminated" => format!("ended {}", detail["exitCode"]),
                    other => other.to_owned(),
                };
                text += &format!(" {}:{detail}", super::text(&one["name"]));
                if one["restartCount"] != 0 {
                    text += &format!("/{}", one["restartCount"]);
                }
            }
        }
        if self.condition("Ready") == "True" {
            text += " ready";
        }
        text
    }

    fn condition(&self, kind: &str) -> &str {
        let found = items(&self.pod["status"]["conditions"]).iter().find(|one| one["type"] == kind);
        found.map_or("", |found| super::text(&found["status"]))
    }
}

fn container(name: &str, command: &[&str]) -> Value {
    json!({"name": name, "image": "example.com/app:1", "command": command})
}

#[test]
fn a_server_runs_and_is_ready() {
    let mut life = Life::new(json!({"containers": [container("c", &["serve"])]}));
    assert_eq!(life.live(3600), ["Running c:running ready"]);
    let status = &life.pod["status"];
    for kind in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    {
        assert_eq!(life.condition(kind), "True", "{kind}");
    }
    assert_eq!((&status["podIP"], &status["hostIP"]), (&json!("10.64.0.2"), &json!("172.16.0.2")));
    assert_eq!(
        (&status["observedGeneration"], &status["startTime"]),
        (&json!(1), &json!("1970-01-01T00:16:40Z"))
    );
    assert!(life.pass().status.is_null() && life.pass().events.is_empty());
}

#[test]
fn finite_commands_end_as_the_restart_policy_says() {
    let of = |policy: &str, command: &[&str]| {
        Life::new(json!({"restartPolicy": policy, "containers": [container("c", command)]}))
    };
    assert_eq!(
        of("Never", &["sleep", "5"]).live(60),
        ["Running c:running ready", "Succeeded c:ended 0"]
    );
    assert_eq!(of("Never", &["false"]).live(60).last().unwrap(), "Failed c:ended 1");
    assert_eq!(of("OnFailure", &["true"]).live(60).last().unwrap(), "Succeeded c:ended 0");
    // Restarted at once, then after ten and twenty seconds.
    let seen = of("Always", &["sh", "-c", "exit 3"]).live(35);
    assert!(seen.contains(&"Running c:ended 3".to_owned()), "{seen:?}");
    assert!(seen.contains(&"Running c:CrashLoopBackOff/1".to_owned()), "{seen:?}");
    assert!(seen.contains(&"Running c:CrashLoopBackOff/2".to_owned()), "{seen:?}");
    assert!(seen.last().unwrap().contains("/3"), "{seen:?}");
}

/// A rule for one exit code.
fn rules(code: i64, action: &str) -> Value {
    json!([{"action": action, "exitCodes": {"operator": "In", "values": [code]}}])
}

#[test]
fn a_container_may_have_a_restart_policy_and_rules_of_its_own() {
    let of = |pod: &str, own: &str, rules: Value, script: &str| {
        let mut one = container("c", &["sh", "-c", script]);
        one["restartPolicy"] = own.into();
        one["restartPolicyRules"] = rules;
        Life::new(json!({"restartPolicy": pod, "containers": [one]})).live(5).pop().unwrap()
    };
    assert_eq!(of("Always", "Never", json!([]), "exit 1"), "Failed c:ended 1");
    assert_eq!(of("Never", "Always", json!([]), "exit 1"), "Running c:CrashLoopBackOff/1");
    let restart = rules(42, "Restart");
    assert_eq!(of("Never", "Never", restart.clone(), "exit 42"), "Running c:CrashLoopBackOff/1");
    assert_eq!(of("Never", "Never", restart, "exit 1"), "Failed c:ended 1");
}

#[test]
fn a_rule_restarts_all_containers_of_the_pod() {
    let mut source = container("c", &["sh", "-c", "sleep 3; exit 42"]);
    source["restartPolicy"] = "Never".into();
    source["restartPolicyRules"] = rules(42, "RestartAllContainers");
    let mut life = Life::new(json!({
        "restartPolicy": "Never", "initContainers": [container("one", &["sleep", "1"])],
        "containers": [source, container("d", &["serve"])],
    }));
    let seen = life.live(5);
    let all = "RestartingAllContainers/1";
    assert_eq!(
        seen[2..],
        [
            "Running one:ended 0 c:ended 42 d:running".to_owned(),
            format!("Running one:{all} c:{all} d:{all}"),
            "Running one:running/1 c:PodInitializing/1 d:PodInitializing/1".to_owned(),
        ],
        "{seen:?}"
    );
    let last = &life.pod["status"]["containerStatuses"][1]["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(137), &json!("RestartingAllContainers"))
    );
    assert_eq!(life.condition("AllContainersRestarting"), "False");
    assert_eq!(life.live(1).pop().unwrap(), "Running one:ended 0/1 c:running/1 d:running/1 ready");
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let sidecar =
        json!({"name": "side", "image": "i", "command": ["serve"], "restartPolicy": "Always"});
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [container("one", &["sleep", "1"]), sidecar, container("two", &["sleep", "1"])],
        "containers": [container("c", &["sleep", "3"])],
    });
    let mut life = Life::new(spec);
    let seen = life.live(0);
    assert_eq!(
        seen,
        ["Pending one:running side:PodInitializing two:PodInitializing c:PodInitializing"]
    );
    assert_eq!((life.condition("Initialized"), life.condition("Ready")), ("False", "False"));
    let seen = life.live(60);
    assert!(
        seen.contains(&"Pending one:ended 0 side:running two:running c:PodInitializing".to_owned()),
        "{seen:?}"
    );
    assert!(
        seen.contains(&"Running one:ended 0 side:running two:ended 0 c:running ready".to_owned()),
        "{seen:?}"
    );
    assert_eq!(seen.last().unwrap(), "Succeeded one:ended 0 side:ended 0 two:ended 0 c:ended 0");
    let ready = |n: usize| life.pod["status"]["initContainerStatuses"][n]["ready"] == true;
    assert_eq!([ready(0), ready(1), ready(2)], [true, false, true]);

    let failing = json!({
        "restartPolicy": "Never", "initContainers": [container("one", &["false"])],
        "containers": [container("c", &["serve"])],
    });
    assert_eq!(
        Life::new(failing.clone()).live(60).last().unwrap(),
        "Failed one:ended 1 c:PodInitializing"
    );
    let mut retried = failing;
    retried["restartPolicy"] = "Always".into();
    let seen = Life::new(retried).live(15);
    assert!(seen.last().unwrap().starts_with("Pending one:CrashLoopBackOff"), "{seen:?}");
}

#[test]
fn probes_decide_readiness_and_restarts() {
    let probed = |member: &str, probe: Value| {
        let mut container = container("c", &["serve"]);
        container[member] = probe;
        Life::new(json!({"containers": [container]}))
    };
    let failing = json!({"exec": {"command": ["/bin/false"]}, "initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 1});
    assert_eq!(probed("readinessProbe", failing.clone()).live(3600), ["Running c:running"]);
    let late = json!({"httpGet": {"port": 80}, "initialDelaySeconds": 30});
    assert_eq!(
        probed("readinessProbe", late).live(60),
        ["Running c:running", "Running c:running ready"]
    );
    let seen = probed("livenessProbe", failing.clone()).live(16);
    assert_eq!(
        seen,
        ["Running c:running ready", "Running c:ended 137", "Running c:running/1 ready"]
    );
    let seen = probed("startupProbe", failing).live(16);
    assert_eq!(seen, ["Running c:running", "Running c:ended 137", "Running c:running/1"]);
}

#[test]
fn a_liveness_probe_begins_once_the_startup_probe_has_succeeded() {
    let liveness =
        json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let lives = |startup: Value, seconds: u64| {
        let mut container = container("c", &["serve"]);
        (container["livenessProbe"], container["startupProbe"]) = (liveness.clone(), startup);
        Life::new(json!({"containers": [container]})).live(seconds)
    };
    let never = json!({"exec": {"command": ["false"]}, "periodSeconds": 10, "failureThreshold": 6});
    assert_eq!(lives(never, 59), ["Running c:running"]);
    let late = json!({"httpGet": {"port": 80}, "initialDelaySeconds": 20});
    assert_eq!(lives(late.clone(), 20), ["Running c:running", "Running c:running ready"]);
    assert_eq!(lives(late, 21)[2], "Running c:ended 137");
}

#[test]
fn a_readiness_gate_holds_the_pod_back() {
    let mut life = Life::new(json!({
        "readinessGates": [{"conditionType": "example.com/lb"}], "containers": [container("c", &["serve"])],
    }));
    assert_eq!(life.live(10), ["Running c:running"]);
    assert_eq!(life.condition("ContainersReady"), "True");
    merge(
        &mut life.pod["status"],
        json!({"conditions": [{"type": "example.com/lb", "status": "True"}]}),
    );
    assert_eq!(life.live(10), ["Running c:running ready"]);
}

#[test]
fn images_that_cannot_exist_back_off() {
    let mut life = Life::new(json!({"containers": [
        {"name": "c", "image": "a.invalid/x:1"}, container("d", &["serve"]),
    ]}));
    let seen = life.live(60);
    assert_eq!(seen, ["Pending c:ErrImagePull d:running", "Pending c:ImagePullBackOff d:running"]);
}

#[test]
fn a_new_image_restarts_the_container() {
    let mut life = Life::new(json!({"containers": [container("c", &["serve"])]}));
    life.live(10);
    life.pod["spec"]["containers"][0]["image"] = "example.com/app:2".into();
    life.pod["metadata"]["generation"] = 2.into();
    assert_eq!(life.live(10), ["Running c:running/1 ready"]);
    let status = &life.pod["status"];
    assert_eq!(
        (&status["containerStatuses"][0]["image"], &status["observedGeneration"]),
        (&json!("example.com/app:2"), &json!(2))
    );
}

#[test]
fn deadlines_and_rejections_fail_the_pod() {
    let spec = json!({"activeDeadlineSeconds": 30, "containers": [container("c", &["serve"])]});
    let mut life = Life::new(spec.clone());
    assert_eq!(life.live(60), ["Running c:running ready", "Failed c:ended 137"]);
    assert_eq!(life.pod["status"]["reason"], "DeadlineExceeded");
    let mut life = Life::new(spec);
    life.rejection = Some(Rejection { reason: "OutOfcpu", message: "Node didn't".to_owned() });
    assert_eq!(life.live(60), ["Failed"]);
    assert_eq!(life.pod["status"]["reason"], "OutOfcpu");
    assert_eq!(life.pod["status"]["message"], "Pod was rejected: Node didn't");
    let spec = json!({"os": {"name": "windows"}, "containers": [container("c", &["serve"])]});
    let mut life = Life::new(spec);
    assert_eq!(life.live(60), ["Failed"]);
    assert_eq!(life.pod["status"]["reason"], "PodOSNotSupported");
}

#[test]
fn a_hook_before_the_end_delays_it_within_the_grace_period() {
    for (hook, grace, delay) in [
        (json!({"sleep": {"seconds": 20}}), 30, 20),
        (json!({"exec": {"command": ["sleep", "50"]}}), 30, 30),
        (json!({"exec": {"command": ["flush"]}}), 30, 0),
        (json!({"sleep": {"seconds": 20}}), 0, 0),
    ] {
        let mut one = container("c", &["serve"]);
        one["lifecycle"] = json!({"preStop": hook});
        let mut life = Life::new(json!({"containers": [one]}));
        life.live(10);
        let deleted = life.now;
        let end = deleted + Duration::from_secs(grace);
        life.pod["metadata"]["deletionTimestamp"] = end.rfc3339().into();
        life.pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        let plan = stop(&life.pod, &life.around());
        let until = deleted + Duration::from_secs(delay);
        assert_eq!(plan.due, (delay > 0).then_some(until), "{hook}");
        life.now = until;
        assert_eq!(stop(&life.pod, &life.around()).status["phase"], "Failed");
    }
}

#[test]
fn a_deleted_pod_ends_before_it_is_removed() {
    let mut life = Life::new(json!({"containers": [container("c", &["serve"])]}));
    life.live(10);
    let plan = stop(&life.pod, &life.around());
    assert_eq!(plan.events[0].message, "Stopping container c");
    merge(&mut life.pod["status"], plan.status);
    assert_eq!(life.show(), "Failed c:ended 143");
    assert!(stop(&life.pod, &life.around()).status.is_null());
}

#[test]
fn a_container_that_has_ended_by_itself_keeps_its_code_when_its_pod_is_deleted() {
    let spec = json!({"containers": [container("c", &["false"]), container("d", &["sleep", "9"])]});
    let mut life = Life::new(spec);
    life.pass();
    assert_eq!(life.show(), "Running c:running d:running ready");
    let plan = stop(&life.pod, &life.around());
    merge(&mut life.pod["status"], plan.status);
    assert_eq!(life.show(), "Failed c:ended 1 d:ended 143");
}

#[test]
fn containers_whose_turn_has_not_come_wait_on_when_their_pod_is_deleted() {
    let spec = |first: &[&str], second: &[&str]| {
        json!({
            "initContainers": [container("a", first), container("b", second)],
            "containers": [container("c", &["serve"])],
        })
    };
    let ended = |spec: Value, seconds: u64| {
        let mut life = Life::new(spec);
        life.live(seconds);
        let plan = stop(&life.pod, &life.around());
        merge(&mut life.pod["status"], plan.status);
        life.show()
    };
    let (short, long): (&[_], &[_]) = (&["true"], &["sleep", "99"]);
    assert_eq!(
        ended(spec(long, short), 9),
        "Failed a:ended 143 b:PodInitializing c:PodInitializing"
    );
    assert_eq!(ended(spec(short, long), 9), "Failed a:ended 0 b:ended 143 c:PodInitializing");
    assert_eq!(ended(spec(short, short), 9), "Failed a:ended 0 b:ended 0 c:ended 143");
}

/// A resize of the cpu of the only container.
fn wants(life: &mut Life, cpu: &str) {
    life.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    life.pod["metadata"]["generation"] =
        (life.pod["metadata"]["generation"].as_i64().unwrap() + 1).into();
}

#[test]
fn a_resize_waits_for_room_and_restarts_a_container_if_its_policy_says_so() {
    let mut one = container("c", &["serve"]);
    one["resources"] = json!({"requests": {"cpu": "1"}});
    let mut life = Life::new(json!({"containers": [one]}));
    life.live(60);
    let has = |life: &Life| {
        let status = &life.pod["status"]["containerStatuses"][0];
        assert_eq!(status["resources"]["requests"], status["allocatedResources"]);
        status["allocatedResources"]["cpu"].clone()
    };
    assert_eq!(has(&life), "1");
    assert_eq!(resize::wanted(&life.pod), None);

    wants(&mut life, "2");
    let wanted = resize::wanted(&life.pod).unwrap();
    assert_eq!((wanted.room.cpu, wanted.generation), (2000, 2));
    assert_eq!(resize::allocated(&life.pod).cpu, 1000);
    life.resize = Resize::Deferred("no room".to_owned());
    let plan = life.pass();
    assert_eq!(plan.events[0].reason, "ResizeDeferred");
    assert_eq!(
        plan.events[0].message,
        r#"Pod resize Deferred: {"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}],"generation":2,"error":"no room"}"#
    );
    assert_eq!((life.condition("PodResizePending"), has(&life)), ("True", "1".into()));
    assert_eq!(life.pass().events, [], "told once");

    life.resize = Resize::Granted;
    let plan = life.pass();
    let reasons: Vec<&str> = plan.events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["ResizeStarted", "ResizeCompleted"]);
    assert_eq!((life.condition("PodResizePending"), has(&life)), ("", "2".into()));
    assert_eq!(life.show(), "Running c:running ready");
    assert_eq!(resize::wanted(&life.pod), None);

    life.pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    wants(&mut life, "3");
    life.pass();
    assert_eq!((life.show().as_str(), has(&life)), ("Running c:running/1 ready", "3".into()));

    // Given up before there is room.
    wants(&mut life, "9");
    life.resize = Resize::Deferred("no room".to_owned());
    life.pass();
    wants(&mut life, "3");
    assert_eq!(resize::wanted(&life.pod), None);
    life.resize = Resize::None;
    life.pass();
    assert_eq!((life.condition("PodResizePending"), has(&life)), ("", "3".into()));
}
