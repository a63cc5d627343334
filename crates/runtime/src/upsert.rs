//! Writing an object only if it is not yet as it should be.

use kube_core::{Resource, params::Patch};
use serde::Serialize;
use setpoint_informer::Cacheable;

use crate::{
    client::{Api, ClientError},
    request::Request,
};

/// What [`create_or_update`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Upserted {
    /// The object was as it should be: nothing was written.
    Unchanged,
    /// There was no such object: it was created.
    Created,
    /// It was different: it was updated.
    Updated,
}

/// Why [`create_or_update`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpsertError {
    /// A read or the write failed. A conflict, or that it exists already, means that the cache was behind: come back.
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

/// Makes the object of `key` what `make` says: `make` is given what exists, or nothing, and gives what should be.
///
/// Reads from the cache, and writes the difference as a merge patch under the resourceVersion that was read; the status is left alone when
/// updating (it has a subresource). Start from what exists: a member that the server has defaulted and `make` leaves out is written
/// at every pass.
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
    let made = make(existing.as_deref().cloned());
    let made_key = key_of(&made);
    if made_key != *key {
        return Err(UpsertError::OtherKey { asked: key.clone(), made: made_key });
    }
    let Some(existing) = existing else {
        return Ok((api.create(&made).await?, Upserted::Created));
    };
    let encode = |object: &K| {
        serde_json::to_value(object)
            .map_err(|source| UpsertError::Encode { key: key.clone(), source })
    };
    let (before, after) = (encode(&existing)?, encode(&made)?);
    let Some(mut difference) = diff(&before, &after) else {
        return Ok((made, Upserted::Unchanged));
    };
    if let Some(version) = &existing.meta().resource_version {
        difference["metadata"]["resourceVersion"] = version.as_str().into();
    }
    let updated = api.patch(key, &Patch::Merge(&difference)).await?;
    Ok((updated, Upserted::Updated))
}

fn key_of<K: Resource>(object: &K) -> Request {
    let meta = object.meta();
    Request::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The merge patch (RFC 7396) that leads from one object to another; `None` if they are equal.
fn diff(before: &serde_json::Value, after: &serde_json::Value) -> Option<serde_json::Value> {
    use serde_json::{Map, Value};
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
                if let Some(difference) = diff(old, value) {
                    patch.insert(name.clone(), difference);
                }
            }
            // Null would remove what is not there.
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
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(before: Value, after: Value, expect: Expect) {
        expect.assert_eq(
            &diff(&before, &after).map_or("equal".to_owned(), |patch| patch.to_string()),
        );
    }

    #[test]
    fn difference_names_what_changed_and_nothing_else() {
        check(
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            expect!["equal"],
        );
        check(
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            json!({"a": 1, "b": {"c": 4}}),
            expect![[r#"{"b":{"c":4,"d":null}}"#]],
        );
        check(json!({"a": [1, 2]}), json!({"a": [1]}), expect![[r#"{"a":[1]}"#]]);
        check(json!({}), json!({"a": {"b": {}}}), expect![[r#"{"a":{"b":{}}}"#]]);
        check(json!({}), json!({"a": null}), expect!["equal"]);
        check(json!({"a": {"b": 1}}), json!({"a": 2}), expect![[r#"{"a":2}"#]]);
    }
}
