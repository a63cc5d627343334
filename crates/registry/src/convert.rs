//! Stored bytes to the version asked for, and back, without waiting. What a conversion webhook
//! makes is in [`crate::conversion`].
//!
//! One object has one identity in every served version of its kind. Custom resources without a
//! conversion webhook change nothing but `apiVersion`, and lose what the other version's schema
//! does not declare. Built-in kinds that are served in several versions have a function of their
//! own (`Kind::convert`).
use crate::catalog::Resource;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::{ApiError, encode, skim};
use std::borrow::Cow;

/// A stored tree in the version this row serves. One of that version already comes back as it is.
///
/// # Errors
///
/// The stored object is not of a version that this row's kind has.
pub(crate) fn to_served(resource: &Resource, mut stored: Value) -> Result<Value, ApiError> {
    let target = resource.group_version().to_string();
    if convert(resource, &mut stored, target)? {
        resource.schema.prune(&mut stored);
    }
    Ok(stored)
}

/// A tree of the version this row serves, as it is stored. `storage` is the row of the version that
/// is stored, if that is served too: what its schema does not declare is lost, as nothing but a
/// conversion webhook could keep it.
///
/// # Errors
///
/// The tree is not of a version that this row's kind has.
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
    }
    Ok(served)
}

/// Brings a stored custom object that was written under an earlier schema up to the present one:
/// fields that are no longer declared go, new defaults appear. What is in the store stays as it is
/// until the next write.
pub(crate) fn refresh(resource: &Resource, tree: &mut Value, revision: u64) {
    if let Some(stored) = &resource.stored
        && is_older(resource, revision)
    {
        setpoint_schema::prune::prune(&stored.schema, tree);
        // An object that is served rather shows the defaults that fit than none; its next write is
        // refused.
        let _ = setpoint_schema::default::apply(&stored.schema, tree);
    }
}
/// Whether what was written at a revision may have been written under another schema.
fn is_older(resource: &Resource, revision: u64) -> bool {
    resource.stored.as_ref().is_some_and(|stored| revision <= stored.since)
}

/// Stored bytes with what [`refresh`] does to them; the same bytes when nothing is to be done.
///
/// # Errors
///
/// The stored bytes are no JSON.
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
    Ok(encode::to_bytes(&tree))
}

/// Stored bytes as this row serves them at a revision. Bytes of the row's own version are spliced,
/// others take a tree.
///
/// # Errors
///
/// The stored bytes are no JSON, or as [`to_served`].
pub(crate) fn serve(resource: &Resource, stored: &[u8], revision: u64) -> Result<Bytes, ApiError> {
    serve_as(resource, stored, revision, revision)
}
/// The same of bytes that were written at one revision and are shown with another: a deleted object
/// carries that of its removal.
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
    Ok(encode::to_bytes(&tree))
}
/// Stored bytes as this row serves them, for a look at members other than the resourceVersion.
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
    Ok(Cow::Owned(encode::to_bytes(&tree).into()))
}
/// Whether this row serves stored bytes as they are, but for the resourceVersion.
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

/// Whether stored bytes are of the version the row serves. Stored objects are canonical:
/// `apiVersion` comes first.
pub(crate) fn is_version(stored: &[u8], resource: &Resource) -> bool {
    let (group, version) = (resource.gvk.group.as_bytes(), resource.gvk.version.as_bytes());
    let Some(rest) = stored.strip_prefix(br#"{"apiVersion":""#) else {
        let found = skim::scalar(stored, &["apiVersion"]);
        return found.is_some_and(|found| *found == resource.group_version().to_string());
    };
    let rest = match group {
        b"" => Some(rest),
        group => rest.strip_prefix(group).and_then(|rest| rest.strip_prefix(b"/")),
    };
    rest.and_then(|rest| rest.strip_prefix(version)).is_some_and(|rest| rest.starts_with(b"\""))
}

/// Changes a tree to another version of its kind; `false` when it is of that version already.
fn convert(resource: &Resource, tree: &mut Value, target: String) -> Result<bool, ApiError> {
    let source = tree.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
    if source == target {
        return Ok(false);
    }
    // A tree that says nothing about its version is of the one it is asked for.
    if !resource.custom && !source.is_empty() {
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
