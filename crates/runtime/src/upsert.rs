//! Writes objects only if they differ.

use kube_core::params::Patch;
use serde::Serialize;
use setpoint_informer::Cacheable;

use crate::{
    client::{Api, ClientError, difference},
    request::Request,
};

/// What [`create_or_update`] or [`create_or_patch`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Upserted {
    /// The object was up to date; nothing was written.
    Unchanged,
    /// The object did not exist, and was created.
    Created,
    /// The object differed, and was updated.
    Updated,
    /// The object and its status differed, and both were updated. From [`create_or_patch`] only.
    UpdatedStatus,
    /// Only the status differed, and was updated. From [`create_or_patch`] only.
    UpdatedStatusOnly,
}

/// Why [`create_or_update`] or [`create_or_patch`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpsertError {
    /// A read or the write failed. A conflict, or `AlreadyExists`, means that the cache was behind
    /// another client's write: retry.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The function returned an object with another key.
    #[error("expected {asked}, made {made}")]
    OtherKey {
        /// The requested key.
        asked: Request,
        /// The key of the returned object.
        made: Request,
    },
    /// The object cannot be serialized.
    #[error("encode {key}")]
    Encode {
        /// The object's key.
        key: Request,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Makes the object of `key` match the result of `make`, which gets the existing object, if any,
/// and returns the desired one.
///
/// Reads from the cache, once it shows this client's last write of the object: an older state could
/// be what `make` wants while the server's is not. Writes the difference as a merge patch, with the
/// resourceVersion that was read. An update does not touch the status (it has a subresource). Start
/// from the existing object: a field that the server has defaulted and `make` leaves out is written
/// again at every pass.
///
/// # Errors
///
/// The read or the write failed, or `make` returned an object with another key.
pub async fn create_or_update<K: Cacheable + Clone + Serialize>(
    api: &Api<K>,
    key: &Request,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<(K, Upserted), UpsertError> {
    let existing = api.get_own(key).await?;
    let made = make_of(key, existing.as_deref(), make)?;
    put(api, key, existing.as_deref(), made).await
}

/// Creates the object, or writes its difference to the existing one.
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

/// Makes the object of `key` match the result of `make`, including its status: as
/// [`create_or_update`], with separate patches of object and status (UTL-2).
///
/// When the object is created, its status is not written; the next pass does that. The patches do
/// not carry the resourceVersion that was read: concurrent changes of other fields are kept.
///
/// # Errors
///
/// As [`create_or_update`]. If the status cannot be written, the object itself may have been.
pub async fn create_or_patch<K: Cacheable + Clone + Serialize>(
    api: &Api<K>,
    key: &Request,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<(K, Upserted), UpsertError> {
    let existing = api.get_own(key).await?;
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

/// The result of `make`, if it has the requested key.
pub(crate) fn make_of<K: Cacheable + Clone>(
    key: &Request,
    existing: Option<&K>,
    make: impl FnOnce(Option<K>) -> K,
) -> Result<K, UpsertError> {
    let made = make(existing.cloned());
    let made_key = Request::of(&made);
    if made_key == *key {
        Ok(made)
    } else {
        Err(UpsertError::OtherKey { asked: key.clone(), made: made_key })
    }
}

fn encode<K: Serialize>(key: &Request, object: &K) -> Result<serde_json::Value, UpsertError> {
    serde_json::to_value(object).map_err(|source| UpsertError::Encode { key: key.clone(), source })
}
