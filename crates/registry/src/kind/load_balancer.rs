//! Load balancer addresses of Services and Ingresses.
use crate::kind::at::At;
use crate::kind::{address, format};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::cidr::parse_address;
use setpoint_object::name;

/// Addresses of the load balancer, sorted, without duplicates.
pub(super) fn load_balancer(object: &Value) -> Vec<String> {
    let mut all: Vec<String> = cell::list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| cell::text_or(ingress, "ip", cell::text(ingress, "hostname")).to_owned())
        .filter(|address| !address.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Validates the addresses that a load balancer reports. `has_mode`: an address says how traffic
/// for it arrives.
pub(super) fn validate(at: &At<'_, '_>, has_mode: bool) {
    for ingress in at.each("ingress") {
        let (ip, mode) = (ingress.get("ip"), ingress.get("ipMode"));
        let has_ip = !ip.text().is_empty();
        if has_ip {
            ip.faults(address::old_ip(&ip, ip.text()));
        }
        if has_mode {
            match (has_ip, mode.is_set()) {
                (true, false) => mode.required("must be specified when `ip` is set"),
                (false, true) => mode.forbidden("may not be specified when `ip` is not set"),
                _ => mode.one_of_if_set(&["Proxy", "VIP"]),
            }
        }
        host_name(&ingress.get("hostname"), false);
    }
}

/// Warns of reported addresses that are not written in the canonical form.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let list = cell::list(object, "status.loadBalancer.ingress").iter().enumerate();
    let warnings = list.flat_map(|(i, ingress)| {
        let place = move || format!("status.loadBalancer.ingress[{i}]");
        address::ip_warning(place, cell::text(ingress, "ip"))
    });
    warnings.collect()
}

/// A host name, if there is one: no address, and perhaps with a wildcard.
pub(super) fn host_name(at: &At<'_, '_>, may_be_wild: bool) {
    let host = at.text();
    if host.is_empty() {
        return;
    }
    const NO_IP: &str = "must be a DNS name, not an IP address";
    let is_ip = parse_address(host).is_some();
    if is_ip && may_be_wild {
        at.invalid(NO_IP);
    }
    match may_be_wild && host.contains('*') {
        true => at.faults(format::wildcard_subdomain(host)),
        false => at.faults(name::dns1123_subdomain(host)),
    }
    if is_ip && !may_be_wild {
        at.invalid(NO_IP);
    }
}
