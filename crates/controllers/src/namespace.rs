//! Namespace deletion: a namespace that is being deleted loses its content, then its finalizer,
//! then itself.
//!
//! # Theory
//!
//! A controller reconciles every namespace that has a deletionTimestamp; one reconcile is one
//! *pass*:
//!
//! 1. Discovery: every namespaced resource that can be deleted. Groups that cannot be read block
//!    the end, not the pass.
//! 2. Pods first: `deletecollection`, and while any remain nothing else is deleted.
//! 3. Every other resource: `deletecollection`, or one by one where that is not served; then a list
//!    says what remains and which finalizers hold it.
//! 4. The five conditions are written, as the pass found things.
//! 5. When nothing remains and nothing failed, `PUT …/finalize` without `kubernetes`; the API
//!    server removes the object.
//!
//! A pass that leaves something is repeated: by the back-off of the queue after a failure, after an
//! estimate (half of what the pods' grace periods or a finalizer's 15 s suggest, plus one second)
//! when content waits. A pass changes nothing that an earlier one has done, so a crash between any
//! two steps costs nothing but a repetition.

mod condition;
mod content;

use crate::api::{Api, RequestError, discover};
use condition::Findings;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::Client;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_object::seed;
use setpoint_object::time::Clock;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, Predicate, RateLimits, Reconciler, Request,
    Watch,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The controller's name: in its user agent, and in logs.
const NAME: &str = "namespace-controller";

/// How many namespaces are emptied at a time: 10, as the reference.
const WORKERS: usize = 10;

/// The shortest and the longest wait after a pass that failed: 5 ms doubling to a minute, as the
/// reference. A namespace that is being deleted is in somebody's way.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// The finalizer in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";

/// Why a pass has to be repeated at once, after a back-off.
#[derive(Debug, thiserror::Error)]
enum PassError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Some content could not be deleted, or its group could not be read.
    #[error("{0}")]
    Content(String),
}

/// The namespace controller; nothing runs before [`NamespaceController::run`].
#[must_use]
pub struct NamespaceController {
    api: Api,
    clock: Clock,
    seed: u64,
}

impl NamespaceController {
    /// A controller that works through `client` and dates its conditions by `clock`.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { api: Api::new(client, NAME), clock, seed: seed::from_entropy() }
    }

    /// The seed of all chance, for a simulation. Default: the operating system's randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs until `stop`, which lets passes that are under way finish. Dropping it stops everything
    /// at once.
    ///
    /// # Errors
    ///
    /// When a part of it fails for good.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        // The deletionTimestamp asks for a pass. Changes after it are mostly this controller's own
        // conditions, and a pass for each of those would never wait for the back-off of a pass that
        // failed: each pass says itself when to come back.
        let is_deleting =
            |namespace: &Object<Namespace>| !namespace.skim().deletion_timestamp.is_empty();
        let begins = Predicate::new(move |event| match event {
            Event::Updated { old, new } => is_deleting(new) && !is_deleting(old),
            event => event.object().is_some_and(is_deleting),
        });
        let mut manager = Manager::builder(self.api.client().clone())
            .clock(self.clock.clone())
            .seed(self.seed)
            .build();
        let controller = Controller::builder(NAME)
            .for_(Watch::<Namespace>::new().filter(begins))
            .concurrency(WORKERS)
            .rate_limiter(RateLimits::new().backoff(BACKOFF.0, BACKOFF.1))
            .sync_timeout(None)
            .build(self)?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }

    /// One pass over one namespace.
    async fn pass(&self, name: &str) -> Result<Action, PassError> {
        let path = format!("/api/v1/namespaces/{name}");
        let found = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => return Ok(Action::await_change()),
            other => other?,
        };
        let finalizers = finalizers(&found);
        if found.deletion_timestamp().is_empty() || !finalizers.contains(&FINALIZER) {
            return Ok(Action::await_change());
        }
        let mut findings = Findings::default();
        let discovered = discover(&self.api).await?;
        findings.stale_groups = discovered.stale.clone();
        content::delete_all(&self.api, name, &discovered, &mut findings).await;
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
        match self.api.put(&format!("{path}/finalize"), &finalized).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::await_change()),
        }
    }

    /// Writes the five conditions; returns the namespace as it is then.
    async fn write_conditions(&self, path: &str, findings: &Findings) -> Result<Value, PassError> {
        let mut namespace = self.api.get(path).await?;
        let now = self.clock.now().rfc3339();
        if condition::set_all(&mut namespace, findings, &now) {
            // As a PUT: a concurrent write makes it a conflict, and the pass is repeated.
            namespace = self.api.put(&format!("{path}/status"), &namespace).await?;
        }
        // What it carries here must not count as a precondition of the next write.
        namespace.set_meta("managedFields", json!(null));
        Ok(namespace)
    }
}

impl Reconciler for NamespaceController {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, _: Context) -> Result<Action, BoxError> {
        // Boxed: a worker that waits for work is small.
        Ok(Box::pin(self.pass(&request.name)).await?)
    }
}

/// `spec.finalizers`.
fn finalizers(namespace: &Value) -> Vec<&str> {
    let listed = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).collect()
}
