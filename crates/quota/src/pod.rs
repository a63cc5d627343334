//! Amounts of whole pods, as the scheduler counts them.
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use std::collections::BTreeMap;

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// What a pod requests: the sum of the containers that run at the same time, or the largest that an
/// init container needs; amounts of the whole pod replace it; and its overhead. `spec` is that of a
/// pod.
pub fn requests(spec: &Value) -> Amounts {
    let mut total = of_containers(spec, "requests");
    total.extend(quantities(&spec["resources"]["requests"]));
    for (name, amount) in quantities(&spec["overhead"]) {
        grow(&mut total, &name, &amount);
    }
    total
}

/// The limits of a pod, added up as its requests. The overhead counts for resources with a limit.
pub fn limits(spec: &Value) -> Amounts {
    let mut total = of_containers(spec, "limits");
    total.extend(quantities(&spec["resources"]["limits"]));
    for (name, amount) in quantities(&spec["overhead"]) {
        if total.get(&name).is_some_and(|limit| !limit.is_zero()) {
            grow(&mut total, &name, &amount);
        }
    }
    total
}

/// The amounts of the containers, without those of the whole pod. `member` is `requests` or
/// `limits`.
pub fn of_containers(spec: &Value, member: &str) -> Amounts {
    let list = |name: &str| spec[name].as_array().map_or(&[][..], Vec::as_slice);
    of_lists(list("containers"), list("initContainers"), member)
}

/// The same of containers and init containers.
pub fn of_lists(containers: &[Value], init_containers: &[Value], member: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in containers {
        for (name, amount) in quantities(&container["resources"][member]) {
            grow(&mut total, &name, &amount);
        }
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in init_containers {
        let keeps_running = container["restartPolicy"] == "Always";
        for (name, amount) in quantities(&container["resources"][member]) {
            let now = sidecars.get(&name).map_or_else(|| amount.clone(), |sum| sum + &amount);
            if largest.get(&name).is_none_or(|most| now.compare(most).is_gt()) {
                largest.insert(name.clone(), now);
            }
            if keeps_running {
                grow(&mut sidecars, &name, &amount);
                grow(&mut total, &name, &amount);
            }
        }
    }
    for (name, amount) in largest {
        if total.get(&name).is_none_or(|sum| amount.compare(sum).is_gt()) {
            total.insert(name, amount);
        }
    }
    total
}

fn grow(sums: &mut Amounts, name: &str, amount: &Quantity) {
    let sum = sums.get(name).map_or_else(|| amount.clone(), |sum| sum + amount);
    sums.insert(name.to_owned(), sum);
}

/// The valid quantities of a map.
pub fn quantities(map: &Value) -> Amounts {
    let entries = map.as_object().into_iter().flatten();
    let parsed = |(name, amount): (&String, &Value)| {
        Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?))
    };
    entries.filter_map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cpu(spec: Value) -> String {
        requests(&spec).get("cpu").map_or_else(String::new, ToString::to_string)
    }
    fn container(cpu: &str, restart: &str) -> Value {
        json!({"restartPolicy": restart, "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_are_the_sum_or_the_largest_init_container() {
        let two = json!([container("1", ""), container("2", "")]);
        assert_eq!(cpu(json!({"containers": two})), "3");
        assert_eq!(cpu(json!({"containers": two, "initContainers": [container("5", "")]})), "5");
        let sidecar = json!([container("1", "Always"), container("2500m", "")]);
        assert_eq!(cpu(json!({"containers": two, "initContainers": sidecar})), "4");
        assert_eq!(cpu(json!({"containers": two, "overhead": {"cpu": "100m"}})), "3100m");
        let whole = json!({"containers": two, "resources": {"requests": {"cpu": "7"}}});
        assert_eq!(cpu(whole), "7");
        assert_eq!(cpu(json!({})), "");
    }

    #[test]
    fn overhead_adds_to_a_limit_only_if_there_is_one() {
        let spec = json!({"containers": [], "overhead": {"cpu": "1"}});
        assert!(limits(&spec).is_empty());
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}], "overhead": {"cpu": "1"}});
        assert_eq!(limits(&spec)["cpu"].as_str(), "2");
    }
}
