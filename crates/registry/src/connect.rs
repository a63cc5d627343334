//! Subresources that are streams to another server: a node agent, an aggregated server.
use crate::routed::Target;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::{ApiError, Reason};
use std::net::IpAddr;

/// The name of the object of a target. That of a proxied one may be between a scheme and a port:
/// `http:web:80`, `web:metrics`.
///
/// # Errors
///
/// 400 for other names with colons.
pub(crate) fn object_name(target: &Target) -> Result<&str, ApiError> {
    if target.subresource != Some(Subresource::Proxy) {
        return Ok(&target.name);
    }
    let parts: Vec<&str> = target.name.splitn(4, ':').collect();
    match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] if !name.is_empty() => Ok(name),
        _ => {
            let kind = target.resource.singular.as_ref();
            Err(ApiError::bad_request(format!("invalid {kind} request {}", quote(&target.name))))
        }
    }
}
/// Whether a target may be without an object: a Service that is proxied without the number of a
/// port is found by its endpoints alone.
pub(crate) fn is_optional(target: &Target) -> bool {
    let port = target.name.split(':').next_back().filter(|_| target.name.contains(':'));
    target.subresource == Some(Subresource::Proxy)
        && &*target.resource.resource == "services"
        && port.is_none_or(|port| port.parse::<i64>().is_err())
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
    if resource.kind.has_node_streams && is_proxied && !is_reachable(address) {
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
