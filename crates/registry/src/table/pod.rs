//! Pods: what became of the containers in one word.

use super::age;
use super::cell::{self, NONE, at, condition_is_true, has, int, list, text, text_or};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// What the containers' statuses amount to.
#[derive(Default)]
struct Tally {
    restarts: i64,
    last_restart: Option<Timestamp>,
    ready: i64,
}
impl Tally {
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += int(status, "restartCount");
        let finished = Timestamp::parse(text(status, "lastState.terminated.finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = at(object, "spec");
    let sidecars = list(spec, "initContainers").iter().filter(|item| is_sidecar(item)).count();
    let total = cell::len(spec, "containers") + i64::try_from(sidecars).unwrap_or(i64::MAX);
    let (reason, tally) = reason(object);
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts != 0 => {
            let ago = age::human_duration(age::seconds_between(last, now));
            format!("{} ({ago} ago)", tally.restarts)
        }
        _ => tally.restarts.to_string(),
    };
    let ip = list(object, "status.podIPs").first().map_or(NONE, |ip| text_or(ip, "ip", NONE));
    vec![
        cell::name(object),
        format!("{}/{total}", tally.ready).into(),
        reason.into(),
        restarts.into(),
        cell::age(object, now),
        ip.into(),
        text_or(spec, "nodeName", NONE).into(),
        text_or(object, "status.nominatedNodeName", NONE).into(),
        readiness_gates(object).into(),
    ]
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn readiness_gates(object: &Value) -> String {
    let gates = list(object, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let passed =
        gates.iter().filter(|gate| condition_is_true(object, text(gate, "conditionType"))).count();
    format!("{passed}/{}", gates.len())
}

/// The status word and the tally of ready containers and restarts.
fn reason(object: &Value) -> (String, Tally) {
    let status = at(object, "status");
    let phase = text(status, "phase");
    let mut reason = text_or(status, "reason", phase).to_owned();
    let gated = list(status, "conditions").iter().any(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    });
    if gated {
        reason = "SchedulingGated".to_owned();
    }
    // Restarts of ordinary init containers count only while the Pod initialises; those of sidecars always.
    let mut initialising = Tally::default();
    let mut tally = Tally::default();
    let stuck = init_containers(object, &mut initialising, &mut tally);
    let is_stuck = stuck.is_some();
    if let Some(stuck) = stuck {
        reason = stuck;
    }
    if is_stuck && !condition_is_true(object, "Initialized") {
        initialising.ready = tally.ready;
        tally = initialising;
    } else {
        containers(object, &mut reason, &mut tally);
    }
    if cell::deleting(object) {
        if text(status, "reason") == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(phase, "Failed" | "Succeeded") {
            reason = "Terminating".to_owned();
        }
    }
    (reason, tally)
}

/// Tallies init containers in order up to the first that is not done; says what that one waits for.
fn init_containers(object: &Value, all: &mut Tally, sidecars: &mut Tally) -> Option<String> {
    let specs = list(object, "spec.initContainers");
    for (place, status) in list(object, "status.initContainerStatuses").iter().enumerate() {
        let sidecar = specs
            .iter()
            .find(|spec| text(spec, "name") == text(status, "name"))
            .is_some_and(is_sidecar);
        all.add_restarts(status);
        if sidecar {
            sidecars.add_restarts(status);
        }
        let terminated = at(status, "state.terminated");
        if !terminated.is_null() && int(terminated, "exitCode") == 0 {
            continue;
        }
        if sidecar && at(status, "started") == true {
            sidecars.ready += i64::from(at(status, "ready") == true);
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        return Some(if !terminated.is_null() {
            format!("Init:{}", ended(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{place}/{}", specs.len())
        });
    }
    None
}

/// How a container ended: its reason, else its signal, else its exit code.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Tallies the containers; the first one's reason wins.
fn containers(object: &Value, reason: &mut String, tally: &mut Tally) {
    let mut some_running = false;
    for status in list(object, "status.containerStatuses").iter().rev() {
        tally.add_restarts(status);
        let waiting = text(status, "state.waiting.reason");
        let terminated = at(status, "state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if !terminated.is_null() {
            *reason = ended(terminated);
        } else if at(status, "ready") == true && has(status, "state.running") {
            some_running = true;
            tally.ready += 1;
        }
    }
    if reason == "Completed" && some_running {
        let ready = condition_is_true(object, "Ready");
        *reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}
