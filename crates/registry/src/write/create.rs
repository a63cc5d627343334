//! POST of an object.
use super::change::has_owners;
use super::generate::GENERATE_ATTEMPTS_MAX;
use super::persist::{Created, served};
use super::{Write, metadata};
use crate::admission::{Operation, Options, Preconditions, Review};
use crate::allocate::Claims;
use crate::kind::{self, Context, Kind, NameRule, Report, StatusRule};
use crate::request::{Body, Object, Written};
use crate::stored::{store_error, tree};
use crate::subresource::Subresource;
use crate::verb::Verb;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::meta::{ObjectExt, parse_resource_version};
use setpoint_object::status::Details;
use setpoint_object::{ApiError, GroupKind, Reason, field};
use setpoint_schema::apply::Owners;
use setpoint_schema::encode::to_bytes_with;
use setpoint_store::Revision;

/// How often a create retries after concurrent requests took its numbers, or changed what it
/// requires, before its client gets an error.
const RACE_ATTEMPTS_MAX: usize = 64;

/// The managedFields of a new object.
#[derive(Debug, Clone, Copy)]
struct Kept<'a> {
    /// They are beside the object.
    owners: Option<&'a Owners<'a>>,
    /// They may be dropped if the object is too large.
    spare: bool,
}

impl Write<'_> {
    /// Decodes and creates an object.
    pub(super) async fn create(&self, body: &Body) -> Result<Written, ApiError> {
        if !self.resource.serves(&Verb::Create) {
            return Err(ApiError::method_not_allowed());
        }
        let mut object = self.decode(body)?;
        self.leave_if_grown(&object).await;
        metadata::clear_system(&mut object);
        metadata::set_namespace(self.target, &mut object)?;
        metadata::deduplicate_owners(self.attributes, &mut object);
        let owners = match !has_owners(&object) && self.keeps_owners_apart(Operation::Create) {
            true => self.own_apart(None, &object),
            false => {
                self.own(None, &mut object);
                None
            }
        };
        self.create_owned(object, owners.as_ref(), true).await
    }
    /// Creates an object whose managedFields are set, or beside it. `spare`: they may be dropped if
    /// the object is too large.
    pub(super) async fn create_owned(
        &self,
        mut object: Value,
        owners: Option<&Owners<'_>>,
        spare: bool,
    ) -> Result<Written, ApiError> {
        if self.resource.terminating {
            return Err(ApiError::forbidden(
                &self.resource.group_resource(),
                object.name(),
                "create not allowed while custom resource definition is terminating",
            ));
        }
        // A custom object may be posted to a path with a name, which only admission looks at.
        let name = match (&*self.target.name, object.name()) {
            ("", "") => object.meta_str("generateName").to_owned(),
            ("", name) | (name, _) => name.to_owned(),
        };
        let options = Options::Write(self.options);
        let mut review = self.review(Operation::Create, &name, None, options);
        review.is_unseen = owners.is_some();
        review.generates = self.target.name.is_empty() && object.name().is_empty();
        let kept = Kept { owners, spare };
        self.inner.admission.mutate(&review, &mut object).await?;
        metadata::deduplicate_admitted_owners(self.attributes, &mut object);
        metadata::set_namespace(self.target, &mut object)?;
        self.check_grant(&object, None).await?;
        let base = object.meta_str("generateName").to_owned();
        if base.is_empty() {
            return self.create_named(object, &mut review, kept).await;
        }
        if !object.name().is_empty() {
            // Of a name that is taken it says the same, although it is not generated.
            return self.create_named(object, &mut review, kept).await.map_err(|error| {
                let is_taken = error.reason() == Reason::AlreadyExists;
                if is_taken { exhausted(error) } else { error }
            });
        }
        if self.resource.kind.names == NameRule::Address {
            object.set_meta("name", base.into());
            return self.create_named(object, &mut review, kept).await;
        }
        for attempt in 1.. {
            let mut candidate = object.clone();
            let name = self.inner.generated_name(&base);
            review.generated.clone_from(&name);
            candidate.set_meta("name", name.into());
            match self.create_named(candidate, &mut review, kept).await {
                Err(error) if error.reason() == Reason::AlreadyExists => {
                    if attempt == GENERATE_ATTEMPTS_MAX {
                        return Err(exhausted(error));
                    }
                }
                result => return result,
            }
        }
        Err(self.not_found())
    }
    async fn create_named(
        &self,
        object: Value,
        review: &mut Review<'_>,
        kept: Kept<'_>,
    ) -> Result<Written, ApiError> {
        // Only a Service takes numbers that others may take too, and can be given others instead.
        if !self.is_service() {
            let written = self.attempt_create(object, review, kept).await?;
            return written.ok_or_else(|| {
                ApiError::internal("the commit of a new object failed without a conflict")
            });
        }
        for _ in 0..RACE_ATTEMPTS_MAX {
            if let Some(written) = self.attempt_create(object.clone(), review, kept).await? {
                return Ok(written);
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), object.name()))
    }
    /// One attempt; `None`: a concurrent request took an address or port of this object.
    async fn attempt_create(
        &self,
        mut object: Value,
        review: &mut Review<'_>,
        kept: Kept<'_>,
    ) -> Result<Option<Written>, ApiError> {
        object.set_meta("uid", self.inner.uid().into());
        object.set_meta("creationTimestamp", self.now.rfc3339().into());
        // Ignores a resourceVersion that is not a number.
        let version = object.resource_version().to_owned();
        let has_version = parse_resource_version(&version).is_ok_and(|version| version != 0);
        object.set_meta("resourceVersion", Value::Null);
        let mut stored = match self.converts_last() {
            true => object,
            false => self.stored_tree(object).await?,
        };
        self.prepare_create(&mut stored);
        let mut errors = Report::new(self.inner.features);
        let (reservation, late) = self.begin(&mut stored, None, &mut errors).await?;
        if errors.is_empty() {
            self.validate_create(&stored, &mut errors);
        }
        self.check_namespace_label(review, &stored, None, &mut errors).await?;
        if errors.is_empty() {
            errors.extend(late);
        }
        if !errors.is_empty() {
            return Err(self.invalid(&stored, &errors));
        }
        self.check_params(&stored, None).await?;
        self.warn(|kind| (kind.warnings)(&stored));
        self.inner.admission.validate(review, Some(&stored)).await?;
        if let Some(rule) = self.reset_status().filter(|rule| rule.comes_late) {
            set_initial_status(&mut stored, rule.initial, true);
        }
        if self.converts_last() {
            stored = self.stored_tree(stored).await?;
        }
        // The reference refuses it where it writes, so that a dry run has it in its answer.
        if has_version && !self.options.dry_run {
            return Err(ApiError::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let key = self.key(stored.name());
        let encoded = to_bytes_with(&stored, kept.owners);
        if self.options.dry_run {
            if let Some(found) = self.inner.live(&key).await? {
                return Err(self.already_exists(stored.name(), &found.value));
            }
            let mut served =
                if self.converts() { self.served_tree(stored, None).await? } else { stored };
            if has_version {
                served.set_meta("resourceVersion", version.into());
            }
            let object = Object { bytes: to_bytes_with(&served, kept.owners) };
            return Ok(Some(Written { object, created: true, status: false }));
        }
        let claims = match &reservation {
            Some(reservation) => reservation.claims(&stored, None, &self.inner.birth()).await,
            None => Ok(Claims::default()),
        };
        let claims = claims.map_err(store_error)?;
        for _ in 0..RACE_ATTEMPTS_MAX {
            let (encoded, required) = (encoded.clone(), review.required());
            let mut claims = claims.clone();
            claims.ops.extend(review.charged());
            let spare = kept.spare;
            let put = self.put_new(key.clone(), encoded, &mut stored, spare, &claims, &required);
            match put.await? {
                (Created::Done(revision), bytes) => {
                    if let Some(reservation) = reservation {
                        reservation.keep(&stored, None);
                    }
                    let object = if self.converts() {
                        self.answer(&key, &bytes, revision).await?
                    } else {
                        served(&bytes, revision)
                    };
                    return Ok(Some(Written { object, created: true, status: false }));
                }
                (Created::Exists(found), _) => {
                    return Err(self.already_exists(stored.name(), &found.value));
                }
                (Created::Claimed, _) => return Ok(None),
                (Created::Moved, _) => {
                    self.inner.admission.decide_again(review, &stored).await?;
                }
            }
        }
        Err(ApiError::stale(&self.resource.group_resource(), stored.name()))
    }
    fn already_exists(&self, name: &str, found: &[u8]) -> ApiError {
        let mut error = ApiError::already_exists(&self.resource.group_resource(), name);
        if tree(found).is_ok_and(|found| !found.deletion_timestamp().is_empty()) {
            error.0.message.insert_str(0, "object is being deleted: ");
        }
        error
    }
    /// Sets the initial metadata and status of a new object.
    fn prepare_create(&self, object: &mut Value) {
        if self.resource.tracks_generation {
            object.set_meta("generation", 1.into());
        }
        match self.reset_status() {
            Some(rule) if rule.comes_late => set_initial_status(object, "{}", rule.keeps_new),
            Some(rule) => set_initial_status(object, rule.initial, rule.keeps_new),
            None => {}
        }
        kind::disabled::drop_from(self.resource.kind, object, None, self.inner.features);
        for warning in (self.resource.kind.prepare_warnings)(object) {
            self.attributes.warn(warning);
        }
        (self.resource.kind.prepare)(&self.context(), object, None);
    }
    fn validate_create(&self, object: &Value, errors: &mut Report) {
        if !self.resource.has_go_type() {
            if !self.validate_kind(object, errors) {
                return;
            }
            metadata::validate(self.resource, object, errors);
            self.validate_schema(object, None, errors);
            (self.resource.kind.validate)(object, None, errors);
            if errors.is_empty() {
                metadata::warn_of_finalizers(self.attributes, object, None);
            }
            return;
        }
        let kind::Kind { names, validate_before, validate, metadata_last, checks_prefix, .. } =
            *self.resource.kind;
        validate_before(object, None, errors);
        if !metadata_last {
            metadata::validate(self.resource, object, errors);
        }
        validate(object, None, errors);
        self.check_privileged(object, None, errors);
        // The rules of any object follow if those of the kind are met, which are the stricter ones
        // for most kinds.
        let is_stricter = !metadata_last && checks_prefix && names != NameRule::Any;
        if errors.is_empty() && !is_stricter {
            metadata::validate_any(self.resource, object, errors);
        }
    }
    /// Reports privileged containers, if the server does not allow them.
    pub(super) fn check_privileged(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Report,
    ) {
        if !self.inner.allows_privileged {
            kind::template::refuse_privileged(self.resource.kind, object, old, errors);
        }
    }
    /// Validates an object against its schema, and the numbers of its `scale` subresource.
    pub(super) fn validate_schema(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut field::Errors,
    ) {
        let of_status = self.target.subresource == Some(Subresource::Status);
        let schema = &self.resource.schema;
        let mut scale = field::Errors::new();
        if !self.resource.has_go_type() {
            self.validate_scale(object, &mut scale);
        }
        let scale = scale.into_iter().collect();
        let (found, warnings) =
            schema.validate(object, old, of_status, errors, scale, &self.inner.figures);
        errors.extend(found);
        warnings.into_iter().for_each(|warning| self.attributes.warn(warning));
    }
    /// Custom resources: validates the kind in the body. If it is another one (`false`), nothing
    /// else is looked at.
    pub(super) fn validate_kind(&self, object: &Value, errors: &mut field::Errors) -> bool {
        let is_other = self.is_of_other_kind(object);
        if is_other {
            errors.push(field::Error::invalid(
                field::Path::new("kind"),
                &object["kind"],
                format!("must be {}", self.resource.gvk.kind),
            ));
        }
        !is_other
    }
    /// 422 for an object of this kind. A custom object is called by the kind that it claims.
    pub(super) fn invalid(&self, object: &Value, errors: &[field::Error]) -> ApiError {
        let mut of = self.resource.group_kind();
        if !self.resource.has_go_type()
            && let (Some(api_version), Some(kind)) =
                (object["apiVersion"].as_str(), object["kind"].as_str())
        {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            of = GroupKind { group: group.into(), kind: kind.into() };
        }
        // An object of two groups is validated in its stored form.
        if let Some((group, _)) = self.resource.kind.storage {
            of.group = group.into();
        }
        ApiError::invalid(&of, object.name(), errors)
    }
    /// The review that admission plugins get for this request.
    pub(super) fn review<'r>(
        &'r self,
        operation: Operation,
        name: &'r str,
        old: Option<(&'r Value, Revision)>,
        options: Options<'r>,
    ) -> Review<'r> {
        Review {
            inner: self.inner,
            attributes: self.attributes,
            thread: self.thread,
            resource: self.resource,
            subresource: self.target.subresource.as_ref(),
            operation,
            namespace: &self.target.namespace,
            name,
            generates: false,
            generated: String::new(),
            old: old.map(|(old, _)| old),
            revision: old.map_or(0, |(_, revision)| revision.0),
            options,
            dry_run: self.options.dry_run,
            is_unseen: false,
            scales: None,
            preconditions: Preconditions::default(),
            reinvocation: Mutex::default(),
            policy_reinvocation: Mutex::default(),
            charges: Mutex::default(),
        }
    }
    /// Admission of an object that acts on another one: an Eviction, a Binding, the options of a
    /// stream. `check` is of the object as mutating admission left it, and may read something of
    /// it. Returns that object, and what was read.
    ///
    /// # Errors
    /// Those of the plugins and of the check.
    pub(super) async fn admit<T: Send>(
        &self,
        operation: Operation,
        name: &str,
        mut object: Value,
        check: impl FnOnce(&Value) -> Result<T, ApiError> + Send,
    ) -> Result<(Value, T), ApiError> {
        let options = match operation {
            Operation::Connect => Options::None,
            _ => Options::Write(self.options),
        };
        let review = self.review(operation, name, None, options);
        self.inner.admission.mutate(&review, &mut object).await?;
        let checked = check(&object)?;
        self.inner.admission.validate(&review, Some(&object)).await?;
        Ok((object, checked))
    }
    /// Sends warnings that the kind has, unless they are about a feature that is off.
    pub(super) fn warn(&self, warnings: impl FnOnce(&Kind) -> Vec<String>) {
        let kind = self.resource.kind;
        if kind.warns_with.is_none_or(|feature| self.inner.features.is_on(feature)) {
            warnings(kind).into_iter().for_each(|warning| self.attributes.warn(warning));
        }
    }
    /// The rule of the status, if the main endpoint resets it.
    pub(super) fn reset_status(&self) -> Option<StatusRule> {
        let is_reset = |rule: &StatusRule| {
            rule.reset_with.is_none_or(|feature| self.inner.features.is_on(feature))
        };
        self.resource.status.filter(is_reset)
    }
    pub(super) fn context(&self) -> Context<'_> {
        let identity = &self.attributes.identity;
        let families = self.inner.allocator.networks().families();
        Context {
            now: self.now,
            user: &identity.user,
            uid: &identity.uid,
            groups: &identity.groups,
            extra: &identity.extra,
            families,
            features: self.inner.features,
            has_default_labels: self.attributes.has_default_labels(),
        }
    }
}
/// Sets `status` of a new object, whatever it is now, unless that is kept.
fn set_initial_status(object: &mut Value, initial: &str, is_kept: bool) {
    let Some(members) = object.as_object_mut() else { return };
    match serde_json::from_str(initial) {
        Ok(initial) => {
            let sent = members.remove("status").filter(|sent| is_kept && sent.is_object());
            let mut status = sent.unwrap_or_default();
            complete(&mut status, initial);
            members.insert("status".into(), status);
        }
        Err(_) => {
            members.remove("status");
        }
    }
}
/// Adds the members that a value lacks. As deep as `initial`, which is a constant.
fn complete(value: &mut Value, initial: Value) {
    match (value, initial) {
        (Value::Object(members), Value::Object(initial)) => {
            for (name, initial) in initial {
                complete(members.entry(name).or_insert(Value::Null), initial);
            }
        }
        (value @ Value::Null, initial) => *value = initial,
        _ => {}
    }
}
/// The 409 for an object with a `generateName` whose name, or all generated ones, were taken.
fn exhausted(mut error: ApiError) -> ApiError {
    error.0.message.push_str(", the server was not able to generate a unique name for the object");
    let details = error.0.details.get_or_insert_with(Details::default);
    details.retry_after_seconds = 1;
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::gvk::GroupResource;

    #[test]
    fn names_that_are_all_taken_are_a_409_to_be_tried_again() {
        let resource = GroupResource { group: "".into(), resource: "pods".into() };
        let taken = ApiError::already_exists(&resource, "a-x2b4c");
        let error = exhausted(taken);
        assert_eq!(
            error.to_string(),
            r#"pods "a-x2b4c" already exists, the server was not able to generate a unique name for the object"#
        );
        assert_eq!(error.code(), 409);
        assert_eq!(error.0.details.unwrap().retry_after_seconds, 1);
    }
}
