//! What a server publishes about itself: see [`ServerIdentity`].

use crate::built_in::serves;
use crate::serve::{PublishedAuthentication, add_front_proxy};
use futures::future::{BoxFuture, FutureExt};
use setpoint_apiserver::{ApiServer, StorageVersionBarrier};
use setpoint_controllers::{PublishedAddresses, Registration, ServerIdentity, StoredResource};
use setpoint_registry::{Catalog, Feature, Registry};
use setpoint_runtime::BoxError;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a listener publishes about itself.
#[derive(Debug)]
pub(crate) struct Published {
    /// The name of the machine, if it is known.
    pub(crate) host: Option<String>,
    /// Where other machines reach it.
    pub(crate) address: SocketAddr,
    /// Where other servers of the store reach it, if that is another place: a host and a port.
    pub(crate) peer_address: Option<(String, u16)>,
    /// What extension servers read about authentication here.
    pub(crate) authentication: PublishedAuthentication,
    /// The CA of the proxy's client certificate, in PEM; `None`: its owner publishes it.
    pub(crate) proxy_ca: Option<String>,
    /// Cancelled when the listener is about to stop.
    pub(crate) leaves: CancellationToken,
}

/// The name of this server, once it is known.
#[derive(Debug, Clone)]
pub(crate) struct OwnName(watch::Sender<String>);

impl Default for OwnName {
    fn default() -> Self {
        Self(watch::Sender::new(String::new()))
    }
}

impl OwnName {
    /// The name. Waits until it is known.
    pub(crate) async fn known(&self) -> String {
        let mut name = self.0.subscribe();
        // It is never closed.
        name.wait_for(|name| !name.is_empty()).await.map(|name| name.clone()).unwrap_or_default()
    }
}

/// The addresses that servers publish in the store.
struct Addresses {
    registry: Registry,
    /// Where peers reach this server; `None`: it is no peer.
    peer: Option<(String, u16)>,
    own: OwnName,
}

impl PublishedAddresses for Addresses {
    fn publish(&self, address: IpAddr) -> BoxFuture<'_, Result<(), BoxError>> {
        async move { Ok(self.registry.publish_address(address).await?) }.boxed()
    }
    fn withdraw(&self, address: IpAddr) -> BoxFuture<'_, Result<(), BoxError>> {
        async move { Ok(self.registry.withdraw_address(address).await?) }.boxed()
    }
    fn publish_peer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        async move {
            self.own.0.send_replace(name.to_owned());
            let Some((host, port)) = &self.peer else { return Ok(()) };
            Ok(self.registry.publish_peer(name, host, *port).await?)
        }
        .boxed()
    }
    fn withdraw_peer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        async move { Ok(self.registry.withdraw_peer(name).await?) }.boxed()
    }
    fn all(&self) -> BoxFuture<'_, Result<BTreeSet<IpAddr>, BoxError>> {
        async move { Ok(self.registry.published_addresses().await?) }.boxed()
    }
}

/// Publishes a listener from when the server is ready until `stop`.
pub(crate) async fn identify(
    server: &ApiServer,
    mut ready: watch::Receiver<bool>,
    stop: &CancellationToken,
    published: Published,
    own: OwnName,
) {
    let Published { host, address, peer_address, authentication, proxy_ca, leaves } = published;
    tokio::select! {
        biased;
        // Cancel safe: both only wait for a state. Not ready: the server has ended.
        is_ready = async { ready.wait_for(|ready| *ready).await.is_ok() } => match is_ready {
            true => {}
            false => return,
        },
        () = stop.cancelled() => return,
    }
    let is_peer = server.registry().features().is_on(Feature::UnknownVersionInteroperabilityProxy);
    let at = peer_address.unwrap_or_else(|| (address.ip().to_string(), address.port()));
    let peer = is_peer.then_some(at);
    let clock = server.registry().clock().clone();
    let mut identity = ServerIdentity::new(server.client(), clock, address).published(Addresses {
        registry: server.registry().clone(),
        peer,
        own,
    });
    if let Some(host) = host {
        identity = identity.host(host);
    }
    let leaves = leaves.child_token();
    let members = move || {
        let mut members = authentication.lock().clone();
        if let Some(ca) = &proxy_ca {
            add_front_proxy(&mut members, ca);
        }
        members
    };
    let identity = identity.authentication(members);
    let identity = match has_storage_versions(server.registry()) {
        true => registering(server, identity),
        false => identity,
    };
    let identity = identity.run(leaves.clone());
    let follow = async {
        tokio::select! {
            biased;
            // Cancel safe: both only wait for a state.
            () = stop.cancelled() => leaves.cancel(),
            () = leaves.cancelled() => {}
        }
    };
    tokio::join!(identity, follow);
}

/// Whether the server writes into StorageVersions what it stores, and writes wait for that.
pub(crate) fn has_storage_versions(registry: &Registry) -> bool {
    registry.features().is_on(Feature::StorageVersionAPI)
        && serves(registry, ["internal.apiserver.k8s.io", "v1alpha1", "storageversions"])
}

/// Has it write what the server stores of its built-in kinds, and let writes pass then.
fn registering(server: &ApiServer, identity: ServerIdentity) -> ServerIdentity {
    let stored = stored_resources(&server.registry().catalog());
    let prefixes: BTreeMap<_, _> =
        stored.iter().map(|(prefix, stored)| (stored.name.clone(), prefix.clone())).collect();
    let barrier = server.storage_versions().clone();
    identity
        .storage_versions(stored.into_values().collect())
        .on_registration(move |registration| report(&barrier, &prefixes, registration))
}

/// Tells the barrier, which knows resources by the prefix of their keys.
fn report(
    barrier: &StorageVersionBarrier,
    prefixes: &BTreeMap<String, Arc<str>>,
    registration: Registration<'_>,
) {
    let prefix = |stored: &StoredResource| prefixes.get(&stored.name).cloned();
    match registration {
        Registration::Registered(stored) => {
            prefix(stored).into_iter().for_each(|prefix| barrier.registered(prefix));
        }
        Registration::Failed { stored, error } => {
            prefix(stored).into_iter().for_each(|prefix| barrier.failed(prefix, error));
        }
        Registration::Complete => barrier.open(),
        _ => {}
    }
}

/// What is stored at each place in the store, by prefix of the keys. The name is that of the first
/// group, so that the Events of both groups have one.
fn stored_resources(catalog: &Catalog) -> BTreeMap<Arc<str>, StoredResource> {
    let mut all: BTreeMap<Arc<str>, StoredResource> = BTreeMap::new();
    let mut groups: Vec<_> = catalog.groups.iter().collect();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    for group in groups {
        let of_group = group.versions.iter().flat_map(|version| {
            // Custom resources have `status.storedVersions` in their definitions.
            catalog.group_version(&group.name, version).filter(|row| row.is_stored_built_in())
        });
        for row in of_group {
            let served = row.group_version().to_string();
            let group = if group.name.is_empty() { "core" } else { &*group.name };
            let name = format!("{group}.{}", row.resource);
            let stored = all.entry(row.storage_prefix.clone()).or_insert_with(|| StoredResource {
                name: name.clone(),
                encoding: row.encoding().to_string(),
                decodable: Vec::new(),
                served: Vec::new(),
            });
            stored.decodable.push(served.clone());
            if stored.name == name {
                stored.served.push(served);
            }
            for also in [row.storage_group_version(), row.encoding()] {
                let also = also.to_string();
                if !stored.decodable.contains(&also) {
                    stored.decodable.push(also);
                }
            }
        }
    }
    all
}
