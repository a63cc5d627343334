//! Watchers: each checks the writers' counts.

use crate::churn::Remaining;
use crate::program::Asker;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// A watch that outlives every soak. Without a timeout it would end after half an hour to an hour.
const WATCH: &str = "watch=1&timeoutSeconds=86400";

/// The writers' remaining objects, once they have ended.
pub(crate) type End = watch::Receiver<Option<Remaining>>;

/// Follows objects starting with a list, and compares each event with the previous count. Returns
/// the number of events once it has seen the writers' end.
///
/// # Panics
///
/// If a count is missing or repeated, the watch ends, or the writers' end is never seen (the
/// caller's timeout).
pub(crate) async fn watch_maps(
    path: String,
    shard: Option<usize>,
    asker: Asker,
    mut end: End,
) -> u64 {
    let selector = shard.map(|shard| format!("labelSelector=shard%3D{shard}&")).unwrap_or_default();
    let list = asker.ask("GET", &format!("{path}?{selector}"), &Value::Null).await;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for item in list["items"].as_array().unwrap().iter().filter(|item| count(item).is_some()) {
        counts.insert(name(item), count(item).unwrap());
    }
    // Counts continue after deletions.
    let mut last = counts.clone();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{path}?{selector}{WATCH}&allowWatchBookmarks=true&resourceVersion={from}");
    let mut lines = Lines::open(&asker, &path).await;
    let is_mine = |name: &String| shard.is_none_or(|shard| name.starts_with(&format!("s{shard}-")));
    let mut n_events = 0;
    loop {
        let is_over = end
            .borrow()
            .as_ref()
            .is_some_and(|left| left.iter().filter(|(name, _)| is_mine(name)).eq(counts.iter()));
        if is_over {
            return n_events;
        }
        let event = tokio::select! {
            biased;
            event = lines.next() => event,
            _ = end.changed() => continue,
        };
        let object = &event["object"];
        let Some(n) = count(object) else {
            assert!(event["type"] == "BOOKMARK" || object["data"]["n"].is_null(), "{event}");
            continue;
        };
        n_events += 1;
        let name = name(object);
        assert!(is_mine(&name), "{name} is not of shard {shard:?}");
        let (present, before) = (counts.get(&name), last.get(&name).copied());
        match event["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => {
                assert_eq!(event["type"] == "ADDED", present.is_none(), "{name} at {n}");
                // The previous count of an object that did not exist at the start is unknown.
                assert!(
                    before.is_none_or(|before| before + 1 == n),
                    "{name}: {n} after {before:?}"
                );
                counts.insert(name.clone(), n);
                last.insert(name, n);
            }
            "DELETED" => {
                assert_eq!(present, Some(&n), "{name} is deleted");
                counts.remove(&name);
            }
            other => panic!("{other}: {object}"),
        }
    }
}

/// Follows Events: each is added once and deleted once, and none is modified. Returns how many were
/// added and deleted, once no more are created and all are deleted.
pub(crate) async fn watch_events(
    path: String,
    asker: Asker,
    mut n_created: watch::Receiver<Option<u64>>,
) -> u64 {
    let mut lines = Lines::open(&asker, &format!("{path}?{WATCH}&resourceVersion=0")).await;
    // By number, whether it still exists.
    let mut seen: BTreeMap<u64, bool> = BTreeMap::new();
    loop {
        let n_gone = seen.values().filter(|is_there| !**is_there).count() as u64;
        if n_created.borrow().is_some_and(|n_created| n_created == n_gone) {
            return n_gone;
        }
        let event = tokio::select! {
            biased;
            event = lines.next() => event,
            _ = n_created.changed() => continue,
        };
        let Some(n) = name(&event["object"]).strip_prefix('e').and_then(|n| n.parse().ok()) else {
            continue;
        };
        match event["type"].as_str().unwrap() {
            "ADDED" => assert_eq!(seen.insert(n, true), None, "e{n} came twice"),
            "DELETED" => assert_eq!(seen.insert(n, false), Some(true), "e{n} went"),
            other => panic!("{other}: e{n}"),
        }
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().into()
}

/// The writers' count in an object; `None` for other objects.
fn count(object: &Value) -> Option<u64> {
    object["data"]["n"].as_str()?.parse().ok()
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: hyper::body::Incoming,
    rest: Vec<u8>,
}

impl Lines {
    pub(crate) async fn open(asker: &Asker, path: &str) -> Self {
        let (code, body) = asker.send("GET", path, &Value::Null).await;
        assert_eq!(code, StatusCode::OK, "{path}");
        Self { body, rest: Vec::new() }
    }

    /// The next event. Cancel safe.
    ///
    /// # Panics
    ///
    /// If the watch has ended.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let frame = self.body.frame().await.expect("a watch ended without a reason").unwrap();
            self.rest.extend(frame.into_data().unwrap());
        }
    }
}
