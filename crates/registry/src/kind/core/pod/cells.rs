//! The cells of a pod: the status of its containers as one word.
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;

pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = cell::at(object, "spec");
    let sidecars =
        cell::list(spec, "initContainers").iter().filter(|item| is_sidecar(item)).count();
    let total = cell::len(spec, "containers") + i64::try_from(sidecars).unwrap_or(i64::MAX);
    let (reason, tally) = reason(object);
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts != 0 => {
            let ago = age::human_duration(age::seconds_between(last, now));
            format!("{} ({ago} ago)", tally.restarts)
        }
        _ => tally.restarts.to_string(),
    };
    let ip = cell::list(object, "status.podIPs")
        .first()
        .map_or(cell::NONE, |ip| cell::text_or(ip, "ip", cell::NONE));
    vec![
        cell::name(object),
        format!("{}/{total}", tally.ready).into(),
        reason.into(),
        restarts.into(),
        cell::age(object, now),
        ip.into(),
        cell::text_or(spec, "nodeName", cell::NONE).into(),
        cell::text_or(object, "status.nominatedNodeName", cell::NONE).into(),
        readiness_gates(object).into(),
    ]
}

/// Counts from the containers' statuses.
#[derive(Default)]
struct Tally {
    restarts: i64,
    last_restart: Option<Timestamp>,
    ready: i64,
}

impl Tally {
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += cell::int(status, "restartCount");
        let finished = Timestamp::parse(cell::text(status, "lastState.terminated.finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn is_sidecar(container: &Value) -> bool {
    cell::text(container, "restartPolicy") == "Always"
}

fn readiness_gates(object: &Value) -> String {
    let gates = cell::list(object, "spec.readinessGates");
    if gates.is_empty() {
        return cell::NONE.to_owned();
    }
    let passed = gates
        .iter()
        .filter(|gate| cell::condition_is_true(object, cell::text(gate, "conditionType")))
        .count();
    format!("{passed}/{}", gates.len())
}

/// The status word and the counts of ready containers and restarts.
fn reason(object: &Value) -> (String, Tally) {
    let status = cell::at(object, "status");
    let phase = cell::text(status, "phase");
    let mut reason = cell::text_or(status, "reason", phase).to_owned();
    let gated = cell::list(status, "conditions").iter().any(|condition| {
        cell::text(condition, "type") == "PodScheduled"
            && cell::text(condition, "reason") == "SchedulingGated"
    });
    if gated {
        reason = "SchedulingGated".to_owned();
    }
    // Restarts of ordinary init containers count only while the Pod initializes; those of sidecars
    // always.
    let mut initialising = Tally::default();
    let mut tally = Tally::default();
    let stuck = init_containers(object, &mut initialising, &mut tally);
    let is_stuck = stuck.is_some();
    if let Some(stuck) = stuck {
        reason = stuck;
    }
    if is_stuck && !cell::condition_is_true(object, "Initialized") {
        initialising.ready = tally.ready;
        tally = initialising;
    } else {
        containers(object, &mut reason, &mut tally);
    }
    if cell::deleting(object) {
        if cell::text(status, "reason") == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !pod_phase::is_terminal(phase) {
            reason = "Terminating".to_owned();
        }
    }
    (reason, tally)
}

/// Counts init containers in order up to the first that is not done. Returns the reason why that
/// one waits.
fn init_containers(object: &Value, all: &mut Tally, sidecars: &mut Tally) -> Option<String> {
    let specs = cell::list(object, "spec.initContainers");
    for (place, status) in cell::list(object, "status.initContainerStatuses").iter().enumerate() {
        let sidecar = specs
            .iter()
            .find(|spec| cell::text(spec, "name") == cell::text(status, "name"))
            .is_some_and(is_sidecar);
        all.add_restarts(status);
        if sidecar {
            sidecars.add_restarts(status);
        }
        let terminated = cell::at(status, "state.terminated");
        if !terminated.is_null() && cell::int(terminated, "exitCode") == 0 {
            continue;
        }
        if sidecar && cell::at(status, "started") == true {
            sidecars.ready += i64::from(cell::at(status, "ready") == true);
            continue;
        }
        let waiting = cell::text(status, "state.waiting.reason");
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

/// How a container ended: its reason, otherwise its signal, otherwise its exit code.
fn ended(terminated: &Value) -> String {
    match (cell::text(terminated, "reason"), cell::int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", cell::int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Counts the containers. The first one's reason is used, but not its success if another one has
/// failed.
fn containers(object: &Value, reason: &mut String, tally: &mut Tally) {
    let mut some_running = false;
    let mut error = None;
    for status in cell::list(object, "status.containerStatuses").iter().rev() {
        tally.add_restarts(status);
        let waiting = cell::text(status, "state.waiting.reason");
        let terminated = cell::at(status, "state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if !terminated.is_null() {
            *reason = ended(terminated);
            if cell::int(terminated, "exitCode") != 0 {
                error = Some(reason.clone());
            }
        } else if cell::at(status, "ready") == true && cell::has(status, "state.running") {
            some_running = true;
            tally.ready += 1;
        }
    }
    if reason == "Completed" {
        if some_running && cell::condition_is_true(object, "Ready") {
            "Running".clone_into(reason);
        } else if let Some(error) = error {
            *reason = error;
        } else if some_running {
            "NotReady".clone_into(reason);
        }
    }
}
