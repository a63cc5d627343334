use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
struct Item(Key, u32);

impl HasKey for Item {
    fn key(&self) -> &Key {
        &self.0
    }
}

fn items(tree: &Tree<Item>) -> Vec<Item> {
    tree.iter().cloned().collect()
}

fn rest(mut cursor: Cursor<Item>) -> Vec<Item> {
    let next = || {
        let item = cursor.peek().cloned();
        cursor.advance();
        item
    };
    std::iter::from_fn(next).collect()
}

fn name() -> impl Strategy<Value = String> {
    // Names with long common prefixes, and a few without.
    prop_oneof![
        8 => (0_u32..3000).prop_map(|n| format!("a-name-that-is-long-{n:04}-x")),
        2 => (0_u32..40).prop_map(|n| format!("{n}")),
        1 => "[a-z/\\x00-]{0,3}",
    ]
}

fn key() -> impl Strategy<Value = Key> {
    (
        prop_oneof![
            Just(""),
            Just("ns"),
            Just("ns-2"),
            Just("ns-20000000"),
            Just("ns/a"),
            Just("ns/")
        ],
        name(),
    )
        .prop_map(|(namespace, name)| Key::new(namespace, name.as_str()))
}

/// The order of the tree for a map of the standard library.
fn ordered(key: &Key) -> (Vec<u8>, usize) {
    ([&key.namespace, "/", &key.name].concat().into_bytes(), key.namespace.len())
}

type Model = BTreeMap<(Vec<u8>, usize), Item>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tree_behaves_as_a_map_and_its_copies_do_not_change(
        sorted in prop::collection::vec((key(), 0_u32..9), 0..400),
        steps in prop::collection::vec((key(), prop::option::weighted(0.6, 0_u32..9)), 0..600),
        froms in prop::collection::vec(key(), 8),
    ) {
        let mut model: Model =
            sorted.into_iter().map(|(key, value)| (ordered(&key), Item(key, value))).collect();
        let mut builder = Builder::default();
        for item in model.values() {
            prop_assert!(builder.push(item.clone()).is_ok());
            prop_assert_eq!(builder.push(item.clone()), Err(item.clone()), "not in order");
        }
        let mut tree = builder.finish();
        let mut copies = Vec::new();
        for (n, (key, value)) in steps.into_iter().enumerate() {
            if n % 100 == 7 {
                copies.push((tree.clone(), items(&tree)));
            }
            let (was, held) = match value {
                Some(value) => {
                    let item = Item(key.clone(), value);
                    (tree.insert(item.clone()), model.insert(ordered(&key), item))
                }
                None => (tree.remove((&key).into()), model.remove(&ordered(&key))),
            };
            prop_assert_eq!(was, held);
        }
        prop_assert_eq!(tree.len(), model.len());
        prop_assert_eq!(items(&tree), model.values().cloned().collect::<Vec<_>>());
        for key in froms {
            prop_assert_eq!(tree.get((&key).into()), model.get(&ordered(&key)));
            let from: Vec<Item> = tree.from((&key).into()).cloned().collect();
            let want: Vec<Item> =
                model.range(ordered(&key)..).map(|(_, item)| item.clone()).collect();
            prop_assert_eq!(&from, &want);
            prop_assert_eq!(rest(Cursor::from(&tree, (&key).into())), want);
        }
        prop_assert_eq!(rest(Cursor::first(&tree)), items(&tree));
        for (copy, then) in &copies {
            prop_assert_eq!(&items(copy), then);
        }
        // Freeing one copy leaves the others alone.
        let mut teardown = Teardown::default();
        teardown.add(tree.clone());
        prop_assert!(std::iter::from_fn(|| teardown.step()).all(|entries| entries.is_empty()));
        if let Some((copy, then)) = copies.pop() {
            drop(copies);
            let last = copy.clone();
            teardown.add(copy);
            while teardown.step().is_some() {}
            prop_assert_eq!(items(&last), then);
        }
        let keys: Vec<Key> = model.values().map(|item| item.0.clone()).collect();
        for key in &keys {
            prop_assert!(tree.get(key.into()).is_some());
            prop_assert!(tree.remove(key.into()).is_some());
        }
        prop_assert!(tree.is_empty() && tree.root.is_none());
    }
}

#[test]
fn idx_1_order_is_that_of_a_servers_keys() {
    let keys = [("", "z"), ("a-b", "a"), ("a", "b"), ("a", "ba"), ("aa", ""), ("aa", "a")];
    let keys = keys.map(|(namespace, name)| Key::new(namespace, name));
    let mut tree = Tree::default();
    for key in keys.iter().rev() {
        tree.insert(Item(key.clone(), 0));
    }
    assert!(keys.is_sorted());
    assert!(tree.iter().map(|item| &item.0).eq(&keys));
}

#[test]
fn teardown_frees_every_entry_a_node_at_a_time() {
    let mut builder = Builder::default();
    for n in 0..5000 {
        assert!(builder.push(Item(Key::new("ns", format!("{n:05}")), n)).is_ok());
    }
    let mut teardown = Teardown::default();
    teardown.add(builder.finish());
    let mut freed = Vec::new();
    while let Some(entries) = teardown.step() {
        assert!(entries.len() <= NODE_MAX);
        freed.extend(entries);
    }
    assert_eq!(freed.len(), 5000);
}
