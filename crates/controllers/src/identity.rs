//! What a server publishes about itself, so that clients and other servers find it.
//!
//! # Theory
//!
//! Every server of a cluster runs one of these. At start and every ten seconds it writes what is
//! not as it should be:
//!
//! | object | content |
//! |---|---|
//! | Lease `kube-system/apiserver-…` | the server's address; renewed in every round, so that others know that it lives |
//! | Service `default/kubernetes` | its target port, at start only |
//! | Endpoints and EndpointSlice `default/kubernetes` | the addresses of all servers that live |
//! | ConfigMap `kube-system/extension-apiserver-authentication` | the CA of client certificates, and the CA, names and headers of its proxy; those of other servers are kept |
//!
//! A server that stops removes its Lease and its address. A server that is killed loses its address
//! after [`ALIVE`], and its Lease after an hour. A loopback address is of no use to others and is
//! not published as an endpoint; kube-apiserver does not either.

use crate::api::{Api, RequestError};
use kube_client::Client;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time between two rounds: ten seconds, as kube-apiserver renews its Lease.
const PERIOD: Duration = Duration::from_secs(10);
/// The age of a renewal at which a server counts as gone: three rounds.
pub const ALIVE: Duration = Duration::from_secs(30);
/// The age at which a Lease is deleted: an hour, as kube-apiserver's.
const LEASE_SECONDS: u64 = 3600;
/// How long a server that stops tries to remove its address.
const REMOVAL_MAX: Duration = Duration::from_secs(5);
/// How often a write is repeated in one round if others write at the same time.
const ATTEMPTS_MAX: usize = 5;

const NAME: &str = "apiserver-identity";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const ADDRESS: &str = "kubernetes.io/peer-advertise-address";
const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const AUTHENTICATION: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
/// The names and headers of a proxy, by key.
const PROXY_WORDS: [(&str, &str); 5] = [
    ("requestheader-allowed-names", "front-proxy-client"),
    ("requestheader-username-headers", "X-Remote-User"),
    ("requestheader-uid-headers", "X-Remote-Uid"),
    ("requestheader-group-headers", "X-Remote-Group"),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
];

/// Publishes a server. Does nothing until [`ServerIdentity::run`].
#[must_use]
pub struct ServerIdentity {
    api: Api,
    clock: Clock,
    address: SocketAddr,
    client_ca: Option<String>,
    proxy_ca: Option<String>,
}

impl ServerIdentity {
    /// Creates a publisher for a server that other machines reach at `address`.
    pub fn new(client: Client, clock: Clock, address: SocketAddr) -> Self {
        // The servers write as themselves, not as a controller.
        Self { api: Api::of_server(client, NAME), clock, address, client_ca: None, proxy_ca: None }
    }

    /// The certificates (PEM) that client certificates are verified with. Default: none.
    pub fn client_ca(mut self, pem: Option<String>) -> Self {
        self.client_ca = pem;
        self
    }

    /// The certificates (PEM) that the client certificate of requests to extension servers is
    /// verified with. Its name is `front-proxy-client`. Default: none.
    pub fn proxy_ca(mut self, pem: Option<String>) -> Self {
        self.proxy_ca = pem;
        self
    }

    /// Runs until `stop`, then removes the server's address, for at most five seconds. Dropping it
    /// stops at once.
    pub async fn run(self, stop: CancellationToken) {
        let mut is_first = true;
        while !stop.is_cancelled() {
            let round = async {
                if is_first {
                    self.port().await?;
                }
                self.round().await
            };
            match Box::pin(round).await {
                Ok(()) => is_first = false,
                Err(error) => tracing::warn!(%error, "publish the server's address"),
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // Cancel safe: a sleep holds no state.
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        let removal = async {
            ignore_missing(self.api.delete(&self.lease(), &json!({})).await)?;
            let alive = self.alive().await?;
            self.endpoints(&alive).await
        };
        match tokio::time::timeout(REMOVAL_MAX, Box::pin(removal)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "remove the server's address"),
            Err(_) => tracing::warn!("remove the server's address: no answer in time"),
        }
    }

    async fn round(&self) -> Result<(), RequestError> {
        self.renew().await?;
        let alive = self.alive().await?;
        self.endpoints(&alive).await?;
        if self.client_ca.is_none() && self.proxy_ca.is_none() {
            return Ok(());
        }
        self.authentication().await
    }

    /// The path of the server's Lease. Two servers have no common address.
    fn lease(&self) -> String {
        let address = self.address.ip().to_string().replace(':', "-");
        let address = address.trim_matches('-');
        format!("{LEASES}/apiserver-{address}-{}", self.address.port())
    }

    /// Creates or renews the Lease.
    async fn renew(&self) -> Result<(), RequestError> {
        let path = self.lease();
        let now = self.clock.now().rfc3339_micro();
        let name = path.rsplit('/').next().unwrap_or_default();
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
        });
        let (label, value) = IDENTITY;
        let metadata = json!({
            "labels": {label: value}, "annotations": {ADDRESS: self.address.to_string()},
        });
        match self.api.merge_patch(&path, &json!({"metadata": metadata, "spec": spec})).await {
            Err(error) if error.is_not_found() => {
                let mut lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": metadata, "spec": spec,
                });
                lease["metadata"]["name"] = name.into();
                self.api.post(LEASES, &lease).await.map(drop)
            }
            renewed => renewed.map(drop),
        }
    }

    /// The addresses of the servers that live. Leases of servers that are gone for long are
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
            let options = json!({"preconditions": {"uid": uid}});
            ignore_missing(self.api.delete(&format!("{LEASES}/{name}"), &options).await)?;
        }
        alive.retain(|address| !address.is_loopback() && !address.is_unspecified());
        Ok(alive)
    }

    /// Sets the target port of the Service.
    async fn port(&self) -> Result<(), RequestError> {
        let Some(service) = found(self.api.get(SERVICE).await)? else { return Ok(()) };
        let port = self.address.port();
        if service["spec"]["ports"][0]["targetPort"] == port {
            return Ok(());
        }
        let ports = json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]);
        self.api.merge_patch(SERVICE, &json!({"spec": {"ports": ports}})).await.map(drop)
    }

    /// Writes the addresses of the servers that live.
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
        let of_family = |is_v6: bool| alive.iter().filter(move |ip| ip.is_ipv6() == is_v6);
        let is_v6 = self.address.is_ipv6();
        let ready = of_family(is_v6)
            .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}));
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": if is_v6 { "IPv6" } else { "IPv4" },
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
            let written = match found(self.api.get(&path).await)? {
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
    async fn authentication(&self) -> Result<(), RequestError> {
        let path = format!("{MAPS}/{AUTHENTICATION}");
        for attempt in 1.. {
            let found = found(self.api.get(&path).await)?;
            let held = |key: &str| {
                found.as_ref().and_then(|found| found["data"][key].as_str()).unwrap_or_default()
            };
            let mut data = serde_json::Map::new();
            let certificates = [(CLIENT_CA, &self.client_ca), (PROXY_CA, &self.proxy_ca)];
            for (key, pem) in certificates {
                if let Some(joined) = pem.as_ref().and_then(|pem| join(held(key), pem)) {
                    data.insert(key.to_owned(), joined.into());
                }
            }
            if self.proxy_ca.is_some() {
                for (key, word) in PROXY_WORDS {
                    if let Some(joined) = join_words(held(key), word) {
                        data.insert(key.to_owned(), joined.into());
                    }
                }
            }
            if data.is_empty() {
                return Ok(());
            }
            let written = match &found {
                None => {
                    let map = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": AUTHENTICATION}, "data": data,
                    });
                    self.api.post(MAPS, &map).await
                }
                Some(found) => {
                    let version = found.resource_version();
                    let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
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

/// A JSON list in a text, with a word that it lacks; `None` if it has it.
fn join_words(held: &str, word: &str) -> Option<String> {
    let mut words: Vec<String> = serde_json::from_str(held).unwrap_or_default();
    if words.iter().any(|known| known == word) {
        return None;
    }
    words.push(word.to_owned());
    Some(json!(words).to_string())
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

/// The object; `None` if it does not exist.
fn found(answer: Result<Value, RequestError>) -> Result<Option<Value>, RequestError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

fn ignore_missing(answer: Result<Value, RequestError>) -> Result<(), RequestError> {
    match answer {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        answer => answer.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_added_once_and_others_are_kept() {
        assert_eq!(join_words("", "a").as_deref(), Some(r#"["a"]"#));
        assert_eq!(join_words(r#"["b"]"#, "a").as_deref(), Some(r#"["b","a"]"#));
        assert_eq!(join_words(r#"["a"]"#, "a"), None);
    }

    #[test]
    fn certificates_are_added_once_and_others_are_kept() {
        let pem = |n: u8| format!("-----BEGIN CERTIFICATE-----\n{n}\n-----END CERTIFICATE-----\n");
        let held = pem(1);
        assert_eq!(join(&held, &pem(1)), None);
        assert_eq!(join(&held, &format!("{}text\n{}", pem(1), pem(2))), Some(pem(1) + &pem(2)));
        assert_eq!(join("", &pem(2)), Some(pem(2)));
        assert_eq!(join("", "-----BEGIN CERTIFICATE-----\nx"), None);
    }
}
