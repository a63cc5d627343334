//! The policies of a Job: what a failed pod means, and when enough indexes have succeeded.

use super::indexes::Indexes;
use k8s_openapi::api::batch::v1::SuccessPolicy;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde::Deserialize;

/// `spec.podFailurePolicy` of a Job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodFailurePolicy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    action: String,
    on_exit_codes: Option<ExitCodes>,
    on_pod_conditions: Vec<Pattern>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExitCodes {
    container_name: Option<String>,
    /// `In` or `NotIn`.
    operator: String,
    values: Vec<i32>,
}

#[derive(Debug, Clone, Deserialize)]
struct Pattern {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default = "yes")]
    status: String,
}

/// The status of a pattern that has none.
fn yes() -> String {
    "True".to_owned()
}

/// What a failed pod means to its Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts towards the limits.
    Counts,
    /// It does not count.
    Ignored,
    /// Its index has failed.
    FailsIndex,
    /// The Job has failed; the message of its condition.
    FailsJob(String),
}

impl Failure {
    /// The first rule that matches a failed pod decides. Without one, the pod counts.
    pub(super) fn of(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Self {
        let (Some(policy), Some(status)) = (policy, &pod.status) else { return Self::Counts };
        let cause = policy.rules.iter().enumerate().find_map(|(n, rule)| {
            let cause = match &rule.on_exit_codes {
                Some(codes) => exit(status, codes)?,
                None => {
                    let mut conditions = status.conditions.iter().flatten();
                    let condition = conditions.find(|condition| {
                        let is_meant = |pattern: &Pattern| {
                            pattern.kind == condition.type_ && pattern.status == condition.status
                        };
                        rule.on_pod_conditions.iter().any(is_meant)
                    })?;
                    Cause::Condition(condition.type_.clone())
                }
            };
            Some((n, rule.action.as_str(), cause))
        });
        let Some((n, action, cause)) = cause else { return Self::Counts };
        match action {
            "Ignore" => Self::Ignored,
            "FailIndex" => Self::FailsIndex,
            "FailJob" => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let rule = format!("matching {action} rule at index {n}");
                Self::FailsJob(match cause {
                    Cause::Exit(container, code) => format!(
                        "Container {container} for pod {namespace}/{name} failed with exit code {code} {rule}"
                    ),
                    Cause::Condition(condition) => {
                        format!("Pod {namespace}/{name} has condition {condition} {rule}")
                    }
                })
            }
            _ => Self::Counts,
        }
    }
}

/// What a rule matched.
enum Cause {
    /// A container and its exit code.
    Exit(String, i32),
    /// The type of a condition.
    Condition(String),
}

/// The first container that ended with a matching exit code; init containers come last.
fn exit(status: &PodStatus, codes: &ExitCodes) -> Option<Cause> {
    let all = status.container_statuses.iter().flatten();
    let mut all = all.chain(status.init_container_statuses.iter().flatten());
    all.find_map(|container: &ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        let is_meant = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
        let is_match = match codes.operator.as_str() {
            "In" => codes.values.contains(&code),
            "NotIn" => !codes.values.contains(&code),
            _ => false,
        };
        (is_meant && code != 0 && is_match).then(|| Cause::Exit(container.name.clone(), code))
    })
}

/// The message of the condition, if the succeeded indexes fulfil a rule of the success policy.
pub(super) fn success(
    policy: Option<&SuccessPolicy>,
    succeeded: &Indexes,
    completions: i32,
) -> Option<String> {
    let rules = &policy?.rules;
    if succeeded.is_empty() {
        return None;
    }
    let at =
        rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
            (Some(required), count) => {
                let required = Indexes::parse(required, completions);
                let n = required.n_common(succeeded);
                !required.is_empty()
                    && (n == required.len() || count.is_some_and(|count| n >= count))
            }
            (None, Some(count)) => succeeded.len() >= count,
            (None, None) => false,
        })?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn failure(rules: &Value, status: &Value) -> Failure {
        let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "status": status});
        Failure::of(Some(&policy), &serde_json::from_value(pod).unwrap())
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({
            "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}},
        })
    }

    #[test]
    fn first_matching_rule_decides() {
        let codes =
            |operator: &str, values: &[i32]| json!({"operator": operator, "values": values});
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Count", "onExitCodes": codes("In", &[3])},
            {"action": "FailIndex", "onExitCodes": codes("In", &[4])},
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
            {"action": "FailJob", "onPodConditions": [{"type": "Broken", "status": "True"}]},
        ]);
        for (status, expected) in [
            (json!({}), Failure::Counts),
            (json!({"containerStatuses": [ended("c", 3)]}), Failure::Counts),
            (json!({"containerStatuses": [ended("c", 4)]}), Failure::FailsIndex),
            (json!({"containerStatuses": [ended("other", 42)]}), Failure::Counts),
            (
                json!({"containerStatuses": [ended("other", 1), ended("c", 42)]}),
                Failure::FailsJob(
                    "Container c for pod ns/p failed with exit code 42 matching FailJob rule at index 3"
                        .to_owned(),
                ),
            ),
            (
                json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}],
                       "containerStatuses": [ended("c", 42)]}),
                Failure::Ignored,
            ),
            (
                json!({"conditions": [{"type": "DisruptionTarget", "status": "False"},
                                      {"type": "Broken", "status": "True"}]}),
                Failure::FailsJob("Pod ns/p has condition Broken matching FailJob rule at index 4".to_owned()),
            ),
        ] {
            assert_eq!(failure(&rules, &status), expected, "{status}");
        }
    }

    #[test]
    fn exit_code_zero_is_no_failure() {
        let rules =
            json!([{"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [5]}}]);
        let status = json!({"containerStatuses": [ended("sidecar", 0)]});
        assert_eq!(failure(&rules, &status), Failure::Counts);
        let status = json!({"initContainerStatuses": [ended("init", 1)]});
        assert_eq!(failure(&rules, &status), Failure::Ignored);
    }

    #[test]
    fn enough_indexes_fulfil_a_success_policy() {
        let check = |rule: Value, succeeded: &str| {
            let policy = serde_json::from_value(json!({"rules": [rule]})).unwrap();
            success(Some(&policy), &Indexes::parse(succeeded, 10), 10).is_some()
        };
        assert!(check(json!({"succeededIndexes": "0,2-3"}), "0-3"));
        assert!(!check(json!({"succeededIndexes": "0,2-3"}), "0-2"));
        assert!(check(json!({"succeededIndexes": "0,2-3", "succeededCount": 2}), "0-2"));
        assert!(!check(json!({"succeededIndexes": "0,2-3", "succeededCount": 2}), "1,2"));
        assert!(check(json!({"succeededCount": 2}), "5,9"));
        assert!(!check(json!({"succeededCount": 2}), "5"));
        assert_eq!(success(None, &Indexes::parse("0-9", 10), 10), None);
    }
}
