//! A registry over memory, for checks of what its admission reads.
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{
    Attributes, Body, Format, Registry, RegistryBuilder, Target, Verb, WriteOptions,
};
use setpoint_store::MemoryStore;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The group of what configures admission.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// Runs a registry while `act` uses it, on virtual time.
pub(crate) fn with_registry(
    build: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
    act: impl AsyncFnOnce(&Registry),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Clock::starting_at(Timestamp::from_secs(1_800_000_000));
        let builder = Registry::builder(Arc::new(MemoryStore::default()), clock).seed(1);
        let (registry, worker) = build(builder).build();
        let stop = CancellationToken::new();
        let acting = async {
            registry.wait_ready().await;
            act(&registry).await;
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(worker.run(stop.clone()), acting);
        ended.unwrap();
    });
}

/// Creates an object and returns it.
pub(crate) async fn create(
    registry: &Registry,
    (group, resource): (&str, &str),
    namespace: &str,
    object: impl Into<Bytes>,
) -> Result<Value, ApiError> {
    let row = registry.catalog().get(group, "v1", resource).unwrap().clone();
    let request = Attributes::loopback(Verb::Create, Target::new(row, namespace, ""));
    let body = Body { bytes: object.into(), format: Format::Json };
    let written = registry.create(&request, body, &WriteOptions::default()).await?;
    Ok(serde_json::from_slice(&written.object.bytes).unwrap())
}

/// Creates a ConfigMap, which the admission decides about.
pub(crate) async fn create_map(registry: &Registry) -> Result<Value, ApiError> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"team": "x"}}, "data": {"k": "v"},
    });
    create(registry, ("", "configmaps"), "default", map.to_string()).await
}
