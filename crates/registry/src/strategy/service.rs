//! Services: ports, and the addresses and node ports they are given (spec: api-server §12.1).
use super::Context;
use super::pod::{list, one_of, text, validate_port_number};
use crate::allocate::{AllocateError, Held, Number, Reservation};
use crate::shared::Inner;
use crate::write::{store_error, validate_labels};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde_json::{Map, Value, json};
use setpoint_object::{ApiError, field, name};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

fn is_external(service: &Value) -> bool {
    text(&service["spec"], "type") == "ExternalName"
}
fn has_ports(service: &Value) -> bool {
    matches!(text(&service["spec"], "type"), "NodePort" | "LoadBalancer")
}

/// Carries over what a client may leave out, and drops what a changed type has no use for.
pub(super) fn prepare(_: &Context<'_>, service: &mut Value, old: Option<&Value>) {
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
        return;
    }
    let is_bare_headless = address == "None"
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    let (families, policy) = if is_bare_headless {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    if spec.get("ipFamilies").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("ipFamilies".into(), families);
    }
    if spec.get("ipFamilyPolicy").and_then(Value::as_str).unwrap_or_default().is_empty() {
        spec.insert("ipFamilyPolicy".into(), policy.into());
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
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if node_port(port) == 0
            && let Some(same) = list(before, "ports")
                .iter()
                .find(|p| p["port"] == port["port"] && p["protocol"] == port["protocol"])
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
/// Members of the old type that the client sent back unchanged.
fn drop_useless(service: &mut Value, old: &Value) {
    let (external, ports) = (is_external(service), has_ports(service));
    if text(&service["spec"], "type") == text(&old["spec"], "type") {
        return;
    }
    let before = &old["spec"];
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
        drop_same(spec, &["externalTrafficPolicy", "healthCheckNodePort"]);
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
fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or(0)
}
fn wants_health_port(spec: &Map<String, Value>) -> bool {
    spec.get("type").and_then(Value::as_str) == Some("LoadBalancer")
        && spec.get("externalTrafficPolicy").and_then(Value::as_str) == Some("Local")
}

/// A Service, new or changed.
pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let path = field::Path::new("spec");
    let spec = &service["spec"];
    let external = is_external(service);
    let ports = list(spec, "ports");
    if ports.is_empty() && text(spec, "clusterIP") != "None" && !external {
        errors.push(field::Error::required(path.child("ports"), ""));
    }
    validate_ports(ports, &path.child("ports"), errors);
    validate_labels(spec.get("selector"), &path.child("selector"), errors);
    one_of(spec, "sessionAffinity", &["ClientIP", "None"], &path, errors);
    one_of(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], &path, errors);
    if external {
        let host = text(spec, "externalName").trim_end_matches('.');
        if host.is_empty() {
            errors.push(field::Error::required(path.child("externalName"), ""));
        } else {
            for message in name::dns1123_subdomain(host) {
                errors.push(field::Error::invalid(
                    path.child("externalName"),
                    &host.into(),
                    message,
                ));
            }
        }
        if !list(spec, "clusterIPs").is_empty() {
            errors.push(field::Error::forbidden(
                path.child("clusterIPs"),
                "may not be set when `type` is 'ExternalName'",
            ));
        }
    } else {
        for (i, address) in list(spec, "clusterIPs").iter().enumerate() {
            let is_address =
                address.as_str().is_some_and(|a| a == "None" || a.parse::<IpAddr>().is_ok());
            if !is_address {
                errors.push(field::Error::invalid(
                    path.child("clusterIPs").index(i),
                    address,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ));
            }
        }
    }
    if let Some(old) = old.filter(|old| !is_external(old) && !external) {
        let (before, after) = (list(&old["spec"], "clusterIPs"), list(spec, "clusterIPs"));
        if !before.is_empty() && before.first() != after.first() {
            errors.push(field::Error::invalid(
                path.child("clusterIPs").index(0),
                &Value::from(after),
                "may not change once set",
            ));
        }
    }
}
fn validate_ports(ports: &[Value], path: &field::Path, errors: &mut Vec<field::Error>) {
    let mut names: HashSet<&str> = HashSet::new();
    let mut seen: HashSet<(i64, &str)> = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(field::Error::required(path.child("name"), ""));
            }
        } else {
            for message in name::dns1123_label(name) {
                errors.push(field::Error::invalid(path.child("name"), &name.into(), message));
            }
            if !names.insert(name) {
                errors.push(field::Error::duplicate(path.child("name"), &name.into()));
            }
        }
        validate_port_number(port["port"].as_i64().unwrap_or(0), path.child("port"), errors);
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
        if let Some(target) = port["targetPort"].as_i64().filter(|t| *t != 0) {
            validate_port_number(target, path.child("targetPort"), errors);
        }
        let key = (port["port"].as_i64().unwrap_or(0), text(port, "protocol"));
        if !seen.insert(key) {
            errors.push(field::Error::duplicate(
                path,
                &json!({"port": port["port"], "protocol": port["protocol"]}),
            ));
        }
    }
}

/// Gives a valid Service what it asks for, and what it needs without asking.
///
/// # Errors
/// The store cannot say what is in use.
pub(crate) async fn allocate<'a>(
    inner: &'a Inner,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) -> Result<Reservation<'a>, ApiError> {
    let mut reservation = inner.allocator.reserve(&*inner.store);
    let held = old.map(Held::of).unwrap_or_default();
    if !is_external(service) {
        let spec = &mut service["spec"];
        allocate_addresses(&mut reservation, &inner.rng, spec, &held, errors).await?;
    }
    let wants_ports =
        has_ports(service) && service["spec"]["allocateLoadBalancerNodePorts"] != false;
    let spec = &mut service["spec"];
    allocate_ports(&mut reservation, &inner.rng, spec, &held, wants_ports, errors).await?;
    allocate_health_port(&mut reservation, &inner.rng, spec, &held).await?;
    Ok(reservation)
}
/// Tells what the client is to hear from what the store failed at.
fn told<T>(result: Result<T, AllocateError>) -> Result<Result<T, AllocateError>, ApiError> {
    match result {
        Err(AllocateError::Store(error)) => Err(store_error(error)),
        result => Ok(result),
    }
}
async fn allocate_addresses(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    spec: &mut Value,
    held: &Held,
    errors: &mut Vec<field::Error>,
) -> Result<(), ApiError> {
    let path = field::Path::new("spec.clusterIPs");
    let first = text(spec, "clusterIP").to_owned();
    if first == "None" {
        return Ok(());
    }
    if first.is_empty() {
        match told(reservation.any_address(rng).await)? {
            Ok(address) => {
                spec["clusterIP"] = address.to_string().into();
                spec["clusterIPs"] = json!([address.to_string()]);
            }
            Err(error) => {
                let text = format!("failed to allocate a serviceIP: {error}");
                errors.push(field::Error::invalid(path, &spec["clusterIPs"], text));
            }
        }
        return Ok(());
    }
    let more = list(spec, "clusterIPs").iter().filter_map(Value::as_str).skip(1).map(str::to_owned);
    for wanted in std::iter::once(first).chain(more.collect::<Vec<_>>()) {
        let result = match wanted.parse() {
            Ok(address) if held.has(Number::Address(address)) => Ok(()),
            Ok(address) => told(reservation.address(address).await)?,
            Err(_) => Err(AllocateError::AddressOutside),
        };
        if let Err(error) = result {
            let text = format!("failed to allocate IP {wanted}: {error}");
            errors.push(field::Error::invalid(path.clone(), &spec["clusterIPs"], text));
        }
    }
    Ok(())
}
async fn allocate_ports(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    spec: &mut Value,
    held: &Held,
    wants_ports: bool,
    errors: &mut Vec<field::Error>,
) -> Result<(), ApiError> {
    // Ports of one number share a node port whatever their protocols.
    let mut given: HashMap<i64, i64> = HashMap::new();
    let path = field::Path::new("spec.ports");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for (i, port) in ports.into_iter().flatten().enumerate() {
        let (number, wanted) = (port["port"].as_i64().unwrap_or(0), node_port(port));
        let path = path.index(i).child("nodePort");
        if wanted != 0 {
            let result = match u16::try_from(wanted) {
                _ if given.get(&number) == Some(&wanted) => Ok(()),
                Ok(wanted) if held.has(Number::Port(wanted)) => Ok(()),
                // The same one for two ports of this Service.
                _ if given.values().any(|given| *given == wanted) => Err(AllocateError::PortTaken),
                Ok(wanted) => told(reservation.port(wanted).await)?,
                Err(_) => Err(AllocateError::PortOutside),
            };
            if let Err(error) = result {
                errors.push(field::Error::invalid(path, &wanted.into(), error.to_string()));
            }
            given.insert(number, wanted);
        } else if wants_ports {
            let result = match given.get(&number) {
                Some(same) => Ok(*same),
                None => told(reservation.any_port(rng).await)?.map(i64::from),
            };
            match result {
                Ok(free) => {
                    given.insert(number, free);
                    port["nodePort"] = free.into();
                }
                Err(error) => {
                    errors.push(field::Error::internal(
                        path,
                        format!("failed to allocate a nodePort: {error}"),
                    ));
                    // What is left of a long list would only say the same.
                    break;
                }
            }
        }
    }
    Ok(())
}
async fn allocate_health_port(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    spec: &mut Value,
    held: &Held,
) -> Result<(), ApiError> {
    let wanted = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if wanted != 0 {
        let result = match u16::try_from(wanted) {
            Ok(wanted) if held.has(Number::Port(wanted)) => Ok(()),
            Ok(wanted) => told(reservation.port(wanted).await)?,
            Err(_) => Err(AllocateError::PortOutside),
        };
        return result.map_err(|error| {
            let text = "failed to allocate requested HealthCheck NodePort";
            ApiError::internal(format_args!("{text} {wanted}: {error}"))
        });
    }
    if spec.as_object().is_some_and(wants_health_port)
        && let Ok(free) = told(reservation.any_port(rng).await)?
    {
        spec["healthCheckNodePort"] = free.into();
    }
    Ok(())
}
