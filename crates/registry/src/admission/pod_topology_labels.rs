//! PodTopologyLabels: a pod gets the zone and the region of its node as labels.
use super::{Admission, Operation, Review};
use crate::features::Feature;
use crate::kind::text;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupVersionResource};

/// The labels that are copied. They replace those that the pod has.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Labels bindings, whose labels the pod gets, and pods that are created on a node.
#[derive(Debug)]
pub(super) struct PodTopologyLabels;

impl Admission for PodTopologyLabels {
    fn name(&self) -> &str {
        "PodTopologyLabels"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create
            && (review.is("", "pods") || review.is_part("", "pods", "binding"))
            && review.inner.features.is_on(Feature::PodTopologyLabelsAdmission)
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let row = review.inner.catalog.borrow().get("", "v1", "nodes").cloned();
            let is_node = |kind: &str| row.as_ref().is_some_and(|row| *row.gvk.kind == *kind);
            let target = &object["target"];
            let node = match review.subresource {
                None => text(&object["spec"], "nodeName"),
                Some(_) if is_node(text(target, "kind")) => text(target, "name"),
                Some(_) => "",
            };
            if node.is_empty() {
                return Ok(());
            }
            let nodes = GroupVersionResource::new("", "v1", "nodes");
            // A node that does not exist yet has no labels.
            let Some(node) = review.objects().tree(&nodes, "", node).await? else { return Ok(()) };
            for label in LABELS {
                let Some(value) = node["metadata"]["labels"].get(label) else { continue };
                let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
                else {
                    return Ok(());
                };
                let labels = metadata.entry("labels").or_insert_with(|| json!({}));
                if labels.is_null() {
                    *labels = json!({});
                }
                if let Some(labels) = labels.as_object_mut() {
                    labels.insert(label.to_owned(), value.clone());
                }
            }
            Ok(())
        }
        .boxed()
    }
}
