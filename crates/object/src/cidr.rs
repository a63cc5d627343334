//! Networks from which addresses are given, those of ServiceCIDRs, and families of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A family of addresses. `Display` gives the API's name, such as `IPv4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.as_str() == name)
    }

    /// The name in objects, such as `IPv4`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses an address, also one whose numbers have leading zeros: objects of older servers may have
/// such (`ParseIPSloppy` of Kubernetes).
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        *octet = match parts.next().filter(is_number)?.trim_start_matches('0') {
            "" => 0,
            digits => digits.parse().ok()?,
        };
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// The families of addresses that Services of a control plane may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    /// The family of Services that ask for none.
    pub primary: Family,
    /// Whether they may have addresses of the other family, too.
    pub is_dual: bool,
}

impl Families {
    /// Whether Services may have addresses of a family.
    pub fn has(self, family: Family) -> bool {
        self.is_dual || self.primary == family
    }
}

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
    fn addresses_may_have_leading_zeros() {
        for (text, address) in [
            ("10.0.0.011", Some("10.0.0.11")),
            ("000.0.0.0", Some("0.0.0.0")),
            ("::1", Some("::1")),
            ("10.0.0.0256", None),
            ("10.0.0", None),
            ("10.0.0.0.0", None),
            ("10.0.0.+1", None),
            ("", None),
        ] {
            assert_eq!(parse_address(text), address.map(|text| text.parse().unwrap()), "{text}");
        }
    }

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
