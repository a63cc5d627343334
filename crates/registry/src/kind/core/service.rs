//! Services: ports, and the fields that a change of type keeps (spec: api-server §12.1). `allocate`
//! allocates addresses and node ports.
mod rules;

use crate::kind::load_balancer::load_balancer;
use crate::kind::{
    Context, Fill, Kind, Members, NameRule, Selectable, StatusMeta, list, not_supported, text,
};
use crate::table::cell;
use serde_json::{Map, Value, json};
use setpoint_object::time::Timestamp;
use std::collections::HashMap;

/// Service.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Label,
    create_on_update: true,
    returns_deleted: true,
    takes_numbers: true,
    default,
    prepare,
    validate: rules::validate,
    // Addresses are given before anything else is checked.
    validate_first: rules::validate_addresses,
    warnings: rules::warnings,
    update_warnings: |service, _| rules::warnings(service),
    validate_status: rules::validate_status,
    selectable: &[Selectable::new("spec.clusterIP"), Selectable::new("spec.type")],
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "types, ports, addresses and families, affinity, traffic policies, load balancers; what an update may change; `status`",
    ..Kind::with_status("", "Service", StatusMeta::All, r#"{"loadBalancer":{}}"#)
};

/// How long a client stays with an endpoint, in seconds: three hours.
const AFFINITY_SECONDS: i32 = 10_800;

/// Service. Addresses and node ports are allocated by the registry.
fn default(object: &mut Members, _version: &str) {
    if let Some(spec) = object.object("spec") {
        spec.absent("sessionAffinity", "None");
        match spec.text("sessionAffinity") {
            "None" => {
                spec.remove("sessionAffinityConfig");
            }
            "ClientIP" => {
                if let Some(config) = spec.object_or_new("sessionAffinityConfig")
                    && let Some(client_ip) = config.object_or_new("clientIP")
                {
                    client_ip.absent("timeoutSeconds", AFFINITY_SECONDS);
                }
            }
            _ => {}
        }
        spec.absent("type", "ClusterIP");
        for port in spec.each("ports") {
            let number = port.get("port").cloned().unwrap_or_else(|| Value::from(0));
            let target = port.get("targetPort");
            if target.is_none_or(|t| t.as_i64() == Some(0) || t.as_str() == Some("")) {
                port.insert("targetPort".to_owned(), number);
            }
        }
        let has_addresses = spec
            .get("externalIPs")
            .and_then(Value::as_array)
            .is_some_and(|addresses| !addresses.is_empty());
        let external = match spec.text("type") {
            "NodePort" | "LoadBalancer" => true,
            "ClusterIP" => has_addresses,
            _ => false,
        };
        if external {
            spec.absent("externalTrafficPolicy", "Cluster");
        }
        if external || spec.text("type") == "ClusterIP" {
            spec.absent("internalTrafficPolicy", "Cluster");
        }
        if spec.text("type") == "LoadBalancer" {
            spec.absent("allocateLoadBalancerNodePorts", true);
        }
    }
    let balancer = object.object("status").and_then(|status| status.object("loadBalancer"));
    if let Some(balancer) = balancer {
        for ingress in balancer.each("ingress") {
            if ingress.contains_key("ip") {
                ingress.absent("ipMode", "VIP");
            }
        }
    }
}

pub(crate) fn is_external(service: &Value) -> bool {
    text(&service["spec"], "type") == "ExternalName"
}

pub(crate) fn has_ports(service: &Value) -> bool {
    matches!(text(&service["spec"], "type"), "NodePort" | "LoadBalancer")
}

/// Whether clients outside of the cluster can reach it.
fn is_accessible(service: &Value) -> bool {
    let spec = &service["spec"];
    has_ports(service) || text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

/// Restores fields that a client may omit, and removes fields that a changed type does not use.
fn prepare(_: &Context<'_>, service: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        carry_over(service, old);
        drop_useless(service, old);
    }
    let external = is_external(service);
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let address = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let old_address = old.map_or("", |o| text(&o["spec"], "clusterIP"));
    let is_changed = old.is_some() && address != old_address;
    let has_list = spec.get("clusterIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    let is_same_list = old.is_some_and(|o| o["spec"].get("clusterIPs") == spec.get("clusterIPs"));
    if !address.is_empty() && (!has_list || is_changed && is_same_list) {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    if external {
        // It has no endpoints inside. The rules refuse any other value.
        if matches!(spec.text("internalTrafficPolicy"), "Cluster" | "Local") {
            spec.remove("internalTrafficPolicy");
        }
        return;
    }
    families(spec, old);
}

/// Sets families and their policy. This server has IPv4 addresses only; a Service without an
/// address and a selector may name both families all the same.
fn families(spec: &mut Map<String, Value>, old: Option<&Value>) {
    const SINGLE: &str = "SingleStack";
    let address = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default();
    let is_six = address.contains(':');
    let is_bare = address == "None"
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    let policy = spec.get("ipFamilyPolicy").and_then(Value::as_str).unwrap_or_default();
    let policy = match policy {
        "" if is_bare => "RequireDualStack",
        "" => SINGLE,
        policy => policy,
    };
    let policy = policy.to_owned();
    spec.insert("ipFamilyPolicy".into(), policy.as_str().into());
    let before = old.map_or(&Value::Null, |old| &old["spec"]);
    for member in ["clusterIPs", "ipFamilies"] {
        // The policy alone releases the second one.
        if policy == SINGLE
            && let Some(Value::Array(items)) = spec.get_mut(member)
            && before[member].as_array() == Some(items)
        {
            items.truncate(1);
        }
    }
    let families = spec.entry("ipFamilies").or_insert_with(|| json!([]));
    if !families.is_array() {
        *families = json!([]);
    }
    let Some(families) = families.as_array_mut() else { return };
    if families.is_empty() && !is_six {
        families.push("IPv4".into());
    }
    if is_bare && policy != SINGLE && families.len() == 1 {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
    }
}

fn carry_over(service: &mut Value, old: &Value) {
    if is_external(service) || is_external(old) {
        return;
    }
    let with_ports = has_ports(service) && has_ports(old);
    let before = &old["spec"];
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
        copy(spec, before, "clusterIP");
    }
    for member in ["clusterIPs", "ipFamilies"] {
        if spec.get(member).and_then(Value::as_array).is_none_or(Vec::is_empty)
            && spec.get("clusterIP") == before.get("clusterIP")
        {
            copy(spec, before, member);
        }
    }
    if spec.get("ipFamilyPolicy").and_then(Value::as_str).unwrap_or_default().is_empty() {
        copy(spec, before, "ipFamilyPolicy");
    }
    if !with_ports {
        return;
    }
    // Of several ports with the same number and protocol, the first counts.
    let mut known = HashMap::new();
    for port in list(before, "ports") {
        known.entry((&port["port"], &port["protocol"])).or_insert(port);
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if node_port(port) == 0
            && let Some(same) = known.get(&(&port["port"], &port["protocol"]))
            && node_port(same) != 0
        {
            port["nodePort"] = same["nodePort"].clone();
        }
    }
    if spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0
        && wants_health_port(spec)
    {
        copy(spec, before, "healthCheckNodePort");
    }
}

fn copy(spec: &mut Map<String, Value>, before: &Value, member: &str) {
    if let Some(value) = before.get(member) {
        spec.insert(member.to_owned(), value.clone());
    }
}

/// Removes members of the old type that the client sent back unchanged.
fn drop_useless(service: &mut Value, old: &Value) {
    let (external, ports) = (is_external(service), has_ports(service));
    let before = &old["spec"];
    if is_accessible(old)
        && !is_accessible(service)
        && service["spec"]["externalTrafficPolicy"] == before["externalTrafficPolicy"]
        && let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("externalTrafficPolicy");
    }
    if text(&service["spec"], "type") == text(before, "type") {
        return;
    }
    let balances = text(&service["spec"], "type") == "LoadBalancer";
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let drop_same = |spec: &mut Map<String, Value>, members: &[&str]| {
        for member in members {
            if spec.get(*member) == before.get(*member) {
                spec.remove(*member);
            }
        }
    };
    if external {
        drop_same(
            spec,
            &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"],
        );
    }
    if !ports {
        drop_same(spec, &["healthCheckNodePort"]);
        let sent = spec.get_mut("ports").and_then(Value::as_array_mut);
        for (port, old) in sent.into_iter().flatten().zip(list(before, "ports")) {
            if node_port(port) == node_port(old)
                && let Some(port) = port.as_object_mut()
            {
                port.remove("nodePort");
            }
        }
    }
    if !balances {
        drop_same(spec, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
}

pub(crate) fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn wants_health_port(spec: &Map<String, Value>) -> bool {
    spec.get("type").and_then(Value::as_str) == Some("LoadBalancer")
        && spec.get("externalTrafficPolicy").and_then(Value::as_str) == Some("Local")
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = cell::at(object, "spec");
    let ports: Vec<String> = cell::list(spec, "ports")
        .iter()
        .map(|port| {
            match (
                cell::int(port, "port"),
                cell::int(port, "nodePort"),
                cell::text(port, "protocol"),
            ) {
                (number, 0, protocol) => format!("{number}/{protocol}"),
                (number, node, protocol) => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() { cell::NONE.to_owned() } else { ports.join(",") };
    vec![
        cell::name(object),
        cell::text(spec, "type").into(),
        cell::strings(spec, "clusterIPs").first().copied().unwrap_or(cell::NONE).into(),
        external_ip(object).into(),
        ports.into(),
        cell::age(object, now),
        cell::labels(spec, "selector").into(),
    ]
}

fn external_ip(object: &Value) -> String {
    let mut external: Vec<String> =
        cell::strings(object, "spec.externalIPs").into_iter().map(str::to_owned).collect();
    match cell::text(object, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => cell::NONE.to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut all = load_balancer(object);
            all.append(&mut external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => cell::text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}
