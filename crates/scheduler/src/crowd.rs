//! Assigned pods that are alike, with their numbers by node and zone.
//!
//! Pods of one namespace with the same labels are a crowd. A selector is compared with each crowd
//! once, however many pods it has.

use crate::labels::Labels;
use crate::node::Node;
use crate::pod::Pod;
use imbl::OrdMap;
use std::sync::Arc;

/// The label with a node's zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// The zone of a node; `None` if it has none.
pub(crate) fn zone_of(node: &Node) -> Option<Arc<str>> {
    node.labels.get(ZONE).map(|zone| zone.as_str().into())
}

/// Numbers of pods of one crowd.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crowd {
    pub(crate) nodes: OrdMap<Arc<str>, i64>,
    pub(crate) zones: OrdMap<Arc<str>, i64>,
}

/// All crowds. Pods that are being deleted do not count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crowds(OrdMap<(Arc<str>, Arc<Labels>), Crowd>);

impl Crowds {
    /// Counts a pod on its node, or no longer if `sign` is -1.
    pub(crate) fn count(&mut self, pod: &Pod, zone: Option<Arc<str>>, sign: i64) {
        if pod.is_deleting {
            return;
        }
        let key = (pod.key.namespace.clone(), pod.labels.clone());
        let mut crowd = self.0.remove(&key).unwrap_or_default();
        add(&mut crowd.nodes, pod.node.clone(), sign);
        if let Some(zone) = zone {
            add(&mut crowd.zones, zone, sign);
        }
        if !crowd.nodes.is_empty() {
            self.0.insert(key, crowd);
        }
    }

    /// The crowds of a namespace whose labels come after others.
    pub(crate) fn after(
        &self,
        namespace: &Arc<str>,
        labels: Option<&Arc<Labels>>,
    ) -> impl Iterator<Item = (&Arc<Labels>, &Crowd)> + use<'_> {
        let from = (namespace.clone(), labels.cloned().unwrap_or_default());
        self.0
            .range(from..)
            .take_while({
                let namespace = namespace.clone();
                move |((of, _), _)| *of == namespace
            })
            .skip_while({
                let labels = labels.cloned();
                move |((_, found), _)| labels.as_ref() == Some(found)
            })
            .map(|((_, labels), crowd)| (labels, crowd))
    }
}

fn add(counts: &mut OrdMap<Arc<str>, i64>, key: Arc<str>, sign: i64) {
    let count = counts.get(&key).copied().unwrap_or_default() + sign;
    match count > 0 {
        true => _ = counts.insert(key, count),
        false => _ = counts.remove(&key),
    }
}
