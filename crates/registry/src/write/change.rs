//! The retry loop of every change of a stored object.
use super::Write;
use super::metadata::{self, integer};
use super::persist::{Outcome, check_namespace};
use crate::admission::{Operation, Options, Review, Scales};
use crate::allocate::{Claims, Reservation, ServiceNumbers};
use crate::request::Written;
use crate::stored::{split, store_error, tree};
use crate::subresource::Subresource;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::{ObjectExt, parse_resource_version};
use setpoint_object::{ApiError, GroupKind, field};
use setpoint_schema::apply::{self, Owners};
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
    pub(super) owned: Owned,
    /// Of a write of a Scale.
    pub(super) scales: Option<Scales>,
}
impl Changed {
    /// A change that is not one of a Scale.
    pub(super) fn of(object: Value, owned: Owned) -> Self {
        Self { object, owned, scales: None }
    }
}
/// Whether the managedFields of a changed object are set already.
#[derive(Debug)]
pub(super) enum Owned {
    No,
    /// By an apply, or a subresource: in the object.
    Within,
    /// By an apply: beside it.
    Beside(Option<Owners<'static>>),
}
/// The stored object that is changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present<'a> {
    /// In the request's version.
    pub(super) object: &'a Value,
    /// Its managedFields, if they are beside it.
    pub(super) owners: Option<&'a Owners<'a>>,
    pub(super) revision: Revision,
}
/// A change that can be repeated with a newer stored object.
pub(super) type Change<'a> = dyn FnMut(Present<'_>) -> Result<Changed, ApiError> + Send + 'a;

/// Where the stored object that a change begins with has its managedFields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// In the object.
    Within,
    /// Beside it, if nobody else looks at them.
    Beside,
    /// The same. A change that fails is repeated with them: its error may show the object.
    BesideUnlessItFails,
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
    fn present(&self, revision: Revision) -> Present<'_> {
        let object = self.shown.as_ref().unwrap_or(&self.stored);
        Present { object, owners: self.owners.as_ref(), revision }
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
        let mut has_lost = false;
        let mut live = match recent {
            Some(recent) => match self.attempt(&recent, false, tracking, change).await {
                Ok(Ok(written)) => return Ok(written),
                Ok(Err(newer)) => {
                    has_lost = true;
                    newer
                }
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
        let mut turn = None;
        for _ in 0..RACE_ATTEMPTS_MAX {
            // A webhook may write the object itself, and would wait for this write.
            if has_lost && turn.is_none() && self.is_alone(Operation::Update) {
                let (own, has_waited) = self.inner.turns.wait(&key).await;
                turn = Some(own);
                if has_waited {
                    live = self.inner.live(&key).await?;
                }
            }
            let Some(found) = live else { return Err(self.not_found()) };
            self.leave_if_large(found.value.len()).await;
            match self.attempt(&found, true, tracking, change).await? {
                Ok(written) => return Ok(written),
                Err(newer) => live = newer,
            }
            has_lost = true;
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
        self.conversions.clear();
        let mut before = self.before(found, tracking).await?;
        let step = || self.changed(&mut before, found.modified, tracking, change);
        let changed = self.with_conversions(step).await?;
        let Changed { mut object, owned, scales } = changed;
        self.leave_if_grown(&object).await;
        let Before { stored, shown, owners: old_owners } = before;
        let old = shown.as_ref().unwrap_or(&stored);
        let is_apart = old_owners.is_some();
        // An apply is not stored without them.
        let spare = matches!(owned, Owned::No);
        let mut owners = None;
        if spare {
            self.convert_for_owners((old, old_owners.as_ref()), &object).await;
        }
        match owned {
            Owned::Within => {}
            Owned::Beside(own) => owners = own,
            Owned::No if is_apart => {
                owners = self.own_apart(Some((old, old_owners.as_ref())), &object);
            }
            Owned::No => self.own(Some(old), &mut object),
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
        if review.scales.is_some() {
            self.default_scaled(&mut new)?;
        }
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
            return Ok(Ok(Written { object, created: false, status: false }));
        }
        let key = found.key.clone();
        let claims = self.commit_claims(reservation.as_ref(), &stored, &new, &review).await?;
        match self
            .put(key.clone(), Some(found.modified), encoded, &mut new, spare, &claims)
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
                Ok(Ok(Written { object, created: false, status: false }))
            }
            (Outcome::Lost(newer), _) => Ok(Err(newer)),
        }
    }
    /// The object that a change makes of the stored one.
    fn changed(
        &self,
        before: &mut Before<'_>,
        revision: Revision,
        tracking: Tracking,
        change: &mut Change<'_>,
    ) -> Result<Changed, ApiError> {
        let changed = change(before.present(revision));
        if before.owners.is_none() {
            return changed;
        }
        match changed {
            // The client has sent its own.
            Ok(changed) if matches!(changed.owned, Owned::No) && has_owners(&changed.object) => {
                before.join();
                Ok(changed)
            }
            Ok(changed) if !matches!(changed.owned, Owned::Within) => Ok(changed),
            Err(error) if tracking != Tracking::BesideUnlessItFails => Err(error),
            _ => {
                before.join();
                change(before.present(revision))
            }
        }
    }
    /// The stored object that an attempt begins with.
    async fn before<'f>(
        &self,
        found: &'f KeyValue,
        tracking: Tracking,
    ) -> Result<Before<'f>, ApiError> {
        if tracking != Tracking::Within
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
        Ok(Ok(Written { object, created: false, status: false }))
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
}
/// Whether an object has managedFields in it.
pub(super) fn has_owners(object: &Value) -> bool {
    object.meta().is_some_and(|meta| meta.contains_key("managedFields"))
}
