//! EndpointSlices: all addresses have one family.
use crate::features::Feature;
use crate::kind::at::{At, check, same};
use crate::kind::{
    Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, Report, address, format, list,
    text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::HashSet;

/// EndpointSlice.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    counts_disabled: true,
    disabled: &[(Some(Feature::PreferSameTrafficDistribution), &["endpoints[].hints.forNodes"])],
    default,
    prepare,
    validate,
    warnings,
    update_warnings: |slice, _| address_warnings(slice),
    cells: Some(cells),
    rules: "addresses of one family, ports, hints, sizes; immutable family",
    ..Kind::plain("discovery.k8s.io", "EndpointSlice")
};

/// Maximum number of endpoints, ports or hosts in a cell; the rest is counted.
const LISTED_MAX: usize = 3;

fn default(object: &mut Members, _version: &str) {
    for port in object.each("ports") {
        port.absent("name", "");
        port.absent("protocol", "TCP");
    }
}

/// The older topology of endpoints cannot be written; what is stored stays while no endpoint
/// changes. A change of labels increments the generation.
fn prepare(_: &Context<'_>, slice: &mut Value, old: Option<&Value>) {
    if let Some(old) = old
        && !same(&slice["metadata"]["labels"], &old["metadata"]["labels"])
        && let Some(generation) = old["metadata"]["generation"].as_i64()
    {
        slice.set_meta("generation", generation.wrapping_add(1).into());
    }
    if old.is_some_and(|old| old["endpoints"] == slice["endpoints"]) {
        return;
    }
    for endpoint in slice.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(members) = endpoint.as_object_mut() {
            members.remove("deprecatedTopology");
        }
    }
}

fn warnings(slice: &Value) -> Vec<String> {
    let is_name = slice["addressType"] == "FQDN";
    let deprecated = is_name.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned());
    deprecated.into_iter().chain(address_warnings(slice)).collect()
}

/// Warns of addresses that are not canonical, unless a controller wrote them.
fn address_warnings(slice: &Value) -> Vec<String> {
    let manager = text(&slice["metadata"]["labels"], "endpointslice.kubernetes.io/managed-by");
    if CONTROLLERS.contains(&manager) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
        for (j, address) in list(endpoint, "addresses").iter().enumerate() {
            let place = || format!("endpoints[{i}].addresses[{j}]");
            all.extend(address::ip_warning(place, address.as_str().unwrap_or_default()));
        }
    }
    all
}

/// The controllers that write slices.
const CONTROLLERS: [&str; 2] =
    ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

/// Limits of a slice, as Kubernetes has them.
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_LABELS_MAX: usize = 16;
const HINTS_MAX: usize = 8;

/// Validates a slice: all addresses have one family, which never changes.
fn validate(slice: &Value, old: Option<&Value>, errors: &mut Report) {
    check(slice, old, errors, |at| {
        at.get("addressType").one_of(&["FQDN", "IPv4", "IPv6"]);
        ports(&at.get("ports"));
        let endpoints = at.get("endpoints");
        // What is stored may be older than the rules.
        if endpoints.stored() != endpoints.value && endpoints.at_most(ENDPOINTS_MAX) {
            for endpoint in endpoints.items() {
                validate_endpoint(&endpoint, at.text_of("addressType"));
            }
        }
    });
    if let Some(old) = old {
        check(slice, None, errors, |at| at.get("addressType").immutable(&old["addressType"]));
    }
}

fn ports(ports: &At<'_, '_>) {
    if !ports.at_most(PORTS_MAX) {
        return;
    }
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        name.named_if_set(name::dns1123_label);
        if !names.insert(name.text()) {
            name.duplicate_of(name.text());
        }
        port.get("protocol").one_of_given(&["SCTP", "TCP", "UDP"]);
        port.get("appProtocol").formed(name::qualified_name);
    }
}

fn validate_endpoint(at: &At<'_, '_>, family: &str) {
    let addresses = at.get("addresses");
    if addresses.need_for("must contain at least 1 address") {
        addresses.at_most(ADDRESSES_MAX);
        for address in addresses.items() {
            if family == "FQDN" {
                format::domain_name(&address);
                continue;
            }
            let faults = match family {
                "IPv6" => address::canonical_ip(address.text()),
                "IPv4" => address::old_ip(&address, address.text()),
                _ => continue,
            };
            let is_address = faults.is_empty();
            address.faults(faults);
            if is_address {
                if address::is_six(address.text()) != (family == "IPv6") {
                    addresses.invalid_as(address.value, format!("must be an {family} address"));
                }
                address.faults(address::endpoint_ip(address.text()));
            }
        }
    }
    at.get("nodeName").formed(name::dns1123_subdomain);
    let topology = at.get("deprecatedTopology");
    topology.at_most(TOPOLOGY_LABELS_MAX);
    topology.labels();
    at.get("hostname").formed(name::dns1123_label);
    for (member, form) in [
        ("hints.forZones", name::label_value as fn(&str) -> Vec<String>),
        ("hints.forNodes", name::dns1123_subdomain),
    ] {
        let hints = at.get(member);
        if !hints.at_most(HINTS_MAX) {
            return;
        }
        let mut seen = HashSet::new();
        for hint in hints.items() {
            let name = hint.get("name");
            name.unique(&mut seen);
            name.faults(form(name.text()));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = cell::list(object, "ports")
        .iter()
        .map(|port| match cell::at(port, "port").as_i64() {
            Some(number) => number.to_string(),
            // A port without a name has an empty one.
            None if cell::has(port, "name") => cell::text(port, "name").to_owned(),
            None => "*".to_owned(),
        })
        .collect();
    let addresses: Vec<String> = cell::list(object, "endpoints")
        .iter()
        .flat_map(|endpoint| cell::strings(endpoint, "addresses"))
        .map(str::to_owned)
        .collect();
    vec![
        cell::name(object),
        cell::text(object, "addressType").into(),
        cell::some_of(&ports, LISTED_MAX, ",", cell::UNSET).into(),
        cell::some_of(&addresses, LISTED_MAX, ",", cell::UNSET).into(),
        cell::age(object, now),
    ]
}
