//! Allocates a Service's cluster addresses, node ports and health check port.
use super::{AllocateError, Allocator, Number, Reservation, ServiceNumbers};
use crate::kind::core::service::{has_ports, is_external, node_port, wants_health_port};
use crate::kind::{list, text};
use crate::stored::store_error;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use setpoint_object::{ApiError, field};
use setpoint_store::Store;
use std::collections::HashMap;

/// Allocates the numbers that a Service requests, and those that it needs without a request. Its
/// addresses and families must be valid; the rest may still be invalid.
///
/// # Errors
/// The store fails to read a claim.
pub(crate) async fn allocate<'a>(
    allocator: &'a Allocator,
    store: &'a dyn Store,
    rng: &Mutex<SmallRng>,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut field::Errors,
) -> Result<Reservation<'a>, ApiError> {
    let mut reservation = allocator.reserve(store);
    let owned = old.map(ServiceNumbers::of).unwrap_or_default();
    let with_ports = has_ports(service);
    let with_address = with_ports || text(&service["spec"], "type") == "ClusterIP";
    let spec = &mut service["spec"];
    if with_address {
        allocate_addresses(&mut reservation, rng, spec, &owned, old, errors).await?;
    }
    if with_ports && errors.is_empty() {
        let is_new = old.is_none();
        allocate_ports(&mut reservation, rng, spec, &owned, is_new, errors).await?;
    }
    if errors.is_empty() {
        allocate_health_port(&mut reservation, rng, spec, &owned).await?;
    }
    Ok(reservation)
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
async fn allocate_addresses(
    reservation: &mut Reservation<'_>,
    rng: &Mutex<SmallRng>,
    spec: &mut Value,
    owned: &ServiceNumbers,
    old: Option<&Value>,
    errors: &mut field::Errors,
) -> Result<(), ApiError> {
    let path = field::Path::new("spec.clusterIPs");
    let first = text(spec, "clusterIP").to_owned();
    if first == "None" {
        return Ok(());
    }
    if first.is_empty() {
        match split_store_error(reservation.any_address(rng).await)? {
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
    // An address that was there may not change, which validation reports.
    let old = old.filter(|old| !is_external(old)).map_or(&Value::Null, |old| &old["spec"]);
    let n_fixed = list(old, "clusterIPs").iter().filter(|address| *address != "None").count();
    let more = list(spec, "clusterIPs").iter().filter_map(Value::as_str).skip(1).map(str::to_owned);
    for wanted in std::iter::once(first).chain(more.collect::<Vec<_>>()).skip(n_fixed) {
        let result = match wanted.parse() {
            Ok(address) if owned.has(Number::Address(address)) => Ok(()),
            Ok(address) => split_store_error(reservation.address(address).await)?,
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
    owned: &ServiceNumbers,
    is_new: bool,
    errors: &mut field::Errors,
) -> Result<(), ApiError> {
    let wants_ports = spec["allocateLoadBalancerNodePorts"] != false;
    let number_of = |port: &Value| port["port"].as_i64().unwrap_or(0);
    // The node ports that ports of a new Service ask for, by number: the first one counts.
    let mut asked: HashMap<i64, i64> = HashMap::new();
    if is_new {
        for port in list(spec, "ports").iter().filter(|port| node_port(port) != 0) {
            asked.entry(number_of(port)).or_insert(node_port(port));
        }
    }
    // Ports with the same number share a node port, also with different protocols.
    let mut given: HashMap<i64, i64> = HashMap::new();
    let path = field::Path::new("spec.ports");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for (i, port) in ports.into_iter().flatten().enumerate() {
        let (number, mut wanted) = (number_of(port), node_port(port));
        let path = path.index(i).child("nodePort");
        if wanted == 0
            && wants_ports
            && !given.contains_key(&number)
            && let Some(asked) = asked.get(&number)
        {
            wanted = *asked;
            port["nodePort"] = wanted.into();
        }
        if wanted != 0 {
            let result = match u16::try_from(wanted) {
                _ if given.get(&number) == Some(&wanted) => Ok(()),
                Ok(wanted) if owned.has(Number::Port(wanted)) => Ok(()),
                // The same node port for two ports of this Service.
                _ if given.values().any(|given| *given == wanted) => Err(AllocateError::PortTaken),
                Ok(wanted) => split_store_error(reservation.port(wanted).await)?,
                Err(_) => Err(AllocateError::PortOutside),
            };
            match result {
                Ok(()) => {}
                Err(error) => {
                    errors.push(field::Error::invalid(path, &wanted.into(), error.to_string()));
                    break;
                }
            }
            given.entry(number).or_insert(wanted);
        } else if wants_ports {
            let result = match given.get(&number) {
                Some(same) => Ok(*same),
                None => split_store_error(reservation.any_port(rng).await)?.map(i64::from),
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
                    // The remaining ports would only repeat the error.
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
    owned: &ServiceNumbers,
) -> Result<(), ApiError> {
    if !spec.as_object().is_some_and(wants_health_port) {
        return Ok(());
    }
    let wanted = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if wanted != 0 {
        let result = match u16::try_from(wanted) {
            Ok(wanted) if owned.has(Number::Port(wanted)) => Ok(()),
            Ok(wanted) => split_store_error(reservation.port(wanted).await)?,
            Err(_) => Err(AllocateError::PortOutside),
        };
        return result.map_err(|error| {
            let text = "failed to allocate requested HealthCheck NodePort";
            ApiError::internal(format_args!("{text} {wanted}: {error}"))
        });
    }
    if let Ok(free) = split_store_error(reservation.any_port(rng).await)? {
        spec["healthCheckNodePort"] = free.into();
    }
    Ok(())
}
