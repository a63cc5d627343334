//! The rules of Services. Addresses and node ports that the server gives are checked where they are
//! given.
use super::{has_ports, is_external};
use crate::features::Feature;
use crate::kind::at::{At, check, same};
use crate::kind::load_balancer;
use crate::kind::{Report, address, format, list, text};
use serde_json::{Value, json};
use setpoint_object::{field, name};
use std::collections::HashSet;

/// The longest session affinity: a day, as Kubernetes' `MaxClientIPServiceAffinitySeconds`.
const AFFINITY_SECONDS_MAX: i64 = 86_400;

/// Validates a new or changed Service.
pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(service, None, errors, |at| changes(at, old));
    }
    check(service, old, errors, rules);
}

/// Validates the addresses that are wanted, and their families.
pub(super) fn validate_addresses(service: &Value, old: Option<&Value>, errors: &mut Report) {
    let headless = is_headless(service);
    check(service, old, errors, |at| addresses(&at.get("spec"), headless));
}

/// Validates a write through `/status`.
pub(super) fn validate_status(service: &Value, old: Option<&Value>, errors: &mut Report) {
    check(service, old, errors, |at| {
        let balancer = at.get("status.loadBalancer");
        if at.text_of("spec.type") != "LoadBalancer" && !balancer.list_of("ingress").is_empty() {
            balancer
                .get("ingress")
                .forbidden("may only be used when `spec.type` is 'LoadBalancer'");
        } else {
            load_balancer::validate(&balancer, true);
        }
    });
}

fn is_headless(service: &Value) -> bool {
    let addresses = list(&service["spec"], "clusterIPs");
    addresses.len() == 1 && addresses[0] == "None"
}

fn rules(at: &At<'_, '_>) {
    let annotations = at.get("metadata.annotations");
    let (mode, former) = (annotations.key(MODE), annotations.key(FORMER_MODE));
    if mode.is_set() && former.is_set() && mode.value != former.value {
        mode.invalid(format!("must match annotations[{FORMER_MODE}] when both are specified"));
    }
    let spec = at.get("spec");
    let kind = spec.text_of("type");
    let headless = is_headless(at.value);
    let ports = spec.get("ports");
    if ports.len() == 0
        && !headless
        && kind != "ExternalName"
        && spec.text_of("clusterIP") != "None"
    {
        ports.required("");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            for first in spec.each("clusterIPs") {
                first.invalid(format!("may not be set to 'None' for {kind} services"));
            }
        }
        "ExternalName" => external(&spec),
        _ => {}
    }
    ports_of(&ports);
    spec.get("selector").labels();
    spec.get("sessionAffinity").one_of(&["ClientIP", "None"]);
    affinity(&spec);
    if kind != "ExternalName" {
        addresses(&spec, headless);
    }
    for ip in spec.each("externalIPs") {
        let faults = address::old_ip(&ip, ip.text());
        let is_address = faults.is_empty();
        ip.faults(faults);
        if is_address {
            ip.faults(address::endpoint_ip(ip.text()));
        }
    }
    spec.get("type").one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    node_ports(&ports, kind);
    unique_ports(&ports);
    balancing(&spec, &annotations.key(SOURCE_RANGES), kind);
    policies(&spec, at.value);
}

fn external(spec: &At<'_, '_>) {
    for member in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !same(spec.get(member).value, &Value::Null) {
            spec.get(member).forbidden("may not be set for ExternalName services");
        }
    }
    let host = spec.get("externalName");
    let text = host.text().strip_suffix('.').unwrap_or(host.text());
    if text.is_empty() {
        return host.required("");
    }
    for fault in name::dns1123_subdomain(text) {
        host.invalid_as(&text.into(), fault);
    }
}

fn ports_of(ports: &At<'_, '_>) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if name.text().is_empty() {
            if ports.len() > 1 {
                name.required("");
            }
        } else {
            name.faults(name::dns1123_label(name.text()));
            name.unique(&mut names);
        }
        port.get("port").port();
        port.get("protocol").one_of(&["SCTP", "TCP", "UDP"]);
        format::port_or_name(&port.get("targetPort"));
        port.get("appProtocol").formed(name::qualified_name);
    }
}
/// Node ports: none for cluster addresses alone, and each once for a protocol.
fn node_ports(ports: &At<'_, '_>, kind: &str) {
    let mut seen = HashSet::new();
    let given = || ports.items().filter(|port| port.int_of("nodePort") != 0);
    if kind == "ClusterIP" {
        given().for_each(|port| {
            port.get("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
        });
    }
    given().for_each(|port| {
        let node = port.get("nodePort");
        if !seen.insert((port.text_of("protocol"), node.int())) {
            node.duplicate();
        }
    });
}
fn unique_ports(ports: &At<'_, '_>) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let (number, protocol) = (port.int_of("port"), port.text_of("protocol"));
        if !seen.insert((number, protocol)) {
            port.report(|path| {
                field::Error::duplicate(path, &json!({"port": number, "protocol": protocol}))
            });
        }
    }
}

fn affinity(spec: &At<'_, '_>) {
    let config = spec.get("sessionAffinityConfig");
    match spec.text_of("sessionAffinity") {
        "ClientIP" => {
            const NEEDED: &str = "when session affinity type is ClientIP";
            let seconds = config.get("clientIP.timeoutSeconds");
            if !config.is_set() {
                config.required(NEEDED);
            } else if !config.has("clientIP") {
                config.get("clientIP").required(NEEDED);
            } else if !seconds.is_set() {
                seconds.required(NEEDED);
            } else if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds.int().unwrap_or(0)) {
                seconds.invalid(format!(
                    "must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"
                ));
            }
        }
        "None" if config.is_set() => {
            config.forbidden("must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// Cluster addresses and their families.
fn addresses(spec: &At<'_, '_>, headless: bool) {
    let (list, families) = (spec.get("clusterIPs"), spec.get("ipFamilies"));
    let first = spec.text_of("clusterIP");
    match (first.is_empty(), list.list().first()) {
        (false, None) => list.required(""),
        (false, Some(other)) if other != first => {
            list.invalid("first value must match `clusterIP`");
        }
        (true, Some(_)) => list.invalid("must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in families.items() {
        family.one_of_if_set(&["IPv4", "IPv6"]);
        family.unique(&mut seen);
    }
    spec.get("ipFamilyPolicy").one_of_if_set(&[
        "PreferDualStack",
        "RequireDualStack",
        "SingleStack",
    ]);
    let before = list.n_errors();
    for (i, address) in list.items().enumerate() {
        if i == 0 && address.text() == "None" {
            if list.len() > 1 {
                list.invalid("'None' must be the first and only value");
            }
        } else if !list.stored().as_array().is_some_and(|old| old.contains(address.value)) {
            address.faults(address::old_ip(&address, address.text()));
        }
    }
    let is_valid = list.n_errors() == before;
    if list.len() > 2 {
        list.invalid("may only hold up to 2 values");
    }
    if !is_valid || headless {
        return;
    }
    let is_six = |ip: &Value| ip.as_str().is_some_and(address::is_six);
    if list.len() > 1 && list.list().iter().filter(|ip| is_six(ip)).count() != 1 {
        list.invalid("may specify no more than one IP for each IP family");
    }
    for (i, (address, family)) in list.items().zip(families.list()).enumerate() {
        let family = family.as_str().unwrap_or_default();
        let is_other = match family {
            "IPv4" => is_six(address.value),
            "IPv6" => !is_six(address.value),
            _ => false,
        };
        if is_other {
            address
                .invalid(format!("expected an {family} value as indicated by `ipFamilies[{i}]`"));
        }
    }
}

const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

/// The annotation with the ranges whose clients a load balancer serves, from before there was a
/// member.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// What only load balancers have. `annotation`: the older form of their ranges.
fn balancing(spec: &At<'_, '_>, annotation: &At<'_, '_>, kind: &str) {
    let balances = kind == "LoadBalancer";
    let ranges =
        spec.shown_as("LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges").value);
    if ranges.len() > 0 {
        if !balances {
            ranges.forbidden(ONLY_BALANCERS);
        }
        for range in ranges.items() {
            let text = range.text().trim();
            for fault in address::old_cidr(&range, text) {
                range.invalid_as(&text.into(), fault);
            }
        }
    } else if annotation.is_set() {
        if !balances {
            annotation.forbidden(ONLY_BALANCERS);
        }
        let text = annotation.text().trim();
        let is_stored = annotation.stored() == annotation.value;
        for range in text.split(',').map(str::trim).filter(|_| !text.is_empty() && !is_stored) {
            for fault in address::old_cidr(annotation, range) {
                annotation.invalid_as(&range.into(), fault);
            }
        }
    }
    if !balances && spec.has("allocateLoadBalancerNodePorts") {
        spec.get("allocateLoadBalancerNodePorts").forbidden(ONLY_BALANCERS);
    }
    balancer_class(&spec.get("loadBalancerClass"), balances);
}
fn balancer_class(class: &At<'_, '_>, balances: bool) {
    if balances {
        class.formed(name::qualified_name);
    } else if class.is_set() {
        class.forbidden(ONLY_BALANCERS);
    }
}

/// How traffic from outside and inside is distributed.
fn policies(spec: &At<'_, '_>, service: &Value) {
    let outside = spec.get("externalTrafficPolicy");
    let reachable = has_ports(service)
        || spec.text_of("type") == "ClusterIP" && !spec.list_of("externalIPs").is_empty();
    if reachable && (has_ports(service) || outside.is_set()) {
        outside.one_of(&["Cluster", "Local"]);
    } else if !outside.text().is_empty() {
        outside.invalid("may only be set for externally-accessible services");
    }
    let health = spec.get("healthCheckNodePort");
    let checks_health =
        spec.text_of("type") == "LoadBalancer" && spec.text_of("externalTrafficPolicy") == "Local";
    if spec.int_of("healthCheckNodePort") != 0 {
        if checks_health {
            health.port();
        } else {
            health.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            );
        }
    }
    spec.get("internalTrafficPolicy").one_of_if_set(&["Cluster", "Local"]);
    let distributions: &[&str] = match spec.is_on(Feature::PreferSameTrafficDistribution) {
        true => &["PreferClose", "PreferSameZone", "PreferSameNode"],
        false => &["PreferClose"],
    };
    spec.get("trafficDistribution").one_of_if_set(distributions);
}

/// What an update may not change.
fn changes(at: &At<'_, '_>, old: &Value) {
    let (spec, before) = (at.get("spec"), &old["spec"]);
    const IMMUTABLE: &str = "may not change once set";
    if !is_external(at.value) && !is_external(old) {
        let single = spec.text_of("ipFamilyPolicy") == "SingleStack";
        if !(is_headless(old) && is_headless(at.value)) {
            let noun = "clusterIP";
            list_immutable(&spec, "clusterIPs", before, single, noun);
        }
        let becomes_headless = is_headless(old) != is_headless(at.value);
        if !becomes_headless && !is_headless(at.value) {
            list_immutable(&spec, "ipFamilies", before, single, "ipFamily");
        }
    }
    let balances = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let class = spec.get("loadBalancerClass");
    if balances(before) && balances(spec.value) && class.value != &before["loadBalancerClass"] {
        class.invalid(IMMUTABLE);
    }
    // The API checks the class of a changed Service twice, and reports both.
    if class.value != &before["loadBalancerClass"] {
        balancer_class(&class, balances(spec.value));
    }
    let checks_health =
        |spec: &Value| balances(spec) && text(spec, "externalTrafficPolicy") == "Local";
    let health = spec.get("healthCheckNodePort");
    if checks_health(before)
        && checks_health(spec.value)
        && health.value != &before["healthCheckNodePort"]
    {
        health.forbidden("field is immutable");
    }
}
/// The first address or family stays; the second may be released or added.
fn list_immutable(spec: &At<'_, '_>, member: &str, before: &Value, single: bool, noun: &str) {
    let (at, old) = (spec.get(member), list(before, member));
    let new = at.list();
    let whole = |i: usize, shown: &Value, detail: String| {
        at.report(|path| field::Error::invalid(path.index(i), shown, detail));
    };
    const IMMUTABLE: &str = "may not change once set";
    if new.len() == old.len() {
        for (i, (old, new)) in old.iter().zip(new).enumerate() {
            if old != new {
                let i = if member == "ipFamilies" { 0 } else { i };
                whole(i, at.value, IMMUTABLE.to_owned());
            }
        }
        return;
    }
    // The reference looks at the addresses, and shows them, for the families, too.
    let addresses = spec.get("clusterIPs");
    if new.len() < old.len() && addresses.len() == 0 {
        whole(0, at.value, format!("primary {noun} can not be unset"));
    }
    if let (Some(old), Some(new)) = (old.first(), new.first())
        && old != new
    {
        whole(0, addresses.value, IMMUTABLE.to_owned());
    }
    if new.len() < old.len() && new.len() == 1 && !single {
        spec.get("ipFamilyPolicy")
            .invalid(format!("must be set to 'SingleStack' when releasing the secondary {noun}"));
    }
}

/// The annotation for the topology of endpoints, and the one that it had before.
const MODE: &str = "service.kubernetes.io/topology-mode";
const FORMER_MODE: &str = "service.kubernetes.io/topology-aware-hints";

/// What is ignored, deprecated or not written in the canonical form.
pub(super) fn warnings(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let text = |member: &str| crate::kind::text(spec, member);
    let is_external_name = text("type") == "ExternalName";
    let is_headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    let has_addresses = !crate::kind::list(spec, "externalIPs").is_empty();
    let mut all = Vec::new();
    let is_hinted = |annotation: &str| !service["metadata"]["annotations"][annotation].is_null();
    if is_hinted(FORMER_MODE) {
        all.push(format!("annotation {FORMER_MODE} is deprecated, please use {MODE} instead"));
    }
    let odd = |member: &str| -> Vec<String> {
        let texts = crate::kind::list(spec, member).iter().filter_map(Value::as_str).enumerate();
        let warning = |(i, text)| address::ip_warning(|| format!("spec.{member}[{i}]"), text);
        texts.filter_map(warning).collect()
    };
    all.extend(odd("clusterIPs"));
    let external_ips = odd("externalIPs");
    let balancer_ip =
        address::ip_warning(|| "spec.loadBalancerIP".to_owned(), text("loadBalancerIP"));
    let ranges = crate::kind::list(spec, "loadBalancerSourceRanges").iter().enumerate();
    let ranges = ranges.flat_map(|(i, range)| {
        let place = || format!("spec.loadBalancerSourceRanges[{i}]");
        address::cidr_warnings(place, range.as_str().unwrap_or_default())
    });
    let source_ranges: Vec<String> = ranges.collect();
    let mut warn = |is: bool, message: &str| {
        if is {
            all.push(message.to_owned());
        }
    };
    if is_headless {
        warn(
            !text("loadBalancerIP").is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
        );
        warn(has_addresses, "spec.externalIPs is ignored for headless services");
        warn(
            text("sessionAffinity") != "None",
            "spec.SessionAffinity is ignored for headless services",
        );
    }
    external_ips.iter().for_each(|message| warn(true, message));
    warn(
        has_addresses && !is_headless && !is_external_name,
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    balancer_ip.iter().chain(&source_ranges).for_each(|message| warn(true, message));
    warn(
        has_addresses && is_external_name,
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    warn(
        !is_external_name && !text("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn(
        text("trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    all
}
