//! Events of a manager on the server, read through both APIs.

use crate::plane::with_person;
use expect_test::expect;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::runtime::{
    Clock, Manager, ObjectReference,
    events::{EventApi, EventType},
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CORE: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// These members of the only event in a list.
fn members(list: &Value, names: &[&str]) -> String {
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{list:#}");
    names.iter().map(|name| format!("{name} {}\n", items[0][name])).collect()
}

/// Records the same event three times with a manager that writes with `api`; returns the resulting
/// event in both APIs.
async fn recorded_with(api: EventApi) -> (Value, Value, u64) {
    let mut seen = None;
    with_person(async |person| {
        let clock = Clock::starting_at(setpoint::runtime::Timestamp::from_secs(1_767_225_600));
        let manager =
            Manager::builder(person.client.clone()).clock(clock).seed(1).events(api).build();
        let recorder = manager.recorder("example.com/network");
        let stop = CancellationToken::new();
        let running = manager.run(stop.clone());
        let acting = async {
            let mut map = ConfigMap::default();
            map.metadata.name = Some("a".into());
            map.metadata.namespace = Some("default".into());
            let map = ObjectReference::of(&map);
            for _ in 0..3 {
                recorder
                    .about(&map, EventType::Warning, "NoRoom")
                    .action("Attach")
                    .note("it is full")
                    .record();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(running, acting);
        ended.unwrap();
        let list = async |path| {
            person.request("GET", path, "application/json", &json!(null)).await.unwrap()
        };
        seen = Some((list(CORE).await, list(NEW).await, recorder.lost()));
    })
    .await;
    seen.unwrap()
}

#[tokio::test(start_paused = true)]
async fn ev_series_of_the_newer_api_is_read_through_both() {
    let (core, new, lost) = recorded_with(EventApi::New).await;
    assert_eq!(lost, 0);
    expect![[r#"
        type "Warning"
        reason "NoRoom"
        action "Attach"
        note "it is full"
        reportingController "example.com/network"
        reportingInstance "example.com/network"
        eventTime "2026-01-01T00:00:00.000000Z"
        series {"count":3,"lastObservedTime":"2026-01-01T00:00:02.000000Z"}
    "#]]
    .assert_eq(&members(
        &new,
        &[
            "type",
            "reason",
            "action",
            "note",
            "reportingController",
            "reportingInstance",
            "eventTime",
            "series",
        ],
    ));
    expect![[r#"
        message "it is full"
        reportingComponent "example.com/network"
    "#]]
    .assert_eq(&members(&core, &["message", "reportingComponent"]));
    assert_eq!(new["items"][0]["metadata"]["managedFields"][0]["manager"], "setpoint");
}

#[tokio::test(start_paused = true)]
async fn ev_counts_of_the_core_api_are_read_through_both() {
    let (core, new, lost) = recorded_with(EventApi::Core).await;
    assert_eq!(lost, 0);
    expect![[r#"
        message "it is full"
        count 3
        firstTimestamp "2026-01-01T00:00:00Z"
        lastTimestamp "2026-01-01T00:00:02Z"
        source {"component":"example.com/network"}
    "#]]
    .assert_eq(&members(&core, &["message", "count", "firstTimestamp", "lastTimestamp", "source"]));
    expect![[r#"
        note "it is full"
        deprecatedCount 3
    "#]]
    .assert_eq(&members(&new, &["note", "deprecatedCount"]));
    assert_eq!(core["items"][0]["metadata"]["managedFields"][0]["manager"], "setpoint");
}
