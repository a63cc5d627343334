//! Priority: sets the priority of a pod, or of a group of pods, from its class, and ensures a
//! single default class.
use super::{Admission, Operation, Review};
use crate::features::Feature;
use crate::kind::Members;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource};
use std::sync::Arc;

/// The resource of priority classes.
fn classes() -> GroupVersionResource {
    GroupVersionResource::new("scheduling.k8s.io", "v1", "priorityclasses")
}

#[derive(Debug)]
pub(super) struct Priority;

impl Admission for Priority {
    fn name(&self) -> &str {
        "Priority"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Create => {
                review.is("", "pods")
                    || review.is("scheduling.k8s.io", "priorityclasses")
                    || review.is("scheduling.k8s.io", "podgroups")
                        && review.inner.features.is_on(Feature::WorkloadAwarePreemption)
            }
            Operation::Update => {
                review.is("", "pods") || review.is("scheduling.k8s.io", "priorityclasses")
            }
            Operation::Delete | Operation::Connect => false,
        }
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if review.is("", "pods") {
            settle_pod(review, object).boxed()
        } else if review.is("scheduling.k8s.io", "podgroups") {
            settle_group(review, object).boxed()
        } else {
            futures::future::ready(Ok(())).boxed()
        }
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        match object {
            Some(class)
                if review.is("scheduling.k8s.io", "priorityclasses")
                    && class["globalDefault"] == true =>
            {
                only_default(review, class).boxed()
            }
            _ => futures::future::ready(Ok(())).boxed(),
        }
    }
}
async fn settle_pod(review: &Review<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if let Some(old) = review.old {
        // The values that were set on create cannot change.
        for member in ["priority", "preemptionPolicy"] {
            if let (None | Some(Value::Null), Some(value)) =
                (spec.get(member), old["spec"].get(member))
            {
                spec.insert(member.to_owned(), value.clone());
            }
        }
        return Ok(());
    }
    let class = class_of(review, spec).await?;
    let (value, policy) = match &class {
        Some(class) => (
            class["value"].as_i64().unwrap_or(0),
            class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"),
        ),
        None => (0, "PreemptLowerPriority"),
    };
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(review.forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        )));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != policy
    {
        return Err(review.forbidden(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    spec.insert("priority".into(), value.into());
    spec.insert("preemptionPolicy".into(), json!(policy));
    Ok(())
}
/// The priority of a group of pods is that of its class.
async fn settle_group(review: &Review<'_>, group: &mut Value) -> Result<(), ApiError> {
    let Some(spec) = group.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let class = class_of(review, spec).await?;
    let value = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(review.forbidden(&format!(
            "priority set in the pod group ({given}) must match the priority computed ({value}) based on the priority class set in the spec"
        )));
    }
    spec.insert("priority".into(), value.into());
    Ok(())
}
/// The class that a spec names. One that names none gets the default's name, if there is one.
async fn class_of(review: &Review<'_>, spec: &mut Members) -> Result<Option<Arc<Value>>, ApiError> {
    let name = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        let default = global_default(review).await?;
        if let Some(class) = &default {
            spec.insert("priorityClassName".into(), class.name().into());
        }
        return Ok(default);
    }
    let found = review.objects().tree(&classes(), "", &name).await?;
    let missing = || review.forbidden(&format!("no PriorityClass with name {name} was found"));
    found.ok_or_else(missing).map(Some)
}
/// The class for pods without one. Two requests at once may have made two: the lower one counts.
async fn global_default(review: &Review<'_>) -> Result<Option<Arc<Value>>, ApiError> {
    let defaults = defaults(review).await?.into_iter();
    Ok(defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0)))
}
async fn only_default(review: &Review<'_>, class: &Value) -> Result<(), ApiError> {
    let other = defaults(review).await?.into_iter().find(|other| other.name() != class.name());
    match other {
        None => Ok(()),
        Some(other) => Err(review.forbidden(&format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            other.name()
        ))),
    }
}
/// The classes marked as default.
async fn defaults(review: &Review<'_>) -> Result<Vec<Arc<Value>>, ApiError> {
    let mut classes = review.objects().trees(&classes(), "").await?;
    classes.retain(|class| class["globalDefault"] == true);
    Ok(classes)
}
