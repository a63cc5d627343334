//! Whose turn it is to start.

use super::Live;
use crate::status::{List, State, Tracked};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The containers that may start, by their index, and when: those up to the first that holds up
/// the rest. Those that have not been tried start `now`.
pub(super) fn turns(
    containers: &[Tracked],
    live: &BTreeMap<String, Live>,
    now: Instant,
) -> impl Iterator<Item = (usize, Instant)> {
    let mut is_passed = true;
    let reached = containers.iter().enumerate();
    let reached =
        reached.take_while(move |(_, one)| std::mem::replace(&mut is_passed, lets_start(one)));
    reached.filter_map(move |(idx, one)| {
        Some((idx, start_of(one, live.get(&one.container.name), now)?))
    })
}

/// Whether the containers after it may start.
fn lets_start(tracked: &Tracked) -> bool {
    match tracked.list {
        // An init container that may not start again holds up the others for good.
        List::Init | List::Sidecar => tracked.lets_pass(),
        // The hook after the start holds up the containers after it.
        List::Main => !tracked.is_in_hook(),
        List::Ephemeral => true,
    }
}

/// When a container starts, if it does not run.
fn start_of(tracked: &Tracked, live: Option<&Live>, now: Instant) -> Option<Instant> {
    let due = live.and_then(|live| live.due);
    let is_idle = live.is_none_or(|live| live.stop.is_none());
    let starts_now = match &tracked.state {
        // Not started yet, or lost with an earlier node.
        State::Waiting { .. } => is_idle,
        State::Ended(ended) => is_idle && tracked.policy.restarts(ended.code.into()),
        State::Running(_) => false,
    };
    due.or(starts_now.then_some(now))
}
