//! Cluster addresses and node ports: which are in use, and reservations that undo themselves.
//!
//! The store is the truth (what Services hold); this is its index, rebuilt at start-up. A write reserves, commits its Service and
//! then keeps the reservation; one that is dropped before its commit began gives everything back. So an address is never held by two
//! Services, and never by none for longer than a request lives.
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use setpoint_object::{ApiError, Reason};
use setpoint_store::{RangeRequest, Store};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The network that cluster addresses come from.
///
/// 10.0.0.0/16: kube-apiserver's default network, wider than its /24 so that a control plane is not full after 254 Services.
pub(crate) const SERVICE_NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 0, 0, 0), 16);
/// Ports that may be node ports: kube-apiserver's `--service-node-port-range`.
pub(crate) const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// The first addresses and ports of a range are left to those who ask for a certain one, as long as the rest lasts.
///
/// 256 addresses and 86 ports, as KEP-3070 and KEP-3668 compute for these ranges.
const STATIC_ADDRESSES: u32 = 256;
const STATIC_PORTS: u16 = 86;

/// What is in use.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    state: Mutex<State>,
}
#[derive(Debug, Default)]
struct State {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<u16>,
}
/// What a Service holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) addresses: BTreeSet<u32>,
    pub(crate) ports: BTreeSet<u16>,
}
impl Held {
    /// What a stored Service holds.
    pub(crate) fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let texts = spec["clusterIPs"].as_array().map_or(&[][..], Vec::as_slice);
        let single = std::slice::from_ref(&spec["clusterIP"]);
        let addresses = texts.iter().chain(single).filter_map(Value::as_str);
        let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let ports = ports.iter().map(|p| &p["nodePort"]).chain([&spec["healthCheckNodePort"]]);
        Self {
            addresses: addresses
                .filter_map(|a| a.parse::<Ipv4Addr>().ok())
                .map(u32::from)
                .collect(),
            ports: ports
                .filter_map(Value::as_u64)
                .filter_map(|p| u16::try_from(p).ok())
                .filter(|p| *p != 0)
                .collect(),
        }
    }
}
/// Why a number was not given out; displays the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocateError {
    /// Somebody has it.
    #[error("provided IP is already allocated")]
    AddressTaken,
    /// Not of this network.
    #[error("the provided network does not match the current range")]
    AddressOutside,
    /// Nothing left.
    #[error("range is full")]
    Full,
    /// Somebody has it.
    #[error("provided port is already allocated")]
    PortTaken,
    /// Not a node port.
    #[error("provided port is not in the valid range. The range of valid ports is 30000-32767")]
    PortOutside,
}

impl Allocator {
    /// Learns what the stored Services hold.
    pub(crate) async fn rebuild(&self, store: &dyn Store) -> Result<(), ApiError> {
        let range = RangeRequest::prefix("/registry/services/specs/");
        let found = store.range(range).await.map_err(crate::write::store_error)?;
        let mut state = State::default();
        for entry in &found.value.entries {
            let held = Held::of(&crate::write::tree(&entry.value)?);
            state.addresses.extend(held.addresses);
            state.ports.extend(held.ports);
        }
        *self.state.lock() = state;
        Ok(())
    }
    /// Gives back what a deleted Service held.
    pub(crate) fn release(&self, held: &Held) {
        let mut state = self.state.lock();
        state.addresses.retain(|a| !held.addresses.contains(a));
        state.ports.retain(|p| !held.ports.contains(p));
    }
    /// Starts a reservation.
    pub(crate) fn reserve(&self) -> Reservation<'_> {
        Reservation { allocator: Some(self), taken: Held::default(), released: Held::default() }
    }
}
/// What one write took; given back unless kept.
#[derive(Debug, Default)]
pub(crate) struct Reservation<'a> {
    allocator: Option<&'a Allocator>,
    taken: Held,
    released: Held,
}
impl<'a> Reservation<'a> {
    /// Takes a certain address.
    pub(crate) fn address(&mut self, address: Ipv4Addr) -> Result<(), AllocateError> {
        let number = u32::from(address);
        if !addresses().contains(&number) {
            return Err(AllocateError::AddressOutside);
        }
        let Some(allocator) = self.allocator else { return Ok(()) };
        if !allocator.state.lock().addresses.insert(number) {
            return Err(AllocateError::AddressTaken);
        }
        self.taken.addresses.insert(number);
        Ok(())
    }
    /// Takes any address.
    pub(crate) fn any_address(&mut self, rng: &mut impl Rng) -> Result<Ipv4Addr, AllocateError> {
        let all = addresses();
        let (first, last) = (*all.start(), *all.end());
        let dynamic = first + STATIC_ADDRESSES;
        let number = {
            let Some(allocator) = self.allocator else { return Err(AllocateError::Full) };
            let mut state = allocator.state.lock();
            let start = rng.random_range(dynamic..=last);
            let mut order = (start..=last).chain(dynamic..start).chain(first..dynamic);
            let free = order.find(|n| !state.addresses.contains(n)).ok_or(AllocateError::Full)?;
            state.addresses.insert(free);
            free
        };
        self.taken.addresses.insert(number);
        Ok(Ipv4Addr::from(number))
    }
    /// Takes a certain node port.
    pub(crate) fn port(&mut self, port: u16) -> Result<(), AllocateError> {
        if !NODE_PORTS.contains(&port) {
            return Err(AllocateError::PortOutside);
        }
        let Some(allocator) = self.allocator else { return Ok(()) };
        if !allocator.state.lock().ports.insert(port) {
            return Err(AllocateError::PortTaken);
        }
        self.taken.ports.insert(port);
        Ok(())
    }
    /// Takes any node port.
    pub(crate) fn any_port(&mut self, rng: &mut impl Rng) -> Result<u16, AllocateError> {
        let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
        let dynamic = first + STATIC_PORTS;
        let port = {
            let Some(allocator) = self.allocator else { return Err(AllocateError::Full) };
            let mut state = allocator.state.lock();
            let start = rng.random_range(dynamic..=last);
            let mut order = (start..=last).chain(dynamic..start).chain(first..dynamic);
            let free = order.find(|p| !state.ports.contains(p)).ok_or(AllocateError::Full)?;
            state.ports.insert(free);
            free
        };
        self.taken.ports.insert(port);
        Ok(port)
    }
    /// Gives back, once the write is done, what the stored object held and the new one does not.
    pub(crate) fn release_on_keep(&mut self, old: &Held, new: &Held) {
        self.released = Held {
            addresses: old.addresses.difference(&new.addresses).copied().collect(),
            ports: old.ports.difference(&new.ports).copied().collect(),
        };
    }
    /// From here on only the outcome of the commit counts: a request that is dropped half way keeps what it took until the next start,
    /// rather than give away what a stored Service may hold.
    pub(crate) fn pin(mut self) -> Pinned<'a> {
        Pinned {
            allocator: self.allocator.take(),
            taken: std::mem::take(&mut self.taken),
            released: std::mem::take(&mut self.released),
        }
    }
}
/// A reservation whose commit is under way.
#[derive(Debug)]
#[must_use = "what was taken stays taken until the outcome is told"]
pub(crate) struct Pinned<'a> {
    allocator: Option<&'a Allocator>,
    taken: Held,
    released: Held,
}
impl Pinned<'_> {
    /// The write is done: what was taken stays taken.
    pub(crate) fn keep(self) {
        if let Some(allocator) = self.allocator {
            allocator.release(&self.released);
        }
    }
    /// The write did not happen: everything is as before.
    pub(crate) fn undo(self) {
        if let Some(allocator) = self.allocator {
            allocator.release(&self.taken);
        }
    }
    /// The write failed; whether it happened the error tells, or nobody knows.
    pub(crate) fn fail(self, error: &ApiError) {
        if error.reason() != Reason::Timeout {
            self.undo();
        }
    }
}
impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(allocator) = self.allocator.take() {
            allocator.release(&self.taken);
        }
    }
}
/// Every address of the network but its own and the broadcast one.
fn addresses() -> std::ops::RangeInclusive<u32> {
    let (network, bits) = SERVICE_NETWORK;
    let first = u32::from(network);
    first + 1..=first + (u32::MAX >> bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn what_is_not_kept_is_free_again() {
        let allocator = Allocator::default();
        let wanted = Ipv4Addr::new(10, 0, 0, 50);
        let mut first = allocator.reserve();
        assert_eq!(first.address(wanted), Ok(()));
        assert_eq!(allocator.reserve().address(wanted), Err(AllocateError::AddressTaken));
        drop(first);
        let mut second = allocator.reserve();
        assert_eq!(second.address(wanted), Ok(()));
        second.pin().keep();
        assert_eq!(allocator.reserve().address(wanted), Err(AllocateError::AddressTaken));
    }
    #[test]
    fn any_port_leaves_the_static_band_alone_while_others_last() {
        let allocator = Allocator::default();
        let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
        let mut all = allocator.reserve();
        let dynamic = usize::from(NODE_PORTS.end() - NODE_PORTS.start() + 1 - STATIC_PORTS);
        let given: BTreeSet<u16> =
            (0..dynamic).filter_map(|_| all.any_port(&mut rng).ok()).collect();
        assert_eq!(given.len(), dynamic);
        assert!(given.iter().all(|p| *p >= NODE_PORTS.start() + STATIC_PORTS));
        assert!(all.any_port(&mut rng).is_ok_and(|p| p < NODE_PORTS.start() + STATIC_PORTS));
    }
}
