//! Builds the table of webhooks.

use super::{Endpoint, Inner, Webhooks};
use crate::admission::{AdmissionHandler, Mutating, Mutator, Validating, Validator};
use crate::authentication::Authenticator;
use crate::conversion::{Conversions, KindConversion};
use crate::metrics::Metrics;
use crate::path;
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use setpoint_object::GroupKind;
use std::collections::HashMap;
use std::sync::Arc;

/// Why a webhook cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The path already has a webhook (WHK-1).
    #[error("a webhook is registered at {path} already")]
    PathTaken {
        /// The path.
        path: String,
    },
    /// The path is invalid (WHK-5).
    #[error("webhook path {path:?} is not / or /segments of letters, digits, - and _")]
    PathInvalid {
        /// The path.
        path: String,
    },
    /// The kind already has a conversion.
    #[error("a conversion is registered for {kind} already")]
    KindTaken {
        /// The kind.
        kind: GroupKind,
    },
}

/// Builds a table of webhooks. [`build`](Self::build) returns the first error.
#[must_use = "a builder does nothing until `build`"]
pub struct WebhooksBuilder {
    endpoints: HashMap<Arc<str>, Endpoint>,
    conversions: Conversions,
    recovers_panics: bool,
    metrics: Arc<dyn Metrics>,
    wrong: Option<RegisterError>,
}

impl Default for WebhooksBuilder {
    fn default() -> Self {
        Self {
            endpoints: HashMap::new(),
            conversions: Conversions::default(),
            recovers_panics: true,
            metrics: Arc::new(()),
            wrong: None,
        }
    }
}

impl std::fmt::Debug for WebhooksBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhooksBuilder")
            .field("paths", &self.endpoints.keys())
            .field("conversions", &self.conversions)
            .finish_non_exhaustive()
    }
}

impl WebhooksBuilder {
    /// Adds a mutating webhook for this type, at [`path::mutate`] of its kind.
    pub fn mutate<K>(self, mutator: impl Mutator<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static,
    {
        self.admission(path::mutate(&path::kind_of::<K>()), Mutating::<K, _>::new(mutator))
    }

    /// Adds a validating webhook for this type, at [`path::validate`] of its kind.
    pub fn validate<K>(self, validator: impl Validator<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        self.admission(path::validate(&path::kind_of::<K>()), Validating::<K, _>::new(validator))
    }

    /// Adds a handler of admission requests at a custom path: [`Mutating`] or [`Validating`] of a
    /// dynamic type, a [`Chain`](crate::Chain), or a function of the raw request.
    pub fn admission(self, path: impl Into<String>, handler: impl AdmissionHandler) -> Self {
        self.endpoint(path.into(), Endpoint::Admission(Arc::new(handler)))
    }

    /// Adds the conversion of a kind, at [`path::CONVERT`]. All kinds share the path.
    pub fn convert(mut self, kind: KindConversion) -> Self {
        if let Err(kind) = self.conversions.add(kind) {
            self.wrong.get_or_insert(RegisterError::KindTaken { kind });
        }
        self
    }

    /// Adds a handler of token reviews at a path.
    pub fn authenticate(self, path: impl Into<String>, authenticator: impl Authenticator) -> Self {
        self.endpoint(path.into(), Endpoint::Authentication(Arc::new(authenticator)))
    }

    /// Whether a handler's panic becomes a denial with code 500 (WHK-4). Default: true. Otherwise
    /// the panic unwinds through [`Webhooks::handle`], and ends a `WebhookServer` with an error. It
    /// has no effect in a program that aborts on panics.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.recovers_panics = recovers;
        self
    }

    /// The metrics. Default: none.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Builds the table.
    ///
    /// # Errors
    ///
    /// If a path or a kind was given twice, or a path is invalid: the first such error.
    pub fn build(mut self) -> Result<Webhooks, RegisterError> {
        if !self.conversions.is_empty() {
            let conversions = std::mem::take(&mut self.conversions);
            self = self.endpoint(path::CONVERT.to_owned(), Endpoint::Conversion(conversions));
        }
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        self.endpoints.keys().for_each(|path| self.metrics.registered(path));
        Ok(Webhooks {
            inner: Arc::new(Inner {
                endpoints: self.endpoints,
                recovers_panics: self.recovers_panics,
                metrics: self.metrics,
            }),
        })
    }

    fn endpoint(mut self, path: String, endpoint: Endpoint) -> Self {
        if !path::is_valid(&path) {
            self.wrong.get_or_insert(RegisterError::PathInvalid { path });
        } else if self.endpoints.contains_key(&*path) {
            self.wrong.get_or_insert(RegisterError::PathTaken { path });
        } else {
            self.endpoints.insert(path.into(), endpoint);
        }
        self
    }
}
