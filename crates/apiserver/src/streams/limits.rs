//! How many streams of pods are open at the same time.

use crate::node_agent::{PodRef, StreamLimits};
use parking_lot::Mutex;
use setpoint_object::ApiError;
use std::collections::HashMap;
use std::sync::Arc;

/// When a refused client may retry.
const RETRY_SECONDS: u32 = 1;

/// The open streams of a server.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    limits: StreamLimits,
    open: Mutex<Open>,
}

/// Numbers of streams, without zeros.
#[derive(Debug, Default)]
struct Open {
    /// By the pod's uid.
    pods: HashMap<String, usize>,
    nodes: HashMap<String, usize>,
}

/// An open stream. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    of: Arc<Slots>,
    pod: String,
    node: String,
}

impl Slots {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// Counts a stream of a pod.
    ///
    /// # Errors
    ///
    /// 429 if the pod or its node has as many as it may have.
    pub(super) fn take(self: &Arc<Self>, pod: &PodRef) -> Result<Slot, ApiError> {
        let StreamLimits { per_pod, per_node } = self.limits;
        let mut open = self.open.lock();
        let of = |counts: &HashMap<String, usize>, name: &str| {
            counts.get(name).copied().unwrap_or_default()
        };
        if of(&open.pods, &pod.uid) >= per_pod {
            return Err(too_many(&format!("pod \"{}\" has", pod.name), per_pod));
        }
        if of(&open.nodes, &pod.node) >= per_node {
            return Err(too_many(&format!("the pods of node \"{}\" have", pod.node), per_node));
        }
        *open.pods.entry(pod.uid.clone()).or_default() += 1;
        *open.nodes.entry(pod.node.clone()).or_default() += 1;
        Ok(Slot { of: self.clone(), pod: pod.uid.clone(), node: pod.node.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        release(&mut open.pods, &self.pod);
        release(&mut open.nodes, &self.node);
    }
}

fn release(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(n) = counts.get_mut(name) {
        *n -= 1;
        if *n == 0 {
            counts.remove(name);
        }
    }
}

fn too_many(of: &str, limit: usize) -> ApiError {
    let message = format!(
        "{of} {limit} open streams (logs, commands and forwarded connections), which is the limit"
    );
    ApiError::too_many_requests(message, RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str) -> PodRef {
        let [name, node] = [name, node].map(str::to_owned);
        PodRef { namespace: "default".to_owned(), uid: format!("{name}-uid"), name, node }
    }

    #[test]
    fn streams_are_counted_by_pod_and_by_node() {
        let slots = Arc::new(Slots::new(StreamLimits::default().per_pod(2).per_node(3)));
        let first = slots.take(&pod("a", "n")).unwrap();
        let second = slots.take(&pod("a", "n")).unwrap();
        let refused = slots.take(&pod("a", "n")).unwrap_err();
        assert_eq!((refused.code(), refused.0.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(
            refused.0.message,
            "pod \"a\" has 2 open streams (logs, commands and forwarded connections), which is the limit"
        );
        let third = slots.take(&pod("b", "n")).unwrap();
        let refused = slots.take(&pod("c", "n")).unwrap_err();
        assert!(refused.0.message.starts_with("the pods of node \"n\" have 3 open streams"));
        let elsewhere = slots.take(&pod("c", "m")).unwrap();
        drop(first);
        slots.take(&pod("a", "n")).unwrap();
        drop((second, third, elsewhere));
        let open = slots.open.lock();
        assert!(open.pods.is_empty() && open.nodes.is_empty(), "{open:?}");
    }
}
