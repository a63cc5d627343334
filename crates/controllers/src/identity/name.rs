//! The names of servers, which are those of their Leases.

use sha2::{Digest as _, Sha256};
use std::net::SocketAddr;

/// The component, which is hashed with the host's name.
const COMPONENT: &str = "kube-apiserver";
/// The digits of base 32, as in RFC 4648, in lower case.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// How much of the hash is in the name.
const BYTES: usize = 16;

/// The name of the server on a host, as kube-apiserver's.
pub(super) fn of_host(host: &str) -> String {
    let mut hash = Sha256::new();
    for text in [host, COMPONENT] {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(text);
    }
    format!("apiserver-{}", base32(&hash.finalize()[..BYTES]))
}

/// The name by an address: two servers have no common one.
pub(super) fn of_address(address: SocketAddr) -> String {
    let ip = address.ip().to_string().replace(':', "-");
    format!("apiserver-{}-{}", ip.trim_matches('-'), address.port())
}

/// Without padding.
fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut bits, mut n_bits) = (0_u32, 0);
    let mut push = |value: u32| text.push(char::from(DIGITS[(value & 31) as usize]));
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        n_bits += 8;
        while n_bits >= 5 {
            n_bits -= 5;
            push(bits >> n_bits);
        }
        bits &= 31;
    }
    if n_bits > 0 {
        push(bits << (5 - n_bits));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_32_is_that_of_rfc_4648() {
        for (text, encoded) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn names_differ_by_host_or_by_address() {
        assert_eq!(of_host("a").len(), "apiserver-".len() + 26);
        assert_ne!(of_host("a"), of_host("b"));
        assert_eq!(of_address("127.0.0.1:6443".parse().unwrap()), "apiserver-127.0.0.1-6443");
        assert_eq!(of_address("[::1]:1".parse().unwrap()), "apiserver-1-1");
    }
}
