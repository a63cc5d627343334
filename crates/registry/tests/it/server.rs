//! A registry over a memory store, addressed by URL as a client would.
use crate::slow::SlowStore;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{
    Attributes, Body, DeleteOptions, Deleted, Format, Identity, ListOptions, PatchType, Registry,
    RegistryBuilder, Requested, Subresource, Target, Verb, WriteOptions, Written,
};
use setpoint_store::{MemoryStore, Store, memory::MemoryOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The registry, its store and the worker task.
pub(crate) struct Server {
    pub(crate) registry: Registry,
    pub(crate) store: Arc<MemoryStore>,
    /// The user of the requests.
    pub(crate) identity: Identity,
    pub(crate) user_agent: String,
    warnings: Mutex<Vec<String>>,
    tasks: JoinSet<Result<(), ApiError>>,
    stop: CancellationToken,
}
/// 2026-11-20T07:00:00Z.
const START: u64 = 1_795_158_000;

impl Server {
    pub(crate) async fn start() -> Self {
        Self::over(Arc::new(MemoryStore::new(MemoryOptions::default()))).await
    }
    /// A registry over a store that may contain objects.
    pub(crate) async fn over(store: Arc<MemoryStore>) -> Self {
        Self::over_with(store, 7).await
    }
    /// Another registry over the same store.
    pub(crate) async fn joining(other: &Self, seed: u64) -> Self {
        Self::over_with(other.store.clone(), seed).await
    }
    pub(crate) async fn over_with(store: Arc<MemoryStore>, seed: u64) -> Self {
        Self::on(store.clone(), store, seed).await
    }
    /// Another registry over the same store, with slow answers.
    pub(crate) async fn slow(&self, seed: u64) -> Self {
        let slow = Arc::new(SlowStore::new(MemoryStore::clone(&self.store), seed));
        Self::on(slow, self.store.clone(), seed).await
    }
    /// A registry that uses another store than the tests do.
    pub(crate) async fn on(seen: Arc<dyn Store>, store: Arc<MemoryStore>, seed: u64) -> Self {
        Self::configured(seen, store, |builder| builder.seed(seed)).await
    }
    /// A registry from a builder; without a seed unless one is given.
    pub(crate) async fn configured(
        seen: Arc<dyn Store>,
        store: Arc<MemoryStore>,
        configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
    ) -> Self {
        let clock = Clock::starting_at(Timestamp(Duration::from_secs(START)));
        let (registry, worker) = configure(Registry::builder(seen, clock)).build();
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        tasks.spawn(worker.run(stop.clone()));
        let mut ready = registry.ready();
        tokio::select! {
            ready = ready.wait_for(|ready| *ready) => { ready.expect("the registry lives"); }
            ended = tasks.join_next() => panic!("the worker ended: {ended:?}"),
        }
        Self {
            registry,
            store,
            identity: Identity::new("alice", []),
            user_agent: "test/1".to_owned(),
            warnings: Mutex::default(),
            tasks,
            stop,
        }
    }
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no panic").expect("a clean end");
        }
    }
    /// The target of a path: `/api/v1/namespaces/default/pods/x/status`.
    pub(crate) fn target(&self, path: &str) -> Target {
        let mut segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let group = if segments.remove(0) == "api" { "" } else { segments.remove(0) };
        let version = segments.remove(0);
        let mut namespace = String::new();
        if segments[0] == "namespaces"
            && segments.len() > 2
            && !matches!(segments[2], "status" | "finalize")
        {
            namespace = segments[1].to_owned();
            segments.drain(..2);
        }
        let catalog = self.registry.catalog();
        let resource = catalog
            .get(group, version, segments[0])
            .unwrap_or_else(|| panic!("{path} is not served"));
        let segment = |i: usize| segments.get(i).copied().unwrap_or_default().to_owned();
        let subresource = Subresource::of(&segment(2));
        Target { resource: resource.clone(), namespace, name: segment(1), subresource }
    }
    /// A request on the target of a path.
    pub(crate) fn request(&self, verb: Verb, path: &str) -> Attributes {
        let requested = Requested::Resource(self.target(path));
        Attributes {
            user_agent: self.user_agent.clone(),
            ..Attributes::new(self.identity.clone(), verb, requested)
        }
    }
    /// Stores a request's warnings for [`Server::warnings`].
    fn note(&self, request: &Attributes) {
        self.warnings.lock().unwrap().extend(request.warnings());
    }
    pub(crate) async fn create(&self, path: &str, object: Value) -> Result<Value, ApiError> {
        self.create_with(path, object, &WriteOptions::default()).await
    }
    pub(crate) async fn create_with(
        &self,
        path: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let request = self.request(Verb::Create, path);
        let result = self.registry.create(&request, body(&object), options).await;
        self.note(&request);
        result.map(written)
    }
    pub(crate) async fn create_text(&self, path: &str, text: &str) -> Result<Value, ApiError> {
        let body = Body { bytes: Bytes::from(text.to_owned()), format: Format::Json };
        let (request, options) = (self.request(Verb::Create, path), WriteOptions::default());
        let result = self.registry.create(&request, body, &options).await;
        self.note(&request);
        result.map(written)
    }
    pub(crate) async fn update(&self, path: &str, object: Value) -> Result<Value, ApiError> {
        self.update_bytes(path, body(&object).bytes).await
    }
    pub(crate) async fn update_bytes(&self, path: &str, bytes: Bytes) -> Result<Value, ApiError> {
        let (request, options) = (self.request(Verb::Update, path), WriteOptions::default());
        let body = Body { bytes, format: Format::Json };
        let result = self.registry.update(&request, body, &options).await;
        self.note(&request);
        result.map(written)
    }
    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, patch: Value) -> Result<Value, ApiError> {
        self.patch_with(path, PatchType::Merge, patch, &WriteOptions::default()).await
    }
    pub(crate) async fn patch_with(
        &self,
        path: &str,
        kind: PatchType,
        patch: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        self.patch_bytes(path, kind, body(&patch).bytes, options).await
    }
    pub(crate) async fn patch_bytes(
        &self,
        path: &str,
        kind: PatchType,
        bytes: Bytes,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let request = self.request(Verb::Patch, path);
        let body = Body { bytes, format: Format::Json };
        let result = self.registry.patch(&request, kind, body, options).await;
        self.note(&request);
        result.map(written)
    }
    /// A server-side apply.
    pub(crate) async fn apply(
        &self,
        path: &str,
        manager: &str,
        config: Value,
    ) -> Result<Value, ApiError> {
        let options = WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::default() };
        self.patch_with(path, PatchType::Apply, config, &options).await
    }
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let found = self.registry.get(&self.request(Verb::Get, path), "").await?;
        Ok(serde_json::from_slice(&found.bytes).expect("JSON"))
    }
    pub(crate) async fn delete(&self, path: &str) -> Result<Option<Value>, ApiError> {
        self.delete_with(path, &DeleteOptions::default()).await
    }
    /// The object, if the answer is one.
    pub(crate) async fn delete_with(
        &self,
        path: &str,
        options: &DeleteOptions,
    ) -> Result<Option<Value>, ApiError> {
        let request = self.request(Verb::Delete, path);
        let deleted = self.registry.delete(&request, options).await;
        self.note(&request);
        Ok(match deleted? {
            Deleted::Object { object, .. } => {
                Some(serde_json::from_slice(&object.bytes).expect("JSON"))
            }
            Deleted::Gone { .. } | Deleted::Unread => None,
        })
    }
    pub(crate) async fn delete_collection(&self, path: &str) -> Result<usize, ApiError> {
        let (list, options) = (ListOptions::default(), DeleteOptions::default());
        let request = self.request(Verb::DeleteCollection, path);
        let deleted = self.registry.delete_collection(&request, &list, &options).await;
        self.note(&request);
        let deleted = deleted?;
        Ok(deleted.items.len())
    }
    /// The store's revision: increases with every write that changes something.
    pub(crate) async fn revision(&self) -> u64 {
        self.store.revision().await.expect("a revision").0
    }
    pub(crate) fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap())
    }
}
fn written(written: Written) -> Value {
    serde_json::from_slice(&written.object.bytes).expect("JSON")
}
fn body(object: &Value) -> Body {
    Body { bytes: Bytes::from(object.to_string()), format: Format::Json }
}
/// The message of a refused request, with the fields of its causes.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
    let error = result.expect_err("a refusal");
    format!("{} {}", error.code(), error.0.message)
}
