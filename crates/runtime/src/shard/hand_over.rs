//! The keys that a member gains, until they are queued.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::state::State;

/// How many hand-overs may wait: 4. If more are added, one of all keys that the member owns takes
/// their place.
const WAITING_MAX: usize = 4;

/// Chooses the gained keys, by their text.
pub(super) type Gained = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Hand-overs, one after the other. A member adds them, and goes on to renew its Lease.
pub(super) struct HandOvers {
    state: Arc<State>,
    waiting: Mutex<VecDeque<Gained>>,
    /// Notified of each that is added.
    added: Notify,
}

impl HandOvers {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state, waiting: Mutex::default(), added: Notify::new() }
    }

    pub(super) fn add(&self, gained: Gained) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(gained);
        } else {
            let state = self.state.clone();
            waiting.clear();
            waiting.push_back(Box::new(move |key| state.ownership().owns(key)));
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// The next one. For a single caller. Cancel safe: a dropped wait has taken nothing.
    pub(super) async fn next(&self) -> Gained {
        loop {
            let next = self.waiting.lock().pop_front();
            match next {
                Some(gained) => return gained,
                None => self.added.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn beyond_the_limit_one_of_all_owned_keys_takes_the_place_of_those_that_wait() {
        let hand_overs = HandOvers::new(Arc::new(State::new(None)));
        let next = || hand_overs.next().now_or_never();
        for n in 0..WAITING_MAX {
            hand_overs.add(Box::new(move |key| *key == n.to_string()));
        }
        assert!(next().is_some_and(|gained| gained("0") && !gained("1")));
        for _ in 0..2 {
            hand_overs.add(Box::new(|_| true));
        }
        assert!(next().is_some_and(|gained| !gained("0")), "this member owns nothing");
        assert!(next().is_none());
    }
}
