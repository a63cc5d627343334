//! Services, endpoints and policies.
use super::fill::{Fill, Object};
use serde_json::{Value, json};

/// Three hours, as long as a client sticks to an endpoint.
const AFFINITY_SECONDS: i32 = 10_800;

/// Service. Addresses and node ports are allocated by the registry.
pub(super) fn service(object: &mut Object) {
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
        let external = matches!(spec.text("type"), "NodePort" | "LoadBalancer");
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

/// Endpoints.
pub(super) fn endpoints(object: &mut Object) {
    for subset in object.each("subsets") {
        subset.each("ports").for_each(|port| port.absent("protocol", "TCP"));
    }
}

/// EndpointSlice.
pub(super) fn endpoint_slice(object: &mut Object) {
    for port in object.each("ports") {
        port.absent("name", "");
        port.absent("protocol", "TCP");
    }
}

/// NetworkPolicy.
pub(super) fn policy(object: &mut Object) {
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

/// IngressClass.
pub(super) fn ingress_class(object: &mut Object) {
    if let Some(parameters) = object.object("spec").and_then(|spec| spec.object("parameters")) {
        parameters.absent("scope", "Cluster");
    }
}
