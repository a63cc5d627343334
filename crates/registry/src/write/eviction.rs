//! `pods/eviction`: a delete that asks disruption budgets first (spec: api-server §5.6).
use super::Write;
use super::binding::success;
use super::persist::Outcome;
use super::update::Changed;
use crate::allocate::Claims;
use crate::attributes::Target;
use crate::kind::set_condition;
use crate::request::{Body, DeleteOptions, PropagationPolicy, WriteOptions, Written};
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::table::cell::condition_is_true;
use serde_json::{Value, json};
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::status::{Cause, Details};
use setpoint_object::{ApiError, GroupVersionKind, Reason, Scope, encode, keys};
use setpoint_store::{KeyValue, RangeRequest};

/// Pods that are recorded as going, at most, in one budget: as kube-apiserver's `MaxDisruptedPodSize`.
const DISRUPTED_PODS_MAX: usize = 2000;
/// How often a budget that moves under the request is read again: as kube-apiserver's `EvictionsRetry` steps.
const ATTEMPTS_MAX: usize = 20;

impl Write<'_> {
    /// POST of an Eviction.
    pub(super) async fn evict(&self, body: &Body) -> Result<Written, ApiError> {
        let eviction = self.decode_as(&GroupVersionKind::new("policy", "v1", "Eviction"), body)?;
        if !eviction.name().is_empty() && eviction.name() != self.target.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = delete_options(&eviction["deleteOptions"], self.options.dry_run);
        // The body may ask for a dry run by itself.
        let write_options = WriteOptions { dry_run: options.dry_run, ..self.options.clone() };
        let write = Write { options: &write_options, ..*self };
        for _ in 0..ATTEMPTS_MAX {
            if let Some(evicted) = write.attempt_eviction(&options).await? {
                return Ok(evicted);
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), &self.target.name))
    }
    /// One attempt. `None`: the pod has changed, perhaps so that a budget guards it now.
    async fn attempt_eviction(&self, asked: &DeleteOptions) -> Result<Option<Written>, ApiError> {
        let (pod, found) = self.stored_target().await?;
        self.check_preconditions(&pod, found.modified, asked)?;
        // What is decided by this state of the pod holds for this state only.
        let pinned = || {
            let version = asked.resource_version.clone();
            let version = version.unwrap_or_else(|| found.modified.to_string());
            DeleteOptions { resource_version: Some(version), ..asked.clone() }
        };
        let has_moved = |error: &ApiError| {
            error.reason() == Reason::Conflict && asked.resource_version.is_none()
        };
        let phase = pod["status"]["phase"].as_str();
        if !pod.deletion_timestamp().is_empty() || matches!(phase, Some("Succeeded" | "Failed")) {
            // It disrupts nothing any more.
            return self.mark_and_delete(asked.clone()).await.map(Some);
        }
        if phase == Some("Pending") {
            return match self.mark_and_delete(pinned()).await {
                Err(error) if has_moved(&error) => Ok(None),
                ended => ended.map(Some),
            };
        }
        if let Some(budget) = self.budget_of(&pod).await? {
            let present = tree(&budget.value)?;
            if !condition_is_true(&pod, "Ready") && spares_unready(&present) {
                return match self.mark_and_delete(pinned()).await {
                    Err(error) if has_moved(&error) => Err(in_progress(present.name())),
                    ended => ended.map(Some),
                };
            }
            self.take_from(budget, &pod).await?;
        }
        self.mark_and_delete(asked.clone()).await.map(Some)
    }
    /// Notes in the pod's status why it goes, and deletes it. The update that notes it looks at the
    /// preconditions, too: they hold for the state that it changes.
    async fn mark_and_delete(&self, mut options: DeleteOptions) -> Result<Written, ApiError> {
        if !options.dry_run {
            let marked = Target { subresource: Some(Subresource::Status), ..self.target.clone() };
            let write = Write { target: &marked, ..*self };
            let marked = write
                .change(&mut |pod, revision| {
                    write.check_preconditions(pod, revision, &options)?;
                    let mut object = pod.clone();
                    let condition = json!({
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "EvictionByEvictionAPI",
                        "message": "Eviction API: evicting",
                    });
                    set_condition(&mut object, condition, write.now);
                    // Kubernetes records no manager for this.
                    Ok(Changed { object, owned: true })
                })
                .await?;
            if options.resource_version.is_some() {
                let version = tree(&marked.object.bytes)?.resource_version().to_owned();
                options.resource_version = Some(version);
            }
        }
        let target = Target { subresource: None, ..self.target.clone() };
        Write { target: &target, ..*self }.delete(&options).await?;
        Ok(success())
    }
    /// The budget that covers a pod.
    async fn budget_of(&self, pod: &Value) -> Result<Option<KeyValue>, ApiError> {
        let budgets = keys::built_in_prefix("policy", "poddisruptionbudgets");
        let prefix = keys::collection(&budgets, Scope::Namespaced, &self.target.namespace);
        let found = self.inner.store.range(RangeRequest::prefix(prefix)).await;
        let entries = found.map_err(crate::stored::store_error)?.value.entries;
        let labels = &pod["metadata"]["labels"];
        let mut matching = Vec::new();
        for entry in entries {
            let budget = tree(&entry.value)?;
            let covers = Selector::from_object(&budget["spec"]["selector"])
                .ok()
                .flatten()
                .is_some_and(|s| s.matches(|key| labels.get(key).and_then(Value::as_str)));
            if covers {
                matching.push(entry);
            }
        }
        if matching.len() > 1 {
            return Err(ApiError::unclassified(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        Ok(matching.pop())
    }
    /// Takes one disruption from a budget.
    async fn take_from(&self, found: KeyValue, pod: &Value) -> Result<(), ApiError> {
        let key = found.key.clone();
        let mut live = Some(found);
        for _ in 0..ATTEMPTS_MAX {
            let Some(found) = live else { return Ok(()) };
            let mut budget = tree(&found.value)?;
            charge(&mut budget, pod, self)?;
            if self.options.dry_run {
                return Ok(());
            }
            let encoded = encode::to_bytes(&budget);
            let none = Claims::default();
            let write =
                self.put(key.clone(), Some(found.modified), encoded, &mut budget, true, &none);
            match write.await? {
                (Outcome::Done(_), _) => return Ok(()),
                (Outcome::Lost(newer), _) => live = newer,
            }
        }
        Err(ApiError::too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            10,
        ))
    }
}
/// Takes one disruption, or says why not.
fn charge(budget: &mut Value, pod: &Value, write: &Write<'_>) -> Result<(), ApiError> {
    let name = budget.name().to_owned();
    let status = &budget["status"];
    let generation = super::metadata::integer(budget, "generation").unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
        return Err(in_progress(&name));
    }
    let number = |member: &str| status[member].as_i64().unwrap_or(0);
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        let message = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("desiredHealthy"),
            number("currentHealthy")
        );
        return Err(refusal(message, 0));
    }
    if status["disruptedPods"].as_object().is_some_and(|p| p.len() > DISRUPTED_PODS_MAX) {
        return Err(ApiError::new(
            403,
            Reason::Forbidden,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][pod.name()] = write.now.rfc3339().into();
    Ok(())
}
/// Whether a budget lets pods go that are not ready, without being charged: it says always, or
/// enough others are healthy.
fn spares_unready(budget: &Value) -> bool {
    let number = |member: &str| budget["status"][member].as_i64().unwrap_or(0);
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || current >= desired && desired > 0
}
/// 429: the budget's numbers are not of this moment.
fn in_progress(budget: &str) -> ApiError {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    refusal(message, 10)
}
fn refusal(message: String, retry_after_seconds: u32) -> ApiError {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
    let mut error = ApiError::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after_seconds,
    );
    error.0.details.get_or_insert_with(Details::default).causes.push(cause);
    error
}
fn delete_options(options: &Value, dry_run: bool) -> DeleteOptions {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    DeleteOptions {
        dry_run: dry_run || options["dryRun"].as_array().is_some_and(|d| !d.is_empty()),
        grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
        propagation: match options["propagationPolicy"].as_str() {
            Some("Orphan") => Some(PropagationPolicy::Orphan),
            Some("Foreground") => Some(PropagationPolicy::Foreground),
            Some("Background") => Some(PropagationPolicy::Background),
            _ => None,
        },
        orphan_dependents: options["orphanDependents"].as_bool(),
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
    }
}
