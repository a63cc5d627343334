//! In which order a merged list comes out.
//!
//! Two sequences are merged from the front: P, the elements that the patch (or its order directive)
//! names, in that order, and S, the other elements in the order they had. The head of S goes first
//! only if the head of P was there before and stood behind it; so elements that are new come before
//! those that follow nothing.
//!
//! Elements are found by the hash of their identity, so that a list is ordered in `n log n`.

use super::directive::{PATCH, no_list, no_map, no_merge_key};
use super::notation::go_value;
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use std::collections::HashMap;

/// The identity of a list's elements.
#[derive(Clone, Copy)]
pub(super) enum Identity<'a> {
    /// Scalars, by value.
    Scalar,
    /// Maps, by this member.
    Key(&'a str),
}

impl<'a> Identity<'a> {
    /// Of a field with this merge key.
    pub(super) fn of(merge_key: Option<&'a str>) -> Self {
        merge_key.map_or(Self::Scalar, Self::Key)
    }

    /// The identity of this element. All elements without the key have the same one.
    pub(super) fn get(self, element: &Value) -> Option<&Value> {
        match self {
            Self::Scalar => Some(element),
            Self::Key(key) => element.as_object()?.get(key),
        }
    }

    /// As [`Self::get`], for an element that must have one.
    pub(super) fn require(self, element: &Value) -> Result<&Value, ApiError> {
        match self {
            Self::Scalar => Ok(element),
            Self::Key(key) => {
                let map = as_map(element)?;
                map.get(key).ok_or_else(|| no_merge_key(map, key))
            }
        }
    }

    /// The place of each identity's first element.
    fn places(self, list: &[Value]) -> HashMap<Option<&Value>, usize> {
        let mut places = HashMap::with_capacity(list.len());
        for (place, element) in list.iter().enumerate() {
            places.entry(self.get(element)).or_insert(place);
        }
        places
    }
}

/// An element as a map.
pub(super) fn as_map(element: &Value) -> Result<&Map<String, Value>, ApiError> {
    element.as_object().ok_or_else(|| no_map(element))
}

/// Orders `merged`: `order` is the patch's order, `live` the list before the patch.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    live: &[Value],
    identity: Identity<'_>,
) -> Result<Vec<Value>, ApiError> {
    for element in merged.iter().chain(order).chain(live) {
        identity.require(element)?;
    }
    let (in_order, in_live) = (identity.places(order), identity.places(live));
    let mut named = Vec::new();
    let mut others = Vec::new();
    for element in merged {
        let id = identity.get(&element);
        let (place, before) = (in_order.get(&id).copied(), in_live.get(&id).copied());
        match place {
            Some(place) => named.push((place, before, element)),
            None => others.push((before, element)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    sort(&mut others);
    let mut named = named.into_iter().map(|(_, before, element)| (before, element)).peekable();
    let mut others = others.into_iter().peekable();
    let mut out = Vec::with_capacity(named.len() + others.len());
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return Ok(out),
            (Some((Some(other), _)), Some((Some(named), _))) => other < named,
            (other, named) => other.is_some() && named.is_none(),
        };
        let next = if other_first { others.next() } else { named.next() };
        out.extend(next.map(|(_, element)| element));
    }
}

/// The longest list in which the reference puts an element without a place by comparing it with
/// its neighbors.
const INSERTED_MAX: usize = 20;

/// Sorts elements by their places. Those without one (which only an inconsistent directive can
/// bring) are before what stands before them, as the reference compares them; in long lists they
/// go last.
fn sort(elements: &mut [(Option<usize>, Value)]) {
    if elements.len() > INSERTED_MAX || elements.iter().all(|(place, _)| place.is_some()) {
        elements.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
        return;
    }
    for end in 1..elements.len() {
        for at in (1..=end).rev() {
            let is_before = match (elements[at].0, elements[at - 1].0) {
                (Some(this), Some(previous)) => this < previous,
                _ => true,
            };
            if !is_before {
                break;
            }
            elements.swap(at, at - 1);
        }
    }
}

/// Holds an order directive to the patch's own list: what the patch adds or changes is named there,
/// in the same order.
pub(super) fn check_directive(
    patch: &[Value],
    order: &[Value],
    identity: Identity<'_>,
) -> Result<(), ApiError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let directive = |element: &Value| match identity {
        Identity::Scalar => None,
        Identity::Key(_) => element.get(PATCH).map(|directive| directive == "delete"),
    };
    if let Identity::Key(_) = identity {
        patch.iter().try_for_each(|element| as_map(element).map(drop))?;
    }
    let mut kept = patch.iter().filter(|element| directive(element) != Some(true)).peekable();
    let mut named = order.iter();
    while let (Some(element), false) = (kept.peek(), named.as_slice().is_empty()) {
        // The reference skips other directives only while it has names left.
        if directive(element).is_some() {
            kept.next();
            continue;
        }
        let Some(name) = named.next() else { break };
        if identity.require(element)? == identity.require(name)? {
            kept.next();
        }
    }
    if kept.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (Value::from(patch), Value::from(order));
    Err(ApiError::unclassified(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go_value(&patch),
        go_value(&order)
    )))
}

/// An order directive's list.
pub(super) fn directive_list(value: Value) -> Result<Vec<Value>, ApiError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(no_list(&other)),
    }
}
