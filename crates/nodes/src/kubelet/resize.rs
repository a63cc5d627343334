//! In-place resizes: what a pod wants, what it has, and what its node tells of it.
//!
//! # Theory
//!
//! A container's status tells what it has (`resources`) and what the node has set aside for it
//! (`allocatedResources`). A pod whose spec wants something else waits until its node has room: the
//! condition `PodResizePending` says so. The node decides, in [`World`](crate::world::World).

use super::{LASTING, Place, Plan, PodEvent, items, text};
use serde::Serialize;
use serde_json::{Map, Value, json};
use setpoint_object::time::Timestamp;
use setpoint_quota::pod as amounts;

/// The condition of a resize that waits.
const PENDING: &str = "PodResizePending";

/// What nodes keep track of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Room {
    /// Thousandths of a core.
    pub(crate) cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
}

impl Room {
    /// What a node has for pods, and how many it takes. Nothing if it does not say.
    pub(crate) fn of_node(node: &Value) -> (Option<Self>, Option<i64>) {
        let has = amounts::quantities(&node["status"]["allocatable"]);
        let room = (!has.is_empty()).then(|| Self::of(&has));
        (room, has.get("pods").map(|pods| pods.value()))
    }

    fn of(amounts: &amounts::Amounts) -> Self {
        Self {
            cpu: amounts.get("cpu").map_or(0, |amount| amount.milli_value()),
            memory: amounts.get("memory").map_or(0, |amount| amount.value()),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    /// Whether it has more of anything than another one.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.cpu > other.cpu || self.memory > other.memory
    }
}

/// A resize that a pod wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) room: Room,
    pub(crate) generation: i64,
    pub(crate) rank: Rank,
}

/// The order among resizes that wait: those that need no more than before, then by priority, by
/// class, and by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    grows: bool,
    priority: std::cmp::Reverse<i64>,
    is_burstable: bool,
    since: (bool, String),
}

/// What becomes of a resize.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Resize {
    /// None is wanted.
    #[default]
    None,
    /// The node has room.
    Granted,
    /// The node has no room now. The message says what it lacks.
    Deferred(String),
}

/// The resize that a pod wants, if it wants another one than it has.
pub(crate) fn wanted(pod: &Value) -> Option<Wanted> {
    if super::is_over(pod) {
        return None;
    }
    let (spec, has) = (&pod["spec"], allocated_spec(pod)?);
    let room = Room::of(&amounts::requests(spec));
    let waits = items(&pod["status"]["conditions"]).iter().find(|found| found["type"] == PENDING);
    let since = waits.map(|found| text(&found["lastTransitionTime"]).to_owned());
    Some(Wanted {
        room,
        generation: pod["metadata"]["generation"].as_i64().unwrap_or_default(),
        rank: Rank {
            grows: room.exceeds(Room::of(&amounts::requests(&has))),
            priority: std::cmp::Reverse(spec["priority"].as_i64().unwrap_or_default()),
            is_burstable: pod["status"]["qosClass"] != "Guaranteed",
            since: (since.is_none(), since.unwrap_or_default()),
        },
    })
}

/// What a pod has of its node.
pub(crate) fn allocated(pod: &Value) -> Room {
    match allocated_spec(pod) {
        Some(has) => Room::of(&amounts::requests(&has)),
        None => Room::of(&amounts::requests(&pod["spec"])),
    }
}

/// The spec with the amounts that the status tells; none if they are the same, or it tells none.
fn allocated_spec(pod: &Value) -> Option<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut has = None::<Value>;
    for (list, statuses) in LASTING {
        for (n, container) in items(&spec[list]).iter().enumerate() {
            let status = items(&status[statuses])
                .iter()
                .find(|found| found["name"] == container["name"])
                .filter(|_| is_resizable(list, container));
            let told = status.map(|status| &status["resources"]);
            let is_empty = |amounts: &Value| amounts.as_object().is_none_or(Map::is_empty);
            let differs = |told: &&Value| {
                let wanted = &container["resources"];
                !told.is_null() && *told != wanted && !(is_empty(told) && is_empty(wanted))
            };
            if let Some(told) = told.filter(differs) {
                has.get_or_insert_with(|| spec.clone())[list][n]["resources"] = told.clone();
            }
        }
    }
    let told = &status["resources"];
    for member in ["requests", "limits"].into_iter().filter(|_| !told.is_null()) {
        for (name, wanted) in spec["resources"][member].as_object().into_iter().flatten() {
            let told = &told[member][name.as_str()];
            if told != wanted {
                let has = has.get_or_insert_with(|| spec.clone());
                has["resources"][member][name.as_str()] = told.clone();
            }
        }
    }
    has
}

/// Whether a container runs as long as its pod.
fn is_resizable(list: &str, container: &Value) -> bool {
    list == "containers" || container["restartPolicy"] == "Always"
}

/// Sets what a container has, in its status.
pub(crate) fn give(place: &Place<'_>, container: &Value, old: Option<&Value>, status: &mut Value) {
    let had = old.map(|old| &old["resources"]).filter(|had| !had.is_null());
    let keeps = place.around.resize != Resize::Granted || !is_resizable(place.list, container);
    let has = match had {
        Some(had) if keeps => had.clone(),
        _ if container["resources"].is_object() => container["resources"].clone(),
        _ => json!({}),
    };
    if let Some(status) = status.as_object_mut() {
        match has["requests"].as_object().is_some_and(|requests| !requests.is_empty()) {
            true => _ = status.insert("allocatedResources".to_owned(), has["requests"].clone()),
            false => _ = status.remove("allocatedResources"),
        }
        status.insert("resources".to_owned(), has);
    }
}

/// Whether a resize restarts a container that has `old` (a container's `resizePolicy`).
pub(crate) fn restarts(place: &Place<'_>, container: &Value, old: &Value) -> bool {
    let changes = |name: &Value| {
        ["requests", "limits"].into_iter().any(|member| {
            let name = text(name);
            container["resources"][member][name] != old["resources"][member][name]
        })
    };
    place.around.resize == Resize::Granted
        && is_resizable(place.list, container)
        && !old["resources"].is_null()
        && items(&container["resizePolicy"]).iter().any(|policy| {
            policy["restartPolicy"] == "RestartContainer" && changes(&policy["resourceName"])
        })
}

/// Adds to a plan what the pod tells of its resize.
pub(crate) fn tell(pod: &Value, resize: &Resize, now: Timestamp, plan: &mut Plan) {
    let waits = items(&pod["status"]["conditions"]).iter().find(|found| found["type"] == PENDING);
    let generation = &pod["metadata"]["generation"];
    let condition = match resize {
        Resize::Deferred(message) => {
            let is_told = waits.is_some_and(|found| {
                found["observedGeneration"] == *generation && found["message"] == **message
            });
            let is_new = waits.is_none_or(|found| found["observedGeneration"] != *generation);
            if is_new {
                let text = format!("Pod resize Deferred: {}", summary(pod, Some(message)));
                plan.events.push(event(true, "ResizeDeferred", text));
            }
            let mut condition = json!({
                "type": PENDING, "status": "True", "reason": "Deferred", "message": message,
                "observedGeneration": generation, "lastProbeTime": null,
            });
            if waits.is_none() {
                condition["lastTransitionTime"] = now.rfc3339().into();
            }
            (!is_told).then_some(condition)
        }
        Resize::Granted | Resize::None => {
            waits.map(|_| json!({"type": PENDING, "$patch": "delete"}))
        }
    };
    if *resize == Resize::Granted {
        let summary = summary(pod, None);
        plan.events.push(event(false, "ResizeStarted", format!("Pod resize started: {summary}")));
        plan.events.push(event(
            false,
            "ResizeCompleted",
            format!("Pod resize completed: {summary}"),
        ));
    }
    let mut status = match plan.status.take() {
        Value::Object(status) => status,
        _ => Map::new(),
    };
    if let Some(condition) = condition {
        match status.get_mut("conditions").and_then(Value::as_array_mut) {
            Some(conditions) => conditions.push(condition),
            None => _ = status.insert("conditions".to_owned(), json!([condition])),
        }
    }
    let told = &pod["status"]["resources"];
    if !pod["spec"]["resources"].is_null() && (told.is_null() || *resize == Resize::Granted) {
        let shown = |amounts: amounts::Amounts| -> Value {
            amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.as_str()))).collect()
        };
        let mut spec = pod["spec"].clone();
        // So that what it has compares with what it wants.
        spec["overhead"] = Value::Null;
        let (requests, limits) = (shown(amounts::requests(&spec)), shown(amounts::limits(&spec)));
        status.insert("allocatedResources".to_owned(), requests.clone());
        status.insert("resources".to_owned(), json!({"requests": requests, "limits": limits}));
    }
    plan.status = if status.is_empty() { Value::Null } else { status.into() };
}

fn event(is_warning: bool, reason: &'static str, message: String) -> PodEvent {
    PodEvent { is_warning, reason, message, field_path: String::new() }
}

/// The wanted amounts as kubelets write them in events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Value>,
    containers: Vec<Value>,
    generation: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

fn summary(pod: &Value, error: Option<&str>) -> String {
    let of = |container: &Value| {
        let resources = match container["resources"].is_object() {
            true => container["resources"].clone(),
            false => json!({}),
        };
        json!({"name": container["name"], "resources": resources})
    };
    let all = |list: &str| items(&pod["spec"][list]).iter().map(of).collect();
    let summary = Summary {
        init_containers: all("initContainers"),
        containers: all("containers"),
        generation: &pod["metadata"]["generation"],
        error,
    };
    // Trees and texts can be encoded.
    serde_json::to_string(&summary).unwrap_or_default()
}
