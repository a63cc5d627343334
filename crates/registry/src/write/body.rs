//! Decodes a request body into a complete tree of the endpoint's kind, with types checked and
//! defaults filled in (spec: api-server §5.2).
use super::{Write, metadata};
use crate::catalog::Resource;
use crate::kind::registered::{
    INTERNAL, is_of_meta, is_registered, is_registered_internally, unregistered,
};
use crate::request::{Body, FieldValidation, Format};
use crate::subresource::Subresource;
use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersion, GroupVersionKind, encode};
use setpoint_schema::builtin;
use setpoint_schema::decode::{self, TypeMeta};
use setpoint_schema::node::TypeSchema;
use std::fmt::Write as _;

/// Maximum bytes that an error shows of a body.
const EXCERPT_BYTES_MAX: usize = 30;

impl Write<'_> {
    /// Decodes a body of the resource's own kind and fills in defaults.
    pub(super) fn decode(&self, body: &Body) -> Result<Value, ApiError> {
        let gvk = &self.resource.gvk;
        let schema = self.resource.has_go_type().then_some(&*self.resource.schema);
        let (mut value, mut problems) = self.parse(gvk, body, schema)?;
        self.check_kind(gvk, &mut value, body)?;
        let n_known = problems.len();
        let refuse = |value: &Value, why: &str| {
            let named = self.named(value);
            cannot_be_handled(&named, &named.kind, why)
        };
        self.conform(&mut value, &mut problems)
            .map_err(|error| refuse(&value, &as_written(gvk, schema, body, error)))?;
        if body.format == Format::Cbor {
            // Known before. Those of custom resources are not reported, as there.
            problems.truncate(n_known);
        } else if self.resource.has_go_type() {
            order_problems(&self.resource.schema, body, &mut problems);
        }
        if let Some(error) = (self.resource.kind.unreadable)(&value) {
            return Err(refuse(&value, &error));
        }
        self.report(&problems, |why| refuse(&value, why))?;
        self.check_custom_version(&value)?;
        // As there, the audit log has the defaults of built-in kinds only. What is noted first
        // stays.
        if !self.resource.has_go_type() {
            self.attributes.note_decoded(&value);
        }
        self.default(&mut value)?;
        self.attributes.note_decoded(&value);
        Ok(value)
    }
    /// Decodes a body of another built-in kind without defaults (`Scale`, `Binding`, `Eviction`).
    /// `also`: further versions of it that are accepted, with the same fields.
    pub(super) fn decode_as(
        &self,
        gvk: &GroupVersionKind,
        also: &[&str],
        body: &Body,
    ) -> Result<Value, ApiError> {
        let value = self.decode_undefaulted(gvk, also, body)?;
        self.attributes.note_decoded(&value);
        Ok(value)
    }
    /// The same for a kind with defaults, which the caller fills in.
    pub(super) fn decode_undefaulted(
        &self,
        gvk: &GroupVersionKind,
        also: &[&str],
        body: &Body,
    ) -> Result<Value, ApiError> {
        let schema = builtin::type_schema(&gvk.group, &gvk.version, &gvk.kind);
        let (mut value, mut problems) = self.parse(gvk, body, schema.as_ref())?;
        check_go_kind(gvk, also, &value, body)?;
        name_kind(gvk, &mut value);
        if let Some(schema) = schema {
            decode::conform(&schema, &gvk.kind, &mut value, &mut problems)
                .map_err(|e| as_written(gvk, Some(&schema), body, e.to_string()))
                .map_err(|e| cannot_be_handled(gvk, &gvk.kind, &e))?;
            order_problems(&schema, body, &mut problems);
        }
        self.report(&problems, |error| cannot_be_handled(gvk, &gvk.kind, error))?;
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
        let unknown = |error: &str| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {error} ({})",
                gvk.kind,
                excerpt(&body.bytes),
            ))
        };
        let unrecognized = |error: &str| match body.format {
            Format::Protobuf => unknown(error),
            _ => unknown(&format!("couldn't get version/kind; json parse error: {error}")),
        };
        // YAML that cannot be read has no type either way.
        let decoded = match schema {
            Some(_) => decode::parse_typed(&body.bytes, body.format),
            None => decode::parse(&body.bytes, body.format),
        };
        let mut decoded = decoded.map_err(|e| match body.format {
            Format::Yaml => unknown(&e.to_string()),
            _ => unrecognized(&e.to_string()),
        })?;
        if decoded.value.is_null() {
            // `null`, and YAML without a document.
            return Ok((Value::Object(Map::new()), decoded.problems));
        }
        let TypeMeta { api_version, kind } =
            decoded.type_meta(&body.bytes, body.format).map_err(|fault| unrecognized(&fault))?;
        if api_version.matches('/').count() > 1 {
            return Err(unknown(&format!("unexpected GroupVersion string: {api_version}")));
        }
        if let Some(schema) = schema.filter(|_| body.format == Format::Json) {
            let is_other = (&*api_version, &*kind) != type_of(&decoded.value);
            let named = is_other.then(|| [api_version.into_owned(), kind.into_owned()]);
            decoded.merge_repeated(schema, &body.bytes, body.format);
            if let Some([api_version, kind]) = named {
                decoded.value["apiVersion"] = api_version.into();
                decoded.value["kind"] = kind.into();
            }
        }
        Ok((decoded.value, decoded.problems))
    }
    /// Checks `apiVersion` and `kind` against the endpoint, or fills them in where that is allowed.
    /// The version of a custom resource is compared after it is decoded.
    fn check_kind(
        &self,
        gvk: &GroupVersionKind,
        value: &mut Value,
        body: &Body,
    ) -> Result<(), ApiError> {
        if self.resource.has_go_type() {
            check_go_kind(gvk, &[], value, body)?;
            name_kind(gvk, value);
            return Ok(());
        }
        let kind = type_of(value).1;
        if !kind.is_empty() {
            if let Some(fault) = null_version(value) {
                return Err(cannot_be_handled(&GroupVersion::new("", "").kind(kind), kind, fault));
            }
            // Validation refuses another kind of the right group version, but not of a status.
            self.name_status(value);
            return Ok(());
        }
        let is_strict = self.options.field_validation != FieldValidation::Ignore;
        if is_strict || body.format == Format::Cbor {
            let text = String::from_utf8_lossy(&body.bytes);
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' ({})",
                gvk.kind,
                excerpt(&body.bytes),
            )));
        }
        let text = match body.format {
            Format::Json => body.bytes.clone(),
            _ => encode::to_bytes(value),
        };
        let found = find_go_kind(gvk, value);
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&text));
        Err(cannot_be_handled(&found, &gvk.kind, &why))
    }
    /// Gives a custom resource that is sent to its status its own kind, if it names another one.
    pub(super) fn name_status(&self, value: &mut Value) {
        if self.target.subresource == Some(Subresource::Status) && self.is_of_other_kind(value) {
            value["kind"] = Value::from(&*self.resource.gvk.kind);
        }
    }
    /// The refusal of a custom resource of another version.
    fn check_custom_version(&self, value: &Value) -> Result<(), ApiError> {
        match self.is_of_other_version(value) {
            false => Ok(()),
            true => {
                let version = type_of(value).0;
                let version = version.strip_prefix('/').unwrap_or(version);
                Err(wrong_version(version, &self.resource.group_version()))
            }
        }
    }
    /// Whether a custom resource names another version.
    pub(super) fn is_of_other_version(&self, value: &Value) -> bool {
        let gvk = &self.resource.gvk;
        let is_own = |api_version: &str| match api_version.rsplit_once('/') {
            Some((group, version)) => *group == *gvk.group && *version == *gvk.version,
            None => gvk.group.is_empty() && *api_version == *gvk.version,
        };
        !self.resource.has_go_type() && !is_own(type_of(value).0)
    }
    /// Whether a custom resource names another kind, which validation refuses. Only its metadata
    /// are decoded.
    pub(super) fn is_of_other_kind(&self, value: &Value) -> bool {
        !self.resource.has_go_type() && type_of(value).1 != &*self.resource.gvk.kind
    }
    /// The kind that errors of a decoded body name: of a custom resource, as it is written.
    fn named(&self, value: &Value) -> GroupVersionKind {
        let gvk = &self.resource.gvk;
        match self.is_of_other_kind(value) || self.is_of_other_version(value) {
            true => {
                let (version, kind) = type_of(value);
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                GroupVersion::new(group, version).kind(kind)
            }
            false => gvk.clone(),
        }
    }
    /// Converts a tree to the schema: checks types, makes scalars canonical, drops unknown fields
    /// and reports them.
    pub(super) fn conform(
        &self,
        value: &mut Value,
        problems: &mut Vec<String>,
    ) -> Result<(), String> {
        if self.is_of_other_kind(value) || self.is_of_other_version(value) {
            let conformed = decode::conform_metadata(value, problems);
            return conformed.map_err(|error| error.to_string());
        }
        let Resource { schema, gvk, .. } = self.resource;
        schema.conform(&gvk.kind, value, problems).map_err(|error| error.to_string())
    }
    /// Fills in the defaults of the endpoint's version.
    ///
    /// # Errors
    /// 413: the defaults of a custom resource's items exceed the size limit.
    pub(super) fn default(&self, value: &mut Value) -> Result<(), ApiError> {
        self.resource.schema.fill_defaults(value)?;
        let has_labels = |value: &Value| {
            metadata::member_of(value, "labels")
                .and_then(Value::as_object)
                .is_some_and(|l| !l.is_empty())
        };
        let had_labels = has_labels(value);
        if let Some(members) = value.as_object_mut() {
            (self.resource.kind.default)(members, &self.resource.gvk.version);
            (self.resource.kind.default_of)(members, self.inner.features);
        }
        if !had_labels && !value.name().is_empty() && has_labels(value) {
            self.attributes.note_default_labels();
        }
        Ok(())
    }
    /// Refuses, warns of or ignores unknown and repeated fields, by `fieldValidation`. `refusal`:
    /// from the text of the strict decoder.
    pub(super) fn report(
        &self,
        problems: &[String],
        refusal: impl FnOnce(&str) -> ApiError,
    ) -> Result<(), ApiError> {
        match self.options.field_validation {
            _ if problems.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => problems.iter().for_each(|p| self.attributes.warn(p.as_str())),
            FieldValidation::Strict => return Err(refusal(&decode::strict_error(problems))),
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

/// The error of a body of a built-in kind that does not conform, with numbers as the body has them.
fn as_written(
    gvk: &GroupVersionKind,
    schema: Option<&TypeSchema>,
    body: &Body,
    error: String,
) -> String {
    let written = schema
        .and_then(|schema| decode::conform_error(schema, &gvk.kind, &body.bytes, body.format));
    written.map_or(error, |error| error.to_string())
}

/// Writes `apiVersion` and `kind` into a tree.
pub(super) fn name_kind(gvk: &GroupVersionKind, value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.insert("apiVersion".into(), gvk.group_version().to_string().into());
        members.insert("kind".into(), Value::from(&*gvk.kind));
    }
}
/// `apiVersion` and `kind` of a tree, empty if missing.
pub(super) fn type_of(value: &Value) -> (&str, &str) {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}
/// Why a version that is null is none.
fn null_version(value: &Value) -> Option<&'static str> {
    const NULL: &str = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
    value.get("apiVersion").is_some_and(Value::is_null).then_some(NULL)
}
/// Checks the kind of a body of a built-in kind. As in the reference, it is decoded before its
/// version is compared.
fn check_go_kind(
    gvk: &GroupVersionKind,
    also: &[&str],
    value: &Value,
    body: &Body,
) -> Result<(), ApiError> {
    let found = find_go_kind(gvk, value);
    if let Some(error) = go_kind_fault(gvk, &found, || body.bytes.clone()) {
        return Err(cannot_be_handled(&found, &gvk.kind, &error));
    }
    let (version, expected) = (found.group_version().to_string(), gvk.group_version());
    if version == expected.to_string() || also.contains(&version.as_str()) {
        return Ok(());
    }
    Err(wrong_version(&version, &expected))
}
/// Whether an `apiVersion` of a body has no version, and at most the endpoint's group.
pub(super) fn lacks_version(gvk: &GroupVersionKind, api_version: &str) -> bool {
    matches!(api_version, "" | "/") || api_version.strip_suffix('/') == Some(&*gvk.group)
}
/// The kind that a tree names. What it leaves out is that of the endpoint.
fn find_go_kind(gvk: &GroupVersionKind, value: &Value) -> GroupVersionKind {
    let (version, kind) = type_of(value);
    let version = match version.split_once('/') {
        _ if lacks_version(gvk, version) => gvk.group_version(),
        Some((group, version)) => GroupVersion::new(group, version),
        None => GroupVersion::new("", version),
    };
    version.kind(if kind.is_empty() { &*gvk.kind } else { kind })
}
/// Why the reference's decoder cannot make a body of this kind an object of the endpoint's.
fn go_kind_fault(
    gvk: &GroupVersionKind,
    found: &GroupVersionKind,
    body: impl FnOnce() -> Bytes,
) -> Option<String> {
    if found.version.is_empty() {
        let text = body();
        let text = String::from_utf8_lossy(&text);
        return Some(format!("Object 'apiVersion' is missing in '{text}'"));
    }
    if !is_registered(found, &gvk.group) {
        return Some(unregistered(found, &gvk.group));
    }
    (found.kind != gvk.kind).then(|| unconvertible(found, gvk))
}
/// Checks that the result of a patch can name its type.
fn check_patched_type(object: &Value) -> Result<(), String> {
    decode::type_meta(object, &[], &[])
        .map_err(|fault| format!("couldn't get version/kind; json parse error: {fault}"))?;
    let version = type_of(object).0;
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    Ok(())
}
/// Checks that the result of a patch of a custom resource has a kind: another one is found later.
///
/// # Errors
///
/// The text of the decoder.
pub(super) fn check_custom_type(object: &Value) -> Result<(), String> {
    check_patched_type(object)?;
    if type_of(object).1.is_empty() {
        let text = encode::to_bytes(object);
        let text = String::from_utf8_lossy(&text);
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    match null_version(object) {
        Some(fault) => Err(fault.to_owned()),
        None => Ok(()),
    }
}
/// Checks the kind of the result of a patch that is decoded: what is left out is no change.
///
/// # Errors
///
/// The text of the decoder.
pub(super) fn check_patched_kind(gvk: &GroupVersionKind, object: &Value) -> Result<(), String> {
    check_patched_type(object)?;
    let found = find_go_kind(gvk, object);
    let fault = match lacks_version(gvk, type_of(object).0) {
        true => internal_kind_fault(gvk, found),
        false => go_kind_fault(gvk, &found, || encode::to_bytes(object)),
    };
    fault.map_or(Ok(()), Err)
}
/// Why the result of a patch without a version, which becomes an internal object, is none of the
/// endpoint's kind.
fn internal_kind_fault(gvk: &GroupVersionKind, mut found: GroupVersionKind) -> Option<String> {
    if !is_registered_internally(&found) {
        found.version = INTERNAL.into();
        found.group = gvk.group.clone();
        return Some(unregistered(&found, &gvk.group));
    }
    let has_own_kind = found.kind == gvk.kind;
    found.version = package(&gvk.group).into();
    (!has_own_kind).then(|| unconvertible(&found, gvk))
}
fn wrong_version(found: &str, expected: &GroupVersion) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}
/// The Go package of a group's internal types.
fn package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    }
}
fn unconvertible(found: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    // Types of requests and answers are the same in all versions.
    let version = if is_of_meta(&found.kind) { "v1" } else { &*found.version };
    format!(
        "converting ({version}.{}) to ({}.{}): unknown conversion",
        found.kind,
        package(&expected.group),
        expected.kind
    )
}
/// 400: a body that decodes, but not to this type.
pub(super) fn cannot_be_handled(
    gvk: &GroupVersionKind,
    kind: &str,
    error: &(impl std::fmt::Display + ?Sized),
) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {} cannot be handled as a {kind}: {error}",
        gvk.kind,
        quote(&gvk.version)
    ))
}
/// The first bytes of a body as an error shows them: as text if it starts like an object, otherwise
/// in hex.
fn excerpt(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let first = &body[..body.len().min(EXCERPT_BYTES_MAX)];
    let mut text = String::new();
    if body.starts_with(b"{") {
        text.push_str(&String::from_utf8_lossy(first));
    } else {
        for byte in first {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    if body.len() > EXCERPT_BYTES_MAX {
        text.push_str(" ...");
    }
    text
}
/// The format of a patch body that is a whole object.
pub(super) const APPLY_FORMAT: Format = Format::Yaml;
