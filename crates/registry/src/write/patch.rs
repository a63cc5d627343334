//! PATCH: changes the stored object in the request's version (spec: patch §1).
use super::body::{check_custom_type, check_patched_kind, lacks_version, name_kind, type_of};
use super::change::{Changed, Present, Tracking};
use super::{Write, metadata};
use crate::catalog::Resource;
use crate::request::{Body, FieldValidation, PatchType, Written};
use crate::subresource::Subresource;
use serde_json::{Map, Value};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionKind, Reason, encode, field};
use setpoint_schema::decode::MapKeys;
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{decode, patch};
use setpoint_store::Revision;

impl Write<'_> {
    /// Any patch of an object or a subresource.
    pub(super) async fn patch(&self, kind: PatchType, body: &Body) -> Result<Written, ApiError> {
        if kind == PatchType::StrategicMerge && !self.resource.has_go_type() {
            return Err(ApiError::new(
                415,
                Reason::UnsupportedMediaType,
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        if kind == PatchType::Json && patch::may_multiply_text(&body.bytes) {
            self.thread.leave().await;
        }
        if self.target.subresource == Some(Subresource::Scale) {
            return self.patch_scale(kind, body).await;
        }
        if kind == PatchType::Apply {
            return self.apply(body).await;
        }
        let write = *self;
        let tracking = match may_name_owners(kind, &body.bytes) {
            true => Tracking::Within,
            false => Tracking::BesideUnlessItFails,
        };
        self.change(tracking, &mut |Present { object: stored, revision, .. }| {
            let mut object = write.patched(kind, body, stored, revision)?;
            write.settle_patched(&mut object)?;
            write.default(&mut object)?;
            // Owner references that are repeated go after admission: their ownership is that of
            // what the patch made.
            let owned = write.own_part(&mut object, stored);
            write.merge_subresource(&mut object, stored);
            Ok(Changed::of(object, owned))
        })
        .await
    }
    /// Applies a patch to the stored object and converts the result to its type.
    fn patched(
        &self,
        kind: PatchType,
        body: &Body,
        stored: &Value,
        revision: Revision,
    ) -> Result<Value, ApiError> {
        let mut object = stored.clone();
        object.set_meta("resourceVersion", revision.to_string().into());
        let mut problems = Vec::new();
        self.patch_object(kind, body, &self.resource.schema, &mut object, &mut problems)?;
        if self.resource.has_go_type() {
            self.settle_kind(&self.resource.gvk, kind, &mut object, &problems)?;
        } else {
            decode::settle_numbers(&mut object);
            check_custom_type(&object).map_err(|error| undecodable(&object, &error))?;
            let has_version = !matches!(type_of(&object).0, "" | "/");
            if self.target.subresource == Some(Subresource::Status) && has_version {
                // Validation refuses another type, but not of a status.
                object["apiVersion"] = stored["apiVersion"].clone();
                self.name_status(&mut object);
            }
        }
        let refuse = |object: &Value, error: &str| undecodable_by(kind, body, object, error);
        let n_in_patch = problems.len();
        let Resource { schema, gvk, .. } = self.resource;
        let keys = match kind {
            PatchType::StrategicMerge => MapKeys::LeftOut,
            _ => MapKeys::Shown,
        };
        let is_of_other_version = self.is_of_other_version(&object);
        let conformed = match is_of_other_version || self.is_of_other_kind(&object) {
            true => decode::conform_metadata(&mut object, &mut problems),
            false => schema.conform_changed(&gvk.kind, &mut object, stored, keys, &mut problems),
        };
        if let Err(error) = conformed {
            return Err(refuse(&object, &error.to_string()));
        }
        if let Some(error) = (self.resource.kind.unreadable)(&object) {
            return Err(refuse(&object, &error));
        }
        if kind == PatchType::StrategicMerge {
            // The reference's converter sorts the problems that it reports.
            problems[n_in_patch..].sort_unstable();
        }
        self.report(&problems, |error| refuse(&object, error))?;
        if is_of_other_version {
            metadata::check_body_name(self.target, &object)?;
            return Err(self.of_other_version(&object));
        }
        Ok(object)
    }
    /// Changes an object of this schema as a patch says.
    pub(super) fn patch_object(
        &self,
        kind: PatchType,
        body: &Body,
        schema: &TypeSchema,
        object: &mut Value,
        problems: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let ignores = self.options.field_validation == FieldValidation::Ignore;
        match kind {
            PatchType::Json if ignores => patch::json_patch_unchecked(object, &body.bytes),
            PatchType::Json => patch::json_patch(object, &body.bytes, problems),
            PatchType::Merge | PatchType::Apply if ignores => {
                patch::merge_patch_unchecked(object, &body.bytes)
            }
            PatchType::Merge | PatchType::Apply => {
                patch::merge_patch(object, &body.bytes, problems)
            }
            PatchType::StrategicMerge => {
                patch::strategic_merge_patch(schema, object, &body.bytes, problems)
            }
        }
    }
    /// The refusal of a custom resource whose version a patch has changed.
    fn of_other_version(&self, object: &Value) -> ApiError {
        let (version, _) = type_of(object);
        if matches!(version, "" | "/") {
            let fault = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
            return ApiError::internal(fault);
        }
        // The core group has no name.
        let version = version.strip_prefix('/').unwrap_or(version);
        let expected = self.resource.gvk.group_version();
        let mut errors = field::Errors::new();
        self.validate_kind(object, &mut errors);
        let path = field::Path::new("apiVersion");
        errors.push(field::Error::invalid(path, &version.into(), format!("must be {expected}")));
        self.invalid(object, &errors.into_iter().collect::<Vec<_>>())
    }
    /// The result of a patch of a built-in kind keeps its kind: a strategic merge patch, which is
    /// merged into the decoded object, cannot change it; the result of others is decoded.
    /// `problems`: of the patch.
    pub(super) fn settle_kind(
        &self,
        gvk: &GroupVersionKind,
        kind: PatchType,
        object: &mut Value,
        problems: &[String],
    ) -> Result<(), ApiError> {
        let is_text = |object: &Value, name: &str| object.get(name).is_none_or(Value::is_string);
        if kind == PatchType::StrategicMerge {
            if is_text(object, "kind") && is_text(object, "apiVersion") {
                name_kind(gvk, object);
            }
            return Ok(());
        }
        check_patched_kind(gvk, object).map_err(|error| undecodable(object, &error))?;
        if lacks_version(gvk, type_of(object).0) {
            // The reference then decodes a form without any of the members.
            let members = object.as_object().into_iter().flat_map(Map::keys);
            let unknown = members.filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"));
            let unknown = unknown.map(|name| format!("unknown field \"{name}\""));
            let problems: Vec<_> = problems.iter().cloned().chain(unknown).collect();
            self.report(&problems, |error| undecodable(object, error))?;
            return metadata::check_body_name(self.target, &Value::Null);
        }
        name_kind(gvk, object);
        Ok(())
    }
    fn settle_patched(&self, object: &mut Value) -> Result<(), ApiError> {
        metadata::set_namespace(self.target, object)?;
        metadata::check_body_name(self.target, object)
    }
}
/// Whether what a patch does may depend on managedFields. A merge patch only replaces them.
fn may_name_owners(kind: PatchType, patch: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(patch, text).is_some();
    // Names may have escapes, and a JSON patch may test or copy what is around them.
    let is_named = || has(b"managedFields") || has(b"\\u");
    match kind {
        PatchType::Merge => false,
        PatchType::StrategicMerge => is_named(),
        PatchType::Json => is_named() || has(b"\\/") || has(b"\"/metadata\"") || has(b"\"\""),
        PatchType::Apply => true,
    }
}
/// 422: the result of a patch of this type is not an object of the kind.
pub(super) fn undecodable_by(
    kind: PatchType,
    body: &Body,
    object: &Value,
    error: &str,
) -> ApiError {
    match kind {
        // For this patch type, errors show the patch.
        PatchType::StrategicMerge => {
            let sent = serde_json::from_slice(&body.bytes).unwrap_or_default();
            patch::undecodable(&patch::go_value(&sent), &decode::converter_error(error))
        }
        _ => undecodable(object, error),
    }
}
/// 422: the result of a patch is not an object of the kind.
pub(super) fn undecodable(object: &Value, error: &str) -> ApiError {
    patch::undecodable(&String::from_utf8_lossy(&encode::to_bytes(object)), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_that_may_name_owners_are_found() {
        let check = |kind, patch: &str, expected| {
            assert_eq!(may_name_owners(kind, patch.as_bytes()), expected, "{patch}");
        };
        let json = |path: &str| format!(r#"[{{"op":"copy","from":"{path}","path":"/spec/a"}}]"#);
        check(PatchType::Json, &json("/metadata/labels"), false);
        for path in ["", "/metadata", r"\/metadata", r"/metad\u0061ta", "/metadata/managedFields/0"]
        {
            check(PatchType::Json, &json(path), true);
        }
        check(PatchType::Merge, r#"{"metadata":{"managedFields":[]}}"#, false);
        check(PatchType::StrategicMerge, r#"{"metadata":{"labels":{"a":"\""}}}"#, false);
        check(PatchType::StrategicMerge, r#"{"metadata":{"managedFields":[]}}"#, true);
    }
}
