//! Builds the options of one level.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use setpoint_informer::{CachePolicy, transform::TransformError};
use setpoint_object::Prune;

use super::{ByType, CacheConfig, NAMESPACES_MAX, Namespaces};

impl CacheConfig {
    /// Inherits everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Caches only objects whose labels match this selector in the query form. Empty selects
    /// everything.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Caches only objects whose fields match this selector in the query form. Empty selects
    /// everything.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Changes every object before it is cached; see
    /// [`Transform`](setpoint_informer::transform::Transform).
    pub fn transform(
        mut self,
        transform: impl Fn(Bytes) -> Result<Bytes, TransformError> + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Removes fields from objects before they are cached.
    pub fn prune(mut self, prune: Prune) -> Self {
        self.prune = Some(prune);
        self
    }

    /// Whether caches keep `metadata.managedFields`.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.keep_managed_fields = Some(keep);
        self
    }

    /// The form in which objects are stored.
    pub fn policy(mut self, policy: CachePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The resync period. Zero disables it.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }
}

impl ByType {
    /// Inherits everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The options for all objects of the type.
    pub fn config(mut self, config: CacheConfig) -> Self {
        self.config = config;
        self
    }

    /// Caches only the objects of these namespaces, in place of those of all types. Without names,
    /// all namespaces are cached. [`CacheOptions::of`](super::CacheOptions::of) checks them.
    pub fn namespaces<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let named = |name: N| (name.into(), CacheConfig::default());
        // Takes one more than the maximum, so that an endless iterator ends.
        self.namespaces_with(names.into_iter().take(NAMESPACES_MAX + 1).map(named).collect())
    }

    /// [`namespaces`](Self::namespaces), each with its own options.
    pub fn namespaces_with(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = Some(namespaces);
        self
    }
}
