//! The age of history.

use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;

/// Number of steps that the maximum age is divided into. History may exceed the maximum age by one
/// step.
const STEPS: u32 = 64;

/// The store's revision at sampled moments, at most two per step.
#[derive(Debug)]
pub(super) struct Ages {
    age_max: Duration,
    /// Oldest first.
    moments: VecDeque<(Instant, u64)>,
    /// When the newest revision was written.
    last: Instant,
}

impl Ages {
    /// Everything in the store counts as new.
    pub(super) fn new(age_max: Duration, now: Instant, revision: u64) -> Self {
        Self { age_max, moments: VecDeque::from([(now, revision)]), last: now }
    }

    /// Records the revision after the previous write. Called before each write. Returns the
    /// revision up to which history exceeds its maximum age; 0 if none does.
    pub(super) fn pass(&mut self, now: Instant, revision: u64) -> u64 {
        if self.moments.back().is_none_or(|(at, _)| now >= *at + self.age_max / STEPS) {
            self.moments.push_back((self.last, revision));
        }
        self.last = now;
        let is_old = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) > self.age_max;
        // Keeps the newest of the old moments: compaction may need more than one step to reach it.
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
        /// Nothing younger than the maximum age is dropped, everything older than that by a step
        /// is, and few moments are stored.
        #[test]
        fn history_stays_within_its_age(
            steps in proptest::collection::vec((prop_oneof![0u64..500, 0u64..40_000, 0u64..200_000], 0u64..5), 1..400),
        ) {
            let age_max = Duration::from_secs(64);
            let start = Instant::now();
            let mut ages = Ages::new(age_max, start, 1);
            // When each revision was written.
            let (mut now, mut born) = (start, vec![start; 2]);
            for (ms, n) in steps {
                now += Duration::from_millis(ms);
                let revision = born.len() as u64 - 1;
                let target = ages.pass(now, revision);
                prop_assert!(ages.moments.len() <= 2 * STEPS as usize + 2, "{}", ages.moments.len());
                // A state is dropped if the revision after it is too old.
                for asked in 1..=revision {
                    let Some(next) = born.get(usize::try_from(asked).unwrap() + 1) else { continue };
                    let age = now - *next;
                    if asked < target {
                        prop_assert!(age > age_max, "{asked} of age {age:?} is dropped");
                    } else {
                        prop_assert!(age <= age_max + age_max / STEPS, "{asked} of age {age:?} is retained");
                    }
                }
                born.extend((0..n).map(|_| now));
            }
        }
    }
}
