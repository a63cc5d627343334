//! `pods/eviction`: a delete that asks disruption budgets first (spec: api-server §5.6).
use super::Write;
use super::binding::success;
use super::persist::{Outcome, tree};
use super::update::Changed;
use crate::allocate::Claims;
use crate::attributes::Target;
use crate::kind::set_condition;
use crate::request::{Body, DeleteOptions, PropagationPolicy, WriteOptions, Written};
use crate::subresource::Subresource;
use serde_json::{Value, json};
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::status::{Cause, Details};
use setpoint_object::{ApiError, GroupVersionKind, Scope, encode, keys};
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
        let (pod, _) = self.stored_target().await?;
        let is_free = !pod.deletion_timestamp().is_empty()
            || matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"));
        if !is_free && let Some(budget) = self.budget_of(&pod).await? {
            self.take_from(budget, &pod).await?;
        }
        let target = Target { subresource: None, ..self.target.clone() };
        if !options.dry_run {
            let marked = Target { subresource: Some(Subresource::Status), ..self.target.clone() };
            let write = Write { target: &marked, ..*self };
            write
                .change(&mut |pod, _| {
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
        }
        let none = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        Write { target: &target, options: &none, ..*self }.delete(&options).await?;
        Ok(success())
    }
    /// The budget that covers a pod.
    async fn budget_of(&self, pod: &Value) -> Result<Option<KeyValue>, ApiError> {
        let budgets = keys::built_in_prefix("policy", "poddisruptionbudgets");
        let prefix = keys::collection(&budgets, Scope::Namespaced, &self.target.namespace);
        let found = self.inner.store.range(RangeRequest::prefix(prefix)).await;
        let entries = found.map_err(super::store_error)?.value.entries;
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
        let message =
            format!("The disruption budget {name} is still being processed by the server.");
        return Err(refusal(message, 10));
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
            setpoint_object::Reason::Forbidden,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][pod.name()] = write.now.rfc3339().into();
    Ok(())
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
