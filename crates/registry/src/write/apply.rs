//! Server-side apply: merges a manager's configuration with the stored object (spec: patch §5).
use super::body::APPLY_FORMAT;
use super::change::{Changed, Owned, Present, Tracking};
use super::{Write, metadata};
use crate::admission::Operation;
use crate::request::{Body, Format, Written};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupKind, GroupVersion, GroupVersionKind, Reason, field};
use setpoint_schema::apply::{self, Merged, Owners};
use setpoint_schema::decode;

/// How often an apply starts over when its object is created or deleted in the meantime.
const ATTEMPTS_MAX: usize = 4;

/// A configuration, and the members that are there twice.
pub(super) struct Applied {
    pub(super) config: Value,
    problems: Vec<String>,
}

impl Write<'_> {
    /// Apply of an object: an update, or the creation of an absent one.
    pub(super) async fn apply(&self, body: &Body) -> Result<Written, ApiError> {
        let mut exists = self.exists().await?;
        // As there, the body is read once the object is found, or will be created.
        if !exists && self.target.subresource.is_some() {
            return Err(self.not_found());
        }
        let applied = self.applied(body, &self.resource.gvk)?;
        let mut result = Err(self.not_found());
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                exists = self.inner.live(&self.key(&self.target.name)).await?.is_some();
            }
            result = match exists {
                true => self.apply_update(&applied).await,
                false if self.target.subresource.is_none() => self.apply_create(&applied).await,
                false => return Err(self.not_found()),
            };
            match &result {
                Err(error) if matches!(error.reason(), Reason::AlreadyExists) => {}
                Err(error)
                    if error.reason() == Reason::NotFound && self.target.subresource.is_none() => {}
                _ => return result,
            }
        }
        result
    }
    /// The configuration in an apply body, without defaults. Its names are compared with those of
    /// the URL after the merge, as there: a conflict is reported first.
    pub(super) fn applied(&self, body: &Body, gvk: &GroupVersionKind) -> Result<Applied, ApiError> {
        let applied = self.parse_apply(body)?;
        let config = &applied.config;
        let text = |member: &str| config.get(member).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if kind != &*gvk.kind || version != gvk.group_version().to_string() {
            let found = match version.split_once('/') {
                // No version: the reference then takes the object for one without a type.
                Some((_, rest)) if rest.contains('/') => GroupVersion::new("", "").kind(""),
                Some((group, version)) => GroupVersion::new(group, version).kind(kind),
                None => GroupVersion::new("", version).kind(kind),
            };
            return Err(ApiError::bad_request(format!("invalid object type: {found}")));
        }
        if config.meta().and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        Ok(applied)
    }
    /// Reads an apply body: YAML, of which JSON is a part, or CBOR.
    fn parse_apply(&self, body: &Body) -> Result<Applied, ApiError> {
        if self.options.field_manager.is_empty() {
            let error = field::Error::required(
                field::Path::new("fieldManager"),
                "is required for apply patch",
            );
            let kind = GroupKind { group: "meta.k8s.io".into(), kind: "PatchOptions".into() };
            return Err(ApiError::invalid(&kind, "", &[error]));
        }
        if body.format == Format::Cbor {
            // A member given twice is a fault of the encoding, and nothing is unknown here.
            let config = decode::cbor::object(&body.bytes)
                .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
            return Ok(Applied { config, problems: Vec::new() });
        }
        let decoded = decode::parse(&body.bytes, APPLY_FORMAT).map_err(|e| {
            ApiError::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: {e}"
            ))
        })?;
        let type_name = match &decoded.value {
            Value::Object(_) | Value::Null => "",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        };
        if !type_name.is_empty() {
            let fault = decode::wrong_type(type_name, "", "map[string]interface {}");
            return Err(ApiError::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: {fault}"
            )));
        }
        Ok(Applied { config: decoded.value, problems: decoded.problems })
    }
    /// Refuses or warns of members that a configuration has twice. The reference looks for them
    /// once the configuration is merged.
    pub(super) fn report_applied(&self, applied: &Applied) -> Result<(), ApiError> {
        self.report(&applied.problems, |why| {
            let why = why.strip_prefix("strict decoding error: ").unwrap_or(why);
            ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {why}"
            ))
        })
    }
    async fn apply_create(&self, applied: &Applied) -> Result<Written, ApiError> {
        let config = &applied.config;
        let uid = config.uid();
        if !uid.is_empty() {
            return Err(ApiError::conflict(
                &self.resource.group_resource(),
                &self.target.name,
                &format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                ),
            ));
        }
        self.may_create().await?;
        let (Merged { mut object, .. }, owners) = match self.keeps_owners_apart(Operation::Create) {
            true => self.merge_apart(None, config)?,
            false => (self.merge(None, config)?, None),
        };
        metadata::clear_identity(&mut object);
        object.set_meta("resourceVersion", Value::Null);
        self.complete(&mut object, config)?;
        self.report_applied(applied)?;
        self.settle_names(&mut object)?;
        self.create_owned(object, owners.as_ref(), false).await
    }
    async fn apply_update(&self, applied: &Applied) -> Result<Written, ApiError> {
        let (write, config) = (*self, &applied.config);
        self.change(Tracking::Beside, &mut |Present { object: stored, owners, revision }| {
            let (Merged { mut object, is_live }, owned) = match owners {
                None => (write.merge(Some(stored), config)?, Owned::Within),
                Some(_) => {
                    let (merged, owners) = write.merge_apart(Some((stored, owners)), config)?;
                    (merged, Owned::Beside(owners))
                }
            };
            // As there: an object that stays is not held to its schema, which may have changed.
            if !is_live {
                write.complete(&mut object, config)?;
            }
            write.report_applied(applied)?;
            write.settle_names(&mut object)?;
            // Of the configuration's system metadata, these two are preconditions. Without a
            // resourceVersion, the configuration is merged with the present object, even for kinds
            // whose updates require one.
            let asked = config.meta().and_then(|meta| meta.get("resourceVersion"));
            let version = match asked.and_then(Value::as_str) {
                Some(asked) => asked.to_owned(),
                None => revision.to_string(),
            };
            object.set_meta("resourceVersion", version.into());
            if !config.uid().is_empty() {
                object.set_meta("uid", config.uid().into());
            }
            write.merge_subresource(&mut object, stored);
            Ok(Changed::of(object, owned))
        })
        .await
    }
    fn merge(&self, live: Option<&Value>, config: &Value) -> Result<Merged, ApiError> {
        let force = self.options.force.unwrap_or(false);
        self.with_manager(|typing, manager| apply::apply(typing, live, config, manager, force))
    }
    /// The same with managedFields beside the objects.
    fn merge_apart(
        &self,
        live: Option<(&Value, Option<&Owners<'_>>)>,
        config: &Value,
    ) -> Result<(Merged, Option<Owners<'static>>), ApiError> {
        let force = self.options.force.unwrap_or(false);
        self.with_manager(|typing, manager| {
            apply::apply_apart(typing, live, config, manager, force)
        })
    }
    /// Makes a merged object canonical and fills in its defaults.
    fn complete(&self, object: &mut Value, config: &Value) -> Result<(), ApiError> {
        let mut problems = Vec::new();
        self.conform(object, &mut problems).map_err(|why| match self.resource.has_go_type() {
            true => {
                let gvk = &self.resource.gvk;
                apply::unconvertible(&gvk.group_version().to_string(), &gvk.kind, config, &why)
            }
            false => super::patch::undecodable(config, &why),
        })?;
        match self.resource.has_go_type() {
            true => self.default(object)?,
            false => self.resource.schema.fill_merged(object)?,
        }
        Ok(())
    }
    /// Names, namespace and owner references of a merged object.
    fn settle_names(&self, object: &mut Value) -> Result<(), ApiError> {
        // A configuration may omit the names in the URL, unless it creates the object.
        metadata::set_namespace(self.target, object)?;
        metadata::check_body_name(self.target, object)?;
        metadata::deduplicate_owners(self.attributes, object);
        Ok(())
    }
}
