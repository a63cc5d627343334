//! LimitPodHardAntiAffinityTopology: pods may keep others away from their node, not from their
//! zone.
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;

const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Debug)]
pub(super) struct LimitPodHardAntiAffinityTopology;

impl Admission for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &str {
        "LimitPodHardAntiAffinityTopology"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update) && review.is("", "pods")
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let terms = pod.map(|pod| {
            let affinity = &pod["spec"]["affinity"]["podAntiAffinity"];
            list(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
        });
        let other = terms.into_iter().flatten().map(|term| text(term, "topologyKey"));
        let result = match other.into_iter().find(|key| *key != HOSTNAME) {
            Some(key) => Err(review.forbidden(&format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
            ))),
            None => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}
