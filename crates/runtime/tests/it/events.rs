//! Events, from a reconciler to the server.

use std::time::Duration;

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use setpoint_runtime::{EventRecorder, ObjectReference};

use crate::{
    server::Server,
    world::{EVENTS, Running, builder, pass, settle},
};

fn start() -> (Server, EventRecorder, Running) {
    let server = Server::new(&[EVENTS]);
    let manager = builder(&server).build();
    let recorder = manager.recorder("network");
    (server, recorder, Running::start(manager))
}

fn config_map() -> ObjectReference {
    let mut object = ConfigMap::default();
    object.metadata.name = Some("a".into());
    object.metadata.namespace = Some("default".into());
    object.metadata.uid = Some("u".into());
    object.metadata.resource_version = Some("7".into());
    ObjectReference::of(&object)
}

#[tokio::test(start_paused = true)]
async fn event_is_written_beside_its_object_and_repeats_are_counted() {
    let (server, recorder, running) = start();
    recorder.normal(&config_map(), "Synced", "all is well");
    settle().await;
    let written = server.list(EVENTS);
    assert_eq!(written.len(), 1);
    let mut event = written[0].clone();
    event["metadata"].take();
    expect![[r#"
        {
          "apiVersion": "v1",
          "count": 1,
          "firstTimestamp": "2026-01-01T00:00:00Z",
          "involvedObject": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "a",
            "namespace": "default",
            "resourceVersion": "7",
            "uid": "u"
          },
          "kind": "Event",
          "lastTimestamp": "2026-01-01T00:00:00Z",
          "message": "all is well",
          "metadata": null,
          "reason": "Synced",
          "reportingComponent": "network",
          "reportingInstance": "",
          "source": {
            "component": "network"
          },
          "type": "Normal"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&event).unwrap());

    pass(Duration::from_secs(5)).await;
    recorder.normal(&config_map(), "Synced", "all is well");
    recorder.warning(&config_map(), "Overlap", "not so well");
    settle().await;
    let counts: Vec<_> = server
        .list(EVENTS)
        .iter()
        .map(|event| format!("{} {} {}", event["reason"], event["count"], event["lastTimestamp"]))
        .collect();
    expect![[r#""Synced" 2 "2026-01-01T00:00:05Z" "Overlap" 1 "2026-01-01T00:00:05Z""#]]
        .assert_eq(&counts.join(" "));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn event_that_expired_on_the_server_is_made_again() {
    let (server, recorder, running) = start();
    recorder.normal(&config_map(), "Synced", "all is well");
    settle().await;
    let name = server.list(EVENTS)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    server.delete(&format!("/api/v1/namespaces/default/events/{name}"));
    recorder.normal(&config_map(), "Synced", "all is well");
    settle().await;
    assert_eq!(server.list(EVENTS)[0]["count"], 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_objects_have_their_events_in_default() {
    let (server, recorder, running) = start();
    let mut node = Node::default();
    node.metadata.name = Some("n".into());
    recorder.warning(&ObjectReference::of(&node), "Down", "gone");
    settle().await;
    assert_eq!(server.list("/api/v1/namespaces/default/events").len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn broken_connection_is_tried_again_and_a_refusal_is_not() {
    let (server, recorder, running) = start();
    server.fail_next(Method::POST, "events", 0);
    recorder.normal(&config_map(), "One", "x");
    pass(Duration::from_secs(11)).await;
    assert_eq!((server.list(EVENTS).len(), recorder.lost()), (1, 0));
    server.fail_next(Method::POST, "events", 403);
    recorder.normal(&config_map(), "Two", "x");
    pass(Duration::from_secs(200)).await;
    assert_eq!((server.list(EVENTS).len(), recorder.lost()), (1, 1));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn recorder_never_waits_and_counts_what_it_loses() {
    let server = Server::new(&[EVENTS]);
    let manager = builder(&server).build();
    let recorder = manager.recorder("network");
    for n in 0..1500 {
        recorder.normal(&ObjectReference::of(&ConfigMap::default()), "Reason", format!("{n}"));
    }
    assert_eq!(recorder.lost(), 500);
    drop(manager);
    recorder.normal(&config_map(), "Reason", "late");
    assert_eq!(recorder.lost(), 501);
}

#[tokio::test(start_paused = true)]
async fn what_was_told_before_the_end_is_written_before_the_end() {
    let (server, recorder, running) = start();
    settle().await;
    recorder.normal(&config_map(), "Last", "words");
    running.stop().await.unwrap();
    assert_eq!(server.list(EVENTS).len(), 1);
}
