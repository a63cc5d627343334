//! IP addresses and networks.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Int, String as Text};
use crate::value::{Opaque, Value};
use setpoint_object::field::quote;

type Result<'v> = std::result::Result<Value<'v>, Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ip(IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Opaque for Ip {
    fn type_of(&self) -> Type {
        Type::IP
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn size(&self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}

impl Opaque for Cidr {
    fn type_of(&self) -> Type {
        Type::CIDR
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn size(&self) -> u64 {
        u64::from(self.bits).div_ceil(8)
    }
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let (ip, cidr) = (|| Type::IP, || Type::CIDR);
    vec![
        global("ip", "string_to_ip", [Text], ip()).cost(Cost::Parse).call(to_ip),
        member("ip", "cidr_ip", [cidr()], ip()).call(cidr_ip),
        member("family", "ip_family", [ip()], Int).call(family),
        global("ip.isCanonical", "ip_is_canonical", [Text], Bool)
            .cost(Cost::ParseTwice)
            .call(is_canonical),
        member("isUnspecified", "ip_is_unspecified", [ip()], Bool).call(is_unspecified),
        member("isLoopback", "ip_is_loopback", [ip()], Bool).call(is_loopback),
        member("isLinkLocalMulticast", "ip_is_link_local_multicast", [ip()], Bool)
            .call(is_link_local_multicast),
        member("isLinkLocalUnicast", "ip_is_link_local_unicast", [ip()], Bool)
            .call(is_link_local_unicast),
        member("isGlobalUnicast", "ip_is_global_unicast", [ip()], Bool).call(is_global_unicast),
        global("isIP", "is_ip", [Text], Bool).cost(Cost::Parse).call(is_ip),
        global("string", "ip_to_string", [ip()], Text).call(ip_to_string),
        global("cidr", "string_to_cidr", [Text], cidr()).cost(Cost::Parse).call(to_cidr),
        member("containsIP", "cidr_contains_ip_string", [cidr(), Text], Bool)
            .cost(Cost::ContainsIp(true))
            .call(contains_ip),
        member("containsIP", "cidr_contains_ip_ip", [cidr(), ip()], Bool)
            .cost(Cost::ContainsIp(false))
            .call(contains_ip),
        member("containsCIDR", "cidr_contains_cidr_string", [cidr(), Text], Bool)
            .cost(Cost::ContainsCidr(true))
            .call(contains_cidr),
        member("containsCIDR", "cidr_contains_cidr", [cidr(), cidr()], Bool)
            .cost(Cost::ContainsCidr(false))
            .call(contains_cidr),
        member("prefixLength", "cidr_prefix_length", [cidr()], Int).call(prefix_length),
        member("masked", "cidr_masked", [cidr()], cidr()).call(masked),
        global("isCIDR", "is_cidr", [Text], Bool).cost(Cost::Parse).call(is_cidr),
        global("string", "cidr_to_string", [cidr()], Text).call(cidr_to_string),
    ]
}

fn parse_ip(text: &str) -> std::result::Result<IpAddr, String> {
    let quoted = quote(text);
    let (bare, zone) = match text.split_once('%') {
        Some((bare, zone)) if !zone.is_empty() => (bare, true),
        _ => (text, false),
    };
    let address: IpAddr = match bare.parse() {
        Ok(IpAddr::V4(_)) if zone => None,
        Ok(address) => Some(address),
        Err(_) => None,
    }
    .ok_or_else(|| {
        let why = fault(text);
        format!("IP Address {quoted} parse error during conversion from string: {why}")
    })?;
    if zone {
        return Err(format!("IP address {quoted} with zone value is not allowed"));
    }
    refuse_mapped(address, &quoted)?;
    Ok(address)
}

/// Why a text is no address, in the words of Go's `netip`.
fn fault(text: &str) -> String {
    let (why, at) = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => v4_fault(text),
        Some(b':') => v6_fault(text),
        Some(_) => ("missing IPv6 address", ""),
        None => ("unable to parse IP", ""),
    };
    match at {
        "" => format!("ParseAddr({}): {why}", quote(text)),
        at => format!("ParseAddr({}): {why} (at {})", quote(text), quote(at)),
    }
}

/// The first fault of four decimal fields, and where it is.
fn v4_fault(text: &str) -> (&'static str, &str) {
    let bytes = text.as_bytes();
    let (mut fields, mut digits) = (0, 0..0);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if &text[digits.clone()] == "0" {
                    return ("IPv4 field has octet with leading zero", "");
                }
                digits.end = at + 1;
                if text[digits.clone()].parse::<u8>().is_err() {
                    return ("IPv4 field has value >255", "");
                }
            }
            b'.' => {
                if digits.is_empty() || at + 1 == bytes.len() {
                    return ("IPv4 field must have at least one digit", &text[at..]);
                }
                if fields == 3 {
                    return ("IPv4 address too long", "");
                }
                fields += 1;
                digits = at + 1..at + 1;
            }
            _ => return ("unexpected character", text.get(at..).unwrap_or_default()),
        }
    }
    ("IPv4 address too short", "")
}

/// The first fault of hexadecimal fields, and where it is.
fn v6_fault(text: &str) -> (&'static str, &str) {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(a, b)| (a, Some(b)));
    if zone == Some("") {
        return ("zone must be a non-empty string", "");
    }
    let (mut fields, mut gap) = (0, false);
    if let Some(behind) = rest.strip_prefix("::") {
        (rest, gap) = (behind, true);
    }
    while fields < 8 {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        match end {
            0 => return ("each colon-separated field must have at least one digit", rest),
            1..=4 => {}
            _ => return ("each group must have 4 or less digits", rest),
        }
        if rest[end..].starts_with('.') {
            return match () {
                () if !gap && fields != 6 => {
                    let why =
                        "embedded IPv4 address must replace the final 2 fields of the address";
                    (why, rest)
                }
                () if fields > 6 => {
                    let why = "too many hex fields to fit an embedded IPv4 at the end of the \
                        address";
                    (why, rest)
                }
                () if rest.parse::<Ipv4Addr>().is_err() => v4_fault(rest),
                () => ("the :: must expand to at least one field of zeros", ""),
            };
        }
        fields += 1;
        rest = &rest[end..];
        match rest.strip_prefix(':') {
            None if rest.is_empty() => break,
            None => return ("unexpected character, want colon", rest),
            Some("") => return ("colon must be followed by more characters", rest),
            Some(behind) => rest = behind,
        }
        if let Some(behind) = rest.strip_prefix(':') {
            if gap {
                return ("multiple :: in address", rest);
            }
            (rest, gap) = (behind, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    match () {
        () if !rest.is_empty() => ("trailing garbage after address", rest),
        () if fields < 8 => ("address string too short", ""),
        () => ("the :: must expand to at least one field of zeros", ""),
    }
}

fn refuse_mapped(address: IpAddr, quoted: &str) -> std::result::Result<(), String> {
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"))
        }
        _ => Ok(()),
    }
}

fn parse_cidr(text: &str) -> std::result::Result<Cidr, String> {
    let quoted = quote(text);
    let refuse = |why: &str| {
        format!(
            "network address parse error during conversion from string: \
             netip.ParsePrefix({quoted}): {why}"
        )
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| refuse("no '/'"))?;
    let (bare, zone) = address.split_once('%').unwrap_or((address, ""));
    let address: IpAddr = match bare.parse() {
        Ok(IpAddr::V6(_)) if !zone.is_empty() => {
            return Err(refuse("IPv6 zones cannot be present in a prefix"));
        }
        Ok(parsed) if bare == address => parsed,
        _ => return Err(refuse(&fault(address))),
    };
    let bad = || refuse(&format!("bad bits after slash: {}", quote(bits)));
    let plain = bits.bytes().all(|byte| byte.is_ascii_digit());
    if bits.is_empty() || !plain || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(bad());
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits
        .parse()
        .ok()
        .filter(|bits| *bits <= most)
        .ok_or_else(|| refuse("prefix length out of range"))?;
    refuse_mapped(address, &quoted)?;
    Ok(Cidr { address, bits })
}

fn text<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a str, Error> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Error::NoSuchOverload),
    }
}

fn ip(value: Option<&Value<'_>>) -> std::result::Result<IpAddr, Error> {
    value.and_then(Value::downcast).map(|Ip(address)| *address).ok_or(Error::NoSuchOverload)
}

fn cidr(value: Option<&Value<'_>>) -> std::result::Result<Cidr, Error> {
    value.and_then(Value::downcast).copied().ok_or(Error::NoSuchOverload)
}

fn cidr_of(text: &str) -> std::result::Result<Cidr, Error> {
    parse_cidr(text).map_err(|error| {
        Error::message(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })
}

fn to_ip<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(Ip(parse_ip(text(args)?).map_err(Error::message)?)))
}

fn is_ip<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(parse_ip(text(args)?).is_ok()))
}

fn is_canonical<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let text = text(args)?;
    Ok(Value::Bool(parse_ip(text).map_err(Error::message)?.to_string() == text))
}

fn ip_to_string<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(ip(args.first())?.to_string().into())
}

fn family<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Int(if ip(args.first())?.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(ip(args.first())?.is_unspecified()))
}

fn is_loopback<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(ip(args.first())?.is_loopback()))
}

fn is_link_local_multicast<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(match ip(args.first())? {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }))
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_unicast<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(link_local_unicast(ip(args.first())?)))
}

fn is_global_unicast<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let address = ip(args.first())?;
    Ok(Value::Bool(
        address != IpAddr::V4(Ipv4Addr::BROADCAST)
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !link_local_unicast(address),
    ))
}

fn to_cidr<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(cidr_of(text(args)?)?))
}

fn is_cidr<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(parse_cidr(text(args)?).is_ok()))
}

fn cidr_to_string<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let cidr = cidr(args.first())?;
    Ok(format!("{}/{}", cidr.address, cidr.bits).into())
}

fn cidr_ip<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(Ip(cidr(args.first())?.address)))
}

fn prefix_length<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Int(cidr(args.first())?.bits.into()))
}

impl Cidr {
    /// The network without the bits behind its prefix.
    fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Cidr { address, ..self }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Cidr { address, bits: self.bits }.masked() == self.masked()
    }
}

fn masked<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(cidr(args.first())?.masked()))
}

fn contains_ip<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let cidr = cidr(args.first())?;
    let address = match args.get(1) {
        // A text that is none has no overload, as in the reference.
        Some(Value::String(text)) => parse_ip(text).map_err(|_| Error::NoSuchOverload)?,
        value => ip(value)?,
    };
    Ok(Value::Bool(cidr.contains(address)))
}

fn contains_cidr<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let outer = cidr(args.first())?;
    let inner = match args.get(1) {
        Some(Value::String(text)) => cidr_of(text)?,
        value => cidr(value)?,
    };
    Ok(Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn addresses_are_read() {
        check("isIP('127.0.0.1')", "true");
        check("isIP('127.0.0.01')", "false");
        check("isIP('::ffff:1.2.3.4')", "false");
        check("isIP('fe80::1%eth0')", "false");
        check(
            "ip('::ffff:1.2.3.4')",
            "error: IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed",
        );
        check(
            "ip('fe80::1%eth0')",
            "error: IP address \"fe80::1%eth0\" with zone value is not allowed",
        );
        check("ip.isCanonical('2001:db8::abcd')", "true");
        check("ip.isCanonical('2001:DB8::ABCD')", "false");
        check("ip('::1').family()", "6");
        check("string(ip('192.168.0.1'))", "\"192.168.0.1\"");
        check("ip('127.0.0.1').isLoopback()", "true");
        check("ip('0.0.0.0').isUnspecified()", "true");
        check("ip('224.0.0.1').isLinkLocalMulticast()", "true");
        check("ip('169.254.169.254').isLinkLocalUnicast()", "true");
        check("ip('192.168.0.1').isGlobalUnicast()", "true");
        check("ip('255.255.255.255').isGlobalUnicast()", "false");
        check("ip('::1') == ip('0:0:0:0:0:0:0:1')", "true");
    }

    #[test]
    fn networks_contain_addresses() {
        check("isCIDR('192.168.0.0/24')", "true");
        check("isCIDR('192.168.0.0/33')", "false");
        check("isCIDR('192.168.0.0/024')", "false");
        check("cidr('192.168.0.0/24').containsIP('192.168.0.1')", "true");
        check("cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))", "false");
        check("cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')", "true");
        check("cidr('192.168.0.0/24').containsCIDR(cidr('192.168.0.0/23'))", "false");
        check("string(cidr('192.168.1.5/24').masked())", "\"192.168.1.0/24\"");
        check("cidr('192.168.0.0/24').prefixLength()", "24");
        check("cidr('192.168.0.0/24').ip() == ip('192.168.0.0')", "true");
        check("cidr('::/0').containsIP('2001::1')", "true");
    }
}
