//! NetworkPolicies.
use crate::kind::address::{self, Cidr};
use crate::kind::at::{At, check};
use crate::kind::{Fill, Kind, Members, Report, format, list, text};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// NetworkPolicy.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate,
    warnings,
    update_warnings: |policy, _| warnings(policy),
    cells: Some(cells),
    rules: "selectors, peers, ranges, ports",
    ..Kind::plain("networking.k8s.io", "NetworkPolicy")
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    for direction in ["ingress", "egress"] {
        for rule in spec.each(direction) {
            rule.each("ports").for_each(|port| port.absent("protocol", "TCP"));
        }
    }
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    spec.absent("policyTypes", types);
}

/// The direction and the member with its peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Warns of ranges that are not canonical.
fn warnings(policy: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for (i, rule) in list(&policy["spec"], direction).iter().enumerate() {
            for (j, peer) in list(rule, peers).iter().enumerate() {
                let (block, at) =
                    (&peer["ipBlock"], || format!("spec.{direction}[{i}].{peers}[{j}].ipBlock"));
                let range = text(block, "cidr");
                warnings.extend(address::cidr_warnings(|| format!("{}.cidr", at()), range));
                let others = list(block, "except").iter().filter_map(Value::as_str).enumerate();
                warnings.extend(others.flat_map(|(k, range)| {
                    address::cidr_warnings(|| format!("{}.except[{k}]", at()), range)
                }));
            }
        }
    }
    warnings
}

/// Validates peers and ports.
fn validate(policy: &Value, old: Option<&Value>, errors: &mut Report) {
    check(policy, old, errors, |at| {
        let spec = at.get("spec");
        spec.get("podSelector").selector();
        for (direction, peers) in DIRECTIONS {
            for rule in spec.each(direction) {
                rule.each("ports").for_each(|port| validate_port(&port));
                rule.each(peers).for_each(|peer| validate_peer(&peer));
            }
        }
        let types = spec.get("policyTypes");
        if types.len() > 2 {
            return types.invalid("may not specify more than two policyTypes");
        }
        for kind in types.items() {
            kind.one_of_if_set(&["Ingress", "Egress"]);
        }
    });
}
fn validate_port(at: &At<'_, '_>) {
    at.get("protocol").one_of_if_set(&["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.get("port"), at.get("endPort"));
    match port.value {
        Value::Null if end.is_set() => {
            end.invalid("may not be specified when `port` is not specified");
        }
        Value::Null => {}
        Value::String(name) => {
            if end.is_set() {
                end.invalid("may not be specified when `port` is non-numeric");
            }
            port.faults(format::port_name(name));
        }
        _ => {
            port.port();
            if let Some(last) = end.int() {
                if last < port.int().unwrap_or(0) {
                    end.invalid_as(port.value, "must be greater than or equal to `port`");
                }
                end.port();
            }
        }
    }
}
fn validate_peer(at: &At<'_, '_>) {
    let members = ["podSelector", "namespaceSelector"];
    for member in members {
        at.get(member).selector();
    }
    let n_selectors = members.iter().filter(|member| at.has(member)).count();
    match at.given("ipBlock") {
        None if n_selectors == 0 => at.required("must specify a peer"),
        None => {}
        Some(block) => {
            validate_block(&block);
            if n_selectors > 0 {
                at.forbidden("may not specify both ipBlock and another peer");
            }
        }
    }
}
fn validate_block(at: &At<'_, '_>) {
    let range = at.get("cidr");
    if !range.need() {
        return;
    }
    range.faults(address::old_cidr(&range, range.text()));
    let Some(whole) = Cidr::parse(range.text()) else { return };
    for except in at.each("except") {
        except.faults(address::old_cidr(&except, except.text()));
        let Some(part) = Cidr::parse(except.text()) else { continue };
        if !whole.contains(part.first()) || whole.bits >= part.bits {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::selector(object, "spec.podSelector").into(),
        cell::age(object, now),
    ]
}
