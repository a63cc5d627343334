//! Mutating policies: one after the other, each sees the patches before it.
use super::input::{self, Input, TOO_MANY_AUTHORIZATIONS};
use super::programs::Programs;
use super::stored::{Binding, Hook, Policies, Policy};
use super::{evaluate, params, patch, refused};
use crate::admission::matching::Matched;
use crate::admission::mutated::{
    check_size, decode_other, decode_own, managed_fields, restore_entries,
};
use crate::admission::{Review, subject};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionKind, Reason, bounded};
use setpoint_schema::builtin;
use setpoint_schema::patch::may_multiply;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::time::Instant;

/// Evaluates the policies that a request concerns.
///
/// # Errors
///
/// A policy that fails closed has failed, or its patch has made another object than its type
/// allows.
pub(super) async fn mutate(
    policies: &Policies,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    if !subject::is_scale(review) {
        return round(policies, review, object).await;
    }
    let mut scale = subject::mutable_scale(review, object);
    let before = scale.clone();
    round(policies, review, &mut scale).await?;
    subject::put_scale(review.resource, object, &before, &scale)
}

/// Maximum bytes of the texts of failures: 1 MiB, as of the errors of an object. There may be one
/// for each object of a policy's params. Further ones are left out.
const FAILURES_BYTES_MAX: usize = 1 << 20;

/// The failures that count: their texts and reasons.
#[derive(Default)]
struct Failures {
    list: Vec<(String, Reason)>,
    n_bytes: usize,
    /// Those that are left out, too.
    n: usize,
}
impl Failures {
    fn push(&mut self, text: String, reason: Reason) {
        self.n += 1;
        if self.n_bytes <= FAILURES_BYTES_MAX {
            self.n_bytes += text.len();
            self.list.push((bounded::text(text, FAILURES_BYTES_MAX), reason));
        }
    }
    fn extend(&mut self, others: Self) {
        others.list.into_iter().for_each(|(text, reason)| self.push(text, reason));
    }
}

async fn round(
    policies: &Policies,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    policies.are_known(review)?;
    review.policy_reinvocation.lock().begin(object);
    let mut failed = Failures::default();
    let mut entries = None;
    let hooks = policies.hooks(review);
    let name = subject::name(review, Some(object)).to_owned();
    let concerned = concerned(&hooks, review, object, &name, &mut failed).await;
    if !concerned.is_empty() {
        let namespace = input::namespace(review).await?;
        entries = Some(managed_fields(object));
        let mut patched = Patched::default();
        for (hook, matched, bindings) in concerned {
            let mut of_hook = Failures::default();
            let namespace = namespace.clone();
            let mutation = Mutating { policies, review, hook, matched, namespace };
            mutation.mutate(&bindings, object, &name, (&mut of_hook, &mut patched)).await?;
            if !hook.policy.fails_open {
                failed.extend(of_hook);
            }
        }
        // All of this round, the last one, too, see the object again.
        if patched.last.is_some_and(|last| patched.kinds.contains(&last)) {
            review.policy_reinvocation.lock().has_mutated();
        }
    }
    if let Some(entries) = entries {
        restore_entries(review, object, entries);
    }
    review.policy_reinvocation.lock().end(object);
    let Some((first, reason)) = failed.list.first() else { return Ok(()) };
    let name = subject::name(review, Some(object));
    let (first, reason) = (first.clone(), *reason);
    let texts: Vec<String> = failed.list.into_iter().map(|(text, _)| text).collect();
    let mut error = refused(review, name, &texts);
    error.0.message = first;
    error.0.reason = reason.as_str().to_owned();
    Err(error)
}

/// A policy that a request matches, in which version, and its bindings that the request matches.
type Concerned<'h> = (&'h Hook, Matched, Vec<&'h Arc<Binding>>);

/// The policies that a request concerns. They are chosen before the first of them changes the
/// object. One that cannot be compared with the request has failed.
async fn concerned<'h>(
    hooks: &'h [Hook],
    review: &Review<'_>,
    object: &Value,
    name: &str,
    failed: &mut Failures,
) -> Vec<Concerned<'h>> {
    let mut concerned = Vec::new();
    for hook in hooks {
        let policy = &hook.policy;
        let mut fail = |text: String| {
            if !policy.fails_open {
                failed.push(text, Reason::Forbidden);
            }
        };
        let matched = match policy.criteria.matches(review, Some(object), name).await {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(error) => {
                let name = &policy.name;
                fail(format!(
                    "policy {name:?} denied request: failed to configure policy: {error}"
                ));
                continue;
            }
        };
        let mut bindings = Vec::new();
        for binding in &hook.bindings {
            match binding.matches(review, Some(object), name).await {
                Ok(true) => bindings.push(binding),
                Ok(false) => {}
                Err(error) => {
                    let text = format!("failed to configure binding: {error}");
                    fail(denied(policy, binding, &text));
                }
            }
        }
        concerned.push((hook, matched, bindings));
    }
    concerned
}

/// In which kinds a round has patched the object, whether or not that has changed it.
#[derive(Debug, Default)]
struct Patched {
    kinds: HashSet<GroupVersionKind>,
    /// The kind in which the last policy saw it.
    last: Option<GroupVersionKind>,
}

/// The evaluation of one policy.
struct Mutating<'m> {
    policies: &'m Policies,
    review: &'m Review<'m>,
    hook: &'m Hook,
    matched: Matched,
    namespace: Arc<Value>,
}
impl Mutating<'_> {
    async fn mutate(
        &self,
        bindings: &[&Arc<Binding>],
        object: &mut Value,
        name: &str,
        (failed, patched): (&mut Failures, &mut Patched),
    ) -> Result<(), ApiError> {
        let (review, policy) = (self.review, &self.hook.policy);
        let row = match params::row(review, policy) {
            Ok(row) => row,
            Err(text) => {
                let text = format!("policy {:?} denied request: {text}", policy.name);
                failed.push(text, Reason::Forbidden);
                return Ok(());
            }
        };
        for binding in bindings {
            let found = match params::of(binding, row.as_deref(), (review, true), name).await {
                Ok(found) => found,
                Err(text) => {
                    let text = format!("failed to configure binding: {text}");
                    failed.push(denied(policy, binding, &text), Reason::Forbidden);
                    continue;
                }
            };
            for params in found {
                let uid = format!(
                    "{}/{}/{}/{}",
                    policy.name,
                    binding.name,
                    params.namespace(),
                    params.name()
                );
                let (begun, n_failed) = (Instant::now(), failed.n);
                let invoked =
                    self.invoke((binding, &uid), params, object, (failed, patched)).await?;
                let is_error = failed.n > n_failed;
                if invoked || is_error {
                    let counts = &review.inner.figures.policies;
                    counts.mutated([&policy.name, &binding.name], is_error, begun.elapsed());
                }
                if invoked && policy.is_reinvoked {
                    review.policy_reinvocation.lock().has_called(uid);
                }
            }
        }
        Ok(())
    }
    /// Evaluates a binding with one object of its params. `false`: its conditions are not met, or
    /// it is not asked a second time.
    async fn invoke(
        &self,
        (binding, uid): (&Binding, &str),
        params: Arc<Value>,
        object: &mut Value,
        (failed, patched_kinds): (&mut Failures, &mut Patched),
    ) -> Result<bool, ApiError> {
        let (review, policy) = (self.review, &self.hook.policy);
        let row = match &self.matched {
            Matched::Request => review.resource,
            Matched::Equivalent(row) => row,
        };
        let programs = self.policies.programs(policy, review).await?;
        let mut fail = |text: &str| failed.push(denied(policy, binding, text), Reason::Invalid);
        let mut current = match subject::is_own_kind(review) {
            true => subject::in_version(review, row, object).await?.into_owned(),
            false => object.clone(),
        };
        let before = current.clone();
        let (own, input) = (programs.clone(), self.input(&current).await?);
        let (of_input, of_params) = (input.clone(), params.clone());
        let conditions = move |place| evaluate::conditions(&own, &of_input, &of_params, place);
        match input::run(review, &input.questions, conditions).await? {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(false),
            Some(Err(text)) => {
                fail(&text);
                return Ok(false);
            }
            None => {
                fail(TOO_MANY_AUTHORIZATIONS);
                return Ok(false);
            }
        }
        if !review.policy_reinvocation.lock().calls(uid) {
            return Ok(false);
        }
        let kind = subject::kind(review, row);
        for idx in 0..programs.mutations.len() {
            patched_kinds.last = Some(kind.clone());
            let made = self.patch(&programs, idx, &params, &current).await?;
            let patched = match made {
                Ok(made) => self.patched(&programs, idx, &current, made).await?,
                Err(text) => Err(text),
            };
            match patched {
                Ok(patched) => {
                    patched_kinds.kinds.insert(kind.clone());
                    current = patched.unwrap_or(current);
                }
                Err(text) => fail(&text),
            }
        }
        if current != before {
            review.policy_reinvocation.lock().has_mutated();
            *object = match subject::is_own_kind(review) {
                true => subject::in_version(review, review.resource, &current).await?.into_owned(),
                false => current,
            };
        }
        Ok(true)
    }
    async fn input(&self, object: &Value) -> Result<Arc<Input>, ApiError> {
        let namespace = self.namespace.clone();
        let input = Input::new(self.review, &self.matched, Some(object), namespace, true);
        input.await.map(Arc::new)
    }
    /// The patch that a mutation makes, as JSON. The inner error is the text for the client.
    async fn patch(
        &self,
        programs: &Arc<Programs>,
        idx: usize,
        params: &Arc<Value>,
        object: &Value,
    ) -> Result<Result<Value, String>, ApiError> {
        let (own, params, input) = (programs.clone(), params.clone(), self.input(object).await?);
        let of_input = input.clone();
        let patch = move |place| match own.mutations.get(idx) {
            Some(mutation) => evaluate::patch(&own, mutation, &of_input, &params, place),
            None => Some(Err("there is no such mutation".to_owned())),
        };
        let made = input::run(self.review, &input.questions, patch).await?;
        Ok(made.unwrap_or_else(|| Err(TOO_MANY_AUTHORIZATIONS.to_owned())))
    }
    /// The object after a patch; `None`: it stays. The inner error is the text for the client.
    ///
    /// # Errors
    ///
    /// 500: the object has not its type after a JSON patch.
    async fn patched(
        &self,
        programs: &Programs,
        idx: usize,
        object: &Value,
        made: Value,
    ) -> Result<Result<Option<Value>, String>, ApiError> {
        let review = self.review;
        review.thread.leave_if_large(&made).await;
        if made.as_array().is_some_and(|operations| may_multiply(operations)) {
            review.thread.leave().await;
        }
        let is_json_patch = programs.mutations.get(idx).is_some_and(|m| m.is_json_patch);
        let row = match &self.matched {
            Matched::Request => review.resource,
            Matched::Equivalent(row) => row,
        };
        let is_own = subject::is_own_kind(review);
        let kind = subject::kind(review, row);
        let patched = if is_json_patch {
            patch::carry_out(object, made)
        } else {
            let mut merged = object.clone();
            // Kubernetes takes types from the document of the kind's group and version, which has
            // those of subresources only if it is the resource's, too.
            let is_there = (&kind.group, &kind.version) == (&row.gvk.group, &row.gvk.version);
            let merge = match is_own {
                true => patch::merge(&row.schema, !row.has_go_type(), &mut merged, made),
                false => match builtin::type_schema(&kind.group, &kind.version, &kind.kind) {
                    Some(schema) if is_there => patch::merge(&schema, false, &mut merged, made),
                    _ => Err(untyped(&kind)),
                },
            };
            merge.map(|()| Some(merged))
        };
        let mut patched = match patched {
            Ok(Some(patched)) => patched,
            other => return Ok(other),
        };
        // What follows, also after admission, is work on the whole object.
        review.thread.leave_if_large(&patched).await;
        check_size(&patched)?;
        let decoded = match is_own {
            true => decode_own(row, &mut patched),
            false => decode_other(&kind, &mut patched),
        };
        let is_typed = !is_own || row.has_go_type();
        let problems = match decoded {
            Ok(problems) => problems,
            Err(error) if is_typed && !is_json_patch => return Ok(Err(unconverted(&kind, &error))),
            Err(error) => return Err(error),
        };
        if is_json_patch && is_typed && !problems.is_empty() {
            return Err(ApiError::internal(format_args!(
                "strict decoding error: {}",
                problems.join(", ")
            )));
        }
        Ok(Ok(Some(patched)))
    }
}
/// The text for a merged object that has not its type.
fn unconverted(kind: &GroupVersionKind, error: &ApiError) -> String {
    let text = error.detail();
    let by = if text.starts_with("illegal base64") { "error decoding from json: " } else { "" };
    let GroupVersionKind { group, version, kind } = kind;
    format!("unable to convert unstructured object to {group}/{version}, Kind={kind}: {by}{text}")
}
/// The text for a kind that Kubernetes does not find a type of.
fn untyped(GroupVersionKind { group, version, kind }: &GroupVersionKind) -> String {
    format!(
        "error applying patch: failed to convert patch object to typed object: no corresponding \
         type for {group}/{version}, Kind={kind}"
    )
}
fn denied(policy: &Policy, binding: &Binding, text: &str) -> String {
    format!("policy '{}' with binding '{}' denied request: {text}", policy.name, binding.name)
}
