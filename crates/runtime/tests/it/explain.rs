//! Explanations of a running controller's passes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use setpoint_log::testing::{self, Lines};
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Context, Controller, ControllerBuilder, ControllerHandle,
    Explanation, Request, Terminal, Watch,
    explain::{Cause, EXPLAINED_PASSES, PassOutcome},
};
use tokio::sync::mpsc;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, builder, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP_A: &str = "/api/v1/namespaces/default/configmaps/a";
const PODS_HERE: &str = "/api/v1/namespaces/default/pods";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, EVENTS, PODS])
}

fn controller() -> ControllerBuilder {
    Controller::builder("config").for_(Watch::<ConfigMap>::new())
}

fn key(name: &str) -> Request {
    Request::new("default", name)
}

fn written_by(mut object: Value, manager: &str) -> Value {
    object["metadata"]["managedFields"] =
        json!([{"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z"}]);
    object
}

/// Runs a controller whose caches keep `managedFields`, which name the writers.
fn run_with_writers(server: &Server, controller: Controller) -> (Running, ControllerHandle) {
    let options = CacheOptions::new().keep_managed_fields(true);
    let mut manager = builder(server).cache(options).build();
    let handle = manager.add(controller).unwrap();
    (Running::start(manager), handle)
}

async fn idle(_: Request, _: Context) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

/// The explanations without the ids of their passes.
fn text_of(explanations: &[Explanation]) -> String {
    let story = |explanation: &Explanation| {
        let id = explanation.reconcile_id.to_string();
        explanation.to_string().replace(&format!(", pass {id}"), "") + "\n"
    };
    explanations.iter().map(story).collect()
}

#[tokio::test(start_paused = true)]
async fn cause_of_a_pass_is_its_event_with_version_and_writer() {
    let server = server();
    server.put(MAPS, written_by(config_map("a"), "kubectl"));
    let (running, handle) = run_with_writers(&server, controller().build(idle).unwrap());
    settle().await;
    expect![[r#"
        config default/a at 2026-01-01T00:00:00.000000Z
          because configmaps default/a was in the initial list at version 1, written by kubectl (Update)
          attempt 1 after 0ns in the queue at priority -100
          succeeded; it took 0ns
    "#]]
    .assert_eq(&text_of(&handle.explain(&key("a"))));

    let mut changed = written_by(config_map("a"), "editor");
    changed["data"] = json!({"a": "b"});
    server.put(MAPS, changed);
    settle().await;
    server.delete(MAP_A);
    settle().await;
    server.put(MAPS, written_by(config_map("a"), "kubectl"));
    settle().await;
    let causes: Vec<_> = handle.explain(&key("a")).iter().map(|pass| pass.cause).collect();
    let (source, versions) = (0, [4, 3, 2, 1]);
    let [created, deleted, updated, initial] = versions;
    assert_eq!(
        causes,
        [
            Cause::Created { source, resource_version: created },
            Cause::Deleted { source, resource_version: deleted },
            Cause::Updated { source, resource_version: updated },
            Cause::InitialList { source, resource_version: initial },
        ]
    );
    // The writers of a version are known while the cache holds it.
    let named: Vec<_> = handle.explain(&key("a")).iter().map(|pass| pass.writers.len()).collect();
    assert_eq!(named, [1, 0, 0, 0]);
    running.stop().await.unwrap();

    // Caches drop `managedFields` by default: then nothing names the writers.
    let (running, handle) = run(&server, controller().build(idle).unwrap());
    settle().await;
    assert!(handle.explain(&key("a"))[0].writers.is_empty());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn event_of_an_owned_object_names_that_object() {
    let server = server();
    let owned = controller().owns(Watch::<Pod>::new());
    let (running, handle) = run_with_writers(&server, owned.build(idle).unwrap());
    let map = server.put(MAPS, config_map("a"));
    settle().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": map["metadata"]["uid"], "controller": true});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": [owner]}});
    server.put(PODS_HERE, written_by(pod, "scheduler"));
    settle().await;
    expect![[r#"
        config default/a at 2026-01-01T00:00:00.001000Z
          because pods default/p was created at version 2, written by scheduler (Update)
          attempt 1 after 0ns in the queue
          succeeded; it took 0ns
    "#]]
    .assert_eq(&text_of(&handle.explain(&key("a"))[..1]));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reads_writes_retries_timers_and_errors_are_explained() {
    let server = server();
    server.fail_next(Method::PATCH, "configmaps", 500);
    server.fail_next(Method::PATCH, "configmaps", 1);
    let patch = async |request: Request, context: Context| -> Result<Action, BoxError> {
        let maps = context.client().api::<ConfigMap>();
        if maps.get(&request)?.is_none() {
            return Err(Terminal::new("it is gone").into());
        }
        maps.get(&request)?;
        maps.get_live(&request).await?;
        let merge = kube_core::params::Patch::Merge(json!({"data": {"seen": "yes"}}));
        tokio::time::sleep(Duration::from_millis(2)).await;
        maps.patch(&request, &merge).await?;
        Ok(Action::requeue_after(Duration::from_secs(60)))
    };
    let (running, handle) =
        run(&server, controller().catch_up(Duration::ZERO).build(patch).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    pass(Duration::from_secs(61)).await;
    server.delete(MAP_A);
    pass(Duration::from_secs(90)).await;
    expect![[r#"
        config default/a at 2026-01-01T00:01:01.001000Z
          because one of configmaps was deleted at version 3; 2 additions became this pass
          attempt 1 after 0ns in the queue
          read configmaps default/a from the cache
          failed, not retried before the next change: it is gone; it took 0ns
        config default/a at 2026-01-01T00:01:00.012000Z
          because the previous pass asked for a requeue after a delay
          attempt 1 after 0ns in the queue
          read configmaps default/a from the cache, 2 times
          read configmaps default/a from the server
          patch configmaps default/a: now 2
          succeeded, requeued after 60s; it took 2ms
        config default/a at 2026-01-01T00:00:00.010000Z
          because one of configmaps was updated at version 2; 2 additions became this pass
          attempt 3 after 0ns in the queue
          read configmaps default/a from the cache, 2 times
          read configmaps default/a from the server
          patch configmaps default/a: now 2
          succeeded, requeued after 60s; it took 2ms
        config default/a at 2026-01-01T00:00:00.008000Z
          because the previous pass asked for a retry
          attempt 2 after 0ns in the queue
          read configmaps default/a from the cache, 2 times
          read configmaps default/a from the server
          patch configmaps default/a: no answer, it may have been done
          failed: patch configmaps default/a: reach the server: cut; it took 2ms
        config default/a at 2026-01-01T00:00:00.001000Z
          because one of configmaps was created at version 1
          attempt 1 after 0ns in the queue
          read configmaps default/a from the cache, 2 times
          read configmaps default/a from the server
          patch configmaps default/a: refused with 500
          failed: patch configmaps default/a: as the test wants it; it took 2ms
    "#]]
    .assert_eq(&text_of(&handle.explain(&key("a"))));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn merged_events_are_counted_and_running_passes_are_explained() {
    let server = server();
    let slow = async |_: Request, _: Context| -> Result<Action, BoxError> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(Action::await_change())
    };
    let (running, handle) = run(&server, controller().build(slow).unwrap());
    settle().await;
    for n in 0..4 {
        let mut map = config_map("a");
        map["data"] = json!({"n": n.to_string()});
        server.put(MAPS, map);
        pass(Duration::from_secs(1)).await;
    }
    let [now] = &handle.explain(&key("a"))[..] else { panic!("one pass runs") };
    assert_eq!((now.n_events, &now.outcome, now.took), (1, &None, None));
    pass(Duration::from_secs(10)).await;
    let passes = handle.explain(&key("a"));
    assert_eq!((passes[0].n_events, passes[0].waited), (3, Some(Duration::from_secs(9))));
    assert_eq!(
        passes[0].cause,
        Cause::Updated { source: 0, resource_version: 2 },
        "the first of them"
    );
    assert_eq!(passes[1].took, Some(Duration::from_secs(10)));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn resyncs_channels_and_panics_are_named_in_explanations() {
    let server = server();
    server.put(MAPS, config_map("a"));
    let n_passes = Arc::new(AtomicU32::new(0));
    let mut manager =
        builder(&server).cache(CacheOptions::new().resync(Duration::from_secs(30))).build();
    let (sender, channel) = mpsc::channel(4);
    let passes = n_passes.clone();
    let controller = controller().channel(channel).build(move |_: Request, _: Context| {
        let n = passes.fetch_add(1, Ordering::Relaxed);
        async move {
            if n == 2 {
                panic!("at the {n}nd");
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    });
    let handle = manager.add(controller.unwrap()).unwrap();
    let asked = manager.handle();
    let running = Running::start(manager);
    settle().await;
    sender.send(key("a")).await.unwrap();
    pass(Duration::from_secs(40)).await;
    let causes: Vec<_> =
        handle.explain(&key("a")).iter().rev().map(|pass| pass.cause.as_str()).collect();
    assert_eq!(causes, ["initial-list", "external", "resync", "retry"]);
    let passes = asked.explain("config", "default/a").unwrap();
    assert_eq!(passes[1].outcome, Some(PassOutcome::Panic("at the 2nd".into())));
    assert_eq!(asked.explain("another", "default/a"), None);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ring_is_bounded_and_can_be_turned_off() {
    for (passes_max, expected) in [(EXPLAINED_PASSES, 20), (7, 7), (0, 0)] {
        let server = server();
        for n in 0..20 {
            server.put(MAPS, config_map(&n.to_string()));
        }
        let (running, handle) = run(&server, controller().explain(passes_max).build(idle).unwrap());
        settle().await;
        assert_eq!(handle.stats().success, 20);
        assert_eq!(handle.explain_all().len(), expected);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn span_of_a_pass_has_the_same_text() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(lines.clone())
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    let _default = testing::set_default(subscriber);
    let server = server();
    server.put(MAPS, config_map("a"));
    let read = async |request: Request, context: Context| -> Result<Action, BoxError> {
        context.client().api::<ConfigMap>().get(&request)?;
        Ok(Action::await_change())
    };
    let (running, _handle) = run(&server, controller().build(read).unwrap());
    settle().await;
    running.stop().await.unwrap();
    let text = lines.text();
    let mut spans = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["fields"]["message"] == "close" && line["span"]["name"] == "reconcile")
        .map(|line| line["span"].clone());
    let mut span = spans.next().unwrap();
    span["id"].take();
    expect![[r#"
        {
          "attempt": 0,
          "cause": "initial-list",
          "controller": "config",
          "id": null,
          "n_events": 1,
          "name": "reconcile",
          "object": "default/a",
          "outcome": "success",
          "priority": -100,
          "reads": "read configmaps default/a from the cache",
          "resource_version": 1,
          "source": 0,
          "waited": "0ns"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&span).unwrap());
    assert_eq!(spans.next(), None);
}
