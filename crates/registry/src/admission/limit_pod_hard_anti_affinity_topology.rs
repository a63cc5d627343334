//! LimitPodHardAntiAffinityTopology: pods may keep others away from their node, not from their
//! zone.
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

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
        let Some(pod) = pod else { return futures::future::ready(Ok(())).boxed() };
        let affinity = &pod["spec"]["affinity"]["podAntiAffinity"];
        let terms = list(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
        let mut keys = terms.iter().map(|term| text(term, "topologyKey"));
        let result = match keys.find(|key| *key != HOSTNAME) {
            Some(key) => {
                let text = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                );
                // By the name in the pod, which a hook may have changed.
                Err(ApiError::forbidden(&review.group_resource(), pod.name(), &text))
            }
            None => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}
