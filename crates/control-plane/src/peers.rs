//! Other servers of the same store, which may serve what this one does not.
//!
//! # Theory
//!
//! ```text
//! store: addresses ─▶ PeerWorker ─ every ten seconds ─▶ setpoint_apiserver::Peers ─▶ requests ─▶ PeerProxy
//!                          │                                 (what each of them lists)             │
//!                          └─ GET /api, /apis (aggregated, without peers) ─▶ server ◀──────────────┘
//! ```
//!
//! Every server publishes its address in the store, where it expires after 15 seconds. A worker
//! asks the others what they serve. Requests are passed on with the user in headers, as to servers
//! of APIServices; so each server must accept the certificate of the others' front proxy.
//!
//! What definitions and APIServices add is the same at all servers, so it is left out: also for
//! [`FORGOTTEN_AFTER`] behind their end, in which a peer may still list it.
//!
//! At most [`PEERS_MAX`] peers are asked, and [`DISCOVERY_BYTES_MAX`] of each are read. A peer that
//! does not answer is left out.

use crate::ControlPlaneBuilder;
use crate::aggregation::{ProxyCertificate, forwarding};
use crate::families::Families;
use crate::identity::OwnName;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use serde_json::Value;
use setpoint_apiserver::{
    ApiServer, Attributes, Body, Handler, Identity, PEER_PROXIED, PeerServer, RequestBody,
};
use setpoint_egress::Dialer;
use setpoint_object::GroupVersionResource;
use setpoint_object::error::chain;
use setpoint_registry::figures::{Family, Labelled, Series};
use setpoint_registry::{Feature, Routes};
use setpoint_runtime::metrics::Metrics;
use setpoint_webhook_client::{
    Address, Answer, ConfigError, Lane, Transport, TransportError, Trust,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of peers that are asked: 16. Clusters have three or five servers.
pub const PEERS_MAX: usize = 16;
/// Maximum bytes of a peer's discovery document: 4 MiB, of which a thousand definitions need one.
pub const DISCOVERY_BYTES_MAX: usize = 4 << 20;
/// How long a definition or an APIService that is gone hides what peers list of it: a minute.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How long this server may take to get its name, until requests no longer wait for peers.
const NAMED_MAX: Duration = Duration::from_secs(10);
/// The time between two rounds.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a peer has to answer for one document.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The name in the certificates of all servers.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// As kube-apiserver asks its peers.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
    application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATHS: [&str; 2] = ["/api", "/apis"];

/// How other servers of the store are asked.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// The authorities of their certificates in PEM, which have the name `kubernetes.default.svc`.
    pub authorities: Bytes,
    /// Where requests to them are counted. Default: nowhere.
    pub metrics: Option<Metrics>,
}

impl PeerOptions {
    /// With these authorities, and no metrics.
    pub fn new(authorities: impl Into<Bytes>) -> Self {
        Self { authorities: authorities.into(), metrics: None }
    }

    /// Whether a server passes requests on at all.
    pub(crate) fn are_used(server: &ApiServer) -> bool {
        server.registry().features().is_on(Feature::UnknownVersionInteroperabilityProxy)
    }

    pub(crate) fn worker(
        self,
        server: &ApiServer,
        certificate: ProxyCertificate,
        own: OwnName,
        dialer: Dialer,
    ) -> PeerWorker {
        let figures = Arc::new(PeerFigures::default());
        if let Some(metrics) = &self.metrics {
            let read = figures.clone();
            Families::register(metrics, move || read.families());
        }
        let (server, authorities) = (server.clone(), self.authorities);
        PeerWorker { server, certificate, dialer, authorities, own, figures }
    }
}

impl ControlPlaneBuilder {
    /// On a [shared](Self::shared_as) store, requests for resources that this server does not serve
    /// are passed on to other servers that do, and discovery shows what these serve: with the
    /// feature `UnknownVersionInteroperabilityProxy`. Each server must accept the client
    /// certificate of the others as that of a front proxy
    /// ([`ServeOptions::front_proxy`](crate::ServeOptions::front_proxy)). Default: no.
    pub fn peers(mut self, options: PeerOptions) -> Self {
        self.peers = Some(options);
        self
    }
}

/// Finds peers, and keeps the table of what they serve.
#[derive(Debug)]
pub(crate) struct PeerWorker {
    pub(crate) server: ApiServer,
    pub(crate) certificate: ProxyCertificate,
    pub(crate) dialer: Dialer,
    /// The authorities of the peers' certificates in PEM.
    pub(crate) authorities: Bytes,
    pub(crate) own: OwnName,
    pub(crate) figures: Arc<PeerFigures>,
}

/// What has been found out.
#[derive(Default)]
struct Found {
    peers: BTreeMap<String, Known>,
    /// Group versions of definitions and APIServices, and when they were there last.
    shared: HashMap<(String, String), Instant>,
}

/// A peer.
struct Known {
    address: Address,
    documents: [Option<Document>; PATHS.len()],
}

/// What a peer lists at a path, as it was read: most of it may be what all servers share.
struct Document {
    etag: Option<HeaderValue>,
    body: Bytes,
}

impl PeerWorker {
    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.server.peers().expect();
        let work = async {
            let own = match timeout(NAMED_MAX, self.own.known()).await {
                Ok(own) => own,
                Err(_) => {
                    // Nobody should wait for more.
                    self.server.peers().set("", Vec::new());
                    self.own.known().await
                }
            };
            let transport = match self.transport().await {
                Ok(transport) => Arc::new(transport),
                Err(error) => {
                    tracing::error!(error = chain(&error), "peers are not asked");
                    return self.server.peers().set(&own, Vec::new());
                }
            };
            let (mut found, mut shown) = (Found::default(), None);
            loop {
                let own = self.own.known().await;
                let is_changed = self.round(&own, &mut found, &transport).await;
                if is_changed || shown.as_ref() != Some(&own) {
                    self.server.peers().set(&own, self.servers(&found, &transport).await);
                    shown = Some(own);
                }
                sleep(PERIOD).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // Cancel safe: it reads only.
            () = work => {}
        }
    }

    async fn transport(&self) -> Result<Transport<RequestBody>, ConfigError> {
        let trust = Trust::Bundle(self.authorities.clone());
        let (identity, clock) = (self.certificate.get(), self.server.registry().clock());
        let dialer = self.dialer.clone();
        Transport::new(&trust, Some(SERVER_NAME), identity.as_ref(), clock, dialer).await
    }

    /// Asks all peers once. Returns whether something has changed.
    async fn round(
        &self,
        own: &str,
        found: &mut Found,
        transport: &Transport<RequestBody>,
    ) -> bool {
        let mut addresses = match self.server.registry().published_peers().await {
            Ok(addresses) => addresses,
            Err(error) => {
                self.figures.sync_errors.add(&["lease_list"]);
                tracing::warn!(error = chain(&error), "read the addresses of peers");
                return false;
            }
        };
        addresses.remove(own);
        let mut is_changed = self.note_shared(&mut found.shared).await;
        let mut known = std::mem::take(&mut found.peers);
        let peers = addresses.into_iter().take(PEERS_MAX).map(|(name, (host, port))| {
            let address = Address { host, port };
            // Of the same name at another place, it is another server.
            let known = known.remove(&name).filter(|known| known.address == address);
            self.ask(transport, name, address, known)
        });
        let peers: Vec<_> = peers.collect();
        is_changed |= !known.is_empty();
        for (name, known, has_changed) in join_all(peers).await {
            is_changed |= has_changed;
            found.peers.insert(name, known);
        }
        is_changed
    }

    /// Asks a peer what it serves. Also returns whether that has changed.
    async fn ask(
        &self,
        transport: &Transport<RequestBody>,
        name: String,
        address: Address,
        known: Option<Known>,
    ) -> (String, Known, bool) {
        let mut is_changed = known.is_none();
        let mut known = known.unwrap_or_else(|| Known { address, documents: Default::default() });
        let Known { address, documents } = &mut known;
        for (path, document) in PATHS.into_iter().zip(documents) {
            match self.refresh(transport, address, path, document).await {
                Ok(has_changed) => is_changed |= has_changed,
                Err(error) => {
                    self.figures.sync_errors.add(&["fetch_discovery"]);
                    tracing::warn!(error, peer = name, %address, path, "ask a peer what it serves");
                    // It may be another server by now.
                    is_changed |= document.take().is_some();
                }
            }
        }
        (name, known, is_changed)
    }

    /// The peers with what only some servers have.
    async fn servers(
        &self,
        found: &Found,
        transport: &Arc<Transport<RequestBody>>,
    ) -> Vec<PeerServer> {
        let mut servers = Vec::new();
        let shared: Arc<Versions> = Arc::new(found.shared.keys().cloned().collect());
        for (name, known) in &found.peers {
            let bodies: Vec<Bytes> =
                known.documents.iter().flatten().map(|document| document.body.clone()).collect();
            let shared = shared.clone();
            // Megabytes are parsed on another thread.
            let read = tokio::task::spawn_blocking(move || groups(&bodies, &shared)).await;
            let groups = match read.map_err(|error| error.to_string()).flatten() {
                Ok(groups) => groups,
                Err(error) => {
                    self.figures.sync_errors.add(&["fetch_discovery"]);
                    tracing::warn!(error, peer = name, "read what a peer serves");
                    continue;
                }
            };
            let handler = PeerProxy {
                transport: transport.clone(),
                address: known.address.clone(),
                figures: self.figures.clone(),
            };
            servers.push(PeerServer { name: name.clone(), groups, handler: Arc::new(handler) });
        }
        servers
    }

    /// Reads a document of a peer, unless it is unchanged. Returns whether it has changed.
    async fn refresh(
        &self,
        transport: &Transport<RequestBody>,
        address: &Address,
        path: &str,
        document: &mut Option<Document>,
    ) -> Result<bool, String> {
        let etag = document.as_ref().and_then(|document| document.etag.clone());
        let asked = async {
            let request = discovery_request(path, etag);
            let sent = transport.send(address, request, Lane::Shared).await;
            let sent = sent.map_err(|error| error.to_string())?;
            let answer = Answer::read(sent, DISCOVERY_BYTES_MAX).await;
            answer.map_err(|error| error.to_string())
        };
        let answered = timeout(ANSWER_MAX, asked).await;
        let Answer { head, body } = answered.map_err(|_| "no answer in time".to_owned())??;
        self.figures.rerouted.add(&[head.status.as_str(), "", "", ""]);
        match head.status {
            StatusCode::NOT_MODIFIED => return Ok(false),
            StatusCode::OK => {}
            status => return Err(format!("discovery request failed with status: {status}")),
        }
        let is_same = document.as_ref().is_some_and(|former| former.body == body);
        *document = Some(Document { etag: head.headers.get(ETAG).cloned(), body });
        Ok(!is_same)
    }

    /// Notes the group versions of definitions and APIServices. Returns whether there are others.
    async fn note_shared(&self, shared: &mut HashMap<(String, String), Instant>) -> bool {
        let n_before = shared.len();
        let mut is_new = false;
        let now = Instant::now();
        let registry = self.server.registry();
        let catalog = registry.catalog();
        for group in &catalog.groups {
            for version in &group.versions {
                let mut rows = catalog.group_version(&group.name, version);
                if rows.any(|row| row.routes == Routes::Dynamic) {
                    let of = (group.name.to_string(), version.to_string());
                    is_new |= shared.insert(of, now).is_none();
                }
            }
        }
        let services = GroupVersionResource::new("apiregistration.k8s.io", "v1", "apiservices");
        let services = registry.objects().list(&services, "").await.unwrap_or_default();
        for service in services {
            let Ok(service) = serde_json::from_slice::<Value>(&service.bytes) else { continue };
            let spec = &service["spec"];
            let text = |member: &str| spec[member].as_str().unwrap_or_default().to_owned();
            if !spec["service"].is_null() {
                is_new |= shared.insert((text("group"), text("version")), now).is_none();
            }
        }
        shared.retain(|_, seen| now.duration_since(*seen) <= FORGOTTEN_AFTER);
        is_new || shared.len() != n_before
    }
}

fn discovery_request(path: &str, known: Option<HeaderValue>) -> Request<RequestBody> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    let head = request.headers_mut();
    // Its name has no characters that headers lack.
    let user = Identity::new("system:apiserver", ["system:authenticated"]);
    let _ = forwarding::set_user(head, &user);
    head.insert(ACCEPT, HeaderValue::from_static(DISCOVERY));
    head.insert(HeaderName::from_static(PEER_PROXIED), HeaderValue::from_static("true"));
    if let Some(known) = known {
        head.insert(IF_NONE_MATCH, known);
    }
    request
}

/// Group versions.
type Versions = HashSet<(String, String)>;

/// The entries of aggregated discovery documents without the versions that all servers share.
fn groups(documents: &[Bytes], shared: &Versions) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for document in documents {
        let mut document: Value =
            serde_json::from_slice(document).map_err(|_| "the answer is not JSON".to_owned())?;
        let is_list = document["kind"] == "APIGroupDiscoveryList";
        match (is_list, document.get_mut("items").map(Value::take)) {
            (true, Some(Value::Array(groups))) => {
                all.extend(groups.into_iter().filter_map(|group| without_shared(group, shared)));
            }
            _ => return Err("the answer is no APIGroupDiscoveryList".to_owned()),
        }
    }
    Ok(all)
}

/// A group without the versions that all servers share; `None`: it has no others.
fn without_shared(mut group: Value, shared: &Versions) -> Option<Value> {
    let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let versions = group.get_mut("versions")?.as_array_mut()?;
    versions.retain(|version| {
        let version = version["version"].as_str().unwrap_or_default();
        !shared.contains(&(name.clone(), version.to_owned()))
    });
    if versions.is_empty() { None } else { Some(group) }
}

/// Passes requests on to a peer.
#[derive(Debug, Clone)]
struct PeerProxy {
    transport: Arc<Transport<RequestBody>>,
    address: Address,
    figures: Arc<PeerFigures>,
}

impl Handler for PeerProxy {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        let this = self.clone();
        async move { this.forward(request).await }.boxed()
    }
}

impl PeerProxy {
    async fn forward(&self, mut request: Request<RequestBody>) -> Response<Body> {
        let attributes = request.extensions().get::<Arc<Attributes>>().cloned();
        request
            .headers_mut()
            .insert(HeaderName::from_static(PEER_PROXIED), HeaderValue::from_static("true"));
        let send = |request, lane| self.transport.send(&self.address, request, lane);
        let answer: Result<_, TransportError> =
            forwarding::forward(request, &self.address, send).await;
        let response = answer.unwrap_or_else(|error| {
            forwarding::plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        });
        if let Some(asked) = attributes {
            let code = response.status();
            let labels = [code.as_str(), asked.group(), asked.version(), asked.resource()];
            self.figures.rerouted.add(&labels);
        }
        response
    }
}

/// What was passed on, and what failed.
#[derive(Debug)]
pub(crate) struct PeerFigures {
    rerouted: Labelled<AtomicU64>,
    sync_errors: Labelled<AtomicU64>,
}

impl Default for PeerFigures {
    fn default() -> Self {
        Self {
            rerouted: Labelled::counters(&["code", "group", "version", "resource"], 0),
            sync_errors: Labelled::counters(&["type"], 0),
        }
    }
}

impl PeerFigures {
    pub(crate) fn families(&self) -> Vec<Family> {
        vec![
            Family {
                name: "apiserver_rerouted_request_total",
                help: "Requests that peers were asked; without a resource those for discovery",
                series: Series::Counters(self.rerouted.counts()),
            },
            Family {
                name: "apiserver_peer_discovery_sync_errors_total",
                help: "Failures to find out what peers serve",
                series: Series::Counters(self.sync_errors.counts()),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shared() -> Versions {
        HashSet::from([("a.io".to_owned(), "v1".to_owned())])
    }

    #[test]
    fn what_all_servers_share_is_left_out() {
        let group = |versions: &[&str]| {
            let versions: Vec<Value> =
                versions.iter().map(|version| json!({"version": version})).collect();
            json!({"metadata": {"name": "a.io"}, "versions": versions})
        };
        assert_eq!(without_shared(group(&["v1"]), &shared()), None);
        assert_eq!(without_shared(group(&["v2", "v1"]), &shared()), Some(group(&["v2"])));
        assert_eq!(without_shared(json!({}), &shared()), None);
    }

    #[test]
    fn only_discovery_documents_are_read() {
        let group = json!({"metadata": {}, "versions": [{"version": "v1"}]});
        let document = json!({"kind": "APIGroupDiscoveryList", "items": [group]}).to_string();
        let document = Bytes::from(document);
        let read = groups(&[document.clone(), document], &shared());
        assert_eq!(read, Ok(vec![group.clone(), group]));
        for other in ["", "[]", r#"{"kind":"APIGroupList","items":[]}"#, r#"{"items":{}}"#] {
            assert!(groups(&[other.into()], &shared()).is_err(), "{other}");
        }
    }
}
