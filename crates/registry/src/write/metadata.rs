//! The rules for `metadata` that apply to every kind (spec: api-server §5.3, §5.4, §12).
use crate::catalog::Resource;
use crate::kind::{self, NameRule, Report, validate_annotations, validate_labels};
use crate::request::check_field_manager;
use crate::routed::{Attributes, Target};
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, encode, field, name};
use std::collections::{BTreeSet, HashSet};

/// Bytes of repeated owners' uids after which a warning names no more: those of all warnings.
const UIDS_BYTES_MAX: usize = 4096;
/// Maximum number of reported extra controllers: each report shows all owners.
const CONTROLLERS_SHOWN_MAX: usize = 4;
/// Maximum length of a subresource in `managedFields` in bytes.
const SUBRESOURCE_BYTES_MAX: usize = 256;
/// Finalizers without a domain that Kubernetes itself uses.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
/// Finalizer: keeps an object until its dependents have been orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// Finalizer: keeps an object until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Removes fields that a client may not set on an object that it posts.
pub(super) fn clear_system(object: &mut Value) {
    clear_identity(object);
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        object.meta_mut().remove(name);
    }
}
/// Removes fields that a client may not set on an object that a PUT or an apply creates. As there,
/// it may be one that is being deleted.
pub(super) fn clear_identity(object: &mut Value) {
    for name in ["uid", "creationTimestamp", "selfLink"] {
        object.meta_mut().remove(name);
    }
}
/// Sets the namespace of the request, or removes it for cluster scope.
pub(super) fn set_namespace(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    check_namespace(target, object)?;
    if !target.resource.scope.is_namespaced() {
        object.set_meta("namespace", Value::Null);
    } else if object.namespace().is_empty() {
        object.set_meta("namespace", Value::from(target.namespace.as_str()));
    }
    Ok(())
}
/// Checks the namespace in a body, if it has one, against the URL.
pub(super) fn check_namespace(target: &Target, object: &Value) -> Result<(), ApiError> {
    if !target.resource.scope.is_namespaced()
        || object.namespace().is_empty()
        || object.namespace() == target.namespace
    {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}
/// Checks the name in a body against the URL.
pub(super) fn check_body_name(target: &Target, object: &Value) -> Result<(), ApiError> {
    match object.name() {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        same if same == target.name => Ok(()),
        other => Err(ApiError::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}
/// Removes owner references that are equal to an earlier one, with a warning. The reference does so
/// before mutating admission, except for patches, which the warning says.
pub(super) fn deduplicate_owners(attributes: &Attributes, object: &mut Value) {
    deduplicate(attributes, object, attributes.verb == Verb::Patch);
}
/// The same for those that mutating admission has added.
pub(super) fn deduplicate_admitted_owners(attributes: &Attributes, object: &mut Value) {
    deduplicate(attributes, object, true);
}
fn deduplicate(attributes: &Attributes, object: &mut Value, is_admitted: bool) {
    let Some(owners) = object
        .get_mut("metadata")
        .and_then(|m| m.get_mut("ownerReferences"))
        .and_then(Value::as_array_mut)
        .filter(|o| o.len() > 1)
    else {
        return;
    };
    let mut uids = String::new();
    let mut is_repeated = false;
    let mut unique: Vec<Value> = Vec::with_capacity(owners.len());
    let mut seen: HashSet<Bytes> = HashSet::with_capacity(owners.len());
    for owner in owners.drain(..) {
        if !seen.insert(encode::to_bytes(&owner)) {
            // As often as it is repeated.
            if uids.len() < UIDS_BYTES_MAX {
                let comma = if is_repeated { ", " } else { "" };
                uids.push_str(comma);
                uids.push_str(owner["uid"].as_str().unwrap_or_default());
            }
            is_repeated = true;
        } else {
            unique.push(owner);
        }
    }
    *owners = unique;
    if is_repeated {
        let when = if is_admitted { " after mutating admission happens" } else { "" };
        attributes.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        ));
    }
}
/// Warns of new finalizers that may clash with those of others (custom resources).
pub(super) fn warn_of_finalizers(attributes: &Attributes, object: &Value, old: Option<&Value>) {
    let known: HashSet<&str> =
        old.map(ObjectExt::finalizers).unwrap_or_default().into_iter().collect();
    let finalizers: BTreeSet<&str> = object.finalizers().into_iter().collect();
    for finalizer in finalizers.into_iter().filter(|finalizer| !known.contains(finalizer)) {
        let what = format!("metadata.finalizers: {}", field::quote(finalizer));
        for fault in name::qualified_name(finalizer) {
            attributes.warn(format!("{what}: {fault}"));
        }
        if finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer) {
            continue;
        }
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        attributes.warn(format!(
            "{what}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
}

/// Validates the metadata of a new object by the rules of its kind.
pub(super) fn validate(resource: &Resource, object: &Value, errors: &mut Report) {
    validate_whole(resource, object, resource.kind.names, true, errors);
}
/// Validates the metadata of any object as that of a new one: a name is a path segment.
pub(super) fn validate_any(resource: &Resource, object: &Value, errors: &mut Report) {
    validate_whole(resource, object, NameRule::Segment, false, errors);
}
fn validate_whole(
    resource: &Resource,
    object: &Value,
    rule: NameRule,
    by_kind: bool,
    errors: &mut Report,
) {
    let (path, features) = (field::Path::new("metadata"), errors.features());
    let base = object.meta_str("generateName");
    let kind::Kind { checks_prefix, name_fault, .. } = *resource.kind;
    let more = |name: &str| name_fault(object, name).filter(|_| by_kind);
    if !base.is_empty() && (checks_prefix || !by_kind) {
        for message in rule.check_base(base, features).into_iter().chain(more(base)) {
            errors.push(field::Error::invalid(path.child("generateName"), &base.into(), message));
        }
    }
    match object.name() {
        "" => errors
            .push(field::Error::required(path.child("name"), "name or generateName is required")),
        name => {
            for mut message in rule.check(name, features).into_iter().chain(more(name)) {
                if by_kind && !checks_prefix && message.starts_with("must be no more than") {
                    message = message.replace(" characters", " bytes");
                }
                errors.push(field::Error::invalid(path.child("name"), &name.into(), message));
            }
        }
    }
    if resource.scope.is_namespaced() {
        match object.namespace() {
            "" => errors.push(field::Error::required(path.child("namespace"), "")),
            namespace => {
                for message in name::dns1123_label(namespace) {
                    errors.push(field::Error::invalid(
                        path.child("namespace"),
                        &namespace.into(),
                        message,
                    ));
                }
            }
        }
    }
    if let Some(generation) = integer(object, "generation").filter(|g| *g < 0) {
        errors.push(field::Error::invalid(
            path.child("generation"),
            &generation.into(),
            "must be greater than or equal to 0",
        ));
    }
    validate_maps_and_owners(object, &path, errors);
    validate_finalizers(object, &path, errors);
    validate_managers(object, &path, errors);
    if by_kind {
        validate_qualified(resource, object, errors);
    }
}
/// Validates the metadata of a changed object against the stored one.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut field::Errors) {
    let path = field::Path::new("metadata");
    if !old.deletion_timestamp().is_empty() {
        let known: HashSet<&str> = old.finalizers().into_iter().collect();
        let added: BTreeSet<&str> =
            new.finalizers().into_iter().filter(|f| !known.contains(f)).collect();
        if !added.is_empty() {
            let shown = added.iter().map(|f| field::quote(f)).collect::<Vec<_>>().join(", ");
            errors.push(field::Error::forbidden(
                path.child("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
                ),
            ));
        }
    }
    let generation = integer(new, "generation").unwrap_or(0);
    if generation < integer(old, "generation").unwrap_or(0) {
        errors.push(field::Error::invalid(
            path.child("generation"),
            &generation.into(),
            "must not be decremented",
        ));
    }
    let (before, after) = (old.meta(), new.meta());
    for member in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (before, after) = (member_in(before, member), member_in(after, member));
        if before != after {
            errors.push(field::Error::invalid(
                path.child(member),
                after.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
    validate_maps_and_owners(new, &path, errors);
    validate_managers(new, &path, errors);
}
fn validate_maps_and_owners(object: &Value, path: &field::Path, errors: &mut field::Errors) {
    if let labels @ Some(_) = member_of(object, "labels") {
        validate_labels(labels, &path.child("labels"), errors);
    }
    if let annotations @ Some(_) = member_of(object, "annotations") {
        validate_annotations(annotations, &path.child("annotations"), errors);
    }
    if let Some(owners) = member_of(object, "ownerReferences").and_then(Value::as_array) {
        validate_owners(owners, &path.child("ownerReferences"), errors);
    }
}
/// Validates the names of finalizers. The API does so as a part of the whole metadata only.
fn validate_finalizers(object: &Value, path: &field::Path, errors: &mut field::Errors) {
    let finalizers = object.finalizers();
    if finalizers.is_empty() {
        return;
    }
    let path = path.child("finalizers");
    for finalizer in &finalizers {
        for message in name::qualified_name(finalizer) {
            errors.push(field::Error::invalid(path.clone(), &(*finalizer).into(), message));
        }
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        errors.push(field::Error::invalid(
            path.clone(),
            &Value::from(finalizers.clone()),
            format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"),
        ));
    }
}
/// Validates the names in `managedFields`, which a client may write. Entries that are malformed in
/// another way are gone by now.
fn validate_managers(object: &Value, path: &field::Path, errors: &mut field::Errors) {
    let entries = member_of(object, "managedFields").and_then(Value::as_array);
    for (i, entry) in entries.into_iter().flatten().enumerate() {
        let text = |member: &str| entry.get(member).and_then(Value::as_str).unwrap_or_default();
        let path = || path.child("managedFields").index(i);
        check_field_manager(text("manager"), || path().child("manager"), errors);
        if text("subresource").len() > SUBRESOURCE_BYTES_MAX {
            errors.push(field::Error::too_long(path().child("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
}
/// Validates that finalizers have a domain, for kinds that demand it.
pub(super) fn validate_qualified(resource: &Resource, object: &Value, errors: &mut field::Errors) {
    if !resource.kind.qualified_finalizers {
        return;
    }
    let path = field::Path::new("metadata").child("finalizers");
    for (i, finalizer) in object.finalizers().iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            errors.push(field::Error::invalid(
                path.index(i),
                &(*finalizer).into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}
fn validate_owners(owners: &[Value], path: &field::Path, errors: &mut field::Errors) {
    let mut controller: Option<String> = None;
    let mut too_many = 0;
    for owner in owners {
        let text = |member: &str| owner.get(member).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut demand = |member: &str, is_there: bool, message: &str| {
            if !is_there {
                errors.push(field::Error::invalid(
                    path.child(member),
                    &text(member).into(),
                    message,
                ));
            }
        };
        // What has two slashes cannot be read: it has neither group nor version.
        let has_version = !version.is_empty() && !version.contains('/');
        demand("apiVersion", has_version, "version must not be empty");
        demand("kind", !kind.is_empty(), "must not be empty");
        demand("name", !text("name").is_empty(), "must not be empty");
        demand("uid", !text("uid").is_empty(), "must not be empty");
        let may_own = kind::of(group, kind).is_none_or(|row| row.may_own);
        if version == "v1" && !may_own {
            errors.push(field::Error::invalid(
                path.clone(),
                owner,
                format!("{group}/{version}, Kind={kind} is disallowed from being an owner"),
            ));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{kind}/{}", text("name"));
            match &controller {
                None => controller = Some(this),
                Some(_) if too_many == CONTROLLERS_SHOWN_MAX => {}
                Some(first) => {
                    too_many += 1;
                    errors.push(field::Error::invalid(
                        path.clone(),
                        &Value::from(owners.to_vec()),
                        format!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                        ),
                    ));
                }
            }
        }
    }
}
/// Before an update is validated, restores fields that a client may omit or may not change.
pub(super) fn restore(resource: &Resource, new: &mut Value, old: &Value) {
    let old = old.meta();
    let stored = |member: &str| old.and_then(|m| m.get(member)).filter(|v| !v.is_null());
    let meta = new.meta_mut();
    // Whatever was sent: no update changes it.
    if let Some(value) = stored("deletionTimestamp") {
        put_back(meta, "deletionTimestamp", Some(value));
    }
    for member in ["uid", "deletionGracePeriodSeconds"] {
        if let Some(value) = stored(member)
            && meta.get(member).is_none_or(|v| v.is_null() || v == "")
        {
            meta.insert(member.to_owned(), value.clone());
        }
    }
    meta.remove("selfLink");
    meta.remove("resourceVersion");
    put_back(meta, "creationTimestamp", stored("creationTimestamp"));
    put_back(meta, "generation", stored("generation"));
    if !resource.scope.is_namespaced() {
        meta.remove("namespace");
    }
}
/// Sets a member to its stored value, or removes it if it is not stored.
pub(super) fn put_back(members: &mut Map<String, Value>, name: &str, stored: Option<&Value>) {
    match stored {
        None => {
            members.remove(name);
        }
        Some(value) if members.get(name) == Some(value) => {}
        Some(value) => {
            members.insert(name.to_owned(), value.clone());
        }
    }
}
/// `metadata.<name>`.
pub(super) fn member_of<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    member_in(object.meta(), name)
}
fn member_in<'a>(meta: Option<&'a Map<String, Value>>, name: &str) -> Option<&'a Value> {
    meta?.get(name).filter(|value| !value.is_null())
}
/// An integer of the metadata.
pub(super) fn integer(object: &Value, name: &str) -> Option<i64> {
    member_of(object, name).and_then(Value::as_i64)
}
