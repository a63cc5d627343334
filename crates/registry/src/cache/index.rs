//! The ordered index of one resource: its objects by key, as a persistent tree.
//!
//! # Theory
//!
//! ```text
//! root ── branches, BRANCH_MAX leaves each ── leaves, LEAF_MAX items each, in key order
//! ```
//!
//! A clone copies the root and shares everything else. A change copies the affected leaf, its
//! branch and the root if a clone shares them. Keys are stored in items only, so a replaced item is
//! freed once no snapshot has it. No leaf and no branch is empty.
//!
//! Building it from sorted items needs no comparisons; it then takes a little over eight bytes an
//! item.
use super::Item;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum items per leaf: the number that one change copies while a snapshot exists.
const LEAF_MAX: usize = 64;
/// Maximum leaves per branch. A million items take some hundred branches.
const BRANCH_MAX: usize = 128;

type Leaf = Vec<Arc<Item>>;
type Branch = Vec<Arc<Leaf>>;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    root: Arc<Vec<Arc<Branch>>>,
}
/// The position of an item, or its insertion point.
#[derive(Debug, Clone, Copy, Default)]
struct Path {
    branch: usize,
    leaf: usize,
    item: usize,
}

impl Index {
    /// An index of items that are sorted by key, without duplicates.
    pub(super) fn from_sorted(items: impl IntoIterator<Item = Arc<Item>>) -> Self {
        let mut items = items.into_iter().peekable();
        let mut root = Vec::new();
        while items.peek().is_some() {
            let mut branch = Vec::new();
            while branch.len() < BRANCH_MAX && items.peek().is_some() {
                let mut leaf = Vec::with_capacity(items.size_hint().0.clamp(1, LEAF_MAX));
                leaf.extend(items.by_ref().take(LEAF_MAX));
                debug_assert!(leaf.is_sorted_by(|a: &Arc<Item>, b| a.key < b.key), "sorted");
                branch.push(Arc::new(leaf));
            }
            root.push(Arc::new(branch));
        }
        Self { root: Arc::new(root) }
    }
    /// Whether it has no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
    /// The number of items, at most `n_max`. Looks at a leaf for each 16 of them.
    pub(crate) fn count(&self, n_max: usize) -> usize {
        let mut n = 0;
        for leaf in self.root.iter().flat_map(|branch| branch.iter()) {
            n += leaf.len();
            if n >= n_max {
                return n_max;
            }
        }
        n
    }
    /// Inserts an item and returns the previous item under its key.
    pub(super) fn insert(&mut self, item: Arc<Item>) -> Option<Arc<Item>> {
        let root = Arc::make_mut(&mut self.root);
        if root.is_empty() {
            root.push(Arc::new(vec![Arc::new(vec![item])]));
            return None;
        }
        let (path, is_there) = find(root, &item.key);
        let is_last_branch = path.branch + 1 == root.len();
        let branch = Arc::make_mut(&mut root[path.branch]);
        let is_last = is_last_branch && path.leaf + 1 == branch.len();
        let leaf = Arc::make_mut(&mut branch[path.leaf]);
        if is_there {
            return Some(std::mem::replace(&mut leaf[path.item], item));
        }
        leaf.insert(path.item, item);
        if leaf.len() > LEAF_MAX {
            // For ascending names, leaves are filled completely.
            let at = if is_last && path.item == LEAF_MAX { LEAF_MAX } else { LEAF_MAX / 2 };
            let behind = leaf.split_off(at);
            branch.insert(path.leaf + 1, Arc::new(behind));
        }
        if branch.len() > BRANCH_MAX {
            let behind = branch.split_off(if is_last { BRANCH_MAX } else { BRANCH_MAX / 2 });
            root.insert(path.branch + 1, Arc::new(behind));
        }
        None
    }
    /// Removes the item under a key.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Arc<Item>> {
        let (path, is_there) = find(&self.root, key);
        if !is_there {
            return None;
        }
        let root = Arc::make_mut(&mut self.root);
        let branch = Arc::make_mut(&mut root[path.branch]);
        let leaf = Arc::make_mut(&mut branch[path.leaf]);
        let removed = leaf.remove(path.item);
        if leaf.len() < LEAF_MAX / 4 {
            join(branch, path.leaf, LEAF_MAX / 2);
            if branch.len() < BRANCH_MAX / 4 {
                join(root, path.branch, BRANCH_MAX / 2);
            }
        }
        Some(removed)
    }
    /// The item under a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Arc<Item>> {
        let (path, is_there) = find(&self.root, key);
        let leaf = self.root.get(path.branch)?.get(path.leaf)?;
        leaf.get(path.item).filter(|_| is_there)
    }
    /// The items of a range of keys, in order.
    pub(crate) fn range<'i>(
        &'i self,
        from: Bound<&[u8]>,
        to: Bound<&'i [u8]>,
    ) -> impl Iterator<Item = &'i Arc<Item>> + use<'i> {
        let mut path = match from {
            Bound::Unbounded => Path::default(),
            Bound::Included(key) => find(&self.root, key).0,
            Bound::Excluded(key) => {
                let (path, is_there) = find(&self.root, key);
                Path { item: path.item + usize::from(is_there), ..path }
            }
        };
        let items = std::iter::from_fn(move || {
            loop {
                let branch = self.root.get(path.branch)?;
                let Some(leaf) = branch.get(path.leaf) else {
                    path = Path { branch: path.branch + 1, leaf: 0, item: 0 };
                    continue;
                };
                match leaf.get(path.item) {
                    None => path = Path { leaf: path.leaf + 1, item: 0, ..path },
                    Some(item) => {
                        path.item += 1;
                        return Some(item);
                    }
                }
            }
        });
        items.take_while(move |item| match to {
            Bound::Unbounded => true,
            Bound::Included(key) => item.key <= *key,
            Bound::Excluded(key) => item.key < *key,
        })
    }
}

/// The position of a key, and whether it exists.
fn find(root: &[Arc<Branch>], key: &[u8]) -> (Path, bool) {
    let first = |leaf: &Leaf| leaf.first().is_some_and(|item| item.key <= *key);
    let branch = root.partition_point(|branch| branch.first().is_some_and(|leaf| first(leaf)));
    let branch = branch.saturating_sub(1);
    let Some(leaves) = root.get(branch) else { return (Path::default(), false) };
    let leaf = leaves.partition_point(|leaf| first(leaf)).saturating_sub(1);
    let found = leaves[leaf].binary_search_by(|item| (*item.key).cmp(key));
    let (Ok(item) | Err(item)) = found;
    (Path { branch, leaf, item }, found.is_ok())
}
/// Merges a small node with a neighbor if both fit into one; removes it if it is empty.
fn join<T: Clone>(nodes: &mut Vec<Arc<Vec<T>>>, at: usize, len_max: usize) {
    if nodes[at].is_empty() {
        nodes.remove(at);
        return;
    }
    for left in [at.checked_sub(1), Some(at)].into_iter().flatten() {
        let Some(right) = nodes.get(left + 1) else { continue };
        if nodes[left].len() + right.len() <= len_max {
            let right = nodes.remove(left + 1);
            Arc::make_mut(&mut nodes[left]).extend(right.iter().cloned());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn item(key: u16, revision: u64) -> Arc<Item> {
        Arc::new(Item::new(format!("{key:05}").into(), revision, "".into()))
    }
    fn shown<'i>(items: impl Iterator<Item = &'i Arc<Item>>) -> Vec<(String, u64)> {
        items.map(|i| (String::from_utf8(i.key.to_vec()).unwrap(), i.revision)).collect()
    }
    fn check(index: &Index) {
        for branch in index.root.iter() {
            assert!((1..=BRANCH_MAX).contains(&branch.len()));
            assert!(branch.iter().all(|leaf| (1..=LEAF_MAX).contains(&leaf.len())));
        }
    }

    #[test]
    fn ascending_names_fill_their_leaves() {
        let mut index = Index::default();
        (0..20_000).for_each(|key| assert!(index.insert(item(key, 1)).is_none()));
        check(&index);
        let n_leaves: usize = index.root.iter().map(|branch| branch.len()).sum();
        assert_eq!(n_leaves, 20_000_usize.div_ceil(LEAF_MAX));
        (0..20_000).for_each(|key| assert!(index.remove(format!("{key:05}").as_bytes()).is_some()));
        assert!(index.root.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn the_index_is_a_sorted_map_and_its_clones_do_not_change(
            start in proptest::collection::btree_set(0..3000_u16, 0..2000),
            steps in proptest::collection::vec((0..3000_u16, 0..3_u8), 0..3000),
            sweep in (0..3000_u16, 0..3000_u16),
            ranges in proptest::collection::vec((0..3000_u16, 0..3000_u16, any::<bool>()), 4),
        ) {
            let mut model: BTreeMap<u16, u64> = start.iter().map(|key| (*key, 0)).collect();
            let mut index = Index::from_sorted(start.into_iter().map(|key| item(key, 0)));
            let mut snapshot = None;
            for (n, (key, what)) in steps.into_iter().enumerate() {
                let old = match what {
                    0 => index.remove(format!("{key:05}").as_bytes()).map(|i| i.revision) == model.remove(&key),
                    _ => {
                        let revision = n as u64 + 1;
                        let old = index.insert(item(key, revision)).map(|i| i.revision);
                        old == model.insert(key, revision)
                    }
                };
                prop_assert!(old);
                if n == 1000 {
                    snapshot = Some((index.clone(), shown(index.range(Bound::Unbounded, Bound::Unbounded))));
                }
            }
            for key in sweep.0..sweep.1 {
                prop_assert_eq!(index.remove(format!("{key:05}").as_bytes()).is_some(), model.remove(&key).is_some());
            }
            check(&index);
            let texts = |range: (Bound<u16>, Bound<u16>)| -> Vec<_> {
                model.range(range).map(|(key, revision)| (format!("{key:05}"), *revision)).collect()
            };
            prop_assert_eq!(shown(index.range(Bound::Unbounded, Bound::Unbounded)), texts((Bound::Unbounded, Bound::Unbounded)));
            for (from, to, excluded) in ranges {
                let (from, to) = (from.min(to), from.max(to).max(1));
                let (a, b) = (format!("{from:05}"), format!("{to:05}"));
                let found = match excluded {
                    true if from < to => shown(index.range(Bound::Excluded(a.as_bytes()), Bound::Excluded(b.as_bytes()))),
                    true => continue,
                    false => shown(index.range(Bound::Included(a.as_bytes()), Bound::Included(b.as_bytes()))),
                };
                let bounds = if excluded { (Bound::Excluded(from), Bound::Excluded(to)) } else { (Bound::Included(from), Bound::Included(to)) };
                prop_assert_eq!(found, texts(bounds));
            }
            if let Some((snapshot, then)) = snapshot {
                prop_assert_eq!(shown(snapshot.range(Bound::Unbounded, Bound::Unbounded)), then);
            }
        }
    }
}
