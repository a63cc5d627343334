//! Limits the number of concurrent requests. Long-running requests do not count. Nor does
//! `system:masters`, which must get in when the server is overloaded.

use crate::body::Body;
use crate::respond;
use http::{HeaderValue, Response, StatusCode, header};
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, MASTERS};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum concurrent reads, as on the reference server.
const READS_MAX: usize = 400;
/// Maximum concurrent writes, as on the reference server.
const WRITES_MAX: usize = 200;

/// The limits.
#[derive(Debug)]
pub(crate) struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl InFlight {
    /// Without any requests.
    pub(crate) fn new() -> Self {
        let semaphore = |n| Arc::new(Semaphore::new(n));
        Self { reads: semaphore(READS_MAX), writes: semaphore(WRITES_MAX) }
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
        permits.clone().try_acquire_owned().map(Some).map_err(|_| TooManyRequests)
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
        let limits = InFlight::new();
        let request = |identity: Identity, verb| {
            Attributes::new(identity, verb, Requested::Path("/x".to_owned()))
        };
        let bob = |verb| request(Identity::new("bob", []), verb);
        let held: Vec<_> =
            (0..WRITES_MAX).map(|_| limits.enter(&bob(Verb::Delete)).unwrap().unwrap()).collect();
        let refused = limits.enter(&bob(Verb::Patch)).unwrap_err().respond();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert!(limits.enter(&bob(Verb::Get)).is_ok());
        assert!(limits.enter(&request(Identity::admin(), Verb::Delete)).is_ok());
        drop(held);
        assert!(limits.enter(&bob(Verb::Delete)).is_ok());
    }
}
