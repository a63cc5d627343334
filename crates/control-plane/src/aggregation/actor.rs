//! Watches over the server of one APIService: checks, the condition, documents.

use super::api_service::ApiService;
use super::check::{Condition, check};
use super::documents::Documents;
use super::remote::Remote;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, Attributes, Events, Identity, Requested, ResourcePath, Verb};
use setpoint_object::error::chain;
use setpoint_registry::{ListOptions, VersionMatch};
use setpoint_webhook_client::Service;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The time between two checks of a server: a dead one is noticed within it.
pub(super) const RESYNC: Duration = Duration::from_secs(30);
/// The pause after the first failure. It doubles with each further one, up to [`RESYNC`].
const BACKOFF: Duration = Duration::from_millis(100);
/// The age at which documents are fetched again.
const DOCUMENTS_AGE: Duration = Duration::from_secs(60);
/// The pause after discovery could not be fetched: 500 ms, as the original's queue. It doubles with
/// each further failure, up to [`DOCUMENTS_AGE`].
const DISCOVERY_BACKOFF: Duration = Duration::from_millis(500);
/// The pause before a watch that ended, or could not be started, begins again.
const RETRY: Duration = Duration::from_secs(1);

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Does nothing until [`Actor::run`].
pub(super) struct Actor {
    pub(super) server: ApiServer,
    pub(super) remote: Arc<Remote>,
    pub(super) service: watch::Receiver<Arc<ApiService>>,
    /// The Service is an object of this server.
    pub(super) has_services: bool,
    /// Held while documents are fetched.
    pub(super) fetches: Arc<Semaphore>,
}

impl Actor {
    /// Runs until the object is deleted. Dropping it stops at once.
    pub(super) async fn run(mut self) {
        let (mut triggers, mut documents) = (None, Documents::default());
        // Failed checks, and fetches of discovery that failed, one after the other.
        let (mut failures, mut unfetched) = (0_u32, 0_u32);
        let mut fetch_at = Instant::now();
        loop {
            let service = self.service.borrow_and_update().clone();
            let route = self.remote.route();
            if self.has_services {
                let known =
                    triggers.take().filter(|known: &Triggers| known.of == route.target.service);
                let known = known.unwrap_or_else(|| Triggers::new(&route.target.service));
                triggers.insert(known).start(&self.server).await;
            }
            let objects = self.has_services.then(|| self.server.registry().objects());
            let condition = check(&self.remote, &route, objects).await;
            if let Some(condition) = &condition {
                self.write(&service, condition).await;
            }
            let is_passed = condition.as_ref().is_some_and(Condition::is_passed);
            // One that fails the check may have discovery, as in the original. It is fetched with
            // each check.
            let has_answered = condition.as_ref().is_some_and(|condition| condition.has_answered);
            if !has_answered {
                self.remote.discovered(self.server.backends(), false);
                (unfetched, fetch_at) = (0, Instant::now());
            } else if !is_passed || failures > 0 || Instant::now() >= fetch_at {
                // After a failure, the larger documents are fetched once there is discovery again.
                let wants_open_api = |is_found| is_passed && (unfetched == 0 || is_found);
                let is_found = self.fetch(&mut documents, wants_open_api).await;
                self.remote.discovered(self.server.backends(), is_found);
                unfetched = if is_found { 0 } else { unfetched.saturating_add(1) };
                let age = backoff(DISCOVERY_BACKOFF, unfetched, DOCUMENTS_AGE);
                fetch_at = Instant::now() + age;
            }
            failures = if is_passed { 0 } else { failures.saturating_add(1) };
            let mut pause = backoff(BACKOFF, failures, RESYNC);
            if is_passed && unfetched > 0 {
                pause = pause.min(fetch_at.saturating_duration_since(Instant::now()));
            }
            let is_gone = tokio::select! {
                biased;
                // Cancel safe: each waits for a state, and what it says is read again.
                is_gone = changed(&mut self.service, &service, condition.as_ref()) => is_gone,
                () = triggered(triggers.as_mut(), &self.server) => false,
                () = tokio::time::sleep(pause) => false,
            };
            if is_gone {
                return;
            }
        }
    }

    /// Writes the condition, if it differs.
    async fn write(&self, service: &ApiService, condition: &Condition) {
        if is_shown(service, condition) {
            return;
        }
        let Condition { status, reason, message, .. } = condition;
        let former = service.available();
        let since = former.filter(|former| former["status"] == *status);
        let since = since.and_then(|former| former["lastTransitionTime"].as_str());
        let now = || self.server.registry().clock().now().rfc3339();
        let written = json!({
            "type": "Available", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.map_or_else(now, str::to_owned),
        });
        let mut conditions = service.conditions.clone();
        match conditions.iter_mut().find(|known| known["type"] == "Available") {
            Some(known) => *known = written,
            None => conditions.push(written),
        }
        let patch = json!({"metadata": {"uid": service.uid}, "status": {"conditions": conditions}});
        let code = self.patch(&format!("{SERVICES}/{}/status", service.name), &patch).await;
        // 404 and 409: the object is another one by now, and an event follows.
        if !matches!(code, 200 | 404 | 409) {
            tracing::warn!(code, name = service.name, "write the condition of an APIService");
        }
    }

    /// Sends a merge patch as the server itself; returns the code of the answer.
    async fn patch(&self, path: &str, patch: &Value) -> u16 {
        let mut request = Request::new(Full::new(Bytes::from(patch.to_string())));
        *request.method_mut() = Method::PATCH;
        if let Ok(uri) = path.parse() {
            *request.uri_mut() = uri;
        }
        let agent = concat!("kube-apiserver/v", env!("CARGO_PKG_VERSION"), " setpoint/aggregator");
        let set =
            [(header::CONTENT_TYPE, "application/merge-patch+json"), (header::USER_AGENT, agent)];
        for (name, text) in set {
            if let Ok(value) = text.parse() {
                request.headers_mut().insert(name, value);
            }
        }
        request.extensions_mut().insert(Identity::loopback());
        self.server.serve(request).await.status().as_u16()
    }

    /// Fetches discovery, and the other documents if `wants_open_api` by whether it was fetched,
    /// and shows them. Returns whether there is discovery that can be used.
    async fn fetch(
        &self,
        documents: &mut Documents,
        wants_open_api: impl FnOnce(bool) -> bool,
    ) -> bool {
        // Never closed. Without a permit, more memory is in use for a moment.
        let _permit = self.fetches.acquire().await;
        let is_found = documents.refresh(&self.remote, &self.remote.route(), wants_open_api).await;
        let Some((backend, has_discovery)) = documents.backend(&self.remote).await else {
            return false;
        };
        if let Err(error) = self.remote.document(self.server.backends(), backend) {
            let group_version = &self.remote.group_version;
            tracing::warn!(error = chain(&error), %group_version, "show the documents of an APIService");
        }
        is_found && has_discovery
    }
}

/// The pause after some failures: the first one, doubled with each further failure. `most`: the
/// longest one, which is also that after none.
fn backoff(first: Duration, failures: u32, most: Duration) -> Duration {
    match failures {
        0 => most,
        n => (first * 2_u32.saturating_pow(n.min(16) - 1)).min(most),
    }
}

/// Waits for a change of the object other than the condition that was written. Returns true when it
/// is gone.
async fn changed(
    changes: &mut watch::Receiver<Arc<ApiService>>,
    known: &ApiService,
    written: Option<&Condition>,
) -> bool {
    loop {
        if changes.changed().await.is_err() {
            return true;
        }
        let service = changes.borrow_and_update().clone();
        let is_written = written.is_some_and(|condition| is_shown(&service, condition));
        if service.target != known.target || service.uid != known.uid || !is_written {
            return false;
        }
    }
}

/// Whether the object has this condition.
fn is_shown(service: &ApiService, condition: &Condition) -> bool {
    let Condition { status, reason, message, .. } = condition;
    service.available().is_some_and(|known| {
        known["status"] == *status && known["reason"] == *reason && known["message"] == **message
    })
}

/// Waits for a change of the Service or its slices.
async fn triggered(triggers: Option<&mut Triggers>, server: &ApiServer) {
    match triggers {
        Some(triggers) => triggers.next(server).await,
        None => std::future::pending().await,
    }
}

/// Changes of a Service and its EndpointSlices.
struct Triggers {
    of: Service,
    service: Trigger,
    slices: Trigger,
}

/// Changes of some objects in a namespace.
struct Trigger {
    path: ResourcePath,
    labels: String,
    fields: String,
    events: Option<Events>,
}

impl Triggers {
    fn new(of: &Service) -> Self {
        let trigger = |group: &str, resource: &str| Trigger {
            path: ResourcePath {
                group: group.to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                namespace: of.namespace.clone(),
                ..ResourcePath::default()
            },
            labels: String::new(),
            fields: String::new(),
            events: None,
        };
        let fields = format!("metadata.name={}", of.name);
        let labels = format!("kubernetes.io/service-name={}", of.name);
        Self {
            of: of.clone(),
            service: Trigger { fields, ..trigger("", "services") },
            slices: Trigger { labels, ..trigger("discovery.k8s.io", "endpointslices") },
        }
    }

    /// Begins to watch: no later change is missed.
    async fn start(&mut self, server: &ApiServer) {
        self.service.start(server).await;
        self.slices.start(server).await;
    }

    async fn next(&mut self, server: &ApiServer) {
        tokio::select! {
            biased;
            // Cancel safe: an event only wakes.
            () = self.service.next(server) => {}
            () = self.slices.next(server) => {}
        }
    }
}

impl Trigger {
    async fn start(&mut self, server: &ApiServer) {
        if self.events.is_some() {
            return;
        }
        let requested = Requested::Unrouted(self.path.clone());
        let request = Attributes {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..Attributes::new(Identity::loopback(), Verb::Watch, requested)
        };
        let options = ListOptions {
            send_initial_events: Some(false),
            resource_version_match: Some(VersionMatch::NotOlderThan),
            ..ListOptions::default()
        };
        match server.watch(request, options).await {
            Ok(events) => self.events = Some(events),
            Err(error) => {
                tracing::debug!(error = chain(&error), "watch the service of an APIService")
            }
        }
    }

    /// Waits for an event, or the end of the watch, after which changes may have been missed.
    async fn next(&mut self, server: &ApiServer) {
        if let Some(events) = &mut self.events {
            if let Some(Ok(_)) = events.next().await {
                return;
            }
            self.events = None;
        }
        tokio::time::sleep(RETRY).await;
        self.start(server).await;
    }
}
