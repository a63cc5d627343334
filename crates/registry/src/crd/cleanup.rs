//! The objects of a definition that is being deleted go before it does.
use super::fence::{self, State};
use super::{Definition, RETRY_PERIOD, loopback, row, update};
use crate::attributes::Target;
use crate::catalog::Resource;
use crate::kind::{CLEANUP_FINALIZER, set_condition};
use crate::request::DeleteOptions;
use crate::shared::Registry;
use crate::stored::store_error;
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::skim::Skim;
use setpoint_object::{ApiError, Reason};
use setpoint_schema::crd::condition_is_true;
use setpoint_store::{At, RangeRequest, Revision};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for objects that finalizers hold before looking again, when nothing is heard of
/// them.
///
/// Five seconds, as Kubernetes' finalizer controller polls.
const POLL_PERIOD: Duration = Duration::from_secs(5);
/// How long other servers are given to hear of a deletion: a second, against the milliseconds that
/// a change takes to reach them.
const NEWS_PERIOD: Duration = Duration::from_secs(1);
/// Objects read at once.
const PAGE_OBJECTS_MAX: usize = 500;

/// Whether a definition waits for its objects to go.
pub(super) fn is_due(definition: &Value) -> bool {
    !definition.deletion_timestamp().is_empty()
        && definition.finalizers().contains(&CLEANUP_FINALIZER)
}

/// Removes the objects, then the finalizer. Returns when the definition waits no more; tries for
/// ever until then.
pub(super) async fn run(registry: &Registry, name: &str, uid: &str) {
    loop {
        match attempt(registry, name, uid).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, %name, "remove the objects of a custom resource definition");
                let message = format!("could not delete instances: {error}");
                let failed = condition("True", "InstanceDeletionFailed", &message);
                // The condition is for people to read; without it the next attempt is as good.
                _ = change(registry, name, uid, Some(failed), false).await;
                tokio::time::sleep(RETRY_PERIOD).await;
            }
        }
    }
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Terminating", "status": status, "reason": reason, "message": message})
}

/// One turn; `true` when there is nothing left to do.
async fn attempt(registry: &Registry, name: &str, uid: &str) -> Result<bool, ApiError> {
    let Some((definition, at)) = due(registry, name, uid).await? else { return Ok(true) };
    if !condition_is_true(&definition.object, "Established") {
        let never = condition("False", "NeverEstablished", "resource was never established");
        change(registry, name, uid, Some(never), true).await?;
        return Ok(true);
    }
    // Written before creates are refused: no object comes in behind it. A schema that has changed
    // just now moves it once more.
    let state = State::of(&definition);
    let fence =
        fence::establish(&*registry.inner.store, name, &state).await.map_err(store_error)?;
    let Some(fence) = fence else { return Ok(false) };
    let source = definition.source();
    let stored = row::stored(&definition.object, &source, u64::MAX, fence, Arc::default());
    let row = &row::storage_row(&definition.object, &source, stored);
    let busy =
        condition("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    change(registry, name, uid, Some(busy), false).await?;
    let mut seen = delete_all(registry, row, at).await?;
    if seen.is_none() && registry.inner.is_shared {
        // Another server that has yet to hear of the deletion may have taken an object in
        // meanwhile.
        tokio::time::sleep(NEWS_PERIOD).await;
        seen = left(registry, row).await?;
    }
    if let Some(revision) = seen {
        wait(registry, row, revision).await?;
        return Ok(false);
    }
    let done = condition("False", "InstanceDeletionCompleted", "removed all instances");
    change(registry, name, uid, Some(done), true).await?;
    Ok(true)
}

/// Deletes every object there was at a revision, as anyone's DELETE does. `None` when none is left,
/// else the revision at which some were.
///
/// At that revision the definition waited for its objects to go, so all of them were its own.
/// Another server may have finished since, and objects of a new definition of the same name may lie
/// there: those have other uids, and are left alone.
async fn delete_all(
    registry: &Registry,
    row: &Arc<Resource>,
    at: Revision,
) -> Result<Option<Revision>, ApiError> {
    let mut request = RangeRequest {
        limit: PAGE_OBJECTS_MAX,
        at: At::Exactly(at),
        ..RangeRequest::prefix(Bytes::from(row.storage_prefix.as_bytes().to_vec()))
    };
    loop {
        let page = registry.inner.store.range(request.clone()).await.map_err(store_error)?;
        let Some(last) = page.value.entries.last() else { break };
        request.start = [&*last.key, b"\0"].concat().into();
        for entry in &page.value.entries {
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
                    return Err(error);
                }
                _ => {}
            }
        }
        if page.value.entries.len() < PAGE_OBJECTS_MAX {
            break;
        }
    }
    left(registry, row).await
}

/// The revision at which there is an object, if there is one now.
async fn left(registry: &Registry, row: &Resource) -> Result<Option<Revision>, ApiError> {
    let prefix = Bytes::from(row.storage_prefix.as_bytes().to_vec());
    let request = RangeRequest { limit: 1, ..RangeRequest::prefix(prefix) };
    let left = registry.inner.store.range(request).await.map_err(store_error)?;
    Ok((!left.value.entries.is_empty()).then_some(left.revision))
}

/// Waits for the next change of an object, or for [`POLL_PERIOD`].
async fn wait(registry: &Registry, row: &Resource, after: Revision) -> Result<(), ApiError> {
    let prefix = Bytes::from(row.storage_prefix.as_bytes().to_vec());
    let mut feed = registry.inner.store.changes(prefix, after).await.map_err(store_error)?;
    let changed = async { while feed.next().await.is_ok_and(|batch| batch.changes.is_empty()) {} };
    // Elapsed or not: look again.
    _ = tokio::time::timeout(POLL_PERIOD, changed).await;
    Ok(())
}

/// The definition if it still is the one that waits for its objects to go, and a revision at which
/// it did.
async fn due(
    registry: &Registry,
    name: &str,
    uid: &str,
) -> Result<Option<(Definition, Revision)>, ApiError> {
    let key = format!("{}{name}", super::PREFIX);
    let found = registry.inner.store.get(key.as_bytes(), At::Latest).await.map_err(store_error)?;
    let Some(kv) = found.value else { return Ok(None) };
    let definition = Definition::read(kv.value, kv.modified, kv.created)?;
    let is_it = is_due(&definition.object) && definition.object.uid() == uid;
    Ok(is_it.then_some((definition, found.revision)))
}

/// Sets a condition and, with `release`, takes the finalizer away; tries again when somebody else
/// was faster.
async fn change(
    registry: &Registry,
    name: &str,
    uid: &str,
    condition: Option<Value>,
    release: bool,
) -> Result<(), ApiError> {
    loop {
        let key = format!("{}{name}", super::PREFIX);
        let Some(found) = registry.inner.live(key.as_bytes()).await? else { return Ok(()) };
        let mut object = crate::stored::tree(&found.value)?;
        if !is_due(&object) || object.uid() != uid {
            return Ok(());
        }
        if let Some(condition) = &condition {
            set_condition(&mut object, condition.clone(), registry.inner.clock.now());
        }
        object.set_meta("resourceVersion", found.modified.to_string().into());
        let written = match update(registry, object, "status").await {
            Ok(written) if release => {
                let mut object = written;
                let left: Vec<String> = object
                    .finalizers()
                    .into_iter()
                    .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
                    .map(str::to_owned)
                    .collect();
                object.set_meta("finalizers", left.into());
                update(registry, object, "").await
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
