//! Long writes run on threads that may block; the others on the serving thread.
use crate::definitions::{define, definition};
use crate::server::Server;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_registry::{Admission, DeleteOptions, ListOptions, RegistryBuilder, Review, Verb};
use setpoint_store::MemoryStore;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

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
