//! Allocates a Service's cluster addresses, node ports and health check port.
use super::{AllocateError, Reservation};
use crate::kind::core::service::{
    completed, has_ports, is_external, keeps_addresses, node_port, wants_health_port,
};
use crate::kind::{list, text};
use crate::stored::store_error;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde_json::Value;
use setpoint_object::cidr::{Family, parse_address};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, field};
use std::collections::{HashMap, HashSet};

/// Allocates the numbers that a Service requests, and those that it needs without a request.
/// Reports the first that it cannot have. The Service may be invalid otherwise.
///
/// # Errors
/// The store fails to read a claim; 500 if no number is free.
pub(crate) async fn allocate(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut field::Errors,
) -> Result<(), ApiError> {
    let families = reservation.allocator.networks().families();
    let old = old.map(|old| completed(old, families));
    let old = old.as_deref();
    allocate_addresses(reservation, rng, service, old, errors).await?;
    if errors.is_empty() {
        allocate_ports(reservation, rng, service, old, errors).await?;
    }
    if errors.is_empty() {
        allocate_health_port(reservation, rng, service, old).await?;
    }
    Ok(())
}
/// Turns an error of the store into the request's error; other errors concern one field.
fn split_store_error<T>(
    result: Result<T, AllocateError>,
) -> Result<Result<T, AllocateError>, ApiError> {
    match result {
        Err(AllocateError::Store(error)) => Err(store_error(error)),
        result => Ok(result),
    }
}
/// Allocates an address for each of the families that the Service has none of.
async fn allocate_addresses(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut field::Errors,
) -> Result<(), ApiError> {
    let families = list(&service["spec"], "ipFamilies").iter().filter_map(Value::as_str);
    let families: Vec<Family> = families.filter_map(Family::named).collect();
    // The addresses of these stay, or changes are refused.
    let n_kept = match old.filter(|old| !is_external(old)) {
        _ if is_external(service) => families.len(),
        None if is_headless(service) => families.len(),
        None => 0,
        Some(old) if is_headless(old) || keeps_addresses(service, old) => families.len(),
        Some(old) => match (list(&old["spec"], "ipFamilies").len(), families.len()) {
            (1, 2) => 1,
            (_, n) => n,
        },
    };
    let name = service.name().to_owned();
    let spec = &mut service["spec"];
    let mut addresses = list(spec, "clusterIPs").to_vec();
    if n_kept < families.len() {
        // Refusals show the missing ones, too.
        addresses.resize(families.len().max(addresses.len()), "".into());
    }
    let shown = Value::from(addresses.clone());
    for (i, family) in families.into_iter().enumerate().skip(n_kept) {
        let wanted = addresses[i].as_str().unwrap_or_default().to_owned();
        let result = match parse_address(&wanted) {
            Some(address) => split_store_error(reservation.address(address).await)?,
            None if !wanted.is_empty() => Err(AllocateError::AddressOutside),
            None => match split_store_error(reservation.any_address(family, rng).await)? {
                Ok(address) => {
                    addresses[i] = address.to_string().into();
                    Ok(())
                }
                Err(AllocateError::Full) => {
                    let text = "failed to allocate a serviceIP for Service";
                    let full = AllocateError::Full;
                    return Err(ApiError::internal(format_args!("{text} {name:?}: {full}")));
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = result {
            let text = match &*wanted {
                "" => format!("failed to allocate IP: {error}"),
                wanted => format!("failed to allocate IP {wanted}: {error}"),
            };
            let path = field::Path::new("spec.clusterIPs");
            errors.push(field::Error::invalid(path, &shown, text));
            return Ok(());
        }
    }
    if n_kept == 0 && !addresses.is_empty() {
        spec["clusterIP"] = addresses[0].clone();
    }
    if !addresses.is_empty() {
        spec["clusterIPs"] = addresses.into();
    }
    Ok(())
}
fn is_headless(service: &Value) -> bool {
    list(&service["spec"], "clusterIPs").first().is_some_and(|first| first == "None")
}
/// Allocates node ports. Those of a new Service's ports with the same number are the same one.
async fn allocate_ports(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut field::Errors,
) -> Result<(), ApiError> {
    if !has_ports(service) {
        return Ok(());
    }
    let wants_all = service["spec"]["allocateLoadBalancerNodePorts"] != false;
    let owned: Option<HashSet<i64>> =
        old.map(|old| list(&old["spec"], "ports").iter().map(node_port).collect());
    let mut requested: HashMap<i64, i64> = HashMap::new();
    if old.is_none() {
        let ports = list(&service["spec"], "ports").iter().filter(|port| node_port(port) != 0);
        for port in ports {
            requested.entry(number_of(port)).or_insert_with(|| node_port(port));
        }
    }
    let (mut given, mut taken) = (HashMap::new(), HashSet::new());
    let mut seen = HashSet::new();
    let path = field::Path::new("spec.ports");
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for (i, port) in ports.into_iter().flatten().enumerate() {
        let own = node_port(port);
        if own == 0 && !wants_all {
            continue;
        }
        let number = number_of(port);
        let wanted = match (&owned, given.get(&number)) {
            // An update gives each port its own.
            (Some(_), _) => own,
            (None, None) => requested.get(&number).copied().unwrap_or(0),
            (None, Some(same)) if own == 0 => *same,
            (None, Some(_)) => own,
        };
        let is_owned = match &owned {
            Some(owned) => owned.contains(&wanted) || taken.contains(&wanted),
            None => given.get(&number) == Some(&wanted),
        };
        let result = match u16::try_from(wanted) {
            Ok(0) => {
                let free = split_store_error(reservation.any_port(rng).await)?;
                let free = free.map_err(|error| {
                    ApiError::internal(format_args!("failed to allocate a nodePort: {error}"))
                })?;
                port["nodePort"] = free.into();
                Ok(())
            }
            _ if is_owned => Ok(()),
            Ok(wanted) => split_store_error(reservation.port(wanted).await)?,
            Err(_) => Err(reservation.port_outside()),
        };
        if wanted != 0 {
            // Rules see it also if it cannot be taken.
            port["nodePort"] = wanted.into();
        }
        if let Err(error) = result {
            let path = path.index(i).child("nodePort");
            errors.push(field::Error::invalid(path, &wanted.into(), error.to_string()));
            return Ok(());
        }
        let gets = node_port(port);
        taken.insert(gets);
        given.entry(number).or_insert(gets);
        let protocol = text(port, "protocol").to_owned();
        if owned.is_some() && !seen.insert((gets, protocol.clone())) {
            let duplicate = format!("duplicate nodePort: {{{protocol} {gets}}}");
            return Err(ApiError::unclassified(duplicate));
        }
    }
    Ok(())
}
fn number_of(port: &Value) -> i64 {
    port["port"].as_i64().unwrap_or(0)
}
/// Allocates the port of health checks that a Service begins to need.
async fn allocate_health_port(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let needs = |service: &Value| service["spec"].as_object().is_some_and(wants_health_port);
    if !needs(service) || old.is_some_and(needs) {
        return Ok(());
    }
    let wanted = service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0);
    if wanted == 0 {
        let free = split_store_error(reservation.any_port(rng).await)?;
        let free = free.map_err(|error| {
            let text = "failed to allocate a HealthCheck NodePort 0";
            ApiError::internal(format_args!("{text}: {error}"))
        })?;
        service["spec"]["healthCheckNodePort"] = free.into();
        return Ok(());
    }
    let result = match u16::try_from(wanted) {
        Ok(wanted) => split_store_error(reservation.port(wanted).await)?,
        Err(_) => Err(reservation.port_outside()),
    };
    result.map_err(|error| {
        let text = "failed to allocate requested HealthCheck NodePort";
        ApiError::internal(format_args!("{text} {wanted}: {error}"))
    })
}
