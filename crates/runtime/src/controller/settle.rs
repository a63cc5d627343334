//! What happens to a key after a pass: the table at [`Action`](crate::Action).

use std::any::Any;

use setpoint_workqueue::{AddOptions, Item};

use super::{
    ControllerError,
    error::{ReconcilePanic, ReconcileTimeout},
    stats::count,
    worker::Worker,
};
use crate::{
    broken::Rule,
    error::{BoxError, chain},
    events::ObjectReference,
    pass::{Cause, PassOutcome, cut},
    reconciler::{Action, Requeue, is_terminal, priority_of},
    request::{Request, RequestKey},
};

/// How a pass ended.
pub(super) enum Outcome {
    Ok(Action),
    Error(BoxError),
    Panic(String),
    Timeout(ReconcileTimeout),
}

impl<R: RequestKey> Worker<R> {
    /// Counts the pass, adds its key again if it is to come back, and gives how it is remembered.
    /// The item is still held: what is added waits at its side.
    pub(super) fn settle(
        &self,
        item: &Item<'_, R>,
        outcome: Outcome,
    ) -> Result<PassOutcome, ControllerError> {
        let counters = &self.shared.counters;
        let mut remembered = None;
        let error: BoxError = match outcome {
            Outcome::Ok(action) => return Ok(self.succeed(item, action)),
            Outcome::Error(error) => error,
            Outcome::Panic(message) => {
                count(&counters.panics);
                if self.options.broken.is(Rule::ForgetsPanics) {
                    return Ok(PassOutcome::Panic(cut(message)));
                }
                if !self.options.recovers_panics {
                    let name = self.options.name.clone();
                    return Err(ControllerError::Panic { name, message });
                }
                remembered = Some(PassOutcome::Panic(cut(message.clone())));
                ReconcilePanic { message }.into()
            }
            Outcome::Timeout(timeout) => {
                count(&counters.timeouts);
                remembered = Some(PassOutcome::Timeout);
                timeout.into()
            }
        };
        count(&counters.error);
        self.fail(item, &error);
        Ok(remembered.unwrap_or_else(|| {
            let text = cut(chain(&*error));
            if is_terminal(&*error) {
                PassOutcome::Terminal(text)
            } else {
                PassOutcome::Error(text)
            }
        }))
    }

    fn succeed(&self, item: &Item<'_, R>, action: Action) -> PassOutcome {
        let (key, counters) = (item.key(), &self.shared.counters);
        let again = |cause| self.again(item, cause, action.priority);
        let remembered = match action.requeue {
            Requeue::After(delay) if !delay.is_zero() => {
                self.queue.forget(key);
                self.queue.add_with(key.clone(), again(Cause::Timer).after(delay));
                count(&counters.requeue_after);
                PassOutcome::RequeueAfter(delay)
            }
            Requeue::Never | Requeue::After(_) => {
                self.queue.forget(key);
                count(&counters.success);
                if self.options.broken.is(Rule::ComesBackUnasked) {
                    let delay = std::time::Duration::from_secs(1);
                    self.queue.add_with(key.clone(), again(Cause::Timer).after(delay));
                }
                PassOutcome::Success
            }
            Requeue::RateLimited => {
                self.queue.add_with(key.clone(), again(Cause::Retry).rate_limited());
                count(&counters.requeue);
                PassOutcome::Requeue
            }
        };
        tracing::debug!(?action, "reconciled");
        remembered
    }

    fn fail(&self, item: &Item<'_, R>, error: &BoxError) {
        let (key, counters) = (item.key(), &self.shared.counters);
        if is_terminal(&**error) {
            count(&counters.terminal);
            tracing::error!(error = chain(&**error), "reconcile failed for good");
            return;
        }
        let attempt = self.queue.num_requeues(key).saturating_add(1);
        if self.options.attempts_max.is_some_and(|max| attempt >= max) {
            self.queue.forget(key);
            count(&counters.given_up);
            tracing::error!(
                error = chain(&**error),
                attempt,
                "reconcile failed too often: given up"
            );
            self.tell_given_up(key, attempt, error);
            return;
        }
        let again = self.again(item, Cause::Retry, priority_of(&**error));
        if self.options.broken.is(Rule::RetriesAtOnce) {
            return self.queue.add_with(key.clone(), again);
        }
        if self.options.broken.is(Rule::ForgetsFailures) {
            return;
        }
        self.queue.add_failed(key.clone(), &**error, again);
        tracing::warn!(error = chain(&**error), attempt, "reconcile failed");
    }

    /// How a key that comes back is added: at the priority that its pass names, or else the one
    /// that it came with (PQ-44, RES-12).
    fn again(&self, item: &Item<'_, R>, cause: Cause, priority: Option<i32>) -> AddOptions {
        AddOptions::default().tag(cause.tag()).priority(priority.unwrap_or(item.priority()))
    }

    /// Tells an object's readers that nothing more will be tried, where keys are names of objects.
    fn tell_given_up(&self, key: &R, attempt: u32, error: &BoxError) {
        let request = (key as &dyn Any).downcast_ref::<Request>();
        let (Some(kind), Some(request)) = (&self.options.kind, request) else { return };
        let regarding = ObjectReference {
            api_version: kind.group_version().to_string(),
            kind: kind.kind.to_string(),
            namespace: request.namespace.to_string(),
            name: request.name.to_string(),
            ..ObjectReference::default()
        };
        let message = format!("gave up after {attempt} attempts: {}", chain(&**error));
        self.home.recorder.warning(&regarding, "ReconcileGivenUp", message);
    }
}
