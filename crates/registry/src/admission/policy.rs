//! Admission policies: `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy` (spec: admission
//! §5, §6).
//!
//! # Theory
//!
//! ```text
//! watch cache ──▶ policies and their bindings ──▶ Programs: expressions, compiled when first used
//!                      │
//! Review ──▶ match (policy, binding) ──▶ params ──▶ conditions ──▶ validations: failures ──▶ actions
//!                                                            └──▶ mutations: patches ──▶ the next object
//! ```
//!
//! - A policy has effect through its bindings. Each binding is evaluated once per object that its
//!   `paramRef` refers to.
//! - Expressions run on the caller's thread while they are cheap. A costlier evaluation starts over
//!   on another thread ([`crate::threads`]), so no request holds its thread for long. Expressions
//!   cannot wait: what they ask the authorizer is asked between two evaluations.
//! - A variable of a policy is evaluated when it is first read, and once. Its reader is started
//!   again then, so a chain of variables needs no deep stack.
//! - What fails for another reason than a validation follows the policy's `failurePolicy`.
//! - Compiled expressions are kept with their policy, and are dropped together when they have more
//!   than [`programs::SOURCE_BYTES_MAX`] bytes of source.
mod evaluate;
mod input;
mod mutating;
mod params;
mod patch;
mod programs;
mod stored;
mod validating;

use super::manifests::Manifests;
use super::{Admission, Operation, Review, Stored};
use crate::features::Feature;
use crate::kind::admissionregistration::{MUTATING_POLICY, VALIDATING_POLICY};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::status::Cause;
use stored::Policies;

/// Evaluates ValidatingAdmissionPolicies.
#[derive(Debug)]
pub(super) struct ValidatingAdmissionPolicy(Policies);

/// Evaluates MutatingAdmissionPolicies.
#[derive(Debug)]
pub(super) struct MutatingAdmissionPolicy(Policies);

impl ValidatingAdmissionPolicy {
    pub(super) fn new(manifests: Option<Manifests>) -> Self {
        let resources = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        Self(Policies::new(resources, manifests))
    }
}
impl MutatingAdmissionPolicy {
    pub(super) fn new(manifests: Option<Manifests>) -> Self {
        let resources = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
        Self(Policies::new(resources, manifests))
    }
}

impl Stored for ValidatingAdmissionPolicy {
    fn may_see(&self, review: &Review<'_>) -> bool {
        self.handles(review) && self.0.may_match(review)
    }
}
impl Admission for ValidatingAdmissionPolicy {
    fn name(&self) -> &str {
        VALIDATING_POLICY
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        !self.0.hooks(review).is_empty() || self.0.are_known(review).is_err()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        validating::validate(&self.0, review, object).boxed()
    }
}

impl Stored for MutatingAdmissionPolicy {
    fn may_see(&self, review: &Review<'_>) -> bool {
        self.handles(review) && self.0.may_match(review)
    }
}
impl Admission for MutatingAdmissionPolicy {
    fn name(&self) -> &str {
        MUTATING_POLICY
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.inner.features.is_on(Feature::MutatingAdmissionPolicy)
            && (!self.0.hooks(review).is_empty() || self.0.are_known(review).is_err())
    }
    fn mutates(&self, operation: Operation) -> bool {
        operation != Operation::Delete
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        mutating::mutate(&self.0, review, object).boxed()
    }
}

/// The error of a request that policies refuse. Each text becomes a cause. `name`: of the object.
fn refused(review: &Review<'_>, name: &str, texts: &[String]) -> ApiError {
    let shown = if name.is_empty() { "Unknown" } else { name };
    let first = texts.first().map(String::as_str).unwrap_or_default();
    let mut error = ApiError::forbidden(&review.group_resource(), shown, first);
    let cause = |text: &String| Cause {
        reason: String::new(),
        message: text.clone(),
        field: String::new(),
    };
    let details = error.0.details.get_or_insert_default();
    details.causes.extend(texts.iter().map(cause));
    error
}
