//! How many requests run at once. Long-running ones are not counted; neither is `system:masters`,
//! which must get in when others crowd.

use crate::body::Body;
use crate::respond;
use http::{HeaderValue, Response, StatusCode, header};
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, MASTERS};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reading requests at once, as on the reference server.
const READS_MAX: usize = 400;
/// Writing requests at once, as on the reference server.
const WRITES_MAX: usize = 200;

/// The places.
#[derive(Debug)]
pub(crate) struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl InFlight {
    /// All places free.
    pub(crate) fn new() -> Self {
        let places = |n| Arc::new(Semaphore::new(n));
        Self { reads: places(READS_MAX), writes: places(WRITES_MAX) }
    }

    /// Takes a place until the permit is dropped; `None`: the request needs none.
    ///
    /// # Errors
    ///
    /// When there is none: [`Crowded`] is answered with 429.
    pub(crate) fn enter(
        &self,
        request: &Attributes,
    ) -> Result<Option<OwnedSemaphorePermit>, Crowded> {
        if request.is_long_running() || request.identity.is_in(MASTERS) {
            return Ok(None);
        }
        let places = if request.verb.is_read_only() { &self.reads } else { &self.writes };
        places.clone().try_acquire_owned().map(Some).map_err(|_| Crowded)
    }
}

/// No place is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded;

impl Crowded {
    /// 429: nothing was done, come again.
    pub(crate) fn respond(self) -> Response<Body> {
        let mut response = respond::plain(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests, please try again later.\n",
        );
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

impl From<Crowded> for ApiError {
    fn from(Crowded: Crowded) -> Self {
        Self::too_many_requests("Too many requests, please try again later.", 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_registry::{Identity, Requested, Verb};

    #[test]
    fn crowd_is_refused_and_masters_get_in() {
        let places = InFlight::new();
        let request = |identity: Identity, verb| {
            Attributes::new(identity, verb, Requested::Path("/x".to_owned()))
        };
        let bob = |verb| request(Identity::new("bob", []), verb);
        let held: Vec<_> =
            (0..WRITES_MAX).map(|_| places.enter(&bob(Verb::Delete)).unwrap().unwrap()).collect();
        let refused = places.enter(&bob(Verb::Patch)).unwrap_err().respond();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert!(places.enter(&bob(Verb::Get)).is_ok());
        assert!(places.enter(&request(Identity::admin(), Verb::Delete)).is_ok());
        drop(held);
        assert!(places.enter(&bob(Verb::Delete)).is_ok());
    }
}
