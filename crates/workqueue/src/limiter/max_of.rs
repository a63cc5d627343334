//! The largest delay of several limiters.

use std::{error::Error, fmt, time::Duration};

use tokio::time::Instant;

use super::{LimiterError, RateLimiter};

/// The largest delay of its members. Every member counts every attempt.
pub struct MaxOf<K> {
    members: Vec<Box<dyn RateLimiter<K>>>,
}

impl<K: 'static> MaxOf<K> {
    /// A limiter with these members.
    ///
    /// # Errors
    ///
    /// `members` is empty.
    pub fn new(members: Vec<Box<dyn RateLimiter<K>>>) -> Result<Self, LimiterError> {
        if members.is_empty() {
            return Err(LimiterError::NoMembers);
        }
        Ok(Self { members })
    }

    /// A limiter with two members.
    pub fn both(one: impl RateLimiter<K>, other: impl RateLimiter<K>) -> Self {
        Self { members: vec![Box::new(one), Box::new(other)] }
    }
}

impl<K: 'static> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        // A fold, so that every member is called exactly once.
        self.members.iter().map(|member| member.when(key, now)).fold(Duration::ZERO, Duration::max)
    }

    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        let delays = self.members.iter().map(|member| member.when_failed(key, now, error));
        delays.fold(Duration::ZERO, Duration::max)
    }

    fn forget(&self, key: &K) {
        for member in &self.members {
            member.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.members.iter().map(|member| member.num_requeues(key)).fold(0, u32::max)
    }

    fn len(&self) -> usize {
        self.members.iter().map(|member| member.len()).fold(0, usize::max)
    }
}

impl<K> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf").field("n_members", &self.members.len()).finish()
    }
}
