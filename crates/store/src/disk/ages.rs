//! How old history is.

use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;

/// Into how many steps the greatest age is divided: history is that part of it older, at most, than
/// it may be.
const STEPS: u32 = 64;

/// Which revision the store stood at, at some moments: at most two in a step.
#[derive(Debug)]
pub(super) struct Ages {
    age_max: Duration,
    /// Oldest first.
    moments: VecDeque<(Instant, u64)>,
    /// When the newest revision came.
    last: Instant,
}

impl Ages {
    /// All that is there now counts as new.
    pub(super) fn new(age_max: Duration, now: Instant, revision: u64) -> Self {
        Self { age_max, moments: VecDeque::from([(now, revision)]), last: now }
    }

    /// Notes, before something is written, where the last write has left the store; gives the
    /// revision up to which history is older than it may be, 0 when nothing is.
    pub(super) fn pass(&mut self, now: Instant, revision: u64) -> u64 {
        if self.moments.back().is_none_or(|(at, _)| now >= *at + self.age_max / STEPS) {
            self.moments.push_back((self.last, revision));
        }
        self.last = now;
        let is_old = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) > self.age_max;
        // The newest of the old ones stays: compaction may need more than one step to get there.
        while self.moments.get(1).is_some_and(is_old) {
            self.moments.pop_front();
        }
        self.moments.front().copied().filter(is_old).map_or(0, |(_, revision)| revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Nothing younger than the age goes, everything older by a step and more does, and little
        /// is remembered for it.
        #[test]
        fn history_is_as_old_as_it_may_be(
            steps in proptest::collection::vec((prop_oneof![0u64..500, 0u64..40_000, 0u64..200_000], 0u64..5), 1..400),
        ) {
            let age_max = Duration::from_secs(64);
            let start = Instant::now();
            let mut ages = Ages::new(age_max, start, 1);
            // When each revision came.
            let (mut now, mut born) = (start, vec![start; 2]);
            for (ms, n) in steps {
                now += Duration::from_millis(ms);
                let revision = born.len() as u64 - 1;
                let target = ages.pass(now, revision);
                prop_assert!(ages.moments.len() <= 2 * STEPS as usize + 2, "{}", ages.moments.len());
                // A state goes when the revision after it came too long ago.
                for asked in 1..=revision {
                    let Some(next) = born.get(usize::try_from(asked).unwrap() + 1) else { continue };
                    let age = now - *next;
                    if asked < target {
                        prop_assert!(age > age_max, "{asked} of age {age:?} goes");
                    } else {
                        prop_assert!(age <= age_max + age_max / STEPS, "{asked} of age {age:?} stays");
                    }
                }
                born.extend((0..n).map(|_| now));
            }
        }
    }
}
