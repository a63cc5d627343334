//! How much a few bytes of an object may become: its defaults, and the errors of what it lacks.
use super::{Node, NodeId};
use serde_json::Value;

/// Growth of an object among many: `{},` with more defaults or required members takes far longer
/// than its bytes suggest.
const REPEATED_MAX: usize = 64;
/// Growth of an object that is there once.
const ONCE_MAX: usize = 4096;
/// Bytes of a text that are copied in the time of one member.
const TEXT_UNIT: usize = 64;

/// Whether objects of these nodes may grow by a lot. Nodes follow those that they have as
/// properties and items; a node before them counts as one that grows.
pub(super) fn is_large(nodes: &[Node]) -> bool {
    let mut growths: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let growth = growth_of(node, nodes, &growths);
        if growth > ONCE_MAX {
            return true;
        }
        growths.push(growth);
    }
    let mut are_repeated = vec![false; nodes.len()];
    for (at, (node, growth)) in nodes.iter().zip(&growths).enumerate().rev() {
        let is_repeated = are_repeated.get(at).copied().unwrap_or_default();
        if is_repeated && *growth > REPEATED_MAX {
            return true;
        }
        let mut mark = |id: &NodeId, is_repeated: bool| {
            if let Some(mark) = are_repeated.get_mut(id.0 as usize) {
                *mark |= is_repeated;
            }
        };
        node.properties.iter().for_each(|property| mark(&property.id, is_repeated));
        node.items.iter().chain(&node.additional).for_each(|id| mark(id, true));
    }
    false
}

/// How many members an empty object of a node gets or lacks, or an item of a list or map.
fn growth_of(node: &Node, nodes: &[Node], known: &[usize]) -> usize {
    let of_node = |id: NodeId| match nodes.get(id.0 as usize) {
        // Borrowed: the metadata of every object, which has no defaults.
        None => 0,
        Some(_) => known.get(id.0 as usize).copied().unwrap_or(ONCE_MAX),
    };
    let defaults = node.defaulted.iter().map(|property| {
        let default = nodes.get(property.id.0 as usize).and_then(|node| node.default.as_ref());
        let size = default.map_or(1, size_of_value);
        size.saturating_mul(1 + of_node(property.id))
    });
    let items = node.items.iter().chain(&node.additional).map(|id| of_node(*id));
    defaults.chain(items).fold(node.required.len(), usize::saturating_add)
}

/// The members and items of a value, itself included.
fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size_of_value).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size_of_value).sum::<usize>(),
        Value::String(text) => 1 + text.len() / TEXT_UNIT,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}
