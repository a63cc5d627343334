//! Clients: each sends random requests, one after the other, and records requests and responses.

use crate::log::WeakRead;
use crate::model::{Call, Found, Guard, Key};
use crate::record::Record;
use crate::servers::{Answer, Server};
use http::{Method, StatusCode};
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Number of names in each namespace.
pub(crate) const NAMES: u8 = 3;
/// Number of namespaces.
pub(crate) const NAMESPACES: u8 = 2;
/// Page size of paged lists.
const PAGE: usize = 2;

/// The objects and servers of a history.
pub(crate) struct Place {
    /// The namespaces, by number.
    pub namespaces: [String; NAMESPACES as usize],
    /// Prefix of the names; other clients may have other objects in the namespaces.
    pub prefix: String,
    /// Whether no other client has objects of the kind. Then lists over all namespaces contain only
    /// these clients' objects.
    pub is_alone: bool,
    /// All servers.
    pub servers: Vec<Arc<Server>>,
}

impl Place {
    /// Every key.
    pub(crate) fn keys() -> Vec<Key> {
        (0..NAMESPACES)
            .flat_map(|namespace| (0..NAMES).map(move |name| (namespace, name)))
            .collect()
    }

    /// The path of the objects in a namespace, or in all.
    pub(crate) fn path(&self, namespace: Option<u8>) -> String {
        match namespace {
            Some(n) => format!("/api/v1/namespaces/{}/configmaps", self.namespaces[usize::from(n)]),
            None => "/api/v1/configmaps".into(),
        }
    }

    fn path_of(&self, (namespace, name): Key) -> String {
        format!("{}/{}{name}", self.path(Some(namespace)), self.prefix)
    }

    /// The object of a store key; `None` for objects of others.
    pub(crate) fn key(&self, key: &str) -> Option<Key> {
        let (namespace, name) = key.strip_prefix("/registry/configmaps/")?.split_once('/')?;
        let namespace = self.namespaces.iter().position(|other| other == namespace)?;
        Some((u8::try_from(namespace).unwrap(), name.strip_prefix(&*self.prefix)?.parse().ok()?))
    }

    /// The key and content of an object; `None` if it does not belong to these clients.
    pub(crate) fn read(&self, object: &Value) -> Option<(Key, Found)> {
        let meta = &object["metadata"];
        let namespace = self.namespaces.iter().position(|n| meta["namespace"] == n.as_str())?;
        let name = meta["name"].as_str()?.strip_prefix(&*self.prefix)?.parse().ok()?;
        let value = object["data"]["v"].as_str()?.parse().ok()?;
        let key = (u8::try_from(namespace).unwrap(), name);
        Some((key, Found { value, revision: revision(object)? }))
    }
}

/// `metadata.resourceVersion`.
pub(crate) fn revision(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// One client.
pub(crate) struct Person {
    pub rng: SmallRng,
    pub place: Arc<Place>,
    pub record: Arc<Record>,
    /// The last revision it has seen of each key.
    pub known: BTreeMap<Key, u64>,
    /// The newest revision it has seen.
    pub newest: u64,
    /// The longest pause between two requests.
    pub pause_max: Duration,
}

impl Person {
    /// Sends this number of requests.
    pub(crate) async fn live(mut self, n_requests: usize) {
        for _ in 0..n_requests {
            let max = u64::try_from(self.pause_max.as_micros()).unwrap();
            let pause = self.rng.random_range(0..=max);
            tokio::time::sleep(Duration::from_micros(pause)).await;
            let Some(server) = self.server().await else { return };
            let namespace = self.rng.random_range(0..NAMESPACES);
            let key = (namespace, self.rng.random_range(0..NAMES));
            let wide = (!self.place.is_alone || self.rng.random_bool(0.5)).then_some(namespace);
            match self.rng.random_range(0..100) {
                0..12 => self.get(&server, key).await,
                12..24 => self.list(&server, wide).await,
                24..28 => self.list_in_pages(&server, wide).await,
                28..31 => self.get_weakly(&server, key).await,
                31..38 => self.list_weakly(&server, wide).await,
                38..50 => self.create(&server, key).await,
                50..80 => self.swap(&server, key).await,
                80..89 => self.overwrite(&server, key).await,
                _ => self.delete(&server, key).await,
            }
        }
    }

    /// The last writes: one change in each namespace, for which watchers can wait, and a read of
    /// everything.
    pub(crate) async fn close(mut self) {
        let server = self.server().await.expect("a server");
        for namespace in 0..NAMESPACES {
            self.overwrite(&server, (namespace, 0)).await;
            self.create(&server, (namespace, 0)).await;
            self.list(&server, Some(namespace)).await;
        }
        for key in Place::keys() {
            self.get(&server, key).await;
        }
    }

    /// Performs an acknowledged write, and reads after it; returns the revision of the namespace's
    /// last change.
    #[cfg(feature = "real-clients")]
    pub(crate) async fn last_write(mut self, namespace: u8) -> u64 {
        let key = (namespace, 0);
        loop {
            let server = self.server().await.expect("a server");
            self.overwrite(&server, key).await;
            self.create(&server, key).await;
            if let Some(revision) = self.known.get(&key).copied() {
                self.list(&server, Some(namespace)).await;
                return revision;
            }
        }
    }

    /// Deletes the remaining objects, ignoring failures.
    #[cfg(feature = "real-clients")]
    pub(crate) async fn clear(mut self, namespace: u8) {
        let Some(server) = self.server().await else { return };
        let path = self.place.path(Some(namespace));
        drop(server.ask(&Method::DELETE, &path, JSON, &Value::Null).await);
    }

    /// A random server that accepts requests; `None` if the history ends first.
    async fn server(&mut self) -> Option<Arc<Server>> {
        for _ in 0..10_000 {
            let n = self.rng.random_range(0..self.place.servers.len());
            if self.place.servers[n].is_up() {
                return Some(self.place.servers[n].clone());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    fn saw(&mut self, key: Key, found: Option<Found>) {
        match found {
            Some(found) => {
                self.newest = self.newest.max(found.revision);
                self.known.insert(key, found.revision);
            }
            None => _ = self.known.remove(&key),
        }
    }

    /// Sends a read; `None` if it failed, which has no effect.
    async fn read(&mut self, server: &Server, path: &str) -> Option<(StatusCode, Value)> {
        match server.ask(&Method::GET, path, "", &Value::Null).await {
            Answer::Response(code, body)
                if code == StatusCode::OK || code == StatusCode::NOT_FOUND =>
            {
                self.record.note("reads answered");
                Some((code, body))
            }
            Answer::Response(code, _) => {
                assert!(is_refusal(code), "{code} for GET {path}");
                self.record.note("reads refused");
                None
            }
            Answer::Cut => {
                self.record.note("reads cut");
                None
            }
        }
    }

    async fn get(&mut self, server: &Server, key: Key) {
        let began = self.record.moment();
        let Some((_, body)) = self.read(server, &self.place.path_of(key)).await else { return };
        let found = self.place.read(&body).map(|(_, found)| found);
        let call = Call::Read { found: BTreeMap::from([(key, found)]), revision: None };
        self.record.call(call, began, true);
        self.saw(key, found);
    }

    /// A get that may be served from an old state, or from one not older than a revision.
    async fn get_weakly(&mut self, server: &Server, key: Key) {
        let at_least = if self.rng.random() { self.newest } else { 0 };
        let path = format!("{}?resourceVersion={at_least}", self.place.path_of(key));
        let Some((_, body)) = self.read(server, &path).await else { return };
        let found = self.place.read(&body).into_iter().collect();
        let asked = vec![key];
        self.record.weak(WeakRead { asked, found, revision: None, at_least, exactly: None });
    }

    fn keys_in(namespace: Option<u8>) -> Vec<Key> {
        let is_in = |key: &Key| namespace.is_none_or(|namespace| namespace == key.0);
        Place::keys().into_iter().filter(is_in).collect()
    }

    fn items(&self, list: &Value) -> BTreeMap<Key, Found> {
        let items = list["items"].as_array().unwrap();
        items.iter().filter_map(|item| self.place.read(item)).collect()
    }

    /// A list of the newest state.
    async fn list(&mut self, server: &Server, namespace: Option<u8>) {
        let began = self.record.moment();
        let Some((_, list)) = self.read(server, &self.place.path(namespace)).await else { return };
        let items = self.items(&list);
        self.listed(namespace, &items, revision(&list).unwrap(), began, self.record.moment());
    }

    /// A list of the newest state, whose later pages are of an older state.
    async fn list_in_pages(&mut self, server: &Server, namespace: Option<u8>) {
        let began = self.record.moment();
        let path = format!("{}?limit={PAGE}", self.place.path(namespace));
        let Some((_, mut page)) = self.read(server, &path).await else { return };
        let ended = self.record.moment();
        let at = revision(&page).unwrap();
        let mut items = self.items(&page);
        while let Some(token) = page["metadata"]["continue"].as_str() {
            let next = format!("{path}&continue={token}");
            let Some((_, next)) = self.read(server, &next).await else { return };
            assert_eq!(revision(&next), Some(at), "the revision of a later page");
            let n = items.len();
            let more = self.items(&next);
            items.extend(&more);
            assert_eq!(items.len(), n + more.len(), "an object on two pages");
            page = next;
        }
        self.record.note("lists in pages");
        self.listed(namespace, &items, at, began, ended);
    }

    fn listed(
        &mut self,
        namespace: Option<u8>,
        items: &BTreeMap<Key, Found>,
        at: u64,
        began: u64,
        ended: u64,
    ) {
        let found: BTreeMap<Key, Option<Found>> = Self::keys_in(namespace)
            .into_iter()
            .map(|key| (key, items.get(&key).copied()))
            .collect();
        found.iter().for_each(|(key, found)| self.saw(*key, *found));
        self.newest = self.newest.max(at);
        self.record.call_until(Call::Read { found, revision: Some(at) }, began, ended);
    }

    /// A list of an old state, of at least a revision, or of exactly one.
    async fn list_weakly(&mut self, server: &Server, namespace: Option<u8>) {
        let n = self.newest;
        let (at_least, exactly, query) = match self.rng.random_range(0..3) {
            1 if n > 0 => (n, None, format!("{n}&resourceVersionMatch=NotOlderThan")),
            2 if n > 0 => (n, Some(n), format!("{n}&resourceVersionMatch=Exact")),
            _ => (0, None, "0".into()),
        };
        let path = format!("{}?resourceVersion={query}", self.place.path(namespace));
        let Some((_, list)) = self.read(server, &path).await else { return };
        let (asked, found) = (Self::keys_in(namespace), self.items(&list));
        let revision = revision(&list);
        self.record.weak(WeakRead { asked, found, revision, at_least, exactly });
    }

    /// Sends a write and records its outcome.
    async fn write(
        &mut self,
        server: &Server,
        (method, path, kind, body): (Method, String, &str, Value),
        (key, guard, value): (Key, Guard, Option<u32>),
    ) {
        let began = self.record.moment();
        let answer = server.ask(&method, &path, kind, &body).await;
        let write = |revision| Call::Write { key, guard, value, revision };
        let (code, body) = match answer {
            Answer::Response(code, body) => (code, body),
            Answer::Cut => {
                self.record.note("writes cut");
                return self.record.call(write(None), began, false);
            }
        };
        let reason = body["reason"].as_str().unwrap_or_default();
        let absent = || Call::Read { found: BTreeMap::from([(key, None)]), revision: None };
        let call = match (code.as_u16(), reason) {
            (200 | 201, _) => {
                self.record.note("writes answered");
                let told = value.is_some().then(|| self.place.read(&body).expect("the object"));
                if let Some((told, found)) = told {
                    assert_eq!((told, Some(found.value)), (key, value), "{method} {path}: {body}");
                }
                self.saw(key, told.map(|(_, found)| found));
                write(told.map(|(_, found)| found.revision))
            }
            (404, "NotFound") => absent(),
            (409, "AlreadyExists") => Call::Exists(key),
            (409, "Conflict") => match guard {
                Guard::At(expected) => Call::Moved(key, expected),
                // It lost too many races.
                Guard::Absent | Guard::Present => Call::Nothing(value),
            },
            // The store reported that the write did not happen.
            (503 | 429, _) => {
                self.record.note("writes refused");
                Call::Nothing(value)
            }
            (504 | 500, _) => {
                self.record.note("writes whose answer was lost");
                return self.record.call(write(None), began, false);
            }
            _ => panic!("{method} {path}: {code} {body}"),
        };
        self.record.call(call, began, true);
    }

    fn map(&self, key: Key, at: Option<u64>, value: u32) -> Value {
        let name = format!("{}{}", self.place.prefix, key.1);
        let mut map = json!({"metadata": {"name": name}, "data": {"v": value.to_string()}});
        if let Some(at) = at {
            map["metadata"]["resourceVersion"] = at.to_string().into();
        }
        map
    }

    async fn create(&mut self, server: &Server, key: Key) {
        let value = self.record.value();
        let request =
            (Method::POST, self.place.path(Some(key.0)), JSON, self.map(key, None, value));
        self.write(server, request, (key, Guard::Absent, Some(value))).await;
    }

    /// An update of the revision it knows, or of one that the object never had; a create if it
    /// knows none.
    async fn swap(&mut self, server: &Server, key: Key) {
        let known = self.known.get(&key).copied();
        let Some(at) = known else { return self.create(server, key).await };
        let at = if self.rng.random_bool(0.05) { at - 1 } else { at };
        let value = self.record.value();
        let request = (Method::PUT, self.place.path_of(key), JSON, self.map(key, Some(at), value));
        self.write(server, request, (key, Guard::At(at), Some(value))).await;
    }

    /// An update of any existing state.
    async fn overwrite(&mut self, server: &Server, key: Key) {
        let value = self.record.value();
        let (method, kind) =
            if self.rng.random() { (Method::PUT, JSON) } else { (Method::PATCH, MERGE_PATCH) };
        let request = (method, self.place.path_of(key), kind, self.map(key, None, value));
        self.write(server, request, (key, Guard::Present, Some(value))).await;
    }

    async fn delete(&mut self, server: &Server, key: Key) {
        let known = self.known.get(&key).copied().filter(|_| self.rng.random());
        let (guard, body) = match known {
            Some(at) => {
                let only = json!({"resourceVersion": at.to_string()});
                let kind = "DeleteOptions";
                (Guard::At(at), json!({"apiVersion": "v1", "kind": kind, "preconditions": only}))
            }
            None => (Guard::Present, Value::Null),
        };
        let request = (Method::DELETE, self.place.path_of(key), JSON, body);
        self.write(server, request, (key, guard, None)).await;
    }
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Responses of a server that cannot serve the request now, or any more.
fn is_refusal(code: StatusCode) -> bool {
    code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS || code == StatusCode::GONE
}
