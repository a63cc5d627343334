//! Taints of nodes and devices, and the tolerations that pods and claims have for them.
//!
//! One rule for everyone who asks: the scheduler, DaemonSets and the evictions by taints.

use serde::{Deserialize, Serialize};

/// A taint of a node (`spec.taints`) or of a device. Members that are absent are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Its name, for example `node.kubernetes.io/not-ready`.
    pub key: String,
    /// May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; of devices also `None`.
    pub effect: String,
    /// RFC 3339: when a taint that evicts pods was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl Taint {
    /// Whether a new pod needs to tolerate it.
    pub fn forbids(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

/// A toleration of a pod (`spec.tolerations`) or of a claim. Members that are absent are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
    /// How long the taint is tolerated, in seconds; `None`: forever. Below zero is zero.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// The effect that it tolerates; empty: every one.
    pub fn effect(&self) -> &str {
        &self.effect
    }

    /// Whether it tolerates a taint (`ToleratesTaint` of `k8s.io/component-helpers`). An empty key
    /// or effect matches every one; an empty operator is `Equal`; `Gt` and `Lt` compare the
    /// taint's value with its own as decimal integers.
    ///
    /// ```
    /// use setpoint_object::taint::{Taint, Toleration};
    /// use serde_json::json;
    ///
    /// let taint: Taint = serde_json::from_value(json!({"key": "gpu", "effect": "NoSchedule"}))?;
    /// let all: Toleration = serde_json::from_value(json!({"operator": "Exists"}))?;
    /// assert!(all.tolerates(&taint));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let numbers = || Some((decimal(&taint.value)?, decimal(&self.value)?));
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                "Gt" => numbers().is_some_and(|(found, wanted)| found > wanted),
                "Lt" => numbers().is_some_and(|(found, wanted)| found < wanted),
                _ => false,
            }
    }
}

/// A decimal integer in its only form: without a plus sign and leading zeros.
fn decimal(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_key_value_and_effect() {
        let taint = Taint {
            key: "k".to_owned(),
            value: "5".to_owned(),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        for (toleration, is_match) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k", "value": "5"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "6"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "4"}), true),
            (json!({"key": "k", "operator": "Lt", "value": "4"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "four"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "04"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let read: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(read.tolerates(&taint), is_match, "{toleration}");
        }
    }
}
