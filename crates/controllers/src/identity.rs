//! What a server publishes about itself, so that clients and other servers find it.
//!
//! # Theory
//!
//! Every server of a cluster runs one of these. At start and every ten seconds it writes what is
//! not as it should be:
//!
//! | object | content |
//! |---|---|
//! | Lease `kube-system/apiserver-…` | the server's address; renewed in every round, so that others know that it lives. Named by a hash of the host's name, as kube-apiserver's; by the address, if another server of the host lives, or the host has no name |
//! | Service `default/kubernetes` | its target port, once: at start, and when it was created again |
//! | Endpoints and EndpointSlice `default/kubernetes` | the addresses of all servers that live |
//! | StorageVersions, if it is told to | what the server stores and reads, at start, after the Lease, and every ten minutes |
//! | ConfigMap `kube-system/extension-apiserver-authentication` | the CAs of client certificates and of front proxies, and their headers; what other servers have written is kept |
//! | ConfigMap `kube-system/kube-apiserver-legacy-service-account-token-tracking` | the date since which uses of tokens in Secrets are noted |
//!
//! Beside kube-apiservers the addresses come from [`PublishedAddresses`], which is where they keep
//! theirs: the endpoints are the same whoever writes them.
//!
//! A server that stops removes its Lease and its address. A server that is killed loses its address
//! after [`ALIVE`], and its Lease after an hour. A loopback address is of no use to others and is
//! not published as an endpoint; kube-apiserver does not either.

mod name;
mod storage_versions;

pub use storage_versions::{Registration, StoredResource};

use crate::api::{Api, RequestError, ignore_stale, of_uid};
use crate::legacy_tokens::noted_since;
use futures::future::BoxFuture;
use kube_client::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::cidr::Family;
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::BoxError;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use storage_versions::{Report, StorageVersions};
use tokio_util::sync::CancellationToken;

/// The time between two rounds: ten seconds, as kube-apiserver renews its Lease.
const PERIOD: Duration = Duration::from_secs(10);
/// The time between two rounds as long as StorageVersions are missing, for which writes may wait.
const SOON: Duration = Duration::from_secs(1);
/// The age of a renewal at which a server counts as stopped: three rounds.
pub const ALIVE: Duration = Duration::from_secs(30);
/// The age at which a Lease is deleted: an hour, as kube-apiserver's.
const LEASE_SECONDS: u64 = 3600;
/// How long a server that stops tries to remove its address.
const REMOVAL_MAX: Duration = Duration::from_secs(5);
/// How often a write is repeated in one round if others write at the same time.
const ATTEMPTS_MAX: usize = 5;

const NAME: &str = "apiserver-identity";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The label of the Leases of API servers, and its value.
pub(crate) const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// The label with the host's name.
const HOST: &str = "kubernetes.io/hostname";
/// Longest value of a label.
const LABEL_MAX: usize = 63;
const ADDRESS: &str = "kubernetes.io/peer-advertise-address";
const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// What a server publishes about authentication: members of the ConfigMap.
type Authentication = Box<dyn Fn() -> BTreeMap<String, String> + Send + Sync>;

/// Where all servers of a store publish their addresses. One that is not published again expires.
pub trait PublishedAddresses: Send + Sync {
    /// Publishes an address for longer than ten seconds.
    fn publish(&self, address: IpAddr) -> BoxFuture<'_, Result<(), BoxError>>;
    /// Removes an address.
    fn withdraw(&self, address: IpAddr) -> BoxFuture<'_, Result<(), BoxError>>;
    /// Publishes where the server of this name is for other servers of the store, for longer than
    /// ten seconds. Default: nowhere.
    fn publish_peer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = name;
        Box::pin(async { Ok(()) })
    }
    /// Removes what was published of the server. Default: nothing.
    fn withdraw_peer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = name;
        Box::pin(async { Ok(()) })
    }
    /// All addresses. Empty: they are not published here, and the Leases count.
    fn all(&self) -> BoxFuture<'_, Result<BTreeSet<IpAddr>, BoxError>>;
}

/// The name of the server on a host, which is that of its Lease: as kube-apiserver's.
pub fn name_on(host: &str) -> String {
    name::of_host(host)
}

/// Publishes a server. Does nothing until [`ServerIdentity::run`].
#[must_use]
pub struct ServerIdentity {
    api: Api,
    clock: Clock,
    address: SocketAddr,
    host: Option<String>,
    /// The server's name: that of its Lease.
    name: Mutex<String>,
    authentication: Option<Authentication>,
    published: Option<Box<dyn PublishedAddresses>>,
    stored: Vec<StoredResource>,
    report: Option<Report>,
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, stored, .. } = self;
        f.debug_struct("ServerIdentity")
            .field("address", address)
            .field("stored", &stored.len())
            .finish_non_exhaustive()
    }
}

impl ServerIdentity {
    /// Creates a publisher for a server that other machines reach at `address`.
    pub fn new(client: Client, clock: Clock, address: SocketAddr) -> Self {
        // The servers write as themselves, not as a controller.
        let api = Api::of_server(client, NAME);
        let (host, name) = (None, Mutex::new(name::of_address(address)));
        let (authentication, published, report, stored) = (None, None, None, Vec::new());
        Self { api, clock, address, host, name, authentication, published, stored, report }
    }

    /// The name of the machine, for the name and a label of the Lease. Default: unknown.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        let host = host.into();
        self.name = Mutex::new(name::of_host(&host));
        self.host = Some(host);
        self
    }

    /// Where other servers publish their addresses, too. Default: nowhere; the Leases count.
    pub fn published(mut self, addresses: impl PublishedAddresses + 'static) -> Self {
        self.published = Some(Box::new(addresses));
        self
    }

    /// What extension servers read about authentication here: certificates in PEM
    /// (`client-ca-file`, `requestheader-client-ca-file`) and JSON arrays of texts
    /// (`requestheader-…`). Read in every round. Default: nothing.
    pub fn authentication(
        mut self,
        members: impl Fn() -> BTreeMap<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.authentication = Some(Box::new(members));
        self
    }

    /// What the server stores, for StorageVersions (`internal.apiserver.k8s.io/v1alpha1`), which
    /// the server must serve. Default: nothing, and no StorageVersions are written.
    pub fn storage_versions(mut self, stored: Vec<StoredResource>) -> Self {
        self.stored = stored;
        self
    }

    /// A function that is told what became of the server's entries in StorageVersions; see
    /// [`ServerIdentity::storage_versions`]. Must be fast. Default: none.
    pub fn on_registration(
        mut self,
        report: impl Fn(Registration<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Runs until `stop`, then removes the server's address, for at most five seconds. Dropping it
    /// stops at once.
    pub async fn run(self, stop: CancellationToken) {
        let mut service = String::new();
        let report = self.report.as_ref();
        let mut versions = StorageVersions::new(&self.api, &self.clock, &self.stored, report);
        while !stop.is_cancelled() {
            let round = async {
                // Without the Lease, entries in StorageVersions would be removed.
                self.renew().await?;
                if let Some(published) = &self.published {
                    published.publish_peer(&self.name()).await?;
                }
                // Other writes may wait for them.
                if let Err(error) = versions.round(self.name()).await {
                    tracing::warn!(error = chain(&error), "write the server's storage versions");
                }
                if let Err(error) = noted_since(&self.api, self.clock.now()).await {
                    tracing::warn!(error = chain(&error), "note since when uses are noted");
                }
                self.port(&mut service).await?;
                self.round().await
            };
            if let Err(error) = Box::pin(round).await {
                tracing::warn!(error = chain(&*error), "publish the server's address");
            }
            let pause = if versions.are_missing() { SOON } else { PERIOD };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // Cancel safe: a sleep holds no state.
                () = tokio::time::sleep(pause) => {}
            }
        }
        let removal = async {
            ignore_stale(self.api.delete(&self.lease(), &json!({})).await)?;
            if let Some(published) = &self.published {
                published.withdraw_peer(&self.name()).await?;
                published.withdraw(self.address.ip()).await?;
            }
            let alive = self.addresses().await?;
            self.endpoints(&alive).await?;
            Ok::<_, BoxError>(())
        };
        match tokio::time::timeout(REMOVAL_MAX, Box::pin(removal)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&*error), "remove the server's address");
            }
            Err(_) => tracing::warn!("remove the server's address: no answer in time"),
        }
    }

    async fn round(&self) -> Result<(), BoxError> {
        let own = self.address.ip();
        if let Some(published) = self.published.as_ref().filter(|_| self.is_endpoint(&own)) {
            published.publish(own).await?;
        }
        let alive = self.addresses().await?;
        self.endpoints(&alive).await?;
        if let Some(members) = &self.authentication {
            self.publish(&members()).await?;
        }
        Ok(())
    }

    /// The addresses of the running servers: those that are published, or those of the Leases.
    async fn addresses(&self) -> Result<BTreeSet<IpAddr>, BoxError> {
        let alive = self.alive().await?;
        let Some(published) = &self.published else { return Ok(alive) };
        let mut all = published.all().await?;
        all.retain(|ip| self.is_endpoint(ip));
        Ok(if all.is_empty() { alive } else { all })
    }

    /// Whether an address can be an endpoint. All are of the family of the Service's address.
    fn is_endpoint(&self, ip: &IpAddr) -> bool {
        !ip.is_loopback() && !ip.is_unspecified() && ip.is_ipv6() == self.address.is_ipv6()
    }

    fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// The path of the server's Lease.
    fn lease(&self) -> String {
        format!("{LEASES}/{}", self.name())
    }

    /// Creates or renews the Lease.
    async fn renew(&self) -> Result<(), RequestError> {
        for attempt in 1.. {
            let found = self.api.get_opt(&self.lease()).await?;
            if found.as_ref().is_some_and(|lease| self.is_of_another(lease)) {
                *self.name.lock() = name::of_address(self.address);
                continue;
            }
            let name = self.name();
            let now = self.clock.now().rfc3339_micro();
            let spec = json!({
                "holderIdentity": self.holder(), "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": now,
            });
            let (label, value) = IDENTITY;
            let mut labels = json!({label: value});
            if let Some(host) = self.host.as_ref().filter(|host| host.len() <= LABEL_MAX) {
                labels[HOST] = host.as_str().into();
            }
            let mut metadata =
                json!({"labels": labels, "annotations": {ADDRESS: self.address.to_string()}});
            let written = match found {
                Some(found) => {
                    metadata["resourceVersion"] = found.resource_version().into();
                    let patch = json!({"metadata": metadata, "spec": spec});
                    self.api.merge_patch(&self.lease(), &patch).await
                }
                None => {
                    metadata["name"] = name.into();
                    let lease = json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": metadata, "spec": spec,
                    });
                    self.api.post(LEASES, &lease).await
                }
            };
            match written {
                // Another server was faster, perhaps one of the same host.
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }

    /// Who holds the Lease: another one than a kube-apiserver, or a server at another address,
    /// on the same host.
    fn holder(&self) -> String {
        format!("{}_{}", self.name(), self.address)
    }

    /// Whether a Lease is held by another server, which lives.
    fn is_of_another(&self, lease: &Value) -> bool {
        let renewed = lease["spec"]["renewTime"].as_str().and_then(Timestamp::parse);
        let is_alive = renewed.is_some_and(|renewed| self.clock.now().since(renewed) < ALIVE);
        is_alive
            && lease["spec"]["holderIdentity"] != self.holder()
            && self.name() != name::of_address(self.address)
    }

    /// The addresses of the running servers. Leases of servers that are gone for long are
    /// deleted.
    async fn alive(&self) -> Result<BTreeSet<IpAddr>, RequestError> {
        let now = self.clock.now();
        let (mut alive, mut expired) = (BTreeSet::new(), Vec::new());
        let (label, value) = IDENTITY;
        let path = format!("{LEASES}?labelSelector={label}%3D{value}");
        let leases = self.api.get(&path).await?;
        for lease in leases["items"].as_array().into_iter().flatten() {
            let renewed = lease["spec"]["renewTime"].as_str().and_then(Timestamp::parse);
            let age = renewed.map_or(Duration::MAX, |renewed| now.since(renewed));
            let address = lease["metadata"]["annotations"][ADDRESS].as_str();
            let address = address.and_then(|text| text.parse::<SocketAddr>().ok());
            match address {
                Some(address) if age < ALIVE => _ = alive.insert(address.ip()),
                _ if age > Duration::from_secs(LEASE_SECONDS) => {
                    expired.push((lease.name().to_owned(), lease.uid().to_owned()));
                }
                _ => {}
            }
        }
        for (name, uid) in expired {
            ignore_stale(self.api.delete(&format!("{LEASES}/{name}"), &of_uid(&uid)).await)?;
        }
        alive.retain(|ip| self.is_endpoint(ip));
        Ok(alive)
    }

    /// Sets the target port of the Service, unless this server has set it in the object with the
    /// uid `known`: servers with different ports do not overwrite each other's for ever.
    async fn port(&self, known: &mut String) -> Result<(), RequestError> {
        let Some(service) = self.api.get_opt(SERVICE).await? else { return Ok(()) };
        if service.uid() == known.as_str() {
            return Ok(());
        }
        let port = self.address.port();
        if service["spec"]["ports"][0]["targetPort"] != port {
            let ports =
                json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]);
            self.api.merge_patch(SERVICE, &json!({"spec": {"ports": ports}})).await?;
        }
        service.uid().clone_into(known);
        Ok(())
    }

    /// Writes the addresses of the running servers.
    async fn endpoints(&self, alive: &BTreeSet<IpAddr>) -> Result<(), RequestError> {
        let port = json!({"name": "https", "port": self.address.port(), "protocol": "TCP"});
        let subsets = match alive.is_empty() {
            true => json!([]),
            false => {
                let addresses = alive.iter().map(|ip| json!({"ip": ip.to_string()}));
                json!([{"addresses": addresses.collect::<Value>(), "ports": [port]}])
            }
        };
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": subsets,
        });
        self.ensure(ENDPOINTS, &endpoints, &["subsets"]).await?;
        let ready = alive
            .iter()
            .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}));
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": Family::of(self.address.ip()).as_str(),
            "endpoints": ready.collect::<Value>(), "ports": [port],
        });
        self.ensure(SLICES, &slice, &["endpoints", "ports"]).await
    }

    /// Creates an object, or replaces it if one of these members differs. An object without content
    /// is not created.
    async fn ensure(
        &self,
        collection: &str,
        wanted: &Value,
        members: &[&str],
    ) -> Result<(), RequestError> {
        let path = format!("{collection}/{}", wanted.name());
        let list = |object: &Value, member: &str| {
            object.get(member).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        for attempt in 1.. {
            let written = match self.api.get_opt(&path).await? {
                None if list(wanted, members[0]).is_empty() => return Ok(()),
                None => self.api.post(collection, wanted).await,
                Some(found) => {
                    if members.iter().all(|member| list(&found, member) == list(wanted, member)) {
                        return Ok(());
                    }
                    let mut object = wanted.clone();
                    object.set_meta("resourceVersion", found.resource_version().into());
                    self.api.put(&path, &object).await
                }
            };
            match written {
                // Another server was faster.
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }

    /// Adds what is missing to the ConfigMap that extension servers read.
    async fn publish(&self, members: &BTreeMap<String, String>) -> Result<(), RequestError> {
        let path = format!("{MAPS}/{AUTHENTICATION}");
        for attempt in 1.. {
            let written = match self.api.get_opt(&path).await? {
                None => {
                    let map = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": AUTHENTICATION}, "data": members,
                    });
                    self.api.post(MAPS, &map).await
                }
                Some(found) => {
                    let mut changed = BTreeMap::new();
                    for (key, own) in members {
                        let held = found["data"][key].as_str();
                        let joined = match key.ends_with("-ca-file") {
                            true => join(held.unwrap_or_default(), own),
                            false => join_lists(held, own),
                        };
                        changed.extend(joined.map(|joined| (key, joined)));
                    }
                    if changed.is_empty() {
                        return Ok(());
                    }
                    let version = found.resource_version();
                    let patch = json!({
                        "metadata": {"resourceVersion": version}, "data": changed,
                    });
                    self.api.merge_patch(&path, &patch).await
                }
            };
            match written {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }
}

/// A JSON array of texts with those of `own` that `held` lacks; `None` if it has all.
fn join_lists(held: Option<&str>, own: &str) -> Option<String> {
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text).ok();
    let Some(mut joined) = held.and_then(list) else { return Some(own.to_owned()) };
    let n = joined.len();
    for text in list(own).unwrap_or_default() {
        if !joined.contains(&text) {
            joined.push(text);
        }
    }
    (joined.len() > n).then(|| json!(joined).to_string())
}

/// `held` with the certificates of `own` that it lacks; `None` if it has all.
fn join(held: &str, own: &str) -> Option<String> {
    let missing: Vec<&str> = certificates(own).filter(|pem| !held.contains(pem)).collect();
    if missing.is_empty() {
        return None;
    }
    let mut joined = held.trim_end().to_owned();
    for pem in missing {
        if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(pem);
    }
    joined.push('\n');
    Some(joined)
}

/// The certificates of a PEM text, without what is around them.
fn certificates(pem: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    pem.match_indices(BEGIN).filter_map(move |(at, _)| {
        let rest = &pem[at..];
        Some(&rest[..rest.find(END)? + END.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_added_once_and_others_are_kept() {
        let pem = |n: u8| format!("-----BEGIN CERTIFICATE-----\n{n}\n-----END CERTIFICATE-----\n");
        let held = pem(1);
        assert_eq!(join(&held, &pem(1)), None);
        assert_eq!(join(&held, &format!("{}text\n{}", pem(1), pem(2))), Some(pem(1) + &pem(2)));
        assert_eq!(join("", &pem(2)), Some(pem(2)));
        assert_eq!(join("", "-----BEGIN CERTIFICATE-----\nx"), None);
    }

    #[test]
    fn names_of_headers_are_added_once_and_others_are_kept() {
        let list = |text: &str| Some(text.to_owned());
        assert_eq!(join_lists(None, r#"["a"]"#), list(r#"["a"]"#));
        assert_eq!(join_lists(Some("damaged"), r#"["a"]"#), list(r#"["a"]"#));
        assert_eq!(join_lists(Some(r#"["a","b"]"#), r#"["b"]"#), None);
        assert_eq!(join_lists(Some("[]"), "[]"), None);
        assert_eq!(join_lists(Some(r#"["a"]"#), r#"["b","a"]"#), list(r#"["a","b"]"#));
    }
}
