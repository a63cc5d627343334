//! Publishes the state of an informer.
use crate::backoff::SPAN_MAX;
use crate::failure::{FailureObserver, chain};
use crate::metrics::{self, Metrics};
use crate::object::DecodeError;
use crate::reflector::{ReflectorError, ReflectorObserver};
use crate::source::SourceError;
use crate::status::{Degraded, InformerStatus};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// Called with every failure of a reflector; for visibility only (REF-32).
pub type ErrorHandler = Arc<dyn Fn(&ReflectorError) + Send + Sync>;

pub(crate) struct Board {
    pub(super) status: watch::Sender<InformerStatus>,
    /// Wakes the callers that wait for a change of the status, in order of arrival. A `watch` wakes
    /// in random order, so that two runs with one seed would differ.
    moved_on: Notify,
    resource: String,
    /// The informer's name in logs; empty if it has none.
    name: Arc<str>,
    on_error: Option<ErrorHandler>,
    resource_version: Mutex<String>,
    metrics: Option<Arc<dyn Metrics>>,
}

impl Board {
    pub(super) fn new(
        resource: String,
        name: Arc<str>,
        on_error: Option<ErrorHandler>,
        metrics: Option<Arc<dyn Metrics>>,
    ) -> Self {
        Self {
            status: watch::Sender::default(),
            moved_on: Notify::new(),
            resource,
            name,
            on_error,
            resource_version: Mutex::default(),
            metrics,
        }
    }

    pub(super) fn last_resource_version(&self) -> Arc<str> {
        Arc::from(self.resource_version.lock().as_str())
    }

    pub(super) fn synced(&self) {
        self.status.send_if_modified(|status| !std::mem::replace(&mut status.has_synced, true));
        self.moved_on.notify_waiters();
    }

    pub(super) fn stopped(&self) {
        self.status.send_if_modified(|status| !std::mem::replace(&mut status.has_stopped, true));
        self.moved_on.notify_waiters();
    }

    /// Waits for a change of the status. Cancel safe.
    pub(super) async fn wait_for(&self, is_so: impl Fn(&InformerStatus) -> bool) {
        loop {
            let mut moved_on = pin!(self.moved_on.notified());
            // From here on a change wakes this call, even one before the await.
            moved_on.as_mut().enable();
            if is_so(&self.status.borrow()) {
                return;
            }
            moved_on.await;
        }
    }

    /// Waits until the type has been refused for `patience`, and records it.
    pub(super) async fn give_up(&self, patience: Option<Duration>) {
        let Some(patience) = patience else { return std::future::pending().await };
        self.degraded_for(patience, |degraded| degraded.refused_since).await;
        self.status.send_modify(|status| status.has_given_up = true);
    }

    /// Waits until a state that began at `since` has lasted for `period`; `None` if the informer
    /// stops first. Cancel safe.
    pub(super) async fn degraded_for(
        &self,
        period: Duration,
        since: impl Fn(&Degraded) -> Option<Instant>,
    ) -> Option<Degraded> {
        loop {
            let mut moved_on = pin!(self.moved_on.notified());
            // From here on a change wakes this call, even one before the await.
            moved_on.as_mut().enable();
            let (degraded, has_stopped) = {
                let status = self.status.borrow();
                (status.degraded.clone(), status.has_stopped)
            };
            if has_stopped {
                return None;
            }
            let until =
                degraded.as_ref().and_then(&since).map(|since| since + period.min(SPAN_MAX));
            if until.is_some_and(|until| until <= Instant::now()) {
                return degraded;
            }
            tokio::select! {
                biased;
                // Cancel safe: the state is looked at again.
                () = moved_on => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
    }

    fn degrade(&self, error: &Arc<ReflectorError>) {
        self.status.send_modify(|status| {
            let degraded = status.degraded.get_or_insert_with(|| Degraded {
                since: Instant::now(),
                failures: 0,
                error: error.clone(),
                refused_since: None,
            });
            let is_refusal =
                matches!(error.source_error().and_then(|error| error.code()), Some(403 | 404));
            degraded.refused_since =
                is_refusal.then(|| degraded.refused_since.unwrap_or_else(Instant::now));
            degraded.failures = degraded.failures.saturating_add(1);
            degraded.error = error.clone();
        });
        self.moved_on.notify_waiters();
    }

    fn call_handler(&self, error: &ReflectorError) {
        if let Some(on_error) = &self.on_error {
            on_error(error);
        }
    }
}

impl FailureObserver for Board {
    fn panicked(&self, text: Arc<str>) {
        self.status.send_modify(|status| {
            status.panics += 1;
            status.last_panic = Some(text);
        });
    }

    fn unindexed(&self, index: &Arc<str>, error: DecodeError) {
        let (resource, index) = (self.resource.clone(), index.clone());
        let error = ReflectorError::Unindexed { resource, index, source: error };
        let text = Arc::from(chain(&error));
        tracing::error!(informer = &*self.name, resource = self.resource, "{text}");
        self.status.send_modify(|status| {
            status.unindexed += 1;
            status.last_unindexed = Some(text);
        });
        self.call_handler(&error);
    }
}

impl ReflectorObserver for Board {
    fn failed(&self, error: Arc<ReflectorError>) {
        // A type that was served before is not a failure: its definition was deleted.
        let is_gone =
            |source: &SourceError| source.is_not_found() && self.status.borrow().has_synced;
        if error.source_error().is_some_and(|source| source.is_expired() || is_gone(source)) {
            tracing::debug!(informer = &*self.name, resource = self.resource, "{}", chain(&*error));
        } else {
            tracing::warn!(informer = &*self.name, resource = self.resource, "{}", chain(&*error));
        }
        self.degrade(&error);
        self.call_handler(&error);
    }

    fn retrying(&self, error: Arc<ReflectorError>) {
        tracing::info!(informer = &*self.name, resource = self.resource, "{}", chain(&*error));
        self.degrade(&error);
    }

    fn skipped(&self, error: Arc<ReflectorError>) {
        tracing::error!(informer = &*self.name, resource = self.resource, "{}", chain(&*error));
        self.call_handler(&error);
    }

    fn watching(&self) {
        if self.status.send_if_modified(|status| status.degraded.take().is_some()) {
            self.moved_on.notify_waiters();
        }
    }

    fn reached(&self, resource_version: &str) {
        resource_version.clone_into(&mut self.resource_version.lock());
        if let Some(metrics) = &self.metrics
            && let Some(resource_version) = metrics::gauge(resource_version)
        {
            metrics.last_resource_version(resource_version);
        }
    }

    fn listed(&self, took: Duration, n_items: usize) {
        if let Some(metrics) = &self.metrics {
            metrics.listed(took, n_items);
        }
    }

    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.watched(took, n_events, is_short);
        }
    }
}
