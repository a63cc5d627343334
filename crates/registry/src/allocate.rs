//! Allocation of cluster addresses and node ports, also among several servers.
//!
//! # Theory
//!
//! The source of truth is the store: it has a key for every number in use, the *claim*, which names
//! the number's Service ([`claims`]). A Service and its claims are written in one transaction. The
//! transaction takes a number only if it has no claim, and removes the claims of released numbers.
//! So no two Services ever have the same number, however many servers there are, and no claim
//! outlives its Service, even if the server or the store's answer is lost. A dry run writes
//! neither.
//!
//! The numbers in use as this process knows them are a guess ([`Allocator`]). Free numbers are
//! drawn by it, so that servers seldom draw the same. The write reads the number's claim first and
//! compares it at the commit. A wrong guess costs one more read. Before a Service is refused
//! because a range is full, all claims are read.
//!
//! Addresses come from the networks of all ready ServiceCIDRs ([`ranges`]); which families
//! Services may have is the plane's ([`ServiceNetworks`]). These are a guess too,
//! made when the first address is wanted: the write compares the ServiceCIDR of each address that
//! it takes. So no address is given from a range that is being deleted. Before an address is
//! refused, the ServiceCIDRs are read.
//!
//! A kube-apiserver on the same store knows no claims. It allocates addresses by their objects, and
//! node ports in a [`bitmap`], which are both compared and written with the claims. When it deletes
//! a Service, the claims stay: one whose Service is gone, or has the number no more, is taken over.
//!
//! At start, and when objects of addresses are missing, also those of a Service that has changed,
//! claims and objects are repaired: for Services that were stored before there were claims, or that
//! other programs wrote ([`repair`]).
//!
//! Each cluster address is an object too ([`address`]), which is written with the claim.
mod address;
mod bitmap;
mod claims;
mod network;
mod node_ports;
mod ranges;
mod repair;
mod service;

pub(crate) use address::NewObject;
pub(crate) use claims::Claims;
pub use network::{ServiceNetworkError, ServiceNetworks};
pub use node_ports::{NodePorts, NodePortsError};
pub(crate) use service::allocate;

use crate::figures::{Allocations, Choice, Family as Figures, NAMES_MAX, Usage};
use bytes::Bytes;
use network::Span;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use ranges::Range;
use serde_json::Value;
use setpoint_object::cidr::{Family, parse_address};
use setpoint_object::field;
use setpoint_store::{At, Compare, Revision, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

/// Wrong guesses before all claims are read.
///
/// Eight: with half of a range unknown, one Service in 256 reads them.
const WRONG_GUESSES_MAX: usize = 8;

/// Objects of free addresses that are read in search of one that the allocator has left. Users may
/// make any number of them; a hundred take a millisecond.
const FREE_OBJECTS_MAX: usize = 100;

/// Numbers that are counted at once, for metrics.
const SLICE_NUMBERS: usize = 1024;

/// A number that one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Number {
    /// A cluster address.
    Address(IpAddr),
    /// A node port.
    Port(u16),
}

/// The numbers of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceNumbers(BTreeSet<Number>);
impl ServiceNumbers {
    /// The numbers of a stored Service.
    pub(crate) fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let texts = spec["clusterIPs"].as_array().map_or(&[][..], Vec::as_slice);
        let single = std::slice::from_ref(&spec["clusterIP"]);
        let addresses = texts.iter().chain(single).filter_map(Value::as_str);
        let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let ports = ports.iter().map(|p| &p["nodePort"]).chain([&spec["healthCheckNodePort"]]);
        let ports = ports.filter_map(Value::as_u64).filter_map(|p| u16::try_from(p).ok());
        let addresses = addresses.filter_map(parse_address).map(Number::Address);
        Self(addresses.chain(ports.filter(|p| *p != 0).map(Number::Port)).collect())
    }
    /// The keys of the objects of its addresses.
    pub(crate) fn object_keys(&self) -> Vec<Bytes> {
        let addresses = self.0.iter().filter_map(|number| match number {
            Number::Address(address) => Some(address::key(*address)),
            Number::Port(_) => None,
        });
        addresses.collect()
    }
    /// Whether the Service has this number.
    pub(crate) fn has(&self, number: Number) -> bool {
        self.0.contains(&number)
    }
}

/// How the message about a port that is not a node port begins.
const PORT_OUTSIDE: &str = "provided port is not in the valid range.";

/// Why a number was not allocated. `Display` gives the API's message.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AllocateError {
    /// Another Service has it.
    #[error("provided IP is already allocated")]
    AddressTaken,
    /// In no range, or of another family.
    #[error("the provided network does not match the current range")]
    AddressOutside,
    /// No number is free.
    #[error("range is full")]
    Full,
    /// Another Service has it.
    #[error("provided port is already allocated")]
    PortTaken,
    /// Not a node port.
    #[error("{PORT_OUTSIDE} The range of valid ports is {0}")]
    PortOutside(NodePorts),
    /// The store failed: so does the whole request.
    #[error("look at a claim")]
    Store(#[from] StoreError),
}

/// Whether an error says that a port is not a node port.
pub(crate) fn is_port_outside(error: &field::Error) -> bool {
    error.detail.starts_with(PORT_OUTSIDE)
}

/// The numbers in use, and the ranges of addresses, that this process knows.
#[derive(Debug)]
pub(crate) struct Allocator {
    networks: ServiceNetworks,
    ports: NodePorts,
    used: Mutex<BTreeSet<Number>>,
    /// `None`: to be read.
    ranges: Mutex<Option<Arc<[Range]>>>,
    /// The ranges that were read last.
    shown: Mutex<Arc<[Range]>>,
    counts: Allocations,
}
impl Allocator {
    /// An allocator that knows of no number in use.
    pub(crate) fn new(networks: ServiceNetworks, ports: NodePorts) -> Self {
        Self {
            networks,
            ports,
            used: Mutex::default(),
            ranges: Mutex::default(),
            shown: Mutex::default(),
            counts: Allocations::default(),
        }
    }
    /// The networks of the ServiceCIDR that is made at the start. Services may be of their
    /// families.
    pub(crate) fn networks(&self) -> ServiceNetworks {
        self.networks
    }
    /// Starts a reservation. `is_dry`: nothing is written after it.
    pub(crate) fn reserve<'a>(&'a self, store: &'a dyn Store, is_dry: bool) -> Reservation<'a> {
        Reservation {
            allocator: self,
            store,
            is_dry,
            taken: BTreeSet::new(),
            sources: Vec::new(),
            stale: BTreeMap::new(),
            chosen: Vec::new(),
            has_read_ranges: false,
        }
    }
    /// Marks a number as used whose claim is being written, given its key. Other keys do nothing.
    pub(crate) fn note(&self, key: &[u8]) {
        self.used.lock().extend(claims::number(key));
    }
    /// Whether the objects of addresses, in a snapshot of the cache, are those of the addresses in
    /// use. Reads no object, except some of those whose addresses are not in use.
    pub(crate) fn has_objects<'i>(
        &self,
        items: impl Iterator<Item = (&'i [u8], &'i [u8])>,
    ) -> bool {
        let used = self.used.lock();
        let mut n_missing =
            used.iter().filter(|number| matches!(number, Number::Address(_))).count();
        let mut n_read = 0;
        for (key, value) in items {
            let Some(address) = address::address(key) else { continue };
            if used.contains(&Number::Address(address)) {
                n_missing -= 1;
            } else if n_read < FREE_OBJECTS_MAX {
                n_read += 1;
                if address::is_allocated(value) {
                    return false;
                }
            }
        }
        n_missing == 0
    }
    /// Marks the numbers of a deleted Service as free.
    pub(crate) fn forget(&self, owned: &ServiceNumbers) {
        let mut used = self.used.lock();
        for number in &owned.0 {
            used.remove(number);
        }
    }
    /// Reloads the numbers in use from the claims. The ranges are read when they are needed.
    pub(crate) async fn reload(&self, store: &dyn Store) -> Result<(), StoreError> {
        let used = claims::all(store).await?;
        *self.used.lock() = used;
        *self.ranges.lock() = None;
        Ok(())
    }
    /// The families about allocations.
    pub(crate) fn families(&self) -> Vec<Figures> {
        let ranges = self.shown.lock().clone();
        let known: Vec<(String, Span)> = match ranges.is_empty() {
            // None was needed yet.
            true => {
                let texts = self.networks.texts();
                texts.filter_map(|text| Some((text.clone(), Span::parse(&text)?))).collect()
            }
            false => {
                let shown = ranges.iter().take(NAMES_MAX);
                shown.map(|range| (range.network.to_string(), range.span)).collect()
            }
        };
        let usage = |(network, span)| (network, self.usage(Pool::Addresses(span)));
        let networks: Vec<(String, Usage)> = known.into_iter().map(usage).collect();
        self.counts.families(&networks, self.usage(Pool::Ports(self.ports)))
    }
    /// The numbers of a pool in use, as far as this process knows, and the others. In slices, so
    /// that the lock is not held for long.
    fn usage(&self, pool: Pool) -> Usage {
        let (first, last, _) = pool.bounds();
        let (Some(mut from), Some(to)) = (pool.number(first), pool.number(last)) else {
            return [0, 0];
        };
        let mut n_used = 0;
        let mut bound = Bound::Included(from);
        loop {
            let used = self.used.lock();
            let mut slice = used.range((bound, Bound::Included(to))).take(SLICE_NUMBERS);
            let mut n_slice = 0;
            for number in &mut slice {
                (from, n_slice) = (*number, n_slice + 1);
            }
            drop(used);
            n_used += n_slice as u64;
            if n_slice < SLICE_NUMBERS {
                let size = u64::try_from(last - first).unwrap_or(u64::MAX).saturating_add(1);
                return [n_used, size.saturating_sub(n_used)];
            }
            bound = Bound::Excluded(from);
        }
    }
    /// Draws a number of a pool that seems free, and marks it as used.
    fn draw(&self, pool: Pool, rng: &Mutex<SmallRng>) -> Option<Number> {
        let (first, last, n_static) = pool.bounds();
        let dynamic = first.saturating_add(n_static);
        let start = dynamic + random_up_to(last.checked_sub(dynamic)?, rng);
        let mut used = self.used.lock();
        // Counted if it may be full, because the search of a full pool takes much longer.
        let all = pool.number(first)?..=pool.number(last)?;
        let is_more_than_rest = |n_used: usize| n_used as u128 > last - first;
        if is_more_than_rest(used.len()) && is_more_than_rest(used.range(all).count()) {
            return None;
        }
        let order = (start..=last).chain(dynamic..start).chain(first..dynamic);
        let free = order.filter_map(|n| pool.number(n)).find(|number| !used.contains(number))?;
        used.insert(free);
        Some(free)
    }
}

/// Numbers to draw from.
#[derive(Debug, Clone, Copy)]
enum Pool {
    Addresses(Span),
    Ports(NodePorts),
}
impl Pool {
    fn number(self, n: u128) -> Option<Number> {
        match self {
            Self::Addresses(span) => span.address(n).map(Number::Address),
            Self::Ports(_) => u16::try_from(n).ok().map(Number::Port),
        }
    }
    /// The first number, the last one, and how many are given last.
    fn bounds(self) -> (u128, u128, u128) {
        match self {
            Self::Addresses(Span { first, last, n_static, .. }) => (first, last, n_static),
            Self::Ports(ports) => {
                let (first, last, n_static) = ports.bounds();
                (first.into(), last.into(), n_static.into())
            }
        }
    }
}

/// A random number up to the largest one. Networks have at most 2⁶⁴ addresses.
fn random_up_to(largest: u128, rng: &Mutex<SmallRng>) -> u128 {
    // A number of 32 bits takes less from the source.
    match (u32::try_from(largest), u64::try_from(largest)) {
        (Ok(largest), _) => rng.lock().random_range(0..=largest).into(),
        (_, Ok(largest)) => rng.lock().random_range(0..=largest).into(),
        _ => rng.lock().random_range(0..=largest),
    }
}

/// The numbers that one write takes. They are marked as free again on drop, unless `keep` is
/// called.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    store: &'a dyn Store,
    is_dry: bool,
    taken: BTreeSet<Number>,
    /// The ServiceCIDRs of the taken addresses, as they must be at the commit.
    sources: Vec<Compare>,
    /// The revisions of claims that are taken over.
    stale: BTreeMap<Number, Revision>,
    /// The taken addresses' networks, and ports, with how they were chosen.
    chosen: Vec<(Option<Arc<str>>, Choice)>,
    /// The ranges were read for this reservation: they are no guess from before.
    has_read_ranges: bool,
}
impl Reservation<'_> {
    /// Takes the given address.
    pub(crate) async fn address(&mut self, address: IpAddr) -> Result<(), AllocateError> {
        let begun = Instant::now();
        let mut ranges = self.ranges().await?;
        let (source, network) = loop {
            match (ranges::of(&ranges, address), self.has_read_ranges) {
                (Some(range), _) => break (range.compare(), range.network.clone()),
                (None, true) => return Err(AllocateError::AddressOutside),
                (None, false) => ranges = self.read_ranges().await?,
            }
        };
        // As the reference, a dry run does not look at who has the address.
        if self.is_dry {
            return Ok(());
        }
        if !self.take(Number::Address(address)).await? {
            self.allocator.counts.no_address(&network, Choice::Static);
            return Err(AllocateError::AddressTaken);
        }
        self.allocator.counts.found(&network, begun.elapsed());
        self.chosen.push((Some(network), Choice::Static));
        self.sources.push(source);
        Ok(())
    }
    /// The ranges that this process knows; if it knows none, those that are stored.
    async fn ranges(&mut self) -> Result<Arc<[Range]>, StoreError> {
        let known = self.allocator.ranges.lock().clone();
        match known {
            Some(known) => Ok(known),
            None => self.read_ranges().await,
        }
    }
    /// The ranges that are stored.
    async fn read_ranges(&mut self) -> Result<Arc<[Range]>, StoreError> {
        let ranges: Arc<[Range]> = ranges::read(self.store).await?.into();
        *self.allocator.ranges.lock() = Some(ranges.clone());
        *self.allocator.shown.lock() = ranges.clone();
        self.has_read_ranges = true;
        Ok(ranges)
    }
    /// Takes the given node port, once.
    pub(crate) async fn port(&mut self, port: u16) -> Result<(), AllocateError> {
        let counts = &self.allocator.counts;
        if !self.allocator.ports.contains(port) {
            counts.no_port(Choice::Static);
            return Err(self.port_outside());
        }
        let number = Number::Port(port);
        let is_free = !self.taken.contains(&number) && self.take(number).await?;
        if !is_free {
            counts.no_port(Choice::Static);
            return Err(AllocateError::PortTaken);
        }
        self.chosen.push((None, Choice::Static));
        Ok(())
    }
    /// The error for a port that is not a node port.
    pub(crate) fn port_outside(&self) -> AllocateError {
        AllocateError::PortOutside(self.allocator.ports)
    }
    /// Takes any address of a family: from the first range that is not full, beginning with any of
    /// them.
    pub(crate) async fn any_address(
        &mut self,
        family: Family,
        rng: &Mutex<SmallRng>,
    ) -> Result<IpAddr, AllocateError> {
        let (begun, counts) = (Instant::now(), &self.allocator.counts);
        let mut ranges = self.ranges().await?;
        loop {
            let spans = ranges.iter().map(|range| range.span);
            let mut pools: Vec<_> =
                spans.filter(|span| span.family == family).map(Pool::Addresses).collect();
            if pools.len() > 1 {
                let start = rng.lock().random_range(0..pools.len());
                pools.rotate_left(start);
            }
            match self.any(&pools, rng).await {
                Ok(Number::Address(address)) => {
                    if let Some(range) = ranges::of(&ranges, address) {
                        counts.found(&range.network, begun.elapsed());
                        self.chosen.push((Some(range.network.clone()), Choice::Dynamic));
                        self.sources.push(range.compare());
                    }
                    return Ok(address);
                }
                Err(AllocateError::Full) if !self.has_read_ranges => {}
                Ok(Number::Port(_)) | Err(AllocateError::Full) => {
                    let of_family = ranges.iter().filter(|range| range.span.family == family);
                    of_family.for_each(|range| counts.no_address(&range.network, Choice::Dynamic));
                    return Err(AllocateError::Full);
                }
                Err(error) => return Err(error),
            }
            ranges = self.read_ranges().await?;
        }
    }
    /// Takes any node port.
    pub(crate) async fn any_port(&mut self, rng: &Mutex<SmallRng>) -> Result<u16, AllocateError> {
        match self.any(&[Pool::Ports(self.allocator.ports)], rng).await {
            Ok(Number::Port(port)) => {
                self.chosen.push((None, Choice::Dynamic));
                Ok(port)
            }
            Ok(Number::Address(_)) | Err(AllocateError::Full) => {
                self.allocator.counts.no_port(Choice::Dynamic);
                Err(AllocateError::Full)
            }
            Err(error) => Err(error),
        }
    }
    /// Takes any number of the first pool that is not full.
    async fn any(
        &mut self,
        pools: &[Pool],
        rng: &Mutex<SmallRng>,
    ) -> Result<Number, AllocateError> {
        let (mut n_wrong, mut has_reloaded) = (0, false);
        loop {
            let drawn = pools.iter().find_map(|pool| self.allocator.draw(*pool, rng));
            if let Some(number) = drawn
                && self.take(number).await?
            {
                return Ok(number);
            }
            n_wrong += 1;
            if drawn.is_some() && n_wrong % WRONG_GUESSES_MAX != 0 {
                continue;
            }
            if drawn.is_none() && has_reloaded {
                return Err(AllocateError::Full);
            }
            self.allocator.reload(self.store).await?;
            self.allocator.used.lock().extend(&self.taken);
            has_reloaded = true;
        }
    }
    /// Takes a number that has no claim of a Service, or that this reservation has already.
    async fn take(&mut self, number: Number) -> Result<bool, StoreError> {
        if self.taken.contains(&number) {
            return Ok(true);
        }
        let claim = self.store.get(&claims::key(number), At::Latest).await?.value;
        let mut is_free = match &claim {
            Some(claim) => claims::is_stale(self.store, number, &claim.value).await?,
            None => true,
        };
        if is_free {
            is_free = match number {
                Number::Address(address) => self.is_absent(&address::key(address)).await?,
                Number::Port(port) => bitmap::is_free(self.store, port).await?,
            };
        }
        if let (true, Some(claim)) = (is_free, claim) {
            self.stale.insert(number, claim.modified);
        }
        // In use from now on, or before.
        self.allocator.used.lock().insert(number);
        if is_free {
            self.taken.insert(number);
        }
        Ok(is_free)
    }
    async fn is_absent(&self, key: &Bytes) -> Result<bool, StoreError> {
        Ok(self.store.get(key, At::Latest).await?.value.is_none())
    }
    /// The claims to commit with the write of the Service.
    ///
    /// # Errors
    /// The store fails to read the claim of a released number.
    pub(crate) async fn claims(
        &self,
        service: &Value,
        old: Option<&Value>,
        birth: &NewObject<'_>,
    ) -> Result<Claims, StoreError> {
        let mut claims = Claims::default();
        claims.compares.clone_from(&self.sources);
        for number in &self.taken {
            claims.take(*number, self.stale.get(number).copied(), service, birth);
        }
        if let Some(old) = old {
            let (before, after) = (ServiceNumbers::of(old), ServiceNumbers::of(service));
            let released = before.0.difference(&after.0).copied();
            claims.release(self.store, released, old).await?;
        }
        claims.mark_ports(self.store).await?;
        Ok(claims)
    }
    /// The write is committed: keeps the taken numbers and frees the released ones.
    pub(crate) fn keep(mut self, service: &Value, old: Option<&Value>) {
        self.taken.clear();
        for (network, choice) in self.chosen.drain(..) {
            match network {
                Some(network) => self.allocator.counts.address(&network, choice),
                None => self.allocator.counts.port(choice),
            }
        }
        if let Some(old) = old {
            let now = ServiceNumbers::of(service);
            let mut before = ServiceNumbers::of(old);
            before.0.retain(|number| !now.has(*number));
            self.allocator.forget(&before);
        }
    }
}
impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            self.allocator.used.lock().retain(|number| !self.taken.contains(number));
            // Perhaps the commit was refused because a range has changed.
            *self.allocator.ranges.lock() = None;
        }
    }
}
