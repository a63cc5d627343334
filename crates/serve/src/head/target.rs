//! Targets of requests, as Go's `net/url` reads them.

use std::net::Ipv6Addr;

/// Whether a target is valid: `*`, a path, or an absolute URL.
pub(super) fn is_valid(target: &[u8]) -> bool {
    if target.is_empty() || target.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
        return false;
    }
    if target == b"*" {
        return true;
    }
    let Some((scheme, rest)) = scheme(target) else { return false };
    let rest = rest.split(|byte| *byte == b'?').next().unwrap_or_default();
    if !rest.starts_with(b"/") {
        // After a scheme, whatever follows has no path.
        return !scheme.is_empty();
    }
    match rest.strip_prefix(b"//").filter(|_| !scheme.is_empty()) {
        Some(rest) => {
            let at = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(at);
            is_authority(scheme, authority) && are_escapes_valid(path)
        }
        None => are_escapes_valid(rest),
    }
}

/// Whether the target of a CONNECT is valid: an authority, which may be followed by a path.
pub(super) fn is_authority_valid(target: &[u8]) -> bool {
    is_valid(&[b"http://", target].concat())
}

/// Whether every `%` is followed by two hexadecimal digits.
pub(super) fn are_escapes_valid(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'%');
    parts.next();
    parts.all(|part| matches!(part, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
}

/// Whether a `Host` header may have this byte. Go's server checks no more than this.
pub(super) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=[']_~".contains(&byte)
}

/// The target with those bytes escaped that hyper refuses or takes for the start of a fragment;
/// `None` if it has none. Decoded, they are the same.
pub(super) fn escaped(target: &[u8]) -> Option<Vec<u8>> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let has_to_be = |byte: u8| byte >= 0x80 || b"\"#<>\\^`{|}".contains(&byte);
    // Those of an authority are refused.
    if !target.starts_with(b"/") || !target.iter().copied().any(has_to_be) {
        return None;
    }
    let mut out = Vec::with_capacity(target.len() + 16);
    for byte in target.iter().copied() {
        if has_to_be(byte) {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend([b'%', high, low]);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

/// The scheme, which may be empty, and the rest; `None` for an empty one before a colon.
fn scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    for (at, byte) in target.iter().copied().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&target[..at], &target[at + 1..])),
            _ => break,
        }
    }
    Some((&[], target))
}

fn is_authority(scheme: &[u8], authority: &[u8]) -> bool {
    let user_end = authority.iter().rposition(|byte| *byte == b'@');
    let (user, host) = match user_end {
        Some(at) => (&authority[..at], &authority[at + 1..]),
        None => (&[][..], authority),
    };
    let is_user_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    user.iter().all(is_user_byte) && are_escapes_valid(user) && is_host(scheme, host)
}

fn is_host(scheme: &[u8], host: &[u8]) -> bool {
    let find = |wanted: u8| host.iter().position(|byte| *byte == wanted);
    match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => {
            let Some(end) = host.iter().rposition(|byte| *byte == b']') else { return false };
            let literal = std::str::from_utf8(&host[1..end]).unwrap_or_default();
            // A zone follows an escaped percent sign.
            let address = literal.split("%25").next().unwrap_or_default();
            is_port(&host[end + 1..])
                && are_escapes_valid(literal.as_bytes())
                && address.parse::<Ipv6Addr>().is_ok()
        }
        Some(_) => false,
        None => {
            let is_http =
                scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
            let last = host.iter().rposition(|byte| *byte == b':');
            let colon = if is_http { find(b':') } else { last };
            colon.is_none_or(|at| is_port(&host[at..])) && is_reg_name(host)
        }
    }
}

fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Only bytes beyond ASCII are escaped in a host, and the percent sign itself.
fn is_reg_name(host: &[u8]) -> bool {
    let is_byte = |byte: &u8| {
        *byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(byte)
    };
    let mut escapes = host.split(|byte| *byte == b'%').skip(1);
    host.iter().all(is_byte)
        && are_escapes_valid(host)
        && escapes.all(|escape| escape[0] >= b'8' || escape.starts_with(b"25"))
}
