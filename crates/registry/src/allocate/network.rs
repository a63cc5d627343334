//! Networks that cluster addresses come from.
use setpoint_object::cidr::{Families, Family, Given};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The most bits of a network of IPv6 that number its addresses: 64, as in kube-apiserver.
const HOST_BITS_MAX: u8 = 64;
/// The fewest bits of the first network: eight addresses, as in kube-apiserver.
const HOST_BITS_MIN: u8 = 3;
/// Limits of the addresses that are given to requests for any address only when the rest is used
/// up: a sixteenth of the network within them, none of a smaller one, as KEP-3070.
const STATIC_MIN: u128 = 16;
const STATIC_MAX: u128 = 256;

/// Why a text does not name the networks of Services.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceNetworkError {
    /// Not a network.
    #[error("{0:?} is not a network such as 10.0.0.0/24 or fd00::/112")]
    NotANetwork(String),
    /// More addresses than there may be.
    #[error("{0} is too large: the shortest prefix of an IPv6 network is 64")]
    TooLarge(String),
    /// Fewer addresses than there must be.
    #[error("{0} is too small: it must have at least 8 addresses")]
    TooSmall(String),
    /// More than two networks.
    #[error("{0} networks: there may be one of each family")]
    TooMany(usize),
    /// Two networks of one family.
    #[error("{0} and {1} are of the same family: there may be one of each")]
    SameFamily(String, String),
}

/// A network of cluster addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    base: IpAddr,
    length: u8,
}

impl Network {
    /// Bits that number its addresses.
    fn host_bits(self) -> u8 {
        let n_bits = if self.base.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        u8::try_from(n_bits).unwrap_or(u8::MAX).saturating_sub(self.length)
    }
    /// The first address after the network's own.
    fn first(self) -> IpAddr {
        match self.base {
            IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits() | 1).into(),
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() | 1).into(),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

impl FromStr for Network {
    type Err = ServiceNetworkError;

    fn from_str(text: &str) -> Result<Self, ServiceNetworkError> {
        let parsed = text.split_once('/').and_then(|(address, length)| {
            let address: IpAddr = address.parse().ok()?;
            let n_bits = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
            let length: u8 = length.parse().ok()?;
            (u32::from(length) <= n_bits).then_some(Self { base: address, length })
        });
        let Some(network) = parsed else {
            return Err(ServiceNetworkError::NotANetwork(text.to_owned()));
        };
        let host_bits = network.host_bits();
        if host_bits > HOST_BITS_MAX {
            return Err(ServiceNetworkError::TooLarge(text.to_owned()));
        }
        let base = match network.base {
            IpAddr::V4(base) => {
                let mask = u32::MAX.checked_shl(host_bits.into()).unwrap_or(0);
                Ipv4Addr::from_bits(base.to_bits() & mask).into()
            }
            IpAddr::V6(base) => {
                Ipv6Addr::from_bits(base.to_bits() >> host_bits << host_bits).into()
            }
        };
        Ok(Self { base, ..network })
    }
}

/// The networks that the ServiceCIDR `kubernetes` has at the first start: one of either family, or
/// one of each. Cluster addresses of Services come from them, and from the networks of further
/// ServiceCIDRs of their families. The first one is of the primary family: that of Services that
/// ask for none, and has at least 8 addresses. One of IPv6 has a prefix of 64 bits or more.
///
/// Default: 10.0.0.0/16, which is kube-apiserver's default network, wider than its /24 so that a
/// control plane is not full after 254 Services.
///
/// ```
/// use setpoint_registry::ServiceNetworks;
///
/// let networks: ServiceNetworks = "10.96.0.0/12,fd00:10:96::/112".parse()?;
/// assert_eq!(networks.first().to_string(), "10.96.0.1");
/// assert!(networks.families().is_dual);
/// # Ok::<(), setpoint_registry::ServiceNetworkError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceNetworks {
    primary: Network,
    secondary: Option<Network>,
}

impl Default for ServiceNetworks {
    fn default() -> Self {
        let base = Ipv4Addr::new(10, 0, 0, 0).into();
        Self { primary: Network { base, length: 16 }, secondary: None }
    }
}

impl ServiceNetworks {
    /// The first address of the first network, which the Service `kubernetes` has.
    pub fn first(self) -> IpAddr {
        self.primary.first()
    }
    /// The families of the networks; the first one's is the primary family.
    pub fn families(self) -> Families {
        Families { primary: Family::of(self.primary.base), is_dual: self.secondary.is_some() }
    }
    /// The networks, the first one first.
    pub(crate) fn texts(self) -> impl Iterator<Item = String> {
        [Some(self.primary), self.secondary]
            .into_iter()
            .flatten()
            .map(|network| network.to_string())
    }
}

impl fmt::Display for ServiceNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.secondary.map_or(Ok(()), |secondary| write!(f, ",{secondary}"))
    }
}

impl FromStr for ServiceNetworks {
    type Err = ServiceNetworkError;

    /// Parses `10.0.0.0/24` or `10.0.0.0/24,fd00::/112`. Bits behind a mask are ignored, as
    /// kube-apiserver does.
    fn from_str(text: &str) -> Result<Self, ServiceNetworkError> {
        let (primary, secondary) = match text.split_once(',') {
            None => (text.parse::<Network>()?, None),
            Some((primary, secondary)) => match secondary.matches(',').count() {
                0 => (primary.parse::<Network>()?, Some(secondary.parse::<Network>()?)),
                n_more => return Err(ServiceNetworkError::TooMany(2 + n_more)),
            },
        };
        if primary.host_bits() < HOST_BITS_MIN {
            return Err(ServiceNetworkError::TooSmall(primary.to_string()));
        }
        match secondary {
            Some(second) if Family::of(primary.base) == Family::of(second.base) => {
                Err(ServiceNetworkError::SameFamily(primary.to_string(), second.to_string()))
            }
            _ => Ok(Self { primary, secondary }),
        }
    }
}

/// The addresses of a network that Services may have, as numbers: all but the network's own and,
/// over IPv4, the broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Their family.
    pub(super) family: Family,
    /// The first one.
    pub(super) first: u128,
    /// The last one.
    pub(super) last: u128,
    /// How many of them, from the first on, are given to requests for any address only when the
    /// rest is used up.
    pub(super) n_static: u128,
}

impl Span {
    /// Reads `10.0.0.0/24`. `None` for other texts, and for networks that give no address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let given = Given::of_network(text)?;
        let family = Family::of(given.first);
        let (first, last) = (bits(given.first), bits(given.last));
        // With those that are not given.
        let size = match family {
            Family::V4 => last - first + 3,
            // Wider ones are ServiceCIDRs, but no allocator of kube-apiserver takes them.
            Family::V6 if last - first > u64::MAX.into() => return None,
            Family::V6 => last - first + 2,
        };
        let n_static = match size {
            0..=STATIC_MIN => 0,
            size => (size / 16).clamp(STATIC_MIN, STATIC_MAX),
        };
        Some(Self { family, first, last, n_static })
    }
    /// Whether it has an address.
    pub(super) fn has(self, address: IpAddr) -> bool {
        self.family == Family::of(address) && (self.first..=self.last).contains(&bits(address))
    }
    /// The address of a number.
    pub(super) fn address(self, number: u128) -> Option<IpAddr> {
        match self.family {
            Family::V4 => Some(Ipv4Addr::from_bits(number.try_into().ok()?).into()),
            Family::V6 => Some(Ipv6Addr::from_bits(number).into()),
        }
    }
}

/// An address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_bounds_and_static_addresses() {
        let facts = |text: &str| {
            let span = Span::parse(text)?;
            let (first, last) = (span.address(span.first)?, span.address(span.last)?);
            Some(format!("{first} to {last}, {} static", span.n_static))
        };
        for (network, expected) in [
            ("10.0.0.0/16", "10.0.0.1 to 10.0.255.254, 256 static"),
            ("10.9.8.7/24", "10.9.8.1 to 10.9.8.254, 16 static"),
            ("10.0.0.0/28", "10.0.0.1 to 10.0.0.14, 0 static"),
            ("255.240.0.0/12", "255.240.0.1 to 255.255.255.254, 256 static"),
            ("10.1.0.0/30", "10.1.0.1 to 10.1.0.2, 0 static"),
            ("0.0.0.0/0", "0.0.0.1 to 255.255.255.254, 256 static"),
            ("fd00::/64", "fd00::1 to fd00::ffff:ffff:ffff:ffff, 256 static"),
            ("fd00::/120", "fd00::1 to fd00::ff, 16 static"),
            ("fd00::/124", "fd00::1 to fd00::f, 0 static"),
            ("fd00::/127", "fd00::1 to fd00::1, 0 static"),
        ] {
            assert_eq!(facts(network).as_deref(), Some(expected), "{network}");
        }
        let none = ["10.2.0.0/31", "10.2.0.1/32", "10.2.0.0/33", "fd00::/63", "fd00::/128", ""];
        for none in none {
            assert_eq!(Span::parse(none), None, "{none}");
        }
        let six = Span::parse("fd00::/112").unwrap();
        assert!(six.has("fd00::ffff".parse().unwrap()) && !six.has("fd00::".parse().unwrap()));
        assert!(!Span::parse("::/64").unwrap().has("0.0.0.5".parse().unwrap()));
    }

    #[test]
    fn one_network_of_each_family_is_read_and_shown() {
        for (text, shown, first, primary, is_dual) in [
            ("10.0.0.0/16", "10.0.0.0/16", "10.0.0.1", Family::V4, false),
            ("10.0.0.9/8", "10.0.0.0/8", "10.0.0.1", Family::V4, false),
            ("0.0.0.0/0", "0.0.0.0/0", "0.0.0.1", Family::V4, false),
            ("10.0.0.0/29", "10.0.0.0/29", "10.0.0.1", Family::V4, false),
            ("FD00:0::5/112", "fd00::/112", "fd00::1", Family::V6, false),
            ("fd00::/64", "fd00::/64", "fd00::1", Family::V6, false),
            ("fd00::/125", "fd00::/125", "fd00::1", Family::V6, false),
            ("10.1.0.0/24,fd00::/112", "10.1.0.0/24,fd00::/112", "10.1.0.1", Family::V4, true),
            ("10.1.0.0/24,fd00::/126", "10.1.0.0/24,fd00::/126", "10.1.0.1", Family::V4, true),
            ("fd00::/112,10.1.0.0/24", "fd00::/112,10.1.0.0/24", "fd00::1", Family::V6, true),
        ] {
            let networks: ServiceNetworks = text.parse().unwrap();
            assert_eq!(networks.to_string(), shown);
            assert_eq!(networks.first().to_string(), first);
            assert_eq!(networks.families(), Families { primary, is_dual });
        }
        assert_eq!(ServiceNetworks::default(), "10.0.0.0/16".parse().unwrap());
    }

    #[test]
    fn other_texts_are_refused() {
        use ServiceNetworkError::{NotANetwork, SameFamily, TooLarge, TooMany, TooSmall};
        let error = |text: &str| text.parse::<ServiceNetworks>().unwrap_err();
        let texts = ["", "10.0.0.0", "10.0.0/24", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "::"];
        for text in texts {
            assert_eq!(error(text), NotANetwork(text.into()));
        }
        assert_eq!(error("10.0.0.0/24,"), NotANetwork(String::new()));
        assert_eq!(error("fd00::/63"), TooLarge("fd00::/63".into()));
        assert_eq!(error("10.0.0.0/30"), TooSmall("10.0.0.0/30".into()));
        assert_eq!(error("fd00::/126,10.0.0.0/24"), TooSmall("fd00::/126".into()));
        let (one, other) = ("10.0.0.0/24", "10.1.0.0/24");
        assert_eq!(error(&format!("{one},{other}")), SameFamily(one.into(), other.into()));
        assert_eq!(error("10.0.0.0/24,fd00::/112,10.1.0.0/24"), TooMany(3));
    }
}
