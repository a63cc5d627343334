//! Addresses of pods: of the loopback interface, or of another network that is local to the
//! machine. Each pod has its own, so that two servers may listen on the same port.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use twox_hash::XxHash3_64;

/// The network of pods. Every address of 127.0.0.0/8 can be bound on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodNetwork {
    start: u32,
    bits: u32,
}

impl Default for PodNetwork {
    fn default() -> Self {
        Self { start: u32::from(Ipv4Addr::new(127, 64, 0, 0)), bits: 22 }
    }
}

impl std::str::FromStr for PodNetwork {
    type Err = String;

    /// Parses `10.64.0.0/16`: at least four addresses.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no network such as 10.64.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
        let prefix: u32 = prefix.parse().map_err(|_| bad())?;
        if !(8..=30).contains(&prefix) {
            return Err(format!("{text:?}: the prefix must be between 8 and 30"));
        }
        let bits = 32 - prefix;
        Ok(Self { start: u32::from(address) >> bits << bits, bits })
    }
}

/// Which pod has which address.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    network: PodNetwork,
    used: BTreeMap<u32, String>,
}

impl Addresses {
    pub(crate) fn new(network: PodNetwork) -> Self {
        Self { network, used: BTreeMap::new() }
    }

    /// The address of a pod: the one that it has, or one that follows from its name. So a pod that
    /// is replaced by one of its name keeps its address, unless another has taken it.
    pub(crate) fn assign(&mut self, name: &str, uid: &str, shown: Option<Ipv4Addr>) -> Ipv4Addr {
        let PodNetwork { start, bits } = self.network;
        // Without the first and the last one.
        let size = (1_u32 << bits) - 2;
        let own = self.used.iter().find(|(_, owner)| *owner == uid).map(|(address, _)| *address);
        if let Some(own) = own {
            return own.into();
        }
        let shown = shown.map(u32::from).filter(|address| {
            (start + 1..=start + size).contains(address) && !self.used.contains_key(address)
        });
        let first = (XxHash3_64::oneshot(name.as_bytes()) % u64::from(size)) as u32;
        let mut others = (0..size).map(|n| start + 1 + (first.wrapping_add(n)) % size);
        let address = shown.or_else(|| others.find(|address| !self.used.contains_key(address)));
        // There are fewer pods than addresses; otherwise two share one.
        let address = address.unwrap_or(start + 1);
        self.used.insert(address, uid.to_owned());
        address.into()
    }

    pub(crate) fn release(&mut self, uid: &str) {
        self.used.retain(|_, owner| owner != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_the_same_name_gets_the_address_again() {
        let mut addresses = Addresses::default();
        let first = addresses.assign("d/a", "1", None);
        assert_eq!(addresses.assign("d/a", "1", None), first);
        assert_ne!(addresses.assign("d/a", "2", None), first, "it is taken");
        addresses.release("1");
        assert_eq!(addresses.assign("d/a", "3", None), first);
        let shown = Ipv4Addr::new(127, 64, 9, 9);
        assert_eq!(addresses.assign("d/b", "4", Some(shown)), shown);
        let outside = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert!(addresses.assign("d/c", "5", outside).is_loopback());
    }

    #[test]
    fn networks_are_parsed() {
        let network: PodNetwork = "10.64.3.1/16".parse().unwrap();
        let mut addresses = Addresses::new(network);
        let octets = addresses.assign("a", "1", None).octets();
        assert_eq!(octets[..2], [10, 64]);
        for bad in ["10.0.0.0", "10.0.0.0/31", "10.0.0.0/7", "x/16", "10.0.0.0/x"] {
            assert!(bad.parse::<PodNetwork>().is_err(), "{bad}");
        }
    }
}
