//! Checks whether a history of concurrent calls is linearizable.
//!
//! # Theory
//!
//! A history is *linearizable* if each call can be assigned one moment between its start and its
//! end, so that the calls, in the order of their moments, behave as the [`Model`]. A call with an
//! unknown outcome has no end: its moment is anywhere after its start, or it never happens.
//!
//! The search is Wing and Gong's with Lowe's memoization: choose any call that starts before the
//! first end of the remaining calls, apply the model, continue; backtrack if no call fits. A
//! reached state (the set of placed calls, and the model's state) is not visited twice. A fitting
//! read is placed at once and never taken back: whatever could follow without it can follow with
//! it.
//!
//! Calls on separate objects are searched separately ([`partition`]): a history is linearizable if
//! and only if the histories of its objects are (Herlihy and Wing, "locality"). A call on several
//! objects joins them.
//!
//! The search is bounded: after [`NODES_MAX`] states it returns [`Verdict::Undecided`], which means
//! nothing about the history.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

/// Maximum number of states of one search. Histories of these tests need some hundreds.
pub(crate) const NODES_MAX: usize = 200_000;

/// The sequential behavior of the object.
pub(crate) trait Model {
    /// A call with its response; for a call with an unknown outcome, its effect if it happens.
    type Call;
    /// The object's state.
    type State: Clone + Eq + Hash;

    /// The initial state.
    fn initial(&self) -> Self::State;

    /// Whether the call changes nothing in any state.
    fn is_read(&self, call: &Self::Call) -> bool;

    /// The state after the call; `None` if the object's response would differ in this state.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call with its start and end. Moments are unique numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed<C> {
    /// The call.
    pub call: C,
    /// A moment before the call.
    pub began: u64,
    /// A moment after its response; `None` if its outcome is unknown.
    pub ended: Option<u64>,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A valid order, as positions in the history. Missing calls of unknown outcome need not have
    /// happened.
    Linearizable(Vec<usize>),
    /// There is no valid order.
    Impossible {
        /// The longest valid prefix of an order.
        placed: Vec<usize>,
        /// The calls of which one had to follow, but could not.
        stuck: Vec<usize>,
    },
    /// The search visited too many states.
    Undecided,
}

/// Searches for a valid order of a history.
pub(crate) fn check<M: Model>(model: &M, history: &[Timed<M::Call>]) -> Verdict {
    check_within(model, history, NODES_MAX)
}

/// As [`check`], with another bound.
pub(crate) fn check_within<M: Model>(
    model: &M,
    history: &[Timed<M::Call>],
    nodes_max: usize,
) -> Verdict {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|at| history[*at].began);
    let mut search = Search { model, history, order, seen: HashSet::new(), longest: None };
    let first = search.settle(Node {
        placed: vec![0; history.len().div_ceil(64)],
        state: model.initial(),
        sequence: Vec::new(),
    });
    let mut open = vec![first];
    while let Some(node) = open.pop() {
        if search.is_complete(&node) {
            return Verdict::Linearizable(node.sequence);
        }
        if !search.seen.insert((node.placed.clone(), node.state.clone())) {
            continue;
        }
        if search.seen.len() > nodes_max {
            return Verdict::Undecided;
        }
        // Calls that started first are tried first.
        for at in search.next(&node).into_iter().rev() {
            if let Some(state) = model.step(&node.state, &history[at].call) {
                let node = search.settle(node.with(at, state));
                open.push(node);
            }
        }
        if search
            .longest
            .as_ref()
            .is_none_or(|longest| longest.sequence.len() < node.sequence.len())
        {
            search.longest = Some(node);
        }
    }
    let Some(node) = search.longest.take() else { unreachable!("the first node is looked at") };
    let end = search.first_end(&node);
    let is_stuck = |at: &usize| {
        let timed = &history[*at];
        !node.has(*at) && timed.ended.is_some() && timed.began < end
    };
    let stuck = (0..history.len()).filter(is_stuck).collect();
    Verdict::Impossible { placed: node.sequence, stuck }
}

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Timed<M::Call>],
    /// Sorted by start.
    order: Vec<usize>,
    seen: HashSet<(Vec<u64>, M::State)>,
    longest: Option<Node<M::State>>,
}

#[derive(Clone)]
struct Node<S> {
    /// One bit per call.
    placed: Vec<u64>,
    state: S,
    /// The same calls, in order.
    sequence: Vec<usize>,
}

impl<S: Clone> Node<S> {
    fn has(&self, at: usize) -> bool {
        self.placed[at / 64] & 1 << (at % 64) != 0
    }

    fn with(&self, at: usize, state: S) -> Self {
        let mut node = Self { state, ..self.clone() };
        node.placed[at / 64] |= 1 << (at % 64);
        node.sequence.push(at);
        node
    }
}

impl<M: Model> Search<'_, M> {
    fn is_complete(&self, node: &Node<M::State>) -> bool {
        self.first_end(node) == u64::MAX
    }

    /// The first end of the remaining calls: calls that start later come later.
    fn first_end(&self, node: &Node<M::State>) -> u64 {
        let mut end = u64::MAX;
        for at in &self.order {
            let timed = &self.history[*at];
            if timed.began > end {
                break;
            }
            if let Some(ended) = timed.ended.filter(|_| !node.has(*at)) {
                end = end.min(ended);
            }
        }
        end
    }

    /// The calls that may come next.
    fn next(&self, node: &Node<M::State>) -> Vec<usize> {
        let end = self.first_end(node);
        let before = self.order.iter().take_while(|at| self.history[**at].began < end);
        before.copied().filter(|at| !node.has(*at)).collect()
    }

    /// Places the fitting reads.
    fn settle(&self, mut node: Node<M::State>) -> Node<M::State> {
        loop {
            let fits = self.next(&node).into_iter().find(|at| {
                let timed = &self.history[*at];
                timed.ended.is_some()
                    && self.model.is_read(&timed.call)
                    && self.model.step(&node.state, &timed.call).is_some()
            });
            match fits {
                Some(at) => node = node.with(at, node.state.clone()),
                None => return node,
            }
        }
    }
}

/// Splits a history into those of its objects: calls that are not connected by a chain of shared
/// keys are in separate parts.
pub(crate) fn partition<C, K: Ord>(
    history: &[Timed<C>],
    keys: impl Fn(&C) -> Vec<K>,
) -> Vec<Vec<usize>> {
    // For each call, the first call of its part, as far as known.
    let mut parents: Vec<usize> = (0..history.len()).collect();
    fn root(parents: &mut [usize], mut at: usize) -> usize {
        while parents[at] != at {
            parents[at] = parents[parents[at]];
            at = parents[at];
        }
        at
    }
    let mut by_key = BTreeMap::new();
    for (at, timed) in history.iter().enumerate() {
        for key in keys(&timed.call) {
            let other = *by_key.entry(key).or_insert(at);
            let (one, other) = (root(&mut parents, at), root(&mut parents, other));
            parents[one.max(other)] = one.min(other);
        }
    }
    let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in 0..history.len() {
        let root = root(&mut parents, at);
        parts.entry(root).or_default().push(at);
    }
    parts.into_values().collect()
}
