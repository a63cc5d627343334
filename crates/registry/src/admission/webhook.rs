//! Admission webhooks: `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook` (spec: admission
//! §4).
//!
//! # Theory
//!
//! ```text
//! watch cache ──▶ Configurations: hooks in call order, compiled once per version of a configuration
//!                     │
//! Review ──▶ match (rules, selectors, conditions) ──▶ objects in the hook's version ──▶ AdmissionReview
//!                     │                                                                   │ call
//!   mutating: one after the other, each sees the patches before it                        ▼
//!   validating: all at once; all finish                          verdict, patch, warnings, annotations
//! ```
//!
//! - A hook's configuration is found in the watch cache at each request, so it has effect as soon
//!   as the cache has it. While the cache is filled again, the last known hooks are called.
//! - A call that fails is the hook's `failurePolicy`: an error, or as if the hook were not there. A
//!   refusal, and a patch that cannot be applied, are errors with either policy.
//! - Objects are converted to the version of the rule that matched (`matchPolicy: Equivalent`),
//!   once for all hooks of that version.
//! - Subresources show their own kind: a Scale, an Eviction, a Binding.
//! - Objects of this API's own group are sent to the hooks of manifests only.
//! - A call ends with the hook's timeout or with the request, whichever is first. The client bounds
//!   the number of calls and the bytes.
//! - A long answer is read on another thread. A long patch is applied on another thread, on which
//!   the write goes on ([`crate::threads`]), and so does a write whose object has become large. A
//!   refusal has at most a thousand causes.
//! - Conditions in CEL run here if they are cheap, and on another thread if they are not
//!   ([`crate::threads`]).
mod condition;
mod configuration;
mod mutating;
mod response;
mod validating;

use super::manifests::Manifests;
use super::{Admission, Operation, Review, Stored};
use crate::webhook::{WebhookCaller, WebhookClients};
use configuration::Configurations;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use std::sync::Arc;

/// Maximum bytes of one audit annotation of a webhook; longer ones are cut.
///
/// 10 KiB, as Kubernetes' limit for the annotations of policies.
const ANNOTATION_BYTES_MAX: usize = 10 << 10;
/// Maximum characters of one warning of a webhook; longer ones are cut. As many as all warnings of
/// an answer may have.
const WARNING_CHARS_MAX: usize = 4096;

/// Calls the hooks of MutatingWebhookConfigurations.
#[derive(Debug)]
pub(super) struct MutatingAdmissionWebhook(Configurations);

/// Calls the hooks of ValidatingWebhookConfigurations.
#[derive(Debug)]
pub(super) struct ValidatingAdmissionWebhook(Configurations);

impl MutatingAdmissionWebhook {
    pub(super) fn new(clients: Arc<dyn WebhookClients>, manifests: Option<Manifests>) -> Self {
        let resource = "mutatingwebhookconfigurations";
        Self(Configurations::new(resource, WebhookCaller::Mutating, clients, manifests))
    }
}
impl ValidatingAdmissionWebhook {
    pub(super) fn new(clients: Arc<dyn WebhookClients>, manifests: Option<Manifests>) -> Self {
        let resource = "validatingwebhookconfigurations";
        Self(Configurations::new(resource, WebhookCaller::Validating, clients, manifests))
    }
}

impl Stored for MutatingAdmissionWebhook {
    fn may_see(&self, review: &Review<'_>) -> bool {
        self.handles(review) && self.0.may_match(review)
    }
}
impl Admission for MutatingAdmissionWebhook {
    fn name(&self) -> &str {
        "MutatingAdmissionWebhook"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        !self.0.hooks(review).is_empty() || self.0.are_known(review).is_err()
    }
    fn mutates(&self, _operation: Operation) -> bool {
        true
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            self.0.are_known(review)?;
            mutating::mutate(self.0.hooks(review), review, object).await
        }
        .boxed()
    }
}

impl Stored for ValidatingAdmissionWebhook {
    fn may_see(&self, review: &Review<'_>) -> bool {
        self.handles(review) && self.0.may_match(review)
    }
}
impl Admission for ValidatingAdmissionWebhook {
    fn name(&self) -> &str {
        "ValidatingAdmissionWebhook"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        !self.0.hooks(review).is_empty() || self.0.are_known(review).is_err()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            self.0.are_known(review)?;
            validating::validate(self.0.hooks(review), review, object).await
        }
        .boxed()
    }
}

/// Why a hook did not admit a request.
#[derive(Debug)]
enum Failure {
    /// It could not be called, or its answer could not be used: the failure policy decides. The
    /// text after `failed calling webhook "…": `.
    Call(String),
    /// The request is refused.
    Refused(ApiError),
}
impl Failure {
    /// The error for a hook that fails closed.
    fn closed(self, hook: &str) -> ApiError {
        match self {
            Self::Call(text) => {
                ApiError::internal(format_args!("failed calling webhook {hook:?}: {text}"))
            }
            Self::Refused(error) => error,
        }
    }
}
