//! Networks that cluster addresses come from.
use setpoint_object::cidr::Given;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// The most bits of a network that number its addresses: 20, as kube-apiserver.
const HOST_BITS_MAX: u8 = 20;
/// The fewest: eight addresses, as kube-apiserver.
const HOST_BITS_MIN: u8 = 3;
/// Limits of the addresses that are given to requests for any address only when the rest is used
/// up: a sixteenth of the network within them, none of a smaller one, as KEP-3070.
const STATIC_MIN: u32 = 16;
const STATIC_MAX: u32 = 256;

/// Why a text is no network for Services.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceNetworkError {
    /// Not an IPv4 network.
    #[error("{0:?} is not an IPv4 network such as 10.0.0.0/24")]
    NotIpv4(String),
    /// More addresses than there may be.
    #[error("{0} is too large; for 32-bit addresses, the mask must be >= 12")]
    TooLarge(String),
    /// Fewer addresses than there must be.
    #[error("{0} is too small: it must have at least 8 addresses")]
    TooSmall(String),
}

/// The IPv4 network that the ServiceCIDR `kubernetes` has at the first start: 8 to 2²⁰ addresses.
/// Cluster addresses of Services come from it, and from the networks of further ServiceCIDRs.
///
/// Default: 10.0.0.0/16, which is kube-apiserver's default network, wider than its /24 so that a
/// control plane is not full after 254 Services.
///
/// ```
/// let network: setpoint_registry::ServiceNetwork = "10.96.0.0/12".parse()?;
/// assert_eq!(network.first().to_string(), "10.96.0.1");
/// # Ok::<(), setpoint_registry::ServiceNetworkError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceNetwork {
    base: u32,
    host_bits: u8,
}

impl Default for ServiceNetwork {
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 0, 0, 0).into(), host_bits: 16 }
    }
}

impl ServiceNetwork {
    /// The first address, which the Service `kubernetes` has.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }
}

impl fmt::Display for ServiceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), 32 - self.host_bits)
    }
}

impl FromStr for ServiceNetwork {
    type Err = ServiceNetworkError;

    /// Parses `10.0.0.0/24`. Bits behind the mask are ignored, as kube-apiserver does.
    fn from_str(text: &str) -> Result<Self, ServiceNetworkError> {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            let bits: u8 = bits.parse().ok().filter(|bits| *bits <= 32)?;
            Some((address.parse::<Ipv4Addr>().ok()?, 32 - bits))
        });
        let Some((address, host_bits)) = parsed else {
            return Err(ServiceNetworkError::NotIpv4(text.to_owned()));
        };
        match host_bits {
            ..HOST_BITS_MIN => Err(ServiceNetworkError::TooSmall(text.to_owned())),
            HOST_BITS_MIN..=HOST_BITS_MAX => {
                let base = u32::from(address) >> host_bits << host_bits;
                Ok(Self { base, host_bits })
            }
            _ => Err(ServiceNetworkError::TooLarge(text.to_owned())),
        }
    }
}

/// The addresses of an IPv4 network that Services may have: all but the network's own and the
/// broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The first one.
    pub(super) first: u32,
    /// The last one.
    pub(super) last: u32,
    /// How many of them, from the first on, are given to requests for any address only when the
    /// rest is used up.
    pub(super) n_static: u32,
}

impl Span {
    /// Reads `10.0.0.0/24`. `None` for other texts, and for networks without such an address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let Given { first: IpAddr::V4(first), last: IpAddr::V4(last) } = Given::of_network(text)?
        else {
            return None;
        };
        let (first, last) = (u32::from(first), u32::from(last));
        // With the network's own and the broadcast address.
        let n_static = match (last - first).saturating_add(3) {
            0..=STATIC_MIN => 0,
            size => (size / 16).clamp(STATIC_MIN, STATIC_MAX),
        };
        Some(Self { first, last, n_static })
    }
    /// Whether it has an address.
    pub(super) fn has(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&u32::from(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_bounds_and_static_addresses() {
        let facts = |text: &str| {
            let Span { first, last, n_static } = Span::parse(text)?;
            let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(last));
            Some(format!("{first} to {last}, {n_static} static"))
        };
        for (network, expected) in [
            ("10.0.0.0/16", "10.0.0.1 to 10.0.255.254, 256 static"),
            ("10.9.8.7/24", "10.9.8.1 to 10.9.8.254, 16 static"),
            ("10.0.0.0/28", "10.0.0.1 to 10.0.0.14, 0 static"),
            ("255.240.0.0/12", "255.240.0.1 to 255.255.255.254, 256 static"),
            ("10.1.0.0/30", "10.1.0.1 to 10.1.0.2, 0 static"),
            ("0.0.0.0/0", "0.0.0.1 to 255.255.255.254, 256 static"),
        ] {
            assert_eq!(facts(network).as_deref(), Some(expected), "{network}");
        }
        for none in ["10.2.0.0/31", "10.2.0.1/32", "10.2.0.0/33", "fd00::/112", "10.2.0.0", ""] {
            assert_eq!(Span::parse(none), None, "{none}");
        }
        assert_eq!(ServiceNetwork::default(), "10.0.0.0/16".parse().unwrap());
    }

    #[test]
    fn other_texts_are_refused() {
        use ServiceNetworkError::{NotIpv4, TooLarge, TooSmall};
        let error = |text: &str| text.parse::<ServiceNetwork>().unwrap_err();
        for text in ["", "10.0.0.0", "10.0.0/24", "10.0.0.0/33", "fd00::/112", "10.0.0.0/-1"] {
            assert_eq!(error(text), NotIpv4(text.into()));
        }
        assert_eq!(error("10.0.0.0/11"), TooLarge("10.0.0.0/11".into()));
        assert_eq!(error("10.0.0.0/30"), TooSmall("10.0.0.0/30".into()));
    }
}
