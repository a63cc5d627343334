//! The stages between authentication and the answer: flow control and authorization.

use super::{RoutedRequest, failed};
use crate::body::Body;
use crate::filter::fairness::{Entered, Schema, WAIT_MAX};
use crate::filter::in_flight::{Permit, TooManyRequests};
use crate::observe::Observation;
use crate::respond;
use crate::server::Inner;
use http::Response;
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, Layer};
use std::ops::ControlFlow;
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
                request.took(Layer::Queue, arrived.elapsed());
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

    /// [`Inner::begin`] and the limit of watches, for a request over HTTP. Breaks with the answer
    /// to a request that may not go on.
    pub(super) async fn admit(
        &self,
        request: &RoutedRequest<'_>,
        attributes: &Attributes,
        observation: &Observation,
        classified: &OnceLock<Arc<Schema>>,
    ) -> ControlFlow<Response<Body>, Permit> {
        let failed = failed(request.parts, request.style, observation);
        let patience = request.deadline.map_or(WAIT_MAX, |deadline| {
            (deadline.saturating_duration_since(Instant::now()) / 4).min(WAIT_MAX)
        });
        let limit = request.query.text("limit").parse().ok();
        let objects_max = limit.filter(|n| *n > 0).unwrap_or(usize::MAX);
        let begun = self.begin(attributes, patience, objects_max, classified).await;
        let permit = match begun {
            Ok(permit) => permit,
            Err(Rejected::TooManyRequests) => {
                observation.terminated();
                return ControlFlow::Break(TooManyRequests.respond());
            }
            // As the reference: a text, if no authorizer could decide.
            Err(Rejected::Forbidden(error)) if error.code() == 500 => {
                let causes = error.0.details.iter().flat_map(|details| &details.causes);
                let why = causes.map(|cause| &*cause.message).next().unwrap_or(&error.0.message);
                return ControlFlow::Break(respond::internal_error(&request.parts.uri, &why));
            }
            Err(Rejected::Forbidden(error)) => {
                let answer = failed(&error);
                return ControlFlow::Break(respond::without_sniffing(answer));
            }
        };
        match self.watches.enter(attributes) {
            Ok(watch) => {
                watch.into_iter().for_each(|watch| observation.holds(watch));
                ControlFlow::Continue(permit)
            }
            Err(error) => {
                observation.terminated();
                ControlFlow::Break(failed(&error))
            }
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
