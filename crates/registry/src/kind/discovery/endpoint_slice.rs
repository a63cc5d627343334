//! EndpointSlices: all addresses have one family.
use crate::kind::{Fill, Kind, Members, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// EndpointSlice.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate,
    cells: Some(cells),
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

/// Validates a slice: all addresses have one family.
fn validate(slice: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let family = text(slice, "addressType");
    let path = field::Path::new("addressType");
    if family.is_empty() {
        errors.push(field::Error::required(path.clone(), ""));
    } else if !["FQDN", "IPv4", "IPv6"].contains(&family) {
        errors.push(field::Error::not_supported(
            path.clone(),
            &family.into(),
            &["FQDN", "IPv4", "IPv6"],
        ));
    }
    for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
        if list(endpoint, "addresses").is_empty() {
            errors.push(field::Error::required(
                field::Path::new("endpoints").index(i).child("addresses"),
                "must contain at least 1 address",
            ));
        }
    }
    if old.is_some_and(|old| text(old, "addressType") != family) {
        errors.push(field::Error::invalid(path, &family.into(), "field is immutable"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = cell::list(object, "ports")
        .iter()
        .map(|port| match cell::at(port, "port").as_i64() {
            Some(number) => number.to_string(),
            None => cell::text_or(port, "name", "*").to_owned(),
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
