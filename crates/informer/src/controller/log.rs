//! Logs the events of a reflector.
use crate::failure::chain;
use crate::reflector::{ReflectorError, ReflectorObserver};
use crate::resource_type::ResourceType;
use crate::source::SourceError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Logs the failures of a reflector, for controllers without another observer.
#[derive(Debug, Clone)]
pub struct LogObserver {
    resource: String,
    /// A watch was open once, so the type was served.
    has_watched: Arc<AtomicBool>,
}

impl LogObserver {
    /// For a reflector of a type.
    pub fn new(resource_type: &ResourceType) -> Self {
        Self { resource: resource_type.to_string(), has_watched: Arc::default() }
    }
}

/// Levels as in REF-32: debug for an expired version and for a type that was served and is gone,
/// info for ordinary failures.
impl ReflectorObserver for LogObserver {
    fn failed(&self, error: Arc<ReflectorError>) {
        let is_gone = |source: &SourceError| {
            source.is_not_found() && self.has_watched.load(Ordering::Relaxed)
        };
        if error.source_error().is_some_and(|source| source.is_expired() || is_gone(source)) {
            tracing::debug!(resource = self.resource, "{}", chain(&*error));
        } else {
            tracing::warn!(resource = self.resource, "{}", chain(&*error));
        }
    }

    fn retrying(&self, error: Arc<ReflectorError>) {
        tracing::info!(resource = self.resource, "{}", chain(&*error));
    }

    fn skipped(&self, error: Arc<ReflectorError>) {
        tracing::error!(resource = self.resource, "{}", chain(&*error));
    }

    fn watching(&self) {
        self.has_watched.store(true, Ordering::Relaxed);
    }

    fn reached(&self, _resource_version: &str) {}
}
