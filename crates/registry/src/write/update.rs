//! PUT, and the preparation and checks of a changed object.
use super::change::{Changed, Tracking};
use super::metadata::{integer, put_back};
use super::{Write, metadata, status};
use crate::admission::{Operation, Review};
use crate::allocate::Reservation;
use crate::kind::{self, MetadataCheck, MetadataChecks, Report};
use crate::request::{Body, Format, Written};
use crate::shared::Inner;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, field, keys};
use setpoint_schema::apply::Owners;
use setpoint_schema::diff;
use setpoint_store::Revision;

impl Write<'_> {
    /// PUT of an object or a subresource.
    pub(super) async fn replace(&self, body: &Body) -> Result<Written, ApiError> {
        if self.target.subresource == Some(Subresource::Scale) {
            return self.replace_scale(body).await;
        }
        let cut = self.without_stored_owners(body);
        // An error may show the body.
        let cut = cut.and_then(|(short, from)| Some((self.decode(&short).ok()?, from)));
        let (mut object, cut_from) = match cut {
            Some((object, from)) => (object, Some(from)),
            None => (self.decode(body)?, None),
        };
        metadata::set_namespace(self.target, &mut object)?;
        metadata::check_body_name(self.target, &object)?;
        metadata::deduplicate_owners(self.attributes, &mut object);
        let write = *self;
        let again = move || {
            let mut object = write.decode(body)?;
            metadata::set_namespace(write.target, &mut object)?;
            metadata::deduplicate_owners(write.attributes, &mut object);
            Ok::<_, ApiError>(object)
        };
        let creates = self.target.subresource.is_none() && self.resource.kind.create_on_update;
        if creates && !self.exists().await? {
            let whole = if cut_from.is_some() { again()? } else { object };
            return self.create_by_update(whole).await;
        }
        let mut first = Some(object);
        let changed = self
            .change(Tracking::Beside, &mut |present| {
                let stored = present.object;
                let is_valid = cut_from.is_none_or(|from| from == present.revision);
                let mut object = match first.take().filter(|_| is_valid) {
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
    /// The body of a PUT without managedFields, if they are those of the stored object: most
    /// clients send what they have read. With the revision of that object.
    fn without_stored_owners(&self, body: &Body) -> Option<(Body, Revision)> {
        let names_owners = |text: &[u8]| memchr::memmem::find(text, b"managedFields").is_some();
        let is_readable = body.format == Format::Json && !self.attributes.keeps_decoded();
        if !is_readable || !names_owners(&body.bytes) || !self.keeps_owners_apart(Operation::Update)
        {
            return None;
        }
        let key = self.key(&self.target.name);
        let stored = self.inner.recent(&self.resource.storage_prefix, &key)?;
        let known = Owners::of(std::str::from_utf8(&stored.value).ok()?)?;
        let (rest, sent) = Owners::cut(std::str::from_utf8(&body.bytes).ok()?)?;
        // A second `metadata` may have others.
        let is_same = sent? == known && !names_owners(rest.as_bytes());
        let bytes = rest.into_owned().into();
        is_same.then_some((Body { bytes, format: Format::Json }, stored.modified))
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
        self.check_precondition("UID", wanted, stored)
    }
    /// What a stored object has is what a request wants, if it wants something.
    pub(super) fn check_precondition(
        &self,
        what: &str,
        wanted: &str,
        stored: &str,
    ) -> Result<(), ApiError> {
        if wanted.is_empty() || wanted == stored {
            return Ok(());
        }
        let key = self.key(&self.target.name);
        let key = String::from_utf8_lossy(&key);
        // There, the keys of dry runs have no root.
        let shown = match self.options.dry_run {
            true => key.strip_prefix(keys::ROOT.trim_end_matches('/')).unwrap_or(&key),
            false => &key,
        };
        Err(ApiError::conflict(
            &self.resource.group_resource(),
            &self.target.name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {shown}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {stored}"
            ),
        ))
    }
    /// Completes an admitted object, checks it against the one before, and warns. Returns the
    /// addresses and ports that it takes.
    pub(super) async fn complete_update(
        &self,
        new: &mut Value,
        before: &Value,
        review: &Review<'_>,
    ) -> Result<Option<Reservation<'_>>, ApiError> {
        self.prepare_update(new, before);
        let mut errors = Report::new(self.inner.features);
        let (reservation, late) = self.begin(new, Some(before), &mut errors).await?;
        if errors.is_empty() {
            self.validate_update(new, before, &mut errors);
        }
        if self.target.subresource == Some(Subresource::Status) {
            self.check_status_rights(new, before, &mut errors).await;
            self.check_namespace_label(review, new, Some(before), &mut errors).await?;
        }
        if errors.is_empty() {
            errors.extend(late);
        }
        if !errors.is_empty() {
            return Err(self.invalid(new, &errors));
        }
        self.check_params(new, Some(before)).await?;
        self.warn(|kind| match self.target.subresource {
            // A Scale is stored as its parent is.
            None | Some(Subresource::Scale) => (kind.update_warnings)(new, before),
            Some(Subresource::Status) => (kind.status_warnings)(new),
            Some(_) => Vec::new(),
        });
        Ok(reservation)
    }
    /// Restores fields that an update may not change: status or spec, system metadata, generation.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        metadata::restore(self.resource, new, old);
        let rule = self.resource.status;
        match self.target.subresource.as_ref() {
            None => {
                if self.reset_status().is_some()
                    && let Some(members) = new.as_object_mut()
                {
                    put_back(members, "status", old.get("status"));
                }
                let counts_disabled = self.resource.kind.counts_disabled;
                if counts_disabled {
                    self.step_generation(new, old, rule.is_some());
                }
                kind::disabled::drop_from(self.resource.kind, new, Some(old), self.inner.features);
                (self.resource.kind.prepare)(&self.context(), new, Some(old));
                if !counts_disabled {
                    self.step_generation(new, old, rule.is_some());
                }
            }
            Some(Subresource::Status) => status::prepare(self, new, old),
            Some(Subresource::Scale) => self.step_generation(new, old, rule.is_some()),
            // Other subresources made `new` from `old` themselves.
            Some(subresource) => {
                kind::disabled::drop_from(self.resource.kind, new, Some(old), self.inner.features);
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
            let generation = integer(old, "generation").unwrap_or(0).wrapping_add(1);
            new.set_meta("generation", generation.into());
        }
    }
    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Report) {
        // What a binding adds to a pod is not checked there either.
        if self.target.subresource == Some(Subresource::Binding) {
            return;
        }
        let aligned = self.with_stored_quantities(new, old);
        let new = aligned.as_ref().unwrap_or(new);
        // Kubernetes checks the metadata of an update several times and reports all.
        let n_before = errors.len();
        metadata::validate_any(self.resource, new, errors);
        metadata::validate_update(new, old, errors);
        let is_sound = errors.len() == n_before;
        let check_metadata = |check: &MetadataCheck, errors: &mut Report| match check {
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
        if !self.validate_kind(new, errors) {
            return;
        }
        if is_typed || !errors.is_empty() {
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
        let is_whole = matches!(self.target.subresource, None | Some(Subresource::Scale));
        if !is_typed && is_whole && errors.is_empty() {
            metadata::warn_of_finalizers(self.attributes, new, Some(old));
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
        errors: &mut Report,
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
        let mut reservation = allocator.reserve(&**store, self.options.dry_run);
        crate::allocate::allocate(&mut reservation, rng, new, old, errors).await?;
        // A dry run of the reference does not look at the range of ports. Here it does, last.
        if self.options.dry_run && errors.iter().all(crate::allocate::is_port_outside) {
            late = std::mem::take(&mut **errors);
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
