//! One container: from its status to the next.

use super::command::Outcome;
use super::{Place, PodEvent, full_name, image, items, resize, security, text};
use crate::restart::{ContainerPolicy, backoff, show};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// How long a failed pull shows as `ErrImagePull` before it backs off.
const PULL_BACKOFF: Duration = Duration::from_secs(2);

/// The next status of a container.
#[derive(Debug)]
pub(crate) struct Evolved {
    pub(crate) status: Value,
    pub(crate) events: Vec<PodEvent>,
    pub(crate) due: Option<Timestamp>,
}

impl Evolved {
    /// The status of a container that may not start yet. One that has run stays as it is.
    pub(crate) fn waits(place: &Place<'_>, container: &Value, reason: &str) -> Self {
        let name = text(&container["name"]);
        let status = match place.status(name) {
            Some(found) if found["state"]["waiting"].is_null() => found.clone(),
            found => fresh(container, found, json!({"waiting": {"reason": reason}})),
        };
        Self { status, events: Vec::new(), due: None }
    }

    pub(crate) fn name(&self) -> &str {
        text(&self.status["name"])
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.status["state"]["running"].is_null()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.status["ready"] == true
    }

    /// Whether it runs and its startup probe has succeeded.
    pub(crate) fn has_started(&self) -> bool {
        self.status["started"] == true
    }

    /// Whether it runs or has run.
    pub(crate) fn has_run(&self) -> bool {
        self.status["state"]["waiting"].is_null()
            || !self.status["lastState"]["terminated"].is_null()
    }

    /// The code that it ended with.
    pub(crate) fn exit_code(&self) -> Option<i64> {
        self.status["state"]["terminated"]["exitCode"].as_i64()
    }

    /// The code that it ended with, if it will not start again.
    pub(crate) fn final_code(&self, policy: &ContainerPolicy) -> Option<i64> {
        self.exit_code().filter(|code| !policy.restarts(*code))
    }
}

/// Moves a container by one step.
pub(crate) fn evolve(place: &Place<'_>, container: &Value, policy: &ContainerPolicy) -> Evolved {
    let mut step = Step {
        place,
        container,
        name: text(&container["name"]),
        old: place.status(text(&container["name"])),
        events: Vec::new(),
        due: None,
    };
    let mut status = step.status(policy);
    if status["containerID"].is_string() {
        resize::give(place, container, step.old, &mut status);
    }
    Evolved { status, events: step.events, due: step.due }
}

/// The code that the command of a running container has ended with by now, if it has.
pub(crate) fn ended_before(container: &Value, status: &Value, now: Timestamp) -> Option<i64> {
    let since = Timestamp::parse(text(&status["state"]["running"]["startedAt"]))?;
    by_command(container, since).filter(|(at, _)| *at <= now).map(|(_, code)| code)
}

/// When and with which code a container's command ends, if it does so by itself.
fn by_command(container: &Value, since: Timestamp) -> Option<(Timestamp, i64)> {
    match Outcome::of_container(container) {
        Outcome::Ends { after, code } => Some((since + after, i64::from(code))),
        Outcome::Runs => None,
    }
}

/// Ends a container that runs, or has not run, with a code.
pub(crate) fn finished(status: &mut Value, code: i64, now: Timestamp) {
    if !status["state"]["terminated"].is_null() {
        return;
    }
    let since = status["state"]["running"]["startedAt"].clone();
    let has_run = since.is_string();
    let before = &status["lastState"]["terminated"];
    let terminated = match (has_run, before.is_null()) {
        (true, _) => json!({
            "exitCode": code, "reason": reason(code), "startedAt": since,
            "finishedAt": now.rfc3339(), "containerID": status["containerID"],
        }),
        // It waited to start again: its last end stays.
        (false, false) => before.clone(),
        (false, true) => json!({
            "exitCode": 137, "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": null, "finishedAt": null,
        }),
    };
    status["state"] = json!({"terminated": terminated});
    status["ready"] = false.into();
    status["started"] = false.into();
}

fn reason(code: i64) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

/// A status in a state, with what it keeps of the one before.
fn fresh(container: &Value, old: Option<&Value>, state: Value) -> Value {
    let keep = |member: &str| old.map(|old| old[member].clone()).filter(|value| !value.is_null());
    let mut status = json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": keep("imageID").unwrap_or_else(|| "".into()),
        "lastState": keep("lastState").unwrap_or_else(|| json!({})),
        "ready": false,
        "started": false,
        "restartCount": keep("restartCount").unwrap_or_else(|| 0.into()),
        "state": state,
    });
    for member in ["containerID", "resources", "allocatedResources"] {
        if let Some(value) = keep(member) {
            status[member] = value;
        }
    }
    status
}

struct Step<'a> {
    place: &'a Place<'a>,
    container: &'a Value,
    name: &'a str,
    old: Option<&'a Value>,
    events: Vec<PodEvent>,
    due: Option<Timestamp>,
}

impl Step<'_> {
    fn now(&self) -> Timestamp {
        self.place.around.now
    }

    /// Looks again at a time; true if it has come.
    fn is_due(&mut self, at: Timestamp) -> bool {
        let is_due = self.now() >= at;
        if !is_due {
            self.due = self.due.into_iter().chain([at]).min();
        }
        is_due
    }

    fn event(&mut self, is_warning: bool, reason: &'static str, message: String) {
        let field_path = format!("spec.{}{{{}}}", self.place.list, self.name);
        self.events.push(PodEvent { is_warning, reason, message, field_path });
    }

    fn status(&mut self, policy: &ContainerPolicy) -> Value {
        let state = self.old.map(|old| &old["state"]).unwrap_or(&Value::Null);
        let since = state["running"]["startedAt"].as_str().and_then(Timestamp::parse);
        if let (Some(old), Some(since)) = (self.old, since) {
            return self.running(old, since);
        }
        if let (Some(old), Some(code)) = (self.old, state["terminated"]["exitCode"].as_i64()) {
            return match policy.restarts(code) {
                true => self.restart(old, &state["terminated"]),
                false => old.clone(),
            };
        }
        if let Some(old) = self.old.filter(|_| state["waiting"]["reason"] == "CrashLoopBackOff") {
            return self.restart(old, &old["lastState"]["terminated"]);
        }
        // It may have run before all containers of the pod were restarted.
        let n_restarts = self.old.and_then(|old| old["restartCount"].as_i64());
        self.start(n_restarts.unwrap_or_default())
    }

    /// A container that has not run, or starts again.
    fn start(&mut self, n_restarts: i64) -> Value {
        let name = text(&self.container["image"]);
        if let Some((reason, message)) =
            image::fault(name, text(&self.container["imagePullPolicy"]))
        {
            return self.pull_fails(name, reason, message);
        }
        let (pod, container) = (self.place.pod, self.container);
        let fault = security::fault(pod, container);
        if let Some(message) = fault.or_else(|| crate::volumes::fault(pod, container)) {
            let waiting = json!({"reason": "CreateContainerConfigError", "message": message});
            if self.old.is_none_or(|old| old["state"]["waiting"] != waiting) {
                self.event(true, "Failed", format!("Error: {message}"));
            }
            return fresh(self.container, self.old, json!({"waiting": waiting}));
        }
        self.event(false, "Started", format!("Started container {}", self.name));
        let now = self.now();
        let mut status =
            fresh(self.container, self.old, json!({"running": {"startedAt": now.rfc3339()}}));
        status["restartCount"] = n_restarts.into();
        status["imageID"] = image_id(name).into();
        status["containerID"] = self.container_id(n_restarts).into();
        self.probe(&mut status, now);
        // The command may have ended already.
        if let Some((at, _)) = self.ends(now) {
            self.is_due(at.max(now + Duration::from_millis(1)));
        }
        status
    }

    fn pull_fails(&mut self, name: &str, reason: &'static str, message: String) -> Value {
        let before =
            self.old.map(|old| text(&old["state"]["waiting"]["reason"])).unwrap_or_default();
        let has_backed_off =
            reason == "ErrImagePull" && self.is_due(self.place.began + PULL_BACKOFF);
        let waiting = match has_backed_off {
            true => json!({
                "reason": "ImagePullBackOff",
                "message": format!("Back-off pulling image \"{name}\": ErrImagePull: {message}"),
            }),
            false => json!({"reason": reason, "message": message}),
        };
        if before != waiting["reason"] {
            match has_backed_off {
                true => self.event(false, "BackOff", format!("Back-off pulling image \"{name}\"")),
                false => {
                    let text = match reason {
                        "ErrImagePull" => format!("Failed to pull image \"{name}\": {message}"),
                        _ => message,
                    };
                    self.event(true, "Failed", text);
                }
            }
        }
        fresh(self.container, self.old, json!({"waiting": waiting}))
    }

    /// When and with which code the container ends, and why, if it does so by itself.
    fn ends(&self, since: Timestamp) -> Option<(Timestamp, i64)> {
        let by_probe = self.killed_by_probe(since).map(|at| (at, 137));
        by_command(self.container, since).into_iter().chain(by_probe).min()
    }

    /// When a probe that cannot succeed has failed often enough. The liveness probe begins once
    /// the startup probe has succeeded.
    fn killed_by_probe(&self, since: Timestamp) -> Option<Timestamp> {
        let (startup, liveness) =
            (&self.container["startupProbe"], &self.container["livenessProbe"]);
        if cannot_succeed(startup) {
            return Some(since + initial_delay(startup) + failures_take(startup));
        }
        let begins = initial_delay(startup).max(initial_delay(liveness));
        cannot_succeed(liveness).then(|| since + begins + failures_take(liveness))
    }

    fn running(&mut self, old: &Value, since: Timestamp) -> Value {
        let image = &self.container["image"];
        let is_replaced = self.place.list == "containers" && old["image"] != *image;
        if is_replaced || resize::restarts(self.place, self.container, old) {
            let name = self.name;
            let message = match is_replaced {
                true => format!("Container {name} definition changed, will be restarted"),
                false => format!("Container {name} resize requires restart"),
            };
            self.event(false, "Killing", message);
            let mut ended = old.clone();
            finished(&mut ended, 0, self.now());
            let n_restarts = old["restartCount"].as_i64().unwrap_or_default() + 1;
            let mut status = self.start(n_restarts);
            status["lastState"] = ended["state"].clone();
            return status;
        }
        if let Some((at, code)) = self.ends(since)
            && self.is_due(at)
        {
            let is_killed = code == 137;
            if is_killed {
                let message =
                    format!("Container {} failed liveness probe, will be restarted", self.name);
                self.event(true, "Unhealthy", "Liveness probe failed: ".to_owned());
                self.event(false, "Killing", message);
            }
            let mut ended = old.clone();
            finished(&mut ended, code, self.now());
            // An init container that is done counts as ready; a sidecar starts again.
            let is_init =
                self.place.list == "initContainers" && self.container["restartPolicy"] != "Always";
            ended["ready"] = (is_init && code == 0).into();
            // Times of a command are exact, however late this pass is.
            ended["state"]["terminated"]["finishedAt"] = at.rfc3339().into();
            // What follows is decided at once by the next pass.
            self.due = Some(self.now());
            return ended;
        }
        let mut status = old.clone();
        self.probe(&mut status, since);
        status
    }

    /// Sets `started` and `ready` of a running container.
    fn probe(&mut self, status: &mut Value, since: Timestamp) {
        let container = self.container;
        let mut succeeds = |probe: &Value| {
            probe.is_null() || (!cannot_succeed(probe) && self.is_due(since + initial_delay(probe)))
        };
        let has_started = succeeds(&container["startupProbe"]);
        let is_ready = has_started && succeeds(&container["readinessProbe"]);
        status["started"] = has_started.into();
        status["ready"] = is_ready.into();
    }

    /// A container that has ended and starts again, at once or after its back-off.
    fn restart(&mut self, old: &Value, ended: &Value) -> Value {
        let n_restarts = old["restartCount"].as_i64().unwrap_or_default();
        let time = |member: &str| ended[member].as_str().and_then(Timestamp::parse);
        let finished_at = time("finishedAt").unwrap_or(self.now());
        let ran = time("startedAt").map_or(Duration::ZERO, |started| finished_at.since(started));
        let delay = backoff(n_restarts, ran);
        if self.is_due(finished_at + delay) {
            let mut status = self.start(n_restarts + 1);
            status["lastState"] = json!({"terminated": ended});
            return status;
        }
        let pod = full_name(self.place.pod);
        let (seconds, name) = (show(delay), self.name);
        if old["state"]["waiting"].is_null() {
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            self.event(true, "BackOff", message);
        }
        let message = format!("back-off {seconds} restarting failed container={name} pod={pod}");
        let mut status = old.clone();
        status["lastState"] = json!({"terminated": ended});
        status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        status["ready"] = false.into();
        status["started"] = false.into();
        status
    }

    fn container_id(&self, n_restarts: i64) -> String {
        let uid = self.place.pod.uid();
        format!("setpoint://{}", digest(&(uid, self.name, n_restarts)))
    }
}

fn seconds(value: &Value, default: u64) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or(default))
}

fn initial_delay(probe: &Value) -> Duration {
    seconds(&probe["initialDelaySeconds"], 0)
}

/// How long it takes until a probe that cannot succeed has failed often enough.
fn failures_take(probe: &Value) -> Duration {
    let n = u32::try_from(probe["failureThreshold"].as_u64().unwrap_or(3)).unwrap_or(u32::MAX);
    seconds(&probe["periodSeconds"], 10).saturating_mul(n)
}

/// Whether a probe runs a command that plainly fails, or takes too long.
fn cannot_succeed(probe: &Value) -> bool {
    let command = items(&probe["exec"]["command"]);
    let words: Vec<String> = command.iter().map(|word| text(word).to_owned()).collect();
    !words.is_empty()
        && match Outcome::of(&words) {
            Outcome::Ends { after, code } => {
                code != 0 || after > seconds(&probe["timeoutSeconds"], 1)
            }
            Outcome::Runs => false,
        }
}

fn image_id(image: &str) -> String {
    if image.contains('@') {
        return image.to_owned();
    }
    format!("{image}@sha256:{}", digest(&image))
}

/// 64 digits that depend on a value only.
fn digest(value: &impl Hash) -> String {
    let part = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, value).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}
