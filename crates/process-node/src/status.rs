//! The status of a pod, as a kubelet writes it.

use crate::container::Ended;
use crate::env::PodAddresses;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Map, Value, json};
use setpoint_nodes::restart::{ContainerPolicy, Policy};
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;

/// Which list of the spec a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Init,
    Sidecar,
    Main,
    Ephemeral,
}

impl List {
    pub(crate) fn of_spec(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::Main => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    pub(crate) fn of_status(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainerStatuses",
            Self::Main => "containerStatuses",
            Self::Ephemeral => "ephemeralContainerStatuses",
        }
    }

    /// When one of its containers starts again, in a pod with this `restartPolicy`.
    pub(crate) fn policy(self, container: &Container, pod: Option<&str>) -> ContainerPolicy {
        let pod = Policy::of_pod(pod.unwrap_or_default());
        // Cannot fail: all its keys are texts.
        let container = serde_json::to_value(container).unwrap_or_default();
        match self {
            Self::Init | Self::Sidecar => ContainerPolicy::of_init(&container, pod),
            Self::Main => ContainerPolicy::of_main(&container, pod),
            Self::Ephemeral => ContainerPolicy::of_ephemeral(),
        }
    }
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: String, message: String },
    Running(Timestamp),
    Ended(Ended),
}

/// A container and its state.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub(crate) container: Container,
    pub(crate) list: List,
    pub(crate) policy: ContainerPolicy,
    pub(crate) state: State,
    pub(crate) last: Option<Ended>,
    pub(crate) n_restarts: i32,
    /// The id of its newest run; empty before the first.
    pub(crate) id: String,
    pub(crate) is_started: bool,
    pub(crate) is_ready: bool,
    /// It has a process, or gets one.
    pub(crate) is_live: bool,
}

impl Tracked {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Whether it has a process whose hook after the start has not ended.
    pub(crate) fn is_in_hook(&self) -> bool {
        let hooks = self.container.lifecycle.as_ref();
        let has_hook = hooks.is_some_and(|hooks| hooks.post_start.is_some());
        has_hook && self.is_live && !self.is_running()
    }

    pub(crate) fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Its exit code, if it will not start again.
    pub(crate) fn final_code(&self) -> Option<i32> {
        self.ended().map(|ended| ended.code).filter(|code| !self.policy.restarts((*code).into()))
    }

    /// Whether the containers after it may start.
    pub(crate) fn lets_pass(&self) -> bool {
        match self.list {
            List::Init => self.ended().is_some_and(|ended| ended.code == 0),
            List::Sidecar => self.is_started,
            List::Main | List::Ephemeral => true,
        }
    }

    fn has_run(&self) -> bool {
        !matches!(self.state, State::Waiting { .. }) || self.last.is_some()
    }

    fn status(&self) -> Value {
        let id = match self.id.is_empty() {
            true => String::new(),
            false => format!("process://{}", self.id),
        };
        let ended = |ended: &Ended| {
            let mut shown = json!({
                "exitCode": ended.code, "reason": ended.reason,
                "startedAt": ended.started_at.map(|time| time.rfc3339()),
                "finishedAt": ended.finished_at.rfc3339(), "containerID": id,
            });
            if !ended.message.is_empty() {
                shown["message"] = ended.message.as_str().into();
            }
            json!({"terminated": shown})
        };
        let state = match &self.state {
            State::Waiting { reason, message } if message.is_empty() => {
                json!({"waiting": {"reason": reason}})
            }
            State::Waiting { reason, message } => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            State::Running(since) => json!({"running": {"startedAt": since.rfc3339()}}),
            State::Ended(state) => ended(state),
        };
        let mut status = json!({
            "name": self.container.name,
            "image": self.container.image.as_deref().unwrap_or_default(),
            "imageID": "",
            "lastState": self.last.as_ref().map_or_else(|| json!({}), ended),
            // An init container that is done counts as ready.
            "ready": self.is_ready || self.list == List::Init && self.lets_pass(),
            "started": self.is_started,
            "restartCount": self.n_restarts,
            "state": state,
        });
        if !id.is_empty() {
            status["containerID"] = id.into();
        }
        status
    }
}

/// The condition of pods in which a container may restart all containers.
const RESTARTING_ALL: &str = "AllContainersRestarting";

/// Whether a rule of a container has the action `RestartAllContainers`.
fn can_restart_all(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut rules = spec
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
        .flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

/// Whether a pod has ended.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_some_and(pod_phase::is_terminal)
}

/// Why a pod was ended by its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What a status is made of.
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) containers: &'a [Tracked],
    pub(crate) addresses: PodAddresses,
    pub(crate) began: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) verdict: Option<&'a Verdict>,
    /// The pod stops: its containers do not start again.
    pub(crate) is_ending: bool,
    /// All containers are being stopped, and then start again.
    pub(crate) is_restarting_all: bool,
}

/// The status of each condition, and since when it holds.
pub(crate) type Conditions = BTreeMap<String, (String, String)>;

impl View<'_> {
    /// The pod's phase.
    pub(crate) fn phase(&self) -> &'static str {
        let of = |list: List| self.containers.iter().filter(move |one| one.list == list);
        let is_any_live = self.containers.iter().any(|one| one.is_live);
        if is_any_live && (self.is_ending || self.verdict.is_some()) {
            let has_run = self.is_initialized() && of(List::Main).all(Tracked::has_run);
            return if has_run { "Running" } else { "Pending" };
        }
        if self.verdict.is_some() {
            return "Failed";
        }
        if self.is_ending {
            let succeeded = of(List::Main).all(|one| one.ended().is_some_and(|e| e.code == 0));
            return if succeeded { "Succeeded" } else { "Failed" };
        }
        let failed = of(List::Init).any(|one| one.final_code().is_some_and(|code| code != 0));
        if failed {
            return "Failed";
        }
        let codes: Vec<_> = of(List::Main).map(Tracked::final_code).collect();
        let is_passed = self.is_initialized();
        if !codes.is_empty() && codes.iter().all(Option::is_some) && is_passed {
            // Sidecars end first.
            if is_any_live {
                return "Running";
            }
            let succeeded = codes.iter().all(|code| *code == Some(0));
            return if succeeded { "Succeeded" } else { "Failed" };
        }
        if is_passed && of(List::Main).all(Tracked::has_run) { "Running" } else { "Pending" }
    }

    fn is_initialized(&self) -> bool {
        // A sidecar that starts again does not undo it.
        let has_begun = self.containers.iter().any(|one| one.list == List::Main && one.has_run());
        has_begun || self.containers.iter().all(Tracked::lets_pass)
    }

    /// The status, and the conditions in it.
    pub(crate) fn status(&self, before: &Conditions) -> (Value, Conditions) {
        let phase = self.phase();
        let is_over = pod_phase::is_terminal(phase);
        let spec = self.pod.spec.as_ref();
        let is_host = spec.and_then(|spec| spec.host_network) == Some(true);
        let host = self.addresses.host.to_string();
        let ip = if is_host { host.clone() } else { self.addresses.pod.to_string() };
        let mut status = Map::new();
        let mut set = |member: &str, value: Value| status.insert(member.to_owned(), value);
        set("phase", phase.into());
        set("startTime", self.began.rfc3339().into());
        set("hostIP", host.as_str().into());
        set("hostIPs", json!([{"ip": host}]));
        set("podIP", ip.as_str().into());
        set("podIPs", json!([{"ip": ip}]));
        let generation = self.pod.metadata.generation;
        if let Some(generation) = generation {
            set("observedGeneration", generation.into());
        }
        if let Some(verdict) = self.verdict {
            set("reason", verdict.reason.into());
            set("message", verdict.message.as_str().into());
        }
        for list in [List::Init, List::Main, List::Ephemeral] {
            let member = list.of_status();
            let all = self.containers.iter().filter(|one| one.list.of_status() == member);
            let all: Vec<Value> = all.map(Tracked::status).collect();
            if !all.is_empty() {
                set(member, all.into());
            }
        }
        let shown = self.conditions(phase, is_over);
        let mut conditions = Conditions::new();
        let list = shown.into_iter().map(|(kind, is_true, reason, message)| {
            let value = if is_true { "True" } else { "False" };
            let since = match before.get(kind) {
                Some((known, since)) if known == value => since.clone(),
                _ => self.now.rfc3339(),
            };
            conditions.insert(kind.to_owned(), (value.to_owned(), since.clone()));
            let or_null = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
            json!({
                "type": kind, "status": value, "reason": or_null(reason),
                "message": or_null(&message), "lastProbeTime": null,
                "lastTransitionTime": since, "observedGeneration": generation,
            })
        });
        let list: Vec<Value> = list.collect();
        set("conditions", list.into());
        (status.into(), conditions)
    }

    fn conditions(
        &self,
        phase: &str,
        is_over: bool,
    ) -> Vec<(&'static str, bool, &'static str, String)> {
        let names = |wanted: &dyn Fn(&Tracked) -> bool| {
            let names = self.containers.iter().filter(|one| wanted(one));
            names.map(|one| one.container.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let is_initialized = self.is_initialized() || phase == "Succeeded";
        let incomplete = names(&|one| !one.lets_pass());
        let counts =
            |one: &Tracked| one.list == List::Main || one.list == List::Sidecar && one.is_running();
        let unready = names(&|one| counts(one) && !one.is_ready);
        let (are_ready, why, message) = match (is_over, unready.is_empty()) {
            (true, _) if phase == "Failed" => (false, "PodFailed", String::new()),
            (true, _) => (false, "PodCompleted", String::new()),
            (false, true) => (true, "", String::new()),
            (false, false) => {
                let message = format!("containers with unready status: [{unready}]");
                (false, "ContainersNotReady", message)
            }
        };
        let gates = self.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
        let current = self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let current: Vec<_> = current.collect();
        let closed = gates.map(|gate| &gate.condition_type).find(|gate| {
            !current.iter().any(|known| known.type_ == **gate && known.status == "True")
        });
        let ready = match closed.filter(|_| are_ready) {
            Some(gate) => {
                let message = format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but False"
                );
                ("Ready", false, "ReadinessGatesNotReady", message)
            }
            None => ("Ready", are_ready, why, message.clone()),
        };
        let initialized = match is_initialized {
            true => ("Initialized", true, "", String::new()),
            false => {
                let message = format!("containers with incomplete status: [{incomplete}]");
                ("Initialized", false, "ContainersNotInitialized", message)
            }
        };
        let mut conditions = vec![
            ("PodReadyToStartContainers", !is_over, "", String::new()),
            initialized,
            ready,
            ("ContainersReady", are_ready, why, message),
            ("PodScheduled", true, "", String::new()),
        ];
        // Only of pods with the action.
        if can_restart_all(self.pod) {
            conditions.push(match (self.is_restarting_all, is_over) {
                (true, false) => {
                    let message = "container exited with restart policy rule".to_owned();
                    (RESTARTING_ALL, true, "RestartAllContainersStarted", message)
                }
                (_, true) => (RESTARTING_ALL, false, why, String::new()),
                (false, false) => (RESTARTING_ALL, false, "", String::new()),
            });
        }
        conditions
    }
}

#[cfg(test)]
mod tests;
