//! Events, from a reconciler to the server.

use std::time::Duration;

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::Value;
use setpoint_runtime::{
    EventRecorder, ObjectReference,
    events::{EVENT_QUEUE_MAX, EventApi, EventType},
};

use crate::{
    server::Server,
    world::{EVENTS, Running, builder, pass, settle},
};

const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/events";

fn start(api: EventApi) -> (Server, EventRecorder, Running) {
    let server = Server::new(&[EVENTS, NEW_EVENTS]);
    let manager = builder(&server).events(api).event_host("node-1").build();
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

fn node() -> ObjectReference {
    let mut node = Node::default();
    node.metadata.name = Some("n".into());
    ObjectReference::of(&node)
}

/// An event without the fields that the server sets.
fn fields_of(event: &Value) -> String {
    let mut event = event.clone();
    event["metadata"].take();
    serde_json::to_string_pretty(&event).unwrap()
}

#[tokio::test(start_paused = true)]
async fn ev_core_event_is_written_to_its_objects_namespace_and_repeats_are_counted() {
    let (server, recorder, running) = start(EventApi::Core);
    recorder.normal(&config_map(), "Synced", "all is well");
    settle().await;
    let written = server.list(EVENTS);
    assert_eq!(written.len(), 1);
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
          "reportingInstance": "node-1",
          "source": {
            "component": "network",
            "host": "node-1"
          },
          "type": "Normal"
        }"#]]
    .assert_eq(&fields_of(&written[0]));

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
async fn ev_newer_event_has_an_action_and_a_related_object() {
    let (server, recorder, running) = start(EventApi::New);
    let node = node();
    recorder
        .about(&config_map(), EventType::Warning, "NoRoom")
        .action("Attach")
        .related(&node)
        .note("the node is full")
        .record();
    settle().await;
    expect![[r#"
        {
          "action": "Attach",
          "apiVersion": "events.k8s.io/v1",
          "eventTime": "2026-01-01T00:00:00.000000Z",
          "kind": "Event",
          "metadata": null,
          "note": "the node is full",
          "reason": "NoRoom",
          "regarding": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "a",
            "namespace": "default",
            "resourceVersion": "7",
            "uid": "u"
          },
          "related": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n"
          },
          "reportingController": "network",
          "reportingInstance": "network-node-1",
          "type": "Warning"
        }"#]]
    .assert_eq(&fields_of(&server.list(NEW_EVENTS)[0]));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_series_is_written_at_its_second_every_half_hour_and_after_a_silence() {
    let (server, recorder, running) = start(EventApi::New);
    let mut seen = Vec::new();
    let mut look = |minute: usize| {
        let events = server.list(NEW_EVENTS);
        let series = events.iter().map(|event| event["series"]["count"].to_string());
        let text = series.collect::<Vec<_>>().join(" ");
        if seen.last().is_none_or(|(_, last)| *last != text) {
            seen.push((minute, text));
        }
    };
    for minute in 0..60 {
        if minute < 40 {
            recorder.normal(&config_map(), "Synced", "all is well");
        }
        settle().await;
        look(minute);
        pass(Duration::from_millis(59_999)).await;
    }
    let seen: Vec<_> = seen.iter().map(|(minute, text)| format!("{minute}: {text}")).collect();
    expect!["0: null · 1: 2 · 31: 32 · 45: 40"].assert_eq(&seen.join(" · "));
    assert_eq!(server.take_writes().len(), 4);

    recorder.normal(&config_map(), "Synced", "all is well");
    settle().await;
    assert_eq!(server.list(NEW_EVENTS).len(), 2, "the series was over");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_thousand_identical_calls_lead_to_a_burst_of_writes_at_most() {
    for (api, n_writes_max) in [(EventApi::New, 3), (EventApi::Core, 25)] {
        let (server, recorder, running) = start(api);
        for _ in 0..10 {
            (0..100).for_each(|_| recorder.normal(&config_map(), "Synced", "all is well"));
            settle().await;
        }
        let n_writes = server.take_writes().len();
        assert!((1..=n_writes_max).contains(&n_writes), "{n_writes} writes with {api:?}");
        running.stop().await.unwrap();
        assert_eq!(recorder.lost(), 0);
        if api == EventApi::New {
            let event = &server.list(NEW_EVENTS)[0];
            assert_eq!(event["series"]["count"], 1000, "the final count is written at the end");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ev_event_that_expired_on_the_server_is_created_again() {
    for (api, events) in [(EventApi::Core, EVENTS), (EventApi::New, NEW_EVENTS)] {
        let (server, recorder, running) = start(api);
        recorder.normal(&config_map(), "Synced", "all is well");
        settle().await;
        let name = server.list(events)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let path = events.replace("/events", "/namespaces/default/events");
        let path = path.replace("/namespaces/default/events.k8s.io", "/events.k8s.io");
        server.delete(&format!("{path}/{name}"));
        recorder.normal(&config_map(), "Synced", "all is well");
        settle().await;
        let event = &server.list(events)[0];
        let count = if api == EventApi::Core { &event["count"] } else { &event["series"]["count"] };
        assert_eq!(*count, 2);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn ev_2_cluster_scoped_objects_have_their_events_in_default() {
    let (server, recorder, running) = start(EventApi::New);
    recorder.warning(&node(), "Down", "gone");
    settle().await;
    assert_eq!(server.list("/apis/events.k8s.io/v1/namespaces/default/events").len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_2_event_without_an_object_is_dropped_and_counted() {
    let (server, recorder, running) = start(EventApi::New);
    recorder.warning(&ObjectReference::default(), "Down", "gone");
    settle().await;
    assert_eq!((server.list(NEW_EVENTS).len(), recorder.losses().invalid), (0, 1));
    assert!("Error".parse::<EventType>().is_err());
    assert_eq!("Warning".parse(), Ok(EventType::Warning));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_broken_connection_is_retried_and_a_refusal_is_not() {
    for (api, events) in [(EventApi::Core, EVENTS), (EventApi::New, NEW_EVENTS)] {
        let (server, recorder, running) = start(api);
        server.fail_next(Method::POST, "events", 0);
        recorder.normal(&config_map(), "One", "x");
        pass(Duration::from_secs(13)).await;
        assert_eq!((server.list(events).len(), recorder.lost()), (1, 0));
        server.fail_next(Method::POST, "events", 403);
        recorder.normal(&config_map(), "Two", "x");
        pass(Duration::from_secs(200)).await;
        assert_eq!((server.list(events).len(), recorder.lost()), (1, 1));
        assert_eq!(recorder.losses().refused, 1);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn ev_write_with_a_lost_answer_is_not_counted_as_lost() {
    let (server, recorder, running) = start(EventApi::New);
    // It is done, and then the connection breaks; the next try finds the event.
    server.fail_next(Method::POST, "events", 1);
    recorder.normal(&config_map(), "One", "x");
    pass(Duration::from_secs(13)).await;
    assert_eq!((server.list(NEW_EVENTS).len(), recorder.lost()), (1, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_unreachable_server_is_tried_twelve_times_and_does_not_delay_other_events() {
    let (server, recorder, running) = start(EventApi::New);
    (0..12).for_each(|_| server.fail_next(Method::POST, "events", 0));
    recorder.normal(&config_map(), "One", "x");
    settle().await;
    server.heal();
    (0..11).for_each(|_| server.fail_next(Method::POST, "kube-system", 0));
    recorder.normal(&node(), "Two", "x");
    settle().await;
    let reasons: Vec<_> = server.list(NEW_EVENTS).iter().map(|e| e["reason"].clone()).collect();
    assert_eq!(
        reasons,
        ["Two"],
        "the first waits for its second try, and this one does not wait for it"
    );
    pass(Duration::from_secs(13)).await;
    assert_eq!(server.list(NEW_EVENTS).len(), 2);

    server.heal();
    (0..12).for_each(|_| server.fail_next(Method::POST, "events", 0));
    recorder.normal(&config_map(), "Three", "x");
    pass(Duration::from_secs(11 * 13)).await;
    assert_eq!((server.list(NEW_EVENTS).len(), recorder.losses().unreachable), (2, 1));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ev_recorder_never_waits_and_counts_lost_events() {
    let server = Server::new(&[EVENTS]);
    let manager = builder(&server).build();
    let recorder = manager.recorder("network");
    for n in 0..EVENT_QUEUE_MAX + 500 {
        recorder.normal(&config_map(), "Reason", format!("{n}"));
    }
    assert_eq!((recorder.lost(), recorder.losses().queue_full), (500, 500));
    drop(manager);
    recorder.normal(&config_map(), "Reason", "late");
    assert_eq!((recorder.lost(), recorder.losses().after_end), (501, 1));
}

#[tokio::test(start_paused = true)]
async fn ev_3_events_emitted_before_the_end_are_written_and_none_after() {
    let (server, recorder, running) = start(EventApi::New);
    settle().await;
    recorder.normal(&config_map(), "Last", "words");
    running.stop().await.unwrap();
    recorder.normal(&config_map(), "Last", "of all");
    settle().await;
    assert_eq!((server.list(NEW_EVENTS).len(), recorder.losses().after_end), (1, 1));
}
