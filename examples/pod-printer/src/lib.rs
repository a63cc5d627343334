//! Prints pods: the smallest controller there is.
//!
//! It is written three times, each time on a lower layer:
//!
//! | module | built on |
//! |---|---|
//! | [`controller`] | the runtime: a watch and a reconciler |
//! | [`by_hand`] | an informer whose handler adds keys to a work queue, and workers that read the cache |
//! | [`bare`] | plain HTTP, which shows what an informer does |

pub mod bare;
pub mod by_hand;
pub mod controller;

use k8s_openapi::api::core::v1::Pod;

/// One line about a pod: `default/web-1 Running on node-a`.
pub fn line(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
    let phase = if pod.metadata.deletion_timestamp.is_some() { "Terminating" } else { phase };
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(node) => format!("{namespace}/{name} {phase} on {node}"),
        None => format!("{namespace}/{name} {phase}"),
    }
}
