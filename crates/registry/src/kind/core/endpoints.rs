//! Endpoints.
use crate::kind::at::{At, check};
use crate::kind::{
    Fill, Kind, Members, MetadataCheck, MetadataChecks, Report, address, list, text,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::net::IpAddr;

/// Endpoints.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    create_on_update: true,
    default,
    validate,
    warnings,
    update_warnings: |endpoints, _| warnings(endpoints),
    cells: Some(cells),
    deprecation: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    rules: "addresses and ports",
    ..Kind::plain("", "Endpoints")
};

/// Endpoints with one address and no name: how servers publish themselves.
pub(crate) fn of_address(address: IpAddr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {},
        "subsets": [{"addresses": [{"ip": address.to_string()}]}],
    })
}

/// The label with the name of a server.
const PEER_NAME: &str = "apiserverIdentity";

/// Endpoints with the place of a server and its name: how servers of a store find each other.
pub(crate) fn of_peer(name: &str, host: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"labels": {PEER_NAME: name}},
        "subsets": [{
            "addresses": [{"ip": host}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }],
    })
}

/// The name and the place of a server in stored Endpoints.
pub(crate) fn peer(stored: &[u8]) -> Option<(String, (String, u16))> {
    let stored: Value = serde_json::from_slice(stored).ok()?;
    let subset = stored["subsets"].get(0)?;
    let host = subset["addresses"][0]["ip"].as_str()?;
    let port = u16::try_from(subset["ports"][0]["port"].as_u64()?).ok()?;
    let name = stored["metadata"]["labels"][PEER_NAME].as_str()?;
    Some((name.to_owned(), (host.to_owned(), port)))
}

/// Maximum number of endpoints, ports or hosts in a cell; the rest is counted.
const LISTED_MAX: usize = 3;

fn default(object: &mut Members, _version: &str) {
    for subset in object.each("subsets") {
        subset.each("ports").for_each(|port| port.absent("protocol", "TCP"));
    }
}

/// Warns of addresses that are not canonical, unless the controller wrote them.
fn warnings(endpoints: &Value) -> Vec<String> {
    let labels = &endpoints["metadata"]["labels"];
    let mut warnings = Vec::new();
    if labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
        return warnings;
    }
    for (i, subset) in list(endpoints, "subsets").iter().enumerate() {
        for member in ["addresses", "notReadyAddresses"] {
            for (j, address) in list(subset, member).iter().enumerate() {
                let place = || format!("subsets[{i}].{member}[{j}].ip");
                warnings.extend(address::ip_warning(place, text(address, "ip")));
            }
        }
    }
    warnings
}

fn validate(endpoints: &Value, old: Option<&Value>, errors: &mut Report) {
    check(endpoints, old, errors, |at| {
        for subset in at.each("subsets") {
            if subset.list_of("addresses").is_empty()
                && subset.list_of("notReadyAddresses").is_empty()
            {
                subset.required("must specify `addresses` or `notReadyAddresses`");
            }
            for member in ["addresses", "notReadyAddresses"] {
                for address in subset.each(member) {
                    validate_address(&address);
                }
            }
            let needs_names = subset.list_of("ports").len() > 1;
            for port in subset.each("ports") {
                let name = port.get("name");
                if needs_names {
                    name.named(name::dns1123_label);
                } else {
                    name.named_if_set(name::dns1123_label);
                }
                port.get("port").port();
                port.get("protocol").one_of(&["SCTP", "TCP", "UDP"]);
                port.get("appProtocol").formed(name::qualified_name);
            }
        }
    });
}
fn validate_address(at: &At<'_, '_>) {
    let ip = at.get("ip");
    let text = Value::from(ip.text());
    for fault in address::old_ip(&ip, ip.text()) {
        ip.invalid_as(&text, fault);
    }
    at.get("hostname").named_if_set(name::dns1123_label);
    at.get("nodeName").formed(name::dns1123_subdomain);
    for fault in address::endpoint_ip(ip.text()) {
        ip.invalid_as(&text, fault);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in cell::list(object, "subsets") {
        let addresses =
            cell::list(subset, "addresses").iter().map(|address| cell::text(address, "ip"));
        match cell::list(subset, "ports") {
            [] => all.extend(addresses.map(str::to_owned)),
            ports => {
                for port in ports {
                    let number = cell::int(port, "port");
                    all.extend(addresses.clone().map(|ip| match ip.contains(':') {
                        true => format!("[{ip}]:{number}"),
                        false => format!("{ip}:{number}"),
                    }));
                }
            }
        }
    }
    let all = cell::some_of(&all, LISTED_MAX, ",", cell::NONE);
    vec![cell::name(object), all.into(), cell::age(object, now)]
}
