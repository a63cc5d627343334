//! The addresses at which the servers of a shared store can be reached, as kube-apiservers keep
//! them: a key for each, which expires.
//!
//! ```text
//! /registry/masterleases/10.0.0.5          Endpoints with this address
//! /registry/peerserverleases/apiserver-…   Endpoints with the address and port of this server
//! ```
//!
//! A kube-apiserver writes the endpoints of the Service `kubernetes` from these keys alone, so a
//! server without one would lose its endpoint. Servers find each other by the second kind of keys.
//! They have no API.
use crate::kind::core::endpoints;
use crate::shared::Registry;
use crate::stored::store_error;
use bytes::Bytes;
use setpoint_object::ApiError;
use setpoint_object::keys::{PEERS, PUBLISHED};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{Op, RangeRequest, Txn};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// How long an address stays without being published again: 15 s, as kube-apiserver's
/// `DefaultEndpointReconcilerTTL`.
const LIFETIME: Duration = Duration::from_secs(15);

impl Registry {
    /// Publishes the address of a server for 15 seconds. Nothing on a store of one server.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn publish_address(&self, address: IpAddr) -> Result<(), ApiError> {
        let endpoints = endpoints::of_address(address);
        self.write_published(Op::Put(key(address), to_bytes(&endpoints)), Some(LIFETIME)).await
    }

    /// Removes the published address of a server that stops.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn withdraw_address(&self, address: IpAddr) -> Result<(), ApiError> {
        self.write_published(Op::Delete(key(address)), None).await
    }

    /// Publishes for 15 seconds where other servers of the store reach the server of this name.
    /// Nothing on a store of one server.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn publish_peer(&self, name: &str, host: &str, port: u16) -> Result<(), ApiError> {
        let endpoints = endpoints::of_peer(name, host, port);
        self.write_published(Op::Put(peer_key(name), to_bytes(&endpoints)), Some(LIFETIME)).await
    }

    /// Removes what was published of a server that stops.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn withdraw_peer(&self, name: &str) -> Result<(), ApiError> {
        self.write_published(Op::Delete(peer_key(name)), None).await
    }

    /// Host and port of all servers of the store that other servers can reach, also of
    /// kube-apiservers, by name. None on a store of one server.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn published_peers(&self) -> Result<BTreeMap<String, (String, u16)>, ApiError> {
        if !self.inner.is_shared {
            return Ok(BTreeMap::new());
        }
        let request = RangeRequest::prefix(Bytes::from_static(PEERS.as_bytes()));
        let found = self.inner.store.range(request).await.map_err(store_error)?.value;
        Ok(found.entries.iter().filter_map(|entry| endpoints::peer(&entry.value)).collect())
    }

    async fn write_published(&self, op: Op, ttl: Option<Duration>) -> Result<(), ApiError> {
        if self.inner.is_shared {
            let txn = Txn { ops: vec![op], ttl, ..Txn::default() };
            self.inner.store.commit(txn).await.map_err(store_error)?;
        }
        Ok(())
    }

    /// The published addresses of all servers, also of kube-apiservers. None on a store of one
    /// server.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn published_addresses(&self) -> Result<BTreeSet<IpAddr>, ApiError> {
        if !self.inner.is_shared {
            return Ok(BTreeSet::new());
        }
        let request = RangeRequest::prefix(Bytes::from_static(PUBLISHED.as_bytes()));
        let found = self.inner.store.range(request).await.map_err(store_error)?.value;
        Ok(found.entries.iter().filter_map(|entry| address(&entry.key)).collect())
    }
}

fn peer_key(name: &str) -> Bytes {
    format!("{PEERS}{name}").into()
}

fn key(address: IpAddr) -> Bytes {
    format!("{PUBLISHED}{address}").into()
}

fn address(key: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(key).ok()?.strip_prefix(PUBLISHED)?.parse().ok()
}
