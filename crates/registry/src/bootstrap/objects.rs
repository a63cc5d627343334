//! The objects of a fresh control plane: namespaces, priority classes, the `kubernetes` Service and
//! ServiceCIDR, the levels and schemas of flow control, and the APIServices of the built-in groups.
//!
//! They are stored here in the form that the write path would store, with placeholders for uid and
//! time, so that a fresh control plane costs some commits and no schema work. A test compares them
//! with the output of the write path. Existing objects are not changed at start. Authorization
//! creates RBAC roles; controllers create configuration maps, service accounts and endpoints.
//!
//! [`maintain`] creates again what Kubernetes would, once a minute, and restores the specs of flow
//! control objects that users have not taken over.
use crate::attributes::{Attributes, Target};
use crate::request::{Body, Format, WriteOptions};
use crate::shared::{Inner, Registry};
use crate::stored::{store_error, tree};
use crate::verb::Verb;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, encode, keys};
use setpoint_store::{At, Compare, Op, StoreError, Txn};
use std::ops::Bound;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One line per object: key, space, encoded object with `@uid` and `@now`, and with `@network` and
/// `@address` where it is about cluster addresses. In the order of creation.
const OBJECTS: &str = include_str!("objects.txt");
/// How many objects are read or written at the same time.
const AT_ONCE: usize = 32;
/// The period of [`maintain`]: a minute, as in kube-apiserver.
const PERIOD: Duration = Duration::from_secs(60);
/// Prefixes of the keys of objects that are created at start only. A later deletion is deliberate.
const ONLY_AT_START: [&str; 2] =
    ["/registry/apiregistration.k8s.io/", "/registry/priorityclasses/"];
/// Objects with placeholders for cluster addresses, by the beginning of their keys.
const ABOUT_ADDRESSES: [&str; 2] = [keys::SERVICES, "/registry/servicecidrs/"];
/// Flow control objects, by the beginning of their keys, and their resources.
const FLOW_CONTROL: [(&str, &str); 2] = [
    ("/registry/flowschemas/", "flowschemas"),
    ("/registry/prioritylevelconfigurations/", "prioritylevelconfigurations"),
];
const FLOW_CONTROL_GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The writer of flow control objects.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// Whether a flow control object follows the server's specs.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Flow control objects that always do, except for the shares of the level.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

fn objects() -> impl Iterator<Item = (&'static str, &'static str)> {
    OBJECTS.lines().filter_map(|line| line.split_once(' '))
}

/// Creates the missing objects.
pub(crate) async fn ensure(inner: &Inner) -> Result<(), ApiError> {
    create_missing(inner, objects().collect()).await
}

async fn create_missing(
    inner: &Inner,
    objects: Vec<(&'static str, &'static str)>,
) -> Result<(), ApiError> {
    // Together, so that a remote store answers many at once, and a durable one syncs many at once.
    let keys = objects.iter().map(|(key, _)| *key);
    let reads: Vec<_> = keys.map(|key| is_missing(inner, key)).collect();
    let missing: Vec<bool> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let now = inner.clock.now().rfc3339();
    let mut commits = Vec::new();
    for ((key, object), _) in objects.iter().zip(missing).filter(|(_, is_missing)| *is_missing) {
        let mut object = object.replace("@now", &now).replace("@uid", &inner.uid());
        if ABOUT_ADDRESSES.iter().any(|start| key.starts_with(start)) {
            let network = inner.allocator.network();
            object = object.replace("@network", &network.to_string());
            object = object.replace("@address", &network.first().to_string());
        }
        let key = Bytes::from_static(key.as_bytes());
        let mut txn = Txn { compares: vec![Compare::Absent(key.clone())], ..Txn::default() };
        if key.starts_with(keys::SERVICES.as_bytes()) {
            let claims = inner.allocator.claim_all(&tree(object.as_bytes())?, &inner.birth());
            txn.compares.extend(claims.compares);
            txn.ops.extend(claims.ops);
        }
        // Without the spare capacity of the replacements.
        txn.ops.push(Op::Put(key, object.into_bytes().into_boxed_slice().into()));
        // Refused: another server of the same store created it first, or has allocated the
        // Service's address. The object then stays missing; nothing in this crate needs it.
        commits.push(inner.store.commit(txn));
    }
    let done = stream::iter(commits).buffered(AT_ONCE);
    done.try_for_each(|_| std::future::ready(Ok(()))).await.map_err(store_error)
}

async fn is_missing(inner: &Inner, key: &'static str) -> Result<bool, ApiError> {
    match inner.store.get(&Bytes::from_static(key.as_bytes()), At::Latest).await {
        Ok(found) => Ok(found.value.is_none()),
        // It exists. A request for it returns the error.
        Err(error @ StoreError::Unreadable { .. }) => {
            tracing::warn!(%error, "an object of the control plane itself cannot be read");
            Ok(false)
        }
        Err(error) => Err(store_error(error)),
    }
}

/// Once a minute, creates what is missing and restores what the server owns. Failures are repeated
/// a minute later.
pub(crate) async fn maintain(
    registry: &Registry,
    stop: &CancellationToken,
) -> Result<(), ApiError> {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            // Cancel safe: a sleep holds no state.
            () = tokio::time::sleep(PERIOD) => {}
        }
        // Boxed, so that an idle registry holds no space for writes.
        Box::pin(maintain_once(registry)).await;
    }
}

async fn maintain_once(registry: &Registry) {
    let lasting =
        objects().filter(|(key, _)| !ONLY_AT_START.iter().any(|start| key.starts_with(start)));
    if let Err(error) = create_missing(&registry.inner, lasting.collect()).await {
        tracing::warn!(%error, "create the objects of the control plane itself");
    }
    if let Err(error) = repair_addresses(&registry.inner).await {
        tracing::warn!(%error, "repair the objects of cluster addresses");
    }
    for (start, resource) in FLOW_CONTROL {
        for (key, object) in objects().filter(|(key, _)| key.starts_with(start)) {
            if let Err(error) = restore(registry, resource, key, object).await {
                tracing::warn!(%error, key, "restore a flow control object");
            }
        }
    }
}

/// Repairs the objects of cluster addresses if they differ from the addresses in use.
async fn repair_addresses(inner: &Inner) -> Result<(), ApiError> {
    let (objects, _) = inner.cache.resource(keys::IP_ADDRESSES).snapshot();
    let items = objects.range(Bound::Unbounded, Bound::Unbounded);
    if inner.allocator.has_objects(items.map(|item| (&*item.key, &*item.value))) {
        return Ok(());
    }
    inner.allocator.repair(&*inner.store, &inner.birth()).await
}

/// Restores the spec of a flow control object, unless its user has taken it over.
async fn restore(
    registry: &Registry,
    resource: &str,
    key: &str,
    object: &str,
) -> Result<(), ApiError> {
    let Some(found) = registry.inner.recent(start_of(key), key.as_bytes()) else { return Ok(()) };
    let (mut found, modified) = (tree(&found.value)?, found.modified);
    let wanted = tree(object.as_bytes())?;
    let is_mandatory = MANDATORY.contains(&wanted.name());
    // The shares of the exempt level are the user's.
    let is_exempt_level = is_mandatory && wanted["spec"]["exempt"].is_object();
    let annotation = found.pointer("/metadata/annotations").and_then(|all| all.get(AUTO_UPDATE));
    let is_owned = match annotation.and_then(Value::as_str) {
        _ if is_mandatory => !is_exempt_level,
        Some(value) => value == "true",
        // Nobody has changed it.
        None => found["metadata"]["generation"] == 1,
    };
    if !is_owned || found["spec"] == wanted["spec"] {
        return Ok(());
    }
    found["spec"] = wanted["spec"].clone();
    found.set_meta("resourceVersion", modified.to_string().into());
    let catalog = registry.catalog();
    let row = catalog.get(FLOW_CONTROL_GROUP, "v1", resource).ok_or_else(ApiError::no_route)?;
    let target = Target::new(row.clone(), "", wanted.name());
    let request = Attributes::loopback(Verb::Update, target);
    let body = Body { bytes: encode::to_bytes(&found), format: Format::Json };
    let options = WriteOptions { field_manager: PRODUCER.to_owned(), ..WriteOptions::default() };
    match registry.update(&request, body, &options).await {
        // Another server was faster, or it is being changed: the next round looks again.
        Err(error) if matches!(error.reason(), Reason::Conflict | Reason::NotFound) => Ok(()),
        written => written.map(drop),
    }
}

/// The prefix of a key's resource.
fn start_of(key: &str) -> &str {
    keys::prefix_of(key.as_bytes()).unwrap_or_default()
}
