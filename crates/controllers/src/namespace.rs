//! Namespace deletion: a namespace that is being deleted loses its content, then its finalizer, then itself.
//!
//! # Theory
//!
//! One informer of namespaces puts the names of those with a deletionTimestamp into a queue; a worker makes one *pass*:
//!
//! 1. Discovery: every namespaced resource that can be deleted. Groups that cannot be read block the end, not the pass.
//! 2. Pods first: `deletecollection`, and while any remain nothing else is deleted.
//! 3. Every other resource: `deletecollection`, or one by one where that is not served; then a list says what remains and which
//!    finalizers hold it.
//! 4. The five conditions are written, as the pass found things.
//! 5. When nothing remains and nothing failed, `PUT …/finalize` without `kubernetes`; the API server removes the object.
//!
//! A pass that leaves something is repeated: by the back-off of the queue after a failure, after an estimate (half of what the
//! pods' grace periods or a finalizer's 15 s suggest, plus one second) when content waits. A pass changes nothing that an
//! earlier one has done, so a crash between any two steps costs nothing but a repetition.

mod condition;
mod content;

use crate::api::{Api, RequestError, discover};
use condition::Findings;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::Client;
use serde_json::{Value, json};
use setpoint_informer::{ClientSource, Event, HandlerOptions, Object, SharedInformer};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Clock;
use setpoint_workqueue::{Exponential, WorkQueue};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How many namespaces are emptied at a time: 10, as the reference.
const WORKERS: usize = 10;

/// How long after a change of a namespace that is being deleted it is looked at: 5 s, as the reference.
const CHANGE_PAUSE: Duration = Duration::from_secs(5);

/// The shortest and the longest wait after a pass that failed: 5 ms doubling to a minute, as the reference. A namespace that is being
/// deleted is in somebody's way.
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

/// What a pass leaves to be done.
enum Outcome {
    /// Nothing: the namespace is gone, or not being deleted.
    Done,
    /// Content that goes by itself: look again after this.
    Wait(Duration),
}

/// The namespace controller; nothing runs before [`NamespaceController::run`].
#[must_use]
pub struct NamespaceController {
    api: Api,
    clock: Clock,
}

impl NamespaceController {
    /// A controller that works through `client` and dates its conditions by `clock`.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { api: Api::new(client, "namespace-controller"), clock }
    }

    /// Runs until `stop`; a pass that is under way is dropped. Dropping it stops everything at once.
    pub async fn run(self, stop: CancellationToken) {
        let queue = WorkQueue::<Arc<str>>::builder().rate_limiter(limiter()).build();
        let source = ClientSource::all::<Namespace>(self.api.client().clone());
        let (informer, worker) = SharedInformer::<Namespace>::builder(source).build();
        let handler = {
            let queue = queue.clone();
            move |event: Event<Namespace>| {
                let is_deleting =
                    |object: &Object<Namespace>| !object.skim().deletion_timestamp.is_empty();
                // What follows from a change after the deletionTimestamp can wait: most are this controller's own conditions, and
                // a pass for each of those would never wait for the back-off of a pass that failed.
                match &event {
                    Event::Updated { old, new } if is_deleting(old) && is_deleting(new) => {
                        queue.add_after(event.key().name.clone(), CHANGE_PAUSE);
                    }
                    Event::Deleted { .. } => {}
                    _ if event.object().is_some_and(is_deleting) => {
                        queue.add(event.key().name.clone());
                    }
                    _ => {}
                }
            }
        };
        let mut tasks = JoinSet::new();
        if let Err(error) = informer.add_handler(handler, HandlerOptions::default()) {
            tracing::error!(error = &error as &dyn std::error::Error, "watch namespaces");
            return;
        }
        let this = Arc::new(self);
        tasks.spawn(worker.run(stop.clone()));
        for _ in 0..WORKERS {
            tasks.spawn(this.clone().work(queue.clone(), stop.clone()));
        }
        stop.cancelled().await;
        queue.shut_down();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the namespace controller panicked");
            }
        }
    }

    async fn work(self: Arc<Self>, queue: WorkQueue<Arc<str>>, stop: CancellationToken) {
        while let Some(item) = queue.get().await {
            let name = item.key();
            let outcome = tokio::select! {
                biased;
                outcome = self.pass(name) => outcome,
                () = stop.cancelled() => return,
            };
            match outcome {
                Ok(Outcome::Done) => queue.forget(name),
                Ok(Outcome::Wait(pause)) => {
                    queue.forget(name);
                    queue.add_after(name.clone(), pause);
                }
                Err(error) => {
                    tracing::debug!(
                        namespace = &**name,
                        error = &error as &dyn std::error::Error,
                        "emptying the namespace again later"
                    );
                    queue.add_rate_limited(name.clone());
                }
            }
        }
    }

    /// One pass over one namespace.
    async fn pass(&self, name: &str) -> Result<Outcome, PassError> {
        let path = format!("/api/v1/namespaces/{name}");
        let found = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => return Ok(Outcome::Done),
            other => other?,
        };
        let finalizers = finalizers(&found);
        if found.deletion_timestamp().is_empty() || !finalizers.contains(&FINALIZER) {
            return Ok(Outcome::Done);
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
            return Ok(Outcome::Wait(pause));
        }
        let mut finalized = namespace;
        finalized["spec"]["finalizers"] =
            finalizers.iter().filter(|finalizer| **finalizer != FINALIZER).copied().collect();
        match self.api.put(&format!("{path}/finalize"), &finalized).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
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

#[expect(clippy::expect_used, reason = "the figures are constants, and in order")]
fn limiter() -> Exponential<Arc<str>> {
    Exponential::new(BACKOFF.0, BACKOFF.1).expect("a base above zero and a maximum above it")
}

/// `spec.finalizers`.
fn finalizers(namespace: &Value) -> Vec<&str> {
    let listed = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).collect()
}
