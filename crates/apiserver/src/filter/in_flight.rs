//! How many requests run at once. Watches are not counted; neither is `system:masters`, which must get in when others crowd.

use crate::body::Body;
use crate::identity::{Identity, MASTERS};
use crate::respond;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reading requests at once, as on the reference server.
const READS_MAX: usize = 400;
/// Writing requests at once, as on the reference server.
const WRITES_MAX: usize = 200;

/// The places.
#[derive(Debug)]
pub(crate) struct InFlight {
    reads: Semaphore,
    writes: Semaphore,
}

impl InFlight {
    /// All places free.
    pub(crate) fn new() -> Self {
        Self { reads: Semaphore::new(READS_MAX), writes: Semaphore::new(WRITES_MAX) }
    }

    /// Takes a place until the permit is dropped.
    ///
    /// # Errors
    ///
    /// When there is none: [`Crowded`] is answered with 429.
    pub(crate) fn enter(
        &self,
        identity: &Identity,
        reads: bool,
    ) -> Result<Option<SemaphorePermit<'_>>, Crowded> {
        if identity.is_in(MASTERS) {
            return Ok(None);
        }
        let places = if reads { &self.reads } else { &self.writes };
        places.try_acquire().map(Some).map_err(|_| Crowded)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_is_refused_and_masters_get_in() {
        let places = InFlight::new();
        let bob = Identity::new("bob", []);
        let held: Vec<_> =
            (0..WRITES_MAX).map(|_| places.enter(&bob, false).unwrap().unwrap()).collect();
        let refused = places.enter(&bob, false).unwrap_err().respond();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert!(places.enter(&bob, true).is_ok());
        assert!(places.enter(&Identity::admin(), false).is_ok());
        drop(held);
        assert!(places.enter(&bob, false).is_ok());
    }
}
