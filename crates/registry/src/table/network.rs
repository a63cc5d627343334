//! Kinds that carry traffic.

use super::cell::{
    self, NONE, UNSET, at, has, int, list, selector, some_of, strings, text, text_or,
};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// How many endpoints, ports or hosts a cell names before it counts the rest.
const LISTED_MAX: usize = 3;

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = at(object, "spec");
    let ports: Vec<String> = list(spec, "ports")
        .iter()
        .map(|port| match (int(port, "port"), int(port, "nodePort"), text(port, "protocol")) {
            (number, 0, protocol) => format!("{number}/{protocol}"),
            (number, node, protocol) => format!("{number}:{node}/{protocol}"),
        })
        .collect();
    let ports = if ports.is_empty() { NONE.to_owned() } else { ports.join(",") };
    vec![
        cell::name(object),
        text(spec, "type").into(),
        strings(spec, "clusterIPs").first().copied().unwrap_or(NONE).into(),
        external_ip(object).into(),
        ports.into(),
        cell::age(object, now),
        cell::labels(spec, "selector").into(),
    ]
}

fn external_ip(object: &Value) -> String {
    let mut external: Vec<String> =
        strings(object, "spec.externalIPs").into_iter().map(str::to_owned).collect();
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut all = load_balancer(object);
            all.append(&mut external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses of the load balancer, sorted, once each.
fn load_balancer(object: &Value) -> Vec<String> {
    let mut all: Vec<String> = list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| text_or(ingress, "ip", text(ingress, "hostname")).to_owned())
        .filter(|address| !address.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = list(subset, "addresses").iter().map(|address| text(address, "ip"));
        match list(subset, "ports") {
            [] => all.extend(addresses.map(str::to_owned)),
            ports => {
                for port in ports {
                    let number = int(port, "port");
                    all.extend(addresses.clone().map(|ip| match ip.contains(':') {
                        true => format!("[{ip}]:{number}"),
                        false => format!("{ip}:{number}"),
                    }));
                }
            }
        }
    }
    let all = some_of(&all, LISTED_MAX, ",", NONE);
    vec![cell::name(object), all.into(), cell::age(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(object, "ports")
        .iter()
        .map(|port| match at(port, "port").as_i64() {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(object, "endpoints")
        .iter()
        .flat_map(|endpoint| strings(endpoint, "addresses"))
        .map(str::to_owned)
        .collect();
    vec![
        cell::name(object),
        text(object, "addressType").into(),
        some_of(&ports, LISTED_MAX, ",", UNSET).into(),
        some_of(&addresses, LISTED_MAX, ",", UNSET).into(),
        cell::age(object, now),
    ]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = list(object, "spec.rules")
        .iter()
        .map(|rule| text(rule, "host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let ports = if cell::len(object, "spec.tls") > 0 { "80, 443" } else { "80" };
    vec![
        cell::name(object),
        text_or(object, "spec.ingressClassName", NONE).into(),
        some_of(&hosts, LISTED_MAX, ",", "*").into(),
        load_balancer(object).join(",").into(),
        ports.into(),
        cell::age(object, now),
    ]
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.parameters");
    let shown = if parameters.is_null() {
        NONE.to_owned()
    } else {
        let (kind, name) = (text(parameters, "kind"), text(parameters, "name"));
        match text(parameters, "apiGroup") {
            "" => format!("{kind}/{name}"),
            group => format!("{kind}.{group}/{name}"),
        }
    };
    vec![
        cell::name(object),
        text(object, "spec.controller").into(),
        shown.into(),
        cell::age(object, now),
    ]
}

pub(super) fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), selector(object, "spec.podSelector").into(), cell::age(object, now)]
}

pub(super) fn ip_address(object: &Value, _now: Timestamp) -> Vec<Value> {
    let parent = at(object, "spec.parentRef");
    let shown = if has(object, "spec.parentRef") {
        let mut shown = text(parent, "resource").to_lowercase();
        for (separator, member) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
            let part = text(parent, member);
            if !part.is_empty() {
                shown.push_str(separator);
                shown.push_str(part);
            }
        }
        shown
    } else {
        NONE.to_owned()
    };
    vec![cell::name(object), shown.into()]
}

pub(super) fn service_cidr(object: &Value, now: Timestamp) -> Vec<Value> {
    let cidrs = strings(object, "spec.cidrs").join(",");
    vec![cell::name(object), cidrs.into(), cell::age(object, now)]
}
