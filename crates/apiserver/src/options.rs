//! Query options of every verb, and the messages of their refusals.

use crate::query::Query;
use serde_json::{Value, json};
use setpoint_object::field::{self, Path};
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::gvk::GroupKind;
use setpoint_object::label::Selector;
use setpoint_object::{ApiError, UNVERSIONED_KINDS};
use setpoint_registry::{
    DeleteOptions, Feature, FeatureGates, FieldValidation, Format, IGNORE_READ_ERROR, ListOptions,
    PatchType, RawDeleteOptions, ShardSelector, VersionMatch, WriteOptions, check_dry_run,
    check_field_manager,
};
use setpoint_schema::decode::{self, TypeMeta, cbor};
use setpoint_schema::node::TypeSchema;
use std::time::Duration;

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
    check_field_manager(&field_manager, || Path::new("fieldManager"), errors);
    let dry_runs: Vec<&str> = query.all("dryRun").collect();
    check_dry_run(&dry_runs, errors);
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
    let dry_run = !dry_runs.is_empty();
    WriteOptions { dry_run, field_manager, field_validation, force: None }
}

/// Options of list, watch and deletecollection. They are checked as those of a watch if `watch` is
/// set, whatever the verb. A negative `timeoutSeconds` closes a watch at once (zero duration). With
/// zero or none, the registry chooses the duration (`None`).
///
/// # Errors
///
/// 400 for selectors and integers that do not parse, 422 on `ListOptions`.
pub(crate) fn list(query: &Query, features: FeatureGates) -> Result<ListOptions, ApiError> {
    let timeout = match query.integer("timeoutSeconds")? {
        None | Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    };
    let limit = query.integer("limit")?.unwrap_or(0).max(0);
    let labels = match query.text("labelSelector") {
        "" => Selector::everything(),
        text => Selector::parse(text).map_err(|error| ApiError::bad_request(error.0))?,
    };
    let fields = FieldSelector::parse(query.text("fieldSelector"))
        .map_err(|error| ApiError::bad_request(error.0))?;
    let options = ListOptions {
        labels,
        fields,
        shard: None,
        limit,
        continue_token: query.text("continue").to_owned(),
        resource_version: query.text("resourceVersion").to_owned(),
        resource_version_match: match query.text("resourceVersionMatch") {
            "" => None,
            word => Some(VersionMatch::from(word)),
        },
        allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
        send_initial_events: query.flag("sendInitialEvents"),
        timeout,
    };
    options.validate(query.flag("watch").unwrap_or(false), features)?;
    let shard = match query.text("shardSelector") {
        "" => None,
        _ if !features.is_on(Feature::ShardedListAndWatch) => None,
        text => Some(ShardSelector::parse(text)?),
    };
    Ok(ListOptions { shard, ..options })
}

/// Options of a watch below the deprecated `/watch/` path, of one object if `name` is not empty.
/// Without the parameter `watch` they are those of a list: which state to read and where to go on
/// is ignored.
///
/// # Errors
///
/// As [`list`]; 400 for a field selector that requires another name or none.
pub(crate) fn watch_path(
    query: &Query,
    name: &str,
    features: FeatureGates,
) -> Result<ListOptions, ApiError> {
    let mut options = list(query, features)?;
    if !query.flag("watch").unwrap_or(false) {
        options.resource_version_match = None;
        options.continue_token = String::new();
    }
    if name.is_empty() {
        return Ok(options);
    }
    if options.fields.is_everything() {
        options.fields = FieldSelector::name(name);
    } else if options.fields.requires_name() != Some(name) {
        return Err(ApiError::bad_request(
            "fieldSelector metadata.name doesn't match requested name",
        ));
    }
    Ok(options)
}

/// Options of delete and deletecollection: the body if there is one, otherwise the query. A body
/// may name any group version. `deletes_unreadable`: whether what cannot be read may be deleted;
/// otherwise the option for it is ignored.
///
/// # Errors
///
/// 400 for a body that cannot be read, 422 on `DeleteOptions`.
pub(crate) fn delete(
    query: &Query,
    body: &[u8],
    format: Format,
    deletes_unreadable: bool,
) -> Result<DeleteOptions, ApiError> {
    // Preconditions: empty ones are none.
    let text = |name: &str| Some(query.text(name).to_owned()).filter(|text| !text.is_empty());
    let mut raw = if body.is_empty() {
        RawDeleteOptions {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            propagation: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.flag("orphanDependents"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ignore_store_read_error: query.flag(IGNORE_READ_ERROR),
        }
    } else {
        delete_body(body, format)?
    };
    if !deletes_unreadable {
        raw.ignore_store_read_error = None;
    }
    raw.validate()?;
    Ok(raw.into_options())
}

fn delete_body(body: &[u8], format: Format) -> Result<RawDeleteOptions, ApiError> {
    const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let schema = setpoint_schema::builtin::definition(OPTIONS)
        .ok_or_else(|| ApiError::internal(format!("there is no {OPTIONS}")))?;
    let mut value = match format {
        Format::Cbor => delete_cbor(body, &schema)?,
        _ => delete_text(body, format, &schema)?,
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    check_delete_kind(text("kind"), text("apiVersion"), body).map_err(ApiError::bad_request)?;
    decode::conform(&schema, "DeleteOptions", &mut value, &mut Vec::new()).map_err(|error| {
        let written = decode::conform_error(&schema, "DeleteOptions", body, format);
        ApiError::bad_request(written.unwrap_or(error).to_string())
    })?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dry_run = value["dryRun"].as_array();
    Ok(RawDeleteOptions {
        dry_run: dry_run.into_iter().flatten().filter_map(text).collect(),
        grace_period_seconds: value["gracePeriodSeconds"].as_i64(),
        propagation: text(&value["propagationPolicy"]),
        orphan_dependents: value["orphanDependents"].as_bool(),
        uid: text(&value["preconditions"]["uid"]),
        resource_version: text(&value["preconditions"]["resourceVersion"]),
        ignore_store_read_error: value[IGNORE_READ_ERROR].as_bool(),
    })
}

fn delete_text(body: &[u8], format: Format, schema: &TypeSchema) -> Result<Value, ApiError> {
    let unread = |error: &str| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    };
    let mut decoded = decode::parse_typed(body, format).map_err(|error| match format {
        Format::Yaml | Format::Protobuf => ApiError::bad_request(error.to_string()),
        _ => unread(&error.to_string()),
    })?;
    // `null`, and YAML without a document, are options without members.
    if decoded.value.is_null() {
        return Ok(json!({}));
    }
    let TypeMeta { api_version, kind } =
        decoded.type_meta(body, format).map_err(|fault| unread(&fault))?;
    let named = [("apiVersion", api_version), ("kind", kind)];
    let named = named.map(|(name, text)| (name, Value::from(text.into_owned())));
    decoded.merge_repeated(schema, body, format);
    for (name, text) in named {
        decoded.value[name] = text;
    }
    Ok(decoded.value)
}

/// A body in CBOR, of any type.
fn delete_cbor(body: &[u8], schema: &TypeSchema) -> Result<Value, ApiError> {
    let head = cbor::head(body).map_err(|error| {
        ApiError::bad_request(format!("unable to determine group/version/kind: {error}"))
    })?;
    match &*head.kind {
        "" | "DeleteOptions" => {
            let decoded = cbor::typed(body, schema);
            Ok(decoded.map_err(|error| ApiError::bad_request(error.to_string()))?.value)
        }
        _ => Ok(json!({"apiVersion": head.api_version, "kind": head.kind})),
    }
}

/// Checks the kind of a body: options of any version, or of none.
fn check_delete_kind(kind: &str, version: &str, body: &[u8]) -> Result<(), String> {
    /// Kinds of the default group version.
    const REGISTERED: [&str; 8] = [
        "GetOptions",
        "ListOptions",
        "PartialObjectMetadata",
        "PartialObjectMetadataList",
        "PatchOptions",
        "Table",
        "TableOptions",
        "WatchEvent",
    ];
    let version = match version.split_once('/') {
        _ if matches!(version, "" | "/" | "meta.k8s.io/") => "meta.k8s.io/v1",
        Some((_, rest)) if rest.contains('/') => {
            return Err(format!("unexpected GroupVersion string: {version}"));
        }
        Some((_, "")) => {
            let text = String::from_utf8_lossy(body);
            return Err(format!("Object 'apiVersion' is missing in '{text}'"));
        }
        Some(("", version)) => version,
        _ => version,
    };
    if matches!(kind, "" | "DeleteOptions") {
        return Ok(());
    }
    let is_of_all =
        UNVERSIONED_KINDS.contains(&kind) || matches!(kind, "CreateOptions" | "UpdateOptions");
    if is_of_all || version == "meta.k8s.io/v1" && REGISTERED.contains(&kind) {
        return Err(format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"));
    }
    let of = match version.strip_suffix("__internal").map(|group| group.strip_suffix('/')) {
        Some(group) => {
            format!("the internal version of group {}", field::quote(group.unwrap_or_default()))
        }
        None => format!("version {}", field::quote(version)),
    };
    Err(format!(
        "no kind {} is registered for {of} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
        field::quote(kind),
    ))
}

#[cfg(test)]
mod tests;
