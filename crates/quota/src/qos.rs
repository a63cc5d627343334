//! The quality-of-service class of a pod: who is stopped first when a node runs out of memory.
use crate::pod::{Amounts, grow, list, quantities};
use serde_json::Value;

/// The resources that the class depends on.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The class that a pod has (`status.qosClass`), or else the one that its resources say
/// ([`of_spec`]).
pub fn of(pod: &Value) -> &str {
    match pod["status"]["qosClass"].as_str() {
        Some(class) if !class.is_empty() => class,
        _ => of_spec(&pod["spec"]),
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`, from the cpu and memory requests and limits of the
/// pod, or else of its containers. Amounts that are not more than zero do not count. `spec` is that
/// of a pod.
pub fn of_spec(spec: &Value) -> &'static str {
    // Resources of the whole pod stand for those of its containers.
    let parts: Vec<&Value> = match spec["resources"].is_object() {
        true => vec![spec],
        false => list(spec, "containers").iter().chain(list(spec, "initContainers")).collect(),
    };
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut is_guaranteed = true;
    for part in parts {
        let resources = &part["resources"];
        add(&mut requests, &resources["requests"]);
        is_guaranteed &= add(&mut limits, &resources["limits"]) == COUNTED.len();
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let is_equal = requests.len() == limits.len()
        && requests.iter().all(|(name, request)| {
            limits.get(name).is_some_and(|limit| limit.compare(request).is_eq())
        });
    if is_guaranteed && is_equal { "Guaranteed" } else { "Burstable" }
}

/// Adds the amounts that count. Returns how many they are.
fn add(sums: &mut Amounts, amounts: &Value) -> usize {
    let zero = setpoint_object::quantity::Quantity::default();
    let counts = |name: &str| COUNTED.contains(&name);
    let amounts = quantities(amounts).into_iter();
    let counted = amounts.filter(|(name, amount)| counts(name) && amount.compare(&zero).is_gt());
    counted.map(|(name, amount)| grow(sums, &name, &amount)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(requests: Value, limits: Value) -> &'static str {
        let resources = json!({"requests": requests, "limits": limits});
        of_spec(&json!({"containers": [{"resources": resources}]}))
    }

    #[test]
    fn the_class_is_that_of_the_resources() {
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!({}), json!({})), "BestEffort");
        assert_eq!(class(json!({"cpu": "1"}), json!({})), "Burstable");
        assert_eq!(class(all.clone(), all.clone()), "Guaranteed");
        assert_eq!(class(json!({"cpu": "1000m", "memory": "1Gi"}), all.clone()), "Guaranteed");
        assert_eq!(class(json!({"cpu": "500m", "memory": "1Gi"}), all), "Burstable");
        assert_eq!(class(json!({"example.com/gpu": "1"}), json!({})), "BestEffort");
    }

    #[test]
    fn a_request_of_zero_does_not_count() {
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!({"cpu": "0", "memory": "1Gi"}), limits), "Burstable");
        assert_eq!(class(json!({"cpu": "0m"}), json!({"memory": "0"})), "BestEffort");
    }

    #[test]
    fn resources_of_the_pod_stand_for_those_of_containers() {
        let container = json!({"resources": {"requests": {"cpu": "1"}}});
        let of =
            |resources: Value| of_spec(&json!({"containers": [container], "resources": resources}));
        assert_eq!(of(Value::Null), "Burstable");
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"limits": {"cpu": "1"}})), "Burstable");
    }

    #[test]
    fn the_class_of_the_status_comes_first() {
        let pod = json!({"spec": {}, "status": {"qosClass": "Burstable"}});
        assert_eq!(of(&pod), "Burstable");
        assert_eq!(of(&json!({"spec": {}, "status": {"qosClass": ""}})), "BestEffort");
    }
}
