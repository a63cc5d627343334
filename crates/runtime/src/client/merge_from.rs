//! Merge patches computed from the object that was read.

use kube_core::params::Patch;
use serde::Serialize;
use serde_json::{Map, Value};
use setpoint_informer::Cacheable;

use super::{Api, ClientError, Subresource};
use crate::request::Request;

/// The state of an object before a change; [`Api::merge`] sends the difference (CLI-5).
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{Client, ClientError, MergeFrom, Request};
/// # async fn example(client: &Client, mut map: ConfigMap) -> Result<(), ClientError> {
/// let before = MergeFrom::new(&map).locked();
/// map.data.get_or_insert_default().insert("k".into(), "v".into());
/// client.api::<ConfigMap>().merge(&before, &map).await?; // {"data":{"k":"v"},"metadata":{"resourceVersion":"7"}}
/// # Ok(())
/// # }
/// ```
///
/// A list that differs is sent whole, as in any JSON merge patch.
#[derive(Debug, Clone)]
pub struct MergeFrom<'a, K> {
    base: Base<'a, K>,
    is_locked: bool,
}

#[derive(Debug, Clone)]
enum Base<'a, K> {
    /// Serialized on demand.
    Borrowed(&'a K),
    /// Serialized at once, since the object will be changed in place.
    Encoded(Result<Value, String>),
}

impl<K: Serialize> MergeFrom<'static, K> {
    /// Takes a snapshot of an object, which can then be changed in place.
    #[must_use]
    pub fn new(object: &K) -> Self {
        let encoded = serde_json::to_value(object).map_err(|error| error.to_string());
        Self { base: Base::Encoded(encoded), is_locked: false }
    }
}

impl<'a, K> MergeFrom<'a, K> {
    /// Borrows an object that will not change, such as one from the cache.
    #[must_use]
    pub fn object(object: &'a K) -> Self {
        Self { base: Base::Borrowed(object), is_locked: false }
    }

    /// Fails with a conflict if the object was changed on the server since: the patch carries the
    /// base's resourceVersion.
    #[must_use]
    pub fn locked(self) -> Self {
        Self { is_locked: true, ..self }
    }
}

impl<K: Serialize> MergeFrom<'_, K> {
    /// The merge patch (RFC 7396) from the base to `object`; `None` if they are equal.
    pub(super) fn patch_to(
        &self,
        object: &K,
        call: &super::Call,
    ) -> Result<Option<Value>, ClientError> {
        let failed =
            |source: crate::error::BoxError| ClientError::Request { call: call.clone(), source };
        let encode =
            |object: &K| serde_json::to_value(object).map_err(|error| failed(error.into()));
        let encoded;
        let base = match &self.base {
            Base::Borrowed(base) => {
                encoded = encode(base)?;
                &encoded
            }
            Base::Encoded(Ok(base)) => base,
            Base::Encoded(Err(error)) => return Err(failed(error.clone().into())),
        };
        let Some(mut patch) = difference(base, &encode(object)?) else { return Ok(None) };
        if self.is_locked {
            let version = &base["metadata"]["resourceVersion"];
            if version.as_str().is_none_or(str::is_empty) {
                return Err(ClientError::NoVersion { call: call.clone() });
            }
            patch["metadata"]["resourceVersion"] = version.clone();
        }
        Ok(Some(patch))
    }
}

impl<K: Cacheable + Serialize> Api<K> {
    /// Sends the difference between `base` and `object` as a JSON merge patch. Returns the server's
    /// object, or `None` without a request if nothing differs.
    ///
    /// # Errors
    ///
    /// The server refuses, such as with a conflict if [`locked`](MergeFrom::locked), or cannot be
    /// reached. A lock needs a resourceVersion: [`ClientError::NoVersion`].
    pub async fn merge(
        &self,
        base: &MergeFrom<'_, K>,
        object: &K,
    ) -> Result<Option<K>, ClientError> {
        let key = Request::of(object);
        match base.patch_to(object, &self.call("patch", key.to_string()))? {
            Some(patch) => self.patch(&key, &Patch::Merge(patch)).await.map(Some),
            None => Ok(None),
        }
    }
}

impl<K: Cacheable + Serialize> Subresource<K, K> {
    /// [`Api::merge`] for the status; other differences are not sent.
    ///
    /// # Errors
    ///
    /// As [`Api::merge`].
    pub async fn merge(
        &self,
        base: &MergeFrom<'_, K>,
        object: &K,
    ) -> Result<Option<K>, ClientError> {
        let key = Request::of(object);
        let Some(mut patch) = base.patch_to(object, &self.call("patch", &key)?)? else {
            return Ok(None);
        };
        let Some(status) = patch.get_mut("status").map(Value::take) else { return Ok(None) };
        let mut only = Map::from_iter([("status".to_owned(), status)]);
        if base.is_locked {
            let version = patch["metadata"]["resourceVersion"].take();
            only.insert("metadata".to_owned(), serde_json::json!({"resourceVersion": version}));
        }
        self.patch(&key, &Patch::Merge(Value::Object(only))).await.map(Some)
    }
}

/// The merge patch (RFC 7396) from one value to another; `None` if they are equal.
pub(crate) fn difference(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for (name, value) in after {
        match before.get(name) {
            Some(old) => {
                if let Some(difference) = difference(old, value) {
                    patch.insert(name.clone(), difference);
                }
            }
            // Null would remove a member that does not exist.
            None if value.is_null() => {}
            None => _ = patch.insert(name.clone(), value.clone()),
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    if patch.is_empty() { None } else { Some(Value::Object(patch)) }
}

#[cfg(test)]
mod tests;
