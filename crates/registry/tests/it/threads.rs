//! Long writes run on threads that may block; the others on the serving thread.
use crate::definitions::{define, definition};
use crate::server::Server;
use base64::Engine as _;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupKind};
use setpoint_registry::{
    Admission, Conversion, ConversionError, ConversionProvider, ConversionRequest, DeleteOptions,
    EventKind, ListOptions, PatchType, RegistryBuilder, Review, Verb, WebhookCaller, WebhookClient,
    WebhookClients, WebhookError, WriteOptions,
};
use setpoint_spans::SpanContext;
use setpoint_store::MemoryStore;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";

/// Records the threads that validating admission runs on, and adds a warning.
#[derive(Debug, Default)]
struct Witness(Mutex<Vec<ThreadId>>);
impl Admission for Witness {
    fn name(&self) -> &str {
        "Witness"
    }
    fn handles(&self, _: &Review<'_>) -> bool {
        true
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            self.0.lock().unwrap().push(thread::current().id());
            review.attributes().warn("witnessed");
            Ok(())
        }
        .boxed()
    }
}
impl Witness {
    /// Whether all calls since the last check ran on the caller's thread.
    fn saw_here(&self) -> bool {
        let seen = std::mem::take(&mut *self.0.lock().unwrap());
        let here = seen.iter().filter(|id| **id == thread::current().id()).count();
        assert!(here == 0 || here == seen.len(), "a turn is made in one place");
        assert!(!seen.is_empty(), "the plugin is asked");
        here > 0
    }
}

async fn server(
    configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
) -> (Server, Arc<Witness>) {
    let witness = Arc::new(Witness::default());
    let store = Arc::new(MemoryStore::default());
    let plugin = witness.clone();
    let server = Server::configured(store.clone(), store, |b| configure(b).admission(plugin)).await;
    witness.0.lock().unwrap().clear();
    (server, witness)
}
fn map(name: &str, n_bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(n_bytes)}})
}

#[tokio::test]
async fn a_write_with_a_large_body_or_a_large_stored_object_runs_on_another_thread() {
    let (server, witness) = server(|builder| builder).await;
    server.create(MAPS, map("small", 100)).await.unwrap();
    assert!(witness.saw_here());
    server.patch(&format!("{MAPS}/small"), json!({"data": {"more": "1"}})).await.unwrap();
    assert!(witness.saw_here());

    let large = format!("{MAPS}/large");
    server.create(MAPS, map("large", 100 << 10)).await.unwrap();
    assert!(!witness.saw_here());
    assert_eq!(server.warnings(), ["witnessed", "witnessed", "witnessed"]);
    // The stored object is large, not the patch.
    let patched = server.patch(&large, json!({"data": {"more": "1"}})).await.unwrap();
    assert!(!witness.saw_here());
    assert_eq!(patched["data"]["more"], "1");
    server
        .apply(
            &large,
            "alice",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}),
        )
        .await
        .unwrap();
    assert!(!witness.saw_here());
    server.update(&large, map("large", 70 << 10)).await.unwrap();
    assert!(!witness.saw_here());
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    server.delete_with(&large, &dry).await.unwrap();
    assert!(!witness.saw_here());
    server.delete(&large).await.unwrap();
    assert!(!witness.saw_here());
    server.delete(&format!("{MAPS}/small")).await.unwrap();
    assert!(witness.saw_here());
    server.stop().await;
}

#[tokio::test]
async fn a_write_of_many_small_values_runs_on_another_thread() {
    let (server, witness) = server(|builder| builder).await;
    let map = |name: &str, n: usize| {
        let data: serde_json::Map<_, _> = (0..n).map(|n| (n.to_string(), json!("x"))).collect();
        json!({"metadata": {"name": name}, "data": data})
    };
    server.create(MAPS, map("few", 500)).await.unwrap();
    assert!(witness.saw_here());
    server.create(MAPS, map("many", 2000)).await.unwrap();
    assert!(!witness.saw_here());
    server.stop().await;
}

#[tokio::test]
async fn writes_of_a_costly_type_run_on_another_thread_whatever_their_size() {
    let (server, witness) = server(|builder| builder).await;
    let spec = |field: Value| json!({"spec": {"type": "object", "properties": {"a": field}}});
    define(&server, definition("foos", "Foo", spec(json!({"type": "string", "pattern": "^a+$"}))))
        .await;
    define(&server, definition("bars", "Bar", spec(json!({"type": "string"})))).await;
    witness.0.lock().unwrap().clear();
    let object = |kind: &str, a: &str| json!({"apiVersion": "ex.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"a": a}});
    server.create(FOOS, object("Foo", "aa")).await.unwrap();
    assert!(!witness.saw_here());
    // Refusals come from those threads too.
    let refused = server.patch(&format!("{FOOS}/x"), json!({"spec": {"a": "b"}})).await;
    assert_eq!(refused.unwrap_err().code(), 422);
    server.create("/apis/ex.io/v1/namespaces/default/bars", object("Bar", "b")).await.unwrap();
    assert!(witness.saw_here());
    server.stop().await;
}

#[tokio::test]
async fn a_large_schema_is_compiled_on_another_thread_by_the_first_request_that_needs_it() {
    let (server, witness) = server(|builder| builder).await;
    let fields: serde_json::Map<String, Value> = (0..1500)
        .map(|n| (format!("field{n}"), json!({"type": "string", "description": "x".repeat(40)})))
        .collect();
    let properties = json!({"spec": {"type": "object", "properties": fields}});
    define(&server, definition("foos", "Foo", properties)).await;
    witness.0.lock().unwrap().clear();
    let object =
        |name: &str| json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name}});
    server.create(FOOS, object("first")).await.unwrap();
    assert!(!witness.saw_here());
    server.create(FOOS, object("second")).await.unwrap();
    assert!(witness.saw_here());
    server.stop().await;
}

#[tokio::test]
async fn a_registry_with_a_seed_uses_one_thread() {
    let (server, witness) = server(|builder| builder.seed(1)).await;
    server.create(MAPS, map("large", 100 << 10)).await.unwrap();
    assert!(witness.saw_here());
    server.stop().await;
}

#[tokio::test]
async fn a_deletecollection_uses_another_thread_for_large_objects_only() {
    let (server, witness) = server(|builder| builder).await;
    server.create(MAPS, map("large", 100 << 10)).await.unwrap();
    server.create(MAPS, map("small", 100)).await.unwrap();
    witness.0.lock().unwrap().clear();
    assert_eq!(server.delete_collection(MAPS).await.unwrap(), 2);
    let here = thread::current().id();
    let mut places: Vec<bool> = witness.0.lock().unwrap().iter().map(|id| *id == here).collect();
    // Both are in progress at the same time.
    places.sort_unstable();
    assert_eq!(places, [false, true]);
    let request = server.request(Verb::List, MAPS);
    let left = server.registry.list(&request, &ListOptions::default()).await;
    assert!(left.unwrap().items.is_empty());
    server.stop().await;
}

/// A webhook that gives each object the next patch, and records the names of those it has seen.
#[derive(Debug, Clone, Default)]
struct Patches(Arc<Mutex<(Vec<Value>, Vec<String>)>>);
impl WebhookClients for Patches {
    fn client(&self, _: WebhookCaller, _: &Value) -> Arc<dyn WebhookClient> {
        Arc::new(self.clone())
    }
}
impl WebhookClient for Patches {
    fn call(
        &self,
        review: Bytes,
        _: Duration,
        _: Option<SpanContext>,
    ) -> BoxFuture<'static, Result<Bytes, WebhookError>> {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let mut state = self.0.lock().unwrap();
        state.1.push(review["request"]["name"].as_str().unwrap_or_default().to_owned());
        let patch = base64::engine::general_purpose::STANDARD.encode(state.0.remove(0).to_string());
        let response = json!({
            "uid": review["request"]["uid"], "allowed": true,
            "patch": patch, "patchType": "JSONPatch",
        });
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
        });
        futures::future::ready(Ok(answer.to_string().into())).boxed()
    }
}

#[tokio::test]
async fn a_write_goes_on_on_another_thread_when_a_webhook_has_made_its_object_large() {
    let webhook = Patches::default();
    let (server, witness) = server(|builder| builder.webhooks(Arc::new(webhook.clone()))).await;
    let configuration = json!({
        "metadata": {"name": "c"},
        "webhooks": [{
            "name": "w.ex.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://localhost/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
        }],
    });
    let kinds = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    server.create(kinds, configuration).await.unwrap();
    let request = server.request(Verb::List, MAPS);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
    witness.0.lock().unwrap().clear();

    let add = |n: usize| json!([{"op": "add", "path": "/data/more", "value": "x".repeat(n)}]);
    // Short, but each operation doubles what is there.
    let double = |n: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")});
    let copies: Value = (0..2).map(double).collect();
    let twice = json!([
        {"op": "copy", "from": "/data/text", "path": "/data/a"},
        {"op": "copy", "from": "/data/text", "path": "/data/b"},
    ]);
    let patches = [add(100), add(100 << 10), twice, add(100 << 10), copies];
    webhook.0.lock().unwrap().0 = patches.to_vec();
    server.create(MAPS, map("small", 100)).await.unwrap();
    assert!(witness.saw_here());
    let grown = server.create(MAPS, map("grown", 100)).await.unwrap();
    assert_eq!(grown["data"]["more"].as_str().map(str::len), Some(100 << 10));
    assert!(!witness.saw_here());
    let copied = server.create(MAPS, map("copied", 40 << 10)).await.unwrap();
    assert_eq!(copied["data"]["b"].as_str().map(str::len), Some(40 << 10));
    assert!(!witness.saw_here());
    server.patch(&format!("{MAPS}/small"), json!({"data": {"a": "1"}})).await.unwrap();
    assert!(!witness.saw_here());
    // Refusals come from there too.
    let refused = server.create(MAPS, map("refused", 100)).await.unwrap_err();
    assert_eq!(refused.code(), 500);
    // With that of the configuration.
    assert_eq!(server.warnings(), ["witnessed"; 5]);
    let seen = webhook.0.lock().unwrap().1.clone();
    assert_eq!(seen, ["small", "grown", "copied", "small", "refused"], "each is called once");
    server.stop().await;
}

#[tokio::test]
async fn a_json_patch_that_copies_runs_on_another_thread() {
    let (server, witness) = server(|builder| builder).await;
    server.create(MAPS, map("a", 100)).await.unwrap();
    assert!(witness.saw_here());
    let path = format!("{MAPS}/a");
    let patch = async |operation: Value| {
        let options = WriteOptions::default();
        let patch = json!([operation]);
        server.patch_with(&path, PatchType::Json, patch, &options).await.unwrap();
        witness.saw_here()
    };
    assert!(patch(json!({"op": "add", "path": "/data/b", "value": "1"})).await);
    assert!(!patch(json!({"op": "copy", "from": "/data/text", "path": "/data/c"})).await);
    server.stop().await;
}

/// A conversion that makes small objects large.
#[derive(Debug)]
struct Inflates;
impl ConversionProvider for Inflates {
    fn conversion(&self, _: &GroupKind, _: &Value) -> Option<Arc<dyn Conversion>> {
        Some(Arc::new(Self))
    }
}
impl Conversion for Inflates {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        let convert = |object: &Bytes| {
            let mut object: Value = serde_json::from_slice(object).unwrap();
            object["apiVersion"] = request.api_version.clone().into();
            let n_bytes = if request.api_version == "ex.io/v1" { 10 } else { 100 << 10 };
            object["spec"]["a"] = "x".repeat(n_bytes).into();
            Bytes::from(object.to_string())
        };
        let converted = request.objects.iter().map(convert).collect();
        futures::future::ready(Ok(converted)).boxed()
    }
}

#[tokio::test]
async fn a_write_goes_on_on_another_thread_when_a_conversion_has_made_its_object_large() {
    let (server, witness) = server(|builder| builder.converter(Arc::new(Inflates))).await;
    let mut foos = two_versions();
    foos["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://localhost/"}, "conversionReviewVersions": ["v1"]}});
    define(&server, foos).await;
    witness.0.lock().unwrap().clear();
    let object =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "x"}, "spec": {}});
    server.create(FOOS, object).await.unwrap();
    assert!(witness.saw_here());
    let path = "/apis/ex.io/v2/namespaces/default/foos/x";
    server.patch(path, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    assert!(!witness.saw_here());
    server.stop().await;
}

/// Two versions of a kind that differ in their names only.
fn two_versions() -> Value {
    let spec = json!({"spec": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let mut foos = definition("foos", "Foo", spec);
    let versions = foos["spec"]["versions"].as_array_mut().unwrap();
    let mut other = versions[0].clone();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    versions.push(other);
    foos
}

#[test]
fn long_objects_are_listed_and_watched_in_another_version_on_another_thread() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (server, _) = server(|builder| builder).await;
        define(&server, two_versions()).await;
        let object = |name: &str, n_bytes: usize| {
            json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name},
                "spec": {"a": "x".repeat(n_bytes)}})
        };
        server.create(FOOS, object("a", 10)).await.unwrap();
        server.create(FOOS, object("b", 100 << 10)).await.unwrap();

        let all = ListOptions::default();
        let path = "/apis/ex.io/v2/namespaces/default/foos";
        let (list, watch) = (server.request(Verb::List, path), server.request(Verb::Watch, path));
        let get = server.request(Verb::Get, &format!("{path}/b"));
        let mut events = server.registry.watch(&watch, &all).await.unwrap();
        // The only other thread is busy at first.
        let (busy, wait) = std::sync::mpsc::channel::<()>();
        let ended = tokio::task::spawn_blocking(move || wait.recv());
        let version = |event: &[u8]| -> Value {
            let mut object: Value = serde_json::from_slice(event).unwrap();
            object["apiVersion"].take()
        };
        let small = events.next().await.unwrap().unwrap();
        assert_eq!(version(&small.object()), "ex.io/v2");
        let mut reading = Box::pin(async {
            let listed = server.registry.list(&list, &all).await.unwrap();
            let read = server.registry.get(&get, "").await.unwrap();
            (listed.items.len(), version(&read.bytes))
        });
        for _ in 0..10 {
            assert!(futures::poll!(events.next()).is_pending());
            assert!(futures::poll!(&mut reading).is_pending());
            tokio::task::yield_now().await;
        }
        drop(busy);
        let large = events.next().await.unwrap().unwrap();
        assert_eq!(version(&large.object()), "ex.io/v2");
        assert_eq!(reading.await, (2, json!("ex.io/v2")));
        // What happens later comes after it.
        server.delete(&format!("{FOOS}/b")).await.unwrap();
        let gone = events.next().await.unwrap().unwrap();
        assert_eq!((gone.kind, version(&gone.object())), (EventKind::Deleted, json!("ex.io/v2")));
        assert!(ended.await.unwrap().is_err());
        server.stop().await;
    });
}

/// A thread that serves looked through a long object, and copied it, for each of its events.
#[tokio::test]
async fn events_of_long_objects_share_the_bytes_of_the_store() {
    let (server, _) = server(|builder| builder).await;
    define(&server, two_versions()).await;
    let object = |n: usize| {
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"},
            "data": "y".repeat(n), "spec": {"a": "x".repeat(n)}})
    };
    let path = FOOS;
    let watch = server.request(Verb::Watch, path);
    let mut events = server.registry.watch(&watch, &ListOptions::default()).await.unwrap();
    server.create(FOOS, object(1 << 20)).await.unwrap();
    server.delete(&format!("{FOOS}/a")).await.unwrap();
    for kind in [EventKind::Added, EventKind::Deleted] {
        let event = events.next().await.unwrap().unwrap();
        assert!(event.kind == kind && event.is_long());
        let pieces = event.frame_pieces().unwrap().concat();
        assert!(!event.has_frame(), "nothing was copied");
        assert_eq!(event.frame(), pieces);
        let frame: Value = serde_json::from_slice(&pieces).unwrap();
        let version = &frame["object"]["metadata"]["resourceVersion"];
        assert_eq!(*version, event.revision.to_string());
    }
    // A short one is copied: a piece costs more.
    server.create(FOOS, object(10)).await.unwrap();
    assert!(!events.next().await.unwrap().unwrap().is_long());
}
