//! The desired content of a firewall, as a pure function of the rules.
//!
//! # Theory
//!
//! | step | from | to |
//! |---|---|---|
//! | [`Rule::of`] | an object's spec | a checked rule |
//! | [`Ruleset::of`] | rules in any order | one order: `Allow` before the others, then by name |
//! | [`Ruleset::lines`] | a ruleset | the lines of the firewall: at most one per rule and address family |
//!
//! A line is in normal form: ports and addresses are sorted ranges that neither overlap nor touch.
//! So equivalent rulesets have equal lines, and the listing of a firewall can be compared with the
//! desired lines, however the firewall writes a range.

use crate::api::{Direction, PortRuleSpec, Protocol, Verdict};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a spec is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no port.
    #[error("the rule has no port")]
    NoPort,
    /// A port is 0, or a range ends before it starts.
    #[error("the ports {first} to {last} are no range between 1 and 65535")]
    Ports {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// A peer is no address range.
    #[error("{text:?} is no address range such as 10.0.0.0/8 or fd00::/8")]
    Peer {
        /// The text.
        text: String,
    },
}

/// A range that includes both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span<T> {
    /// The first value.
    pub first: T,
    /// The last value, not below the first.
    pub last: T,
}

/// Addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The first address.
    pub address: IpAddr,
    /// How many bits are the same.
    pub bits: u8,
}

impl Cidr {
    /// Parses `10.0.0.0/8`; the other bits must be zero.
    ///
    /// # Errors
    ///
    /// The text is something else.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Self::read(text).ok_or_else(|| SpecError::Peer { text: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let cidr = Self { address: address.parse().ok()?, bits: bits.parse().ok()? };
        let is_canonical = bits == cidr.bits.to_string() && cidr.bits <= cidr.bits_max();
        (is_canonical && cidr.first() & cidr.host_mask() == 0).then_some(cidr)
    }

    fn bits_max(self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    fn first(self) -> u128 {
        match self.address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn host_mask(self) -> u128 {
        let n_host_bits = u32::from(self.bits_max().saturating_sub(self.bits));
        1_u128.checked_shl(n_host_bits).map_or(u128::MAX, |size| size - 1)
    }

    fn span(self) -> Span<u128> {
        Span { first: self.first(), last: self.first() | self.host_mask() }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A rule, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The object's name.
    pub name: String,
    /// What happens to a connection.
    pub verdict: Verdict,
    /// Whether the node accepts the connection or opens it.
    pub direction: Direction,
    /// The protocol.
    pub protocol: Protocol,
    /// The ports, in normal form.
    pub ports: Vec<Span<u16>>,
    /// The peers, sorted. None: all addresses.
    pub peers: Vec<Cidr>,
    /// firewalld's zone.
    pub zone: Option<String>,
}

impl Rule {
    /// Checks a spec.
    ///
    /// # Errors
    ///
    /// The spec is invalid, although the server has accepted it.
    pub fn of(name: &str, spec: &PortRuleSpec) -> Result<Self, SpecError> {
        let ports = spec.ports.iter().map(|ports| {
            let (first, last) = (ports.port, ports.end_port.unwrap_or(ports.port));
            if first == 0 || last < first {
                return Err(SpecError::Ports { first, last });
            }
            Ok(Span { first, last })
        });
        let ports = merged(ports.collect::<Result<_, _>>()?, |last: u16| last.checked_add(1));
        if ports.is_empty() {
            return Err(SpecError::NoPort);
        }
        let mut peers =
            spec.peers.iter().map(|text| Cidr::parse(text)).collect::<Result<Vec<_>, _>>()?;
        peers.sort_unstable();
        peers.dedup();
        Ok(Self {
            name: name.to_owned(),
            verdict: spec.action,
            direction: spec.direction,
            protocol: spec.protocol,
            ports,
            peers,
            zone: spec.zone.clone(),
        })
    }
}

/// Sorts ranges and joins those that overlap or touch.
pub(crate) fn merged<T: Ord + Copy>(
    mut spans: Vec<Span<T>>,
    next: impl Fn(T) -> Option<T>,
) -> Vec<Span<T>> {
    spans.sort_unstable();
    let mut merged: Vec<Span<T>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            // Nothing comes after the last value there is.
            Some(last) if next(last.last).is_none_or(|next| span.first <= next) => {
                last.last = last.last.max(span.last);
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// All rules of one firewall.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    rules: Vec<Rule>,
}

impl Ruleset {
    /// Puts rules in order. The first line that matches a connection decides, so an `Allow` wins.
    pub fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut rules: Vec<Rule> = rules.into_iter().collect();
        rules.sort_by(|a, b| {
            (a.verdict != Verdict::Allow, &a.name).cmp(&(b.verdict != Verdict::Allow, &b.name))
        });
        Self { rules }
    }

    /// The rules, in the order in which they apply.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether there are no rules, so that our part of the firewall should not exist.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The lines of a firewall that has tables: those of `In`, then those of `Out`.
    pub fn lines(&self) -> Vec<Line> {
        let of = |direction| self.rules.iter().filter(move |rule| rule.direction == direction);
        [Direction::In, Direction::Out].into_iter().flat_map(of).flat_map(lines_of).collect()
    }
}

/// One line of a firewall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The name of the rule it comes from.
    pub rule: String,
    /// What happens to a connection.
    pub verdict: Verdict,
    /// Whether the node accepts the connection or opens it.
    pub direction: Direction,
    /// The protocol.
    pub protocol: Protocol,
    /// The ports, in normal form.
    pub ports: Vec<Span<u16>>,
    /// The addresses of the other side.
    pub peers: Peers,
}

/// The addresses of the other side. Ranges are in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// All addresses.
    All,
    /// These IPv4 addresses.
    V4(Vec<Span<Ipv4Addr>>),
    /// These IPv6 addresses.
    V6(Vec<Span<Ipv6Addr>>),
}

impl Peers {
    /// IPv4 addresses, put in normal form.
    pub(crate) fn v4(spans: Vec<Span<Ipv4Addr>>) -> Self {
        let next = |last: Ipv4Addr| last.to_bits().checked_add(1).map(Ipv4Addr::from_bits);
        Self::V4(merged(spans, next))
    }

    /// IPv6 addresses, put in normal form.
    pub(crate) fn v6(spans: Vec<Span<Ipv6Addr>>) -> Self {
        let next = |last: Ipv6Addr| last.to_bits().checked_add(1).map(Ipv6Addr::from_bits);
        Self::V6(merged(spans, next))
    }
}

fn lines_of(rule: &Rule) -> Vec<Line> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for peer in &rule.peers {
        let Span { first, last } = peer.span();
        match peer.address {
            IpAddr::V4(first) => {
                // At most 32 bits, as `first` has.
                let last = u32::try_from(last).unwrap_or(u32::MAX);
                v4.push(Span { first, last: Ipv4Addr::from_bits(last) });
            }
            IpAddr::V6(_) => {
                v6.push(Span { first: Ipv6Addr::from_bits(first), last: Ipv6Addr::from_bits(last) })
            }
        }
    }
    let mut peers = Vec::new();
    if rule.peers.is_empty() {
        peers.push(Peers::All);
    }
    if !v4.is_empty() {
        peers.push(Peers::v4(v4));
    }
    if !v6.is_empty() {
        peers.push(Peers::v6(v6));
    }
    let line = |peers| Line {
        rule: rule.name.clone(),
        verdict: rule.verdict,
        direction: rule.direction,
        protocol: rule.protocol,
        ports: rule.ports.clone(),
        peers,
    };
    peers.into_iter().map(line).collect()
}

#[cfg(test)]
pub(crate) mod tests;
