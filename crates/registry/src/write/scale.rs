//! Writes of the `scale` subresource: a parent made from an `autoscaling/v1 Scale` (spec:
//! api-server §5.6, crd §7).
use super::change::{Changed, Owned, Present, Tracking};
use super::patch::undecodable_by;
use super::{Write, metadata};
use crate::admission::Scales;
use crate::catalog::ScaleSelector;
use crate::request::{Body, Object, PatchType, Written};
use crate::scale::{self, names, number_at, parts, paths, put_at, scale_of, text_at};
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupKind, GroupVersionKind, field};
use setpoint_schema::apply::{self, Manager, ScaleMapping, Typing};
use setpoint_schema::encode::to_bytes;
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, decode};
use std::collections::BTreeSet;

/// The replicas in the Scale of a custom resource without the replicas field, for a patch. If they
/// are still these after it, the patch has not set them. The smallest that a Scale can have.
const UNSET: i64 = i32::MIN as i64;

/// The refusal of a Scale of a custom resource that cannot be decoded.
const NO_SCALE: &str = "no kind is registered for the type v1.Scale in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";

/// The answer to an apply to the Scale of a custom resource whose replicas nobody owns: the
/// reference converts the resource in place of the Scale to find them.
const NO_MANAGER: &str = "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1";

fn scale_schema() -> Result<TypeSchema, ApiError> {
    builtin::type_schema("autoscaling", "v1", "Scale")
        .ok_or_else(|| ApiError::internal("the facts have no Scale"))
}
fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

impl Write<'_> {
    /// PUT of a Scale.
    pub(super) async fn replace_scale(&self, body: &Body) -> Result<Written, ApiError> {
        paths(self.resource)?;
        let scale = self.decode_as(&scale_kind(), &[], body);
        let scale = scale.map_err(|error| match self.resource.has_go_type() {
            true => error,
            // The reference says this of one of a custom resource, whatever is wrong with it.
            false => ApiError::bad_request(NO_SCALE),
        })?;
        metadata::check_namespace(self.target, &scale)?;
        metadata::check_body_name(self.target, &scale)?;
        let write = *self;
        let written = self
            .change(Tracking::Within, &mut |Present { object: stored, .. }| {
                write.check_uid(scale.uid(), stored.uid())?;
                write.scaled(stored, scale.clone())
            })
            .await?;
        self.scale_answer(written)
    }
    /// PATCH of a Scale.
    pub(super) async fn patch_scale(
        &self,
        kind: PatchType,
        body: &Body,
    ) -> Result<Written, ApiError> {
        paths(self.resource)?;
        let write = *self;
        let schema = scale_schema()?;
        if kind == PatchType::Apply {
            // As there, the body is read once the object is found.
            if !self.exists().await? {
                return Err(self.not_found());
            }
            let applied = self.applied(body, &scale_kind())?;
            let written = self
                .change(Tracking::Within, &mut |Present { object: stored, .. }| {
                    let scaled = write.scale_applied(stored, &applied.config)?;
                    write.report_applied(&applied)?;
                    Ok(scaled)
                })
                .await?;
            return self.scale_answer(written);
        }
        let written = self
            .change(Tracking::Within, &mut |Present { object: stored, revision, .. }| {
                let mut scale = write.present_scale(stored)?;
                scale.set_meta("resourceVersion", revision.to_string().into());
                let mut problems = Vec::new();
                write.patch_object(kind, body, &schema, &mut scale, &mut problems)?;
                write.settle_kind(&scale_kind(), kind, &mut scale, &problems)?;
                let conformed = decode::conform(&schema, "Scale", &mut scale, &mut problems);
                let refuse = |error: &str| undecodable_by(kind, body, &scale, error);
                conformed.map_err(|error| refuse(&error.to_string()))?;
                write.report(&problems, refuse)?;
                metadata::check_namespace(write.target, &scale)?;
                metadata::check_body_name(write.target, &scale)?;
                write.scaled(stored, scale)
            })
            .await?;
        self.scale_answer(written)
    }
    /// The Scale of a stored object. If a custom resource lacks the replicas field, which the write
    /// must set, they are [`UNSET`].
    fn present_scale(&self, stored: &Value) -> Result<Value, ApiError> {
        let (mut scale, is_found) = parts(self.resource, stored)?;
        if !is_found && !self.resource.has_go_type() {
            scale["spec"]["replicas"] = UNSET.into();
        }
        Ok(scale)
    }
    /// The parent with the replicas of a Scale. The Scale's resourceVersion is a precondition.
    fn scaled(&self, stored: &Value, mut scale: Value) -> Result<Changed, ApiError> {
        let version = scale.resource_version().to_owned();
        self.with_scale(stored, &version, |typing, manager, present| {
            scale.set_meta("managedFields", Value::Null);
            apply::update(typing, Some(present), &mut scale, manager);
            Ok(scale)
        })
    }
    /// The parent with the replicas of an apply configuration.
    fn scale_applied(&self, stored: &Value, config: &Value) -> Result<Changed, ApiError> {
        let force = self.options.force.unwrap_or(false);
        self.with_scale(stored, config.resource_version(), |typing, manager, present| {
            if !self.resource.has_go_type()
                && metadata::member_of(present, "managedFields").is_none()
            {
                return Err(ApiError::unclassified(NO_MANAGER));
            }
            let scale = apply::apply(typing, Some(present), config, manager, force)?.object;
            // A configuration may omit the names in the URL: the present Scale has them.
            metadata::check_namespace(self.target, &scale)?;
            metadata::check_body_name(self.target, &scale)?;
            self.check_scale_uid(scale.uid(), present.uid())?;
            Ok(scale)
        })
    }
    /// The uid in a configuration is a precondition.
    fn check_scale_uid(&self, wanted: &str, present: &str) -> Result<(), ApiError> {
        if wanted == present {
            return Ok(());
        }
        let mut of = self.resource.group_resource();
        of.resource = format!("{}/scale", of.resource).into();
        let why = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {present}"
        );
        Err(ApiError::conflict(&of, &self.target.name, &why))
    }
    /// Makes a new Scale from the present one, and a new parent from that. Ownership is tracked on
    /// the Scale, a kind of its own, and translated (spec: patch §5.6).
    fn with_scale(
        &self,
        stored: &Value,
        version: &str,
        change: impl FnOnce(&Typing<'_>, &Manager<'_>, &Value) -> Result<Value, ApiError>,
    ) -> Result<Changed, ApiError> {
        let parent_version = self.resource.group_version().to_string();
        let paths = paths(self.resource)?;
        let steps: Vec<&str> = names(&paths.spec_replicas).collect();
        let versions = self.resource.all_versions();
        let others = self.other_versions();
        // Each version has its own path or none. One that is not served counts as the request's.
        let own_steps = |version: &String| match others.as_ref().and_then(|all| all.of(version)) {
            Some(row) => scale::paths(row).ok().map(|its| names(&its.spec_replicas).collect()),
            None => Some(steps.clone()),
        };
        let by_version: Vec<Option<Vec<&str>>> = versions.iter().map(own_steps).collect();
        let versions: Vec<(&str, Option<&[&str]>)> = versions
            .iter()
            .map(String::as_str)
            .zip(by_version.iter().map(Option::as_deref))
            .collect();
        let mapping = ScaleMapping { api_version: &parent_version, paths: &versions };
        let owned = metadata::member_of(stored, "managedFields");
        let mut present = self.present_scale(stored)?;
        present.set_meta("managedFields", mapping.to_scale(owned).unwrap_or(Value::Null));
        let (name, reset) = (self.manager(), BTreeSet::from(["status"]));
        let typing = Typing {
            schema: &scale_schema()?,
            kind: "Scale",
            reset: &reset,
            custom: false,
            versions: &[],
            others: None,
        };
        let manager = Manager {
            name: &name,
            api_version: "autoscaling/v1",
            subresource: "scale",
            now: self.now,
        };
        let scale = change(&typing, &manager, &present)?;
        self.check_replicas(&scale)?;
        let mut object = stored.clone();
        let replicas = scale["spec"].get("replicas").cloned().unwrap_or_else(|| 0.into());
        if replicas == UNSET && !self.resource.has_go_type() {
            return Err(ApiError::bad_request(format!(
                "the spec replicas field {:?} cannot be empty",
                paths.spec_replicas
            )));
        }
        put_at(&mut object, &paths.spec_replicas, replicas);
        let entries = mapping.to_parent(owned, metadata::member_of(&scale, "managedFields"));
        object.set_meta("managedFields", entries.unwrap_or(Value::Null));
        object.set_meta("resourceVersion", version.into());
        Ok(Changed {
            object,
            owned: Owned::Within,
            scales: Some(Scales { new: scale, old: present }),
        })
    }
    /// Fills in the defaults of what holds the replicas of a custom resource, which may be new. The
    /// rules do not see them. Of versions that are not stored, no defaults are.
    ///
    /// # Errors
    ///
    /// 413: the defaults of items exceed the size limit.
    pub(super) fn default_scaled(&self, object: &mut Value) -> Result<(), ApiError> {
        let is_stored = *self.resource.storage_version == *self.resource.gvk.version;
        match !self.resource.has_go_type() && is_stored {
            true => self.resource.schema.fill_defaults(object),
            false => Ok(()),
        }
    }
    fn check_replicas(&self, scale: &Value) -> Result<(), ApiError> {
        match scale["spec"].get("replicas").and_then(Value::as_i64) {
            Some(replicas) if replicas < 0 && self.resource.has_go_type() => {
                let error = field::Error::invalid(
                    field::Path::new("spec.replicas"),
                    &replicas.into(),
                    "must be greater than or equal to 0",
                );
                let kind = GroupKind { group: "autoscaling".into(), kind: "Scale".into() };
                Err(ApiError::invalid(&kind, &self.target.name, &[error]))
            }
            _ => Ok(()),
        }
    }
    fn scale_answer(&self, written: Written) -> Result<Written, ApiError> {
        let object = crate::stored::tree(&written.object.bytes)?;
        let scale = scale_of(self.resource, &object)?;
        Ok(Written {
            object: Object { bytes: to_bytes(&scale) },
            created: written.created,
            status: false,
        })
    }
    /// Custom resources: validates the fields that the definition names. A write of `status` is
    /// held to those of the status.
    pub(super) fn validate_scale(&self, object: &Value, errors: &mut field::Errors) {
        let Ok(paths) = paths(self.resource) else { return };
        if self.target.subresource != Some(Subresource::Status) {
            check_count(object, &paths.spec_replicas, errors);
        }
        check_count(object, &paths.status_replicas, errors);
        if let ScaleSelector::Text(path) = &paths.selector
            && let Err(detail) = text_at(object, path)
        {
            errors.push(field::Error::invalid(field::Path::new(&**path), &"".into(), detail));
        }
    }
}

/// Validates a number of replicas.
fn check_count(object: &Value, path: &str, errors: &mut field::Errors) {
    let mut push = |value: &Value, detail: String| {
        errors.push(field::Error::invalid(field::Path::new(path), value, detail));
    };
    match number_at(object, path) {
        Ok(Some(count)) if count < 0 => {
            push(&count.into(), "should be a non-negative integer".to_owned());
        }
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            push(&count.into(), format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
        Err(detail) => push(&0.into(), detail),
    }
}
