//! Where an informer's state is written for others to see.
use crate::reflector::{ReflectorError, ReflectorObserver};
use crate::status::{Degraded, InformerStatus, chain};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// Told of every failure of a reflector; for visibility only (REF-32).
pub type ErrorHandler = Arc<dyn Fn(&ReflectorError) + Send + Sync>;

pub(crate) struct Board {
    pub(super) status: watch::Sender<InformerStatus>,
    resource: String,
    on_error: Option<ErrorHandler>,
    resource_version: Mutex<String>,
}

impl Board {
    pub(super) fn new(resource: String, on_error: Option<ErrorHandler>) -> Self {
        Self {
            status: watch::Sender::default(),
            resource,
            on_error,
            resource_version: Mutex::default(),
        }
    }

    pub(super) fn last_resource_version(&self) -> Arc<str> {
        Arc::from(self.resource_version.lock().as_str())
    }

    pub(super) fn synced(&self) {
        self.status.send_if_modified(|status| !std::mem::replace(&mut status.has_synced, true));
    }

    pub(super) fn stopped(&self) {
        self.status.send_if_modified(|status| !std::mem::replace(&mut status.has_stopped, true));
    }

    fn degrade(&self, error: &Arc<ReflectorError>) {
        self.status.send_modify(|status| {
            let degraded = status.degraded.get_or_insert_with(|| Degraded {
                since: Instant::now(),
                failures: 0,
                error: error.clone(),
            });
            degraded.failures = degraded.failures.saturating_add(1);
            degraded.error = error.clone();
        });
    }

    fn tell(&self, error: &ReflectorError) {
        if let Some(on_error) = &self.on_error {
            on_error(error);
        }
    }
}

impl ReflectorObserver for Board {
    fn failed(&self, error: Arc<ReflectorError>) {
        if error.source_error().is_some_and(|source| source.is_expired()) {
            tracing::debug!(resource = self.resource, "{}", chain(&*error));
        } else {
            tracing::warn!(resource = self.resource, "{}", chain(&*error));
        }
        self.degrade(&error);
        self.tell(&error);
    }

    fn retrying(&self, error: Arc<ReflectorError>) {
        tracing::info!(resource = self.resource, "{}", chain(&*error));
        self.degrade(&error);
    }

    fn skipped(&self, error: Arc<ReflectorError>) {
        tracing::error!(resource = self.resource, "{}", chain(&*error));
        self.tell(&error);
    }

    fn watching(&self) {
        self.status.send_if_modified(|status| status.degraded.take().is_some());
    }

    fn reached(&self, resource_version: &str) {
        resource_version.clone_into(&mut self.resource_version.lock());
    }
}
