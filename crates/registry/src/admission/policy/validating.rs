//! Validating policies: failures and what becomes of them.
use super::evaluate::{self, Failed, Outcome};
use super::input::{self, Input, TOO_MANY_AUTHORIZATIONS};
use super::stored::{Binding, Hook, Policies, Policy};
use super::{params, refused};
use crate::admission::matching::Matched;
use crate::admission::{Review, subject};
use serde_json::{Value, json};
use setpoint_object::{ApiError, Reason};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum bytes of an audit annotation; longer ones are cut.
const ANNOTATION_BYTES_MAX: usize = 10 << 10;

/// Evaluates the policies that a request concerns. `object` is the object to store; `None` on
/// delete.
///
/// # Errors
///
/// The first failure whose action is Deny. All policies are evaluated before.
pub(super) async fn validate(
    policies: &Policies,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<(), ApiError> {
    policies.are_known(review)?;
    let name = subject::name(review, object);
    let mut request = Request { review, object, name, namespace: None, denied: None };
    for hook in policies.hooks(review).iter() {
        match hook.policy.criteria.matches(review, object, name).await {
            Ok(None) => {}
            Ok(Some(matched)) => request.evaluate(policies, hook, matched).await?,
            Err(error) => {
                request.fail(&hook.policy, None, &format!("failed to configure policy: {error}"));
            }
        }
    }
    match request.denied {
        None => Ok(()),
        Some((text, reason)) => {
            let mut error = refused(review, name, &[text]);
            error.0.reason = reason.as_str().to_owned();
            error.0.code = Some(match reason {
                Reason::Forbidden => 403,
                Reason::RequestEntityTooLarge => 413,
                _ => 422,
            });
            Err(error)
        }
    }
}

/// A request under review.
struct Request<'r> {
    review: &'r Review<'r>,
    object: Option<&'r Value>,
    name: &'r str,
    namespace: Option<Arc<Value>>,
    /// The first refusal.
    denied: Option<(String, Reason)>,
}
impl Request<'_> {
    async fn evaluate(
        &mut self,
        policies: &Policies,
        hook: &Hook,
        matched: Matched,
    ) -> Result<(), ApiError> {
        let (review, policy) = (self.review, &hook.policy);
        let row = match params::row(review, policy) {
            Ok(row) => row,
            Err(text) => {
                self.fail(policy, None, &text);
                return Ok(());
            }
        };
        let mut prepared = None;
        let mut annotations = BTreeMap::new();
        for binding in &hook.bindings {
            match binding.matches(review, self.object, self.name).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    let text = format!("failed to configure binding: {error}");
                    self.fail(policy, Some(binding), &text);
                    continue;
                }
            }
            let found = match params::of(binding, row.as_deref(), (review, false), self.name).await
            {
                Ok(found) => found,
                Err(text) => {
                    let text = format!("failed to configure binding: {text}");
                    self.fail(policy, Some(binding), &text);
                    continue;
                }
            };
            for params in found {
                let (input, programs) = match &prepared {
                    Some(prepared) => prepared,
                    None => {
                        let namespace = self.namespace().await?;
                        let input =
                            Input::new(review, &matched, self.object, namespace, false).await?;
                        let programs = policies.programs(policy, review).await?;
                        prepared.insert((Arc::new(input), programs))
                    }
                };
                let (own, programs) = (input.clone(), programs.clone());
                let evaluate = move |place| evaluate::validations(&programs, &own, &params, place);
                let begun = Instant::now();
                let outcome = input::run(review, &input.questions, evaluate).await?;
                let outcome =
                    outcome.unwrap_or_else(|| Outcome::failed(TOO_MANY_AUTHORIZATIONS.to_owned()));
                self.count(policy, binding, &outcome, begun.elapsed());
                self.act(policy, binding, outcome, &mut annotations);
            }
        }
        for (key, values) in annotations {
            review.annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
        Ok(())
    }
    async fn namespace(&mut self) -> Result<Arc<Value>, ApiError> {
        if self.namespace.is_none() {
            self.namespace = Some(input::namespace(self.review).await?);
        }
        Ok(self.namespace.clone().unwrap_or_default())
    }
    /// A policy or a binding cannot be evaluated.
    fn fail(&mut self, policy: &Policy, binding: Option<&Binding>, text: &str) {
        if !policy.fails_open {
            self.deny(policy, binding, text, Reason::Invalid);
        }
    }
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, text: &str, reason: Reason) {
        let with =
            binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let name = &policy.name;
        let text = format!("ValidatingAdmissionPolicy '{name}'{with} denied request: {text}");
        self.denied.get_or_insert((text, reason));
    }
    /// Counts what comes of each failed expression. Others are not counted, as there.
    fn count(&self, policy: &Policy, binding: &Binding, outcome: &Outcome, took: Duration) {
        let counts = &self.review.inner.figures.policies;
        let names: [&str; 2] = [&policy.name, &binding.name];
        for failed in &outcome.failures {
            let message = &failed.message;
            if failed.is_error && policy.fails_open {
                counts.validated(names, message, "allow", took);
                continue;
            }
            for action in &binding.actions {
                counts.validated(names, message, &action.to_ascii_lowercase(), took);
            }
        }
    }
    /// Takes the actions of a binding.
    fn act(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        outcome: Outcome,
        annotations: &mut BTreeMap<String, Vec<String>>,
    ) {
        let counts = |is_error: bool| !is_error || !policy.fails_open;
        for failed in outcome.failures.iter().filter(|failed| counts(failed.is_error)) {
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => self.deny(policy, Some(binding), &failed.message, failed.reason),
                    "Warn" => self.review.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        policy.name, binding.name, failed.message
                    )),
                    "Audit" => {
                        let value = failure(policy, binding, failed);
                        let key = "validation.policy.admission.k8s.io/validation_failure";
                        self.review.annotate(key, value);
                    }
                    _ => {}
                }
            }
        }
        for (key, mut value) in outcome.annotations {
            let mut end = value.len().min(ANNOTATION_BYTES_MAX);
            while !value.is_char_boundary(end) {
                end -= 1;
            }
            value.truncate(end);
            let values = annotations.entry(key).or_default();
            let bytes: usize = values.iter().map(String::len).sum();
            if !values.contains(&value) && bytes < ANNOTATION_BYTES_MAX {
                values.push(value);
            }
        }
        for text in outcome.annotation_errors {
            self.fail(policy, Some(binding), &text);
        }
    }
}

/// The audit annotation of a failure: its members have Kubernetes' order.
fn failure(policy: &Policy, binding: &Binding, failed: &Failed) -> String {
    let members = [
        ("message", json!(failed.message)),
        ("policy", json!(policy.name)),
        ("binding", json!(binding.name)),
        ("expressionIndex", json!(failed.index)),
        ("validationActions", json!(binding.actions)),
    ];
    let members = members.map(|(name, value)| format!("{name:?}:{value}"));
    format!("[{{{}}}]", members.join(","))
}
