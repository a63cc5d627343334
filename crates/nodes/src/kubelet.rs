//! What a kubelet would make of a pod: the next status as a function of the pod and the time.
//!
//! # Theory
//!
//! Everything that the function needs is in the pod: when a container started, how often it has
//! restarted, how it ended. So a restarted program continues where the last one stopped. One call
//! moves each container by one step:
//!
//! | container is | and | becomes |
//! |---|---|---|
//! | new | earlier init containers are done | running |
//! | new | its image cannot exist | waiting: `ErrImagePull`, later `ImagePullBackOff` |
//! | running | its command has ended, or a liveness or startup probe cannot succeed | terminated |
//! | running | its image in the spec has changed | running, restarted |
//! | terminated | the restart policy says so, for the first time | running, restarted |
//! | terminated | the restart policy says so | waiting: `CrashLoopBackOff` for 10 s, 20 s, … 5 min |
//! | waiting: `CrashLoopBackOff` | the back-off is over | running, restarted |
//! | any | a container ended with a code for the action `RestartAllContainers` | waiting |
//!
//! The phase, the conditions and their reasons follow from the containers. A container that runs
//! gets other amounts of cpu and memory when its node grants them (`resize`), and is restarted for
//! it if its `resizePolicy` says so.

pub(crate) mod command;
mod container;
mod image;
pub(crate) mod resize;
mod restart_all;
mod security;

use crate::restart::{ContainerPolicy, Policy};
use container::{Evolved, ended_before, evolve, finished};
use resize::Resize;
use serde_json::{Map, Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use std::time::Duration;

/// The lists of containers that may run as long as their pod, with the lists of their statuses.
const LASTING: [(&str, &str); 2] =
    [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")];

/// What the function needs beside the pod.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) now: Timestamp,
    /// The node's addresses, that of the primary family first.
    pub(crate) host_ips: Vec<String>,
    /// The addresses for a pod without any; none if the node has no more.
    pub(crate) pod_ips: Vec<String>,
    /// Why the node does not take the pod in.
    pub(crate) rejection: Option<Rejection>,
    /// What becomes of a resize that the pod wants.
    pub(crate) resize: Resize,
}

/// Why a node does not take a pod in, as kubelets tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What to write about a pod.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Changed members of the status, as a strategic merge patch; null if nothing has changed.
    pub(crate) status: Value,
    pub(crate) events: Vec<PodEvent>,
    /// When something changes next without an event.
    pub(crate) due: Option<Timestamp>,
}

/// An event about a pod or one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// `spec.containers{web}`; empty for the pod.
    pub(crate) field_path: String,
}

/// Moves a pod that is not being deleted.
pub(crate) fn run(pod: &Value, around: &Surroundings) -> Plan {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    if is_over(pod) {
        return Plan::default();
    }
    let began = status["startTime"].as_str().and_then(Timestamp::parse);
    if began.is_none() {
        let os = text(&spec["os"]["name"]);
        if !matches!(os, "" | "linux") {
            let message = "Failed to admit pod as the OS field doesn't match node OS";
            return reject(pod, around, "PodOSNotSupported", message);
        }
        if let Some(message) = security::forbidden_sysctl(spec) {
            return reject(pod, around, "SysctlForbidden", &message);
        }
        if let Some(Rejection { reason, message }) = &around.rejection {
            return reject(pod, around, reason, message);
        }
    }
    let began = began.unwrap_or(around.now);
    let deadline =
        spec["activeDeadlineSeconds"].as_u64().map(|seconds| began + Duration::from_secs(seconds));
    if deadline.is_some_and(|deadline| around.now >= deadline) {
        let mut plan = end(pod, around, Some("DeadlineExceeded"), 137);
        plan.status["message"] =
            "Pod was active on the node longer than the specified deadline".into();
        return plan;
    }
    if let Some(plan) = restart_all::begin(pod, around) {
        return plan;
    }
    let mut next = Next { due: deadline, ..Next::default() };
    let policy = Policy::of_pod(text(&spec["restartPolicy"]));
    let main = items(&spec["containers"]);

    // Init containers run one after the other. A sidecar need only have started.
    let (mut is_initialized, mut has_failed) = (true, false);
    for container in items(&spec["initContainers"]) {
        let is_sidecar = container["restartPolicy"] == "Always";
        let own_policy = ContainerPolicy::of_init(container, policy);
        let place = Place { pod, around, list: "initContainers", began };
        let evolved = match is_initialized && !has_failed {
            true => evolve(&place, container, &own_policy),
            false => Evolved::waits(&place, container, "PodInitializing"),
        };
        let is_done = match is_sidecar {
            true => evolved.has_started(),
            false => evolved.final_code(&own_policy) == Some(0),
        };
        has_failed |= evolved.final_code(&own_policy).is_some_and(|code| code != 0);
        is_initialized &= is_done;
        next.add_init(evolved, is_done);
    }
    let mut codes: Vec<Option<i64>> = Vec::new();
    for container in main {
        let place = Place { pod, around, list: "containers", began };
        let own_policy = ContainerPolicy::of_main(container, policy);
        let evolved = match is_initialized && !has_failed {
            true => evolve(&place, container, &own_policy),
            false => Evolved::waits(&place, container, "PodInitializing"),
        };
        codes.push(evolved.final_code(&own_policy));
        next.add_main(evolved);
    }
    for container in items(&spec["ephemeralContainers"]) {
        let place = Place { pod, around, list: "ephemeralContainers", began };
        next.add_ephemeral(evolve(&place, container, &ContainerPolicy::of_ephemeral()));
    }

    let phase = if has_failed {
        "Failed"
    } else if !codes.is_empty() && codes.iter().all(Option::is_some) && is_initialized {
        next.end_sidecars(around.now);
        if codes.iter().all(|code| *code == Some(0)) { "Succeeded" } else { "Failed" }
    } else if next.main.iter().all(Evolved::has_run) {
        // Its init containers may be running again.
        "Running"
    } else {
        "Pending"
    };
    let mut plan = next.plan(pod, around, phase, is_initialized, began);
    resize::tell(pod, &around.resize, around.now, &mut plan);
    plan
}

/// Ends the containers of a pod that is being deleted. Null status: they have ended, or, if there
/// is a due time, they run until then.
pub(crate) fn stop(pod: &Value, around: &Surroundings) -> Plan {
    if is_over(pod) || pod["status"]["startTime"].is_null() {
        return Plan::default();
    }
    let until = hooks_end(pod).filter(|until| *until > around.now);
    if until.is_some() {
        return Plan { due: until, ..Plan::default() };
    }
    let mut plan = end(pod, around, None, 143);
    for status in items(&pod["status"]["containerStatuses"]) {
        if !status["state"]["running"].is_null() {
            let name = text(&status["name"]);
            plan.events.push(PodEvent {
                is_warning: false,
                reason: "Killing",
                message: format!("Stopping container {name}"),
                field_path: format!("spec.containers{{{name}}}"),
            });
        }
    }
    plan
}

/// When the last `preStop` hook ends, if it is plain how long they take: at the latest, when the
/// grace period does.
fn hooks_end(pod: &Value) -> Option<Timestamp> {
    // The time of deletion is the end of the grace period.
    let end = Timestamp::parse(pod.deletion_timestamp())?;
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default();
    let grace = Duration::from_secs(grace);
    let hooks = LASTING.into_iter().flat_map(|(list, statuses)| {
        items(&pod["spec"][list]).iter().filter(move |container| {
            let of = |status: &&Value| status["name"] == container["name"];
            let status = items(&pod["status"][statuses]).iter().find(of);
            status.is_some_and(|status| !status["state"]["running"].is_null())
        })
    });
    let longest = hooks.filter_map(|container| takes(&container["lifecycle"]["preStop"])).max()?;
    Some(Timestamp(end.0.saturating_sub(grace)) + longest.min(grace))
}

/// How long a hook takes, if it is plain.
fn takes(hook: &Value) -> Option<Duration> {
    if let Some(seconds) = hook["sleep"]["seconds"].as_u64() {
        return Some(Duration::from_secs(seconds));
    }
    let words: Vec<String> =
        items(&hook["exec"]["command"]).iter().map(|word| text(word).to_owned()).collect();
    match command::Outcome::of(&words) {
        command::Outcome::Ends { after, .. } if !words.is_empty() => Some(after),
        _ => None,
    }
}

/// Ends all containers that run, with a code, and the pod with them. Containers whose turn had not
/// come wait on.
fn end(pod: &Value, around: &Surroundings, reason: Option<&str>, code: i64) -> Plan {
    let status = &pod["status"];
    let mut changed = Map::new();
    let is_initialized = is_initialized(pod, around);
    let mut all_succeeded = is_initialized;
    let ephemeral = [("ephemeralContainers", "ephemeralContainerStatuses")];
    for (list, member) in LASTING.into_iter().chain(ephemeral) {
        let mut statuses = items(&status[member]).to_vec();
        let n_begun = match member {
            "containerStatuses" if !is_initialized => 0,
            "initContainerStatuses" => n_begun(&statuses),
            _ => statuses.len(),
        };
        for found in statuses.iter_mut().take(n_begun) {
            let of = |container: &&Value| container["name"] == found["name"];
            let container = items(&pod["spec"][list]).iter().find(of);
            // It may have ended by itself since the last pass.
            let own = container.and_then(|container| ended_before(container, found, around.now));
            finished(found, own.unwrap_or(code), around.now);
            let ended = &found["state"]["terminated"];
            all_succeeded &= member != "containerStatuses" || ended["exitCode"] == 0;
        }
        if !statuses.is_empty() {
            changed.insert(member.to_owned(), statuses.into());
        }
    }
    let phase = if all_succeeded && reason.is_none() { "Succeeded" } else { "Failed" };
    changed.insert("phase".into(), phase.into());
    if let Some(reason) = reason {
        changed.insert("reason".into(), reason.into());
    }
    let why = if phase == "Failed" { "PodFailed" } else { "PodCompleted" };
    let conditions: Vec<Value> = ["Ready", "ContainersReady"]
        .into_iter()
        .filter_map(|kind| condition(pod, around.now, kind, false, why, None))
        .collect();
    if !conditions.is_empty() {
        changed.insert("conditions".into(), conditions.into());
    }
    Plan { status: changed.into(), ..Plan::default() }
}

/// Whether the turn of a pod's containers has come: one has started, or the last init container has
/// done its part.
fn is_initialized(pod: &Value, around: &Surroundings) -> bool {
    let Some(container) = items(&pod["spec"]["initContainers"]).last() else { return true };
    let status = &pod["status"];
    if items(&status["containerStatuses"]).iter().any(has_begun) {
        return true;
    }
    let mut all = items(&status["initContainerStatuses"]).iter();
    let Some(last) = all.find(|found| found["name"] == container["name"]) else { return false };
    if container["restartPolicy"] == "Always" {
        return !last["state"]["running"].is_null() && last["started"] == true;
    }
    let ended = [&last["state"], &last["lastState"]].map(|state| &state["terminated"]["exitCode"]);
    ended.into_iter().any(|code| *code == 0) || ended_before(container, last, around.now) == Some(0)
}

/// How many init containers have had their turn, at least the first one.
fn n_begun(statuses: &[Value]) -> usize {
    statuses.iter().rposition(has_begun).map_or(1, |last| last + 1)
}

/// Whether a container has ever started.
fn has_begun(status: &Value) -> bool {
    status["state"]["waiting"].is_null() || !status["lastState"]["terminated"].is_null()
}

/// The pod cannot run on its node.
fn reject(pod: &Value, around: &Surroundings, reason: &'static str, message: &str) -> Plan {
    let mut status = json!({
        "phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}"),
        "startTime": around.now.rfc3339(),
    });
    if pod["metadata"]["generation"].is_i64() {
        status["observedGeneration"] = pod["metadata"]["generation"].clone();
    }
    let event = PodEvent {
        is_warning: true,
        reason,
        message: message.to_owned(),
        field_path: String::new(),
    };
    Plan { status, events: vec![event], due: None }
}

/// Whether a pod has ended.
pub(crate) fn is_over(pod: &Value) -> bool {
    pod_phase::is_terminal(text(&pod["status"]["phase"]))
}

/// Where a container is.
pub(crate) struct Place<'a> {
    pub(crate) pod: &'a Value,
    pub(crate) around: &'a Surroundings,
    /// The member of the spec: `containers`.
    pub(crate) list: &'static str,
    /// When the pod started.
    pub(crate) began: Timestamp,
}

impl Place<'_> {
    /// The status of a container, if there is one.
    fn status(&self, name: &str) -> Option<&Value> {
        let member = match self.list {
            "containers" => "containerStatuses",
            "initContainers" => "initContainerStatuses",
            _ => "ephemeralContainerStatuses",
        };
        items(&self.pod["status"][member]).iter().find(|status| status["name"] == name)
    }
}

/// The next state of all containers.
#[derive(Default)]
struct Next {
    init: Vec<(Evolved, bool)>,
    main: Vec<Evolved>,
    ephemeral: Vec<Evolved>,
    events: Vec<PodEvent>,
    due: Option<Timestamp>,
}

impl Next {
    fn note(&mut self, evolved: &mut Evolved) {
        self.events.append(&mut evolved.events);
        self.due = self.due.into_iter().chain(evolved.due).min();
    }

    fn add_init(&mut self, mut evolved: Evolved, is_done: bool) {
        self.note(&mut evolved);
        self.init.push((evolved, is_done));
    }

    fn add_main(&mut self, mut evolved: Evolved) {
        self.note(&mut evolved);
        self.main.push(evolved);
    }

    fn add_ephemeral(&mut self, mut evolved: Evolved) {
        self.note(&mut evolved);
        self.ephemeral.push(evolved);
    }

    fn end_sidecars(&mut self, now: Timestamp) {
        for (sidecar, _) in &mut self.init {
            finished(&mut sidecar.status, 0, now);
        }
        self.due = None;
    }

    fn plan(
        self,
        pod: &Value,
        around: &Surroundings,
        phase: &str,
        is_initialized: bool,
        began: Timestamp,
    ) -> Plan {
        let (spec, old, now) = (&pod["spec"], &pod["status"], around.now);
        let mut status = Map::new();
        let mut set = |member: &str, value: Value| {
            if old[member] != value {
                status.insert(member.to_owned(), value);
            }
        };
        set("phase", phase.into());
        if old["startTime"].is_null() {
            set("startTime", began.rfc3339().into());
        }
        let listed = |ips: &[String]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Value>();
        set("hostIP", around.host_ips.first().map(String::as_str).unwrap_or_default().into());
        set("hostIPs", listed(&around.host_ips));
        let is_host = spec["hostNetwork"] == true;
        let ips = if is_host { &around.host_ips } else { &around.pod_ips };
        if let (true, Some(ip)) = (old["podIP"].is_null(), ips.first()) {
            set("podIP", ip.as_str().into());
            set("podIPs", listed(ips));
        }
        if pod["metadata"]["generation"].is_i64() {
            set("observedGeneration", pod["metadata"]["generation"].clone());
        }
        let statuses = |evolved: &mut dyn Iterator<Item = &Evolved>| {
            Value::Array(evolved.map(|evolved| evolved.status.clone()).collect())
        };
        if !self.init.is_empty() {
            set("initContainerStatuses", statuses(&mut self.init.iter().map(|(one, _)| one)));
        }
        set("containerStatuses", statuses(&mut self.main.iter()));
        if !self.ephemeral.is_empty() {
            set("ephemeralContainerStatuses", statuses(&mut self.ephemeral.iter()));
        }

        let names = |texts: Vec<&str>| texts.join(" ");
        let incomplete: Vec<&str> =
            self.init.iter().filter(|(_, done)| !done).map(|(one, _)| one.name()).collect();
        let sidecars = self.init.iter().filter(|(one, _)| one.is_running()).map(|(one, _)| one);
        let all = sidecars.chain(&self.main);
        let unready: Vec<&str> =
            all.filter(|evolved| !evolved.is_ready()).map(Evolved::name).collect();
        let is_over = pod_phase::is_terminal(phase);
        let ended = if phase == "Failed" { "PodFailed" } else { "PodCompleted" };
        let (are_ready, why, message) = match (is_over, unready.is_empty()) {
            (true, _) => (false, ended, None),
            (false, true) => (true, "", None),
            (false, false) => {
                let message = format!("containers with unready status: [{}]", names(unready));
                (false, "ContainersNotReady", Some(message))
            }
        };
        let gates: Vec<&str> = items(&spec["readinessGates"])
            .iter()
            .map(|gate| text(&gate["conditionType"]))
            .filter(|gate| {
                let holds = |found: &Value| found["type"] == **gate && found["status"] == "True";
                !items(&old["conditions"]).iter().any(holds)
            })
            .collect();
        let initialized = match is_initialized || phase == "Succeeded" {
            true => condition(pod, now, "Initialized", true, "", None),
            false => {
                let message = format!("containers with incomplete status: [{}]", names(incomplete));
                condition(pod, now, "Initialized", false, "ContainersNotInitialized", Some(message))
            }
        };
        let ready = match (are_ready, gates.is_empty()) {
            (true, false) => {
                let message = format!(
                    "the status of pod readiness gate \"{}\" is not \"True\", but False",
                    gates[0]
                );
                condition(pod, now, "Ready", false, "ReadinessGatesNotReady", Some(message))
            }
            _ => condition(pod, now, "Ready", are_ready, why, message.clone()),
        };
        let conditions: Vec<Value> = [
            condition(pod, now, "PodReadyToStartContainers", !is_over, "", None),
            initialized,
            ready,
            condition(pod, now, "ContainersReady", are_ready, why, message),
            // Set by the binding; not if the pod was created with its node.
            condition(pod, now, "PodScheduled", true, "", None),
            restart_all::ended(pod, around, if is_over { ended } else { "" }),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), conditions.into());
        }
        let status = if status.is_empty() { Value::Null } else { status.into() };
        Plan { status, events: self.events, due: self.due.filter(|_| !is_over) }
    }
}

/// A condition, if it differs from the pod's.
fn condition(
    pod: &Value,
    now: Timestamp,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: Option<String>,
) -> Option<Value> {
    let found = items(&pod["status"]["conditions"]).iter().find(|found| found["type"] == kind);
    let status = if is_true { "True" } else { "False" };
    let same =
        |member: &str, wanted: &str| found.is_some_and(|found| text(&found[member]) == wanted);
    let generation = &pod["metadata"]["generation"];
    let is_observed = found.is_some_and(|found| found["observedGeneration"] == *generation);
    let message = message.unwrap_or_default();
    if same("status", status) && same("reason", reason) && same("message", &message) && is_observed
    {
        return None;
    }
    let or_null = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let mut condition = json!({
        "type": kind, "status": status, "reason": or_null(reason), "message": or_null(&message),
        "observedGeneration": generation, "lastProbeTime": null,
    });
    if !same("status", status) {
        condition["lastTransitionTime"] = now.rfc3339().into();
    }
    Some(condition)
}

/// The items of a list; none if it is not a list.
pub(crate) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `name_namespace(uid)`, as kubelets name pods in messages.
pub(crate) fn full_name(pod: &Value) -> String {
    format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid())
}

#[cfg(test)]
mod tests;
