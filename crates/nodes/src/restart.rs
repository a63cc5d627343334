//! When a container that has ended starts again, as kubelets decide it.

use serde_json::Value;
use std::time::Duration;

/// The first and the longest back-off of a container that ends again and again: 10 s and 5 min, as
/// a kubelet's.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A container that has run for longer starts over without a back-off: 10 min, as a kubelet's.
const RUN_LONG: Duration = Duration::from_secs(600);

/// A restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// After every end.
    Always,
    /// After an end with another code than zero.
    OnFailure,
    /// Never.
    Never,
}

impl Policy {
    /// A pod's `restartPolicy`. Default: always.
    pub fn of_pod(policy: &str) -> Self {
        match policy {
            "OnFailure" => Self::OnFailure,
            "Never" => Self::Never,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with this code starts again.
    pub fn restarts(self, code: i64) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The policy of one container: its `restartPolicyRules`, its own `restartPolicy`, or its pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPolicy {
    policy: Policy,
    rules: Vec<Rule>,
    /// A success is the end: an init container that is no sidecar.
    ends_with_success: bool,
}

/// An action for some exit codes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    codes: Vec<i64>,
    /// The operator `NotIn`: the action is for all other codes.
    is_inverted: bool,
    /// The action `RestartAllContainers`; otherwise `Restart`.
    restarts_all: bool,
}

impl ContainerPolicy {
    /// The policy of a main container, in its JSON form. Its rules count only if it has a
    /// `restartPolicy`, as in a kubelet.
    pub fn of_main(container: &Value, pod: Policy) -> Self {
        let own = container["restartPolicy"].as_str();
        let rules = container["restartPolicyRules"].as_array().filter(|_| own.is_some());
        Self {
            policy: own.map_or(pod, Policy::of_pod),
            rules: rules.into_iter().flatten().filter_map(Rule::of).collect(),
            ends_with_success: false,
        }
    }

    /// The policy of an init container. One with the `restartPolicy` `Always` is a sidecar.
    pub fn of_init(container: &Value, pod: Policy) -> Self {
        let ends_with_success = container["restartPolicy"] != "Always";
        Self { ends_with_success, ..Self::of_main(container, pod) }
    }

    /// The policy of an ephemeral container, which never starts again.
    pub fn of_ephemeral() -> Self {
        Self { policy: Policy::Never, rules: Vec::new(), ends_with_success: false }
    }

    /// Whether a container that ended with this code starts again.
    pub fn restarts(&self, code: i64) -> bool {
        match self.rule(code) {
            Some(rule) if rule.restarts_all => true,
            _ if self.ends_with_success && code == 0 => false,
            Some(_) => true,
            None => self.policy.restarts(code),
        }
    }

    /// Whether all containers of the pod start again with it.
    pub fn restarts_all(&self, code: i64) -> bool {
        self.rule(code).is_some_and(|rule| rule.restarts_all)
    }

    /// The first rule that is for a code.
    fn rule(&self, code: i64) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.codes.contains(&code) != rule.is_inverted)
    }
}

impl Rule {
    /// A rule; none if it has no exit codes or an unknown action.
    fn of(rule: &Value) -> Option<Self> {
        let codes = rule["exitCodes"]["values"].as_array()?.iter().filter_map(Value::as_i64);
        let restarts_all = match rule["action"].as_str()? {
            "Restart" => false,
            "RestartAllContainers" => true,
            _ => return None,
        };
        let is_inverted = match rule["exitCodes"]["operator"].as_str()? {
            "In" => false,
            "NotIn" => true,
            _ => return None,
        };
        Some(Self { codes: codes.collect(), is_inverted, restarts_all })
    }
}

/// The delay before the restart after `n_restarts`: none at first, then 10 s, 20 s, … up to 5 min.
/// `ran`: how long the container ran.
pub fn backoff(n_restarts: i64, ran: Duration) -> Duration {
    if n_restarts == 0 || ran > RUN_LONG {
        return Duration::ZERO;
    }
    let doubled = u32::try_from(n_restarts - 1).unwrap_or_default().min(10);
    BACKOFF_MIN.saturating_mul(1 << doubled).min(BACKOFF_MAX)
}

/// `1m20s`, as kubelets write durations. Parts of a second are left out.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Which of the codes 0 to 3 restart the container.
    fn restarts(policy: &ContainerPolicy) -> Vec<i64> {
        (0..4).filter(|code| policy.restarts(*code)).collect()
    }

    #[test]
    fn rules_come_before_the_policies_of_container_and_pod() {
        let rule = |operator: &str, code: i64, action: &str| {
            let codes = json!({"operator": operator, "values": [code]});
            json!({"action": action, "exitCodes": codes})
        };
        let own = |policy: &str, rules: &[Value]| {
            let container = json!({"restartPolicy": policy, "restartPolicyRules": rules});
            ContainerPolicy::of_main(&container, Policy::Never)
        };
        assert_eq!(restarts(&ContainerPolicy::of_main(&json!({}), Policy::OnFailure)), [1, 2, 3]);
        assert_eq!(restarts(&own("Always", &[])), [0, 1, 2, 3]);
        assert_eq!(restarts(&own("Never", &[rule("In", 3, "Restart")])), [3]);
        assert_eq!(restarts(&own("OnFailure", &[rule("NotIn", 2, "Restart")])), [0, 1, 2, 3]);
        let both = own("Never", &[rule("In", 2, "RestartAllContainers"), rule("In", 3, "Restart")]);
        assert_eq!(restarts(&both), [2, 3]);
        assert!(both.restarts_all(2) && !both.restarts_all(3));
    }

    #[test]
    fn an_init_container_that_succeeds_is_done_and_a_sidecar_never() {
        let of = |container: &Value, pod| restarts(&ContainerPolicy::of_init(container, pod));
        assert_eq!(of(&json!({}), Policy::Always), [1, 2, 3]);
        assert!(of(&json!({}), Policy::Never).is_empty());
        assert_eq!(of(&json!({"restartPolicy": "Always"}), Policy::Never), [0, 1, 2, 3]);
        assert_eq!(of(&json!({"restartPolicy": "OnFailure"}), Policy::Never), [1, 2, 3]);
        let not_two = json!({"operator": "NotIn", "values": [2]});
        let rules = json!([{"action": "Restart", "exitCodes": not_two}]);
        let container = json!({"restartPolicy": "Never", "restartPolicyRules": rules});
        assert_eq!(of(&container, Policy::Never), [1, 3]);
    }

    #[test]
    fn the_back_off_doubles_and_is_forgotten_after_a_long_run() {
        let short = Duration::from_secs(1);
        let delays: Vec<u64> = (0..8).map(|n| backoff(n, short).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(5, Duration::from_secs(601)), Duration::ZERO);
        assert_eq!(show(Duration::from_secs(80)), "1m20s");
    }
}
