//! An observer of the store: it sees every change, also those that no client sees.

use bytes::Bytes;
use serde_json::Value;
use setpoint_store::{RangeRequest, Revision, StoreError};
use setpoint_testenv::TestEnv;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Between two attempts to read a store that fails.
const PAUSE: Duration = Duration::from_millis(1);

/// Objects by their key in the store.
pub(crate) type Objects = BTreeMap<String, Value>;

/// A change of an object. Displayed as its revision and key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: String,
    /// The object before; null if it was created.
    pub(crate) old: Value,
    /// The object after; null if it is gone.
    pub(crate) new: Value,
    revision: Revision,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{} {}", self.revision.0, self.key)
    }
}

impl Change {
    /// Whether the object is of a resource, by the part of the key behind `/registry/`.
    pub(crate) fn is_of(&self, resource: &str) -> bool {
        below(&self.key, resource)
    }

    /// Whether the change creates the object.
    pub(crate) fn creates(&self) -> bool {
        self.old.is_null()
    }

    /// Whether the object was there without a deletion timestamp before, and now is being deleted
    /// or gone.
    pub(crate) fn begins_deletion(&self) -> bool {
        let is_live =
            |object: &Value| !object.is_null() && object["metadata"]["deletionTimestamp"].is_null();
        is_live(&self.old) && !is_live(&self.new)
    }
}

/// The objects of a resource.
pub(crate) fn of<'a>(
    objects: &'a Objects,
    resource: &'a str,
) -> impl Iterator<Item = &'a Value> + 'a {
    objects.iter().filter(move |(key, _)| below(key, resource)).map(|(_, object)| object)
}

fn below(key: &str, resource: &str) -> bool {
    key.strip_prefix("/registry/")
        .and_then(|rest| rest.strip_prefix(resource))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Calls `check` after every change below a prefix of keys, with all objects there. Never ends.
/// Objects that exist when it starts are not changes.
///
/// # Panics
///
/// If the store has not kept a change: then an invariant would not have been checked.
pub(crate) async fn at_every_change(
    env: &TestEnv,
    prefix: &str,
    mut check: impl FnMut(&Objects, &Change),
) {
    let read = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap_or(Value::Null);
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let (mut objects, mut seen) = loop {
        if let Ok(found) = env.store().range(RangeRequest::prefix(prefix.to_owned())).await {
            let entries = found.value.entries.iter();
            let objects: Objects =
                entries.map(|entry| (text(&entry.key), read(&entry.value))).collect();
            break (objects, found.revision);
        }
        tokio::time::sleep(PAUSE).await;
    };
    loop {
        let mut feed = match env.store().changes(prefix.to_owned().into(), seen).await {
            Ok(feed) => feed,
            Err(error @ StoreError::Compacted { .. }) => panic!("changes are lost: {error}"),
            // The store fails now and then.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while let Ok(batch) = feed.next().await {
            // Changes of one commit happen at once.
            for commit in batch.changes.chunk_by(|a, b| a.revision == b.revision) {
                let changes: Vec<Change> = commit
                    .iter()
                    .map(|change| {
                        let key = text(&change.key);
                        let new = change.value.as_ref().map_or(Value::Null, read);
                        let old = match new.is_null() {
                            true => objects.remove(&key),
                            false => objects.insert(key.clone(), new.clone()),
                        };
                        let old = old.unwrap_or(Value::Null);
                        Change { key, old, new, revision: change.revision }
                    })
                    .collect();
                changes.iter().for_each(|change| check(&objects, change));
            }
            seen = batch.revision;
        }
    }
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn every_change_is_checked(env: &TestEnv) {
    use crate::cluster::{Cluster, until_either};
    let cluster = Cluster::of(env);
    let seen = std::cell::RefCell::new(Vec::new());
    let watch = at_every_change(env, "/registry/configmaps/", |objects, change| {
        let name = change.key.rsplit('/').next().unwrap().to_owned();
        seen.borrow_mut().push((name, change.creates(), objects.len()));
    });
    let user = async {
        let path = "/api/v1/namespaces/default/configmaps";
        let map = serde_json::json!({"metadata": {"name": "a"}});
        cluster.create(path, &map).await;
        let data = serde_json::json!({"data": {"k": "v"}});
        cluster.patch(&format!("{path}/a"), &data).await;
        cluster.delete(&format!("{path}/a"), &serde_json::json!({})).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    until_either(watch, user).await;
    let a = |creates, n| ("a".to_owned(), creates, n);
    assert_eq!(*seen.borrow(), [a(true, 1), a(false, 1), a(false, 0)]);
}
