//! Watchers that nobody reads, and large numbers of watchers.

use crate::plane::{Person, map, maps, with_person, with_person_of};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyDataStream, BodyExt};
use kube_client::client::Body;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use std::time::Duration;

/// Size in bytes of the past events that the server stores per resource for slow watchers.
const WINDOW_BYTES_MAX: usize = 64 << 20;
/// Number of events that a watcher may buffer itself.
const HELD_EVENTS_MAX: usize = 64;

impl Person {
    /// A watch whose events have not been read yet.
    async fn watch(&self, query: &str) -> BodyDataStream<Body> {
        let path = format!("{}?watch=true&{query}", maps("default", ""));
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let answer = self.client.send(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().into_data_stream()
    }

    async fn fill(&self, name: &str, text: &str) {
        self.patch(&maps("default", name), &json!({"data": {"text": text}})).await;
    }
}

/// Reads until nothing arrives for a while; also returns whether the stream has ended then.
async fn read(stream: &mut BodyDataStream<Body>) -> (Vec<Bytes>, bool) {
    let mut frames = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(1), stream.next()).await {
            Ok(Some(frame)) => frames.push(frame.unwrap()),
            Ok(None) => return (frames, true),
            Err(_) => return (frames, false),
        }
    }
}

fn revision(frame: &Bytes) -> u64 {
    let event: Value = serde_json::from_slice(frame).unwrap();
    event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn watcher_that_never_reads_is_ended() {
    with_person(async |person| {
        person.create(&maps("default", ""), &map("big", &[])).await;
        let mut unread = person.watch("resourceVersion=0").await;
        // A watcher that starts and then stops reading.
        let mut stalled = person.watch("resourceVersion=0").await;
        let first = stalled.next().await.unwrap().unwrap();
        let text = "x".repeat(1 << 20);
        for n in 0..WINDOW_BYTES_MAX / text.len() + 8 {
            // The text differs, so that each update is a change.
            person.fill("big", &format!("{n}{}", &text[8..])).await;
        }
        for (stream, behind) in [(&mut stalled, revision(&first)), (&mut unread, 0)] {
            let (mut frames, ended) = read(stream).await;
            assert!(ended, "its past is dropped");
            assert!(frames.len() <= HELD_EVENTS_MAX, "{} events were kept for it", frames.len());
            // It had not got all initial objects, so it cannot resume.
            let last: Value = serde_json::from_slice(&frames.pop().unwrap()).unwrap();
            assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)));
            // The events that it still receives are in order and without gaps up to its end.
            let revisions: Vec<u64> = frames.iter().map(revision).collect();
            assert!(revisions.is_sorted() && revisions.iter().all(|revision| *revision > behind));
        }
        let mut anew = person.watch("").await;
        // In pieces, because it is long.
        let present = read(&mut anew).await.0.concat();
        let n_events = present.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(n_events, 1, "who comes anew gets the present");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watchers_share_encoded_events() {
    const WATCHERS: usize = 1000;
    const UPDATES: usize = 20;
    with_person(async |person| {
        person.create(&maps("default", ""), &map("a", &[])).await;
        // Until the controllers' own writes at start are in the cache: a watch that starts while
        // the cache is behind takes its position when it is first read.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut watchers = Vec::new();
        for _ in 0..WATCHERS {
            watchers.push(person.watch("").await);
        }
        for n in 0..UPDATES {
            person.fill("a", &n.to_string()).await;
        }
        let mut first: Option<Vec<Bytes>> = None;
        for watcher in &mut watchers {
            let (frames, ended) = read(watcher).await;
            assert_eq!((frames.len(), ended), (1 + UPDATES, false));
            match &first {
                None => first = Some(frames),
                Some(first) => {
                    assert_eq!(first, &frames);
                    // Not only equal: the same bytes, encoded once (except the initial event, which
                    // each watcher gets separately).
                    let same = |(a, b): (&Bytes, &Bytes)| a.as_ptr() == b.as_ptr();
                    assert!(first.iter().zip(&frames).skip(1).all(same));
                }
            }
        }
        drop(watchers);
        person.fill("a", "nobody watches").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn history_is_retained_for_the_configured_time() {
    let plane = ControlPlane::builder().simulated(0).history(Duration::from_secs(10)).build();
    with_person_of(plane, async |person| {
        person.create(&maps("default", ""), &map("a", &[])).await;
        let made = person.get(&maps("default", "a")).await.unwrap();
        let from = made["metadata"]["resourceVersion"].as_str().unwrap();
        let exactly =
            format!("{}?resourceVersionMatch=Exact&resourceVersion={from}", maps("default", ""));
        let list = async || person.request("GET", &exactly, "", &Value::Null).await;
        person.fill("a", "first").await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(list().await.unwrap()["items"].as_array().unwrap().len(), 1);
        let mut watch = person.watch(&format!("resourceVersion={from}")).await;
        assert!(revision(&watch.next().await.unwrap().unwrap()) > from.parse().unwrap());
        // The store compacts at intervals of that length; the watch cache always keeps the newest
        // hundred changes.
        tokio::time::sleep(Duration::from_secs(22)).await;
        for n in 0..200 {
            person.fill("a", &n.to_string()).await;
        }
        let gone = list().await.unwrap_err();
        assert!(matches!(&gone, kube_client::Error::Api(status) if status.code == 410), "{gone}");
        let mut watch = person.watch(&format!("resourceVersion={from}")).await;
        let event: Value = serde_json::from_slice(&watch.next().await.unwrap().unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    })
    .await;
}
