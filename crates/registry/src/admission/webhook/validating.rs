//! Validating hooks: all at once.
use super::configuration::{Hook, Hooks};
use super::response::Patch;
use super::{Failure, condition, response};
use crate::admission::Review;
use crate::admission::matching::Matched;
use crate::admission::subject::{self, Subject};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use setpoint_object::ApiError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prefix of the audit annotations of hooks that fail open.
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";

/// Calls the hooks that a request concerns. `object` is the object to store; `None` on delete.
///
/// # Errors
///
/// The first refusal, or the first failed call of a hook that fails closed, in the order in which
/// they answer. All have answered then.
pub(super) async fn validate(
    hooks: Hooks,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<(), ApiError> {
    let name = subject::name(review, object);
    let mut subjects: BTreeMap<String, Subject<'_>> = BTreeMap::new();
    let mut called: Vec<(&Arc<Hook>, String)> = Vec::new();
    for hook in hooks.iter() {
        let matched = hook.criteria.matches(review, object, name).await?;
        let Some(matched) = matched else { continue };
        let version = match &matched {
            Matched::Request => String::new(),
            Matched::Equivalent(row) => row.group_version().to_string(),
        };
        if !subjects.contains_key(&version) {
            let subject = Subject::new(review, &matched, object, false).await?;
            subjects.insert(version.clone(), subject);
        }
        let Some(subject) = subjects.get(&version) else { continue };
        if condition::all_met(hook, review, subject).await? {
            called.push((hook, version));
        }
    }
    let subjects = &subjects;
    let calls = called.into_iter().enumerate().map(|(idx, (hook, version))| async move {
        match subjects.get(&version) {
            Some(subject) => (idx, hook, response::call(hook, review, subject, false).await),
            None => (idx, hook, Ok(Patch::default())),
        }
    });
    let mut calls: FuturesUnordered<_> = calls.collect();
    let mut first: Option<ApiError> = None;
    while let Some((idx, hook, answer)) = calls.next().await {
        match answer {
            Ok(_) => {}
            Err(Failure::Call(text)) if hook.fails_open => {
                tracing::warn!(hook = hook.name, error = text, "failed calling webhook");
                let key = format!("{FAILED_OPEN}/round_0_index_{idx}");
                review.annotate(key, hook.name.as_str());
            }
            Err(failure) => {
                first.get_or_insert(failure.closed(&hook.name));
            }
        }
    }
    first.map_or(Ok(()), Err)
}
