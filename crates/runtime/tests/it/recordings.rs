//! Recorded managers that are replayed: elections, several controllers, namespaces.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::params::Patch;
use serde_json::json;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ElectionOptions, Manager, ManagerBuilder,
    ObjectReference, Request, Watch,
    recording::{Difference, Recording},
};
use tokio_util::sync::CancellationToken;

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Trace, builder, config_map, pass},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

/// A manager of two namespaces with an election and two controllers: one makes a Pod for each
/// ConfigMap and reports it, one notes Pods at their ConfigMaps.
fn manager(builder: ManagerBuilder, trace: &Trace, identity: Option<&str>) -> Manager {
    let mut election = ElectionOptions::new("lock").namespace("a");
    election.identity = identity.map(str::to_owned);
    let builder = builder.leader_election(election).unwrap().namespaces(["a", "b"]).unwrap();
    let mut manager = builder.build();
    let makes = trace.clone();
    let make = move |request: Request, context: Context| {
        let trace = makes.clone();
        async move {
            let api = context.client().api::<Pod>();
            let map = context.client().api::<ConfigMap>().get(&request)?;
            trace.record(format!("make {request} {}", map.is_some()));
            if let Some(map) = map
                && api.get_own(&request).await?.is_none()
            {
                let pod =
                    json!({"metadata": {"namespace": &*request.namespace, "name": &*request.name}});
                api.create(&serde_json::from_value(pod)?).await?;
                context.recorder().normal(&ObjectReference::of(&*map), "Made", "made a pod");
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let maker = Controller::builder("maker").for_(Watch::<ConfigMap>::new()).build(make).unwrap();
    manager.add(maker).unwrap();
    let notes = trace.clone();
    let note = move |request: Request, context: Context| {
        let trace = notes.clone();
        async move {
            trace.record(format!("note {request} {}", context.attempt()));
            if &*request.name == "slow" && context.attempt() < 2 {
                return Err(BoxError::from("not yet"));
            }
            let patch = Patch::Merge(json!({"data": {"pod": "yes"}}));
            context.client().api::<ConfigMap>().patch(&request, &patch).await?;
            Ok(Action::await_change())
        }
    };
    let noter = Controller::builder("noter").for_(Watch::<Pod>::new()).build(note).unwrap();
    manager.add(noter).unwrap();
    manager
}

async fn record(identity: Option<&str>) -> (Vec<u8>, String) {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS, LEASES, PODS]), Trace::default());
    // In a replay all that has one time happens in any order.
    server.delay_watches(Duration::from_millis(20));
    let (builder, recorder) = builder(&server).record();
    let manager = manager(builder, &trace, identity);
    let stop = CancellationToken::new();
    let acting = async {
        pass(Duration::from_secs(5)).await;
        for (namespace, name) in [("a", "x"), ("b", "x"), ("c", "x"), ("b", "slow")] {
            server.put(&format!("/api/v1/namespaces/{namespace}/configmaps"), config_map(name));
            pass(Duration::from_secs(1)).await;
        }
        server.delete("/api/v1/namespaces/a/configmaps/x");
        pass(Duration::from_secs(600)).await;
        stop.cancel();
    };
    let mut file = Vec::new();
    let (ended, written, ()) =
        tokio::join!(manager.run(stop.clone()), recorder.run(&mut file), acting);
    ended.unwrap();
    written.unwrap();
    (file, trace.take())
}

async fn replay(file: &[u8], identity: Option<&str>) -> (String, Vec<Difference>) {
    let (replay, trace) = (Recording::read(file).await.unwrap().replay(), Trace::default());
    let manager = manager(replay.manager(), &trace, identity);
    let stop = CancellationToken::new();
    let over = async {
        replay.over().await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(manager.run(stop.clone()), over);
    ended.unwrap();
    (trace.take(), replay.differences())
}

/// The identity of a replay's process is another one, unless the program sets it. Every renewal
/// was a difference, and hid all others.
#[tokio::test(start_paused = true)]
async fn manager_with_an_election_is_replayed_without_differences() {
    for identity in [Some("me"), None] {
        let (file, recorded) = record(identity).await;
        let (replayed, differences) = replay(&file, identity).await;
        assert_eq!(replayed, recorded, "{identity:?}");
        assert_eq!(differences, [], "{identity:?}");
    }
}
