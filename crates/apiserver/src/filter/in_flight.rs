//! Limits the number of concurrent requests, without priority and fairness. Long-running requests
//! do not count. Nor does `system:masters`, which must get in when the server is overloaded.

use crate::body::Body;
use crate::filter::fairness::Seat;
use crate::respond;
use http::{HeaderValue, Response, StatusCode, header};
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, MASTERS};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests run, and how many watches are open, at the same time.
///
/// With priority and fairness, the sum of both numbers is divided by the FlowSchemas and
/// PriorityLevelConfigurations, and requests wait in queues. Without it, reads and writes have
/// limits of their own, and further requests are refused. Either way, `system:masters` has no
/// limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct RequestLimits {
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    pub(crate) is_fair: bool,
    pub(crate) watches: usize,
    pub(crate) watches_per_user: usize,
}

/// 400 reads and 200 writes, with priority and fairness: as kube-apiserver. 20,000 watches of a
/// user, about 30 MiB of memory, and 200,000 in all.
impl Default for RequestLimits {
    fn default() -> Self {
        Self { reads: 400, writes: 200, is_fair: true, watches: 200_000, watches_per_user: 20_000 }
    }
}

impl RequestLimits {
    /// Maximum concurrent reads: `--max-requests-inflight`. Without priority and fairness, zero is
    /// no limit. Default: 400.
    pub fn reads(mut self, n: usize) -> Self {
        self.reads = n;
        self
    }

    /// The same of writes: `--max-mutating-requests-inflight`. Default: 200.
    pub fn writes(mut self, n: usize) -> Self {
        self.writes = n;
        self
    }

    /// Whether priority and fairness decides who runs: `--enable-priority-and-fairness`. Default:
    /// yes.
    pub fn fair(mut self, is_fair: bool) -> Self {
        self.is_fair = is_fair;
        self
    }

    /// Maximum open watches over HTTP of all users together. Further ones are refused with 429.
    /// Default: 200,000.
    ///
    /// An idle watch takes 1.4 KiB, its connection aside: many share one.
    pub fn watches(mut self, n: usize) -> Self {
        self.watches = n;
        self
    }

    /// The same of one user. All requests without credentials are those of one user. Default:
    /// 20,000.
    pub fn watches_per_user(mut self, n: usize) -> Self {
        self.watches_per_user = n;
        self
    }

    /// The seats of priority and fairness.
    pub(crate) fn seats(&self) -> u32 {
        u32::try_from(self.reads.saturating_add(self.writes)).unwrap_or(SEATS_MAX).min(SEATS_MAX)
    }
}

/// Maximum seats: a million requests at once.
const SEATS_MAX: u32 = 1_000_000;

/// What a request holds while it runs: a permit of these limits, or a seat of priority and
/// fairness.
pub(crate) type Permit = (Option<OwnedSemaphorePermit>, Option<Seat>);

/// The limits; `None`: there is none.
#[derive(Debug)]
pub(crate) struct InFlight {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl InFlight {
    /// Without any requests.
    pub(crate) fn new(limits: &RequestLimits) -> Self {
        let semaphore =
            |n: usize| (n > 0).then(|| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS))));
        Self { reads: semaphore(limits.reads), writes: semaphore(limits.writes) }
    }

    /// Takes a permit; `None`: the request needs none.
    ///
    /// # Errors
    ///
    /// [`TooManyRequests`] if there is none; answered with 429.
    pub(crate) fn enter(
        &self,
        request: &Attributes,
    ) -> Result<Option<OwnedSemaphorePermit>, TooManyRequests> {
        if request.is_long_running() || request.identity.is_in(MASTERS) {
            return Ok(None);
        }
        let permits = if request.verb.is_read_only() { &self.reads } else { &self.writes };
        let permit = permits.clone().map(Semaphore::try_acquire_owned);
        permit.transpose().map_err(|_| TooManyRequests)
    }
}

/// The limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyRequests;

impl TooManyRequests {
    /// 429: nothing was done, the client may retry.
    pub(crate) fn respond(self) -> Response<Body> {
        let mut response = respond::plain(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests, please try again later.\n",
        );
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

impl From<TooManyRequests> for ApiError {
    fn from(TooManyRequests: TooManyRequests) -> Self {
        Self::too_many_requests("Too many requests, please try again later.", 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_registry::{Identity, Requested, Verb};

    #[test]
    fn requests_beyond_the_limit_are_refused_except_of_masters() {
        let limits = InFlight::new(&RequestLimits::default());
        let request = |identity: Identity, verb| {
            Attributes::new(identity, verb, Requested::Path("/x".to_owned()))
        };
        let bob = |verb| request(Identity::new("bob", []), verb);
        let held: Vec<_> =
            (0..200).map(|_| limits.enter(&bob(Verb::Delete)).unwrap().unwrap()).collect();
        let refused = limits.enter(&bob(Verb::Patch)).unwrap_err().respond();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert!(limits.enter(&bob(Verb::Get)).is_ok());
        assert!(limits.enter(&request(Identity::admin(), Verb::Delete)).is_ok());
        drop(held);
        assert!(limits.enter(&bob(Verb::Delete)).is_ok());

        let limits = InFlight::new(&RequestLimits::default().reads(0).writes(1));
        assert!(limits.enter(&bob(Verb::Get)).unwrap().is_none(), "no limit");
        let held = limits.enter(&bob(Verb::Delete)).unwrap();
        assert!(limits.enter(&bob(Verb::Delete)).is_err());
        drop(held);
    }
}
