//! Deletes the objects of a terminating definition before the definition is removed.
//!
//! This takes two steps: [`run`] deletes the objects, and [`release`] removes the finalizer. In
//! between, the resource is no longer served. So a client that sees the definition gone does not
//! find its resource, and one that creates a definition of the same name right away finds the new
//! resource.
use super::fence::{self, State};
use super::{Definition, RETRY_PERIOD, loopback, replace_at_status, row, write_status};
use crate::catalog::Resource;
use crate::kind::{CLEANUP_FINALIZER, set_condition};
use crate::request::DeleteOptions;
use crate::routed::Target;
use crate::shared::Registry;
use crate::stored::store_error;
use crate::verb::Verb;
use crate::write::several_deletes;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::skim::Skim;
use setpoint_object::{ApiError, Reason};
use setpoint_schema::crd::condition_is_true;
use setpoint_store::{At, RangeRequest, Revision};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum pause before the next check for objects with finalizers.
///
/// Five seconds, as Kubernetes' finalizer controller polls.
const POLL_PERIOD: Duration = Duration::from_secs(5);
/// How long objects may remain until the definition reports it: a minute, as in Kubernetes.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// How long to wait until other servers have seen a deletion: a second; a change takes milliseconds
/// to reach them.
const PROPAGATION_DELAY: Duration = Duration::from_secs(1);
/// Objects per read.
const PAGE_OBJECTS_MAX: usize = 500;

/// Whether a definition is terminating and its objects must be deleted.
pub(super) fn is_terminating(definition: &Value) -> bool {
    !definition.deletion_timestamp().is_empty()
        && definition.finalizers().contains(&CLEANUP_FINALIZER)
}

/// Removes the objects. Returns the condition to [`release`] the definition with, and a revision at
/// which no object was left; `None`: nothing waits for the clean-up any more. Retries after longer
/// and longer pauses, up to [`CHECK_PERIOD`].
pub(super) async fn run(registry: &Registry, name: &str, uid: &str) -> Option<Emptied> {
    let (mut begun, mut pause) = (Instant::now(), RETRY_PERIOD);
    loop {
        match attempt(registry, name, uid).await {
            Ok(Attempt::Gone) => return None,
            Ok(Attempt::Empty(emptied)) => return Some(emptied),
            Ok(Attempt::Waiting) if begun.elapsed() < CHECK_PERIOD => pause = RETRY_PERIOD,
            Ok(Attempt::Waiting) => {
                begun = Instant::now();
                let message =
                    "could not confirm zero CustomResources remaining: context deadline exceeded";
                let waiting = condition("True", "InstanceDeletionCheck", message);
                // Informational, too.
                _ = change(registry, name, uid, &waiting, false).await;
                tokio::time::sleep(RETRY_PERIOD).await;
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), %name, "remove the objects of a custom resource definition");
                let message = format!("could not issue all deletes: {error}");
                let failed = condition("True", "InstanceDeletionFailed", &message);
                // The condition is informational: its write may fail.
                _ = change(registry, name, uid, &failed, false).await;
                // Each attempt writes, and a webhook may refuse its deletes for good.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(CHECK_PERIOD);
            }
        }
    }
}

/// Sets the condition of a clean-up that has ended, and removes the finalizer. Retries, with the
/// pause of the controller, until that is done.
pub(super) async fn release(registry: &Registry, name: &str, uid: &str, condition: &Value) {
    while let Err(error) = change(registry, name, uid, condition, true).await {
        tracing::warn!(error = chain(&error), %name, "release a custom resource definition");
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// A definition without objects.
#[derive(Debug, Clone)]
pub(super) struct Emptied {
    /// A revision at which it had none.
    pub(super) at: Revision,
    /// The condition to release it with.
    pub(super) condition: Value,
}

/// The outcome of an attempt.
enum Attempt {
    /// The definition is gone, or no longer waits.
    Gone,
    /// Objects remain.
    Waiting,
    Empty(Emptied),
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Terminating", "status": status, "reason": reason, "message": message})
}

async fn attempt(registry: &Registry, name: &str, uid: &str) -> Result<Attempt, ApiError> {
    let Some((definition, at)) = terminating(registry, name, uid).await? else {
        return Ok(Attempt::Gone);
    };
    // Its objects are those of a built-in kind, which it must not take along.
    let prefix = row::storage_prefix(&definition.object);
    if registry.inner.compiled.rows.values().any(|row| row.storage_prefix == prefix) {
        let message = "instances overlap with built-in resources in storage";
        let condition = condition("False", "OverlappingBuiltInResource", message);
        return Ok(Attempt::Empty(Emptied { at, condition }));
    }
    // Written before creates are refused, so that no object is created after it. A schema change at
    // the same time moves the fence once more.
    let state = State::of(&definition);
    let fence =
        fence::establish(&*registry.inner.store, name, &state).await.map_err(store_error)?;
    let Some(fence) = fence else { return Ok(Attempt::Waiting) };
    let source = definition.source();
    let stored = row::stored(&definition.object, &source, u64::MAX, fence.clone(), Arc::default());
    let row = &row::storage_row(&definition.object, &source, stored);
    // It is served before its status says so, so it may have objects without being Established.
    let is_established = condition_is_true(&definition.object, "Established");
    if !is_established && let Remaining::None(at) = remaining(registry, row).await? {
        let condition = condition("False", "NeverEstablished", "resource was never established");
        // Only the fences of definitions that are served are removed with them.
        fence::remove(&*registry.inner.store, fence).await.map_err(store_error)?;
        return Ok(Attempt::Empty(Emptied { at, condition }));
    }
    let busy =
        condition("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    change(registry, name, uid, &busy, false).await?;
    let mut left = delete_all(registry, row, at).await?;
    if matches!(left, Remaining::None(_)) && registry.inner.is_shared {
        // Another server that has not seen the deletion may have created an object in the meantime.
        tokio::time::sleep(PROPAGATION_DELAY).await;
        left = remaining(registry, row).await?;
    }
    match left {
        Remaining::Some(revision) => {
            wait(registry, row, revision).await?;
            Ok(Attempt::Waiting)
        }
        Remaining::None(at) => {
            let message = "removed all instances";
            let condition = condition("False", "InstanceDeletionCompleted", message);
            Ok(Attempt::Empty(Emptied { at, condition }))
        }
    }
}

/// Deletes every object that existed at a revision, with ordinary DELETE requests.
///
/// At that revision the definition was terminating, so all of them were its own. Another server may
/// have finished since, and objects of a new definition of the same name may exist under the same
/// keys: those have other uids, and are not deleted.
async fn delete_all(
    registry: &Registry,
    row: &Arc<Resource>,
    at: Revision,
) -> Result<Remaining, ApiError> {
    let mut request = RangeRequest {
        limit: PAGE_OBJECTS_MAX,
        at: At::Exactly(at),
        ..RangeRequest::prefix(Bytes::from(row.storage_prefix.as_bytes().to_vec()))
    };
    loop {
        let page = registry.inner.store.range(request.clone()).await.map_err(store_error)?;
        let Some(last) = page.value.entries.last() else { break };
        request.start = [&*last.key, b"\0"].concat().into();
        let deletes = page.value.entries.iter().map(|entry| async {
            let path = String::from_utf8_lossy(&entry.key[row.storage_prefix.len()..]).into_owned();
            let (namespace, name) = path.split_once('/').unwrap_or(("", &path));
            let target = Target {
                resource: row.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                subresource: None,
            };
            let uid = Skim::of(&entry.value).map(|skim| skim.uid.to_string()).ok();
            let options = DeleteOptions { uid, ..DeleteOptions::default() };
            match registry.delete(&loopback(Verb::Delete, target), &options).await {
                Err(error) if !matches!(error.reason(), Reason::NotFound | Reason::Conflict) => {
                    Err(error)
                }
                _ => Ok(()),
            }
        });
        several_deletes(deletes).await?;
        if page.value.entries.len() < PAGE_OBJECTS_MAX {
            break;
        }
    }
    remaining(registry, row).await
}

/// Whether a definition has objects, and at which revision.
#[derive(Debug, Clone, Copy)]
enum Remaining {
    Some(Revision),
    None(Revision),
}

async fn remaining(registry: &Registry, row: &Resource) -> Result<Remaining, ApiError> {
    let prefix = Bytes::from(row.storage_prefix.as_bytes().to_vec());
    let request = RangeRequest { limit: 1, ..RangeRequest::prefix(prefix) };
    let found = registry.inner.store.range(request).await.map_err(store_error)?;
    Ok(match found.value.entries.is_empty() {
        true => Remaining::None(found.revision),
        false => Remaining::Some(found.revision),
    })
}

/// Waits for the next change of an object, or for [`POLL_PERIOD`].
async fn wait(registry: &Registry, row: &Resource, after: Revision) -> Result<(), ApiError> {
    let prefix = Bytes::from(row.storage_prefix.as_bytes().to_vec());
    let mut feed = registry.inner.store.changes(prefix, after).await.map_err(store_error)?;
    let changed = async { while feed.next().await.is_ok_and(|batch| batch.changes.is_empty()) {} };
    // Check again in either case.
    _ = tokio::time::timeout(POLL_PERIOD, changed).await;
    Ok(())
}

/// The definition if it is still the terminating one, and a revision at which it was.
async fn terminating(
    registry: &Registry,
    name: &str,
    uid: &str,
) -> Result<Option<(Definition, Revision)>, ApiError> {
    let key = format!("{}{name}", super::PREFIX);
    let found = registry.inner.store.get(key.as_bytes(), At::Latest).await.map_err(store_error)?;
    let Some(kv) = found.value else { return Ok(None) };
    let definition = Definition::read(kv.value, kv.modified, kv.created)?;
    // It may be large, and over a store in memory nothing else waits.
    tokio::task::yield_now().await;
    let is_same = is_terminating(&definition.object) && definition.object.uid() == uid;
    Ok(is_same.then_some((definition, found.revision)))
}

/// Sets a condition and, with `release`, removes the finalizer. Retries after a conflict.
async fn change(
    registry: &Registry,
    name: &str,
    uid: &str,
    condition: &Value,
    release: bool,
) -> Result<(), ApiError> {
    loop {
        let key = format!("{}{name}", super::PREFIX);
        let Some(found) = registry.inner.live(key.as_bytes()).await? else { return Ok(()) };
        let mut definition = Definition::read(found.value, found.modified, found.created)?;
        tokio::task::yield_now().await;
        let object = &mut definition.object;
        if !is_terminating(object) || object.uid() != uid {
            return Ok(());
        }
        set_condition(object, condition.clone(), registry.inner.clock.now());
        let written = match write_status(registry, &definition).await {
            Ok(resource_version) if release => {
                let others: Vec<&str> = definition
                    .object
                    .finalizers()
                    .into_iter()
                    .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
                    .collect();
                let (path, others) = ("/metadata/finalizers", others.into());
                // Through `/status`, as in Kubernetes: it takes a definition that other writes
                // refuse, such as one whose stored versions are not among its versions.
                replace_at_status(registry, name, &resource_version, path, &others).await
            }
            written => written,
        };
        match written {
            Ok(_) => return Ok(()),
            Err(error) if error.reason() == Reason::NotFound => return Ok(()),
            Err(error) if error.reason() == Reason::Conflict => {}
            Err(error) => return Err(error),
        }
    }
}
