//! DELETE of one object (spec: api-server §5.5).
use super::Write;
use super::change::RACE_ATTEMPTS_MAX;
use super::metadata::{FOREGROUND, ORPHAN, integer};
use super::order::Place;
use super::persist::Outcome;
use crate::admission::{Operation, Options};
use crate::allocate::Claims;
use crate::catalog::Resource;
use crate::request::{DeleteOptions, Deleted, PropagationPolicy, ignore_refused};
use crate::routed::Attributes;
use crate::stored::{store_error, tree};
use crate::unreadable::sealed;
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::field::Errors;
use setpoint_object::meta::ObjectExt;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, GroupKind, GroupResource};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{At, KeyValue, Revision, Snapshot, StoreError, is_sealed};
use std::collections::BTreeSet;
use std::time::Duration;

/// The effect of a delete on the present object.
#[derive(Debug)]
enum Step {
    /// Nothing: its deletion is pending.
    Pending,
    /// Marked as deleted; it stays until its finalizers are removed or its grace period ends.
    Mark(Value),
    /// Marked with a grace period of zero and removed at once.
    MarkAndRemove(Value),
    /// Removed.
    Remove,
}

impl Write<'_> {
    /// Deletes the target. The delete of an object of a collection is reviewed when those before
    /// it have been.
    pub(super) async fn delete(
        &self,
        options: &DeleteOptions,
        place: Option<&Place>,
    ) -> Result<Deleted, ApiError> {
        if self.target.subresource.is_some() {
            return Err(ApiError::method_not_allowed());
        }
        let key = self.key(&self.target.name);
        if self.inner.is_unsafe(options) {
            return self.delete_unread(key).await;
        }
        let unread = |error| self.inner.error_of_one(error);
        let mut live = self.inner.store.get(&key, At::Latest).await.map_err(unread)?.value;
        if live.as_ref().is_some_and(|found| is_sealed(&found.value)) {
            return Err(unread(sealed(&key)));
        }
        for _ in 0..RACE_ATTEMPTS_MAX {
            let Some(found) = live else {
                warn_of_orphans(self.attributes, self.resource, options);
                return Err(self.not_found());
            };
            self.leave_if_large(found.value.len()).await;
            match self.delete_found(&found, options, place).await? {
                Ok(deleted) => return Ok(deleted),
                Err(newer) => live = newer,
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), &self.target.name))
    }
    /// Removes an object that cannot be read, if it cannot.
    async fn delete_unread(&self, key: Bytes) -> Result<Deleted, ApiError> {
        self.inner.may_delete_unread(self.attributes).await?;
        match self.inner.store.get(&key, At::Latest).await {
            Err(StoreError::Unreadable { .. }) => {}
            Ok(Snapshot { value: Some(found), .. }) if is_sealed(&found.value) => {}
            Ok(_) => {
                let detail = "is exclusively used to delete corrupt object(s), try again by removing this option";
                let errors = Errors::from(ignore_refused(detail));
                let GroupResource { group, resource } = self.resource.group_resource();
                let kind = GroupKind { group, kind: resource };
                return Err(ApiError::invalid(&kind, &self.target.name, &errors));
            }
            Err(error) => return Err(store_error(error)),
        }
        self.remove_unread(key).await?;
        Ok(Deleted::Unread)
    }
    async fn delete_found(
        &self,
        found: &KeyValue,
        options: &DeleteOptions,
        place: Option<&Place>,
    ) -> Result<Result<Deleted, Option<KeyValue>>, ApiError> {
        if let Some(place) = place {
            place.begin().await?;
        }
        let mut object = tree(&found.value)?;
        // The object is written back under the present schema.
        crate::convert::refresh(self.resource, &mut object, found.modified.0);
        // As the reference, which reads the object in the version of the request. Only the
        // conversions of others can fail.
        if self.inner.served(self.resource).is_some()
            && (self.converts() || !self.is_storage_version(&object))
        {
            self.served_tree(object.clone(), Some(found)).await?;
        }
        let warn = || warn_of_orphans(self.attributes, self.resource, options);
        self.check_preconditions(&object, found.modified, options).inspect_err(|_| warn())?;
        let grace = self.grace(&object, options);
        // A deletion that goes on as it is asks nobody.
        if self.is_reviewed && !matches!(grace, Grace::Pending) {
            let seen = match grace {
                Grace::Until { seconds, .. } if self.attributes.verb == Verb::Delete => {
                    &DeleteOptions { grace_period_seconds: Some(seconds), ..options.clone() }
                }
                _ => options,
            };
            let (old, options) = (Some((&object, found.modified)), Options::Delete(seen));
            let review = self.review(Operation::Delete, &self.target.name, old, options);
            self.inner.admission.mutate(&review, &mut Value::Null).await?;
            warn();
            self.inner.admission.validate(&review, None).await?;
        } else {
            warn();
        }
        if let Some(place) = place {
            place.pass();
        }
        let (marked, remove) = match self.step(&object, options, grace) {
            Step::Pending => {
                let object = self.answer(&found.key, &found.value, found.modified).await?;
                return Ok(Ok(Deleted::Object { object, remains: true }));
            }
            Step::Mark(marked) => (Some(marked), false),
            Step::MarkAndRemove(marked) => (Some(marked), true),
            Step::Remove => (None, true),
        };
        let mut revision = found.modified;
        let mut last = found.value.clone();
        if let Some(mut marked) = marked {
            let encoded = to_bytes(&marked);
            if encoded != found.value && !self.options.dry_run {
                match self
                    .put(
                        found.key.clone(),
                        Some(revision),
                        encoded,
                        &mut marked,
                        true,
                        &Claims::default(),
                    )
                    .await?
                {
                    (Outcome::Done(done), bytes) => (revision, last) = (done, bytes),
                    (Outcome::Lost(newer), _) => return Ok(Err(newer)),
                }
            } else {
                last = encoded;
            }
        }
        if !remove {
            let object = match self.options.dry_run {
                true => self.preview(&last, revision).await?,
                false => self.answer(&found.key, &last, revision).await?,
            };
            return Ok(Ok(Deleted::Object { object, remains: true }));
        }
        if !self.options.dry_run {
            let claims = self.released_claims(&object).await?;
            match self.remove(found.key.clone(), revision, &claims).await? {
                Outcome::Done(done) => {
                    revision = done;
                    self.release_numbers(&object);
                }
                // A concurrent request removed it between the two commits. The result is the same.
                Outcome::Lost(None) if revision != found.modified => {}
                Outcome::Lost(newer) => return Ok(Err(newer)),
            }
        }
        if self.resource.kind.returns_deleted {
            let object = self.preview(&last, revision).await?;
            return Ok(Ok(Deleted::Object { object, remains: false }));
        }
        Ok(Ok(Deleted::Gone { uid: object.uid().to_owned() }))
    }
    /// Checks the preconditions of a delete (uid and resourceVersion) against the stored object.
    pub(super) fn check_preconditions(
        &self,
        object: &Value,
        revision: Revision,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let stored = revision.to_string();
        let wanted = [
            ("UID", options.uid.as_deref(), object.uid()),
            ("ResourceVersion", options.resource_version.as_deref(), stored.as_str()),
        ];
        let failed = wanted
            .into_iter()
            .find_map(|(what, wanted, is)| Some((what, wanted.filter(|w| *w != is)?, is)));
        let Some((what, wanted, is)) = failed else { return Ok(()) };
        let mut of = self.resource.group_resource();
        let why = match (self.resource.kind.begin_termination, what) {
            // Kinds whose deletion has a first step check it before the store does.
            (Some(_), _) => format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            ),
            (None, "UID") => format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({is}). The object might have been deleted and then recreated"
            ),
            (None, _) => format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({is}). The object might have been modified"
            ),
        };
        if self.resource.kind.begin_termination.is_none() {
            // Kubernetes puts the kind where other errors have the resource.
            of.resource = self.resource.gvk.kind.clone();
        }
        Err(ApiError::conflict(&of, &self.target.name, &why))
    }
    /// The effect on the object, computed from its present state alone.
    fn step(&self, object: &Value, options: &DeleteOptions, grace: Grace) -> Step {
        if let Some(begin_termination) = self.resource.kind.begin_termination {
            if object.deletion_timestamp().is_empty() {
                let mut marked = object.clone();
                marked.set_meta("deletionTimestamp", self.now.rfc3339().into());
                // A definition gets those of the garbage collector from its second delete only. For
                // the first of a namespace, not to orphan means to wait.
                if self.resource.kind.finalizers_in_spec {
                    let mut options = options.clone();
                    if options.orphan_dependents == Some(false) {
                        options.propagation = Some(PropagationPolicy::Foreground);
                    }
                    if let Some(finalizers) = self.finalizers(object, &options) {
                        set_finalizers(&mut marked, finalizers);
                    }
                }
                begin_termination(&self.context(), &mut marked);
                return Step::Mark(marked);
            }
            if self.resource.kind.finalizers_in_spec
                && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
            {
                return Step::Pending;
            }
        }
        let mut marked = object.clone();
        let graceful = match grace {
            Grace::Pending => return Step::Pending,
            Grace::None => false,
            Grace::Until { at, seconds } => {
                if object.deletion_timestamp().is_empty() {
                    step_generation(&mut marked);
                }
                marked.set_meta("deletionTimestamp", at.rfc3339().into());
                marked.set_meta("deletionGracePeriodSeconds", seconds.into());
                if seconds > 0
                    && object.finalizers().is_empty()
                    && self.finalizers(object, options).is_none()
                {
                    return Step::Mark(marked);
                }
                true
            }
        };
        if let Some(finalizers) = self.finalizers(object, options) {
            set_finalizers(&mut marked, finalizers);
        }
        let is_held = !marked.finalizers().is_empty();
        if graceful {
            let seconds = integer(&marked, "deletionGracePeriodSeconds").unwrap_or(0);
            return if is_held || seconds > 0 {
                Step::Mark(marked)
            } else {
                Step::MarkAndRemove(marked)
            };
        }
        if !is_held {
            return Step::Remove;
        }
        if object.deletion_timestamp().is_empty() {
            step_generation(&mut marked);
            marked.set_meta("deletionTimestamp", self.now.rfc3339().into());
        }
        marked.set_meta("deletionGracePeriodSeconds", 0.into());
        Step::Mark(marked)
    }
    /// The finalizers with those of the garbage collector as the options require; `None` if
    /// unchanged.
    fn finalizers(&self, object: &Value, options: &DeleteOptions) -> Option<Vec<String>> {
        let present = object.finalizers();
        let kind = self.resource.kind;
        let asked = match (options.propagation, options.orphan_dependents) {
            // Finalizers of the collector mean nothing on such a kind, and are removed.
            _ if !kind.propagates => Some(PropagationPolicy::Background),
            (Some(policy), _) => Some(policy),
            (None, Some(true)) => Some(PropagationPolicy::Orphan),
            (None, Some(false)) => Some(PropagationPolicy::Background),
            (None, None) if present.contains(&ORPHAN) => Some(PropagationPolicy::Orphan),
            (None, None) if present.contains(&FOREGROUND) => Some(PropagationPolicy::Foreground),
            (None, None) => None,
        };
        let policy = match asked {
            Some(policy) => policy,
            None if kind.orphans_by_default => PropagationPolicy::Orphan,
            None => PropagationPolicy::Background,
        };
        let own = match policy {
            PropagationPolicy::Orphan => Some(ORPHAN),
            PropagationPolicy::Foreground => Some(FOREGROUND),
            PropagationPolicy::Background => None,
        };
        let is_collectors = |f: &str| f == ORPHAN || f == FOREGROUND;
        // As a set: one that is there twice is as good as once.
        let had: BTreeSet<&str> = present.iter().copied().filter(|f| is_collectors(f)).collect();
        if had.into_iter().eq(own) {
            return None;
        }
        let others = present.into_iter().filter(|f| !is_collectors(f));
        Some(others.chain(own).map(str::to_owned).collect())
    }
    /// The graceful deletion of an object, for kinds that support it.
    fn grace(&self, object: &Value, options: &DeleteOptions) -> Grace {
        if !self.resource.kind.graceful {
            return Grace::None;
        }
        let asked = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
        if !object.deletion_timestamp().is_empty() {
            // 0 and no finalizer: a delete whose second commit failed. This one ends it.
            let pending = integer(object, "deletionGracePeriodSeconds");
            let Some(pending) = pending.filter(|seconds| *seconds != 0) else {
                return Grace::None;
            };
            let Some(seconds) = asked.filter(|s| *s < pending) else { return Grace::Pending };
            let now = self.now;
            let at = Timestamp::parse(object.deletion_timestamp())
                .map(|at| Timestamp(at.0.saturating_sub(duration(pending)) + duration(seconds)))
                .filter(|at| *at > now)
                .unwrap_or(now);
            return Grace::Until { at, seconds };
        }
        let spec = &object["spec"];
        let mut seconds =
            asked.or_else(|| spec["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
        let is_unscheduled = spec["nodeName"].as_str().unwrap_or_default().is_empty();
        let is_over = object["status"]["phase"].as_str().is_some_and(pod_phase::is_terminal);
        if is_unscheduled || is_over {
            seconds = 0;
        }
        if seconds < 0 {
            seconds = 1;
        }
        Grace::Until { at: Timestamp(self.now.0 + duration(seconds)), seconds }
    }
}
#[derive(Debug)]
enum Grace {
    /// The kind or the object has no graceful deletion.
    None,
    /// Deletion is pending and does not end later than requested.
    Pending,
    /// The deletion time and grace period.
    Until { at: Timestamp, seconds: i64 },
}
/// Warns of a delete without a propagation policy, for kinds whose dependents it leaves. As there,
/// it does not matter whether there is an object.
pub(super) fn warn_of_orphans(
    attributes: &Attributes,
    resource: &Resource,
    options: &DeleteOptions,
) {
    let is_default = options.propagation.is_none() && options.orphan_dependents.is_none();
    let warning = resource.kind.orphan_warning;
    if is_default && !warning.is_empty() {
        attributes.warn(warning);
    }
}
/// Sets the finalizers. An object without any has no such member.
fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let finalizers = if finalizers.is_empty() { Value::Null } else { finalizers.into() };
    object.set_meta("finalizers", finalizers);
}
fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
fn step_generation(object: &mut Value) {
    if let Some(generation) = integer(object, "generation").filter(|g| *g > 0) {
        object.set_meta("generation", json!(generation.wrapping_add(1)));
    }
}
