//! Addresses of the internet, and ranges of them.
use crate::features::Feature;
use crate::kind::at::At;
use crate::kind::format::fault;
use setpoint_object::cidr::parse_address;
use setpoint_object::field;
use std::net::IpAddr;

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}
/// Whether an address is of IPv6, as Kubernetes has it: one of IPv4 in the form of the other is
/// not.
pub(super) fn is_six(text: &str) -> bool {
    parse_address(text).is_some_and(|ip| ip.to_canonical().is_ipv6())
}
/// An IP address without leading zeros.
pub(super) fn ip(text: &str) -> Vec<String> {
    let message = match parse_address(text) {
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        Some(_) if text.parse::<IpAddr>().is_err() => "must not have leading 0s",
        Some(ip) if is_mapped(&ip) => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return Vec::new(),
    };
    vec![message.to_owned()]
}
/// The faults of an IP address at a place that had one before the rules became strict: without the
/// feature for that, what can be read is good.
pub(super) fn old_ip(at: &At<'_, '_>, text: &str) -> Vec<String> {
    let is_strict = at.is_on(Feature::StrictIPCIDRValidation);
    if is_strict || parse_address(text).is_none() { ip(text) } else { Vec::new() }
}
/// An IP address as it is printed.
pub(crate) fn canonical_ip(text: &str) -> Vec<String> {
    let faults = ip(text);
    match parse_address(text) {
        Some(ip) if faults.is_empty() && ip.to_string() != text => {
            vec![format!("must be in canonical form (\"{ip}\")")]
        }
        _ => faults,
    }
}

/// Warns of an address that is written in another form than the canonical one.
pub(super) fn ip_warning(place: impl FnOnce() -> String, text: &str) -> Option<String> {
    let ip = parse_address(text)?;
    let is_odd = !self::ip(text).is_empty();
    let canonical = if is_odd { ip.to_canonical() } else { ip }.to_string();
    if !is_odd && (ip.is_ipv4() || canonical == text) {
        return None;
    }
    let (place, text, canonical) = (place(), field::quote(text), field::quote(&canonical));
    Some(match is_odd {
        true => format!("{place}: non-standard IP address {text} is invalid: use {canonical}"),
        false => format!(
            "{place}: IPv6 address {text} should be in RFC 5952 canonical format ({canonical})"
        ),
    })
}
/// Warns of a network that is written in another form than the canonical one.
pub(super) fn cidr_warnings(place: impl FnOnce() -> String, text: &str) -> Vec<String> {
    let Some(cidr) = Cidr::parse(text) else { return Vec::new() };
    let Cidr { ip, bits } = cidr;
    let (has_more, is_odd) = (cidr.first() != ip, has_zeros(text) || is_mapped(&ip));
    let canonical = format!("{ip}/{bits}");
    if !has_more && !is_odd && (ip.is_ipv4() || canonical == text) {
        return Vec::new();
    }
    let (place, text) = (place(), field::quote(text));
    // Of a mapped network, the last 32 bits count.
    let network = match cidr.first() {
        first if is_mapped(&first) => format!("{}/{}", first.to_canonical(), i64::from(bits) - 96),
        first => format!("{first}/{bits}"),
    };
    let network = field::quote(&network);
    let mut all = Vec::new();
    if has_more {
        let address_bits = if ip.is_ipv4() { 32 } else { 128 };
        let single = field::quote(&format!("{}/{address_bits}", ip.to_canonical()));
        all.push(format!(
            "{place}: CIDR value {text} is ambiguous in this context (should be {network} or {single}?)"
        ));
    }
    if is_odd {
        all.push(format!("{place}: non-standard CIDR value {text} is invalid: use {network}"));
    }
    if all.is_empty() {
        let canonical = field::quote(&canonical);
        all.push(format!(
            "{place}: IPv6 CIDR value {text} should be in RFC 5952 canonical format ({canonical})"
        ));
    }
    all
}
/// An IP address that an endpoint can have.
pub(super) fn endpoint_ip(text: &str) -> Vec<String> {
    let Some(ip) = parse_address(text) else {
        return vec!["must be a valid IP address".to_owned()];
    };
    let (local, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), matches!(ip.octets(), [224, 0, 0, _])),
        IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    [
        fault(ip.is_unspecified(), format!("may not be unspecified ({text})")),
        fault(ip.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        fault(local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        fault(multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cidr {
    /// An address of the range, as it was written.
    pub(super) ip: IpAddr,
    /// The number of leading bits that all addresses share.
    pub(super) bits: u8,
}
impl Cidr {
    /// Parses `address/bits`, even if its numbers have leading zeros.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ip, bits) = text.split_once('/')?;
        let ip = parse_address(ip)?;
        let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits = bits.parse().ok().filter(|_| is_number)?;
        (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self { ip, bits })
    }
    /// The first address of the range.
    pub(super) fn first(&self) -> IpAddr {
        let rest = |width: u8| u32::from(width - self.bits);
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(rest(32)).unwrap_or(0);
                IpAddr::V4((u32::from(ip) & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(rest(128)).unwrap_or(0);
                IpAddr::V6((u128::from(ip) & mask).into())
            }
        }
    }
    /// Whether it has an address.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Self { ip, ..*self }.first() == self.first()
    }
}
/// Whether the numbers of `address/bits` have leading zeros.
fn has_zeros(text: &str) -> bool {
    let (ip, bits) = text.split_once('/').unwrap_or((text, ""));
    ip.parse::<IpAddr>().is_err() || bits.len() > 1 && bits.starts_with('0')
}
/// A range of addresses without leading zeros or further bits.
pub(super) fn cidr(text: &str) -> Vec<String> {
    let Some(cidr) = Cidr::parse(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let message = if has_zeros(text) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(&cidr.ip) {
        "must not have an IPv4-mapped IPv6 address"
    } else if cidr.first() != cidr.ip {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![message.to_owned()]
}
/// The same as [`old_ip`] for a range of addresses.
pub(super) fn old_cidr(at: &At<'_, '_>, text: &str) -> Vec<String> {
    let is_strict = at.is_on(Feature::StrictIPCIDRValidation);
    if is_strict || Cidr::parse(text).is_none() { cidr(text) } else { Vec::new() }
}
/// A range of addresses as it is printed.
pub(super) fn canonical_cidr(text: &str) -> Vec<String> {
    let faults = cidr(text);
    match Cidr::parse(text) {
        Some(Cidr { ip, bits }) if faults.is_empty() && format!("{ip}/{bits}") != text => {
            vec![format!("must be in canonical form (\"{ip}/{bits}\")")]
        }
        _ => faults,
    }
}

/// The address of an interface with the length of its network's prefix, as it is printed.
pub(super) fn interface_address(text: &str) -> Vec<String> {
    let Some(Cidr { ip, bits }) = Cidr::parse(text) else {
        let fault = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![fault.to_owned()];
    };
    // Of a mapped address, the last 32 bits count.
    let shown = match ip {
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => format!("{four}/{}", i64::from(bits) - 96),
            None => format!("{six}/{bits}"),
        },
        IpAddr::V4(four) => format!("{four}/{bits}"),
    };
    fault(shown != text, format!("must be in canonical form (\"{shown}\")")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A range contains its first address, and what is canonical is valid.
        #[test]
        fn any_address_has_ranges(bytes in any::<[u8; 16]>(), bits in 0..=128_u8, is_six: bool) {
            let ip = match is_six {
                true => IpAddr::from(bytes),
                false => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            };
            let bits = if is_six { bits } else { bits % 33 };
            let range = Cidr::parse(&format!("{ip}/{bits}")).unwrap();
            prop_assert!(range.contains(range.first()) && range.contains(ip));
            prop_assert_eq!(parse_address(&ip.to_string()), Some(ip));
            prop_assert!(is_mapped(&ip) || canonical_ip(&ip.to_string()).is_empty());
        }
        #[test]
        fn any_text_is_an_address_or_not(text in r"[-*.:/%a-zA-Z0-9\u{e9}]{0,24}") {
            prop_assert_eq!(Cidr::parse(&text).is_some(), !cidr(&text).concat().starts_with("must be a valid"));
            prop_assert!(canonical_ip(&text).is_empty() <= ip(&text).is_empty());
            prop_assert!(endpoint_ip(&text).iter().all(|message| !message.is_empty()));
        }
    }

    #[test]
    fn addresses() {
        for (text, message) in [
            ("10.0.0.1", ""),
            ("2001:db8::1", ""),
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("1.2.3", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("1.2.3.4.5", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("1.2.3.256", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ] {
            assert_eq!(ip(text).concat(), message, "{text}");
        }
        assert_eq!(canonical_ip("2001:DB8::1"), ["must be in canonical form (\"2001:db8::1\")"]);
        for (text, message) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("224.0.0.9", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
            ("10.0.0.1", ""),
        ] {
            assert_eq!(endpoint_ip(text).concat(), message, "{text}");
        }
    }

    #[test]
    fn ranges() {
        for (text, message) in [
            ("10.0.0.0/8", ""),
            ("0.0.0.0/0", ""),
            ("::/0", ""),
            ("2001:db8::/64", ""),
            ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
            ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
            ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
            ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ] {
            assert_eq!(cidr(text).concat(), message, "{text}");
        }
        let net = Cidr::parse("10.1.0.0/16").unwrap();
        assert!(net.contains("10.1.255.1".parse().unwrap()));
        assert!(
            !net.contains("10.2.0.1".parse().unwrap()) && !net.contains("::1".parse().unwrap())
        );
        assert_eq!(
            canonical_cidr("2001:DB8::/64"),
            ["must be in canonical form (\"2001:db8::/64\")"]
        );
    }
}
