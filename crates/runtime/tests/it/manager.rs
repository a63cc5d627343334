//! Starting, stopping and failing managers.

use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use setpoint_runtime::{
    Action, BoxError, ClientError, Context, Controller, ControllerState, Request, Watch,
    manager::{AddError, Grace},
};

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, run, settle},
};

async fn idle(_: Request, _: Context) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

#[tokio::test(start_paused = true)]
async fn controller_starts_before_its_type_is_served_and_recovers_by_itself() {
    let server = Server::new(&[EVENTS]);
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .sync_timeout(None)
        .build(idle)
        .unwrap();
    let mut manager = builder(&server).build();
    let handle = manager.add(controller).unwrap();
    let informer = manager.cache().informer::<ConfigMap>();
    let ready = manager.readiness();
    let running = Running::start(manager);

    pass(Duration::from_secs(3600)).await;
    assert_eq!(handle.state(), ControllerState::Syncing);
    assert!(!ready.is_ready());
    let degraded = informer.status().degraded.unwrap();
    assert!(
        degraded.to_string().contains("the server could not find the requested resource"),
        "{degraded}"
    );
    assert!(degraded.failures > 10, "it keeps asking");

    server.serve(CONFIG_MAPS);
    server.put("/api/v1/namespaces/default/configmaps", config_map("a"));
    pass(Duration::from_secs(60)).await;
    assert!(ready.ready().await);
    assert_eq!(handle.stats().success, 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cache_that_does_not_sync_in_time_fails_the_manager_with_the_reason() {
    let server = Server::new(&[EVENTS]);
    let controller =
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(idle).unwrap();
    let started = tokio::time::Instant::now();
    let (mut running, handle) = run(&server, controller);
    let error = running.ended().await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 120);
    let text = chain(&error);
    assert!(text.starts_with("config failed: controller \"config\": the cache of configmaps has not synced within 120s"), "{text}");
    assert!(text.ends_with("the server could not find the requested resource"), "{text}");
    assert_eq!(handle.state(), ControllerState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn type_that_is_not_served_delays_only_its_own_controller() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let mut manager = builder(&server).build();
    let good = manager
        .add(Controller::builder("good").for_(Watch::<ConfigMap>::new()).build(idle).unwrap())
        .unwrap();
    let bad = manager
        .add(Controller::builder("bad").for_(Watch::<Pod>::new()).build(idle).unwrap())
        .unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(10)).await;
    assert_eq!((good.state(), bad.state()), (ControllerState::Running, ControllerState::Syncing));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_lets_a_running_pass_finish_with_its_cache_and_drops_queued_keys() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let reconciler = {
        let trace = trace.clone();
        move |request: Request, context: Context| {
            let trace = trace.clone();
            async move {
                trace.record(format!("{} begins", request.name));
                context.stopping().cancelled().await;
                pass(Duration::from_secs(5)).await;
                let found = context.client().api::<ConfigMap>().get(&request)?;
                trace.record(format!("{} ends, cached {}", request.name, found.is_some()));
                Ok::<_, ClientError>(Action::await_change())
            }
        }
    };
    for name in ["a", "b"] {
        server.put("/api/v1/namespaces/default/configmaps", config_map(name));
    }
    let controller =
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconciler).unwrap();
    let (running, _) = run(&server, controller);
    settle().await;
    running.stop().await.unwrap();
    expect!["a begins · a ends, cached true"].assert_eq(&trace.take());
}

#[tokio::test(start_paused = true)]
async fn pass_that_outlasts_the_grace_period_is_dropped_and_named() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    server.put("/api/v1/namespaces/default/configmaps", config_map("a"));
    let stuck = |_: Request, _: Context| std::future::pending::<Result<Action, BoxError>>();
    for (grace, expected) in [
        (
            Grace::Period(Duration::from_secs(7)),
            Some(
                "config (passes over default/a) had not ended after the grace period of 7s; \
                 not told to stop before that: the cache, the event recorder",
            ),
        ),
        (Grace::None, None),
    ] {
        let mut manager = builder(&server).grace(grace).build();
        let controller =
            Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(stuck).unwrap();
        let handle = manager.add(controller).unwrap();
        let running = Running::start(manager);
        settle().await;
        assert_eq!(handle.stats().active, 1);
        let ended = running.stop().await;
        assert_eq!(ended.err().map(|error| error.to_string()).as_deref(), expected);
        settle().await;
        assert_eq!(
            (handle.stats().active, handle.state()),
            (0, ControllerState::Stopped),
            "nothing outlives the manager"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn first_failure_of_a_task_stops_the_others_and_run_returns_it() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let mut manager = builder(&server).build();
    manager.add_task("short", |_| async { Ok(()) }).unwrap();
    manager
        .add_task("failing", |_| async {
            pass(Duration::from_secs(1)).await;
            Err("first".into())
        })
        .unwrap();
    let sink = trace.clone();
    manager
        .add_task("other", move |stop| async move {
            stop.cancelled().await;
            sink.record("other stops");
            Err("second".into())
        })
        .unwrap();
    assert_eq!(
        manager.add_task("other", |_| async { Ok(()) }),
        Err(AddError::DuplicateName { name: "other".into() })
    );
    let error = Running::start(manager).ended().await.unwrap_err();
    expect!["failing failed: first"].assert_eq(&chain(&error));
    expect!["other stops"].assert_eq(&trace.take());
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_task_is_an_error_of_the_manager() {
    let server = Server::new(&[]);
    let mut manager = builder(&server).build();
    manager
        .add_task("bad", |_| async { std::panic::resume_unwind(Box::new("ouch".to_owned())) })
        .unwrap();
    let error = Running::start(manager).ended().await.unwrap_err();
    expect!["bad panicked: ouch"].assert_eq(&error.to_string());
}

#[tokio::test(start_paused = true)]
async fn two_controllers_share_one_informer_and_readiness_has_many_waiters() {
    let server = Server::new(&[CONFIG_MAPS, PODS, EVENTS]);
    server.put("/api/v1/namespaces/default/configmaps", config_map("a"));
    let mut manager = builder(&server).build();
    let mut handles = Vec::new();
    for name in ["one", "two"] {
        let controller =
            Controller::builder(name).for_(Watch::<ConfigMap>::new()).build(idle).unwrap();
        handles.push(manager.add(controller).unwrap());
    }
    let ready = manager.readiness();
    let running = Running::start(manager);
    let waiters = futures::future::join_all((0..8).map(|_| ready.ready())).await;
    assert!(waiters.into_iter().all(|ready| ready));
    settle().await;
    assert_eq!(handles.iter().map(|handle| handle.stats().success).collect::<Vec<_>>(), [1, 1]);
    running.stop().await.unwrap();
    assert!(!ready.is_ready());
}

#[tokio::test(start_paused = true)]
async fn cached_reads_of_unwatched_or_unsynced_types_are_errors() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let manager = builder(&server).build();
    let key = Request::new("default", "a");
    let api = manager.client().api::<ConfigMap>();
    expect!["read configmaps from the cache: it is not cached. Watch it (ControllerBuilder::watches, Cache::informer), or read it live (Api::get_live, Api::list_live)"]
        .assert_eq(&api.get(&key).unwrap_err().to_string());
    let _informer = manager.cache().informer::<ConfigMap>();
    expect!["read configmaps from the cache: it has not synced"]
        .assert_eq(&api.get(&key).unwrap_err().to_string());
    let running = Running::start(manager);
    settle().await;
    assert!(api.get(&key).unwrap().is_none());
    running.stop().await.unwrap();
}
