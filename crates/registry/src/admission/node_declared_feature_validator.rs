//! NodeDeclaredFeatureValidator: an update of a pod needs only what its node can do.
use super::pod_resize_validator::node_of;
use super::{Admission, Operation, Review};
use crate::features::Feature;
use crate::kind::list;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::quote;
use setpoint_object::quantity::Quantity;

/// The features that an update may need, with the test whether it does.
const FEATURES: [(&str, Needs); 2] = [
    ("InPlacePodLevelResourcesVerticalScaling", resizes_pod),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_container),
];

/// Whether the update from one spec to another needs a feature.
type Needs = fn(&Value, &Value) -> bool;

#[derive(Debug)]
pub(super) struct NodeDeclaredFeatureValidator;

impl Admission for NodeDeclaredFeatureValidator {
    fn name(&self) -> &str {
        "NodeDeclaredFeatureValidator"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update
            && (review.is("", "pods") || review.is_part("", "pods", "resize"))
            && review.inner.features.is_on(Feature::NodeDeclaredFeatures)
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some((old, pod)) = review.old.zip(pod) else { return Ok(()) };
            let needed = needed(&old["spec"], &pod["spec"]);
            if needed.is_empty() {
                return Ok(());
            }
            let Some(node) = node_of(review, pod).await? else { return Ok(()) };
            let declared = list(&node["status"], "declaredFeatures");
            let missing: Vec<&str> =
                needed.into_iter().filter(|name| !declared.iter().any(|d| d == name)).collect();
            match missing.is_empty() {
                true => Ok(()),
                false => Err(review.forbidden(&format!(
                    "pod update requires features {} which are not available on node {}",
                    missing.join(", "),
                    quote(node["metadata"]["name"].as_str().unwrap_or_default())
                ))),
            }
        }
        .boxed()
    }
}

fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, needs)| needs(old, new)).map(|(name, _)| *name).collect()
}

fn resizes_pod(old: &Value, new: &Value) -> bool {
    !is_same(&old["resources"], &new["resources"])
}

/// Sidecars need no feature.
fn resizes_init_container(old: &Value, new: &Value) -> bool {
    let containers = list(old, "initContainers").iter().zip(list(new, "initContainers"));
    containers
        .filter(|(old, _)| old["restartPolicy"] != "Always")
        .any(|(old, new)| !is_same(&old["resources"], &new["resources"]))
}

/// Whether two `resources` are the same, however their amounts are written.
fn is_same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().all(|(key, old)| new.get(key).is_some_and(|new| is_same(old, new)))
        }
        (Value::String(old), Value::String(new)) => {
            old == new
                || Quantity::parse(old)
                    .ok()
                    .zip(Quantity::parse(new).ok())
                    .is_some_and(|(old, new)| old.compare(&new).is_eq())
        }
        (old, new) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resizes_of_pods_and_init_containers_need_features() {
        let spec = |pod: &str, init: &str, sidecar: &str| {
            let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
            json!({
                "resources": of(pod),
                "initContainers": [
                    {"name": "a", "resources": of(init)},
                    {"name": "b", "restartPolicy": "Always", "resources": of(sidecar)},
                ],
            })
        };
        let old = spec("1", "1", "1");
        assert!(needed(&old, &spec("1000m", "1", "2")).is_empty());
        assert_eq!(needed(&old, &spec("2", "1", "1")), [FEATURES[0].0]);
        assert_eq!(needed(&old, &spec("1", "2", "1")), [FEATURES[1].0]);
        assert!(needed(&json!({}), &json!({})).is_empty());
        assert_eq!(needed(&json!({}), &old), [FEATURES[0].0]);
    }
}
