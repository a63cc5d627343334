//! Subresources that are streams to another server: a node agent, an aggregated server.
use crate::kind::ProxiedTo;
use crate::routed::Target;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::{ApiError, Reason};
use std::net::IpAddr;

/// The name of a proxied pod, Service or node in a path: `[scheme:]name[:port]`, as `https:web:443`
/// and `web:metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyName<'a> {
    /// Whether the peer is reached by TLS: the scheme is `https`.
    pub is_secure: bool,
    /// The name of the object; not empty.
    pub name: &'a str,
    /// The number or the name of a port; empty: the usual one.
    pub port: &'a str,
}
impl<'a> ProxyName<'a> {
    /// Splits a name; `None` if it is empty, or has another scheme or more parts. A scheme needs a
    /// port, which may be empty: `https:web:`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(4, ':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme @ ("" | "http" | "https"), name, port] => (scheme, name, port),
            _ => return None,
        };
        (!name.is_empty()).then_some(Self { is_secure: scheme == "https", name, port })
    }
    /// The name of a proxied target.
    ///
    /// # Errors
    ///
    /// 400 for a name that cannot be split.
    pub fn of(target: &'a Target) -> Result<Self, ApiError> {
        Self::parse(&target.name).ok_or_else(|| {
            let kind = &target.resource.singular;
            ApiError::bad_request(format!("invalid {kind} request {}", quote(&target.name)))
        })
    }
}
/// The name of the object of a target.
///
/// # Errors
///
/// As [`ProxyName::of`] if it is proxied.
pub(crate) fn object_name(target: &Target) -> Result<&str, ApiError> {
    match &target.subresource {
        Some(Subresource::Proxy) => ProxyName::of(target).map(|proxied| proxied.name),
        _ => Ok(&target.name),
    }
}
/// Whether a target may be without an object: a Service that is proxied without the number of a
/// port is found by its endpoints alone.
pub(crate) fn is_optional(target: &Target) -> bool {
    target.subresource == Some(Subresource::Proxy)
        && target.resource.kind.proxied_to == ProxiedTo::Endpoints
        && ProxyName::of(target).is_ok_and(|proxied| proxied.port.parse::<i64>().is_err())
}
/// Whether a target is a stream to another server.
pub(crate) fn is_connected(target: &Target) -> bool {
    target.subresource.as_ref().is_some_and(Subresource::is_connect)
}
/// The error for a stream to an object without a node agent.
pub(crate) fn no_agent(target: &Target, name: &str, object: &Value) -> ApiError {
    let (resource, node) =
        (&target.resource, object["spec"]["nodeName"].as_str().unwrap_or_default());
    // A proxied pod needs an address, the other streams a node.
    let is_proxied = target.subresource == Some(Subresource::Proxy);
    let address = object["status"]["podIP"].as_str().unwrap_or_default();
    let needs_address = resource.kind.proxied_to == ProxiedTo::Address;
    if is_proxied && needs_address && !is_reachable(address) {
        return ApiError::bad_request("address not allowed");
    }
    if resource.kind.has_node_streams && !is_proxied && node.is_empty() {
        return ApiError::bad_request(format!("pod {name} does not have a host assigned"));
    }
    ApiError::new(
        503,
        Reason::ServiceUnavailable,
        format!("no node agent serves {} {name:?}", resource.resource),
    )
}
/// Whether a text is an IP address that other machines reach: those of one machine and of one link
/// are not proxied to.
pub fn is_reachable(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|address| {
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        !is_link_local
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_proxies_are_split_into_scheme_name_and_port() {
        for (text, is_secure, name, port) in [
            ("web", false, "web", ""),
            ("web:", false, "web", ""),
            ("web:80", false, "web", "80"),
            ("http:metrics", false, "http", "metrics"),
            (":web:80", false, "web", "80"),
            ("http:web:80", false, "web", "80"),
            ("https:web:", true, "web", ""),
            ("https:web:tls", true, "web", "tls"),
        ] {
            assert_eq!(ProxyName::parse(text), Some(ProxyName { is_secure, name, port }), "{text}");
        }
        for text in ["", ":80", "::80", "https::80", "ftp:web:80", "HTTPS:web:80", "http:web:80:1"]
        {
            assert_eq!(ProxyName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_pod_is_proxied_at_an_address_that_others_reach() {
        for address in ["10.0.0.1", "192.0.2.1", "fd00::1"] {
            assert!(is_reachable(address), "{address}");
        }
        for address in [
            "",
            "x",
            "0.0.0.0",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!is_reachable(address), "{address}");
        }
    }
}
