//! Cycles about the pods of groups.

use super::{Cycles, SLICE_PODS};
use crate::group_cycle::GroupDecision;
use crate::state::Kept;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use setpoint_runtime::{Action, BoxError, Request};
use std::time::Duration;
use tokio::time::Instant;

/// Pods that get their places at once, under the lock: about 10 µs each.
const SLICE_PLACES: usize = 64;

impl Cycles {
    /// A cycle about the pods of a group that wait, and what follows from it.
    pub(super) async fn group_pass(&self, key: &Request) -> Result<Action, BoxError> {
        let shared = &self.shared;
        loop {
            let now = Instant::now();
            let expired = shared.change(|state| state.expire_held(key, SLICE_PLACES, now));
            if !self.write_all(expired, SLICE_PLACES).await {
                break;
            }
        }
        let (mut decision, mut rng) = {
            let mut state = shared.state.lock();
            let now = Instant::now();
            let Some(begun) = state.begin_group(key, now) else {
                return Ok(wait(state.group_waits(key, now)));
            };
            let rng = SmallRng::from_rng(&mut state.rng);
            let decision = GroupDecision::new(state.view.clone(), begun, state.first.clone());
            (Box::new(decision), rng)
        };
        while !decision.step(&mut rng) {
            // Cancel safe: nothing has been written.
            tokio::task::yield_now().await;
            if decision.is_costly() && !self.in_place {
                let there = move || {
                    let is_over = decision.step(&mut rng);
                    (decision, rng, is_over)
                };
                let is_over;
                // Cancel safe, for the same reason.
                (decision, rng, is_over) = tokio::task::spawn_blocking(there).await?;
                if is_over {
                    break;
                }
            }
        }
        shared.state.lock().first = decision.next_first();
        let ended = decision.end();
        let mut has_changed = false;
        for places in ended.places.chunks(SLICE_PLACES) {
            if !shared.state.lock().hold_all(places, Instant::now()) {
                has_changed = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        let kept = match has_changed {
            true => Kept::None,
            false => shared.state.lock().kept(key),
        };
        if !ended.places.is_empty() && kept == Kept::None {
            for places in ended.places.chunks(SLICE_PLACES) {
                shared.put(|state| state.take_back_all(places));
                tokio::task::yield_now().await;
            }
            // Without the group it is not tried before there is one.
            return Ok(Action::requeue());
        }
        while !ended.places.is_empty() && kept == Kept::All {
            let released = shared.state.lock().release_some(key, SLICE_PODS, Instant::now());
            if !self.write_all(released, SLICE_PODS).await {
                break;
            }
        }
        for refused in ended.refused.chunks(SLICE_PODS) {
            let told = shared.change(|state| state.refuse_members(refused));
            self.write_all(told, SLICE_PODS).await;
        }
        shared.change(|state| state.end_group(key, ended, Instant::now()));
        shared.write(key.clone(), 0);
        let waits = shared.state.lock().group_waits(key, Instant::now());
        Ok(wait(waits))
    }

    /// Hands out what is to be written about pods. Returns whether there may be more than a slice
    /// of `n_max`.
    async fn write_all(&self, pods: Vec<(Request, i32)>, n_max: usize) -> bool {
        let is_full = pods.len() >= n_max;
        for (pod, priority) in pods {
            self.shared.write(pod, priority);
        }
        tokio::task::yield_now().await;
        is_full
    }
}

fn wait(after: Option<Duration>) -> Action {
    match after {
        Some(after) => Action::requeue_after(after.max(Duration::from_millis(1))),
        None => Action::await_change(),
    }
}
