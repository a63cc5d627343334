//! RuntimeClass: overhead, node selector and tolerations of a pod's runtime class.
use super::tolerations::merged;
use super::{Admission, Operation, Review};
use crate::kind::list;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::field::quote;
use setpoint_object::quantity::Quantity;
use setpoint_object::{ApiError, GroupVersionResource};
use std::sync::Arc;

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

#[derive(Debug)]
pub(super) struct RuntimeClass;

impl Admission for RuntimeClass {
    fn name(&self) -> &str {
        "RuntimeClass"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("", "pods")
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(class) = class_of(review, pod).await? else { return Ok(()) };
            let spec = &mut pod["spec"];
            let overhead = &class["overhead"]["podFixed"];
            if class["overhead"].is_object() {
                if spec["overhead"].is_object() && !is_same(&spec["overhead"], overhead) {
                    return Err(review.forbidden(OTHER_OVERHEAD));
                }
                if overhead.is_object() {
                    spec["overhead"] = overhead.clone();
                }
            }
            schedule(&class["scheduling"], spec).map_err(|why| review.forbidden(&why))
        }
        .boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(pod) = pod else { return Ok(()) };
            let class = class_of(review, pod).await?;
            let defined = class.as_ref().map(|class| &class["overhead"]).filter(|o| o.is_object());
            match (defined, &pod["spec"]["overhead"]) {
                (Some(defined), given) if !is_same(&defined["podFixed"], given) => {
                    Err(review.forbidden(OTHER_OVERHEAD))
                }
                (None, Value::Object(given)) if !given.is_empty() => Err(review.forbidden(
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
                )),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

async fn class_of(review: &Review<'_>, pod: &Value) -> Result<Option<Arc<Value>>, ApiError> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    let classes = GroupVersionResource::new("node.k8s.io", "v1", "runtimeclasses");
    match review.objects().tree(&classes, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => {
            let name = quote(name);
            Err(review.forbidden(&format!("pod rejected: RuntimeClass {name} not found")))
        }
    }
}

/// Whether two maps have the same quantities.
fn is_same(a: &Value, b: &Value) -> bool {
    let (a, b) = (a.as_object(), b.as_object());
    let n = |map: Option<&serde_json::Map<String, Value>>| map.map_or(0, serde_json::Map::len);
    let parse = |amount: &Value| Quantity::parse(amount.as_str()?).ok();
    n(a) == n(b)
        && a.into_iter().flatten().all(|(name, amount)| {
            let other = b.and_then(|b| parse(b.get(name)?));
            parse(amount).zip(other).is_some_and(|(a, b)| a.compare(&b).is_eq())
        })
}

/// Adds the node selector and the tolerations of a class.
fn schedule(scheduling: &Value, spec: &mut Value) -> Result<(), String> {
    if let Some(selector) = scheduling["nodeSelector"].as_object().filter(|s| !s.is_empty()) {
        if !spec["nodeSelector"].is_object() {
            spec["nodeSelector"] = json!({});
        }
        for (key, value) in selector {
            let own = &mut spec["nodeSelector"][key.as_str()];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if !own.is_null() && own != value {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(value),
                    text(own)
                ));
            }
            *own = value.clone();
        }
    }
    let added = list(scheduling, "tolerations");
    if !added.is_empty() {
        spec["tolerations"] = merged(list(spec, "tolerations"), added).into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_is_merged() {
        let class = json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]});
        let mut spec = json!({"nodeSelector": {"x": "y"}});
        assert_eq!(schedule(&class, &mut spec), Ok(()));
        assert_eq!(
            spec,
            json!({"nodeSelector": {"a": "b", "x": "y"}, "tolerations": [{"key": "k", "operator": "Exists"}]})
        );
        let error = schedule(&class, &mut json!({"nodeSelector": {"a": "c"}})).unwrap_err();
        assert_eq!(
            error,
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"
        );
    }

    #[test]
    fn overheads_are_compared_by_value() {
        assert!(is_same(&json!({"cpu": "1"}), &json!({"cpu": "1000m"})));
        assert!(is_same(&Value::Null, &json!({})));
        assert!(!is_same(&json!({"cpu": "1"}), &json!({"cpu": "1", "memory": "1"})));
        assert!(!is_same(&json!({"cpu": "1"}), &json!({"memory": "1"})));
    }
}
