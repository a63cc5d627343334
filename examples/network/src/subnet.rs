//! Parses and validates the addresses of a Network, with errors that name a fix.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 network in CIDR notation: no bit is set beyond the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    address: Ipv4Addr,
    prefix_bits: u8,
}

/// Why a text is no network, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubnetError {
    /// Not `a.b.c.d/n`.
    #[error(
        "{text:?} is not an IPv4 network: write an address, a slash and a prefix length, such as 192.168.1.0/24"
    )]
    Malformed {
        /// What was written.
        text: String,
    },
    /// The prefix leaves no room for hosts, or is none.
    #[error(
        "{text:?} has a prefix length outside 8 to 30: a network needs room for a gateway and at least one host"
    )]
    Prefix {
        /// What was written.
        text: String,
    },
    /// Bits beyond the prefix are set.
    #[error("{address}/{} has host bits set: {address} lies inside {network}; write {network}{}", network.prefix_bits, or_tightest(*address, *tightest))]
    HostBits {
        /// The address as written.
        address: Ipv4Addr,
        /// The network it lies in.
        network: Subnet,
        /// The network that starts at the address, if one does that a Network may have.
        tightest: Option<Subnet>,
    },
    /// The gateway lies elsewhere.
    #[error("the gateway {gateway} is not inside {network}: use one of {} to {}", network.first_host(), network.last_host())]
    GatewayOutside {
        /// The gateway.
        gateway: Ipv4Addr,
        /// The network.
        network: Subnet,
    },
    /// The gateway is the network's own or its broadcast address.
    #[error("the gateway {gateway} is the {what} address of {network}: use one of {} to {}", network.first_host(), network.last_host())]
    GatewayReserved {
        /// The gateway.
        gateway: Ipv4Addr,
        /// `network` or `broadcast`.
        what: &'static str,
        /// The network.
        network: Subnet,
    },
}

/// The shortest prefix a network may have.
pub const PREFIX_BITS_MIN: u8 = 8;
/// The longest prefix a network may have: two hosts.
pub const PREFIX_BITS_MAX: u8 = 30;

impl Subnet {
    /// The network's own address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Length of the prefix, in bits.
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// The broadcast address.
    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !mask(self.prefix_bits))
    }

    /// The first address a host may have.
    pub fn first_host(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() + 1)
    }

    /// The last address a host may have.
    pub fn last_host(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.broadcast().to_bits() - 1)
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix_bits) == self.address.to_bits()
    }

    /// Whether two networks share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Checks that a gateway is an address a host of this network may have.
    ///
    /// # Errors
    ///
    /// [`SubnetError::GatewayOutside`] and [`SubnetError::GatewayReserved`].
    pub fn check_gateway(&self, gateway: Ipv4Addr) -> Result<(), SubnetError> {
        let network = *self;
        if !self.contains(gateway) {
            Err(SubnetError::GatewayOutside { gateway, network })
        } else if gateway == self.address {
            Err(SubnetError::GatewayReserved { gateway, what: "network", network })
        } else if gateway == self.broadcast() {
            Err(SubnetError::GatewayReserved { gateway, what: "broadcast", network })
        } else {
            Ok(())
        }
    }
}

/// The second remedy for host bits.
fn or_tightest(address: Ipv4Addr, tightest: Option<Subnet>) -> String {
    tightest
        .map(|tightest| format!(", or {tightest} for the network that starts at {address}"))
        .unwrap_or_default()
}

fn mask(prefix_bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0)
}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let malformed = || SubnetError::Malformed { text: text.to_owned() };
        let (address, bits) = text.split_once('/').ok_or_else(malformed)?;
        let address: Ipv4Addr = address.parse().map_err(|_| malformed())?;
        if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let prefix_bits =
            bits.parse().ok().filter(|bits| (PREFIX_BITS_MIN..=PREFIX_BITS_MAX).contains(bits));
        let prefix_bits =
            prefix_bits.ok_or_else(|| SubnetError::Prefix { text: text.to_owned() })?;
        let network = Self {
            address: Ipv4Addr::from_bits(address.to_bits() & mask(prefix_bits)),
            prefix_bits,
        };
        if network.address == address {
            return Ok(network);
        }
        // The shortest prefix under which the address has no host bits, and whole octets where
        // there is a choice: people write /24, not /25.
        let needed = 32 - u8::try_from(address.to_bits().trailing_zeros()).unwrap_or(32);
        let tightest = (needed <= PREFIX_BITS_MAX).then(|| Self {
            address,
            prefix_bits: needed.next_multiple_of(8).min(PREFIX_BITS_MAX),
        });
        Err(SubnetError::HostBits { address, network, tightest })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, gateway: &str, expected: Expect) {
        let said = match text
            .parse::<Subnet>()
            .and_then(|subnet| subnet.check_gateway(gateway.parse().unwrap()).map(|()| subnet))
        {
            Ok(subnet) => {
                format!("{subnet}, hosts {} to {}", subnet.first_host(), subnet.last_host())
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn network_and_gateway_that_fit_are_taken() {
        check(
            "192.168.0.0/16",
            "192.168.0.1",
            expect!["192.168.0.0/16, hosts 192.168.0.1 to 192.168.255.254"],
        );
        check("10.0.0.4/30", "10.0.0.6", expect!["10.0.0.4/30, hosts 10.0.0.5 to 10.0.0.6"]);
    }

    #[test]
    fn host_bits_are_refused_with_both_remedies() {
        check(
            "192.168.1.0/16",
            "192.168.1.1",
            expect![
                "192.168.1.0/16 has host bits set: 192.168.1.0 lies inside 192.168.0.0/16; write 192.168.0.0/16, or 192.168.1.0/24 for the network that starts at 192.168.1.0"
            ],
        );
        check(
            "10.1.2.128/24",
            "10.1.2.1",
            expect![
                "10.1.2.128/24 has host bits set: 10.1.2.128 lies inside 10.1.2.0/24; write 10.1.2.0/24, or 10.1.2.128/30 for the network that starts at 10.1.2.128"
            ],
        );
    }

    #[test]
    fn address_of_a_host_has_one_remedy() {
        check(
            "10.1.2.5/24",
            "10.1.2.1",
            expect![
                "10.1.2.5/24 has host bits set: 10.1.2.5 lies inside 10.1.2.0/24; write 10.1.2.0/24"
            ],
        );
    }

    #[test]
    fn gateway_must_be_a_host_of_the_network() {
        check(
            "10.0.0.0/24",
            "10.0.1.1",
            expect![
                "the gateway 10.0.1.1 is not inside 10.0.0.0/24: use one of 10.0.0.1 to 10.0.0.254"
            ],
        );
        check(
            "10.0.0.0/24",
            "10.0.0.0",
            expect![
                "the gateway 10.0.0.0 is the network address of 10.0.0.0/24: use one of 10.0.0.1 to 10.0.0.254"
            ],
        );
        check(
            "10.0.0.0/24",
            "10.0.0.255",
            expect![
                "the gateway 10.0.0.255 is the broadcast address of 10.0.0.0/24: use one of 10.0.0.1 to 10.0.0.254"
            ],
        );
    }

    #[test]
    fn malformed_networks_are_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/24", "x/24", "::/64"] {
            assert!(matches!(text.parse::<Subnet>(), Err(SubnetError::Malformed { .. })), "{text}");
        }
        for text in ["10.0.0.0/33", "10.0.0.0/31", "0.0.0.0/0", "10.0.0.0/99999999999"] {
            assert!(matches!(text.parse::<Subnet>(), Err(SubnetError::Prefix { .. })), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn remedies_are_themselves_networks_that_hold_the_address(bits: u32, prefix in PREFIX_BITS_MIN..=PREFIX_BITS_MAX) {
            let address = Ipv4Addr::from_bits(bits);
            match format!("{address}/{prefix}").parse::<Subnet>() {
                Ok(subnet) => assert_eq!(subnet.to_string(), format!("{address}/{prefix}")),
                Err(SubnetError::HostBits { network, tightest, .. }) => {
                    assert_eq!(network.to_string().parse::<Subnet>(), Ok(network));
                    if let Some(tightest) = tightest {
                        assert_eq!(tightest.to_string().parse::<Subnet>(), Ok(tightest));
                        assert!(tightest.address() == address && network.overlaps(&tightest));
                    }
                    assert!(network.contains(address));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
