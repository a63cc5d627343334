//! Load balancer addresses of Services and Ingresses.
use crate::table::cell;
use serde_json::Value;

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
