//! CustomResourceDefinitions as rows: naming, establishing, serving, deletion (spec: crd §2).
//!
//! # Theory
//!
//! One task follows the definitions in the watch cache; changes of other objects do not wake it. A
//! change of a definition has these effects, in this order:
//!
//! 1. the computed status of the definition, and of those that wait for a name that it has released
//!    ([`naming`]);
//! 2. its fence in the store, if its schema changes or creates are refused from now on ([`fence`]);
//! 3. a catalog with the rows of the served definitions in that state ([`serve`]);
//! 4. the status, written through the ordinary write path.
//!
//! The catalog is updated before the status: a client that sees `Established` finds routing,
//! discovery and OpenAPI ready. Discovery and OpenAPI wait for the status that is being written: a
//! client that finds the resource there may update the definition at once, without a conflict. A
//! status write that conflicts is dropped: the newer state comes through the feed and is handled
//! then.
//!
//! The fence is updated before the catalog. Every write of an object compares it, so a write that
//! was prepared with older rows is refused, and retried with the new rows. Every object with a
//! revision after the fence's was written under its schema: live, after a restart, and with several
//! servers.
//!
//! | a definition is | it is served | because |
//! |---|---|---|
//! | new, its names in use | no | NamesAccepted is False |
//! | named | yes | NamesAccepted is True: Established follows in the same write |
//! | established | yes, for good | Established never returns to False |
//! | terminating | yes, without creates | its objects are being deleted ([`cleanup`]) |
//! | terminating without objects | no | the resource goes before the definition does |
//! | the same with finalizers of others | yes | it stays until they are removed |
//! | deleted | no | |
mod cleanup;
mod definition;
mod feed;
mod fence;
mod naming;
mod row;
mod serve;

pub use row::compare_versions;

use crate::kind::CLEANUP_FINALIZER;
use crate::request::{Body, Format, PatchType, WriteOptions};
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use crate::subresource::Subresource;
use crate::verb::Verb;
use bytes::Bytes;
use cleanup::Emptied;
use definition::Definition;
use feed::{CrdEvent, Feed};
use naming::Names;
use serde_json::{Value, json};
use serve::{Changes, Served};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, Skim, encode, keys};
use setpoint_store::{RangeRequest, Revision, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The key prefix of definitions.
const PREFIX: &str = keys::DEFINITIONS;
/// The field manager of their status: the same as that of Kubernetes' own controllers.
const MANAGER: &str = "kube-apiserver";
/// The pause before a retry after an error other than a conflict.
///
/// One second: short enough for a brief failure of the store to go unnoticed, long enough to avoid
/// a busy loop.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Follows the definitions and serves their resources.
#[derive(Debug)]
pub(crate) struct Controller {
    registry: Registry,
    // State from the store.
    definitions: BTreeMap<String, Definition>,
    /// Every change up to this revision was in the last read.
    read_at: Revision,
    /// The newest change seen.
    newest: u64,
    // Derived state.
    names: Names,
    served: BTreeMap<String, Served>,
    // Work to do.
    /// Definitions to check.
    touched: BTreeSet<String>,
    /// Definitions whose status is not written yet.
    unwritten: BTreeSet<String>,
    /// The changes since the last catalog was sent.
    changes: Changes,
    /// Definitions whose objects are being removed.
    cleaning: BTreeSet<String>,
    /// Definitions whose objects have been removed, by name: the uid, and how they are released.
    emptied: BTreeMap<String, (String, Emptied)>,
}

/// A step of a clean-up that has ended, of a definition with a name and uid.
#[derive(Debug)]
struct CleanedUp {
    name: String,
    uid: String,
    step: Step,
}
#[derive(Debug)]
enum Step {
    /// Its objects are removed. `None`: it no longer waits for that.
    Emptied(Option<Emptied>),
    Released,
}

impl Controller {
    /// Reads the definitions and serves those that are established already.
    ///
    /// # Errors
    /// The store cannot be read, or contains a definition that is not JSON.
    pub(crate) async fn load(registry: &Registry) -> Result<Self, ApiError> {
        let mut controller = Self {
            registry: registry.clone(),
            definitions: BTreeMap::new(),
            read_at: Revision::default(),
            newest: 0,
            names: Names::default(),
            served: BTreeMap::new(),
            touched: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            changes: Changes::default(),
            cleaning: BTreeSet::new(),
            emptied: BTreeMap::new(),
        };
        controller.read().await?;
        let names = std::mem::take(&mut controller.touched);
        let store = &*registry.inner.store;
        let swept = fence::sweep(store, &controller.definitions, controller.read_at).await;
        swept.map_err(crate::stored::store_error)?;
        controller.serve(&names).await.map_err(crate::stored::store_error)?;
        Ok(controller)
    }

    /// Follows the definitions until `stop`: sets their conditions, sends a new catalog for every
    /// change, removes the objects of deleted ones.
    ///
    /// # Errors
    /// The store was closed.
    ///
    /// Dropping the future stops everything; the next controller continues from the store's state.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), ApiError> {
        loop {
            tokio::select! {
                biased;
                // Cancel safe: all state is in the store.
                followed = self.follow() => if let Err(error) = followed {
                    tracing::warn!(error = chain(&error), "follow custom resource definitions");
                },
                () = stop.cancelled() => return Ok(()),
            }
            tokio::select! {
                biased;
                // Cancel safe: a sleep takes nothing.
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Returns when the watch cache starts over, or stops.
    async fn follow(&mut self) -> Result<(), ApiError> {
        let registry = self.registry.clone();
        registry.inner.cache.wait_until(self.newest).await;
        // The feed starts before the read, so that changes during the read come after it.
        let mut feed = Feed::begin(&registry.inner);
        self.read().await?;
        self.touched.extend(self.definitions.keys().cloned());
        // Clean-ups end with the feed that started them.
        let mut cleanups = JoinSet::new();
        self.cleaning.clear();
        // Boxed, so that an idle registry holds no space for writes.
        let mut settled = Box::pin(self.settle(&mut cleanups)).await;
        loop {
            tokio::select! {
                biased;
                // Cancel safe: changes that a dropped `next` has taken come with the next call.
                events = feed.next() => match events {
                    Some(events) => for event in &events {
                        self.take(event);
                        // A definition may be large, and many may change at once.
                        tokio::task::yield_now().await;
                    },
                    None => return Ok(()),
                },
                // Cancel safe: a dropped `join_next` has taken nothing.
                Some(done) = cleanups.join_next() => match done {
                    Ok(done) => self.note_cleaned_up(done),
                    Err(error) => tracing::warn!(error = chain(&error), "remove custom resources"),
                },
                // Cancel safe: a sleep takes nothing.
                () = tokio::time::sleep(RETRY_PERIOD), if !settled => {}
            }
            settled = Box::pin(self.settle(&mut cleanups)).await;
        }
    }

    /// Reads every definition and marks the changed ones as touched.
    async fn read(&mut self) -> Result<(), ApiError> {
        let request = RangeRequest::prefix(Bytes::from_static(PREFIX.as_bytes()));
        let range =
            self.registry.inner.store.range(request).await.map_err(crate::stored::store_error)?;
        let mut gone: BTreeSet<String> = self.definitions.keys().cloned().collect();
        for kv in range.value.entries {
            let Some(name) = name_of(&kv.key, PREFIX) else { continue };
            if setpoint_store::is_sealed(&kv.value) {
                // Its resource is not served; everything else is.
                tracing::warn!(%name, "a custom resource definition cannot be read");
                continue;
            }
            gone.remove(&name);
            let is_known = self.definitions.get(&name).is_some_and(|d| d.modified == kv.modified);
            if !is_known || self.unwritten.contains(&name) {
                match Definition::read(kv.value, kv.modified, kv.created) {
                    Ok(definition) => self.replace(name, Some(definition)),
                    // As one that is encrypted with an unknown key.
                    Err(error) => {
                        tracing::warn!(error = chain(&error), %name, "read a custom resource definition");
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        gone.into_iter().for_each(|name| self.replace(name, None));
        self.read_at = range.revision;
        self.newest = self.newest.max(range.revision.0);
        Ok(())
    }

    /// Applies a definition's state in the store.
    fn replace(&mut self, name: String, mut definition: Option<Definition>) {
        if let Some(definition) = &mut definition {
            if self.registry.inner.is_shared {
                definition.check_structure(self.definitions.get(&name));
            }
            self.names.take(&definition.object);
        }
        let old = match definition {
            Some(definition) => self.definitions.insert(name.clone(), definition),
            None => self.definitions.remove(&name),
        };
        if let Some(old) = old {
            self.names.release(&old);
        }
        let uid = self.definitions.get(&name).map(|definition| definition.object.uid());
        if self.emptied.get(&name).is_some_and(|(of, _)| uid != Some(of)) {
            self.emptied.remove(&name);
        }
        self.unwritten.remove(&name);
        self.touched.insert(name);
    }

    fn take(&mut self, event: &CrdEvent) {
        let (CrdEvent::Definition(change) | CrdEvent::Fence(change)) = event;
        self.newest = self.newest.max(change.revision);
        if change.revision <= self.read_at.0 {
            return;
        }
        if let CrdEvent::Fence(change) = event {
            let Some(name) = name_of(change.key(), fence::PREFIX) else { return };
            if let Some(served) = self.served.get_mut(&name) {
                served.note_fence(change.now.as_ref().map(|item| item.revision));
                self.touched.insert(name);
            }
            return;
        }
        let Some(name) = name_of(change.key(), PREFIX) else { return };
        let Some(item) = &change.now else { return self.replace(name, None) };
        let modified = Revision(item.revision);
        let created = match (&change.before, self.definitions.get(&name)) {
            (Some(_), Some(known)) => known.created,
            _ => modified,
        };
        match Definition::read(item.value.clone(), modified, created) {
            Ok(definition) => self.replace(name, Some(definition)),
            Err(error) => {
                tracing::warn!(error = chain(&error), %name, "read a custom resource definition")
            }
        }
    }

    /// Updates status, catalog and clean-ups for the touched definitions. `false`: an error
    /// occurred and a retry is needed.
    async fn settle(&mut self, cleanups: &mut JoinSet<CleanedUp>) -> bool {
        let mut touched = std::mem::take(&mut self.touched);
        let now = self.registry.inner.clock.now();
        let changed = self.names.settle(&mut self.definitions, &touched, now);
        self.unwritten.extend(changed.iter().cloned());
        touched.extend(changed);
        if let Err(error) = self.serve(&touched).await {
            tracing::warn!(error = chain(&error), "serve custom resource definitions");
            self.touched.append(&mut touched);
            return false;
        }
        let settled = self.write_statuses().await;
        let is_announcing = &self.registry.inner.is_announcing;
        if is_announcing.get() {
            is_announcing.change(|is_announcing| *is_announcing = false);
        }
        for name in touched {
            let Some(definition) = self.definitions.get(&name) else { continue };
            if !cleanup::is_terminating(&definition.object) || !self.cleaning.insert(name.clone()) {
                continue;
            }
            let registry = self.registry.clone();
            let uid = definition.object.uid().to_owned();
            let emptied = self.emptied.get(&name).filter(|(of, _)| *of == uid);
            let release = emptied.map(|(_, emptied)| emptied.condition.clone());
            cleanups.spawn(async move {
                let step = match release {
                    Some(condition) => {
                        cleanup::release(&registry, &name, &uid, &condition).await;
                        Step::Released
                    }
                    None => Step::Emptied(cleanup::run(&registry, &name, &uid).await),
                };
                CleanedUp { name, uid, step }
            });
        }
        settled
    }

    fn note_cleaned_up(&mut self, done: CleanedUp) {
        let CleanedUp { name, uid, step } = done;
        self.cleaning.remove(&name);
        match step {
            Step::Emptied(None) => {}
            Step::Emptied(Some(emptied)) => {
                self.newest = self.newest.max(emptied.at.0);
                self.emptied.insert(name.clone(), (uid, emptied));
            }
            // Its own change comes through the feed. Another one may have waited for this step.
            Step::Released => {
                let known = self.definitions.get(&name);
                if known.is_none_or(|known| known.object.uid() == uid) {
                    return;
                }
            }
        }
        self.touched.insert(name);
    }

    async fn write_statuses(&mut self) -> bool {
        let mut settled = true;
        for name in self.unwritten.clone() {
            let written = match self.definitions.get(&name) {
                Some(definition) => write_status(&self.registry, definition).await.map(drop),
                None => Ok(()),
            };
            match written {
                Ok(()) => {}
                // Another writer was first: the new state will come through the feed.
                Err(error) if matches!(error.reason(), Reason::Conflict | Reason::NotFound) => {}
                Err(error) => {
                    tracing::warn!(error = chain(&error), %name, "write the status of a custom resource definition");
                    settled = false;
                    continue;
                }
            }
            self.unwritten.remove(&name);
        }
        settled
    }

    /// Sends a new catalog if the served rows of these definitions have changed, and ends the
    /// watches of changed and removed resources.
    async fn serve(&mut self, names: &BTreeSet<String>) -> Result<(), StoreError> {
        let inner = self.registry.inner.clone();
        for name in names {
            let emptied = self.emptied.get(name).map(|(uid, _)| uid);
            let definition = self.definitions.get(name).filter(|definition| {
                // Finalizers of others let it stay, and its empty resource with it.
                let is_last = definition.object.finalizers() == [CLEANUP_FINALIZER];
                !is_last || emptied.is_none_or(|uid| uid != definition.object.uid())
            });
            let changes = &mut self.changes;
            serve::update(&mut self.served, name, definition, &inner, changes).await?;
        }
        let changes = std::mem::take(&mut self.changes);
        if !changes.any {
            return Ok(());
        }
        let generation = inner.catalog.borrow().generation + 1;
        let catalog = serve::catalog(&inner.compiled, generation, &self.served);
        if !self.unwritten.is_empty() {
            inner.is_announcing.change(|is_announcing| *is_announcing = true);
        }
        inner.catalog.change(|present| *present = catalog.into());
        for prefix in changes.closed {
            inner.cache.close_watches(&prefix);
        }
        for prefix in changes.gone {
            // Watchers see the deletion of the last objects before their stream ends.
            inner.cache.wait_until(self.newest).await;
            inner.cache.retire(&prefix);
        }
        for fence in changes.fences {
            if let Err(error) = fence::remove(&*inner.store, fence).await {
                // The next start removes it.
                tracing::debug!(
                    error = chain(&error),
                    "remove the fence of a custom resource definition"
                );
            }
        }
        Ok(())
    }
}

/// The name at the end of a key.
fn name_of(key: &[u8], prefix: &str) -> Option<String> {
    key.strip_prefix(prefix.as_bytes()).map(|name| String::from_utf8_lossy(name).into_owned())
}

/// A request of the API server to itself.
fn loopback(verb: Verb, target: Target) -> Attributes {
    Attributes { user_agent: MANAGER.to_owned(), ..Attributes::loopback(verb, target) }
}

/// Writes a definition's status through the write path, unless the definition has changed since it
/// was read. Returns its new resourceVersion.
async fn write_status(registry: &Registry, definition: &Definition) -> Result<String, ApiError> {
    let (name, at) = (definition.object.name(), definition.modified.to_string());
    let status = &definition.object["status"];
    replace_at_status(registry, name, &at, "/status", status).await
}

/// Replaces one member of a definition through its `/status`, unless the definition has changed
/// since a resourceVersion. Returns the new one.
///
/// A patch: a large definition is neither parsed nor encoded on this thread.
async fn replace_at_status(
    registry: &Registry,
    name: &str,
    resource_version: &str,
    path: &str,
    value: &Value,
) -> Result<String, ApiError> {
    let catalog = registry.catalog();
    let resource = catalog
        .get("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .ok_or_else(|| ApiError::internal("customresourcedefinitions are not served"))?;
    let target = Target {
        subresource: Subresource::of("status"),
        ..Target::new(resource.clone(), String::new(), name.to_owned())
    };
    let patch = json!([
        {"op": "add", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": path, "value": value},
    ]);
    let body = Body { bytes: encode::to_bytes(&patch), format: Format::Json };
    let attributes = loopback(Verb::Patch, target);
    let written =
        registry.patch(&attributes, PatchType::Json, body, &WriteOptions::default()).await?;
    let skim = Skim::of(&written.object.bytes).map_err(ApiError::internal)?;
    Ok(skim.resource_version.into_owned())
}
