//! The stages between authentication and the answer: flow control and authorization.

use crate::filter::fairness::{Entered, Schema, WAIT_MAX};
use crate::filter::in_flight::{Permit, TooManyRequests};
use crate::server::Inner;
use setpoint_object::ApiError;
use setpoint_registry::Attributes;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Why [`Inner::begin`] rejects a request.
#[derive(Debug)]
pub(crate) enum Rejected {
    /// Too many requests are in flight.
    TooManyRequests,
    /// Authorization failed or was not possible.
    Forbidden(ApiError),
}

impl From<Rejected> for ApiError {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::TooManyRequests => TooManyRequests.into(),
            Rejected::Forbidden(error) => error,
        }
    }
}

impl Inner {
    /// The stages between authentication and the answer, the same for all requests: flow control,
    /// then authorization.
    ///
    /// # Errors
    ///
    /// Too many requests are in flight, or the user is not authorized.
    pub(crate) async fn begin(
        &self,
        request: &Attributes,
        patience: Duration,
        objects_max: usize,
        classified: &OnceLock<Arc<Schema>>,
    ) -> Result<Permit, Rejected> {
        let mut permit = Permit::default();
        match &self.fairness {
            Some(fairness) => {
                let (arrived, span) = (Instant::now(), request.stage("priorityandfairness"));
                let entered = fairness.enter(&self.registry, request, patience, objects_max).await;
                drop(span);
                request.wait(arrived.elapsed());
                if let Some(Entered { schema, seat }) = entered {
                    // Set once: this is the only place, and it is called once per request.
                    _ = classified.set(schema);
                    permit.1 = Some(seat.ok_or(Rejected::TooManyRequests)?);
                }
            }
            None => {
                let entered = self.in_flight.enter(request);
                permit.0 = entered.map_err(|TooManyRequests| Rejected::TooManyRequests)?;
            }
        }
        let _span = request.stage("authorization");
        match self.registry.authorize(request).await {
            Ok(()) => Ok(permit),
            Err(error) => Err(Rejected::Forbidden(error)),
        }
    }

    /// [`Inner::begin`] for a request without an HTTP answer.
    ///
    /// # Errors
    ///
    /// As [`Inner::begin`].
    pub(crate) async fn begin_in_process(&self, request: &Attributes) -> Result<Permit, Rejected> {
        self.begin(request, WAIT_MAX, usize::MAX, &OnceLock::new()).await
    }
}
