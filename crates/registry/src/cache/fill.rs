//! Reads the state of every resource, from several ranges of keys at once.
//!
//! # Theory
//!
//! The store divides the keys into parts ([`Store::divide`]); a store that cannot gives one part. A
//! task reads a part page by page and makes its items. As many tasks run as the runtime has
//! threads, plus one, so that the store reads while items are made. The parts are joined in key
//! order, so the result does not depend on which ends first.
use super::item::look_through;
use super::{Index, Item, prefix_of};
use crate::threads::Threads;
use bytes::Bytes;
use setpoint_object::keys;
use setpoint_store::{At, RangeRequest, Revision, Store, StoreError, is_sealed, prefix_end};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Approximate number of keys per part.
const PART_KEYS: usize = 10_000;
/// Maximum number of keys per read.
const PAGE_KEYS_MAX: usize = 2 * PART_KEYS;

/// The state of every resource that has objects, by storage prefix.
pub(super) type Filled = BTreeMap<Arc<str>, State>;
/// The objects of one resource.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) index: Index,
    /// The keys of values that could not be decrypted.
    pub(super) sealed: BTreeSet<Bytes>,
}
/// Consecutive objects of one resource.
#[derive(Debug)]
struct Run {
    prefix: Arc<str>,
    items: Vec<Arc<Item>>,
    sealed: Vec<Bytes>,
}

/// The state at a revision.
///
/// Dropping the future ends its tasks.
pub(super) async fn read(
    store: &Arc<dyn Store>,
    at: Revision,
    threads: &Threads,
) -> Result<Filled, StoreError> {
    let (root, end) =
        (Bytes::from_static(keys::ROOT.as_bytes()), prefix_end(keys::ROOT.as_bytes()));
    let mut starts = vec![root.clone()];
    starts.extend(store.divide(&root, &end, PART_KEYS).await?);
    let ends = starts.iter().skip(1).cloned().chain([end]);
    let mut parts = starts.iter().cloned().zip(ends).enumerate();
    if starts.len() == 1
        && let Some((_, (start, end))) = parts.next()
    {
        // As most stores of a process with many: not worth a task.
        return Ok(put_together(part(&**store, at, start, end, threads).await?.into_iter()));
    }
    let mut runs: Vec<Vec<Run>> = starts.iter().map(|_| Vec::new()).collect();

    let n_tasks = Handle::current().metrics().num_workers() + 1;
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < n_tasks
            && let Some((idx, (start, end))) = parts.next()
        {
            let (store, threads) = (store.clone(), threads.clone());
            tasks.spawn(async move { (idx, part(&*store, at, start, end, &threads).await) });
        }
        // Cancel safe: dropping the set ends its tasks, which have changed nothing.
        let Some(ended) = tasks.join_next().await else { break };
        let cut_off = |_| StoreError::Unavailable("a part of the keys could not be read".into());
        let (idx, part) = ended.map_err(cut_off)?;
        runs[idx] = part?;
    }
    Ok(put_together(runs.into_iter().flatten()))
}

/// Reads one range of keys, by resource.
async fn part(
    store: &dyn Store,
    at: Revision,
    start: Bytes,
    end: Bytes,
    threads: &Threads,
) -> Result<Vec<Run>, StoreError> {
    let at = At::Exactly(at);
    let mut request = RangeRequest { start, end, at, limit: PAGE_KEYS_MAX };
    let mut runs: Vec<Run> = Vec::new();
    loop {
        let page = store.range(request.clone()).await?.value;
        let is_last = page.entries.len() >= page.count;
        let last = page.entries.last().map(|last| [&*last.key, b"\0"].concat().into());
        let (mut n_left, mut long) = (page.entries.len(), Vec::new());
        for kv in page.entries {
            let prefix = prefix_of(&kv.key);
            if runs.last().is_none_or(|run| *run.prefix != *prefix) {
                let items = Vec::with_capacity(n_left);
                runs.push(Run { prefix: prefix.into(), items, sealed: Vec::new() });
            }
            n_left -= 1;
            let Some(run) = runs.last_mut() else { continue };
            if is_sealed(&kv.value) {
                run.sealed.push(kv.key.clone());
            }
            let item = Arc::new(Item::from(kv));
            long.extend(item.is_long().then(|| item.clone()));
            run.items.push(item);
        }
        look_through(&long, threads).await;
        match last {
            Some(next) if !is_last => request.start = next,
            _ => return Ok(runs),
        }
        // Lets the other tasks of this thread run.
        tokio::task::yield_now().await;
    }
}

/// Joins runs in key order, by resource.
fn put_together(runs: impl Iterator<Item = Run>) -> Filled {
    let mut by_prefix: BTreeMap<Arc<str>, Vec<Run>> = BTreeMap::new();
    for run in runs {
        by_prefix.entry(run.prefix.clone()).or_default().push(run);
    }
    let states = by_prefix.into_iter().map(|(prefix, mut runs)| {
        let sealed = runs.iter_mut().flat_map(|run| std::mem::take(&mut run.sealed)).collect();
        let index = Index::from_sorted(runs.into_iter().flat_map(|run| run.items));
        (prefix, State { index, sealed })
    });
    states.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_store::{MemoryStore, Op, Txn};
    use std::ops::Bound;

    #[tokio::test(start_paused = true)]
    async fn parts_are_joined_in_order() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let n_keys = 3 * PART_KEYS + 7;
        let resources = ["configmaps/n/", "ex.io/foos/", "pods/n/", "services/specs/n/"];
        let key = |n: usize| {
            let resource = resources[n * resources.len() / n_keys];
            Bytes::from(format!("/registry/{resource}{n:06}"))
        };
        for from in (0..n_keys).step_by(1000) {
            let put = |n: usize| {
                let value = if n.is_multiple_of(7000) { "k8s:enc:x:" } else { "{}" };
                Op::Put(key(n), value.into())
            };
            let ops = (from..n_keys.min(from + 1000)).map(put).collect();
            store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
        }
        let at = store.revision().await.unwrap();
        store.commit(Txn { ops: vec![Op::Delete(key(5))], ..Txn::default() }).await.unwrap();
        let filled = read(&store, at, &Threads::new(true)).await.unwrap();
        let prefixes: Vec<_> = filled.keys().map(|prefix| &prefix["/registry/".len()..]).collect();
        assert_eq!(prefixes, ["configmaps/", "ex.io/foos/", "pods/", "services/specs/"]);
        let items = |state: &State| -> Vec<Bytes> {
            let items = state.index.range(Bound::Unbounded, Bound::Unbounded);
            items.map(|item| item.key.clone()).collect()
        };
        let all: Vec<_> = filled.values().flat_map(items).collect();
        assert_eq!(all, (0..n_keys).map(key).collect::<Vec<_>>());
        let sealed: Vec<_> = filled.values().flat_map(|state| state.sealed.clone()).collect();
        assert_eq!(sealed, (0..n_keys).step_by(7000).map(key).collect::<Vec<_>>());
    }
}
