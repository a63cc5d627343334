//! The shared informer: start and end, status, reads.
use crate::support::*;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_informer::indexer::Readable;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{CachePolicy, HandlerOptions, Object, SharedInformer, Stopped};
use setpoint_object::label::Selector;
use std::sync::{Arc, OnceLock};

#[tokio::test(start_paused = true)]
async fn shi_1_9_constructors_send_no_requests_and_dropping_the_worker_stops_the_informer() {
    let script = Script::new([]);
    let (informer, worker) = builder(&script).build();
    let log = Log::default();
    let registration = log.add(&informer);
    settle().await;
    assert!(asked(&script).is_empty() && !informer.has_synced() && !registration.has_synced());
    drop(worker);
    assert!(informer.has_stopped());
    assert_eq!(informer.synced().await, Err(Stopped));
    assert_eq!(registration.synced().await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn fifo_22_shi_9_synced_may_be_awaited_by_any_number_and_never_reverts() {
    let script = Script::new([
        no_list(missing()),
        page("5", &[("a", 1)]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        no_list(missing()),
    ]);
    let running = Running::start(builder(&script));
    let waiting = (0..5).map(|_| {
        let informer = running.informer.clone();
        async move {
            informer.synced().await.unwrap();
            assert!(informer.lister().get("ns", "a").unwrap().is_some(), "invariant 6");
        }
    });
    futures::future::join_all(waiting).await;
    pass(60).await;
    assert!(running.informer.has_synced());
    assert!(running.informer.status().degraded.is_some());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_1_after_its_end_an_informer_answers_and_takes_nothing_new() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    let informer = running.informer.clone();
    running.end().await;
    assert!(informer.has_stopped() && informer.has_synced());
    assert!(informer.lister().get("ns", "a").unwrap().is_some());
    assert!(informer.add_handler(|_| (), HandlerOptions::default()).is_err());
    assert!(informer.add_object_index("x", |_| vec![]).is_err());
    informer.synced().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shi_6_a_dropped_run_ends_the_informer_and_its_handlers() {
    let script = Script::new([page("5", &[])]);
    let mut running = Running::start(builder(&script));
    let registration = Log::default().add(&running.informer);
    settle().await;
    running.tasks.shutdown().await;
    assert!(running.informer.has_stopped());
    registration.remove_and_wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idx_6_indices_answer_before_and_after_the_start() {
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(1), modified("a", 2), wait(1), deleted("b", 3), Step::Hang]),
    ]);
    let data = |map: &ConfigMap| map.data.iter().flat_map(|data| data.get("v").cloned()).collect();
    let running = Running::start(builder(&script).index("v", data));
    running.informer.synced().await.unwrap();
    running.informer.add_object_index("uid", |object| vec![object.uid().to_owned()]).unwrap();
    assert!(running.informer.add_index("v", data).is_err(), "the name is taken");
    let lister = running.informer.lister();
    assert_eq!(lister.objects_by_index("v", "2").unwrap().len(), 1);
    settle().await;
    pass(1).await;
    let names: Vec<_> =
        lister.by_index("v", "2").unwrap().iter().map(|map| map.metadata.name.clone()).collect();
    assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
    assert_eq!(lister.objects_by_index("uid", "u-b").unwrap().len(), 1);
    pass(1).await;
    assert!(lister.objects_by_index("uid", "u-b").unwrap().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_policy_reads_the_same_and_one_bad_object_hides_no_other() {
    for policy in [CachePolicy::Compact, CachePolicy::Decoded] {
        let bad = bytes::Bytes::from_static(
            br#"{"metadata":{"namespace":"ns","name":"bad","resourceVersion":"4"},"data":7}"#,
        );
        let items = vec![item("a", 1), bad];
        let list = setpoint_informer::source::ListPage::new("5", items);
        let script = Script::new([Answer::List(Ok(list))]);
        let log = Log::default();
        let running = Running::start_with(builder(&script).policy(policy), |informer| {
            drop(log.add(informer))
        });
        running.informer.synced().await.unwrap();
        let lister = running.informer.lister();
        let map = lister.get("ns", "a").unwrap().unwrap();
        assert_eq!(map.data.as_ref().unwrap()["v"], "1");
        assert!(lister.get("ns", "bad").is_err());
        assert!(lister.get("ns", "none").unwrap().is_none());
        settle().await;
        assert_eq!(log.take(), ["+a@1!", "+bad@4!"]);
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idx_5_object_that_does_not_fit_the_type_of_an_index_is_stored_and_reported() {
    let bad = bytes::Bytes::from_static(
        br#"{"metadata":{"namespace":"ns","name":"bad","resourceVersion":"4"},"data":7}"#,
    );
    let list = setpoint_informer::source::ListPage::new("5", vec![item("a", 1), bad]);
    let script = Script::new([Answer::List(Ok(list))]);
    let output = Log::default();
    let errors = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = errors.clone();
    let running = Running::start_with(
        builder(&script)
            .index("v", |_: &ConfigMap| vec!["all".to_owned()])
            .on_error(move |error| seen.lock().push(error.to_string())),
        |informer| drop(output.add(informer)),
    );
    running.informer.synced().await.unwrap();
    settle().await;
    assert_eq!(running.cache(), ["ns/a@1", "ns/bad@4"], "readers of other types see it");
    assert_eq!(output.take(), ["+a@1!", "+bad@4!"]);
    let reported = "an object of configmaps has no values in the index \"v\"";
    assert_eq!(*errors.lock(), [reported]);
    let (informer, status) = (&running.informer, running.informer.status());
    assert_eq!((status.unindexed, status.panics), (1, 0));
    let last = status.last_unindexed.unwrap();
    assert!(last.starts_with(reported) && last.contains("ConfigMap ns/bad"), "{last}");

    let lister = informer.lister();
    assert_eq!(lister.by_index("v", "all").unwrap().len(), 1);
    assert!(lister.get("ns", "bad").is_err(), "it is not taken for deleted");
    assert!(lister.list(&Selector::everything()).is_err());
    let read: Readable<_> = lister.objects(&Selector::everything()).into_iter().collect();
    let names = |objects: Vec<Arc<ConfigMap>>| -> Vec<_> {
        objects.iter().filter_map(|object| object.metadata.name.clone()).collect()
    };
    assert_eq!(names(read.objects), ["a"]);
    assert_eq!(read.unreadable.len(), 1);
    assert_eq!(read.unreadable[0].key.to_string(), "ns/bad");

    // Neither does it keep later indexes from being added.
    informer.add_index("late", |_: &ConfigMap| vec!["all".to_owned()]).unwrap();
    assert_eq!(lister.by_index("late", "all").unwrap().len(), 1);
    assert_eq!(informer.status().unindexed, 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_indices_of_one_name_are_refused_at_once() {
    let twice = |script: &Script| {
        builder(script).object_index("x", |_| vec![]).object_index("x", |_| vec![]).try_build()
    };
    assert!(twice(&Script::new([])).is_err());
    let reserved = builder(&Script::new([])).object_index("namespace", |_| vec![]).try_build();
    assert!(reserved.is_err());
}

#[tokio::test(start_paused = true)]
async fn evt_3_8_deletion_of_an_unknown_object_is_reported_and_a_recreation_is_one_update() {
    let recreated = bytes::Bytes::from_static(
        br#"{"metadata":{"namespace":"ns","name":"a","uid":"u2","resourceVersion":"9"}}"#,
    );
    let relist = setpoint_informer::source::ListPage::new("9", vec![recreated]);
    let script = Script::new([
        page("5", &[("a", 1)]),
        Answer::Watch(vec![deleted("zz", 6), wait(2), fails(expired())]),
        Answer::List(Ok(relist)),
    ]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    pass(10).await;
    assert_eq!(log.take(), ["+a@1!", "-zz@6", "a@1>a@9"]);
    running.end().await;
}

#[test]
fn handles_go_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<SharedInformer<ConfigMap>>();
    check::<setpoint_informer::Lister<ConfigMap>>();
    check::<setpoint_informer::HandlerRegistration>();
    check::<setpoint_informer::InformerFactory>();
}

#[tokio::test(start_paused = true)]
async fn fifo_24_ref_11b_invariant_11_a_transform_sees_each_object_once_on_entry() {
    let managed = bytes::Bytes::from_static(
        br#"{"metadata":{"namespace":"ns","name":"m","resourceVersion":"4","managedFields":[{"manager":"x"}]}}"#,
    );
    let list = setpoint_informer::source::ListPage::new("5", vec![managed]);
    let script = Script::streaming([
        Answer::Refuse(missing()),
        Answer::List(Ok(list)),
        Answer::Watch(vec![wait(1), modified("a", 6), wait(100), fails(internal())]),
        Answer::Watch(vec![added("a", 6), deleted("zz", 7), marker(9), Step::Hang]),
    ]);
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = seen.clone();
    let running = Running::start(
        builder(&script).resync(std::time::Duration::from_secs(10)).transform(move |object| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(object)
        }),
    );
    pass(50).await;
    let object = running.informer.lister().object(&"ns/m".parse().unwrap()).unwrap();
    assert!(object.skim().managed_fields.is_none());
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 2, "resyncs transform nothing");
    pass(100).await;
    assert_eq!(running.cache(), ["ns/a@6"]);
    let n_seen = seen.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(n_seen, 2, "the cache already has the version of the relist");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn fifo_24_a_transform_that_fails_rejects_a_list_as_a_whole_and_a_watched_object_alone() {
    let script = Script::new([
        page("5", &[("a", 1), ("bad", 2)]),
        page("5", &[("a", 1)]),
        Answer::Watch(vec![wait(1), added("bad", 6), added("b", 7), Step::Hang]),
    ]);
    let errors = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = errors.clone();
    let running = Running::start(
        builder(&script)
            .transform(|object| match memchr::memmem::find(&object, b"\"bad\"") {
                Some(_) => Err(setpoint_informer::transform::TransformError("no".to_owned())),
                None => Ok(object),
            })
            .on_error(move |error| seen.lock().push(error.to_string())),
    );
    settle().await;
    assert!(running.cache().is_empty() && !running.informer.has_synced());
    pass(10).await;
    assert_eq!(running.cache(), ["ns/a@1", "ns/b@7"]);
    assert_eq!(
        *errors.lock(),
        ["failed to transform the list of configmaps", "skipped an object of configmaps"]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn evt_7_handler_reads_the_state_of_its_event_or_a_later_one() {
    let mut steps = vec![wait(1)];
    steps.extend((10..200).map(|version| modified("a", version)));
    steps.extend([deleted("a", 200), Step::Hang]);
    let script = Script::new([page("5", &[("a", 1)]), Answer::Watch(steps)]);
    let mut registration = None;
    let running = Running::start_with(builder(&script), |informer| {
        let lister = informer.lister();
        let handler = move |event: setpoint_informer::Event<ConfigMap>| {
            let output: u64 = event.object().unwrap().resource_version().parse().unwrap();
            match lister.object(event.key()) {
                Some(object) => {
                    assert!(object.resource_version().parse::<u64>().unwrap() >= output)
                }
                None => assert_eq!(&*lister.resource_version(), "200"),
            }
        };
        registration = Some(informer.add_handler(handler, HandlerOptions::default()).unwrap());
    });
    pass(5).await;
    assert!(running.cache().is_empty());
    assert_eq!(registration.unwrap().panics(), 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn public_handles_have_debug_output() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    let output = format!("{:?}", running.informer);
    assert!(
        output.starts_with(r#"SharedInformer { resource: "configmaps", n_objects: 1,"#),
        "{output}"
    );
    let lister = format!("{:?}", running.informer.lister());
    assert_eq!(lister, r#"Snapshot { resource_version: "5", n_objects: 1, .. }"#);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_one_namespace_share_its_text() {
    let script = Script::new([page("5", &[("a", 1), ("b", 1)])]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    let snapshot = running.informer.lister().snapshot();
    let keys: Vec<_> = snapshot.iter().map(|object| object.key().clone()).collect();
    assert!(std::sync::Arc::ptr_eq(&keys[0].namespace, &keys[1].namespace));
    running.end().await;
}

/// SHI-2: transform and error handler are set in the builder, so they cannot be set after the
/// start. The last call of each counts (REF-32).
#[tokio::test(start_paused = true)]
async fn shi_2_ref_32_transform_and_error_handler_are_chosen_before_and_the_last_counts() {
    let errors = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = errors.clone();
    let script = Script::new([no_list(missing()), page("5", &[("a", 1)])]);
    let running = Running::start(
        builder(&script)
            .transform(|_| unreachable!("replaced"))
            .transform(Ok)
            .on_error(|_| unreachable!("replaced"))
            .on_error(move |error| seen.lock().push(error.to_string())),
    );
    running.informer.synced().await.unwrap();
    assert_eq!(*errors.lock(), ["failed to list configmaps"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn evt_4_5_relist_reports_deletions_first_and_then_objects_by_key() {
    let script = Script::new([
        page("5", &[("b", 1), ("c", 2), ("a", 3)]),
        Answer::Watch(vec![wait(2), fails(expired())]),
        page("9", &[("d", 8), ("a", 7), ("b", 1)]),
    ]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    pass(1).await;
    assert_eq!(log.take(), ["+a@3!", "+b@1!", "+c@2!"]);
    pass(10).await;
    assert_eq!(log.take(), ["-c@2?", "a@3>a@7", "b@1>b@1", "+d@8"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn evt_9_invariant_15_batched_changes_are_reported_like_single_changes() {
    let steps = || {
        [
            added("a", 6),
            modified("b", 7),
            modified("a", 8),
            modified("a", 9),
            deleted("b", 10),
            added("b", 11),
            modified("b", 12),
        ]
    };
    let at_once: Vec<Step> = steps().into_iter().chain([Step::Hang]).collect();
    let one_by_one: Vec<Step> = steps().into_iter().flat_map(|step| [wait(1), step]).collect();
    for frames in [at_once, one_by_one] {
        let script = Script::new([page("5", &[("b", 1)]), Answer::Watch(frames)]);
        let log = Log::default();
        let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
        pass(8).await;
        // `old` is the cached state before each single change, even if one transaction made
        // several.
        let output =
            ["+b@1!", "+a@6", "b@1>b@7", "a@6>a@8", "a@8>a@9", "-b@10", "+b@11", "b@11>b@12"];
        assert_eq!(log.take(), output);
        assert_eq!(running.cache(), ["ns/a@9", "ns/b@12"]);
        running.end().await;
    }
}

/// A panic must neither end the informer nor lose its object.
#[tokio::test(start_paused = true)]
async fn object_whose_transform_or_index_function_panics_is_cached_and_the_panic_is_counted() {
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(2), modified("a", 7), modified("b", 8)]),
    ]);
    let panicky = |name: &str| assert_ne!(name, "a", "not this one");
    let informer = builder(&script)
        .transform(move |object| {
            let text = String::from_utf8_lossy(&object).into_owned();
            panicky(if text.contains(r#""name":"a""#) { "a" } else { "b" });
            Ok(object)
        })
        .object_index("name", move |object| {
            panicky(&object.key().name);
            vec![object.key().name.to_string()]
        });
    let running = Running::start(informer);
    running.informer.synced().await.unwrap();
    let lister = running.informer.lister();
    assert_eq!((lister.len(), running.informer.status().panics), (2, 2));
    pass(3).await;
    assert_eq!((lister.len(), &*lister.resource_version()), (2, "8"));
    assert!(lister.objects_by_index("name", "a").unwrap().is_empty());
    assert_eq!(lister.objects_by_index("name", "b").unwrap().len(), 1);
    let late = move |map: &ConfigMap| {
        panicky(map.metadata.name.as_deref().unwrap());
        vec!["late".to_owned()]
    };
    running.informer.add_index("late", late).unwrap();
    assert_eq!(lister.objects_by_index("late", "late").unwrap().len(), 1);
    let status = running.informer.status();
    assert_eq!((status.panics, status.has_stopped), (5, false));
    let last = status.last_panic.unwrap();
    assert!(last.starts_with(r#"the function of the index "late" panicked for ns/a:"#), "{last}");
    running.end().await;
}

/// If the informer held a lock, each of these calls would deadlock.
#[tokio::test(start_paused = true)]
async fn index_functions_may_call_their_informer() {
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(2), modified("a", 7)]),
    ]);
    let of: Arc<OnceLock<SharedInformer<ConfigMap>>> = Arc::default();
    let calls = |of: &Arc<OnceLock<SharedInformer<ConfigMap>>>, prefix: &'static str| {
        let of = of.clone();
        move |object: &Object<ConfigMap>| {
            let informer = of.get().unwrap();
            let name = &object.key().name;
            informer.add_handler(|_| (), HandlerOptions::default()).unwrap();
            // Succeeds once per object; then the name is taken.
            _ = informer.add_object_index(format!("{prefix}-{name}"), |_| vec!["x".to_owned()]);
            vec![informer.lister().len().to_string()]
        }
    };
    let informer = builder(&script).object_index("len", calls(&of, "early"));
    let running = Running::start_with(informer, |informer| _ = of.set(informer.clone()));
    running.informer.synced().await.unwrap();
    let lister = running.informer.lister();
    assert_eq!(lister.objects_by_index("len", "0").unwrap().len(), 2);
    running.informer.add_object_index("late", calls(&of, "late")).unwrap();
    assert_eq!(lister.objects_by_index("late", "2").unwrap().len(), 2);
    pass(3).await;
    assert_eq!(lister.objects_by_index("len", "2").unwrap().len(), 1);
    for index in ["early-a", "early-b", "late-a", "late-b"] {
        assert_eq!(lister.objects_by_index(index, "x").unwrap().len(), 2, "{index}");
    }
    running.end().await;
}
