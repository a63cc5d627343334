//! DefaultIngressClass: sets the default class of ingresses without one.
use super::default_storage_class::default_class;
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource};

/// The old annotation counts as a class.
#[derive(Debug)]
pub(super) struct DefaultIngressClass;

impl Admission for DefaultIngressClass {
    fn name(&self) -> &str {
        "DefaultIngressClass"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("networking.k8s.io", "ingresses")
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        ingress: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let is_set = ingress["spec"].get("ingressClassName").is_some()
            || ingress.meta().is_some_and(|m| {
                m.get("annotations").is_some_and(|a| a.get("kubernetes.io/ingress.class").is_some())
            });
        let found = default_class(
            review,
            GroupVersionResource::new("networking.k8s.io", "v1", "ingressclasses"),
            &["ingressclass.kubernetes.io/is-default-class"],
        );
        async move {
            if !is_set && let Some(name) = found.await? {
                ingress["spec"]["ingressClassName"] = name.into();
            }
            Ok(())
        }
        .boxed()
    }
}
