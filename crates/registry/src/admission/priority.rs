//! Priority: sets a pod's priority from its class, and ensures a single default class.
use super::{Admission, Operation, Review};
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
                review.is("", "pods") || review.is("scheduling.k8s.io", "priorityclasses")
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
        if !review.is("", "pods") {
            return futures::future::ready(Ok(())).boxed();
        }
        settle_pod(review, object).boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        match object {
            Some(class) if !review.is("", "pods") && class["globalDefault"] == true => {
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
    let name = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let class = if name.is_empty() {
        let default = global_default(review).await?;
        if let Some(class) = &default {
            spec.insert("priorityClassName".into(), class.name().into());
        }
        default
    } else {
        let Some(found) = review.objects().tree(&classes(), "", &name).await? else {
            return Err(review.forbidden(&format!("no PriorityClass with name {name} was found")));
        };
        Some(found)
    };
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
