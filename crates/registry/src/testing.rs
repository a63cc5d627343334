//! A registry over a memory store. Tests write stored objects directly, without the write path.
use crate::request::ListOptions;
use crate::routed::{Attributes, Target};
use crate::shared::{Inner, Registry};
use crate::verb::Verb;
use crate::watch::{EventKind, WatchStream};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{Committed, MemoryStore, Op, Store, Txn};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A registry with a running cache.
pub(crate) struct Bench {
    pub(crate) registry: Registry,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<Result<(), ApiError>>,
}
impl Bench {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default())).await
    }
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        let bench = Self::idle(store);
        let bench = bench.run();
        bench.inner().cache.wait_until(1).await;
        bench
    }
    /// A registry whose cache is not started.
    pub(crate) fn idle(store: Arc<dyn Store>) -> Self {
        Self::idle_replaying(store, 0)
    }
    /// A registry whose cache is not started and will begin `n` revisions ago.
    pub(crate) fn idle_replaying(store: Arc<dyn Store>, n: u64) -> Self {
        let clock = Clock::starting_at(Timestamp::from_secs(1_700_000_000));
        let builder = Registry::builder(store.clone(), clock).seed(7).replayed_revisions(n);
        let (registry, _worker) = builder.build();
        Self { registry, store, stop: CancellationToken::new(), tasks: JoinSet::new() }
    }
    pub(crate) fn run(mut self) -> Self {
        let (inner, stop) = (self.registry.inner.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            inner.cache.run(&inner.store, inner.replayed_revisions, &inner.threads, stop).await
        });
        self
    }
    pub(crate) fn inner(&self) -> &Inner {
        &self.registry.inner
    }

    /// Writes an object in its stored form; returns the revision.
    pub(crate) async fn put(&self, key: &str, object: &Value) -> u64 {
        self.commit(vec![Op::Put(format!("/registry/{key}").into(), to_bytes(object))]).await
    }
    pub(crate) async fn delete(&self, key: &str) -> u64 {
        self.commit(vec![Op::Delete(format!("/registry/{key}").into())]).await
    }
    pub(crate) async fn commit(&self, ops: Vec<Op>) -> u64 {
        match self.store.commit(Txn { ops, ..Txn::default() }).await.unwrap() {
            Committed::Done(revision) => revision.0,
            Committed::Refused { .. } => unreachable!("nothing was compared"),
        }
    }
    /// Waits until the cache has reached the store's revision.
    pub(crate) async fn settle(&self) -> u64 {
        let revision = self.store.revision().await.unwrap().0;
        self.inner().cache.wait_until(revision).await;
        revision
    }

    pub(crate) fn target(&self, path: &str) -> Target {
        let (gv, rest) = path.split_once('/').unwrap();
        let (resource, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (namespace, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (group, version) = gv.split_once(':').unwrap_or(("", gv));
        let catalog = self.registry.catalog();
        let resource = catalog.get(group, version, resource).unwrap().clone();
        let (namespace, name) =
            if resource.scope.is_namespaced() { (namespace, name) } else { ("", namespace) };
        Target {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
        }
    }
    /// A request of the server itself.
    pub(crate) fn request(&self, verb: Verb, path: &str) -> Attributes {
        Attributes::loopback(verb, self.target(path))
    }
    pub(crate) async fn watch(
        &self,
        path: &str,
        options: ListOptions,
    ) -> Result<WatchStream, ApiError> {
        self.registry.watch(&self.request(Verb::Watch, path), &options).await
    }
    /// A page as `name@revision …`, the list's revision, and the rest of its metadata.
    pub(crate) async fn list(&self, path: &str, options: ListOptions) -> Result<String, ApiError> {
        let list = self.registry.list(&self.request(Verb::List, path), &options).await?;
        let items: Vec<_> = list.items.iter().map(|item| show(&item.bytes())).collect();
        let mut text = format!("{} · at {}", items.join(" "), list.revision);
        if let Some(remaining) = list.remaining {
            text.push_str(&format!(" · {remaining} remain"));
        }
        if !list.continue_token.is_empty() {
            text.push_str(" · more");
        }
        Ok(text)
    }
}

/// `name@resourceVersion`.
fn show(object: &[u8]) -> String {
    let tree: Value = serde_json::from_slice(object).unwrap();
    let note = tree["data"]["v"].as_str().map(|v| format!("={v}")).unwrap_or_default();
    format!("{}@{}{note}", tree.name(), tree.resource_version())
}

pub(crate) fn config_map(name: &str, labels: Value, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"v": value}})
}

/// Options of a watch or list, in short.
pub(crate) fn options(text: &str) -> ListOptions {
    let mut options = ListOptions::default();
    for option in text.split_whitespace() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "rv" => options.resource_version = value.to_owned(),
            // A space in a selector is written `%`.
            "labels" => options.labels = Selector::parse(&value.replace('%', " ")).unwrap(),
            "fields" => options.fields = FieldSelector::parse(value).unwrap(),
            "limit" => options.limit = value.parse().unwrap(),
            "continue" => options.continue_token = value.to_owned(),
            "exact" => options.resource_version_match = Some(crate::VersionMatch::Exact),
            "fresh" => options.resource_version_match = Some(crate::VersionMatch::NotOlderThan),
            "match" => options.resource_version_match = Some(value.into()),
            "initial" => options.send_initial_events = Some(true),
            "silent" => options.send_initial_events = Some(false),
            "bookmarks" => options.allow_bookmarks = true,
            "timeout" => options.timeout = Some(Duration::from_secs(value.parse().unwrap())),
            _ => panic!("unknown option {name}"),
        }
    }
    options
}

/// All events that a stream has now, one word each: `+a@3=x ~a@4=y -a@5=y *7`, `end`, `error: …`.
pub(crate) async fn take(stream: &mut WatchStream) -> String {
    let mut words = Vec::new();
    // A stream may yield in between, and the cache must run: a few empty polls mean that there is
    // no more.
    let mut n_empty = 0;
    while n_empty < 8 {
        match stream.next().now_or_never() {
            None => {
                n_empty += 1;
                tokio::task::yield_now().await;
                continue;
            }
            Some(None) => {
                words.push("end".to_owned());
                break;
            }
            Some(Some(Err(error))) => words.push(format!("error: {error}")),
            Some(Some(Ok(event))) => {
                let sign = match event.kind {
                    EventKind::Added => "+",
                    EventKind::Modified => "~",
                    EventKind::Deleted => "-",
                    EventKind::Bookmark => "*",
                };
                let frame: Value = serde_json::from_slice(&event.frame()).unwrap();
                assert_eq!(frame["type"], event.kind.as_str());
                assert_eq!(frame["object"].resource_version(), event.revision.to_string());
                let text = show(&event.object());
                let ends = frame["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
                    .as_str()
                    .is_some();
                words.push(match event.kind {
                    EventKind::Bookmark if ends => format!("*{}!", event.revision),
                    EventKind::Bookmark => format!("*{}", event.revision),
                    _ => format!("{sign}{text}"),
                });
            }
        }
        n_empty = 0;
    }
    words.join(" ")
}
