//! Networks from which addresses are given: those of ServiceCIDRs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of a network that an allocator may give.
///
/// ```
/// use setpoint_object::cidr::Given;
///
/// let given = Given::of_network("10.1.0.0/29").unwrap();
/// assert_eq!(given.first.to_string(), "10.1.0.1");
/// assert_eq!(given.last.to_string(), "10.1.0.6");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The first one: not the network's own address.
    pub first: IpAddr,
    /// The last one, of the same family: over IPv4 not the broadcast address.
    pub last: IpAddr,
}

impl Given {
    /// Those of a network such as `10.0.0.0/24` or `fd00::/112`; bits behind the mask are ignored.
    /// `None` for other texts, and for networks without such an address.
    pub fn of_network(text: &str) -> Option<Self> {
        let (base, length) = text.split_once('/')?;
        let (n_bits, base): (u32, u128) = match base.parse().ok()? {
            IpAddr::V4(base) => (Ipv4Addr::BITS, base.to_bits().into()),
            IpAddr::V6(base) => (Ipv6Addr::BITS, base.to_bits()),
        };
        let n_host_bits = n_bits.checked_sub(length.parse().ok()?)?;
        // The bits that differ between its addresses.
        let host = u128::MAX.checked_shr(u128::BITS - n_host_bits).unwrap_or(0);
        let is_four = n_bits == Ipv4Addr::BITS;
        let first = (base & !host).checked_add(1)?;
        let last = (base | host).checked_sub(is_four.into())?;
        if first > last {
            return None;
        }
        let address = |bits: u128| match is_four {
            true => Some(Ipv4Addr::from_bits(bits.try_into().ok()?).into()),
            false => Some(Ipv6Addr::from_bits(bits).into()),
        };
        Some(Self { first: address(first)?, last: address(last)? })
    }

    /// Whether an address is one of them.
    pub fn has(&self, address: IpAddr) -> bool {
        // Addresses of IPv4 are before all of IPv6.
        (self.first..=self.last).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_gives_all_but_its_own_and_the_broadcast_address() {
        let gives = |network: &str, address: &str| {
            Given::of_network(network).unwrap().has(address.parse().unwrap())
        };
        for (address, expected) in [
            ("10.1.0.0", false),
            ("10.1.0.1", true),
            ("10.1.0.6", true),
            ("10.1.0.7", false),
            ("10.1.0.9", false),
            ("::a01:1", false),
        ] {
            assert_eq!(gives("10.1.0.0/29", address), expected, "{address}");
        }
        assert!(gives("fd00::/112", "fd00::ffff") && !gives("fd00::/112", "fd00::"));
        assert!(gives("0.0.0.0/0", "1.2.3.4") && gives("::/0", "::1"));
        for none in ["10.2.0.1/32", "10.2.0.0/31", "ffff::/128", "255.255.255.255/32", "10.2.0.0"] {
            assert_eq!(Given::of_network(none), None, "{none}");
        }
    }
}
