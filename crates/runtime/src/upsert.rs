//! Writing an object only if it is not yet as it should be.

use kube_core::params::Patch;
use serde::Serialize;
use setpoint_informer::Cacheable;

use crate::{
    client::{Api, ClientError, difference, key_of},
    request::Request,
};

/// What [`create_or_update`] or [`create_or_patch`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Upserted {
    /// The object was as it should be: nothing was written.
    Unchanged,
    /// There was no such object: it was created.
    Created,
    /// It was different: it was updated.
    Updated,
    /// It was different, and so was its status: both were updated. From [`create_or_patch`] alone.
    UpdatedStatus,
    /// Its status alone was different, and was updated. From [`create_or_patch`] alone.
    UpdatedStatusOnly,
}

/// Why [`create_or_update`] or [`create_or_patch`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpsertError {
    /// A read or the write failed. A conflict, or that it exists already, means that the cache was
    /// behind: come back.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The function gave an object of another name or namespace.
    #[error("asked for {asked}, made {made}")]
    OtherKey {
        /// The key that was to be written.
        asked: Request,
        /// The key of what the function made.
        made: Request,
    },
    /// The object cannot be encoded.
    #[error("encode {key}")]
    Encode {
        /// Which object.
        key: Request,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// Makes the object of `key` what `make` says: `make` is given what exists, or nothing, and gives
/// what should be.
///
/// Reads from the cache, and writes the difference as a merge patch under the resourceVersion that
/// was read; the status is left alone when updating (it has a subresource). Start from what exists:
/// a member that the server has defaulted and `make` leaves out is written at every pass.
///
/// # Errors
///
/// The read or the write failed, or `make` gave an object of another key.
pub async fn create_or_update<K: Cacheable + Clone + Serialize>(
    api: &Api<K>,
    key: &Request,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<(K, Upserted), UpsertError> {
    let existing = api.get(key)?;
    let made = make_of(key, existing.as_deref(), make)?;
    put(api, key, existing.as_deref(), made).await
}

/// Creates what was made, or writes how it differs from what exists.
pub(crate) async fn put<K: Cacheable + Clone + Serialize>(
    api: &Api<K>,
    key: &Request,
    existing: Option<&K>,
    made: K,
) -> Result<(K, Upserted), UpsertError> {
    let Some(existing) = existing else {
        return Ok((api.create(&made).await?, Upserted::Created));
    };
    let Some(mut difference) = difference(&encode(key, existing)?, &encode(key, &made)?) else {
        return Ok((made, Upserted::Unchanged));
    };
    if let Some(version) = &existing.meta().resource_version {
        difference["metadata"]["resourceVersion"] = version.as_str().into();
    }
    let updated = api.patch(key, &Patch::Merge(&difference)).await?;
    Ok((updated, Upserted::Updated))
}

/// Makes the object of `key` what `make` says, its status too: [`create_or_update`], where object
/// and status are patched apart (UTL-2).
///
/// The status that `make` gives is not written when the object is created: the next pass does. The
/// patches are not under the resourceVersion that was read: what they do not name is left as it is,
/// whoever wrote it in between.
///
/// # Errors
///
/// As [`create_or_update`]. When the status cannot be written, the object itself may have been.
pub async fn create_or_patch<K: Cacheable + Clone + Serialize>(
    api: &Api<K>,
    key: &Request,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<(K, Upserted), UpsertError> {
    let existing = api.get(key)?;
    let made = make_of(key, existing.as_deref(), make)?;
    let Some(existing) = existing else {
        return Ok((api.create(&made).await?, Upserted::Created));
    };
    let Some(mut patch) = difference(&encode(key, &*existing)?, &encode(key, &made)?) else {
        return Ok((made, Upserted::Unchanged));
    };
    let status = patch.as_object_mut().and_then(|members| members.remove("status"));
    let is_status_alone = patch.as_object().is_some_and(serde_json::Map::is_empty);
    let mut written = made;
    if !is_status_alone {
        written = api.patch(key, &Patch::Merge(&patch)).await?;
    }
    let Some(status) = status else { return Ok((written, Upserted::Updated)) };
    let patch = serde_json::json!({ "status": status });
    let written = api.patch_status(key, &Patch::Merge(&patch)).await?;
    let outcome =
        if is_status_alone { Upserted::UpdatedStatusOnly } else { Upserted::UpdatedStatus };
    Ok((written, outcome))
}

/// What `make` makes of an object, if it is still the same one.
pub(crate) fn make_of<K: Cacheable + Clone>(
    key: &Request,
    existing: Option<&K>,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<K, UpsertError> {
    let made = make(existing.cloned());
    let made_key = key_of(&made);
    if made_key == *key {
        Ok(made)
    } else {
        Err(UpsertError::OtherKey { asked: key.clone(), made: made_key })
    }
}

fn encode<K: Serialize>(key: &Request, object: &K) -> Result<serde_json::Value, UpsertError> {
    serde_json::to_value(object).map_err(|source| UpsertError::Encode { key: key.clone(), source })
}
