//! Fences: for each definition a store key that every write of its objects compares (see
//! [`Fence`]).
//!
//! A fence is written whenever a definition's rows are replaced by rows with another schema, or by
//! rows that refuse creates, and before those are served. Its value names the state of the
//! definition, so that several servers over one store agree on it, and so that a restarted server
//! knows since when the schema applies.
//!
//! ```text
//! /registry/apiextensions.k8s.io/schema.fences/foos.ex.io
//! {"uid":"…","generation":2,"terminating":false,"definition":17}
//! ```
use super::Definition;
use crate::catalog::Fence;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use setpoint_object::keys;
use setpoint_object::meta::ObjectExt;
use setpoint_store::{
    At, Committed, Compare, KeyValue, Op, RangeRequest, Revision, Store, StoreError, Txn,
};
use std::collections::BTreeMap;

/// The key prefix of fences.
pub(super) const PREFIX: &str = keys::SCHEMA_FENCES;
/// How often a fence is read again when others write it at the same time.
///
/// Each failed attempt is a success of another server; there are as many attempts as servers, a
/// handful.
const ATTEMPTS_MAX: usize = 16;

/// The state of a definition that a fence names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    uid: String,
    generation: i64,
    terminating: bool,
    /// The revision at which the definition got this state, or a later one: newer states win.
    definition: u64,
}
impl State {
    /// The present state of a definition.
    pub(super) fn of(definition: &Definition) -> Self {
        Self {
            uid: definition.object.uid().to_owned(),
            generation: definition.generation(),
            terminating: definition.is_terminating(),
            definition: definition.modified.0,
        }
    }
    /// Whether the same rows serve both states.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.uid, self.generation, self.terminating)
            == (&other.uid, other.generation, other.terminating)
    }
    /// Whether both are states of the same definition.
    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
    /// Whether both have the same schemas.
    pub(super) fn is_same_schema(&self, other: &Self) -> bool {
        self.is_same_object(other) && self.generation == other.generation
    }
}

fn key(name: &str) -> Bytes {
    format!("{PREFIX}{name}").into()
}
/// The state that a fence names. `None` for a fence of another history that was copied into this
/// store: its revision is lower than the definition's.
fn state(kv: &KeyValue) -> Option<State> {
    let state: State = serde_json::from_slice(&kv.value).ok()?;
    (state.definition <= kv.modified.0).then_some(state)
}

/// The fence of a definition in this state, written if it does not exist. `None`: the store has a
/// newer state.
///
/// # Errors
///
/// The store is unavailable, or others keep writing the fence.
pub(super) async fn establish(
    store: &dyn Store,
    name: &str,
    wanted: &State,
) -> Result<Option<Fence>, StoreError> {
    let key = key(name);
    let value = Bytes::from(serde_json::to_vec(wanted).unwrap_or_default());
    for _ in 0..ATTEMPTS_MAX {
        let compares = match store.get(&key, At::Latest).await {
            // It was encrypted with a key that is no longer available, and contains nothing that is
            // not known.
            Err(StoreError::Unreadable { .. }) => Vec::new(),
            found => match found?.value {
                None => vec![Compare::Absent(key.clone())],
                Some(kv) => match state(&kv) {
                    Some(state) if state.is_same(wanted) => {
                        return Ok(Some(Fence { key, revision: kv.modified }));
                    }
                    Some(state) if state.definition > wanted.definition => return Ok(None),
                    _ => vec![Compare::Modified(key.clone(), kv.modified)],
                },
            },
        };
        let txn = Txn { compares, ops: vec![Op::Put(key.clone(), value.clone())], ttl: None };
        if let Committed::Done(revision) = store.commit(txn).await? {
            return Ok(Some(Fence { key, revision }));
        }
    }
    Err(StoreError::Unavailable(format!("the fence of {name} is written by others")))
}

/// Removes the fence of a deleted definition, unless it has been written since.
///
/// # Errors
///
/// The store is unavailable.
pub(super) async fn remove(store: &dyn Store, fence: Fence) -> Result<(), StoreError> {
    let txn = Txn { compares: vec![fence.compare()], ops: vec![Op::Delete(fence.key)], ttl: None };
    store.commit(txn).await.map(|_| ())
}

/// Removes the fences of deleted definitions: those that existed at `revision`, when `names` were
/// all definitions.
///
/// # Errors
///
/// The store is unavailable.
pub(super) async fn sweep<T>(
    store: &dyn Store,
    names: &BTreeMap<String, T>,
    revision: Revision,
) -> Result<(), StoreError> {
    let range = store.range(RangeRequest::prefix(PREFIX)).await?;
    for kv in range.value.entries {
        let name = String::from_utf8_lossy(&kv.key[PREFIX.len()..]).into_owned();
        if kv.modified <= revision && !names.contains_key(&name) {
            remove(store, Fence { key: kv.key, revision: kv.modified }).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_store::MemoryStore;

    fn state(generation: i64, terminating: bool, definition: u64) -> State {
        State { uid: "u".to_owned(), generation, terminating, definition }
    }

    #[tokio::test]
    async fn a_fence_of_another_history_is_written_anew() {
        let store = MemoryStore::default();
        let value = serde_json::to_vec(&state(1, false, 70)).unwrap();
        let op = Op::Put(key("foos"), value.into());
        store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
        let copied = store.revision().await.unwrap();
        let fence = establish(&store, "foos", &state(1, false, copied.0)).await.unwrap().unwrap();
        assert!(fence.revision > copied);
    }

    #[tokio::test]
    async fn a_fence_moves_with_newer_states_only() {
        let store = MemoryStore::default();
        // Definitions are written before their fences.
        for n in 0..8 {
            let op = Op::Put("/registry/a".into(), n.to_string().into());
            store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
        }
        let first = establish(&store, "foos", &state(1, false, 1)).await.unwrap().unwrap();
        // The same state again, seen at a later revision, by this server or another.
        let same = establish(&store, "foos", &state(1, false, 3)).await.unwrap().unwrap();
        assert_eq!(same, first);
        let second = establish(&store, "foos", &state(2, false, 4)).await.unwrap().unwrap();
        assert!(second.revision > first.revision);
        // An outdated server gets no fence, and does not reset it.
        assert_eq!(establish(&store, "foos", &state(1, false, 3)).await.unwrap(), None);
        let again = establish(&store, "foos", &state(2, false, 9)).await.unwrap();
        assert_eq!(again, Some(second.clone()));
        let ending = establish(&store, "foos", &state(2, true, 5)).await.unwrap().unwrap();
        assert!(ending.revision > second.revision);
        // A fence that was written since stays.
        remove(&store, second).await.unwrap();
        let again = establish(&store, "foos", &state(2, true, 9)).await.unwrap();
        assert_eq!(again, Some(ending.clone()));
        remove(&store, ending).await.unwrap();
        assert!(store.range(RangeRequest::prefix(PREFIX)).await.unwrap().value.entries.is_empty());
    }

    #[tokio::test]
    async fn a_sweep_leaves_what_is_newer_than_the_definitions_it_knows() {
        let store = MemoryStore::default();
        let op = Op::Put("/registry/a".into(), "1".into());
        store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
        let old = establish(&store, "gone", &state(1, false, 1)).await.unwrap().unwrap();
        let kept = establish(&store, "kept", &state(1, false, 1)).await.unwrap().unwrap();
        let new = establish(&store, "new", &state(1, false, 1)).await.unwrap().unwrap();
        let names = BTreeMap::from([("kept".to_owned(), ())]);
        sweep(&store, &names, kept.revision).await.unwrap();
        let left = store.range(RangeRequest::prefix(PREFIX)).await.unwrap().value.entries;
        let left: Vec<_> = left.into_iter().map(|kv| kv.modified).collect();
        assert_eq!(left, [kept.revision, new.revision]);
        assert!(old.revision < kept.revision);
    }
}
