//! Conditions on objects that a test waits for.

use kube_client::ResourceExt as _;
use kube_core::DynamicObject;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A condition on an object or its absence, with a description.
#[derive(Clone)]
pub struct Matcher {
    what: String,
    is_met: Arc<IsMet>,
}

type IsMet = dyn Fn(Option<&Value>) -> bool + Send + Sync;

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Matcher").field(&self.what).finish()
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Matcher {
    fn new(
        what: impl Into<String>,
        is_met: impl Fn(Option<&Value>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { what: what.into(), is_met: Arc::new(is_met) }
    }

    pub(crate) fn is_met(&self, object: Option<&DynamicObject>) -> bool {
        let tree = object.map(|object| {
            let mut tree = object.data.clone();
            tree["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
            tree
        });
        (self.is_met)(tree.as_ref())
    }
}

/// The object exists.
pub fn exists() -> Matcher {
    Matcher::new("exists", |object| object.is_some())
}

/// The object does not exist.
pub fn gone() -> Matcher {
    Matcher::new("is gone", |object| object.is_none())
}

/// A condition in the object's `status.conditions` has this status: `True`, `False`, `Unknown`.
///
/// A condition with an `observedGeneration` counts only if that is the object's generation. An
/// older condition does not describe the current spec.
pub fn has_condition(kind: &str, status: &str) -> Matcher {
    let (kind, status) = (kind.to_owned(), status.to_owned());
    Matcher::new(format!("has the condition {kind}={status}"), move |object| {
        let Some(object) = object else { return false };
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            let observed = &condition["observedGeneration"];
            condition["type"] == *kind
                && condition["status"] == *status
                && (observed.is_null() || *observed == object["metadata"]["generation"])
        })
    })
}

/// A custom condition on an existing object. `what` completes the sentence "waited until the object
/// …": `"has two replicas"`.
pub fn matches(what: &str, is_met: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Matcher {
    Matcher::new(what, move |object| object.is_some_and(&is_met))
}

/// All matchers hold at the same time.
pub fn all_of(matchers: impl IntoIterator<Item = Matcher>) -> Matcher {
    let matchers: Vec<Matcher> = matchers.into_iter().collect();
    let what: Vec<&str> = matchers.iter().map(|matcher| matcher.what.as_str()).collect();
    let what = what.join(" and ");
    Matcher::new(what, move |object| matchers.iter().all(|matcher| (matcher.is_met)(object)))
}

/// Formats an object for the error of a failed wait: YAML without machine-only fields.
pub(crate) fn shown(object: Option<&DynamicObject>) -> String {
    let Some(object) = object else { return "there is no such object".to_owned() };
    let mut object = object.clone();
    object.managed_fields_mut().clear();
    serde_json::to_string_pretty(&object).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(tree: Value) -> DynamicObject {
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn condition_of_an_older_generation_does_not_count() {
        let at = |observed: u64| {
            object(json!({
                "apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "generation": 2},
                "status": {"conditions": [
                    {"type": "Ready", "status": "True", "observedGeneration": observed},
                ]},
            }))
        };
        let ready = has_condition("Ready", "True");
        assert!(ready.is_met(Some(&at(2))));
        assert!(!ready.is_met(Some(&at(1))));
        assert!(!ready.is_met(None));
        assert!(!has_condition("Ready", "False").is_met(Some(&at(2))));
    }

    #[test]
    fn several_hold_together_and_say_so() {
        let both = all_of([exists(), matches("is blue", |tree| tree["color"] == "blue")]);
        assert_eq!(both.to_string(), "exists and is blue");
        let blue = object(json!({"metadata": {"name": "a"}, "color": "blue"}));
        assert!(both.is_met(Some(&blue)));
        assert!(!both.is_met(None));
        assert!(gone().is_met(None));
    }
}
