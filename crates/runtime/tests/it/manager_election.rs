//! Two managers with one Lease: which one reconciles, how long, and how fast the next one takes
//! over.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Action, Client, ClientError, Clock, Context, Controller, ControllerHandle, ControllerState,
    ElectionOptions, Manager, ManagerError, Request, Watch, manager::Elected,
};
use tokio::time::Instant;

use crate::{
    controller::chain,
    link::Link,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, Trace, config_map, pass, settle},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A replica of a program with one controller.
struct Replica {
    link: Link,
    running: Running,
    controller: ControllerHandle,
    elected: Elected,
    leader_client: Client,
    metrics: setpoint_runtime::metrics::Metrics,
}

fn start(server: &Server, name: &'static str, trace: &Trace) -> Replica {
    let link = Link::new(server, 7);
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let options = ElectionOptions::new("main")
        .identity(name)
        .namespace("default")
        .release_on_stop(true)
        .seed(1);
    let mut manager = Manager::builder(link.client())
        .clock(clock)
        .seed(1)
        .leader_election(options)
        .unwrap()
        .build();
    let trace = trace.clone();
    let reconcile = move |request: Request, context: Context| {
        let trace = trace.clone();
        async move {
            trace.record(format!("{name} sees {}", request.name));
            // Long enough to be interrupted.
            let stopping = context.stopping().clone();
            tokio::select! {
                () = pass(Duration::from_millis(100)) => {}
                () = stopping.cancelled() => {}
            }
            Ok::<_, ClientError>(Action::await_change())
        }
    };
    let controller =
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(reconcile).unwrap();
    let controller = manager.add(controller).unwrap();
    let (elected, leader_client) = (manager.elected(), manager.leader_client());
    let metrics = manager.metrics();
    Replica { link, running: Running::start(manager), controller, elected, leader_client, metrics }
}

#[tokio::test(start_paused = true)]
async fn mgr_5_the_second_replica_is_warm_and_a_clean_stop_hands_over_within_a_second() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS, LEASES]), Trace::default());
    server.put(MAPS, config_map("a"));
    let first = start(&server, "first", &trace);
    first.elected.wait().await;
    pass(Duration::from_secs(1)).await;
    let second = start(&server, "second", &trace);
    pass(Duration::from_secs(30)).await;
    assert_eq!(trace.take(), "first sees a");
    assert_eq!(first.controller.state(), ControllerState::Running);
    assert_eq!(second.controller.state(), ControllerState::Standby, "synced, and waits");
    let status = |replica: &Replica| {
        let text = replica.metrics.prometheus();
        let line = text.lines().find(|line| line.starts_with("leader_election_master_status{"));
        line.unwrap().to_owned()
    };
    assert_eq!(status(&first), "leader_election_master_status{name=\"main\"} 1");
    assert_eq!(status(&second), "leader_election_master_status{name=\"main\"} 0");

    let stopped = Instant::now();
    first.running.stop().await.unwrap();
    second.elected.wait().await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    settle().await;
    assert_eq!(trace.take(), "second sees a");
    second.running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mgr_22_a_leader_that_is_cut_off_has_ended_before_the_next_one_starts() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS, LEASES]), Trace::default());
    server.put(MAPS, config_map("a"));
    let mut first = start(&server, "first", &trace);
    first.elected.wait().await;
    let second = start(&server, "second", &trace);
    pass(Duration::from_secs(30)).await;
    assert_eq!(trace.take(), "first sees a");

    first.link.cut(true);
    let error = first.running.ended().await.unwrap_err();
    let ended = Instant::now();
    assert!(matches!(error, ManagerError::LeadershipLost { .. }), "{error}");
    assert!(chain(&error).contains("no renewal succeeded within 10s"), "{}", chain(&error));
    assert_eq!(first.controller.state(), ControllerState::Stopped, "at once");
    first.link.cut(false);
    let written = first.leader_client.api::<ConfigMap>().create(&late()).await;
    assert!(matches!(written, Err(ClientError::Fenced { .. })), "{written:?}");
    assert!(!second.elected.is_elected());
    second.elected.wait().await;
    assert!(ended.elapsed() > Duration::from_secs(1), "the lease outlasts the deadline");
    settle().await;
    assert_eq!(trace.take(), "second sees a");
    second.running.stop().await.unwrap();
}

fn late() -> ConfigMap {
    let mut map: ConfigMap = serde_json::from_value(config_map("late")).unwrap();
    map.metadata.namespace = Some("default".into());
    map
}
