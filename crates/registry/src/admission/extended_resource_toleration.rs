//! ExtendedResourceToleration: tolerations for nodes that are reserved for an extended resource.
use super::tolerations::merged;
use super::{Admission, Operation, Review};
use crate::kind::list;
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
        if !requested.is_empty() {
            let tolerate =
                |name: String| json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            let added: Vec<Value> = requested.into_iter().map(tolerate).collect();
            pod["spec"]["tolerations"] = merged(list(&pod["spec"], "tolerations"), &added).into();
        }
        futures::future::ready(Ok(())).boxed()
    }
}
