//! A reflector's news in the log.
use crate::reflector::{ReflectorError, ReflectorObserver};
use crate::resource_type::ResourceType;
use crate::source::SourceError;
use crate::status::chain;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes a reflector's failures to the log, and leaves it at that: for controllers that nobody
/// asks how they are doing.
#[derive(Debug, Clone)]
pub struct LogObserver {
    resource: String,
    /// The type was served.
    has_watched: Arc<AtomicBool>,
}

impl LogObserver {
    /// For a reflector of a type.
    pub fn new(resource_type: &ResourceType) -> Self {
        Self { resource: resource_type.to_string(), has_watched: Arc::default() }
    }
}

/// Levels as REF-32 has them: an expired version is nothing special, what passes by itself is
/// information. Neither is a type that was served and is gone.
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
