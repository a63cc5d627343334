//! Query options of every verb, and the messages of their refusals.

use crate::query::Query;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::field::{self, ErrorKind, Path};
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::gvk::GroupKind;
use setpoint_object::label::Selector;
use setpoint_registry::{
    DeleteOptions, FieldValidation, Format, ListOptions, PatchType, PropagationPolicy,
    ShardSelector, VersionMatch, WriteOptions,
};
use setpoint_schema::decode::cbor;
use std::time::Duration;

/// Maximum length of a field manager in bytes; longer ones are refused with 422.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

fn invalid(kind: &str, errors: &[field::Error]) -> ApiError {
    ApiError::invalid(&GroupKind { group: "meta.k8s.io".into(), kind: kind.into() }, "", errors)
}

/// Options of create and update. `kind` is `CreateOptions` or `UpdateOptions`.
///
/// # Errors
///
/// 422 on that kind.
pub(crate) fn write(query: &Query, kind: &str) -> Result<WriteOptions, ApiError> {
    let mut errors = field::Errors::new();
    let options = write_fields(query, &mut errors);
    if errors.is_empty() { Ok(options) } else { Err(invalid(kind, &errors)) }
}

/// Options of a patch. Apply requires a field manager; the others must not have `force`.
///
/// # Errors
///
/// 422 on `PatchOptions`.
pub(crate) fn patch(query: &Query, patch_type: PatchType) -> Result<WriteOptions, ApiError> {
    let mut errors = field::Errors::new();
    let force = query.flag("force");
    if patch_type == PatchType::Apply {
        if query.text("fieldManager").is_empty() {
            errors.push(field::Error::required(
                Path::new("fieldManager"),
                "is required for apply patch",
            ));
        }
    } else if force.is_some() {
        errors.push(field::Error::forbidden(
            Path::new("force"),
            "may not be specified for non-apply patch",
        ));
    }
    let options = WriteOptions { force, ..write_fields(query, &mut errors) };
    if errors.is_empty() { Ok(options) } else { Err(invalid("PatchOptions", &errors)) }
}

fn write_fields(query: &Query, errors: &mut field::Errors) -> WriteOptions {
    let field_manager = query.text("fieldManager").to_owned();
    check_field_manager(&field_manager, errors);
    let dry_run = dry_run(&query.all("dryRun").collect::<Vec<_>>(), errors);
    let field_validation = match query.text("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            errors.push(field::Error::not_supported(
                Path::new("fieldValidation"),
                &other.into(),
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    };
    WriteOptions { dry_run, field_manager, field_validation, force: None }
}

fn check_field_manager(manager: &str, errors: &mut field::Errors) {
    let path = || Path::new("fieldManager");
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(field::Error::too_long(path(), FIELD_MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices() {
        if !field::is_printable(c) {
            errors.push(field::Error {
                kind: ErrorKind::Invalid,
                path: path(),
                shown: Some(field::quote(manager)),
                detail: format!("invalid character U+{:04X} (at position {at})", c as u32),
            });
        }
    }
}

fn dry_run(values: &[&str], errors: &mut field::Errors) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.push(field::Error::not_supported(Path::new("dryRun"), &json!(values), &["All"]));
    }
    !values.is_empty()
}

/// Options of list, watch and deletecollection. A negative `timeoutSeconds` closes a watch at once
/// (zero duration). With zero or none, the registry chooses the duration (`None`).
///
/// # Errors
///
/// 400 for selectors and integers that do not parse, 422 on `ListOptions`.
pub(crate) fn list(query: &Query) -> Result<ListOptions, ApiError> {
    list_named(query, "")
}

/// As [`list`], for a collection narrowed to one name (empty: all), as the deprecated
/// `/watch/.../{name}` path does.
///
/// # Errors
///
/// As [`list`].
pub(crate) fn list_named(query: &Query, name: &str) -> Result<ListOptions, ApiError> {
    let timeout = match query.integer("timeoutSeconds")? {
        None | Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    };
    let limit = query.integer("limit")?.unwrap_or(0).max(0);
    let labels = match query.text("labelSelector") {
        "" => Selector::everything(),
        text => Selector::parse(text).map_err(|error| ApiError::bad_request(error.0))?,
    };
    let mut fields = query.text("fieldSelector").to_owned();
    if !name.is_empty() {
        let comma = if fields.is_empty() { "" } else { "," };
        fields = format!("{fields}{comma}metadata.name={name}");
    }
    let fields = FieldSelector::parse(&fields).map_err(|error| ApiError::bad_request(error.0))?;
    let resource_version_match = match query.text("resourceVersionMatch") {
        "" => None,
        "Exact" => Some(VersionMatch::Exact),
        "NotOlderThan" => Some(VersionMatch::NotOlderThan),
        other => {
            return Err(invalid(
                "ListOptions",
                &[field::Error::not_supported(
                    Path::new("resourceVersionMatch"),
                    &other.into(),
                    &["Exact", "NotOlderThan", ""],
                )],
            ));
        }
    };
    let shard = match query.text("shardSelector") {
        "" => None,
        text => Some(ShardSelector::parse(text)?),
    };
    Ok(ListOptions {
        labels,
        fields,
        shard,
        limit,
        continue_token: query.text("continue").to_owned(),
        resource_version: query.text("resourceVersion").to_owned(),
        resource_version_match,
        allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
        send_initial_events: query.flag("sendInitialEvents"),
        timeout,
    })
}

/// The options of a delete before validation.
#[derive(Debug, Default)]
struct RawDelete {
    dry_run: Vec<String>,
    grace_period_seconds: Option<i64>,
    propagation: Option<String>,
    orphan_dependents: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Options of delete and deletecollection: the body if there is one, otherwise the query. `served`
/// returns whether a group version is served, because a body may name any of them.
///
/// # Errors
///
/// 400 for a body that cannot be read, 422 on `DeleteOptions`.
pub(crate) fn delete(
    query: &Query,
    body: &[u8],
    format: Format,
    served: impl Fn(&str) -> bool,
) -> Result<DeleteOptions, ApiError> {
    let raw = if body.is_empty() {
        RawDelete {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            propagation: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.flag("orphanDependents"),
            ..RawDelete::default()
        }
    } else {
        delete_body(body, format, served)?
    };
    let mut errors = field::Errors::new();
    let path = || Path::new("propagationPolicy");
    if let (Some(policy), Some(_)) = (&raw.propagation, raw.orphan_dependents) {
        errors.push(field::Error::invalid(
            path(),
            &policy.as_str().into(),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    let propagation = match raw.propagation.as_deref() {
        None => None,
        Some("Orphan") => Some(PropagationPolicy::Orphan),
        Some("Background") => Some(PropagationPolicy::Background),
        Some("Foreground") => Some(PropagationPolicy::Foreground),
        Some(other) => {
            errors.push(field::Error::not_supported(
                path(),
                &other.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
    };
    let dry_run = dry_run(&raw.dry_run.iter().map(String::as_str).collect::<Vec<_>>(), &mut errors);
    if !errors.is_empty() {
        return Err(invalid("DeleteOptions", &errors));
    }
    Ok(DeleteOptions {
        dry_run,
        grace_period_seconds: raw.grace_period_seconds,
        propagation,
        orphan_dependents: raw.orphan_dependents,
        uid: raw.uid,
        resource_version: raw.resource_version,
    })
}

fn delete_body(
    body: &[u8],
    format: Format,
    served: impl Fn(&str) -> bool,
) -> Result<RawDelete, ApiError> {
    if format == Format::Cbor {
        return delete_members(&delete_cbor(body)?, served);
    }
    let decoded = setpoint_schema::decode::parse(body, format).map_err(|error| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    let value = decoded.value;
    if !value.is_object() {
        return Err(ApiError::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ));
    }
    delete_members(&value, served)
}

/// A body in CBOR, of any type.
fn delete_cbor(body: &[u8]) -> Result<Value, ApiError> {
    const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let head = cbor::head(body).map_err(|error| {
        ApiError::bad_request(format!("unable to determine group/version/kind: {error}"))
    })?;
    match setpoint_schema::builtin::definition(OPTIONS) {
        Some(schema) if matches!(&*head.kind, "" | "DeleteOptions") => {
            let decoded = cbor::typed(body, &schema);
            Ok(decoded.map_err(|error| ApiError::bad_request(error.to_string()))?.value)
        }
        _ => Ok(json!({"apiVersion": head.api_version, "kind": head.kind})),
    }
}

fn delete_members(value: &Value, served: impl Fn(&str) -> bool) -> Result<RawDelete, ApiError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if (!kind.is_empty() && kind != "DeleteOptions") || (!version.is_empty() && !served(version)) {
        let kind = if kind.is_empty() { "DeleteOptions" } else { kind };
        let version = if version.is_empty() { "v1" } else { version };
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"k8s.io/apimachinery/pkg/runtime/scheme.go:110\"",
        )));
    }
    let member = |name: &str| value.get(name).filter(|value| !value.is_null());
    let wrong = |value: &Value, field: &str, ty: &str| {
        let shape = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        ApiError::bad_request(format!(
            "json: cannot unmarshal {shape} into Go struct field DeleteOptions.{field} of type {ty}"
        ))
    };
    let string = |value: &Value, field: &str| {
        value.as_str().map(str::to_owned).ok_or_else(|| wrong(value, field, "string"))
    };
    let precondition = |name: &str| {
        let value = member("preconditions").and_then(|p| p.get(name)).filter(|v| !v.is_null());
        value.map(|value| string(value, &format!("preconditions.{name}"))).transpose()
    };
    let dry_run = match member("dryRun") {
        None => Vec::new(),
        Some(Value::Array(values)) => {
            values.iter().map(|value| string(value, "dryRun")).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(other, "dryRun", "[]string")),
    };
    Ok(RawDelete {
        dry_run,
        grace_period_seconds: member("gracePeriodSeconds")
            .map(|v| v.as_i64().ok_or_else(|| wrong(v, "gracePeriodSeconds", "int64")))
            .transpose()?,
        propagation: member("propagationPolicy")
            .map(|v| string(v, "propagationPolicy"))
            .transpose()?,
        orphan_dependents: member("orphanDependents")
            .map(|v| v.as_bool().ok_or_else(|| wrong(v, "orphanDependents", "bool")))
            .transpose()?,
        uid: precondition("uid")?,
        resource_version: precondition("resourceVersion")?,
    })
}

#[cfg(test)]
mod tests;
