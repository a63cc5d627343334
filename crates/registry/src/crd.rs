//! CustomResourceDefinitions as rows: naming, establishing, serving, deletion (spec: crd §2).
//!
//! # Theory
//!
//! One task follows the definitions in the store. Each change leads, in this order, to
//!
//! 1. the status every definition should have, a pure function of the definitions ([`naming`]);
//! 2. a catalog with the rows of those that are served in that state ([`serve`]);
//! 3. the status, written through the ordinary write path.
//!
//! The catalog comes before the status: who sees `Established` finds routing, discovery and OpenAPI ready. A status write that loses
//! a race is dropped: the winner comes through the feed and is looked at again.
//!
//! | a definition is | it is served | because |
//! |---|---|---|
//! | new, its names taken | no | NamesAccepted is False |
//! | named | yes | NamesAccepted is True: Established follows in the same write |
//! | established | yes, for good | Established never returns to False |
//! | terminating | yes, without creates | its objects are being deleted ([`cleanup`]) |
//! | gone | no | |
mod cleanup;
mod naming;
mod row;
mod serve;

use crate::attributes::{Attributes, Target};
use crate::request::{Body, Format, WriteOptions};
use crate::shared::Registry;
use crate::subresource::Subresource;
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::Value;
use serve::Served;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, encode, keys};
use setpoint_store::{Batch, ChangeFeed, RangeRequest, Revision, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Where definitions are stored.
const PREFIX: &str = keys::DEFINITIONS;
/// Who keeps their status: the field manager that Kubernetes' own controllers write as.
const MANAGER: &str = "kube-apiserver";
/// How long to wait before trying again what failed for a reason that is not a lost race.
///
/// One second: short enough that a hiccup of the store goes unnoticed, long enough not to spin on one that lasts.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// A definition as it is stored, or will be in a moment.
#[derive(Debug, Clone)]
struct Definition {
    object: Value,
    /// Changed last at.
    modified: Revision,
    /// Created at: who came first takes a name.
    created: Revision,
}

/// The definitions, what is served of them, and who is tidying up.
#[derive(Debug)]
pub(crate) struct Controller {
    registry: Registry,
    // What the store says.
    definitions: BTreeMap<String, Definition>,
    revision: Revision,
    // What was made of it.
    served: BTreeMap<String, Served>,
    /// Definitions whose objects are being removed.
    cleaning: BTreeSet<String>,
}

impl Controller {
    /// Reads the definitions and serves those that are established already.
    ///
    /// # Errors
    /// The store cannot be read, or holds what is no JSON.
    pub(crate) async fn load(registry: &Registry) -> Result<Self, ApiError> {
        let mut controller = Self {
            registry: registry.clone(),
            definitions: BTreeMap::new(),
            revision: Revision::default(),
            served: BTreeMap::new(),
            cleaning: BTreeSet::new(),
        };
        controller.read().await?;
        controller.serve().await;
        Ok(controller)
    }

    /// Follows the definitions until `stop`: sets their conditions, sends a new catalog for every change, removes the objects of
    /// deleted ones.
    ///
    /// # Errors
    /// The store was closed.
    ///
    /// Dropping the future stops everything; the next controller goes on from what the store says.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), ApiError> {
        loop {
            tokio::select! {
                biased;
                // Cancel safe: the store holds the truth, nothing else is kept.
                error = self.follow() => {
                    if matches!(error, StoreError::Closed | StoreError::Damaged(_)) {
                        return Err(crate::stored::store_error(error));
                    }
                    tracing::warn!(%error, "follow custom resource definitions");
                }
                () = stop.cancelled() => return Ok(()),
            }
            tokio::select! {
                biased;
                // Cancel safe: a sleep takes nothing.
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = stop.cancelled() => return Ok(()),
            }
            if let Err(error) = self.read().await {
                tracing::warn!(%error, "read custom resource definitions");
            }
        }
    }

    /// Returns when the feed breaks.
    async fn follow(&mut self) -> StoreError {
        let feed =
            self.registry.inner.store.changes(Bytes::from_static(PREFIX.as_bytes()), self.revision);
        let mut feed: Box<dyn ChangeFeed> = match feed.await {
            Ok(feed) => feed,
            Err(error) => return error,
        };
        // Clean-ups end with the feed they were started by.
        let mut cleanups = JoinSet::new();
        self.cleaning.clear();
        let mut settled = self.settle(&mut cleanups).await;
        loop {
            tokio::select! {
                biased;
                // Cancel safe: a dropped `next` has taken nothing.
                batch = feed.next() => match batch {
                    Ok(batch) => self.take(batch),
                    Err(error) => return error,
                },
                // Cancel safe: a dropped `join_next` has taken nothing.
                Some(done) = cleanups.join_next() => match done {
                    Ok(name) => { self.cleaning.remove(&name); }
                    Err(error) => tracing::warn!(%error, "remove custom resources"),
                },
                // Cancel safe: a sleep takes nothing.
                () = tokio::time::sleep(RETRY_PERIOD), if !settled => {}
            }
            settled = self.settle(&mut cleanups).await;
        }
    }

    async fn read(&mut self) -> Result<(), ApiError> {
        let request = RangeRequest::prefix(Bytes::from_static(PREFIX.as_bytes()));
        let range =
            self.registry.inner.store.range(request).await.map_err(crate::stored::store_error)?;
        self.definitions.clear();
        self.revision = range.revision;
        for entry in range.value.entries {
            let object = crate::stored::tree(&entry.value)?;
            let definition =
                Definition { object, modified: entry.modified, created: entry.created };
            self.definitions.insert(definition.object.name().to_owned(), definition);
        }
        Ok(())
    }

    fn take(&mut self, batch: Batch) {
        self.revision = batch.revision;
        for change in batch.changes {
            let Some(name) = change.key.strip_prefix(PREFIX.as_bytes()) else { continue };
            let name = String::from_utf8_lossy(name).into_owned();
            let Some(value) = change.value else {
                self.definitions.remove(&name);
                continue;
            };
            match crate::stored::tree(&value) {
                Ok(object) => {
                    let created = change.previous.map_or(change.revision, |kv| kv.created);
                    let definition = Definition { object, modified: change.revision, created };
                    self.definitions.insert(name, definition);
                }
                Err(error) => tracing::warn!(%error, %name, "read a custom resource definition"),
            }
        }
    }

    /// Brings status, catalog and clean-ups in line with the definitions. `false`: something failed and is to be tried again.
    async fn settle(&mut self, cleanups: &mut JoinSet<String>) -> bool {
        let now = self.registry.inner.clock.now();
        let changed = naming::settle(&mut self.definitions, now);
        self.serve().await;
        let mut settled = true;
        for name in changed {
            let Some(definition) = self.definitions.get(&name) else { continue };
            match write_status(&self.registry, definition).await {
                Ok(()) => {}
                // Somebody else was faster: their state is on its way here.
                Err(error) if matches!(error.reason(), Reason::Conflict | Reason::NotFound) => {}
                Err(error) => {
                    tracing::warn!(%error, %name, "write the status of a custom resource definition");
                    settled = false;
                }
            }
        }
        if !settled && let Err(error) = self.read().await {
            tracing::warn!(%error, "read custom resource definitions");
        }
        for (name, definition) in &self.definitions {
            if cleanup::is_due(&definition.object) && self.cleaning.insert(name.clone()) {
                let (registry, name) = (self.registry.clone(), name.clone());
                let uid = definition.object.uid().to_owned();
                let row = row::storage_row(&definition.object);
                cleanups.spawn(async move {
                    cleanup::run(&registry, &name, &uid, row).await;
                    name
                });
            }
        }
        settled
    }

    /// Sends a catalog when what is to be served has changed, and ends the watches of what changed or went.
    async fn serve(&mut self) {
        let inner = &self.registry.inner;
        let changes = serve::update(&mut self.served, &self.definitions, inner.is_shared);
        if !changes.any {
            return;
        }
        let generation = inner.catalog.borrow().generation + 1;
        inner
            .catalog
            .send_replace(serve::catalog(&inner.compiled, generation, &self.served).into());
        if !changes.since.is_empty()
            && let Ok(now) = inner.store.revision().await
        {
            for since in &changes.since {
                since.store(now.0, Ordering::Relaxed);
            }
        }
        for prefix in changes.closed {
            inner.cache.close_watches(&prefix);
        }
        for prefix in changes.gone {
            // Watchers see the last objects go before their stream ends.
            inner.cache.wait_until(self.revision.0).await;
            inner.cache.close_watches(&prefix);
        }
    }
}

/// A request of the API server to itself.
fn loopback(verb: Verb, target: Target) -> Attributes {
    Attributes { user_agent: MANAGER.to_owned(), ..Attributes::loopback(verb, target) }
}

/// Writes a definition's status as the write path does, if it is still the one that was looked at.
async fn write_status(registry: &Registry, definition: &Definition) -> Result<(), ApiError> {
    let mut object = definition.object.clone();
    object.set_meta("resourceVersion", definition.modified.to_string().into());
    update(registry, object, "status").await.map(|_| ())
}

/// PUT of a definition, or of its status. The answer as a tree.
async fn update(registry: &Registry, object: Value, subresource: &str) -> Result<Value, ApiError> {
    let catalog = registry.catalog();
    let resource = catalog
        .get("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .ok_or_else(|| ApiError::internal("customresourcedefinitions are not served"))?;
    let target = Target {
        resource: resource.clone(),
        namespace: String::new(),
        name: object.name().to_owned(),
        subresource: Subresource::of(subresource),
    };
    let body = Body { bytes: encode::to_bytes(&object), format: Format::Json };
    let written =
        registry.update(&loopback(Verb::Update, target), body, &WriteOptions::default()).await?;
    crate::stored::tree(&written.object.bytes)
}
