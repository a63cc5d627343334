use super::*;
use crate::policy::CachePolicy;
use crate::testing::object;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;

fn by_app() -> (Arc<str>, ObjectIndexFn<ConfigMap>) {
    let function: ObjectIndexFn<ConfigMap> = Arc::new(|object| {
        Ok(object.label("app").map(|app| app.into_owned()).into_iter().collect())
    });
    ("app".into(), function)
}

/// Fails for every version that is a multiple of ten.
fn picky() -> (Arc<str>, ObjectIndexFn<ConfigMap>) {
    let function: ObjectIndexFn<ConfigMap> = Arc::new(|object| {
        let version = object.resource_version();
        if version.ends_with('0') { Err("no".to_owned()) } else { Ok(vec![version.to_owned()]) }
    });
    ("version".into(), function)
}

fn names(objects: impl IntoIterator<Item = Object<ConfigMap>>) -> Vec<String> {
    objects.into_iter().map(|object| format!("{object:?}")).collect()
}

/// `a-b`: a value for each part of the name.
fn by_part() -> (Arc<str>, ObjectIndexFn<ConfigMap>) {
    let function: ObjectIndexFn<ConfigMap> =
        Arc::new(|object| Ok(object.name().split('-').map(str::to_owned).collect()));
    ("part".into(), function)
}

#[test]
fn idx_3_5_snapshot_does_not_change_with_later_writes() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_app()]).unwrap();
    indexer.upsert(object("a1", 1)).unwrap();
    let before = indexer.snapshot();
    indexer.upsert(object("a2", 2)).unwrap();
    indexer.remove(object("a1", 1).key(), "3");
    assert_eq!(names(before.by_index("app", "a").unwrap()), ["ns/a1@1"]);
    assert_eq!(before.resource_version(), "1");
    let after = indexer.snapshot();
    assert_eq!(names(after.by_index("app", "a").unwrap()), ["ns/a2@2"]);
    assert_eq!(after.resource_version(), "3");
}

#[test]
fn idx_2_3_an_object_has_many_values_and_a_union_shows_it_once() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_part()]).unwrap();
    for name in ["a-b", "b-c", "c-d", "a-a"] {
        indexer.upsert(object(name, 1)).unwrap();
    }
    let snapshot = indexer.snapshot();
    let union = |values: &[&'static str]| {
        names(snapshot.by_index_any("part", values.iter().copied()).unwrap())
    };
    assert_eq!(union(&["a", "b"]), ["ns/a-a@1", "ns/a-b@1", "ns/b-c@1"]);
    assert_eq!(union(&["b", "a", "b"]), ["ns/a-a@1", "ns/a-b@1", "ns/b-c@1"]);
    assert_eq!(union(&["x"]), [""; 0]);
    assert_eq!(snapshot.index_keys("part", "c").unwrap().len(), 2);
    assert_eq!(snapshot.index_values("part"), ["a", "b", "c", "d"].map(Arc::from));
    assert!(snapshot.by_index_any("other", [] as [&str; 0]).is_err(), "IDX-4");
}

#[test]
fn idx_8_replacement_is_atomic_and_updates_indices() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_part()]).unwrap();
    indexer.replace(vec![object("b", 1), object("a", 2), object("b", 3)], "4");
    let before = indexer.snapshot();
    assert_eq!(names(before.iter()), ["ns/a@2", "ns/b@3"], "sorted, the later of two counts");
    indexer.replace(vec![object("c", 5)], "6");
    assert_eq!(names(indexer.snapshot().iter()), ["ns/c@5"]);
    assert_eq!(indexer.snapshot().index_values("part"), [Arc::from("c")]);
    assert_eq!(before.index_values("part"), ["a", "b"].map(Arc::from));
}

#[test]
fn idx_9_all_readers_share_one_object() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_app()]).unwrap();
    indexer.upsert(object("a", 1)).unwrap();
    let (lister, snapshot) = (indexer.lister(), indexer.snapshot());
    let held = lister.object(&Key::new("ns", "a")).unwrap();
    assert!(held.same(&snapshot.iter().next().unwrap()));
    assert!(held.same(&snapshot.by_index("app", "a").unwrap().next().unwrap()));
}

#[test]
fn idx_11_transaction_reports_each_rejected_write_and_makes_the_others_in_one_step() {
    let mut indexer = Indexer::new();
    indexer.add_indices([picky()]).unwrap();
    indexer.upsert(object("a", 1)).unwrap();
    indexer.upsert(object("d", 1)).unwrap();
    let before = indexer.snapshot();
    let written = indexer.transaction(vec![
        Write::Upsert(object("a", 2)),
        Write::Upsert(object("b", 20)),
        Write::Upsert(object("c", 3)),
        Write::Delete(object("d", 4)),
        Write::Delete(object("e", 5)),
        Write::Upsert(object("c", 6)),
    ]);
    let output: Vec<_> = written
        .iter()
        .map(|written| match written {
            Ok(old) => names(old.clone()).concat(),
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!(output, ["ns/a@1", r#"index ns/b by "version": no"#, "", "ns/d@1", "", "ns/c@3"]);
    assert_eq!(names(indexer.snapshot().iter()), ["ns/a@2", "ns/c@6"]);
    assert_eq!(indexer.snapshot().index_values("version"), ["2", "6"].map(Arc::from));
    assert_eq!(indexer.snapshot().resource_version(), "6");
    assert_eq!(names(before.iter()), ["ns/a@1", "ns/d@1"]);
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
    assert_eq!(names(indexer.snapshot().by_index("version", "1").unwrap()), ["ns/a@1"]);

    let rejected = indexer.replace(vec![object("a", 20), object("b", 20), object("c", 21)], "21");
    assert_eq!(rejected.len(), 2);
    let snapshot = indexer.snapshot();
    assert_eq!(names(snapshot.iter()), ["ns/a@1", "ns/c@21"], "the key is unchanged");
    assert_eq!(names(snapshot.by_index("version", "1").unwrap()), ["ns/a@1"]);
}

#[test]
fn idx_6_indices_over_stored_objects_are_added_all_or_none() {
    let mut indexer = Indexer::new();
    indexer.upsert(object("a", 1)).unwrap();
    assert!(indexer.add_indices([by_app(), by_app()]).is_err());
    assert!(indexer.snapshot().by_index("app", "a").is_err(), "none was added");
    indexer.add_indices([by_app()]).unwrap();
    assert_eq!(names(indexer.snapshot().by_index("app", "a").unwrap()), ["ns/a@1"]);
    assert!(indexer.add_indices([(Arc::from(NAMESPACE_INDEX), by_app().1)]).is_err());
}

#[test]
fn idx_7_value_without_objects_is_removed() {
    let mut indexer = Indexer::new();
    indexer.add_indices([picky()]).unwrap();
    for version in 1..10 {
        indexer.upsert(object("a", version)).unwrap();
    }
    assert_eq!(indexer.snapshot().index_values("version"), [Arc::from("9")]);
}

#[test]
fn idx_10_writes_and_bookmarks_with_a_version_change_the_version() {
    let mut indexer = Indexer::new();
    indexer.replace(vec![object("a", 3)], "7");
    assert_eq!(&*indexer.lister().resource_version(), "7");
    indexer.bookmark("9");
    assert_eq!(&*indexer.lister().resource_version(), "9");
    indexer.remove(object("a", 3).key(), "");
    assert_eq!(&*indexer.lister().resource_version(), "9", "a tombstone has none");
    indexer.upsert(object("a", 10)).unwrap();
    assert_eq!(&*indexer.lister().resource_version(), "10");
    indexer.remove(object("a", 10).key(), "11");
    assert_eq!(&*indexer.lister().resource_version(), "11");
}

#[test]
fn idx_12_namespace_index_always_exists() {
    let mut indexer = Indexer::new();
    indexer.upsert(object("a", 1)).unwrap();
    let snapshot = indexer.snapshot();
    assert_eq!(names(snapshot.by_index(NAMESPACE_INDEX, "ns").unwrap()), ["ns/a@1"]);
    assert_eq!(snapshot.by_index(NAMESPACE_INDEX, "n").unwrap().count(), 0);
    assert_eq!(snapshot.index_values(NAMESPACE_INDEX), [Arc::from("ns")]);
}

#[test]
fn unchanged_object_is_shared_across_a_relist() {
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
    assert_eq!(names(lister.objects(&Selector::parse("app=a").unwrap())), ["ns/a1@1", "ns/a2@1"]);
    assert_eq!(lister.list(&Selector::everything()).unwrap().len(), 3);
    assert_eq!(lister.namespaced("ns").list(&Selector::parse("app=b").unwrap()).unwrap().len(), 1);
    assert!(lister.namespaced("other").list(&Selector::everything()).unwrap().is_empty());
    assert!(lister.get("ns", "a1").unwrap().is_some());
    assert!(lister.namespaced("ns").get("zz").unwrap().is_none());
}

/// The whole content of a snapshot.
fn shown(snapshot: &Snapshot<ConfigMap>) -> Vec<String> {
    let mut shown = names(snapshot.iter());
    for index in ["app", "version"] {
        for value in snapshot.index_values(index) {
            shown.extend(names(snapshot.by_index(index, &value).unwrap()));
        }
    }
    shown.push(snapshot.resource_version().to_owned());
    shown
}

proptest! {
    /// Invariant 1: after any writes the indices equal a recomputation.
    #[test]
    fn invariant_1_indices_equal_a_recomputation(
        steps in prop::collection::vec((0_u8..4, 0_u8..8, 1_u64..40), 0..60),
    ) {
        let mut indexer = Indexer::new();
        indexer.add_indices([by_app(), picky()]).unwrap();
        let mut copies = Vec::new();
        for (n, (step, key, version)) in steps.into_iter().enumerate() {
            let name = ((b'a' + key % 3) as char).to_string() + &key.to_string();
            match step {
                0 => drop(indexer.upsert(object(&name, version))),
                1 => drop(indexer.remove(object(&name, version).key(), "")),
                2 => drop(indexer.transaction(vec![
                    Write::Delete(object(&name, version)),
                    Write::Upsert(object("a8", version)),
                    Write::Upsert(object(&name, version + 1)),
                ])),
                _ => drop(indexer.replace(vec![object(&name, version), object("a9", version)], "x")),
            }
            let snapshot = indexer.snapshot();
            if n % 7 == 0 {
                copies.push((snapshot.clone(), shown(&snapshot)));
            }
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
        for (snapshot, then) in copies {
            prop_assert_eq!(shown(&snapshot), then, "a snapshot does not change (IDX-3)");
        }
    }
}

/// A config map of a namespace with labels.
fn labelled(
    n: usize,
    namespace: u8,
    labels: &[(u8, u8)],
    policy: CachePolicy,
) -> Object<ConfigMap> {
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| (format!("k{key}"), format!("v{value}").into())).collect();
    let json = serde_json::json!({"metadata": {
        "namespace": format!("ns-{namespace}"), "name": format!("a{n}"), "uid": "u",
        "resourceVersion": "1", "labels": labels,
    }});
    let resource_type = crate::resource_type::ResourceType::of::<ConfigMap>(&());
    let json = json.to_string();
    let record = crate::record::Record::from_item(json.as_bytes(), &resource_type).unwrap();
    Object::new(record, policy)
}

/// A selector, as text.
fn selector() -> impl Strategy<Value = String> {
    let value = (0_u8..4).prop_map(|n| format!("v{n}"));
    let term = (0_u8..3, 0_u8..6, value.clone(), value).prop_map(|(key, kind, a, b)| match kind {
        0 | 1 => format!("k{key}={a}"),
        2 => format!("k{key} in ({a})"),
        3 => format!("k{key} in ({a},{b})"),
        4 => format!("k{key}!={a}"),
        _ => format!("!k{key}"),
    });
    prop::collection::vec(term, 0..4).prop_map(|terms| terms.join(","))
}

proptest! {
    #[test]
    fn reads_by_labels_are_the_same_with_and_without_the_index_by_labels(
        objects in prop::collection::vec(
            (0_u8..3, prop::collection::vec((0_u8..3, 0_u8..4), 0..4)), 0..30,
        ),
        selectors in prop::collection::vec(selector(), 1..8),
        is_decoded in any::<bool>(),
    ) {
        let policy = if is_decoded { CachePolicy::Decoded } else { CachePolicy::Compact };
        let (mut with, mut without) = (Indexer::new(), Indexer::new());
        with.add_raw_indices([(LABEL_INDEX.into(), IndexFn::by_labels::<ConfigMap>())]).unwrap();
        for (n, (namespace, labels)) in objects.iter().enumerate() {
            for indexer in [&mut with, &mut without] {
                // Most labels change once.
                indexer.upsert(labelled(n, *namespace, &labels[labels.len() / 2..], policy)).unwrap();
                indexer.upsert(labelled(n, *namespace, labels, policy)).unwrap();
            }
        }
        let (with, without) = (with.lister(), without.lister());
        for text in selectors {
            let selector = Selector::parse(&text).unwrap();
            prop_assert_eq!(names(with.objects(&selector)), names(without.objects(&selector)));
            prop_assert_eq!(with.list(&selector).unwrap(), without.list(&selector).unwrap());
            let all = Query::new().labels(selector.clone());
            let of = |lister: &Lister<ConfigMap>, query: &Query| names(lister.select(query).unwrap());
            prop_assert_eq!(of(&with, &all), of(&without, &all));
            for namespace in ["ns-0", "ns-1", "ns-9"] {
                let query = all.clone().namespace(namespace);
                prop_assert_eq!(of(&with, &query), of(&without, &query));
                let (with, without) = (with.namespaced(namespace), without.namespaced(namespace));
                prop_assert_eq!(names(with.objects(&selector)), names(without.objects(&selector)));
                prop_assert_eq!(with.list(&selector).unwrap(), without.list(&selector).unwrap());
            }
        }
    }
}

#[test]
fn index_by_labels_leads_to_the_objects_with_the_rarest_label() {
    let mut indexer = Indexer::new();
    for n in 0..100 {
        let labels = [(0, 0), (1, u8::try_from(n % 50).unwrap())];
        indexer.upsert(labelled(n, u8::from(n >= 50), &labels, CachePolicy::Compact)).unwrap();
    }
    let read = |indexer: &Indexer<ConfigMap>, text: &str, namespace| {
        indexer.snapshot().candidates(&Selector::parse(text).unwrap(), namespace).count()
    };
    assert_eq!(read(&indexer, "k0=v0,k1=v7", None), 100, "without the index");
    let by_labels = || [(LABEL_INDEX.into(), IndexFn::by_labels::<ConfigMap>())];
    indexer.add_raw_indices(by_labels()).unwrap();
    assert_eq!(read(&indexer, "k0=v0,k1=v7", None), 2);
    assert_eq!(read(&indexer, "k0=v0,k1=v7", Some("ns-1")), 1);
    assert_eq!(read(&indexer, "k0=v0", Some("ns-1")), 50);
    assert_eq!(read(&indexer, "k0=v0,k1=none", None), 0);
    assert_eq!(read(&indexer, "k1!=v7", None), 100);
    assert_eq!(indexer.snapshot().index_keys(LABEL_INDEX, "k1=v7").unwrap().len(), 2);

    // The name is of this index only, and this index has no other.
    assert!(indexer.add_raw_indices(by_labels()).is_err());
    assert!(Indexer::new().add_indices([(Arc::from(LABEL_INDEX), by_app().1)]).is_err());
}

/// A config map whose `data.n` is its version, as is `list[1].v`.
fn with_data(name: &str, version: u64) -> Object<ConfigMap> {
    let json = format!(
        r#"{{"metadata":{{"namespace":"ns-{}","name":"{name}","uid":"u","resourceVersion":"{version}","labels":{{"app":"{}"}}}},"data":{{"n":"{version}"}},"list":[1,{{"v":{version}}}]}}"#,
        version % 2,
        &name[..1],
    );
    let resource_type = crate::resource_type::ResourceType::of::<ConfigMap>(&());
    let record = crate::record::Record::from_item(json.as_bytes(), &resource_type).unwrap();
    Object::new(record, CachePolicy::Compact)
}

#[test]
fn query_matches_encoded_objects_that_meet_all_its_conditions() {
    let mut indexer = Indexer::new();
    indexer.add_indices([by_app(), by_part()]).unwrap();
    for (n, name) in ["a-1", "a-2", "b-1", "b-2", "c-1"].into_iter().enumerate() {
        indexer.upsert(with_data(name, n as u64)).unwrap();
    }
    let lister = indexer.lister();
    let found = |query: Query| {
        let names: Vec<_> =
            lister.select(&query).unwrap().map(|object| object.name().to_owned()).collect();
        names.join(" ")
    };
    let labels = |text: &str| Query::new().labels(Selector::parse(text).unwrap());
    let fields = |text: &str| Query::new().fields(FieldSelector::parse(text).unwrap());
    assert_eq!(found(Query::new()), "a-1 b-1 c-1 a-2 b-2");
    assert_eq!(found(Query::new().namespace("ns-1")), "a-2 b-2");
    assert_eq!(found(labels("app in (a,c)")), "a-1 c-1 a-2");
    assert_eq!(found(labels("!app")), "");
    assert_eq!(found(fields("data.n=3")), "b-2");
    assert_eq!(found(fields("metadata.name!=a-1,metadata.namespace=ns-0")), "b-1 c-1");
    assert_eq!(found(Query::new().value("/list/1/v", 4).unwrap()), "c-1");
    assert_eq!(found(Query::new().value("/data/n", "4").unwrap()), "c-1");
    assert_eq!(found(Query::new().value("/data/n", 4).unwrap()), "", "a text is not a number");
    assert_eq!(found(Query::new().value("/spec", serde_json::Value::Null).unwrap()), "");
    assert_eq!(found(Query::new().index("part", "1")), "a-1 b-1 c-1");
    assert_eq!(found(Query::new().index("part", "1").index("app", "b")), "b-1");
    assert_eq!(found(Query::new().index("part", "1").index("part", "9")), "");
    assert_eq!(found(Query::new().index("part", "2").index(NAMESPACE_INDEX, "ns-1")), "a-2 b-2");
    assert_eq!(found(Query::new().namespace("ns-0").index(NAMESPACE_INDEX, "ns-1")), "");
    assert_eq!(found(labels("app=b").index("part", "2").namespace("ns-1")), "b-2");

    let unknown = lister.select(&Query::new().index("none", "")).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no index \"none\"");
    let bad = Query::new().value("data", 1).unwrap_err();
    assert_eq!(bad.to_string(), "\"data\" is not a JSON pointer");
}

#[test]
fn a_query_of_fields_needs_encoded_objects() {
    let mut indexer = Indexer::new();
    let record = crate::testing::record("a", 1);
    indexer.upsert(Object::new(record, CachePolicy::Decoded)).unwrap();
    let lister: Lister<ConfigMap> = indexer.lister();
    let by_value = Query::new().value("/data/n", 1).unwrap();
    assert_eq!(lister.select(&by_value).unwrap_err(), SelectError::Decoded);
    let by_name = FieldSelector::name("a");
    let labels = Selector::parse("app=a").unwrap();
    assert_eq!(lister.select(&Query::new().fields(by_name).labels(labels)).unwrap().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stream_of_a_query_reads_one_snapshot_and_yields_to_other_tasks() {
    use futures::StreamExt;
    let mut indexer = Indexer::new();
    for n in 0..2000 {
        indexer.upsert(with_data(&format!("a{n:04}"), 2 * n)).unwrap();
    }
    let lister = indexer.lister();
    let last = Query::new().value("/data/n", "3998").unwrap();
    let n_turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let turns = n_turns.clone();
    let mut others = tokio::task::JoinSet::new();
    others.spawn(async move {
        loop {
            turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut stream = std::pin::pin!(lister.select(&last).unwrap().stream());
    assert_eq!(stream.next().await.unwrap().name(), "a1999");
    assert!(stream.next().await.is_none());
    let n_turns = n_turns.load(std::sync::atomic::Ordering::Relaxed);
    assert!(n_turns >= 2000 / 64, "{n_turns}");
    others.abort_all();

    // Writes during the iteration neither wait for it nor show in it.
    let mut decoded = lister.select(&Query::new()).unwrap().decoded();
    assert_eq!(decoded.next().unwrap().unwrap().metadata.name.as_deref(), Some("a0000"));
    indexer.replace(Vec::new(), "5000");
    assert_eq!(lister.len(), 0);
    assert_eq!(decoded.count(), 1999);
}

#[test]
fn a_range_of_an_index_is_sorted_by_value() {
    let mut indexer = Indexer::new();
    let by_number: ObjectIndexFn<ConfigMap> = Arc::new(|object| {
        Ok(object.label("k0").map(|value| value.into_owned()).into_iter().collect())
    });
    indexer.add_indices([("number".into(), by_number)]).unwrap();
    for (n, value) in [5, 3, 9, 3, 7].into_iter().enumerate() {
        indexer.upsert(labelled(n, 0, &[(0, value)], CachePolicy::Compact)).unwrap();
    }
    let snapshot = indexer.snapshot();
    let range = |first, end| -> Vec<String> {
        let objects = snapshot.index_range("number", first..end).unwrap();
        objects.map(|object| object.label("k0").unwrap().into_owned()).collect()
    };
    assert_eq!(range("v3", "v9"), ["v3", "v3", "v5", "v7"]);
    assert_eq!(range("", "w"), ["v3", "v3", "v5", "v7", "v9"]);
    assert_eq!(range("v4", "v5"), [""; 0]);
    assert_eq!(range("v9", "v3"), [""; 0]);
    assert!(snapshot.index_range("other", "".."w").is_err());
}
