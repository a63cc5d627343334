//! Services: ports, and the fields that a change of type keeps (spec: api-server §12.1). `allocate`
//! allocates addresses and node ports.
mod families;
mod rules;

use crate::kind::load_balancer::{self, load_balancer};
use crate::kind::{
    Charged, Context, Fill, Kind, Members, NameRule, ProxiedTo, Selectable, StatusMeta, list,
    not_supported, text,
};
use crate::table::cell;
use serde_json::{Map, Value, json};
use setpoint_object::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// Service.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Service,
    create_on_update: true,
    returns_deleted: true,
    takes_numbers: true,
    proxied_to: ProxiedTo::Endpoints,
    charged: Charged::updates(&[""]),
    default,
    prepare,
    validate: rules::validate,
    // Addresses are given before anything else is checked.
    begin: families::begin,
    warnings: rules::warnings,
    update_warnings: |service, _| rules::warnings(service),
    validate_status: rules::validate_status,
    status_warnings: load_balancer::warnings,
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

pub(crate) use families::{completed, keeps_addresses};

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
fn prepare(context: &Context<'_>, service: &mut Value, old: Option<&Value>) {
    match old {
        None => families::normalize(service, None),
        Some(old) => {
            let old = &*families::completed(old, context.families);
            carry_over(service, old);
            families::normalize(service, Some(old));
            drop_useless(service, old);
        }
    }
    // A wrong one is refused.
    let policy = text(&service["spec"], "internalTrafficPolicy");
    if is_external(service) && matches!(policy, "Cluster" | "Local") {
        service["spec"].as_object_mut().and_then(|spec| spec.remove("internalTrafficPolicy"));
    }
}

fn carry_over(service: &mut Value, old: &Value) {
    if is_external(service) || is_external(old) {
        return;
    }
    let with_ports = gets_ports(service) && gets_ports(old);
    let before = &old["spec"];
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
        copy(spec, before, "clusterIP");
    }
    if spec.get("clusterIPs").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        copy(spec, before, "clusterIPs");
    }
    if with_ports {
        carry_ports_over(spec, list(before, "ports"));
    }
    if spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0
        && wants_health_port(spec)
        && before.as_object().is_some_and(wants_health_port)
    {
        copy(spec, before, "healthCheckNodePort");
    }
}

/// Whether its ports get node ports without a request.
fn gets_ports(service: &Value) -> bool {
    has_ports(service) && service["spec"]["allocateLoadBalancerNodePorts"] != false
}

/// Gives ports the node ports of the stored ports of their names, unless another port has them.
fn carry_ports_over(spec: &mut Map<String, Value>, stored: &[Value]) {
    let mut known: HashMap<&str, i64> = HashMap::new();
    known.extend(stored.iter().map(|port| (text(port, "name"), node_port(port))));
    let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else { return };
    let used: HashSet<i64> = ports.iter().map(node_port).collect();
    for port in ports {
        let node = known.get(text(port, "name")).copied().unwrap_or(0);
        if node_port(port) == 0 && node != 0 && !used.contains(&node) {
            port["nodePort"] = node.into();
        }
    }
}

fn copy(spec: &mut Map<String, Value>, before: &Value, member: &str) {
    if let Some(value) = before.get(member) {
        spec.insert(member.to_owned(), value.clone());
    }
}

/// Removes members that the new type does not use and that the client sent back unchanged.
fn drop_useless(service: &mut Value, old: &Value) {
    let before = &old["spec"];
    let is_over = |uses: fn(&Value) -> bool| uses(old) && !uses(service);
    let balances = |service: &Value| text(&service["spec"], "type") == "LoadBalancer";
    let node_ports = |spec: &Value| -> HashSet<i64> {
        let ports = list(spec, "ports").iter().map(node_port);
        ports.filter(|port| *port != 0).collect()
    };
    let drops_ports =
        is_over(has_ports) && node_ports(&service["spec"]).is_subset(&node_ports(before));
    let is_same = |member: &str| service["spec"].get(member) == before.get(member);
    let mut useless: Vec<&str> = Vec::new();
    if is_over(is_accessible) {
        useless.push("externalTrafficPolicy");
    }
    if is_external(service) && !is_external(old) {
        useless.extend(["ipFamilies", "ipFamilyPolicy"]);
        if is_same("clusterIP") && is_same("clusterIPs") {
            useless.extend(["clusterIP", "clusterIPs"]);
        }
    }
    if is_over(checks_health) {
        useless.push("healthCheckNodePort");
    }
    if is_over(balances) {
        useless.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    useless.retain(|member| is_same(member));
    if !balances(service) && service["status"]["loadBalancer"].is_object() {
        service["status"]["loadBalancer"] = json!({});
    }
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for member in useless {
        spec.remove(member);
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).filter(|_| drops_ports);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// Whether it has a port for health checks.
fn checks_health(service: &Value) -> bool {
    service["spec"].as_object().is_some_and(wants_health_port)
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
