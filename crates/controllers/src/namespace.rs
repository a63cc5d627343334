//! Namespace deletion: removes the content of a namespace that is being deleted, then its
//! finalizer, so that the namespace is removed.
//!
//! # Theory
//!
//! A controller reconciles every namespace that has a deletionTimestamp; one reconcile is one
//! *pass*:
//!
//! 1. Discovery: every namespaced resource that can be deleted. A group that cannot be read
//!    prevents the namespace's removal but not the pass.
//! 2. Pods first: `deletecollection`. While any remain, nothing else is deleted.
//! 3. Every other resource: `deletecollection`, or one by one where that is not served. A list then
//!    shows the remaining objects and the finalizers that hold them.
//! 4. The five conditions are written from the findings of the pass.
//! 5. If nothing remains and nothing failed, `PUT …/finalize` without `kubernetes`. The API server
//!    then removes the object.
//!
//! A pass that leaves content is repeated. If content waits, an estimate decides when: half of the
//! pods' grace period or of a finalizer's 15 s, plus one second, and 20 s at most, because it may
//! go sooner. Content that has no finalizer, and
//! pods that outlive their grace period since the namespace was deleted, are failures: then the
//! queue's back-off decides. A pass never repeats the work of an earlier one, so a crash between
//! two steps costs only a repetition.

mod condition;
mod content;

use crate::api::{Api, RequestError, discover, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use bytes::Bytes;
use condition::Findings;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::Skim;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, Predicate, RateLimits, Request, Watch,
};
use std::fmt;
use std::time::Duration;

/// The controller's name in its user agent and in logs.
const NAME: &str = "namespace-controller";

/// Number of namespaces that are processed at the same time: 10, as in the reference.
const WORKERS: usize = 10;

/// Shortest and longest back-off after a failed pass: 5 ms doubling to a minute, as in the
/// reference.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// The finalizer in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";

/// Why a pass is repeated after a back-off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Some content could not be deleted, or its group could not be read.
    #[error("{0}")]
    Content(String),
}

/// The namespace controller. Does nothing until a manager runs it.
#[must_use]
pub struct NamespaceController {
    setup: Setup,
    api: Api,
}

impl fmt::Debug for NamespaceController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceController").finish_non_exhaustive()
    }
}

impl NamespaceController {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { api: setup.api(NAME), setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        // A new deletionTimestamp triggers a pass. Later changes are mostly this controller's own
        // conditions; a pass for each of them would bypass the back-off of a failed pass. Each pass
        // schedules the next one itself.
        let is_deleting =
            |namespace: &Object<Namespace>| !namespace.skim().deletion_timestamp.is_empty();
        let deletion_begins = Predicate::new(move |event| match event {
            Event::Updated { old, new } => {
                is_deleting(new) && (!is_deleting(old) || old.uid() != new.uid())
            }
            event => event.object().is_some_and(is_deleting),
        });
        let controller = Controller::builder(NAME)
            .for_(Watch::<Namespace>::new().filter(deletion_begins))
            .concurrency(WORKERS)
            .rate_limiter(RateLimits::new().backoff(BACKOFF.0, BACKOFF.1))
            .sync_timeout(None)
            .build(Boxed(self))?;
        manager.add(controller)?;
        Ok(())
    }

    /// Whether the controller has nothing to do, by all namespaces as encoded objects.
    pub fn is_settled(namespaces: &[Bytes]) -> bool {
        let is_live = |object: &Bytes| {
            Skim::of(object).is_ok_and(|namespace| namespace.deletion_timestamp.is_empty())
        };
        namespaces.iter().all(is_live)
    }

    /// Writes the five conditions; returns the updated namespace.
    async fn write_conditions(&self, path: &str, findings: &Findings) -> Result<Value, PassError> {
        let mut namespace = self.api.get(path).await?;
        let now = self.setup.clock().now().rfc3339();
        if condition::set_all(&mut namespace, findings, &now) {
            // A PUT, so that a concurrent write causes a conflict and the pass is repeated.
            namespace = self.api.put(&format!("{path}/status"), &namespace).await?;
        }
        // The `managedFields` must not become a precondition of the next write.
        namespace.set_meta("managedFields", json!(null));
        Ok(namespace)
    }
}

impl BoxedReconciler for NamespaceController {
    type Error = PassError;

    /// One pass over one namespace.
    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, PassError> {
        let name = &*request.name;
        let path = format!("/api/v1/namespaces/{name}");
        let Some(found) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let finalizers = finalizers(&found);
        if found.deletion_timestamp().is_empty() || !finalizers.contains(&FINALIZER) {
            return Ok(Action::await_change());
        }
        let mut findings = Findings::default();
        let discovered = discover(&self.api).await?;
        findings.stale_groups = discovered.stale.clone();
        let deleted = Timestamp::parse(found.deletion_timestamp()).unwrap_or_default();
        let age = self.setup.clock().now().since(deleted);
        content::delete_all(&self.api, name, age, &discovered, &mut findings).await;
        let namespace = self.write_conditions(&path, &findings).await?;
        if let Some(failure) = findings.failure() {
            return Err(PassError::Content(failure));
        }
        if let Some(pause) = findings.estimate() {
            return Ok(Action::requeue_after(pause));
        }
        let mut finalized = namespace;
        finalized["spec"]["finalizers"] =
            finalizers.iter().filter(|finalizer| **finalizer != FINALIZER).copied().collect();
        ignore_not_found(self.api.put(&format!("{path}/finalize"), &finalized).await)?;
        Ok(Action::await_change())
    }
}

/// `spec.finalizers`.
fn finalizers(namespace: &Value) -> Vec<&str> {
    let listed = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).collect()
}
