//! Stages: when an object matches, and what becomes of it. Data, in the style of KWOK's.

mod template;

pub(crate) use template::{Path, Scope, Template};

use rand::Rng;
use serde::Deserialize;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The largest file of stages: 1 MiB.
pub const STAGES_BYTES_MAX: usize = 1 << 20;
/// The largest number of stages.
const STAGES_MAX: usize = 256;
/// The longest delay: a day.
const DELAY_MAX: Duration = Duration::from_secs(86_400);

/// Why a file of stages cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The file is larger than 1 MiB, or has more than 256 stages.
    #[error("too many stages")]
    TooMany,
    /// The file is not YAML, or a member has another name or type.
    #[error("read the stages: {0}")]
    Syntax(String),
    /// A path, a template or an operator of a stage is invalid.
    #[error("stage {stage:?}: {why}")]
    Invalid {
        /// The stage's name.
        stage: String,
        /// The reason.
        why: String,
    },
}

/// A set of stages. `docs/nodes.md` describes the format.
#[derive(Debug, Clone)]
pub struct Stages(pub(crate) Vec<Stage>);

/// One stage.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) resource: ResourceRef,
    selector: Selector,
    weight: u32,
    delay: Delay,
    pub(crate) next: Next,
}

/// The kind of the objects of a stage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResourceRef {
    /// `v1`, `apps/v1`. Default: `v1`.
    #[serde(default = "core")]
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The resource in paths; default: the kind's plural.
    #[serde(default)]
    pub(crate) resource: Option<String>,
}

fn core() -> String {
    "v1".to_owned()
}

/// Which objects match.
#[derive(Debug, Clone, Default)]
struct Selector {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    expressions: Vec<(Path, Operator, Vec<Value>)>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// How long an object must match.
#[derive(Debug, Clone, Default)]
struct Delay {
    fixed: Duration,
    from: Option<Path>,
    /// The delay is random between the fixed one and this.
    jitter: Option<Duration>,
}

/// What becomes of the object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Next {
    pub(crate) action: Option<Action>,
    pub(crate) status: Option<Template>,
    pub(crate) patch: Option<Template>,
    pub(crate) event: Option<EventTemplate>,
    pub(crate) add_finalizers: Vec<String>,
    pub(crate) remove_finalizers: Vec<String>,
    pub(crate) empties_finalizers: bool,
    pub(crate) deletes: bool,
}

/// Something that data cannot say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Action {
    /// Moves a pod as a kubelet would: containers start, end, restart, and become ready.
    RunPod,
    /// Ends the containers of a pod that is being deleted, then removes the pod.
    StopPod,
}

/// An event about the object.
#[derive(Debug, Clone)]
pub(crate) struct EventTemplate {
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) message: Template,
}

// The file.

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    resource_ref: ResourceRef,
    #[serde(default)]
    selector: SelectorSpec,
    #[serde(default)]
    weight: u32,
    #[serde(default)]
    delay: DelaySpec,
    next: NextSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SelectorSpec {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_annotations: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<ExpressionSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpressionSpec {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DelaySpec {
    #[serde(default)]
    duration_milliseconds: u64,
    duration_from: Option<FromSpec>,
    jitter_duration_milliseconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FromSpec {
    expression_from: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NextSpec {
    action: Option<Action>,
    status: Option<Value>,
    patch: Option<Value>,
    event: Option<EventSpec>,
    #[serde(default)]
    finalizers: FinalizersSpec,
    #[serde(default)]
    delete: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventSpec {
    #[serde(rename = "type")]
    event_type: EventType,
    reason: String,
    message: String,
}

#[derive(Deserialize, PartialEq, Eq)]
enum EventType {
    Normal,
    Warning,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FinalizersSpec {
    #[serde(default)]
    add: Vec<String>,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    empty: bool,
}

/// The version of the format.
pub(crate) const API_VERSION: &str = "nodes.setpoint.dev/v1alpha1";

impl Stages {
    /// The default stages: nodes become ready; pods start, run, end and are removed.
    pub fn standard() -> Self {
        // The file is part of the program; a test parses it.
        Self::parse(include_str!("stages.yaml")).unwrap_or_else(|_| Self(Vec::new()))
    }

    /// Reads stages from YAML documents.
    ///
    /// # Errors
    ///
    /// The text is too large, is not YAML, or a stage is invalid.
    pub fn parse(text: &str) -> Result<Self, StageError> {
        if text.len() > STAGES_BYTES_MAX {
            return Err(StageError::TooMany);
        }
        let documents: Vec<Document> = serde_saphyr::from_multiple(text)
            .map_err(|error| StageError::Syntax(error.without_snippet().to_string()))?;
        if documents.len() > STAGES_MAX {
            return Err(StageError::TooMany);
        }
        let read = |document: Document| {
            let stage = document.metadata.name.clone();
            document.read().map_err(|why| StageError::Invalid { stage, why })
        };
        documents.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Adds stages; those with the name of an earlier one replace it.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for stage in others.0 {
            match self.0.iter_mut().find(|earlier| earlier.name == stage.name) {
                Some(earlier) => *earlier = stage,
                None => self.0.push(stage),
            }
        }
        self
    }
}

impl Document {
    fn read(self) -> Result<Stage, String> {
        if (&*self.api_version, &*self.kind) != (API_VERSION, "Stage") {
            let (version, kind) = (self.api_version, self.kind);
            return Err(format!("{version} {kind} is not {API_VERSION} Stage"));
        }
        let Spec { resource_ref, selector, weight, delay, next } = self.spec;
        if resource_ref.api_version.matches('/').count() > 1 || resource_ref.kind.is_empty() {
            return Err("resourceRef names no kind".to_owned());
        }
        if next.action.is_some()
            && (&*resource_ref.api_version, &*resource_ref.kind) != ("v1", "Pod")
        {
            return Err("actions are for pods".to_owned());
        }
        let expressions = selector.match_expressions.into_iter().map(|expression| {
            let ExpressionSpec { key, operator, values } = expression;
            let has_values = matches!(operator, Operator::In | Operator::NotIn);
            if has_values == values.is_empty() {
                return Err(format!(
                    "{key}: In and NotIn have values, Exists and DoesNotExist none"
                ));
            }
            Ok((Path::parse(&key)?, operator, values))
        });
        let millis = |millis| Duration::from_millis(millis).min(DELAY_MAX);
        let event = next.event.map(|event| {
            Ok::<_, String>(EventTemplate {
                is_warning: event.event_type == EventType::Warning,
                reason: event.reason,
                message: Template::read(Value::String(event.message))?,
            })
        });
        Ok(Stage {
            name: self.metadata.name,
            resource: resource_ref,
            selector: Selector {
                labels: selector.match_labels,
                annotations: selector.match_annotations,
                expressions: expressions.collect::<Result<_, _>>()?,
            },
            weight,
            delay: Delay {
                fixed: millis(delay.duration_milliseconds),
                from: delay
                    .duration_from
                    .map(|from| Path::parse(&from.expression_from))
                    .transpose()?,
                jitter: delay.jitter_duration_milliseconds.map(millis),
            },
            next: Next {
                action: next.action,
                status: next.status.map(Template::read).transpose()?,
                patch: next.patch.map(Template::read).transpose()?,
                event: event.transpose()?,
                add_finalizers: next.finalizers.add,
                remove_finalizers: next.finalizers.remove,
                empties_finalizers: next.finalizers.empty,
                deletes: next.delete,
            },
        })
    }
}

impl Stage {
    /// Whether an object is at this stage.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let has = |member: &str, wanted: &BTreeMap<String, String>| {
            let found = &object["metadata"][member];
            wanted.iter().all(|(key, value)| found[key] == **value)
        };
        has("labels", &self.selector.labels)
            && has("annotations", &self.selector.annotations)
            && self.selector.expressions.iter().all(|(path, operator, values)| {
                let found = path.find(object);
                let is_among = || found.iter().any(|value| values.contains(value));
                match operator {
                    Operator::In => is_among(),
                    Operator::NotIn => !is_among(),
                    // An empty list or text counts as none.
                    Operator::Exists => found.iter().any(|value| !is_empty(value)),
                    Operator::DoesNotExist => found.iter().all(|value| is_empty(value)),
                }
            })
    }

    /// How long an object that matches now has to wait.
    pub(crate) fn delay(&self, object: &Value, now: Timestamp, rng: &mut impl Rng) -> Duration {
        let found = self.delay.from.as_ref().and_then(|path| path.find(object).first().copied());
        let fixed = match found {
            Some(Value::String(time)) => {
                Timestamp::parse(time).map_or(self.delay.fixed, |time| time.since(now))
            }
            Some(Value::Number(seconds)) => seconds
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(self.delay.fixed),
            _ => self.delay.fixed,
        };
        let fixed = fixed.min(DELAY_MAX);
        match self.delay.jitter.filter(|jitter| *jitter > fixed) {
            Some(jitter) => rng.random_range(fixed..jitter),
            None => fixed,
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The stage of an object, by its position. Of several, those with a weight take part, in
/// proportion to it; if none has one, all take part alike.
pub(crate) fn choose(stages: &[Stage], object: &Value, rng: &mut impl Rng) -> Option<usize> {
    let matching: Vec<usize> =
        (0..stages.len()).filter(|idx| stages[*idx].matches(object)).collect();
    let total: u64 = matching.iter().map(|idx| u64::from(stages[*idx].weight)).sum();
    if matching.len() < 2 {
        return matching.first().copied();
    }
    if total == 0 {
        return Some(matching[rng.random_range(0..matching.len())]);
    }
    let mut at = rng.random_range(0..total);
    matching.into_iter().find(|idx| {
        let weight = u64::from(stages[*idx].weight);
        let is_it = at < weight;
        at = at.saturating_sub(weight);
        is_it
    })
}

impl Next {
    /// The finalizers that remain; `None` if they stay as they are.
    pub(crate) fn finalizers(&self, object: &Value) -> Option<Vec<String>> {
        let before = object.finalizers();
        let stays = |name: &&&str| {
            !self.empties_finalizers && !self.remove_finalizers.iter().any(|gone| gone == **name)
        };
        let mut after: Vec<String> =
            before.iter().filter(stays).map(|name| (*name).to_owned()).collect();
        for name in &self.add_finalizers {
            if !after.contains(name) {
                after.push(name.clone());
            }
        }
        (after != before).then_some(after)
    }
}

#[cfg(test)]
mod tests;
