use crate::HISTORY_PERIOD;
use crate::testing::{Bench, config_map, options, take};
use futures::StreamExt as _;
use serde_json::json;
use setpoint_store::{Op, Revision};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

/// Three ConfigMaps at revisions 2, 3 and 4; `c` has another label.
async fn bench() -> Bench {
    let bench = Bench::new().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let object = config_map(name, json!({"app": app}), "1");
        bench.put(&format!("configmaps/default/{name}"), &object).await;
    }
    bench
}
async fn change(bench: &Bench, name: &str, app: &str, value: &str) -> u64 {
    let object = config_map(name, json!({"app": app}), value);
    bench.put(&format!("configmaps/default/{name}"), &object).await
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_the_existing_objects() {
    let bench = bench().await;
    bench.settle().await;
    let mut all = bench.watch("v1/configmaps", options("")).await.unwrap();
    let mut marked = bench.watch("v1/configmaps/default", options("rv=0 bookmarks")).await.unwrap();
    let mut listed =
        bench.watch("v1/configmaps", options("initial fresh bookmarks")).await.unwrap();
    let mut other = bench.watch("v1/configmaps/other", options("")).await.unwrap();
    assert_eq!(take(&mut all).await, "+a@2=1 +b@3=1 +c@4=1");
    assert_eq!(take(&mut marked).await, "+a@2=1 +b@3=1 +c@4=1 *4!");
    assert_eq!(take(&mut listed).await, "+a@2=1 +b@3=1 +c@4=1 *4!");
    assert_eq!(take(&mut other).await, "");
    change(&bench, "a", "x", "2").await;
    bench.delete("configmaps/default/b").await;
    change(&bench, "d", "x", "1").await;
    for stream in [&mut all, &mut marked, &mut listed] {
        assert_eq!(take(stream).await, "~a@5=2 -b@6=1 +d@7=1");
    }
    assert_eq!(take(&mut other).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_gets_the_changes_after_it() {
    let bench = bench().await;
    bench.settle().await;
    let mut past = bench.watch("v1/configmaps", options("rv=2")).await.unwrap();
    let mut now = bench.watch("v1/configmaps", options("silent fresh")).await.unwrap();
    let mut future = bench.watch("v1/configmaps", options("rv=5")).await.unwrap();
    assert_eq!(take(&mut past).await, "+b@3=1 +c@4=1");
    assert_eq!(take(&mut now).await, "");
    change(&bench, "a", "x", "2").await;
    change(&bench, "a", "x", "3").await;
    assert_eq!(take(&mut now).await, "~a@5=2 ~a@6=3");
    assert_eq!(take(&mut future).await, "~a@6=3");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_was_never_given_ends() {
    let bench = bench().await;
    let lost = options("rv=99 bookmarks timeout=200");
    let mut stream = bench.watch("v1/configmaps", lost.clone()).await.unwrap();
    assert_eq!(take(&mut stream).await, "");
    tokio::time::advance(Duration::from_secs(4)).await;
    let expected = "error: too large resource version: 99, current: 4 end";
    assert_eq!(take(&mut stream).await, expected);
    // No bookmark confirms it before.
    let short = options("rv=99 bookmarks timeout=3");
    let mut stream = bench.watch("v1/configmaps", short).await.unwrap();
    tokio::time::advance(Duration::from_millis(1500)).await;
    assert_eq!(take(&mut stream).await, "");
    // One that another server has given is reached in time.
    let mut stream = bench.watch("v1/configmaps", options("rv=5 timeout=200")).await.unwrap();
    assert_eq!(take(&mut stream).await, "");
    change(&bench, "a", "x", "2").await;
    tokio::time::advance(Duration::from_secs(4)).await;
    change(&bench, "a", "x", "3").await;
    assert_eq!(take(&mut stream).await, "~a@6=3");
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_over_a_restart_as_far_as_history_goes_back() {
    let first = bench().await;
    change(&first, "a", "x", "2").await;
    first.delete("configmaps/default/b").await;
    for (kept_from, replayed, begun) in [(1, 100, 1), (1, 2, 4), (3, 100, 3), (6, 100, 6)] {
        first.store.compact(Revision(kept_from)).await.unwrap();
        let bench = Bench::idle_replaying(first.store.clone(), replayed).run();
        bench.inner().cache.wait_until(6).await;
        // The present state does not depend on how it was reached.
        let mut all = bench.watch("v1/configmaps", options("")).await.unwrap();
        assert_eq!(take(&mut all).await, "+a@5=2 +c@4=1");
        let changes = ["+b@3=1", "+c@4=1", "~a@5=2", "-b@6=1"];
        for from in begun.max(2)..=6 {
            let mut past =
                bench.watch("v1/configmaps", options(&format!("rv={from}"))).await.unwrap();
            assert_eq!(take(&mut past).await, changes[from - 2..].join(" "), "from {from}");
        }
        if begun > 1 {
            let before = options(&format!("rv={}", begun - 1));
            let mut refused = bench.watch("v1/configmaps", before).await.unwrap();
            let event = take(&mut refused).await;
            assert!(event.starts_with("error: too old resource version"), "{event}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_selector_sees_objects_start_and_stop_matching() {
    let bench = bench().await;
    let mut labels = bench.watch("v1/configmaps", options("labels=app=x")).await.unwrap();
    let mut name = bench
        .watch("v1/configmaps/default", options("fields=metadata.name=c bookmarks"))
        .await
        .unwrap();
    assert_eq!(take(&mut labels).await, "+a@2=1 +b@3=1");
    assert_eq!(take(&mut name).await, "+c@4=1 *4!");
    change(&bench, "a", "y", "2").await;
    change(&bench, "c", "x", "2").await;
    change(&bench, "c", "x", "3").await;
    change(&bench, "a", "y", "3").await;
    bench.delete("configmaps/default/a").await;
    bench.delete("configmaps/default/c").await;
    // An object that stops matching is sent in its previous state with the new revision. Objects
    // that never matched are not sent.
    assert_eq!(take(&mut labels).await, "-a@5=1 +c@6=2 ~c@7=3 -c@10=3");
    assert_eq!(take(&mut name).await, "~c@6=2 ~c@7=3 -c@10=3");
}

#[tokio::test(start_paused = true)]
async fn a_field_selector_reads_the_object() {
    let bench = Bench::new().await;
    let pod = |phase: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "n"}, "status": {"phase": phase}})
    };
    bench.put("pods/d/p", &pod("Pending")).await;
    let text = "fields=spec.host=n,status.phase=Running,spec.hostNetwork=false";
    let mut running = bench.watch("v1/pods", options(text)).await.unwrap();
    assert_eq!(take(&mut running).await, "");
    bench.put("pods/d/p", &pod("Running")).await;
    bench.put("pods/d/p", &pod("Failed")).await;
    assert_eq!(take(&mut running).await, "+p@3 -p@4");
}

#[tokio::test(start_paused = true)]
async fn a_start_before_the_window_is_an_error_event() {
    let bench = bench().await;
    bench.settle().await;
    let mut stream = bench.watch("v1/configmaps", options("rv=1")).await.unwrap();
    assert_eq!(take(&mut stream).await, "+a@2=1 +b@3=1 +c@4=1");
    // Another control plane over the same store starts with the present state.
    let later = Bench::over(bench.store.clone()).await;
    let mut stream = later.watch("v1/configmaps", options("rv=3")).await.unwrap();
    assert_eq!(take(&mut stream).await, "error: too old resource version: 3 (4) end");
}

#[tokio::test(start_paused = true)]
async fn invalid_options_are_refused_before_the_stream() {
    let bench = Bench::new().await;
    for (text, code, message) in [
        (
            "rv=foo",
            500,
            r#"resourceVersion: Invalid value: "foo": strconv.ParseUint: parsing "foo": invalid syntax"#,
        ),
        (
            "initial",
            422,
            r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#,
        ),
        (
            "fresh",
            422,
            r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"#,
        ),
        (
            "exact continue=x",
            422,
            r#"ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan", resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]"#,
        ),
        (
            "match=Foo initial",
            422,
            r#"ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: "Foo": supported values: "NotOlderThan"]"#,
        ),
        (
            "continue=x",
            422,
            r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"#,
        ),
        (
            "fields=a=b",
            400,
            r#""a" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
    ] {
        let error = bench.watch("v1/configmaps", options(text)).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, message));
    }
    for (path, message) in [
        ("batch:v1/jobs", r#"field label "a" not supported for Job"#),
        ("v1/nodes", "field label not supported: a"),
        (
            "apps:v1/deployments",
            r#""a" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
    ] {
        let error = bench.watch(path, options("fields=a=b")).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let unfilled = Bench::idle(bench.store.clone());
    assert_eq!(unfilled.watch("v1/pods", options("")).await.unwrap_err().code(), 429);
}

#[tokio::test(start_paused = true)]
async fn initial_events_at_a_future_revision_fail_after_three_seconds() {
    let bench = bench().await;
    let mut stream = bench.watch("v1/configmaps", options("initial fresh rv=9")).await.unwrap();
    assert_eq!(take(&mut stream).await, "");
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(
        take(&mut stream).await,
        "error: Timeout: Too large resource version: 9, current: 4 end"
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_with_time_and_never_before_their_events() {
    let bench = bench().await;
    let mut stream =
        bench.watch("v1/configmaps", options("rv=4 bookmarks timeout=200")).await.unwrap();
    assert_eq!(take(&mut stream).await, "");
    // Writes to other resources move the bookmark too.
    bench.put("secrets/default/s", &json!({"metadata": {"name": "s"}})).await;
    bench.settle().await;
    tokio::time::advance(Duration::from_secs(76)).await;
    change(&bench, "a", "x", "2").await;
    bench.settle().await;
    assert_eq!(take(&mut stream).await, "~a@6=2 *6");
    tokio::time::advance(Duration::from_secs(76)).await;
    assert_eq!(take(&mut stream).await, "*6");
    tokio::time::advance(Duration::from_secs(47)).await;
    assert_eq!(take(&mut stream).await, "*6");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(take(&mut stream).await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_timeout_ends_within_the_hour() {
    let bench = bench().await;
    let mut stream = bench.watch("v1/configmaps", options("rv=4")).await.unwrap();
    tokio::time::advance(Duration::from_secs(1799)).await;
    assert_eq!(take(&mut stream).await, "");
    tokio::time::advance(Duration::from_secs(1801)).await;
    assert_eq!(take(&mut stream).await, "end");
    let mut none = bench.watch("v1/configmaps", options("timeout=0")).await.unwrap();
    assert_eq!(take(&mut none).await, "end");
}

#[tokio::test(start_paused = true)]
async fn watches_end_cleanly_when_the_server_stops() {
    let mut bench = bench().await;
    let mut maps = bench.watch("v1/configmaps", options("")).await.unwrap();
    let mut pods = bench.watch("v1/pods", options("")).await.unwrap();
    take(&mut maps).await;
    take(&mut pods).await;
    bench.inner().cache.close_watches("/registry/configmaps/");
    assert_eq!((take(&mut maps).await.as_str(), take(&mut pods).await.as_str()), ("end", ""));
    bench.stop.cancel();
    assert_eq!(bench.tasks.join_next().await.unwrap().unwrap(), Ok(()));
    assert_eq!(take(&mut pods).await, "end");
    let mut late = bench.watch("v1/pods", options("")).await.unwrap();
    assert_eq!(take(&mut late).await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_resource_of_a_deleted_definition_is_dropped_with_its_history() {
    const MAPS: &str = "/registry/configmaps/";
    let bench = bench().await;
    let mut reader = bench.watch("v1/configmaps", options("rv=4")).await.unwrap();
    for name in ["a", "b", "c"] {
        bench.delete(&format!("configmaps/default/{name}")).await;
    }
    bench.settle().await;
    let cache = &bench.inner().cache;
    cache.retire(MAPS);
    assert_eq!(take(&mut reader).await, "-a@5=1 -b@6=1 -c@7=1 end");
    let later = async || {
        tokio::time::advance(HISTORY_PERIOD + Duration::from_secs(31)).await;
        bench.put("secrets/default/s", &config_map("s", json!({}), "1")).await;
        bench.settle().await;
    };
    later().await;
    assert!(cache.has(MAPS), "somebody reads");
    drop(reader);
    later().await;
    assert!(!cache.has(MAPS));
    // Its history begins anew, after the last change that was dropped.
    let newest = change(&bench, "a", "x", "2").await;
    bench.settle().await;
    let mut all = bench.watch("v1/configmaps", options("")).await.unwrap();
    assert_eq!(take(&mut all).await, format!("+a@{newest}=2"));
    let mut from = bench.watch("v1/configmaps", options("rv=7")).await.unwrap();
    assert_eq!(take(&mut from).await, format!("+a@{newest}=2"));
    let mut before = bench.watch("v1/configmaps", options("rv=6")).await.unwrap();
    assert!(take(&mut before).await.starts_with("error: too old resource version: 6 (7)"));
    // A definition of that name is there again, and has objects.
    later().await;
    assert!(cache.has(MAPS));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_slower_than_the_window_is_ended_and_skips_nothing() {
    let bench = bench().await;
    let mut slow = bench.watch("v1/configmaps", options("rv=4")).await.unwrap();
    assert_eq!(take(&mut slow).await, "");
    let big: bytes::Bytes = vec![b' '; 1 << 20].into();
    for _ in 0..70 {
        bench.commit(vec![Op::Put("/registry/configmaps/default/a".into(), big.clone())]).await;
    }
    bench.settle().await;
    assert_eq!(take(&mut slow).await, "end");
    let mut resumed = bench.watch("v1/configmaps", options("rv=4")).await.unwrap();
    assert!(take(&mut resumed).await.starts_with("error: too old resource version: 4 ("));
}

/// It cannot resume: the objects come in the order of their keys.
#[tokio::test(start_paused = true)]
async fn a_watcher_slower_than_the_window_with_its_initial_objects_starts_over() {
    use futures::StreamExt as _;
    let bench = bench().await;
    bench.settle().await;
    let mut slow = bench.watch("v1/configmaps", options("initial fresh bookmarks")).await.unwrap();
    assert_eq!(slow.next().await.unwrap().unwrap().revision, 2);
    let big: bytes::Bytes = vec![b' '; 1 << 20].into();
    for _ in 0..70 {
        bench.commit(vec![Op::Put("/registry/configmaps/default/a".into(), big.clone())]).await;
    }
    bench.settle().await;
    let rest = take(&mut slow).await;
    assert!(rest.starts_with("error: too old resource version: 4 ("), "{rest}");
    assert!(rest.ends_with(" end"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_without_changes_is_never_too_slow() {
    let bench = bench().await;
    bench.settle().await;
    let watch = |text| bench.watch("v1/configmaps", options(text));
    let mut idle = watch("rv=4 labels=app=z bookmarks").await.unwrap();
    let mut slow = watch("rv=4 fields=metadata.name=c").await.unwrap();
    assert_eq!((take(&mut idle).await.as_str(), take(&mut slow).await.as_str()), ("", ""));
    // The window moves past changes that concern one of them, and many that concern neither.
    change(&bench, "c", "y", "2").await;
    let big: bytes::Bytes = vec![b' '; 1 << 20].into();
    for _ in 0..70 {
        bench.commit(vec![Op::Put("/registry/configmaps/default/a".into(), big.clone())]).await;
    }
    bench.settle().await;
    assert_eq!(take(&mut slow).await, "end");
    change(&bench, "d", "z", "1").await;
    assert_eq!(take(&mut idle).await, "+d@76=1");
    bench.commit(vec![Op::Put("/registry/configmaps/default/a".into(), big)]).await;
    bench.settle().await;
    tokio::time::advance(Duration::from_secs(76)).await;
    assert_eq!(take(&mut idle).await, "*77", "its bookmarks know how far the others are");
}

#[tokio::test(start_paused = true)]
async fn history_is_kept_for_minutes_and_for_longer_for_resources_that_rarely_change() {
    let bench = bench().await;
    bench.settle().await;
    for n in 0..150 {
        change(&bench, "a", "x", &n.to_string()).await;
    }
    bench.settle().await;
    let resumes = async |revision: u64| {
        let text = format!("rv={revision}");
        let event = take(&mut bench.watch("v1/configmaps", options(&text)).await.unwrap()).await;
        !event.starts_with("error: too old resource version")
    };
    assert!(resumes(4).await);
    tokio::time::advance(Duration::from_secs(299)).await;
    change(&bench, "a", "x", "later").await;
    bench.settle().await;
    assert!(resumes(4).await);
    tokio::time::advance(Duration::from_secs(40)).await;
    // A write to another resource moves the store, which drops old history.
    bench.put("secrets/default/s", &json!({"metadata": {"name": "s"}})).await;
    bench.settle().await;
    assert!(!resumes(54).await);
    assert!(resumes(55).await, "the newest hundred stay");
}

#[tokio::test(start_paused = true)]
async fn both_event_groups_watch_one_storage() {
    let bench = Bench::new().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "message": "m",
        "metadata": {"name": "e", "namespace": "d"}, "involvedObject": {"name": "p"}});
    bench.put("events/d/e", &event).await;
    let mut core = bench.watch("v1/events", options("fields=involvedObject.name=p")).await.unwrap();
    let mut events =
        bench.watch("events.k8s.io:v1/events", options("fields=regarding.name=p")).await.unwrap();
    assert_eq!(take(&mut core).await, "+e@2");
    assert_eq!(take(&mut events).await, "+e@2");
    let request = bench.request(crate::Verb::Get, "events.k8s.io:v1/events/d/e");
    let object = bench.registry.get(&request, "").await.unwrap();
    let tree: serde_json::Value = serde_json::from_slice(&object.bytes).unwrap();
    assert_eq!((&tree["note"], &tree["apiVersion"]), (&"m".into(), &"events.k8s.io/v1".into()));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_encoded_once_for_every_watcher() {
    use futures::StreamExt as _;
    let bench = bench().await;
    let mut streams = Vec::new();
    for text in ["", "labels=app=x", "fields=metadata.name=a"] {
        let options = options(&format!("rv=4 {text}"));
        streams.push(bench.watch("v1/configmaps", options).await.unwrap());
    }
    change(&bench, "a", "x", "2").await;
    let mut initial = bench.watch("v1/configmaps", options("")).await.unwrap();
    let mut frames = Vec::new();
    for stream in &mut streams {
        frames.push(stream.next().await.unwrap().unwrap().frame());
    }
    assert!(frames.iter().all(|frame| frame.as_ptr() == frames[0].as_ptr()));
    let expected = r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"5","labels":{"app":"x"}},"data":{"v":"2"}}}"#;
    assert_eq!(frames[0], format!("{expected}\n"));
    let expected = expected.replace("MODIFIED", "ADDED");
    assert_eq!(initial.next().await.unwrap().unwrap().frame(), format!("{expected}\n"));
}

#[tokio::test(start_paused = true)]
async fn looks_at_what_is_not_selected_end_the_turn_however_often_the_stream_is_polled() {
    let bench = Bench::new().await;
    for n in 0..1000 {
        let app = if n % 100 == 0 { "x" } else { "y" };
        let object = config_map(&format!("c{n:03}"), json!({"app": app}), "1");
        bench.put(&format!("configmaps/default/c{n:03}"), &object).await;
    }
    bench.settle().await;
    let mut stream = bench.watch("v1/configmaps", options("labels=app=x")).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut turns = Vec::new();
        while turns.iter().sum::<usize>() < 10 {
            let a_turn = std::future::poll_fn(|cx| {
                let polls = (0..64).map(|_| stream.poll_next_unpin(cx));
                Poll::Ready(polls.filter(Poll::is_ready).count())
            });
            turns.push(a_turn.await);
            tokio::task::yield_now().await;
        }
        turns
    });
    // Between 256 objects a turn, and as many again as a poll looks at.
    let turns: Vec<usize> = tasks.join_next().await.unwrap().unwrap();
    assert!(turns.len() >= 3 && turns.iter().all(|n_events| *n_events <= 4), "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn looks_at_large_objects_count_as_several() {
    let bench = Bench::new().await;
    let secret = |name: &str, of_type: &str| {
        let text = "x".repeat(200 << 10);
        json!({"apiVersion": "v1", "data": {"a": text}, "kind": "Secret",
            "metadata": {"name": name, "namespace": "default"}, "type": of_type})
    };
    for n in 0..40 {
        let name = format!("s{n:02}");
        bench.put(&format!("secrets/default/{name}"), &secret(&name, "Opaque")).await;
    }
    bench.put("secrets/default/t", &secret("t", "other")).await;
    bench.settle().await;
    let mut stream = bench.watch("v1/secrets", options("fields=type=other")).await.unwrap();
    let mut n_yields = 0;
    while futures::poll!(stream.next()).is_pending() {
        n_yields += 1;
        tokio::task::yield_now().await;
    }
    // Each counts as 400 microseconds, and a poll takes a millisecond.
    assert!((10..=45).contains(&n_yields), "{n_yields}");
}
