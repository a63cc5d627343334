//! The stages that find out who sends a request: authentication and impersonation. The audit begins
//! between them.

use super::{failed, stored};
use crate::body::Body;
use crate::filter::authenticate::{has_credentials, keep_connection};
use crate::filter::impersonate::{self, Wanted};
use crate::observe::{AuditSource, Observation};
use crate::respond::{self, Style};
use crate::server::Inner;
use crate::trace;
use http::Response;
use http::request::Parts;
use setpoint_object::ApiError;
use setpoint_registry::{Attributes, Identity, Impersonator, Layer};
use setpoint_spans::Tracer;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

impl Inner {
    /// Completes the attributes with the user, and begins the observation, in `begun`. Breaks with
    /// the answer to a request without a valid user, or whose arrival cannot be recorded.
    pub(super) async fn identify<'o>(
        &self,
        parts: &Parts,
        style: Style,
        mut attributes: Attributes,
        begun: &'o OnceLock<Arc<Observation>>,
    ) -> ControlFlow<Response<Body>, (Arc<Attributes>, &'o Arc<Observation>)> {
        let arrived = Instant::now();
        let received = self.tracer.as_ref().map(Tracer::now);
        let identity = self.authenticators.identify(parts).await;
        let (user, took) = (identity.as_ref(), arrived.elapsed());
        self.observers.authenticated(user, has_credentials(parts), took);
        attributes.took(Layer::Authentication, took);
        let is_known = identity.is_some();
        if let Some(token) = self.authenticators.token_use(parts, user).await {
            token.note(&attributes);
            self.figures.token_used(&token);
        }
        attributes.identity = identity.unwrap_or_else(|| Identity::new("", []));
        let span = match (&self.tracer, received) {
            (Some(tracer), Some(at)) if is_known => trace::begin(tracer, parts, &attributes, at),
            _ => None,
        };
        attributes.trace = span.as_ref().map(|span| span.trace().clone());
        let attributes = Arc::new(attributes);
        let observation =
            begun.get_or_init(|| self.observers.begin(&attributes, || AuditSource::of(parts)));
        span.into_iter().for_each(|span| observation.traces(span));
        let failed = failed(parts, style, observation);
        if !is_known {
            observation.unauthenticated();
            return ControlFlow::Break(failed(&ApiError::unauthorized()));
        }
        if let Some(stored) = observation.received()
            && let Err(error) = stored.await
        {
            observation.refused();
            return ControlFlow::Break(respond::internal_error(&parts.uri, &error));
        }
        keep_connection(&parts.extensions, &attributes.identity);
        match self.impersonate(parts, &attributes).await {
            Ok(None) => ControlFlow::Continue((attributes, observation)),
            Ok(Some(attributes)) => {
                observation.impersonated(attributes.clone());
                ControlFlow::Continue((attributes, observation))
            }
            Err(error) => ControlFlow::Break(respond::without_sniffing(failed(&error))),
        }
    }

    /// The answer to a request that is refused before anybody asks who sends it. Of such a request,
    /// as of one without a valid user, only the head of the answer is recorded.
    pub(super) async fn refuse(
        &self,
        parts: &Parts,
        style: Style,
        mut attributes: Attributes,
        error: &ApiError,
    ) -> Response<Body> {
        attributes.identity = Identity::new("", []);
        let observation = self.observers.begin(&Arc::new(attributes), || AuditSource::of(parts));
        observation.unauthenticated();
        let mut answer = failed(parts, style, &observation)(error);
        let deadline = Instant::now() + self.request_timeout;
        let event = observation.answered(answer.status().as_u16(), false);
        stored(event, Some(deadline)).await;
        observation.sends(answer.body_mut());
        answer
    }

    /// The request as the user that its headers name; `None` if they name none.
    ///
    /// # Errors
    ///
    /// 400 for headers without a user, 403 if its user may not act as that one.
    async fn impersonate(
        &self,
        parts: &Parts,
        attributes: &Attributes,
    ) -> Result<Option<Arc<Attributes>>, ApiError> {
        let Some(wanted) = Wanted::of(&parts.headers)? else { return Ok(None) };
        let (begun, span) = (Instant::now(), attributes.stage("constrainedimpersonation"));
        // Boxed: few requests have it, and each would have its room.
        let authorized =
            Box::pin(impersonate::authorize(&self.registry, attributes, &wanted)).await;
        attributes.took(Layer::Impersonation, begun.elapsed());
        drop(span);
        let (identity, verb) = authorized?;
        let impersonator = Impersonator { identity: attributes.identity.clone(), verb };
        let attributes = attributes.as_user(identity, impersonator);
        Ok(Some(Arc::new(attributes)))
    }
}
