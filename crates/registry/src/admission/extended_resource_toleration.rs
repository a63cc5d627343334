//! ExtendedResourceToleration: tolerations for nodes that are reserved for an extended resource.
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct ExtendedResourceToleration;

impl Admission for ExtendedResourceToleration {
    fn name(&self) -> &str {
        "ExtendedResourceToleration"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update) && review.is("", "pods")
    }
    fn mutate<'a>(
        &'a self,
        _: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let containers = ["containers", "initContainers"].into_iter();
        let requested: BTreeSet<String> = containers
            .flat_map(|member| list(&pod["spec"], member))
            .filter_map(|container| container["resources"]["requests"].as_object())
            .flat_map(|requests| requests.keys().cloned())
            .filter(|name| setpoint_quota::is_extended(name))
            .collect();
        if requested.is_empty() {
            return futures::future::ready(Ok(())).boxed();
        }
        let mut tolerations = list(&pod["spec"], "tolerations").to_vec();
        let mut missing = requested.clone();
        for toleration in &mut tolerations {
            let name = text(toleration, "key").to_owned();
            if requested.contains(&name) && is_for_all_values(toleration) {
                missing.remove(&name);
                *toleration = of(&name);
            }
        }
        tolerations.extend(missing.iter().map(|name| of(name)));
        pod["spec"]["tolerations"] = tolerations.into();
        futures::future::ready(Ok(())).boxed()
    }
}

/// The toleration of a resource.
fn of(name: &str) -> Value {
    json!({"key": name, "operator": "Exists", "effect": "NoSchedule"})
}
/// Whether a toleration is that of a resource, but for how long it holds.
fn is_for_all_values(toleration: &Value) -> bool {
    text(toleration, "operator") == "Exists"
        && text(toleration, "effect") == "NoSchedule"
        && text(toleration, "value").is_empty()
}
