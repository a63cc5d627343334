//! Reads that are never older than this process's writes.
//!
//! # Theory
//!
//! A controller that creates objects with generated names must not decide by a cache that lacks its
//! last creations: it would create them again. client-go counts *expectations* for that. Here a
//! pass waits until the caches show what this process has written:
//!
//! | the last pass over the key | this pass reads |
//! |---|---|
//! | succeeded | the cache, once it shows all writes of this process to the type ([`Api::lister_own`]) |
//! | failed | the same, and before that it waits until the cache shows what the server has now: a request whose answer was lost may have been processed |
//!
//! A process that starts knows no writes, and none is under way; its caches begin with lists.

use kube_core::metadata::PartialObjectMeta;
use kube_core::params::ListParams;
use setpoint_informer::{Cacheable, Lister};
use setpoint_object::resource_version;
use setpoint_runtime::{Api, BoxError, Client, ClientError, Context, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a pass waits for the cache. A watch is milliseconds behind; if it takes longer, the
/// pass is repeated.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Objects in a page of the list.
const PAGE_OBJECTS: u32 = 500;

/// The cache did not show the server's state in time.
#[derive(Debug, thiserror::Error)]
#[error("the cache of {kind} in namespace {namespace} is behind the server")]
pub(crate) struct StaleCache {
    kind: String,
    namespace: String,
}

/// The cache of one namespace, at least as new as this process's writes to the type.
///
/// # Errors
///
/// The cache does not show them in time, or the server cannot be reached after a failed pass.
pub(crate) async fn lister<K: Cacheable<DynamicType = ()>>(
    context: &Context,
    client: &Client,
    namespace: &str,
) -> Result<Lister<K>, BoxError> {
    let api = client.api::<K>();
    if context.attempt() > 0 {
        catch_up::<K>(client, &api, namespace).await?;
    }
    api.lister_own().await?;
    Ok(api.lister_of(namespace)?)
}

/// Whether an object that the cache shows exists and is not being deleted: what it owns may have
/// been collected because it is gone, and would be created and collected for as long as the cache
/// shows it.
///
/// # Errors
///
/// The server cannot be reached.
pub(crate) async fn is_live<K: Cacheable<DynamicType = ()>>(
    api: &Api<K>,
    shown: &K,
) -> Result<bool, ClientError> {
    let shown_meta = shown.meta();
    if shown_meta.deletion_timestamp.is_some() {
        return Ok(false);
    }
    let live = api.get_live(&Request::of(shown)).await?;
    Ok(live.is_some_and(|live| {
        let meta = live.meta();
        meta.uid == shown_meta.uid && meta.deletion_timestamp.is_none()
    }))
}

/// Waits until the cache shows what the server has now.
async fn catch_up<K: Cacheable<DynamicType = ()>>(
    client: &Client,
    api: &Api<K>,
    namespace: &str,
) -> Result<(), BoxError> {
    let live_api = client.api::<PartialObjectMeta<K>>();
    let mut live = BTreeMap::new();
    let mut params = ListParams::default().limit(PAGE_OBJECTS);
    let version = loop {
        let page = live_api.page_live(Some(namespace), &params).await?;
        for object in page.items {
            let metadata = object.metadata;
            let (name, version) = (metadata.name, metadata.resource_version);
            if let (Some(name), Some(version)) = (name, version) {
                live.insert(name, version);
            }
        }
        if page.continue_token.is_empty() {
            break page.resource_version;
        }
        params = params.continue_token(&page.continue_token);
    };
    let lister = api.lister_of(namespace)?;
    let shown = async {
        for (name, version) in &live {
            lister.at_least_for(&Request::new(namespace, &**name), version).await?;
        }
        loop {
            // Read before the objects, so that no later change is missed.
            let current = lister.resource_version();
            let held = lister
                .namespaced(namespace)
                .objects(&setpoint_object::label::Selector::everything());
            let has_deleted = held.iter().any(|object| {
                // A later version is of an object that was created after the list.
                let is_later = resource_version::compare(object.resource_version(), &version)
                    .is_some_and(std::cmp::Ordering::is_gt);
                !is_later && !live.contains_key(object.name())
            });
            if !has_deleted {
                return Ok::<_, BoxError>(());
            }
            let next = current.parse::<u64>().map_or(0, |current| current + 1);
            lister.at_least(&next.to_string()).await?;
        }
    };
    match tokio::time::timeout(WAIT_MAX, shown).await {
        Ok(shown) => shown,
        Err(_) => {
            Err(StaleCache { kind: K::kind(&()).into_owned(), namespace: namespace.to_owned() }
                .into())
        }
    }
}
