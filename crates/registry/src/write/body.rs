//! Decodes a request body into a complete tree of the endpoint's kind, with types checked and
//! defaults filled in (spec: api-server §5.2).
use super::Write;
use crate::catalog::Resource;
use crate::request::{Body, FieldValidation, Format};
use serde_json::Value;
use setpoint_object::{ApiError, GroupVersion, GroupVersionKind};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::patch::json_type;
use setpoint_schema::{builtin, decode};
use std::fmt::Write as _;

/// Maximum bytes that an error shows of a body without a leading `{`.
const EXCERPT_BYTES_MAX: usize = 30;

impl Write<'_> {
    /// Decodes a body of the resource's own kind and fills in defaults.
    pub(super) fn decode(&self, body: &Body) -> Result<Value, ApiError> {
        let gvk = &self.resource.gvk;
        let schema = self.resource.has_go_type().then_some(&*self.resource.schema);
        let (mut value, mut problems) = self.parse(gvk, body, schema)?;
        self.check_kind(gvk, &mut value, body)?;
        let n_known = problems.len();
        self.conform(&mut value, &mut problems)
            .map_err(|e| cannot_be_handled(gvk, &gvk.kind, &e))?;
        if body.format == Format::Cbor {
            // Known before. Those of custom resources are not reported, as there.
            problems.truncate(n_known);
        } else if self.resource.has_go_type() {
            order_problems(&self.resource.schema, body, &mut problems);
        }
        if let Some(error) = (self.resource.kind.unreadable)(&value) {
            return Err(cannot_be_handled(gvk, &gvk.kind, &error));
        }
        self.report(gvk, &problems)?;
        self.default(&mut value)?;
        Ok(value)
    }
    /// Decodes a body of another built-in kind (`Scale`, `Binding`, `Eviction`).
    pub(super) fn decode_as(&self, gvk: &GroupVersionKind, body: &Body) -> Result<Value, ApiError> {
        let schema = builtin::type_schema(&gvk.group, &gvk.version, &gvk.kind);
        let (mut value, mut problems) = self.parse(gvk, body, schema.as_ref())?;
        let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
        let (group, _) = version.split_once('/').unwrap_or(("", version));
        if !kind.is_empty() && kind != &*gvk.kind || !version.is_empty() && group != &*gvk.group {
            let found = GroupVersion::parse(version)
                .unwrap_or_else(|| GroupVersion::new(group, version))
                .kind(kind);
            return Err(unconvertible(&found, gvk));
        }
        name_kind(gvk, &mut value);
        if let Some(schema) = schema {
            decode::conform(&schema, &gvk.kind, &mut value, &mut problems)
                .map_err(|e| cannot_be_handled(gvk, &gvk.kind, &e))?;
            order_problems(&schema, body, &mut problems);
        }
        self.report(gvk, &problems)?;
        Ok(value)
    }
    /// `schema`: of a built-in kind.
    fn parse(
        &self,
        gvk: &GroupVersionKind,
        body: &Body,
        schema: Option<&TypeSchema>,
    ) -> Result<(Value, Vec<String>), ApiError> {
        if body.format == Format::Cbor {
            return self.parse_cbor(gvk, body, schema);
        }
        let unrecognized = |error: &str| {
            let step = match body.format {
                Format::Protobuf => "",
                _ => "couldn't get version/kind; json parse error: ",
            };
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {step}{error} ({})",
                gvk.kind,
                excerpt(&body.bytes),
            ))
        };
        let decoded =
            decode::parse(&body.bytes, body.format).map_err(|e| unrecognized(&e.to_string()))?;
        let type_name = match &decoded.value {
            Value::Object(members) => {
                for name in ["apiVersion", "kind"] {
                    if let Some(value) =
                        members.get(name).filter(|v| !v.is_string() && !v.is_null())
                    {
                        return Err(unrecognized(&format!(
                            "json: cannot unmarshal {} into Go struct field .{name} of type string",
                            json_type(value)
                        )));
                    }
                }
                return Ok((decoded.value, decoded.problems));
            }
            other => json_type(other),
        };
        Err(unrecognized(&format!(
            "json: cannot unmarshal {type_name} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )))
    }
    /// Checks `apiVersion` and `kind` against the endpoint, or fills them in where that is allowed.
    fn check_kind(
        &self,
        gvk: &GroupVersionKind,
        value: &mut Value,
        body: &Body,
    ) -> Result<(), ApiError> {
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
        let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let expected = gvk.group_version();
        if !self.resource.has_go_type() {
            let text = || String::from_utf8_lossy(&body.bytes).into_owned();
            for (missing, member) in [(kind.is_empty(), "Kind"), (version.is_empty(), "apiVersion")]
            {
                if missing {
                    return Err(ApiError::bad_request(format!(
                        "the object provided is unrecognized (must be of type {}): Object '{member}' is missing in '{}' ({})",
                        gvk.kind,
                        text(),
                        excerpt(&body.bytes),
                    )));
                }
            }
            // Validation refuses another kind of the right group version.
            return if version == expected.to_string() {
                Ok(())
            } else {
                Err(wrong_version(version, &expected))
            };
        }
        let matches_kind = kind.is_empty() || kind == &*gvk.kind;
        let matches_version = version.is_empty() || is_group_version(version, &expected);
        if matches_kind && matches_version {
            name_kind(gvk, value);
            return Ok(());
        }
        let found = if version.is_empty() {
            expected.clone()
        } else {
            GroupVersion::parse(version).unwrap_or_else(|| GroupVersion::new("", version))
        };
        let found_kind = if kind.is_empty() { gvk.kind.clone() } else { kind.into() };
        let is_known = setpoint_facts::RESOURCES.iter().any(|r| {
            *r.group == *found.group && *r.version == *found.version && *r.kind == *found_kind
        });
        let found = found.kind(found_kind);
        Err(if !is_known {
            cannot_be_handled(
                &found,
                &gvk.kind,
                &format!(
                    "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                    found.kind,
                    found.group_version()
                ),
            )
        } else if !matches_version {
            wrong_version(version, &expected)
        } else {
            unconvertible(&found, gvk)
        })
    }
    /// Converts a tree to the schema: checks types, makes scalars canonical, drops unknown fields
    /// and reports them.
    pub(super) fn conform(
        &self,
        value: &mut Value,
        problems: &mut Vec<String>,
    ) -> Result<(), String> {
        let Resource { schema, gvk, .. } = self.resource;
        schema.conform(&gvk.kind, value, problems).map_err(|error| error.to_string())
    }
    /// Fills in the defaults of the endpoint's version.
    ///
    /// # Errors
    /// 413: the defaults of a custom resource's items exceed the size limit.
    pub(super) fn default(&self, value: &mut Value) -> Result<(), ApiError> {
        self.resource.schema.fill_defaults(value)?;
        if let Some(members) = value.as_object_mut() {
            (self.resource.kind.default)(members, &self.resource.gvk.version);
        }
        Ok(())
    }
    /// Refuses, warns of or ignores unknown and repeated fields, by `fieldValidation`.
    pub(super) fn report(
        &self,
        gvk: &GroupVersionKind,
        problems: &[String],
    ) -> Result<(), ApiError> {
        match self.options.field_validation {
            _ if problems.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => problems.iter().for_each(|p| self.attributes.warn(p.as_str())),
            FieldValidation::Strict => {
                return Err(cannot_be_handled(gvk, &gvk.kind, &decode::strict_error(problems)));
            }
        }
        Ok(())
    }
}

/// Sorts the problems of a JSON body of a built-in kind in document order, as the reference reports
/// them. YAML is converted to JSON with sorted members first, in both servers.
fn order_problems(schema: &TypeSchema, body: &Body, problems: &mut Vec<String>) {
    if body.format == Format::Json && !problems.is_empty() {
        *problems = decode::field_problems(schema, &body.bytes);
    }
}

/// Writes `apiVersion` and `kind` into a tree.
pub(super) fn name_kind(gvk: &GroupVersionKind, value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.insert("apiVersion".into(), gvk.group_version().to_string().into());
        members.insert("kind".into(), Value::from(&*gvk.kind));
    }
}
fn is_group_version(text: &str, gv: &GroupVersion) -> bool {
    if gv.group.is_empty() {
        return text == &*gv.version;
    }
    text.split_once('/').is_some_and(|(g, v)| g == &*gv.group && v == &*gv.version)
}
fn wrong_version(found: &str, expected: &GroupVersion) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}
fn unconvertible(found: &GroupVersionKind, expected: &GroupVersionKind) -> ApiError {
    let package = |group: &str| match group.split('.').next() {
        None | Some("") => "core".to_owned(),
        Some(first) => first.to_owned(),
    };
    cannot_be_handled(
        found,
        &expected.kind,
        &format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            found.version,
            found.kind,
            package(&expected.group),
            expected.kind
        ),
    )
}
/// 400: a body that decodes, but not to this type.
pub(super) fn cannot_be_handled(
    gvk: &GroupVersionKind,
    kind: &str,
    error: &(impl std::fmt::Display + ?Sized),
) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {kind}: {error}",
        gvk.kind, gvk.version
    ))
}
/// The body as an error shows it: as text if it starts like an object, otherwise its first bytes in
/// hex.
fn excerpt(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    if body.starts_with(b"{") {
        return String::from_utf8_lossy(body).into_owned();
    }
    let mut hex = String::new();
    for byte in body.iter().take(EXCERPT_BYTES_MAX) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    if body.len() > EXCERPT_BYTES_MAX {
        hex.push_str(" ...");
    }
    hex
}
/// The format of a patch body that is a whole object.
pub(super) const APPLY_FORMAT: Format = Format::Yaml;
