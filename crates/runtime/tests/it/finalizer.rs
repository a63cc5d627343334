//! The four states of a finalizer, and concurrent changes of the object.

use std::time::Duration;

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::Patch;
use serde_json::json;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Finalize, Request, Watch, finalizer,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, Trace, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAME: &str = "example.com/guard";

/// A controller that sends each call of its finalizer. `cleanup` returns whether the cleanup
/// succeeds.
fn guarded(server: &Server, trace: &Trace, cleanup: fn(u32) -> bool) -> Running {
    let trace = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let trace = trace.clone();
        async move {
            let api = context.client().api::<ConfigMap>();
            let Some(object) = api.get(&request)? else {
                return Ok::<_, BoxError>(Action::await_change());
            };
            let action = finalizer(&api, NAME, object, |asked| async {
                match asked {
                    Finalize::Apply(object) => {
                        let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
                        trace.record(format!("apply under {}", finalizers.join(" ")));
                        Ok(Action::await_change())
                    }
                    Finalize::Cleanup(_) if cleanup(context.attempt()) => {
                        trace.record("clean up");
                        Ok(Action::await_change())
                    }
                    Finalize::Cleanup(_) => {
                        trace.record("clean up fails");
                        Err::<Action, BoxError>("no".into())
                    }
                }
            });
            Ok(action.await?)
        }
    };
    run(
        server,
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconciler).unwrap(),
    )
    .0
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_added_before_apply_and_removed_after_cleanup() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let running = guarded(&server, &trace, |attempt| attempt > 0);
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/other"]);
    server.put(MAPS, object);
    server.put(MAPS, config_map("b"));
    settle().await;
    // Each is applied when the finalizer is added, and again for that change. While `a` is held
    // back, `b` is reconciled.
    expect!["apply under example.com/other example.com/guard · apply under example.com/guard · apply under example.com/other example.com/guard · apply under example.com/guard"]
        .assert_eq(&trace.take());

    server.delete(&format!("{MAPS}/b"));
    pass(Duration::from_secs(1)).await;
    expect!["clean up fails · clean up"].assert_eq(&trace.take());
    assert!(server.get(&format!("{MAPS}/b")).is_none());

    server.delete(&format!("{MAPS}/a"));
    pass(Duration::from_secs(1)).await;
    expect!["clean up fails · clean up"].assert_eq(&trace.take());
    let left = server.get(&format!("{MAPS}/a")).unwrap();
    assert_eq!(
        left["metadata"]["finalizers"],
        json!(["example.com/other"]),
        "the other's finalizer is the other's"
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_when_the_finalizer_cannot_be_added() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.fail_next(Method::PATCH, "configmaps/a", 500);
    server.fail_next(Method::PATCH, "configmaps/a", 0);
    let running = guarded(&server, &trace, |_| true);
    settle().await;
    server.put(MAPS, config_map("a"));
    settle().await;
    expect![""].assert_eq(&trace.take());
    pass(Duration::from_secs(1)).await;
    expect!["apply under example.com/guard · apply under example.com/guard"]
        .assert_eq(&trace.take());
    expect![[r#"
        PATCH /api/v1/namespaces/default/configmaps/a by config
        PATCH /api/v1/namespaces/default/configmaps/a by config
        PATCH /api/v1/namespaces/default/configmaps/a by config"#]]
    .assert_eq(&server.take_writes().join("\n"));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn object_deleted_while_the_controller_was_down_is_cleaned_up_at_its_start() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!([NAME]);
    server.put(MAPS, object);
    server.delete(&format!("{MAPS}/a"));
    let running = guarded(&server, &trace, |_| true);
    settle().await;
    expect!["clean up"].assert_eq(&trace.take());
    assert!(server.get(&format!("{MAPS}/a")).is_none());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn object_that_takes_the_name_during_a_cleanup_keeps_its_finalizer() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!([NAME]);
    server.put(MAPS, object.clone());
    let reconciler = {
        let trace = trace.clone();
        move |request: Request, context: Context| {
            let (trace, object) = (trace.clone(), object.clone());
            async move {
                let api = context.client().api::<ConfigMap>();
                let Some(found) = api.get(&request)? else { return Ok(Action::await_change()) };
                let action = finalizer(&api, NAME, found, async |asked| {
                    match asked {
                        Finalize::Apply(_) => trace.record("apply"),
                        Finalize::Cleanup(_) => {
                            trace.record("clean up");
                            // Somebody else removes the finalizer, and creates another object.
                            let none = json!({"metadata": {"finalizers": null}});
                            api.patch(&request, &Patch::Merge(none)).await?;
                            let mut another: ConfigMap = serde_json::from_value(object.clone())?;
                            another.metadata.namespace = Some("default".into());
                            api.create(&another).await?;
                        }
                    }
                    Ok::<_, BoxError>(Action::await_change())
                });
                Ok::<_, BoxError>(action.await?)
            }
        }
    };
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    settle().await;
    server.delete(&format!("{MAPS}/a"));
    pass(Duration::from_secs(1)).await;
    expect!["apply · clean up · apply"].assert_eq(&trace.take());
    let another = server.get(&format!("{MAPS}/a")).unwrap();
    assert_eq!(another["metadata"]["finalizers"], json!([NAME]));
    assert_eq!(handle.stats().error, 1, "the pass that cleaned up is repeated");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleanup_is_repeated_when_removing_the_finalizer_fails() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!([NAME]);
    server.put(MAPS, object);
    server.delete(&format!("{MAPS}/a"));
    server.fail_next(Method::PATCH, "configmaps/a", 500);
    let running = guarded(&server, &trace, |_| true);
    pass(Duration::from_secs(1)).await;
    expect!["clean up · clean up"].assert_eq(&trace.take());
    assert!(server.get(&format!("{MAPS}/a")).is_none());
    running.stop().await.unwrap();
}
