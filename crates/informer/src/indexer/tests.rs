use super::*;
use crate::testing::object;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use setpoint_object::label::Selector;

fn by_app() -> (Arc<str>, IndexFn<ConfigMap>) {
    let function: IndexFn<ConfigMap> = Arc::new(|object| {
        Ok(object.label("app").map(|app| app.into_owned()).into_iter().collect())
    });
    ("app".into(), function)
}

/// Fails for every version that is a multiple of ten.
fn picky() -> (Arc<str>, IndexFn<ConfigMap>) {
    let function: IndexFn<ConfigMap> = Arc::new(|object| {
        let version = object.resource_version();
        if version.ends_with('0') { Err("no".to_owned()) } else { Ok(vec![version.to_owned()]) }
    });
    ("version".into(), function)
}

fn names(objects: &[Object<ConfigMap>]) -> Vec<String> {
    objects.iter().map(|object| format!("{object:?}")).collect()
}

#[test]
fn idx_3_5_reads_are_from_one_snapshot_and_a_later_write_does_not_show_in_it() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_app()]).unwrap();
    indexer.upsert(object("a1", 1)).unwrap();
    let before = indexer.snapshot();
    indexer.upsert(object("a2", 2)).unwrap();
    indexer.remove(object("a1", 1).key(), "3");
    assert_eq!(names(&before.by_index("app", "a").unwrap()), ["ns/a1@1"]);
    assert_eq!(before.resource_version(), "1");
    let after = indexer.snapshot();
    assert_eq!(names(&after.by_index("app", "a").unwrap()), ["ns/a2@2"]);
    assert_eq!(after.resource_version(), "3");
}

#[test]
fn idx_4_an_unknown_index_is_an_error_or_has_no_values() {
    let indexer: Indexer<ConfigMap> = Indexer::new();
    assert!(indexer.snapshot().by_index("x", "y").is_err());
    assert!(indexer.snapshot().index_keys("x", "y").is_err());
    assert!(indexer.snapshot().index_values("x").is_empty());
}

#[test]
fn idx_5_a_failing_index_function_rejects_the_write_and_indices_stay_in_step() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_app(), picky()]).unwrap();
    indexer.upsert(object("a", 1)).unwrap();
    let error = indexer.upsert(object("a", 10)).unwrap_err();
    assert_eq!(error.to_string(), r#"index ns/a by "version": no"#);
    assert_eq!(names(&indexer.snapshot().by_index("version", "1").unwrap()), ["ns/a@1"]);

    let rejected = indexer.replace(vec![object("a", 20), object("b", 20), object("c", 21)], "21");
    assert_eq!(rejected.len(), 2);
    let snapshot = indexer.snapshot();
    let all: Vec<_> = snapshot.iter().cloned().collect();
    assert_eq!(names(&all), ["ns/a@1", "ns/c@21"], "a key is left as it was");
    assert_eq!(names(&snapshot.by_index("version", "1").unwrap()), ["ns/a@1"]);
}

#[test]
fn idx_6_indices_are_added_over_what_is_there_all_or_none() {
    let mut indexer = Indexer::new();
    indexer.upsert(object("a", 1)).unwrap();
    assert!(indexer.add_indices([by_app(), by_app()]).is_err());
    assert!(indexer.snapshot().by_index("app", "a").is_err(), "none was added");
    indexer.add_indices([by_app()]).unwrap();
    assert_eq!(names(&indexer.snapshot().by_index("app", "a").unwrap()), ["ns/a@1"]);
    assert!(indexer.add_indices([(Arc::from(NAMESPACE_INDEX), by_app().1)]).is_err());
}

#[test]
fn idx_7_a_value_without_objects_is_forgotten() {
    let mut indexer = Indexer::new();
    indexer.add_indices([picky()]).unwrap();
    for version in 1..10 {
        indexer.upsert(object("a", version)).unwrap();
    }
    assert_eq!(indexer.snapshot().index_values("version"), [Arc::from("9")]);
}

#[test]
fn idx_10_the_version_moves_with_writes_and_bookmarks_and_not_without_one() {
    let mut indexer = Indexer::new();
    indexer.replace(vec![object("a", 3)], "7");
    assert_eq!(&*indexer.lister().resource_version(), "7");
    indexer.bookmark("9");
    assert_eq!(&*indexer.lister().resource_version(), "9");
    indexer.remove(object("a", 3).key(), "");
    assert_eq!(&*indexer.lister().resource_version(), "9");
}

#[test]
fn idx_12_the_namespace_index_is_always_there() {
    let mut indexer = Indexer::new();
    indexer.upsert(object("a", 1)).unwrap();
    let snapshot = indexer.snapshot();
    assert_eq!(names(&snapshot.by_index(NAMESPACE_INDEX, "ns").unwrap()), ["ns/a@1"]);
    assert!(snapshot.by_index(NAMESPACE_INDEX, "n").unwrap().is_empty());
    assert_eq!(snapshot.index_values(NAMESPACE_INDEX), [Arc::from("ns")]);
}

#[test]
fn an_object_in_the_same_version_keeps_its_place_in_memory_across_a_relist() {
    let mut indexer = Indexer::new();
    indexer.upsert(object("a", 1)).unwrap();
    let held = indexer.lister().object(object("a", 1).key()).unwrap();
    indexer.replace(vec![object("a", 1)], "5");
    assert!(indexer.lister().object(held.key()).unwrap().same(&held));
}

#[test]
fn fac_6_listers_select_by_namespace_and_label() {
    let mut indexer = Indexer::new();
    for name in ["a1", "b1", "a2"] {
        indexer.upsert(object(name, 1)).unwrap();
    }
    let lister = indexer.lister();
    assert_eq!(names(&lister.objects(&Selector::parse("app=a").unwrap())), ["ns/a1@1", "ns/a2@1"]);
    assert_eq!(lister.list(&Selector::everything()).unwrap().len(), 3);
    assert_eq!(lister.namespaced("ns").list(&Selector::parse("app=b").unwrap()).unwrap().len(), 1);
    assert!(lister.namespaced("other").list(&Selector::everything()).unwrap().is_empty());
    assert!(lister.get("ns", "a1").unwrap().is_some());
    assert!(lister.namespaced("ns").get("zz").unwrap().is_none());
}

proptest! {
    /// Invariant 1: after any writes the indices equal a recomputation.
    #[test]
    fn invariant_1_indices_equal_a_recomputation(
        steps in prop::collection::vec((0_u8..3, 0_u8..8, 1_u64..40), 0..60),
    ) {
        let mut indexer = Indexer::new();
        indexer.add_indices([by_app(), picky()]).unwrap();
        for (step, key, version) in steps {
            let name = ((b'a' + key % 3) as char).to_string() + &key.to_string();
            match step {
                0 => drop(indexer.upsert(object(&name, version))),
                1 => drop(indexer.remove(object(&name, version).key(), "")),
                _ => drop(indexer.replace(vec![object(&name, version), object("a9", version)], "x")),
            }
            let snapshot = indexer.snapshot();
            let mut fresh = Indexer::new();
            fresh.add_indices([by_app(), picky()]).unwrap();
            for object in snapshot.iter() {
                fresh.upsert(object.clone()).unwrap();
            }
            let fresh = fresh.snapshot();
            for index in ["app", "version"] {
                prop_assert_eq!(snapshot.index_values(index), fresh.index_values(index));
                for value in fresh.index_values(index) {
                    prop_assert_eq!(
                        snapshot.index_keys(index, &value).unwrap(),
                        fresh.index_keys(index, &value).unwrap()
                    );
                }
            }
        }
    }
}
