//! Options of controllers: priorities, minimum interval, limits, defaults of the manager; and the
//! context of a pass.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use setpoint_runtime::{
    Action, BoxError, BuildError, Context, Controller, ControllerBuilder, RateLimits, Request,
    Watch,
    controller::ControllerDefaults,
    queue::{Group, Priorities},
    reconciler::{AtPriority, for_object},
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, EVENTS, PODS])
}

fn controller() -> ControllerBuilder {
    Controller::builder("config").for_(Watch::<ConfigMap>::new())
}

#[tokio::test(start_paused = true)]
async fn res_14_object_reconciler_gets_the_object_and_none_is_a_success_without_a_call() {
    let (server, trace) = (server(), Trace::default());
    let sink = trace.clone();
    let reconciler = for_object(move |object: Arc<ConfigMap>, context: Context| {
        sink.record(format!(
            "{} for {}",
            object.metadata.name.as_ref().unwrap(),
            context.kind().unwrap().kind
        ));
        std::future::ready(Err::<Action, BoxError>("once".into()))
    });
    let controller = Controller::of(Watch::<ConfigMap>::new()).build(reconciler).unwrap();
    assert_eq!(controller.name(), "configmap", "the kind in lower case");
    let (running, handle) = run(&server, controller);
    settle().await;
    server.put(MAPS, config_map("a"));
    settle().await;
    server.delete(&format!("{MAPS}/a"));
    pass(Duration::from_secs(5)).await;
    expect!["a for ConfigMap"].assert_eq(&trace.take());
    assert_eq!((handle.stats().error, handle.stats().success), (1, 1));
    assert_eq!(handle.queue().limited, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn context_has_the_id_attempt_and_deadline_of_the_pass() {
    let (server, trace) = (server(), Trace::default());
    let sink = trace.clone();
    let reconciler = move |_: Request, context: Context| {
        let left = context.deadline().unwrap() - tokio::time::Instant::now();
        sink.record(format!(
            "{} attempt {} at {} as {} with {left:?}",
            context.controller(),
            context.attempt(),
            context.priority(),
            context.cause(),
        ));
        std::future::ready(match context.attempt() {
            0 => Err::<_, BoxError>(AtPriority::new(9, "once").into()),
            _ => Ok(Action::requeue_after(Duration::from_secs(1)).priority(-3)),
        })
    };
    server.put(MAPS, config_map("a"));
    let controller = controller().reconcile_timeout(Duration::from_secs(7)).low_priority(-5);
    let (running, _) = run(&server, controller.build(reconciler).unwrap());
    pass(Duration::from_millis(1500)).await;
    expect!["config attempt 0 at -5 as initial-list with 7s · config attempt 1 at 9 as retry with 7s · config attempt 0 at -3 as timer with 7s · config attempt 1 at 9 as retry with 7s"]
        .assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn longest_periods_are_never() {
    let server = server();
    server.put(MAPS, config_map("a"));
    let controller = controller()
        .reconcile_timeout(Duration::MAX)
        .catch_up(Duration::MAX)
        .sync_timeout(Some(Duration::MAX));
    let reconciler = |_: Request, _: Context| {
        std::future::ready(Ok::<_, BoxError>(Action::await_change().rest(Duration::MAX)))
    };
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    pass(Duration::from_secs(100)).await;
    assert_eq!((handle.stats().success, handle.queue().resting), (1, 1));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn change_precedes_the_initial_list_and_pq_26_does_not_starve_it() {
    // (how priorities are served, which of the old keys get a pass while changes come faster than
    // passes)
    for (priorities, starves) in [(None, false), (Some(Priorities::Strict), true)] {
        let (server, trace) = (server(), Trace::default());
        for n in 0..5 {
            server.put(MAPS, config_map(&format!("old-{n}")));
        }
        let sink = trace.clone();
        let reconciler = move |request: Request, _: Context| {
            let trace = sink.clone();
            async move {
                pass(Duration::from_secs(1)).await;
                trace.record(request.name.to_string());
                Ok::<_, BoxError>(Action::await_change())
            }
        };
        let mut controller = controller();
        if let Some(priorities) = priorities {
            controller = controller.priorities(priorities);
        }
        let (running, _) = run(&server, controller.build(reconciler).unwrap());
        settle().await;
        // One pass a second; two keys change in each.
        for n in 0..400 {
            for name in ["new-a", "new-b"] {
                let mut changed = config_map(name);
                changed["spec"] = json!(n);
                server.put(MAPS, changed);
            }
            pass(Duration::from_secs(1)).await;
        }
        let passes = trace.take();
        let passes: Vec<_> = passes.split(" · ").collect();
        assert_eq!(passes[0], "old-0", "it had begun");
        assert!(passes[1..50].iter().all(|name| name.starts_with("new")), "changes go first");
        let n_old = passes.iter().filter(|name| name.starts_with("old")).count();
        assert_eq!(n_old, if starves { 1 } else { 5 }, "{priorities:?}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pq_46_key_of_the_initial_list_stays_low_until_a_change_lifts_it() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    let sink = trace.clone();
    let reconciler = move |_: Request, context: Context| {
        sink.record(format!("{} {}", context.cause(), context.priority()));
        let again = Action::requeue_after(Duration::from_secs(10));
        std::future::ready(Ok::<_, BoxError>(again))
    };
    let (running, _) = run(&server, controller().build(reconciler).unwrap());
    pass(Duration::from_secs(15)).await;
    let mut changed = config_map("a");
    changed["spec"] = json!(2);
    server.put(MAPS, changed);
    pass(Duration::from_secs(15)).await;
    expect!["initial-list -100 · timer -100 · updated 0 · timer 0"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pq_48_without_priorities_keys_are_served_in_order_of_arrival() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("b"));
    server.put(MAPS, config_map("c"));
    let sink = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let trace = sink.clone();
        async move {
            pass(Duration::from_secs(1)).await;
            trace.record(format!("{} {}", request.name, context.priority()));
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let (running, _) = run(&server, controller().priorities(None).build(reconciler).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    pass(Duration::from_secs(5)).await;
    expect!["b 0 · c 0 · a 0"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn passes_over_one_key_start_at_least_an_interval_apart() {
    let (server, trace) = (server(), Trace::default());
    let started = tokio::time::Instant::now();
    let sink = trace.clone();
    let reconciler = move |request: Request, _: Context| {
        sink.record(format!("{} at {}", request.name, started.elapsed().as_secs()));
        std::future::ready(Err::<Action, BoxError>("no".into()))
    };
    let controller = controller()
        .rate_limiter(RateLimits::new().min_interval(Duration::from_secs(10)))
        .build(reconciler)
        .unwrap();
    let (running, handle) = run(&server, controller);
    for n in 0..25 {
        let mut changed = config_map("hot");
        changed["spec"] = json!(n);
        server.put(MAPS, changed);
        if n == 12 {
            server.put(MAPS, config_map("cold"));
        }
        pass(Duration::from_secs(1)).await;
    }
    expect!["hot at 0 · hot at 10 · cold at 12 · hot at 20 · cold at 22"].assert_eq(&trace.take());
    assert!(handle.stats().deferred >= 5);
    assert_eq!(handle.stats().total(), 5, "what is deferred is no pass");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_rests_has_one_pass_for_its_changes_and_delays_no_other_key() {
    let (server, trace) = (server(), Trace::default());
    let started = tokio::time::Instant::now();
    let sink = trace.clone();
    let reconciler = move |request: Request, _: Context| {
        sink.record(format!("{} at {}", request.name, started.elapsed().as_secs()));
        let rest = if &*request.name == "hot" { 10 } else { 0 };
        let action = Action::await_change().rest(Duration::from_secs(rest));
        std::future::ready(Ok::<_, BoxError>(action))
    };
    let controller = controller().concurrency(1).build(reconciler).unwrap();
    let (running, handle) = run(&server, controller);
    for n in 0..25 {
        for name in ["hot", "cold"].iter().filter(|name| **name == "hot" || n == 12) {
            let mut changed = config_map(name);
            changed["spec"] = json!(n);
            server.put(MAPS, changed);
        }
        pass(Duration::from_secs(1)).await;
    }
    expect!["hot at 0 · hot at 10 · cold at 12 · hot at 20"].assert_eq(&trace.take());
    assert_eq!(handle.stats().total(), 4);
    // It rests until 30: a controller that stops does not wait for that.
    running.stop().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn one_tenants_burst_delays_no_other_tenant_and_uses_at_most_its_workers() {
    for grouped in [false, true] {
        let (server, trace) = (server(), Trace::default());
        let sink = trace.clone();
        let reconciler = move |request: Request, _: Context| {
            let trace = sink.clone();
            async move {
                trace.record(request.to_string());
                pass(Duration::from_secs(1)).await;
                Ok::<_, BoxError>(Action::await_change())
            }
        };
        let mut controller = controller().concurrency(2);
        if grouped {
            controller = controller
                .groups(|request: &Request| Group::of(&*request.namespace))
                .group_in_flight_max(NonZeroU32::MIN);
        }
        let (running, handle) = run(&server, controller.build(reconciler).unwrap());
        settle().await;
        for n in 0..4 {
            server.put("/api/v1/namespaces/loud/configmaps", config_map(&n.to_string()));
        }
        settle().await;
        server.put("/api/v1/namespaces/quiet/configmaps", config_map("q"));
        settle().await;
        let expected = if grouped { "loud/0 · quiet/q" } else { "loud/0 · loud/1" };
        assert_eq!((trace.take().as_str(), handle.stats().active), (expected, 2));
        pass(Duration::from_secs(10)).await;
        let expected =
            if grouped { "loud/1 · loud/2 · loud/3" } else { "loud/2 · loud/3 · quiet/q" };
        assert_eq!(trace.take(), expected);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_all_keys_share_a_bucket_and_invalid_figures_are_refused() {
    let (server, trace) = (server(), Trace::default());
    for n in 0..20 {
        server.put(MAPS, config_map(&format!("m{n}")));
    }
    let sink = trace.clone();
    let reconciler = move |_: Request, context: Context| {
        sink.record(context.attempt().to_string());
        std::future::ready(Err::<Action, BoxError>("no".into()))
    };
    let limited = |per_second| {
        controller().rate_limiter(
            RateLimits::new()
                .backoff(Duration::from_millis(1), Duration::from_millis(2))
                .retries(per_second, 4),
        )
    };
    let (running, handle) = run(&server, limited(1.0).build(reconciler.clone()).unwrap());
    pass(Duration::from_millis(10_500)).await;
    // Twenty first passes; four retries at once, then one per second.
    let n_passes = handle.stats().error;
    assert!((20 + 4 + 9..=20 + 4 + 11).contains(&n_passes), "{n_passes}");
    running.stop().await.unwrap();

    // RL-14.
    let backoff = |min, max| controller().rate_limiter(RateLimits::new().backoff(min, max));
    for wrong in [
        limited(0.0),
        backoff(Duration::ZERO, Duration::from_secs(1)),
        backoff(Duration::from_secs(2), Duration::from_secs(1)),
    ] {
        assert!(matches!(wrong.build(reconciler.clone()), Err(BuildError::Limiter { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn unset_options_are_the_managers_then_the_defaults() {
    // 5.1: the controller's option, the manager's for the kind, the manager's for all.
    let n_at_once = async |own: Option<usize>, of_kind: Option<usize>, all: Option<usize>| {
        let server = server();
        for n in 0..20 {
            server.put(MAPS, config_map(&format!("m{n}")));
        }
        let reconciler =
            |_: Request, _: Context| std::future::pending::<Result<Action, BoxError>>();
        let mut controller = controller();
        let mut defaults = ControllerDefaults::new();
        if let Some(n) = own {
            controller = controller.concurrency(n);
        }
        if let Some(n) = of_kind {
            let kind =
                |kind: &str| setpoint_object::GroupKind { group: "".into(), kind: kind.into() };
            defaults =
                defaults.concurrency_of(kind("Pod"), 19).concurrency_of(kind("ConfigMap"), n);
        }
        if let Some(n) = all {
            defaults = defaults.concurrency(n);
        }
        let mut manager = builder(&server)
            .controller_defaults(defaults)
            .grace(setpoint_runtime::manager::Grace::None)
            .build();
        let handle = manager.add(controller.build(reconciler).unwrap()).unwrap();
        let running = Running::start(manager);
        settle().await;
        let active = handle.stats().active;
        running.stop().await.unwrap();
        active
    };
    assert_eq!(n_at_once(Some(2), Some(3), Some(4)).await, 2);
    assert_eq!(n_at_once(None, Some(3), Some(4)).await, 3);
    assert_eq!(n_at_once(None, None, Some(4)).await, 4);
    assert_eq!(n_at_once(None, None, None).await, 1);
    assert_eq!(n_at_once(Some(0), None, Some(4)).await, 1, "none means one");
}

#[test]
fn names_that_are_not_valid_labels_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let reconciler = |_: Request, _: Context| async { Ok::<_, BoxError>(Action::await_change()) };
    let build = |name: &str| Controller::builder(name).for_(Watch::<Pod>::new()).build(reconciler);
    for name in ["a", "network", "apps/v1.Deployment", "a_b-c", &"x".repeat(63)] {
        assert!(build(name).is_ok(), "{name}");
    }
    for name in ["a b", "-a", "a.", "ä", "a\"b", "a\n", &"x".repeat(64)] {
        assert_eq!(build(name).unwrap_err(), BuildError::Name { name: name.into() });
    }
}
