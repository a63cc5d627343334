//! The amounts that one object uses.
use crate::pod;
use serde_json::Value;
use setpoint_object::pod_phase;
use setpoint_object::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by the name of the limited resource.
pub type Usage = BTreeMap<String, Quantity>;

/// Resources of the core group that a quota also counts by their own names.
pub const ALIASES: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// The suffixes of the amounts of one storage class.
const OF_CLASS: [&str; 2] = [
    ".storageclass.storage.k8s.io/requests.storage",
    ".storageclass.storage.k8s.io/persistentvolumeclaims",
];

/// Group and resource of ResourceClaims.
const CLAIMS: (&str, &str) = ("resource.k8s.io", "resourceclaims");
/// The suffix of the devices of one device class.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The devices that are counted for a request of all devices of a class: the most that a claim may
/// be given (`AllocationResultsMaxSize`).
const ALL_DEVICES: i64 = 32;

/// The name under which a quota counts the objects of a resource: `count/deployments.apps`.
pub fn counted(group: &str, resource: &str) -> String {
    match group {
        "" => format!("count/{resource}"),
        group => format!("count/{resource}.{group}"),
    }
}

/// Whether a limited resource is used by objects of a resource.
pub fn is_relevant(limited: &str, group: &str, resource: &str) -> bool {
    if limited == counted(group, resource) {
        return true;
    }
    if (group, resource) == CLAIMS {
        return limited.ends_with(DEVICES);
    }
    if !group.is_empty() || !ALIASES.contains(&resource) {
        return false;
    }
    limited == resource
        || match resource {
            "pods" => is_of_pods(limited),
            "services" => matches!(limited, "services.nodeports" | "services.loadbalancers"),
            "persistentvolumeclaims" => {
                limited == "requests.storage" || OF_CLASS.iter().any(|s| limited.ends_with(s))
            }
            _ => false,
        }
}
fn is_of_pods(limited: &str) -> bool {
    let is_basic = |name: &str| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    };
    match limited.split_once('.') {
        Some(("requests", name)) => is_basic(name) || is_extended(name),
        Some(("limits", name)) => matches!(name, "cpu" | "memory" | "ephemeral-storage"),
        _ => is_basic(limited),
    }
}
/// Whether a name is that of a resource that a device plugin advertises: `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// The limited resources that objects of a resource use.
pub fn matching<'n>(
    limited: impl Iterator<Item = &'n str>,
    group: &str,
    resource: &str,
) -> BTreeSet<&'n str> {
    limited.filter(|name| is_relevant(name, group, resource)).collect()
}

/// What an object uses. Every amount is at least zero, unless the object requests a negative one.
///
/// A pod that has ended, or whose grace period is over, only counts as an object. `now` is the
/// present time in seconds since 1970.
pub fn usage(group: &str, resource: &str, object: &Value, now: u64) -> Usage {
    let one = || Quantity::from_units(1);
    let mut usage = Usage::from([(counted(group, resource), one())]);
    if (group, resource) == CLAIMS {
        of_devices(&object["spec"]["devices"], &mut usage);
    }
    if !group.is_empty() || !ALIASES.contains(&resource) {
        return usage;
    }
    match resource {
        "pods" if has_ended(object, now) => return usage,
        "pods" => of_pod(object, &mut usage),
        "services" => of_service(&object["spec"], &mut usage),
        "persistentvolumeclaims" => of_claim(object, &mut usage),
        _ => {}
    }
    usage.insert(resource.to_owned(), one());
    usage
}

/// Whether a pod needs no resources any more.
fn has_ended(pod: &Value, now: u64) -> bool {
    if pod["status"]["phase"].as_str().is_some_and(pod_phase::is_terminal) {
        return true;
    }
    // The time of deletion is when the grace period ends.
    let deletion = pod["metadata"]["deletionTimestamp"].as_str().unwrap_or_default();
    let at = setpoint_object::time::Timestamp::parse(deletion);
    at.is_some_and(|at| at.0.as_secs() < now)
}
fn of_pod(object: &Value, usage: &mut Usage) {
    for (name, amount) in pod::requests_of(object) {
        if is_of_pods(&format!("requests.{name}")) {
            usage.insert(format!("requests.{name}"), amount.clone());
        }
        if is_of_pods(&name) {
            usage.insert(name, amount);
        }
    }
    for (name, amount) in pod::limits_of(object) {
        if is_of_pods(&format!("limits.{name}")) {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
}
fn of_service(spec: &Value, usage: &mut Usage) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let units = |n: usize| Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX));
    let (nodes, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            let is_given = |port: &&Value| port["nodePort"].as_i64().is_some_and(|n| n != 0);
            (ports.iter().filter(is_given).count(), 1)
        }
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    usage.insert("services.nodeports".to_owned(), units(nodes));
    usage.insert("services.loadbalancers".to_owned(), units(balancers));
}
fn of_claim(claim: &Value, usage: &mut Usage) {
    let annotated = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = annotated.as_str().or_else(|| claim["spec"]["storageClassName"].as_str());
    let class = class.unwrap_or_default();
    let storage = |map: &Value| Quantity::parse(map["storage"].as_str()?).ok();
    let mut requested = storage(&claim["spec"]["resources"]["requests"]);
    // A shrunk request counts from when the storage has shrunk.
    if let (Some(amount), Some(allocated)) =
        (&requested, storage(&claim["status"]["allocatedResources"]))
        && allocated.compare(amount).is_gt()
    {
        requested = Some(allocated);
    }
    if let Some(amount) = requested {
        if !class.is_empty() {
            usage.insert(format!("{class}{}", OF_CLASS[0]), amount.clone());
        }
        usage.insert("requests.storage".to_owned(), amount);
    }
    if !class.is_empty() {
        usage.insert(format!("{class}{}", OF_CLASS[1]), Quantity::from_units(1));
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
/// Devices by class. Of alternatives, the one with the most devices of a class counts.
fn of_devices(devices: &Value, usage: &mut Usage) {
    for request in list(&devices["requests"]) {
        let alternatives = match &request["exactly"] {
            exactly @ Value::Object(_) => std::slice::from_ref(exactly),
            _ => list(&request["firstAvailable"]),
        };
        let mut most = BTreeMap::new();
        for alternative in alternatives {
            let n = match alternative["allocationMode"].as_str() {
                Some("ExactCount") => alternative["count"].as_i64().unwrap_or_default(),
                Some("All") => ALL_DEVICES,
                _ => 0,
            };
            let class = alternative["deviceClassName"].as_str().unwrap_or_default();
            let known = most.entry(format!("{class}{DEVICES}")).or_insert(n);
            *known = n.max(*known);
        }
        let amounts = most.into_iter().map(|(name, n)| (name, Quantity::from_units(n)));
        add(usage, &amounts.collect());
    }
}

/// Adds amounts.
pub fn add(sum: &mut Usage, amounts: &Usage) {
    for (name, amount) in amounts {
        let total = sum.get(name).map_or_else(|| amount.clone(), |sum| sum + amount);
        sum.insert(name.clone(), total);
    }
}

/// Subtracts amounts. The result may have negative amounts.
pub fn subtract(from: &mut Usage, amounts: &Usage) {
    for (name, amount) in amounts {
        let zero = Quantity::default();
        let rest = from.get(name).unwrap_or(&zero) - amount;
        from.insert(name.clone(), rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(group: &str, resource: &str, object: Value) -> String {
        let usage = usage(group, resource, &object, 1_000);
        let all: Vec<String> =
            usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        all.join(" ")
    }

    #[test]
    fn any_resource_is_counted() {
        assert_eq!(shown("", "secrets", json!({})), "count/secrets=1 secrets=1");
        assert_eq!(shown("ex.io", "widgets", json!({})), "count/widgets.ex.io=1");
        assert_eq!(shown("ex.io", "pods", json!({})), "count/pods.ex.io=1");
        assert!(is_relevant("count/widgets.ex.io", "ex.io", "widgets"));
        assert!(!is_relevant("secrets", "ex.io", "secrets"));
    }

    #[test]
    fn pods_use_requests_and_limits_until_they_end() {
        let amounts = json!({
            "requests": {"cpu": "1", "example.com/gpu": "2", "kubernetes.io/x": "1"}, "limits": {"cpu": "2", "example.com/gpu": "2"},
        });
        let mut pod = json!({"spec": {"containers": [{"resources": amounts}]}});
        let all =
            "count/pods=1 cpu=1 limits.cpu=2 pods=1 requests.cpu=1 requests.example.com/gpu=2";
        assert_eq!(shown("", "pods", pod.clone()), all);
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:20:00Z".into();
        assert_eq!(shown("", "pods", pod.clone()), all);
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z".into();
        assert_eq!(shown("", "pods", pod.clone()), "count/pods=1");
        let ended = json!({"status": {"phase": "Succeeded"}});
        assert_eq!(shown("", "pods", ended), "count/pods=1");
    }

    #[test]
    fn services_use_ports_and_balancers() {
        let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"nodePort": 1}, {}]}});
        for (kind, used) in [("ClusterIP", [0, 0]), ("NodePort", [0, 2]), ("LoadBalancer", [1, 2])]
        {
            let all = format!(
                "count/services=1 services=1 services.loadbalancers={} services.nodeports={}",
                used[0], used[1]
            );
            assert_eq!(shown("", "services", service(kind)), all);
        }
        let mut own = service("LoadBalancer");
        own["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        assert!(shown("", "services", own).ends_with("services.nodeports=1"));
    }

    #[test]
    fn claims_use_storage_of_their_class() {
        let claim = json!({
            "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"allocatedResources": {"storage": "2Gi"}},
        });
        assert_eq!(
            shown("", "persistentvolumeclaims", claim),
            "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=2Gi persistentvolumeclaims=1 requests.storage=2Gi"
        );
        for limited in ["requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"] {
            assert!(is_relevant(limited, "", "persistentvolumeclaims"));
            assert!(!is_relevant(limited, "", "pods"));
        }
    }

    #[test]
    fn resource_claims_use_devices_of_their_classes() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2}},
            {"name": "b", "exactly": {"deviceClassName": "gold", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [
                {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "iron", "allocationMode": "ExactCount", "count": 4},
                {"deviceClassName": "iron", "allocationMode": "ExactCount", "count": 3},
            ]},
        ]}}});
        assert_eq!(
            shown("resource.k8s.io", "resourceclaims", claim),
            "count/resourceclaims.resource.k8s.io=1 gold.deviceclass.resource.k8s.io/devices=35 \
             iron.deviceclass.resource.k8s.io/devices=4"
        );
        let limited = "gold.deviceclass.resource.k8s.io/devices";
        assert!(is_relevant(limited, "resource.k8s.io", "resourceclaims"));
        assert!(!is_relevant(limited, "", "pods"));
    }

    #[test]
    fn amounts_are_added_and_subtracted() {
        let of = |text: &str| {
            Usage::from([("cpu".to_owned(), Quantity::parse(text).unwrap_or_default())])
        };
        let mut sum = of("1");
        add(&mut sum, &of("500m"));
        assert_eq!(sum["cpu"].as_str(), "1500m");
        subtract(&mut sum, &of("2"));
        assert_eq!(sum["cpu"].as_str(), "-500m");
        // More than the largest quota.
        let most = of("8Ei");
        let mut sum = most.clone();
        add(&mut sum, &most);
        assert!(sum["cpu"].compare(&most["cpu"]).is_gt());
    }
}
