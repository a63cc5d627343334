//! PUT, and the retry loop of every change of a stored object.
use super::metadata::{integer, put_back};
use super::persist::{Outcome, check_namespace};
use super::{Write, metadata, status};
use crate::admission::{Operation, Options, Review, Scales};
use crate::allocate::{Claims, Reservation, ServiceNumbers};
use crate::kind::{self, MetadataCheck, MetadataChecks};
use crate::request::{Body, Written};
use crate::shared::Inner;
use crate::stored::{split, store_error, tree};
use crate::subresource::Subresource;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::{ObjectExt, parse_resource_version};
use setpoint_object::{ApiError, GroupKind, Reason, field};
use setpoint_schema::apply::{self, Owners};
use setpoint_schema::diff;
use setpoint_schema::encode::to_bytes_with;
use setpoint_store::{KeyValue, Revision};

/// How often a write retries after conflicts before its client gets an error.
///
/// Each conflict means that another write of the object has succeeded. 1024 is more than the 600
/// requests that are in flight by default, so of so many patches of one object none is refused. The
/// reference retries until the deadline of the request, which ends these attempts too.
pub(super) const RACE_ATTEMPTS_MAX: usize = 1024;

/// The result of a change of the stored object.
#[derive(Debug)]
pub(super) struct Changed {
    /// The new object, in the request's version.
    pub(super) object: Value,
    /// Its managedFields are set already (apply).
    pub(super) owned: bool,
    /// Of a write of a Scale.
    pub(super) scales: Option<Scales>,
}
impl Changed {
    /// A change that is not one of a Scale.
    pub(super) fn of(object: Value, owned: bool) -> Self {
        Self { object, owned, scales: None }
    }
}
/// A change that can be repeated with a newer stored object: `(stored object in the request's
/// version, its revision)`.
pub(super) type Change<'a> = dyn FnMut(&Value, Revision) -> Result<Changed, ApiError> + Send + 'a;

/// Where the stored object that a change begins with has its managedFields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// In the object.
    Within,
    /// Beside it, if nobody else looks at them. A change that fails is repeated with them: its
    /// error may show the object.
    Beside,
}
/// The stored object that an attempt begins with.
#[derive(Debug)]
struct Before<'a> {
    /// In the storage version.
    stored: Value,
    /// In the request's version, if that is another.
    shown: Option<Value>,
    /// Its managedFields, if they are beside it.
    owners: Option<Owners<'a>>,
}
impl Before<'_> {
    /// The object in the request's version.
    fn old(&self) -> &Value {
        self.shown.as_ref().unwrap_or(&self.stored)
    }
    /// Puts managedFields into the object.
    fn join(&mut self) {
        if let Some(owners) = self.owners.take() {
            owners.join(&mut self.stored);
        }
    }
}

/// Why one attempt failed.
#[derive(Debug)]
enum Failed {
    /// Before anything was sent to the store.
    Before(ApiError),
    /// After the commit was sent; it may have succeeded.
    Commit(ApiError),
}
impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Before(error)
    }
}
impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Before(error) | Failed::Commit(error) => error,
        }
    }
}

impl Write<'_> {
    /// PUT of an object or a subresource.
    pub(super) async fn replace(&self, body: &Body) -> Result<Written, ApiError> {
        if self.target.subresource == Some(Subresource::Scale) {
            return self.replace_scale(body).await;
        }
        let mut object = self.decode(body)?;
        metadata::set_namespace(self.target, &mut object)?;
        metadata::check_body_name(self.target, &object)?;
        metadata::deduplicate_owners(self.attributes, &mut object);
        let creates = self.target.subresource.is_none() && self.resource.kind.create_on_update;
        if creates && !self.exists().await? {
            return self.create_by_update(object).await;
        }
        let mut first = Some(object);
        let write = *self;
        let again = move || {
            let mut object = write.decode(body)?;
            metadata::set_namespace(write.target, &mut object)?;
            metadata::deduplicate_owners(write.attributes, &mut object);
            Ok::<_, ApiError>(object)
        };
        let changed = self
            .change(Tracking::Beside, &mut |stored, _| {
                let mut object = match first.take() {
                    Some(object) => object,
                    None => again()?,
                };
                write.check_uid(object.uid(), stored.uid())?;
                let owned = write.own_part(&mut object, stored);
                write.merge_subresource(&mut object, stored);
                Ok(Changed::of(object, owned))
            })
            .await;
        match changed {
            // It was deleted after the check.
            Err(error) if creates && error.reason() == Reason::NotFound => {
                self.create_by_update(again()?).await
            }
            changed => changed,
        }
    }
    /// Whether the target exists. The answer may be outdated: the write checks again.
    pub(super) async fn exists(&self) -> Result<bool, ApiError> {
        let key = self.key(&self.target.name);
        let is_recent = self.inner.recent(&self.resource.storage_prefix, &key).is_some();
        Ok(is_recent || self.inner.live(&key).await?.is_some())
    }
    /// PUT of an absent object, for the kinds that allow it.
    async fn create_by_update(&self, mut object: Value) -> Result<Written, ApiError> {
        self.check_uid(object.uid(), "")?;
        self.may_create().await?;
        metadata::clear_identity(&mut object);
        object.set_meta("resourceVersion", Value::Null);
        self.own(None, &mut object);
        self.create_owned(object, None, true).await
    }
    /// The uid in a PUT body is a precondition.
    pub(super) fn check_uid(&self, wanted: &str, stored: &str) -> Result<(), ApiError> {
        if wanted.is_empty() || wanted == stored {
            return Ok(());
        }
        let key = self.key(&self.target.name);
        Err(ApiError::conflict(
            &self.resource.group_resource(),
            &self.target.name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {stored}",
                String::from_utf8_lossy(&key)
            ),
        ))
    }
    /// Repeats a change of the stored object until it is stored, refused, or changes nothing.
    ///
    /// Starts with the cached state, so that most changes read nothing from the store. If the cache
    /// was behind, the commit fails and the loop continues with the present state. If the change
    /// seems to be refused or to change nothing, the loop reads the store first.
    pub(super) async fn change(
        &self,
        tracking: Tracking,
        change: &mut Change<'_>,
    ) -> Result<Written, ApiError> {
        check_namespace(self.target)?;
        let key = self.key(&self.target.name);
        let recent = match self.options.dry_run {
            true => None,
            false => self.inner.recent(&self.resource.storage_prefix, &key),
        };
        if let Some(recent) = &recent {
            self.leave_if_large(recent.value.len()).await;
        }
        let mut live = match recent {
            Some(recent) => match self.attempt(&recent, false, tracking, change).await {
                Ok(Ok(written)) => return Ok(written),
                Ok(Err(newer)) => newer,
                Err(Failed::Commit(error)) => return Err(error),
                Err(Failed::Before(error)) => match self.inner.live(&key).await? {
                    // The cached state was the present one. The webhooks that were called are not
                    // called twice.
                    Some(live) if live.modified == recent.modified => return Err(error),
                    live => live,
                },
            },
            None => self.inner.live(&key).await?,
        };
        for _ in 0..RACE_ATTEMPTS_MAX {
            let Some(found) = live else { return Err(self.not_found()) };
            self.leave_if_large(found.value.len()).await;
            match self.attempt(&found, true, tracking, change).await? {
                Ok(written) => return Ok(written),
                Err(newer) => live = newer,
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), &self.target.name))
    }
    /// One attempt. The inner `Err` is the newer state that it conflicted with. Unless `is_live`,
    /// the state may be outdated: a change without effect is compared with the store.
    async fn attempt(
        &self,
        found: &KeyValue,
        is_live: bool,
        tracking: Tracking,
        change: &mut Change<'_>,
    ) -> Result<Result<Written, Option<KeyValue>>, Failed> {
        let mut before = self.before(found, tracking).await?;
        let Changed { mut object, owned, scales } =
            self.changed(&mut before, found.modified, change)?;
        self.leave_if_grown(&object).await;
        let Before { stored, shown, owners: old_owners } = before;
        let old = shown.as_ref().unwrap_or(&stored);
        let is_apart = old_owners.is_some();
        let mut owners = None;
        if is_apart {
            owners = self.own_apart(Some((old, old_owners.as_ref())), &object);
        } else if !owned {
            self.own(Some(old), &mut object);
        }
        let options = Options::Write(self.options);
        let known = Some((old, found.modified));
        let mut review = self.review(Operation::Update, &self.target.name, known, options);
        // An earlier attempt has lost a race, perhaps with a change of a quota.
        review.preconditions.have_failed = is_live;
        review.scales = scales;
        review.is_unseen = is_apart;
        if self.is_reviewed {
            self.inner.admission.mutate(&review, &mut object).await?;
            metadata::deduplicate_admitted_owners(self.attributes, &mut object);
            metadata::set_namespace(self.target, &mut object)?;
        }
        self.check_version(&object, found.modified)?;
        self.check_grant(&object, Some(old)).await?;
        // The two states that are compared have one version.
        let (mut new, before) = match self.converts_last() {
            true => (object, old),
            false => (self.stored_tree(object).await?, &stored),
        };
        let reservation = self.complete_update(&mut new, before, &review).await?;
        if self.is_reviewed {
            self.inner.admission.validate(&review, Some(&new)).await?;
        }
        if self.is_finished(&new) {
            let last = to_bytes_with(&new, owners.as_ref());
            return self.finish(found, &stored, &last).await.map_err(Failed::Commit);
        }
        if self.converts_last() {
            new = self.stored_tree(new).await?;
        }
        if is_apart {
            owners = apply::settle_times_apart((&stored, old_owners), (&new, owners));
        } else {
            apply::settle_times(Some(&stored), &mut new);
        }
        let encoded = to_bytes_with(&new, owners.as_ref());
        if encoded == found.value && !is_live {
            let live = self.inner.live(&found.key).await?;
            if live.as_ref().is_none_or(|live| live.modified != found.modified) {
                return Ok(Err(live));
            }
        }
        if self.options.dry_run || encoded == found.value && !self.rewrite_due(found).await? {
            let object = self.preview(&encoded, found.modified).await?;
            return Ok(Ok(Written { object, created: false }));
        }
        let key = found.key.clone();
        let claims = self.commit_claims(reservation.as_ref(), &stored, &new, &review).await?;
        match self
            .put(key.clone(), Some(found.modified), encoded, &mut new, !owned, &claims)
            .await
            .map_err(Failed::Commit)?
        {
            (Outcome::Done(revision), encoded) => {
                if let Some(reservation) = reservation {
                    reservation.keep(&new, Some(&stored));
                }
                if self.target.subresource == Some(Subresource::Status) {
                    let counts = self
                        .resource
                        .status
                        .map_or_else(Vec::new, |rule| (rule.counts)(&new, &stored));
                    let changes = &self.inner.figures.changes;
                    counts.iter().for_each(|(counter, label)| changes.add(*counter, label));
                }
                let object = self.answer(&key, &encoded, revision).await.map_err(Failed::Commit)?;
                Ok(Ok(Written { object, created: false }))
            }
            (Outcome::Lost(newer), _) => Ok(Err(newer)),
        }
    }
    /// The object that a change makes of the stored one.
    fn changed(
        &self,
        before: &mut Before<'_>,
        revision: Revision,
        change: &mut Change<'_>,
    ) -> Result<Changed, ApiError> {
        let changed = change(before.old(), revision);
        if before.owners.is_none() {
            return changed;
        }
        match changed {
            Ok(changed) if !changed.owned => {
                // The client has sent its own.
                if changed.object.meta().is_some_and(|meta| meta.contains_key("managedFields")) {
                    before.join();
                }
                Ok(changed)
            }
            _ => {
                before.join();
                change(before.old(), revision)
            }
        }
    }
    /// The stored object that an attempt begins with.
    async fn before<'f>(
        &self,
        found: &'f KeyValue,
        tracking: Tracking,
    ) -> Result<Before<'f>, ApiError> {
        if tracking == Tracking::Beside
            && self.keeps_owners_apart(Operation::Update)
            && let Some((mut stored, owners @ Some(_))) = split(&found.value)
            && self.is_storage_version(&stored)
        {
            crate::convert::refresh(self.resource, &mut stored, found.modified.0);
            return Ok(Before { stored, shown: None, owners });
        }
        let (stored, shown) = self.states(found).await?;
        Ok(Before { stored, shown, owners: None })
    }
    /// The stored object in the storage version, and in the request's version if that is another.
    async fn states(&self, found: &KeyValue) -> Result<(Value, Option<Value>), ApiError> {
        let mut stored = tree(&found.value)?;
        crate::convert::refresh(self.resource, &mut stored, found.modified.0);
        let shown = match self.converts() {
            true => Some(self.served_tree(stored.clone(), Some(found)).await?),
            false => None,
        };
        if !self.is_storage_version(&stored) {
            // Written before the storage version changed: compares it in the present storage
            // version.
            stored = match shown {
                Some(_) => self.stored_tree(stored).await?,
                None => self.served_tree(stored, Some(found)).await?,
            };
        }
        Ok((stored, shown))
    }
    /// Completes an admitted object, checks it against the one before, and warns. Returns the
    /// addresses and ports that it takes.
    async fn complete_update(
        &self,
        new: &mut Value,
        before: &Value,
        review: &Review<'_>,
    ) -> Result<Option<Reservation<'_>>, ApiError> {
        self.prepare_update(new, before);
        let mut errors = field::Errors::new();
        let (reservation, late) = self.begin(new, Some(before), &mut errors).await?;
        if errors.is_empty() {
            self.validate_update(new, before, &mut errors);
        }
        if self.target.subresource == Some(Subresource::Status) {
            self.check_status_rights(new, before, &mut errors).await;
            self.check_namespace_label(review, new, Some(before), &mut errors).await?;
        }
        if errors.is_empty() {
            errors = late;
        }
        if !errors.is_empty() {
            return Err(self.invalid(new, &errors));
        }
        self.check_params(new, Some(before)).await?;
        let warnings = match self.target.subresource {
            // A Scale is stored as its parent is.
            None | Some(Subresource::Scale) => (self.resource.kind.update_warnings)(new, before),
            Some(Subresource::Status) => (self.resource.kind.status_warnings)(new),
            Some(_) => Vec::new(),
        };
        warnings.into_iter().for_each(|warning| self.attributes.warn(warning));
        Ok(reservation)
    }
    /// What the commit of an object takes and compares beside it.
    async fn commit_claims(
        &self,
        reservation: Option<&Reservation<'_>>,
        stored: &Value,
        new: &Value,
        review: &Review<'_>,
    ) -> Result<Claims, ApiError> {
        let claims = match reservation {
            Some(reservation) => reservation.claims(new, Some(stored), &self.inner.birth()).await,
            None => Ok(Claims::default()),
        };
        let mut claims = claims.map_err(store_error)?;
        claims.compares.extend(review.required());
        claims.ops.extend(review.charged());
        Ok(claims)
    }
    /// Whether an unchanged object must be rewritten because its stored form is out of date (a
    /// retired key).
    async fn rewrite_due(&self, found: &KeyValue) -> Result<bool, ApiError> {
        self.inner.store.rewrite_due(&found.key).await.map_err(crate::stored::store_error)
    }
    /// Removes an object whose deletion was waiting for its last finalizer. `last`: its last state.
    async fn finish(
        &self,
        found: &KeyValue,
        stored: &Value,
        last: &Bytes,
    ) -> Result<Result<Written, Option<KeyValue>>, ApiError> {
        let object = self.preview(last, found.modified).await?;
        if !self.options.dry_run {
            let claims = self.released_claims(stored).await?;
            match self.remove(found.key.clone(), found.modified, &claims).await? {
                Outcome::Done(_) => self.release_numbers(stored),
                Outcome::Lost(newer) => return Ok(Err(newer)),
            }
        }
        Ok(Ok(Written { object, created: false }))
    }
    /// The claims that the removal of an object releases.
    pub(super) async fn released_claims(&self, object: &Value) -> Result<Claims, ApiError> {
        if !self.is_service() {
            return Ok(Claims::default());
        }
        let claims =
            Claims::releasing(&*self.inner.store, &ServiceNumbers::of(object), object).await;
        claims.map_err(store_error)
    }
    /// Releases the addresses and ports of a removed object.
    pub(super) fn release_numbers(&self, object: &Value) {
        if self.is_service() {
            self.inner.allocator.forget(&ServiceNumbers::of(object));
        }
    }
    fn is_finished(&self, new: &Value) -> bool {
        !new.deletion_timestamp().is_empty()
            && new.finalizers().is_empty()
            && integer(new, "deletionGracePeriodSeconds").unwrap_or(0) == 0
            && !(self.resource.kind.finalizers_in_spec
                && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()))
    }
    /// Checks the resourceVersion in a body against the stored one.
    fn check_version(&self, object: &Value, stored: Revision) -> Result<(), ApiError> {
        let wanted = match object.resource_version() {
            "" => 0,
            text => {
                parse_resource_version(text).map_err(|e| ApiError::unclassified(e.to_string()))?
            }
        };
        if wanted == 0 {
            if self.resource.kind.unconditional_update
                || self.target.subresource == Some(Subresource::Scale)
            {
                return Ok(());
            }
            // Kubernetes puts the resource where other errors have the kind.
            let kind = GroupKind {
                group: self.resource.gvk.group.clone(),
                kind: self.resource.resource.clone(),
            };
            let error = field::Error::invalid(
                field::Path::new("metadata.resourceVersion"),
                &0.into(),
                "must be specified for an update",
            );
            return Err(ApiError::invalid(&kind, &self.target.name, &[error]));
        }
        if wanted != stored.0 {
            return Err(ApiError::stale(&self.resource.group_resource(), &self.target.name));
        }
        Ok(())
    }
    /// Restores fields that an update may not change: status or spec, system metadata, generation.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        metadata::restore(self.resource, new, old);
        let rule = self.resource.status;
        match self.target.subresource.as_ref() {
            None => {
                if rule.is_some()
                    && let Some(members) = new.as_object_mut()
                {
                    put_back(members, "status", old.get("status"));
                }
                let counts_disabled = self.resource.kind.counts_disabled;
                if counts_disabled {
                    self.step_generation(new, old, rule.is_some());
                }
                kind::disabled::drop_from(self.resource.kind, new, Some(old), &self.inner.gates);
                (self.resource.kind.prepare)(&self.context(), new, Some(old));
                if !counts_disabled {
                    self.step_generation(new, old, rule.is_some());
                }
            }
            Some(Subresource::Status) => status::prepare(self, new, old),
            Some(Subresource::Scale) => self.step_generation(new, old, rule.is_some()),
            // Other subresources made `new` from `old` themselves.
            Some(subresource) => {
                kind::disabled::drop_from(self.resource.kind, new, Some(old), &self.inner.gates);
                if let Some(part) = self.resource.kind.part(subresource.as_str()) {
                    (part.prepare)(&self.context(), new, Some(old));
                    if part.steps_generation {
                        self.step_generation(new, old, rule.is_some());
                    }
                }
            }
        }
    }
    fn spec_differs(&self, new: &Value, old: &Value, ignore_status: bool) -> bool {
        let is_typed = self.resource.has_go_type();
        let empty = match is_typed {
            true => diff::Empty::IsMissing,
            false => diff::Empty::IsAValue,
        };
        let ignore_status = ignore_status || is_typed;
        diff::spec_differs(old, new, ignore_status, empty)
            && self
                .with_stored_quantities(new, old)
                .is_none_or(|new| diff::spec_differs(old, &new, ignore_status, empty))
    }
    /// The object with quantities as they are stored, if any are only written in another way.
    fn with_stored_quantities(&self, new: &Value, old: &Value) -> Option<Value> {
        let is_typed = self.resource.has_go_type();
        is_typed
            .then(|| diff::with_stored_quantities(self.resource.schema.view(), new, old))
            .flatten()
    }
    fn step_generation(&self, new: &mut Value, old: &Value, ignore_status: bool) {
        if !self.resource.tracks_generation || !self.resource.kind.steps_generation {
            return;
        }
        let annotations = |object: &Value| metadata::member_of(object, "annotations").cloned();
        let has_changed = self.spec_differs(new, old, ignore_status)
            || self.resource.kind.annotations_step_generation
                && annotations(old) != annotations(new);
        if has_changed {
            let generation = integer(old, "generation").unwrap_or(0) + 1;
            new.set_meta("generation", generation.into());
        }
    }
    fn validate_update(&self, new: &Value, old: &Value, errors: &mut field::Errors) {
        let aligned = self.with_stored_quantities(new, old);
        let new = aligned.as_ref().unwrap_or(new);
        // Kubernetes checks the metadata of an update several times and reports all.
        let n_before = errors.len();
        metadata::validate_any(self.resource, new, errors);
        metadata::validate_update(new, old, errors);
        let is_sound = errors.len() == n_before;
        let check_metadata = |check: &MetadataCheck, errors: &mut field::Errors| match check {
            MetadataCheck::Whole => metadata::validate(self.resource, new, errors),
            MetadataCheck::Change => {
                if !is_sound {
                    metadata::validate_update(new, old, errors);
                }
                metadata::validate_qualified(self.resource, new, errors);
            }
        };
        // A second check of the metadata follows the rules.
        let mut checks_after: &[MetadataCheck] = &[];
        let mut has_changed = false;
        let is_typed = self.resource.has_go_type();
        if errors.is_empty() && !is_typed {
            self.validate_kind(new, errors);
        } else {
            if self.target.subresource.is_none() {
                (self.resource.kind.validate_before)(new, Some(old), errors);
            }
            let checks = self.metadata_checks();
            checks_after = checks.after;
            for check in checks.before {
                check_metadata(check, errors);
                if *check == MetadataCheck::Change && self.target.subresource.is_none() {
                    (self.resource.kind.validate_change)(new, Some(old), errors);
                    has_changed = true;
                }
            }
        }
        self.validate_schema(new, Some(old), errors);
        let is_whole = matches!(self.target.subresource, None | Some(Subresource::Scale));
        if !is_typed && is_whole {
            metadata::warn_of_finalizers(self.attributes, new, Some(old));
        }
        match self.target.subresource.as_ref() {
            None | Some(Subresource::Scale) => {
                (self.resource.kind.validate)(new, Some(old), errors)
            }
            Some(Subresource::Status) => {
                (self.resource.kind.validate_status)(new, Some(old), errors);
                (self.resource.kind.validate_status_in)(&self.context(), new, old, errors);
            }
            Some(subresource) => {
                if let Some(part) = self.resource.kind.part(subresource.as_str()) {
                    (part.validate)(new, Some(old), errors);
                }
            }
        }
        self.check_privileged(new, Some(old), errors);
        for check in checks_after {
            check_metadata(check, errors);
        }
        if !has_changed && self.target.subresource.is_none() {
            (self.resource.kind.validate_change)(new, Some(old), errors);
        }
    }
    /// How this write checks the metadata.
    fn metadata_checks(&self) -> MetadataChecks {
        match self.target.subresource.as_ref() {
            None => Some(self.resource.kind.changed_metadata),
            Some(Subresource::Status) => self.resource.status.map(|rule| rule.checks),
            Some(part) => self.resource.kind.part(part.as_str()).map(|part| part.checks),
        }
        .unwrap_or(MetadataChecks::before(&[MetadataCheck::Change]))
    }
    /// Whether this is about a Service itself.
    pub(super) fn is_service(&self) -> bool {
        self.resource.kind.takes_numbers
    }
    /// Completes an object, and allocates addresses and ports for a Service. Reports why it cannot,
    /// before all other faults. The other errors returned are those to report if there are none
    /// else.
    pub(super) async fn begin(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        errors: &mut field::Errors,
    ) -> Result<(Option<Reservation<'_>>, field::Errors), ApiError> {
        let mut late = field::Errors::new();
        if self.target.subresource.is_some() {
            return Ok((None, late));
        }
        (self.resource.kind.begin)(&self.context(), new, old, errors);
        if !self.is_service() || !errors.is_empty() {
            return Ok((None, late));
        }
        let Inner { allocator, store, rng, .. } = self.inner;
        let allocated = crate::allocate::allocate(allocator, &**store, rng, new, old, errors);
        let reservation = allocated.await?;
        // A dry run of the reference does not look at the range of ports. Here it does, last.
        if self.options.dry_run && errors.iter().all(crate::allocate::is_port_outside) {
            late = std::mem::take(errors);
        }
        Ok((Some(reservation), late))
    }
    /// From an object sent to a subresource, takes the subresource's own part; the rest comes from
    /// the stored object.
    pub(super) fn merge_subresource(&self, object: &mut Value, stored: &Value) {
        let Some(part) = self.resource.kind.part(self.target.subresource_name()) else { return };
        let mut merged = stored.clone();
        (part.take)(&mut merged, object);
        if part.takes_metadata {
            if let Some(metadata) = object.get_mut("metadata") {
                merged["metadata"] = metadata.take();
            }
        } else {
            for member in ["resourceVersion", "managedFields"] {
                if let Some(value) = object.meta().and_then(|m| m.get(member)) {
                    merged.set_meta(member, value.clone());
                }
            }
        }
        if let Some(spec) = merged.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|_, value| !value.is_null());
        }
        *object = merged;
    }
}
