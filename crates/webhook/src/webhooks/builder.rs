//! Filling the table.

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

/// Why a webhook cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The path has a webhook already (WHK-1).
    #[error("a webhook is registered at {path} already")]
    PathTaken {
        /// The path.
        path: String,
    },
    /// The path is not one (WHK-5).
    #[error("webhook path {path:?} is not / or /segments of letters, digits, - and _")]
    PathInvalid {
        /// The path.
        path: String,
    },
    /// The kind has a conversion already.
    #[error("a conversion is registered for {kind} already")]
    KindTaken {
        /// The kind.
        kind: GroupKind,
    },
}

/// Fills a table of webhooks. The first thing that is wrong comes out of [`build`](Self::build).
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
    /// Changes objects of this type, at [`path::mutate`] of its kind.
    pub fn mutate<K>(self, mutator: impl Mutator<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static,
    {
        self.admission(path::mutate(&path::kind_of::<K>()), Mutating::<K, _>::new(mutator))
    }

    /// Judges objects of this type, at [`path::validate`] of its kind.
    pub fn validate<K>(self, validator: impl Validator<K>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        self.admission(path::validate(&path::kind_of::<K>()), Validating::<K, _>::new(validator))
    }

    /// Answers admission requests at a path of your own: [`Mutating`] or [`Validating`] of a
    /// dynamic type, a [`Chain`](crate::Chain), or a function of the raw request.
    pub fn admission(self, path: impl Into<String>, handler: impl AdmissionHandler) -> Self {
        self.endpoint(path.into(), Endpoint::Admission(Arc::new(handler)))
    }

    /// Converts a kind, at [`path::CONVERT`]. All kinds share the path.
    pub fn convert(mut self, kind: KindConversion) -> Self {
        if let Err(kind) = self.conversions.add(kind) {
            self.wrong.get_or_insert(RegisterError::KindTaken { kind });
        }
        self
    }

    /// Answers token reviews at a path.
    pub fn authenticate(self, path: impl Into<String>, authenticator: impl Authenticator) -> Self {
        self.endpoint(path.into(), Endpoint::Authentication(Arc::new(authenticator)))
    }

    /// Whether a handler's panic is turned into a denial with code 500 (WHK-4). On by default. Off,
    /// it unwinds through [`Webhooks::handle`], and ends a `WebhookServer` with an error. A program
    /// that aborts on panics has no say in it.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.recovers_panics = recovers;
        self
    }

    /// Who counts. Nobody by default.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The table.
    ///
    /// # Errors
    ///
    /// When a path or a kind was given twice, or a path is invalid: the first such.
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
