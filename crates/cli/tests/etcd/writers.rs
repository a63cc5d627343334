//! Writers that remember what was acknowledged, and watchers that remember what they were told.

use crate::two::maps;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a writer or watcher leaves a server alone that could not answer.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a writer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One state of one object: its revision, and its number.
pub(crate) type State = (u64, u64);

fn state(map: &ConfigMap) -> (String, State) {
    let revision = map.metadata.resource_version.as_deref().unwrap().parse().unwrap();
    let number = map.data.as_ref().map_or(0, |data| data["n"].parse().unwrap());
    (map.metadata.name.clone().unwrap(), (revision, number))
}

/// What one writer did.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Every write that was acknowledged.
    pub(crate) acknowledged: Vec<State>,
    /// How many were answered by an error, or not at all.
    pub(crate) n_failed: usize,
}

/// Writes growing numbers into one object until `stop`, through whatever client there is at the
/// moment.
pub(crate) async fn write(
    mut client: watch::Receiver<Client>,
    name: &str,
    stop: &CancellationToken,
) -> Written {
    let mut written = Written::default();
    let first = ConfigMap {
        metadata: kube_client::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        data: Some([("n".to_owned(), "0".to_owned())].into()),
        ..Default::default()
    };
    let api = maps(&client.borrow_and_update());
    let made = api.create(&PostParams::default(), &first).await;
    written.acknowledged.push(state(&made.unwrap()).1);
    for n in 1_u64.. {
        if stop.is_cancelled() {
            break;
        }
        let maps = maps(&client.borrow_and_update());
        let patch = Patch::Merge(json!({"data": {"n": n.to_string()}}));
        let params = PatchParams::default();
        let patched = maps.patch(name, &params, &patch);
        match tokio::time::timeout(PATIENCE, patched).await {
            Ok(Ok(map)) => {
                let (_, state) = state(&map);
                assert_eq!(state.1, n, "what was written is answered");
                written.acknowledged.push(state);
            }
            _ => {
                written.n_failed += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    written
}

/// What one watcher was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Every event, by object.
    pub(crate) events: BTreeMap<String, Vec<State>>,
    /// How often the watch ended and was resumed.
    pub(crate) n_resumed: usize,
}

/// Watches all ConfigMaps, from an empty list on, until it has been told of every object's state in
/// `until`. A watch that ends is resumed by the last resourceVersion.
pub(crate) async fn follow(
    mut client: watch::Receiver<Client>,
    from: u64,
    mut until: watch::Receiver<Option<Arc<BTreeMap<String, u64>>>>,
) -> Told {
    let (mut told, mut last) = (Told::default(), from);
    loop {
        let maps = maps(&client.borrow_and_update());
        let params = WatchParams::default().timeout(290);
        let opened = maps.watch(&params, &last.to_string()).await;
        let Ok(mut stream) = opened.map(|stream| stream.boxed()) else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        loop {
            let is_done = until.borrow().as_deref().is_some_and(|until| {
                until.iter().all(|(name, revision)| {
                    let last = told.events.get(name).and_then(|events| events.last());
                    last.is_some_and(|(seen, _)| seen >= revision)
                })
            });
            if is_done {
                return told;
            }
            let event = tokio::select! {
                event = stream.next() => event,
                changed = until.changed() => { changed.unwrap(); continue }
                // The server is another one.
                changed = client.changed() => { changed.unwrap(); break }
            };
            match event {
                Some(Ok(WatchEvent::Added(map) | WatchEvent::Modified(map))) => {
                    let (name, state) = state(&map);
                    assert!(state.0 > last, "revisions grow: {last}, then {state:?} of {name}");
                    last = state.0;
                    told.events.entry(name).or_default().push(state);
                }
                Some(Ok(WatchEvent::Error(error))) => {
                    assert_ne!(error.code, 410, "history is kept: {error:?}");
                    break;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        told.n_resumed += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Where a list of ConfigMaps stands.
pub(crate) async fn revision(client: &Client) -> u64 {
    let list = maps(client).list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}

/// Every acknowledged write was told, once and in order; nothing was told that goes back.
pub(crate) fn check(written: &BTreeMap<String, Written>, told: &Told) {
    for (name, written) in written {
        let events = &told.events[name];
        assert!(events.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{name}: {events:?}");
        for state in &written.acknowledged {
            let is_told = events.binary_search(state).is_ok();
            assert!(is_told, "{name}: the acknowledged write {state:?} was not told: {events:?}");
        }
        // What was told beside that are writes whose answers were lost.
        let n_more = events.len() - written.acknowledged.len();
        assert!(n_more <= written.n_failed, "{name}: {n_more} > {}", written.n_failed);
    }
}
