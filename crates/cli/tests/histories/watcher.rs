//! Watchers: each follows some objects from server to server, and records the events.

use crate::client::{Place, revision};
use crate::log::{Event, Watched};
use crate::model::Key;
use crate::record::Record;
use crate::servers::{Answer, Server};
use http::{Method, StatusCode};
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The annotation of the bookmark that ends the initial events of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The last revision of each namespace, once the history is over.
pub(crate) type Ends = Option<Vec<u64>>;

/// One watcher.
pub(crate) struct Watcher {
    pub rng: SmallRng,
    pub place: Arc<Place>,
    pub record: Arc<Record>,
    /// `None` watches all namespaces.
    pub namespace: Option<u8>,
    pub ends: watch::Receiver<Ends>,
}

/// Why a watch ended.
enum Over {
    /// It has received everything.
    Done,
    /// The next revision is compacted.
    Expired,
}

impl Watcher {
    /// Watches until it has received the last event.
    pub(crate) async fn live(mut self) {
        loop {
            let mut watched = Watched::default();
            let is_in = |key: &Key| self.namespace.is_none_or(|namespace| namespace == key.0);
            watched.keys = Place::keys().into_iter().filter(is_in).collect();
            let over = self.follow(&mut watched).await;
            watched.is_expired = matches!(over, Over::Expired);
            self.record.note(if watched.is_expired { "watches expired" } else { "watches done" });
            self.record.watched(watched);
            if matches!(over, Over::Done) {
                return;
            }
        }
    }

    async fn follow(&mut self, watched: &mut Watched) -> Over {
        let path = self.place.path(self.namespace);
        let mut stream = None;
        if self.rng.random() {
            while !self.list(watched).await {
                tokio::time::sleep(PAUSE).await;
            }
        } else {
            stream = self.initial_events(watched).await;
        }
        loop {
            if self.is_done(watched.reached) {
                return Over::Done;
            }
            let Some(events) = &mut stream else {
                let at = watched.reached;
                let path = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={at}");
                stream = self.server().watch(&path).await;
                if stream.is_none() {
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            };
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                // Cancel safe: then it checks whether it is done.
                _ = self.ends.changed() => continue,
            };
            match event {
                Some(event) if event["type"] == "ERROR" => {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    return Over::Expired;
                }
                Some(event) => self.take(watched, &event),
                None => {
                    self.record.note("watches that broke");
                    stream = None;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn take(&self, watched: &mut Watched, event: &Value) {
        let object = &event["object"];
        watched.reached = revision(object).expect("a revision");
        let found = self.place.read(object);
        match (event["type"].as_str().unwrap(), found) {
            ("ADDED", Some((key, found))) => watched.events.push(Event::Added(key, found)),
            ("MODIFIED", Some((key, found))) => watched.events.push(Event::Modified(key, found)),
            ("DELETED", Some((key, found))) => watched.events.push(Event::Deleted(key, found)),
            // An object of others.
            (_, None) | ("BOOKMARK", _) => {}
            _ => panic!("{event}"),
        }
    }

    /// Whether no more events will come.
    fn is_done(&self, reached: u64) -> bool {
        self.ends.borrow().as_ref().is_some_and(|ends| match self.namespace {
            Some(namespace) => reached >= ends[usize::from(namespace)],
            None => ends.iter().all(|end| reached >= *end),
        })
    }

    fn server(&mut self) -> Arc<Server> {
        let n = self.rng.random_range(0..self.place.servers.len());
        self.place.servers[n].clone()
    }

    /// Starts with a list.
    async fn list(&mut self, watched: &mut Watched) -> bool {
        let (server, path) = (self.server(), self.place.path(self.namespace));
        let answer = server.ask(&Method::GET, &path, "", &Value::Null).await;
        let Answer::Response(StatusCode::OK, list) = answer else { return false };
        let items = list["items"].as_array().unwrap();
        watched.initial = items.iter().filter_map(|item| self.place.read(item)).collect();
        watched.from = revision(&list).unwrap();
        watched.reached = watched.from;
        true
    }

    /// Starts with a watch with initial events.
    async fn initial_events(&mut self, watched: &mut Watched) -> Option<crate::servers::Stream> {
        let path = self.place.path(self.namespace);
        let path = format!(
            "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        );
        loop {
            watched.initial.clear();
            let mut stream = self.server().watch(&path).await;
            while let Some(events) = &mut stream {
                // Broken, or ended by an error: starts again.
                let Some(event) = events.next().await.filter(|event| event["type"] != "ERROR")
                else {
                    break;
                };
                let object = &event["object"];
                match (event["type"].as_str().unwrap(), self.place.read(object)) {
                    ("BOOKMARK", _) => {
                        if object["metadata"]["annotations"][INITIAL_EVENTS_END] == "true" {
                            watched.from = revision(object).unwrap();
                            watched.reached = watched.from;
                            self.record.note("watches that began with the state");
                            return stream;
                        }
                    }
                    ("DELETED", Some((key, _))) => _ = watched.initial.remove(&key),
                    (_, Some((key, found))) => _ = watched.initial.insert(key, found),
                    (_, None) => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
