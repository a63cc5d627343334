//! Writers that record acknowledged writes, and watchers that record received events.

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

/// Pause of a writer or watcher after a server could not answer.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a writer waits for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// One state of an object: its revision and its number.
pub(crate) type State = (u64, u64);

fn state(map: &ConfigMap) -> (String, State) {
    let revision = map.metadata.resource_version.as_deref().unwrap().parse().unwrap();
    let number = map.data.as_ref().map_or(0, |data| data["n"].parse().unwrap());
    (map.metadata.name.clone().unwrap(), (revision, number))
}

/// The writes of one writer.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// All acknowledged writes.
    pub(crate) acknowledged: Vec<State>,
    /// Number of writes that got an error or no response.
    pub(crate) n_failed: usize,
}

/// Writes increasing numbers into one object until `stop`, through the current client.
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

/// The events that one watcher received.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// All events, by object.
    pub(crate) events: BTreeMap<String, Vec<State>>,
    /// How often the watch ended and was resumed.
    pub(crate) n_resumed: usize,
}

/// Watches all ConfigMaps, starting from an empty list, until it has received every object's state
/// in `until`. A watch that ends is resumed with the last resourceVersion.
pub(crate) async fn follow(
    mut client: watch::Receiver<Client>,
    from: u64,
    mut until: watch::Receiver<Option<Arc<BTreeMap<String, u64>>>>,
) -> Observed {
    let (mut observed, mut last) = (Observed::default(), from);
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
                    let last = observed.events.get(name).and_then(|events| events.last());
                    last.is_some_and(|(seen, _)| seen >= revision)
                })
            });
            if is_done {
                return observed;
            }
            let event = tokio::select! {
                event = stream.next() => event,
                changed = until.changed() => { changed.unwrap(); continue }
                // The server has changed.
                changed = client.changed() => { changed.unwrap(); break }
            };
            match event {
                Some(Ok(WatchEvent::Added(map) | WatchEvent::Modified(map))) => {
                    let (name, state) = state(&map);
                    assert!(state.0 > last, "revisions grow: {last}, then {state:?} of {name}");
                    last = state.0;
                    observed.events.entry(name).or_default().push(state);
                }
                Some(Ok(WatchEvent::Error(error))) => {
                    assert_ne!(error.code, 410, "history is kept: {error:?}");
                    break;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        observed.n_resumed += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The resourceVersion of a list of ConfigMaps.
pub(crate) async fn revision(client: &Client) -> u64 {
    let list = maps(client).list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}

/// Checks that every acknowledged write was received once and in order, and that no event goes
/// back.
pub(crate) fn check(written: &BTreeMap<String, Written>, observed: &Observed) {
    for (name, written) in written {
        let events = &observed.events[name];
        assert!(events.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{name}: {events:?}");
        for state in &written.acknowledged {
            let is_observed = events.binary_search(state).is_ok();
            assert!(
                is_observed,
                "{name}: the acknowledged write {state:?} was not observed: {events:?}"
            );
        }
        // Any further events are of writes whose responses were lost.
        let n_more = events.len() - written.acknowledged.len();
        assert!(n_more <= written.n_failed, "{name}: {n_more} > {}", written.n_failed);
    }
}
