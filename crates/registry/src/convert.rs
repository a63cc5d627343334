//! Conversion between the stored version and the requested version, without waiting. Conversion
//! webhooks are in [`crate::conversion`].
//!
//! An object has the same identity in every served version of its kind. For custom resources
//! without a conversion webhook, only `apiVersion` changes, and fields that the other version's
//! schema does not declare are dropped. Built-in kinds that are served in several versions have
//! their own function (`Kind::convert`).
use crate::catalog::Resource;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::{ApiError, GroupVersion, encode, skim};
use setpoint_schema::encode::to_bytes;
use std::borrow::Cow;

/// A stored tree in the version that this row serves. Returned unchanged if it has that version.
///
/// # Errors
///
/// The version of the stored object is not a version of this row's kind.
pub(crate) fn to_served(resource: &Resource, mut stored: Value) -> Result<Value, ApiError> {
    let target = resource.group_version().to_string();
    if convert(resource, &mut stored, target)? {
        resource.schema.prune(&mut stored);
    }
    Ok(stored)
}

/// A tree in the version that this row serves, with the fields that its schema does not declare.
///
/// # Errors
///
/// As [`to_served`].
pub(crate) fn to_version(resource: &Resource, mut tree: Value) -> Result<Value, ApiError> {
    convert(resource, &mut tree, resource.group_version().to_string())?;
    Ok(tree)
}

/// Converts a tree from the version of this row to the storage version. `storage` is the row of the
/// storage version if that is served too: fields that its schema does not declare are dropped,
/// because only a conversion webhook could preserve them, and its defaults are filled in, which
/// every read of the object shows.
///
/// # Errors
///
/// The version of the tree is not a version of this row's kind. 413: the defaults exceed the size
/// limit.
pub(crate) fn to_stored(
    resource: &Resource,
    storage: Option<&Resource>,
    mut served: Value,
) -> Result<Value, ApiError> {
    let target = resource.storage_group_version();
    if convert(resource, &mut served, target.to_string())?
        && let Some(storage) = storage
    {
        storage.schema.prune(&mut served);
        storage.schema.fill_defaults(&mut served)?;
    }
    Ok(served)
}

/// Brings a stored custom object that was written under an earlier schema, or by another program,
/// up to date: drops fields that are no longer declared and metadata of wrong types, and adds new
/// defaults. The store is not changed until the next write.
///
/// The schema is that of the object's own version. An object of a version that is neither the
/// storage version nor the row's is left as it is: its conversion has the schema of the target.
pub(crate) fn refresh(resource: &Resource, tree: &mut Value, revision: u64) {
    let Some(stored) = resource.stored.as_ref().filter(|_| is_older(resource, revision)) else {
        return;
    };
    let is = |version: GroupVersion| tree["apiVersion"] == *version.to_string();
    let schema = if is(resource.storage_group_version()) {
        &stored.schema
    } else if is(resource.group_version()) {
        &resource.schema
    } else {
        return;
    };
    setpoint_schema::prune::prune(schema, tree);
    setpoint_schema::decode::conform_stored(schema, tree);
    // Serves the object with the defaults that fit, rather than with none. Its next write is
    // refused.
    let _ = setpoint_schema::default::apply(schema, tree);
}
/// Whether an object of this revision conforms to the schemas of a row.
pub(crate) fn is_up_to_date(resource: &Resource, revision: u64) -> bool {
    !is_older(resource, revision)
}
/// Whether an object of this revision may have been written under another schema.
fn is_older(resource: &Resource, revision: u64) -> bool {
    resource.stored.as_ref().is_some_and(|stored| revision <= stored.since)
}

/// Stored bytes after [`refresh`]; the same bytes if nothing changes.
///
/// # Errors
///
/// The stored bytes are not JSON.
pub(crate) fn refreshed(
    resource: &Resource,
    stored: &Bytes,
    revision: u64,
) -> Result<Bytes, ApiError> {
    if !is_older(resource, revision) {
        return Ok(stored.clone());
    }
    let mut tree = serde_json::from_slice(stored).map_err(undecodable)?;
    refresh(resource, &mut tree, revision);
    Ok(to_bytes(&tree))
}

/// Stored bytes as this row serves them at a revision. Bytes of the row's own version are spliced;
/// others are decoded to a tree.
///
/// # Errors
///
/// The stored bytes are not JSON, or as [`to_served`].
pub(crate) fn serve(resource: &Resource, stored: &[u8], revision: u64) -> Result<Bytes, ApiError> {
    serve_as(resource, stored, revision, revision)
}
/// As [`serve`], for bytes that were written at one revision and are served with another: a deleted
/// object carries the revision of its removal.
///
/// # Errors
///
/// As [`serve`].
pub(crate) fn serve_as(
    resource: &Resource,
    stored: &[u8],
    written: u64,
    shown: u64,
) -> Result<Bytes, ApiError> {
    if is_served_as_stored(resource, stored, written) {
        return Ok(encode::with_resource_version(stored, shown));
    }
    let mut tree = served_tree(resource, stored, written)?;
    tree.set_meta("resourceVersion", shown.to_string().into());
    Ok(to_bytes(&tree))
}
/// Stored bytes as this row serves them, for reading members other than the resourceVersion.
///
/// # Errors
///
/// As [`serve`].
pub(crate) fn members<'s>(
    resource: &Resource,
    stored: &'s [u8],
    revision: u64,
) -> Result<Cow<'s, [u8]>, ApiError> {
    if is_served_as_stored(resource, stored, revision) {
        return Ok(Cow::Borrowed(stored));
    }
    let tree = served_tree(resource, stored, revision)?;
    Ok(Cow::Owned(to_bytes(&tree).into()))
}
/// Whether this row serves stored bytes unchanged, except for the resourceVersion.
pub(crate) fn is_served_as_stored(resource: &Resource, stored: &[u8], revision: u64) -> bool {
    is_version(stored, resource) && !is_older(resource, revision)
}
fn served_tree(resource: &Resource, stored: &[u8], revision: u64) -> Result<Value, ApiError> {
    let mut tree = serde_json::from_slice(stored).map_err(undecodable)?;
    refresh(resource, &mut tree, revision);
    to_served(resource, tree)
}
fn undecodable(error: serde_json::Error) -> ApiError {
    ApiError::internal(format_args!("unable to decode the stored object: {error}"))
}

/// Whether stored bytes have the version that the row serves. Stored objects are canonical: those
/// of built-in kinds begin with `kind` and `apiVersion`, custom ones with `apiVersion`.
pub(crate) fn is_version(stored: &[u8], resource: &Resource) -> bool {
    let (group, version) = (resource.gvk.group.as_bytes(), resource.gvk.version.as_bytes());
    let built_in = || {
        let rest = stored.strip_prefix(br#"{"kind":""#)?;
        rest.strip_prefix(resource.gvk.kind.as_bytes())?.strip_prefix(br#"","apiVersion":""#)
    };
    let Some(rest) = stored.strip_prefix(br#"{"apiVersion":""#).or_else(built_in) else {
        let found = skim::scalar(stored, &["apiVersion"]);
        return found.is_some_and(|found| *found == resource.group_version().to_string());
    };
    let rest = match group {
        b"" => Some(rest),
        group => rest.strip_prefix(group).and_then(|rest| rest.strip_prefix(b"/")),
    };
    rest.and_then(|rest| rest.strip_prefix(version)).is_some_and(|rest| rest.starts_with(b"\""))
}

/// Converts a tree to another version of its kind; `false` if it has that version already.
fn convert(resource: &Resource, tree: &mut Value, target: String) -> Result<bool, ApiError> {
    let source = tree.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
    if source == target {
        return Ok(false);
    }
    // A tree without `apiVersion` has the requested version.
    if resource.has_go_type() && !source.is_empty() {
        let converts = resource.kind.convert.is_some_and(|f| f(tree, &source, &target));
        if !converts {
            let kind = &resource.gvk.kind;
            let text = format!("unable to convert {kind} from {source} to {target}");
            return Err(ApiError::internal(text));
        }
    }
    if resource.stored.as_ref().is_some_and(|stored| stored.webhook.is_some()) {
        return Err(ApiError::unclassified(format!(
            "conversion webhook for {source}, Kind={} failed: this server calls no conversion webhooks",
            resource.gvk.kind
        )));
    }
    if let Some(members) = tree.as_object_mut() {
        members.insert("apiVersion".to_owned(), target.into());
    }
    Ok(true)
}
