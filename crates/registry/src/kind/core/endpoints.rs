//! Endpoints.
use crate::kind::{Fill, Kind, Members};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Endpoints.
pub(in crate::kind) static KIND: Kind = Kind {
    create_on_update: true,
    default,
    cells: Some(cells),
    deprecation: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ..Kind::plain("", "Endpoints")
};

/// Maximum number of endpoints, ports or hosts in a cell; the rest is counted.
const LISTED_MAX: usize = 3;

fn default(object: &mut Members, _version: &str) {
    for subset in object.each("subsets") {
        subset.each("ports").for_each(|port| port.absent("protocol", "TCP"));
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
