//! `pods/eviction`: a delete that checks disruption budgets first (spec: api-server §5.6).
use super::Write;
use super::binding::success;
use super::change::{Changed, Owned, Present, Tracking};
use super::metadata::set_namespace;
use super::persist::Outcome;
use crate::admission::Operation;
use crate::allocate::Claims;
use crate::kind::core::pod::actions::{is_over, note_eviction};
use crate::kind::policy::pod_disruption_budget::charge::{charge, in_progress, spares_unready};
use crate::request::{
    Body, DeleteOptions, IGNORE_READ_ERROR, RawDeleteOptions, WriteOptions, Written,
};
use crate::routed::Target;
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::table::cell::condition_is_true;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupKind, GroupVersionKind, Reason, Scope, field, keys};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{KeyValue, RangeRequest};

/// How often a budget that changes during the request is read again: as kube-apiserver's
/// `EvictionsRetry` steps.
const ATTEMPTS_MAX: usize = 20;

impl Write<'_> {
    /// POST of an Eviction.
    pub(super) async fn evict(&self, body: &Body) -> Result<Written, ApiError> {
        let kind = GroupVersionKind::new("policy", "v1", "Eviction");
        let mut eviction = self.decode_as(&kind, &["policy/v1beta1"], body)?;
        set_namespace(self.target, &mut eviction)?;
        self.own_as(&kind, &mut eviction);
        // The body may request a dry run too.
        let asked = delete_options(&eviction["deleteOptions"]).into_options();
        let dry_run = self.options.dry_run || asked.dry_run;
        let write_options = WriteOptions { dry_run, ..self.options.clone() };
        let write = Write { options: &write_options, ..*self };
        // Admission sees the eviction; the writes that follow are its parts.
        let name = &self.target.name;
        let check = |eviction: &Value| {
            if eviction.name() != name {
                let why = "name in URL does not match name in Eviction object";
                return Err(ApiError::bad_request(why));
            }
            if eviction["deleteOptions"][IGNORE_READ_ERROR] == true {
                let error = field::Error::invalid(
                    field::Path::new("deleteOptions").child(IGNORE_READ_ERROR),
                    &true.into(),
                    "can not be set for pod eviction, try after removing the option",
                );
                let kind = GroupKind { group: kind.group, kind: kind.kind };
                return Err(ApiError::invalid(&kind, name, &[error]));
            }
            self.eviction_options(eviction)
        };
        let (_, options) = write.admit(Operation::Create, name, eviction, check).await?;
        let validity = options.validate();
        let options = options.into_options();
        let write = Write { is_reviewed: false, ..write };
        for _ in 0..ATTEMPTS_MAX {
            if let Some(evicted) = write.attempt_eviction(&options, &validity).await? {
                return Ok(evicted);
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), &self.target.name))
    }
    /// The options of the delete. The request and the body may ask for a dry run, in the same way.
    fn eviction_options(&self, eviction: &Value) -> Result<RawDeleteOptions, ApiError> {
        let mut options = delete_options(&eviction["deleteOptions"]);
        if !self.options.dry_run {
            return Ok(options);
        }
        match options.dry_run.as_slice() {
            [] => options.dry_run = vec!["All".to_owned()],
            [one] if one == "All" => {}
            other => {
                return Err(ApiError::unclassified(format!(
                    "Non-matching dry-run options in request and content: [All] and [{}]",
                    other.join(" ")
                )));
            }
        }
        Ok(options)
    }
    /// One attempt. `None`: the pod has changed; a budget may cover it now. `validity` of the
    /// options: the delete checks it, after the budget.
    async fn attempt_eviction(
        &self,
        asked: &DeleteOptions,
        validity: &Result<(), ApiError>,
    ) -> Result<Option<Written>, ApiError> {
        let (pod, found) = self.stored_target().await?;
        if let Err(failed) = self.check_preconditions(&pod, found.modified, asked) {
            // A dry run is only the delete, which looks at its options first.
            return match self.options.dry_run {
                true => validity.clone().and(Err(failed)),
                false => Err(failed),
            };
        }
        // The decision holds for this state of the pod only.
        let pinned = || {
            let version = asked.resource_version.clone();
            let version = version.unwrap_or_else(|| found.modified.to_string());
            DeleteOptions { resource_version: Some(version), ..asked.clone() }
        };
        let has_moved = |error: &ApiError| {
            error.reason() == Reason::Conflict && asked.resource_version.is_none()
        };
        if is_over(&pod) {
            return self.mark_and_delete(asked.clone(), validity).await.map(Some);
        }
        if pod["status"]["phase"] == "Pending" {
            return match self.mark_and_delete(pinned(), validity).await {
                Err(error) if has_moved(&error) => Ok(None),
                ended => ended.map(Some),
            };
        }
        if let Some(budget) = self.budget_of(&pod).await? {
            let mut present = tree(&budget.value)?;
            if !condition_is_true(&pod, "Ready") && spares_unready(&present) {
                return match self.mark_and_delete(pinned(), validity).await {
                    Err(error) if has_moved(&error) => Err(in_progress(present.name())),
                    ended => ended.map(Some),
                };
            }
            if validity.is_ok() {
                self.take_from(budget, &pod).await?;
            } else {
                // Only what the budget allows: the delete is refused.
                charge(&mut present, pod.name(), self.now)?;
            }
        }
        self.mark_and_delete(asked.clone(), validity).await.map(Some)
    }
    /// Adds the disruption condition to the pod's status and deletes the pod. The status update
    /// checks the preconditions, because they hold for the state before it.
    async fn mark_and_delete(
        &self,
        mut options: DeleteOptions,
        validity: &Result<(), ApiError>,
    ) -> Result<Written, ApiError> {
        validity.clone()?;
        if !options.dry_run {
            let marked = Target { subresource: Some(Subresource::Status), ..self.target.clone() };
            let write = Write { target: &marked, ..*self };
            let marked = write
                .change(Tracking::Within, &mut |Present { object: pod, revision, .. }| {
                    write.check_preconditions(pod, revision, &options)?;
                    let object = note_eviction(pod, write.now);
                    // Kubernetes records no manager for this.
                    Ok(Changed::of(object, Owned::Within))
                })
                .await?;
            if options.resource_version.is_some() {
                let version = tree(&marked.object.bytes)?.resource_version().to_owned();
                options.resource_version = Some(version);
            }
        }
        let target = Target { subresource: None, ..self.target.clone() };
        Write { target: &target, ..*self }.delete(&options, None).await?;
        Ok(success())
    }
    /// The budget that covers a pod.
    async fn budget_of(&self, pod: &Value) -> Result<Option<KeyValue>, ApiError> {
        let budgets = keys::built_in_prefix("policy", "poddisruptionbudgets");
        let prefix = keys::collection(&budgets, Scope::Namespaced, &self.target.namespace);
        let found = self.inner.store.range(RangeRequest::prefix(prefix)).await;
        let entries = found.map_err(crate::stored::store_error)?.value.entries;
        self.leave_if_large(entries.iter().map(|entry| entry.value.len()).sum()).await;
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
            charge(&mut budget, pod.name(), self.now)?;
            if self.options.dry_run {
                return Ok(());
            }
            let encoded = to_bytes(&budget);
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
fn delete_options(options: &Value) -> RawDeleteOptions {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dry_run = options["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
    RawDeleteOptions {
        dry_run: dry_run.iter().filter_map(text).collect(),
        grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
        propagation: text(&options["propagationPolicy"]),
        orphan_dependents: options["orphanDependents"].as_bool(),
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        // Refused before.
        ignore_store_read_error: None,
    }
}
