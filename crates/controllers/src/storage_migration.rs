//! Storage version migration: rewrites the objects of a resource, so that the store has them in the
//! version in which they are stored now.
//!
//! # Theory
//!
//! A StorageVersionMigration names a resource. Of the migrations of one resource, one runs at a
//! time; a pass of the controller is about all of them.
//!
//! | the migration | what a pass does |
//! |---|---|
//! | is the oldest, and none runs | sets `Running`; the definition of a custom resource gets the condition `StorageMigrating` |
//! | runs, without `status.resourceVersion` | sets it to that of a list: the *barrier* |
//! | runs | rewrites one page of objects; after the last one it sets `Succeeded` |
//! | runs, and one of its requests is refused | sets `Failed` |
//! | has ended, and `Running` is true | `Running` becomes false; the definition's condition, too, and after a success `status.storedVersions` has the storage version alone |
//!
//! An object is rewritten by an apply that has its uid and its resourceVersion, and no fields: the
//! server stores it again only if its stored form is out of date. After a conflict the object is
//! looked at: if somebody else has written or deleted it, nothing is left to do. An object that is
//! newer than the barrier is stored in the current version already.
//!
//! The pages are those of a consistent list, which is never older than the barrier. Where it
//! expires, it continues with the newest state: what was written since needs no migration. Only the
//! place in the list is in memory. After a restart the list begins again, which rewrites nothing
//! twice.
//!
//! The names and texts are those of kube-controller-manager's
//! `storage-version-migrator-controller`. It also shortens `status.storedVersions` after a failure,
//! which is not done here: objects in the old versions remain then.

use crate::api::{Api, Discovered, RequestError, Resource, discover, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::view::view;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::meta::ObjectExt;
use setpoint_object::resource_version;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_object::url::escape_segment;
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

/// The controller's name, and the field manager of its applies.
const NAME: &str = "storage-version-migrator-controller";
/// The field manager of what definitions get.
const RUNNER: &str = "migration-runner-controller";
/// Number of resources that are migrated at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// Number of objects in one page, which is one pass.
const PAGE_OBJECTS: usize = 500;
/// How long a resource may be missing from discovery, counted from the creation of its migration:
/// a minute, as in kube-controller-manager.
const DISCOVERY_GRACE: Duration = Duration::from_secs(60);
/// When discovery is read again if the resource is not there.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(5);
/// Before the next page.
const NEXT_PAGE: Duration = Duration::from_millis(1);
/// What an object needs to be migrated.
const VERBS: [&str; 3] = ["update", "patch", "list"];

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// A list of metadata.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

view! {
    /// A StorageVersionMigration.
    Migration of StorageVersionMigration {
        /// What is to be migrated.
        spec: Spec,
    }
}

/// `spec` of a migration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    resource: GroupResource,
}

/// A resource in any version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct GroupResource {
    group: String,
    resource: String,
}

impl GroupResource {
    fn of(migration: &Value) -> Self {
        let text = |member: &str| {
            migration["spec"]["resource"][member].as_str().unwrap_or_default().to_owned()
        };
        Self { group: text("group"), resource: text("resource") }
    }

    /// The key of its passes, which is the name of its definition if it has one.
    fn key(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }
}

/// The controller of StorageVersionMigrations. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct StorageVersionMigrator {
    setup: Setup,
}

impl StorageVersionMigrator {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pass = Pass {
            api: self.setup.api(NAME),
            clock: self.setup.clock().clone(),
            places: Mutex::default(),
        };
        let resources = |event: &Event<Migration>, _: &Client| {
            let migration = event.object().and_then(|object| object.get().ok());
            let key = migration.map(|migration| migration.spec.resource.key());
            key.map(Request::cluster).into_iter().collect()
        };
        let controller = Controller::builder(NAME)
            .watches_with(Watch::<Migration>::new(), resources)
            .sync_timeout(None)
            .concurrency(WORKERS)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// How far a migration is: its uid, and the token of its next page.
struct Place {
    uid: String,
    token: String,
}

struct Pass {
    api: Api,
    clock: Clock,
    /// By resource, of those whose migration runs.
    places: Mutex<HashMap<String, Place>>,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, RequestError> {
        let key = &*request.name;
        let mut plan = Plan::default();
        let take = |migration: Value| {
            if GroupResource::of(&migration).key() == key {
                plan.add(migration);
            }
        };
        self.api.list_pages(MIGRATIONS, take).await?;
        for ended in plan.ended {
            self.end(key, ended).await?;
        }
        let Some(running) = plan.running else {
            self.places.lock().remove(key);
            if let Some(next) = plan.next {
                // The change of its status is the next pass.
                self.begin(key, next).await?;
            }
            return Ok(Action::await_change());
        };
        match self.advance(key, &running, context).await {
            Ok(action) => Ok(action),
            Err(Stop::Retry(error)) => Err(error),
            Err(Stop::Failed(message)) => {
                self.set(running, FAILED, "StorageVersionMigrationFailed", &message).await?;
                Ok(Action::await_change())
            }
        }
    }
}

/// The migrations of a resource, by what is to be done.
#[derive(Debug, Default)]
struct Plan {
    /// They have ended, and `Running` is true.
    ended: Vec<Value>,
    running: Option<Value>,
    /// It is to run next: the oldest that waits.
    next: Option<Value>,
}

impl Plan {
    fn add(&mut self, migration: Value) {
        let is_running = is_true(&migration, RUNNING);
        match (is_running, has_ended(&migration)) {
            (true, true) => self.ended.push(migration),
            (true, false) => self.running = Some(migration),
            (false, true) => {}
            (false, false) => {
                let order = |migration: &Value| {
                    (created(migration).to_owned(), migration.name().to_owned())
                };
                if self.next.as_ref().is_none_or(|next| order(&migration) < order(next)) {
                    self.next = Some(migration);
                }
            }
        }
    }
}

fn created(object: &Value) -> &str {
    object["metadata"]["creationTimestamp"].as_str().unwrap_or_default()
}
fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}
fn is_true(object: &Value, kind: &str) -> bool {
    conditions(object).any(|condition| condition["type"] == kind && condition["status"] == "True")
}
fn has_ended(migration: &Value) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

/// Why a migration cannot go on.
enum Stop {
    /// A request failed that is repeated.
    Retry(RequestError),
    /// It has failed for good, with the message of its condition.
    Failed(String),
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        Self::Retry(error)
    }
}

/// Fails for good, with the message of the part that rewrites objects.
fn unhandled(error: &str) -> Stop {
    Stop::Failed(format!("migration encountered unhandled error: {error}"))
}

/// Whether a request that failed so may succeed later.
fn is_retriable(error: &RequestError) -> bool {
    match error {
        RequestError::Api(error) => matches!(error.code(), 429 | 500 | 503 | 504),
        RequestError::Transport(_) => true,
    }
}

impl Pass {
    /// Marks a migration as the one that runs.
    async fn begin(&self, key: &str, migration: Value) -> Result<(), RequestError> {
        if let Some(definition) = self.definition(key).await? {
            let message = format!("Migration {} is running", migration.name());
            let condition = self.migrating(&definition, true, "MigrationRunning", &message);
            let stored = definition["status"]["storedVersions"].clone();
            self.apply(&definition, condition, stored).await?;
        }
        self.set(migration, RUNNING, "MigrationRunning", "The migration is running").await
    }

    /// Marks a migration that has ended as not running.
    async fn end(&self, key: &str, mut migration: Value) -> Result<(), RequestError> {
        if let Some(definition) = self.definition(key).await? {
            self.end_of(&definition, is_true(&migration, SUCCEEDED)).await?;
        }
        let now = self.clock.now();
        let all = migration["status"]["conditions"].as_array_mut().into_iter().flatten();
        for condition in all.filter(|condition| condition["type"] == RUNNING) {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = now.rfc3339().into();
            condition["reason"] = "MigrationCompleted".into();
            condition["message"] = "Migration completed".into();
        }
        self.put_status(&migration).await
    }

    /// Says in a definition how the migration of its objects has ended.
    async fn end_of(&self, definition: &Value, succeeded: bool) -> Result<(), RequestError> {
        let generation = &definition["metadata"]["generation"];
        let mut held = conditions(definition).filter(|held| held["type"] == "StorageMigrating");
        // Otherwise objects may have been stored in yet another version.
        let is_same = held.next().is_some_and(|held| held["observedGeneration"] == *generation);
        let (reason, message) = match (succeeded, is_same) {
            (true, true) => (
                "MigrationSucceeded",
                "The migration has succeeded and the stored versions have been updated",
            ),
            (true, false) => (
                "MigrationSucceeded",
                "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
            ),
            (false, _) => ("MigrationFailed", "The migration has failed"),
        };
        let condition = self.migrating(definition, false, reason, message);
        let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        let storage = versions.find(|version| version["storage"] == true);
        let stored = match storage.filter(|_| succeeded && is_same) {
            Some(storage) => json!([storage["name"]]),
            None => definition["status"]["storedVersions"].clone(),
        };
        self.apply(definition, condition, stored).await
    }

    /// The definition of a custom resource; `None`: it is another resource.
    async fn definition(&self, key: &str) -> Result<Option<Value>, RequestError> {
        self.api.get_opt(&format!("{DEFINITIONS}/{key}")).await
    }

    fn migrating(&self, definition: &Value, is_so: bool, reason: &str, message: &str) -> Value {
        json!({
            "type": "StorageMigrating", "status": if is_so { "True" } else { "False" },
            "lastTransitionTime": self.clock.now().rfc3339(),
            "reason": reason, "message": message,
            "observedGeneration": definition["metadata"]["generation"],
        })
    }

    /// Writes the status of a definition, unless it has changed since it was read. The stored
    /// versions are always part of it: once applied, they would be removed by an apply without
    /// them.
    async fn apply(
        &self,
        definition: &Value,
        condition: Value,
        stored_versions: Value,
    ) -> Result<(), RequestError> {
        let name = definition.name();
        let mut status = json!({"conditions": [condition]});
        if stored_versions.is_array() {
            status["storedVersions"] = stored_versions;
        }
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "resourceVersion": definition.resource_version()},
            "status": status,
        });
        let path = format!("{DEFINITIONS}/{name}/status?fieldManager={RUNNER}&force=true");
        self.api.apply(&path, &body).await.map(drop)
    }

    /// Adds a condition that is true, unless the migration has one of the type.
    async fn set(
        &self,
        mut migration: Value,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), RequestError> {
        if conditions(&migration).any(|condition| condition["type"] == kind) {
            return Ok(());
        }
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": self.clock.now().rfc3339(),
        });
        let status = &mut migration["status"];
        if !status.is_object() {
            *status = json!({});
        }
        match status["conditions"].as_array_mut() {
            Some(all) => all.push(condition),
            None => status["conditions"] = json!([condition]),
        }
        self.put_status(&migration).await
    }

    /// Writes a status. A migration that is gone needs none.
    async fn put_status(&self, migration: &Value) -> Result<(), RequestError> {
        let path = format!("{MIGRATIONS}/{}/status", migration.name());
        ignore_not_found(self.api.put(&path, migration).await).map(drop)
    }

    /// Takes the next step of the migration that runs.
    async fn advance(
        &self,
        key: &str,
        migration: &Value,
        context: &Context,
    ) -> Result<Action, Stop> {
        let barrier = migration["status"]["resourceVersion"].as_str().unwrap_or_default();
        let discovered = discover(&self.api).await?;
        let Some(resource) = find(&discovered, &GroupResource::of(migration)) else {
            let created = Timestamp::parse(created(migration)).unwrap_or_default();
            if self.clock.now().since(created) < DISCOVERY_GRACE {
                return Ok(Action::requeue_after(DISCOVERY_PAUSE));
            }
            return Err(match barrier.is_empty() {
                true => Stop::Failed("resource does not exist in discovery".to_owned()),
                false => unhandled("unable to obtain GVR from discovery"),
            });
        };
        if barrier.is_empty() {
            let barrier = self.barrier(resource).await?;
            let mut migration = migration.clone();
            migration["status"]["resourceVersion"] = barrier.into();
            self.put_status(&migration).await?;
            return Ok(Action::await_change());
        }
        let token = self.place_of(key, migration.uid());
        let token = self.page(resource, barrier, &token, context).await?;
        if let Some(token) = token {
            let place = Place { uid: migration.uid().to_owned(), token };
            self.places.lock().insert(key.to_owned(), place);
            return Ok(Action::requeue_after(NEXT_PAGE));
        }
        self.places.lock().remove(key);
        self.set(migration.clone(), SUCCEEDED, "StorageVersionMigrationSucceeded", "").await?;
        Ok(Action::await_change())
    }

    /// The token of the next page; empty: the first one.
    fn place_of(&self, key: &str, uid: &str) -> String {
        let places = self.places.lock();
        let place = places.get(key).filter(|place| place.uid == uid);
        place.map(|place| place.token.clone()).unwrap_or_default()
    }

    /// The resourceVersion of the resource now.
    async fn barrier(&self, resource: &Resource) -> Result<String, Stop> {
        let shown = shown(resource);
        if !VERBS.iter().all(|verb| resource.serves(verb)) {
            let verbs = VERBS.join(" ");
            return Err(Stop::Failed(format!(
                "resource \"{shown}\" does not support discovery operations: [{verbs}]"
            )));
        }
        let path = format!("{}?limit=1", resource.collection(""));
        let list = self.api.get_accepting(&path, METADATA).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !resource_version::has_order(version) {
            return Err(Stop::Failed(format!(
                "latest resourceVersion for {shown} is not valid: resource version is not well formed: {version}"
            )));
        }
        Ok(version.to_owned())
    }

    /// Rewrites the objects of a page. Returns the token of the next one; `None`: it is the last.
    async fn page(
        &self,
        resource: &Resource,
        barrier: &str,
        token: &str,
        context: &Context,
    ) -> Result<Option<String>, Stop> {
        let list = |token: String| async move {
            let path = format!("{}?limit={PAGE_OBJECTS}&continue={token}", resource.collection(""));
            self.api.get_accepting(&path, METADATA).await
        };
        let page = match list(token.to_owned()).await {
            // The answer has a token of the newest state.
            Err(RequestError::Api(error)) if error.code() == 410 => {
                list(error.0.metadata.continue_token).await?
            }
            page => page?,
        };
        for object in page["items"].as_array().into_iter().flatten() {
            if context.stopping().is_cancelled() {
                // The page begins again if it is to be.
                return Ok(Some(token.to_owned()));
            }
            let version = object.resource_version();
            match resource_version::compare(version, barrier) {
                Some(Ordering::Greater) => {}
                Some(_) => self.rewrite(resource, object).await?,
                None => {
                    let text = format!("resource version is not well formed: {version}");
                    return Err(unhandled(&text));
                }
            }
        }
        let token = page["metadata"]["continue"].as_str().unwrap_or_default();
        Ok((!token.is_empty()).then(|| token.to_owned()))
    }

    /// Has the server store an object again, if its stored form is out of date.
    async fn rewrite(&self, resource: &Resource, object: &Value) -> Result<(), Stop> {
        let body = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": {"uid": object.uid(), "resourceVersion": object.resource_version()},
        });
        let path = resource.object(object.namespace(), object.name());
        match self.api.apply(&format!("{path}?fieldManager={NAME}"), &body).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_conflict() => match self.is_current(resource, object).await? {
                true => Ok(()),
                false => Err(error.into()),
            },
            Err(error) if is_retriable(&error) => Err(error.into()),
            Err(error) => Err(unhandled(&error.to_string())),
        }
    }

    /// Whether an object has changed or is gone since it was listed. Then somebody else has stored
    /// it in the current version.
    async fn is_current(&self, resource: &Resource, object: &Value) -> Result<bool, RequestError> {
        // The controller may list everything, and get nothing.
        let name = object.name().replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let name =
            escape_segment(&name).replace('&', "%26").replace('+', "%2B").replace('=', "%3D");
        let collection = resource.collection(object.namespace());
        let path = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        let list = self.api.get_accepting(&path, METADATA).await?;
        Ok(list["items"].as_array().into_iter().flatten().all(|found| {
            found.uid() != object.uid() || found.resource_version() != object.resource_version()
        }))
    }
}

/// The resource in the preferred version of its group.
fn find<'d>(discovered: &'d Discovered, wanted: &GroupResource) -> Option<&'d Resource> {
    let mut all = discovered.resources.iter();
    all.find(|found| found.group == wanted.group && found.resource == wanted.resource)
}

/// Group, version and resource as messages show them.
fn shown(resource: &Resource) -> String {
    format!("{}/{}, Resource={}", resource.group, resource.version, resource.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(name: &str, created: &str, true_ones: &[&str]) -> Value {
        let all = true_ones.iter().map(|kind| json!({"type": kind, "status": "True"}));
        json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "status": {"conditions": all.collect::<Vec<_>>()},
        })
    }

    #[test]
    fn one_runs_at_a_time_and_the_oldest_is_next() {
        let mut plan = Plan::default();
        for (name, created, kinds) in [
            ("b", "2026-01-01T00:00:02Z", &[][..]),
            ("c", "2026-01-01T00:00:01Z", &[]),
            ("a", "2026-01-01T00:00:02Z", &[]),
            ("done", "2026-01-01T00:00:00Z", &[SUCCEEDED]),
            ("failed", "2026-01-01T00:00:00Z", &[RUNNING, FAILED]),
        ] {
            plan.add(migration(name, created, kinds));
        }
        assert_eq!(plan.next.as_ref().map(Value::name), Some("c"));
        assert!(plan.running.is_none());
        assert_eq!(plan.ended.iter().map(Value::name).collect::<Vec<_>>(), ["failed"]);
        plan.add(migration("d", "2026-01-01T00:00:03Z", &[RUNNING]));
        assert_eq!(plan.running.as_ref().map(Value::name), Some("d"));
    }
}
