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
    with_overhead(spec, of_containers(spec, "requests"), quantities(&spec["resources"]["requests"]))
}

/// What a pod takes of its node: as [`requests`], but while a node resizes a container, the larger
/// of what its spec requests, what the node has allocated for it, and what it has. What the node
/// can never allocate (`PodResizePending` with the reason `Infeasible`) does not count.
pub fn requests_of(pod: &Value) -> Amounts {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    if !is_resizable(pod) {
        return requests(spec);
    }
    let wanted = &spec["resources"]["requests"];
    let mut whole = quantities(wanted);
    if !status["resources"].is_null() {
        let mut effective = effective("requests", is_wanted(pod), wanted, status);
        effective.retain(|name, _| whole.contains_key(name));
        whole = effective;
    }
    with_overhead(spec, of_statuses(pod, "requests"), whole)
}

/// The limits of a pod, added up as its requests. The overhead counts for resources with a limit.
pub fn limits(spec: &Value) -> Amounts {
    let limits = of_containers(spec, "limits");
    with_limited_overhead(spec, limits, quantities(&spec["resources"]["limits"]))
}

/// The limits that hold for a pod: as [`limits`], but while a node resizes a container, the larger
/// of its spec's and of those that it has.
pub fn limits_of(pod: &Value) -> Amounts {
    let spec = &pod["spec"];
    if !is_resizable(pod) {
        return limits(spec);
    }
    let whole = quantities(&spec["resources"]["limits"]);
    with_limited_overhead(spec, of_statuses(pod, "limits"), whole)
}

/// Whether a node has told what the pod or a container has: it can be resized.
fn is_resizable(pod: &Value) -> bool {
    let status = &pod["status"];
    let told = |status: &Value| !status["resources"].is_null();
    let lists = ["containerStatuses", "initContainerStatuses"];
    told(status) || lists.into_iter().any(|member| list(status, member).iter().any(told))
}

/// Whether what the spec wants counts: not if the node can never allocate it.
fn is_wanted(pod: &Value) -> bool {
    !list(&pod["status"], "conditions")
        .iter()
        .any(|found| found["type"] == "PodResizePending" && found["reason"] == "Infeasible")
}

/// The largest of the amounts that a spec wants, if they count, and that a status tells.
fn effective(member: &str, is_wanted: bool, wanted: &Value, status: &Value) -> Amounts {
    let mut amounts = quantities(&status["resources"][member]);
    if member == "requests" {
        raise(&mut amounts, quantities(&status["allocatedResources"]));
    }
    if is_wanted {
        raise(&mut amounts, quantities(wanted));
    }
    amounts
}

/// The amounts of the containers by their spec, and by the status of those that may be resized:
/// that run as long as the pod.
fn of_statuses(pod: &Value, member: &str) -> Amounts {
    let is_wanted = is_wanted(pod);
    sum(&pod["spec"], |container| {
        let wanted = &container["resources"][member];
        let name = &container["name"];
        let of = |statuses: &str| {
            list(&pod["status"], statuses)
                .iter()
                .find(|status| status["name"] == *name && !status["resources"].is_null())
        };
        let status = of("containerStatuses").or_else(|| {
            let keeps_running = container["restartPolicy"] == "Always";
            keeps_running.then(|| of("initContainerStatuses")).flatten()
        });
        match status {
            Some(status) => effective(member, is_wanted, wanted, status),
            None => quantities(wanted),
        }
    })
}

fn with_overhead(spec: &Value, mut total: Amounts, whole: Amounts) -> Amounts {
    total.extend(whole);
    for (name, amount) in quantities(&spec["overhead"]) {
        grow(&mut total, &name, &amount);
    }
    total
}

fn with_limited_overhead(spec: &Value, mut total: Amounts, whole: Amounts) -> Amounts {
    total.extend(whole);
    for (name, amount) in quantities(&spec["overhead"]) {
        if total.get(&name).is_some_and(|limit| !limit.is_zero()) {
            grow(&mut total, &name, &amount);
        }
    }
    total
}

/// The amounts of a pod that ranges limit: those of its containers, with its own cpu and memory in
/// their place, without the overhead. `member` is `requests` or `limits`.
pub fn ranged(spec: &Value, member: &str) -> Amounts {
    let mut total = of_containers(spec, member);
    let own = quantities(&spec["resources"][member]);
    total.extend(own.into_iter().filter(|(name, _)| matches!(&**name, "cpu" | "memory")));
    total
}

/// Whether a whole pod, beside its containers, may have amounts of a resource.
pub fn is_for_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Whether a pod has amounts of its own for a resource that pods may have them for.
pub fn has_own(spec: &Value) -> bool {
    ["requests", "limits"].into_iter().any(|member| {
        let own = spec["resources"][member].as_object();
        own.is_some_and(|own| own.keys().any(|name| is_for_pods(name)))
    })
}

/// The amounts of the containers, without those of the whole pod. `member` is `requests` or
/// `limits`.
pub fn of_containers(spec: &Value, member: &str) -> Amounts {
    sum(spec, |container| quantities(&container["resources"][member]))
}

/// As [`of_containers`], of lists of containers and of init containers.
pub fn of_lists(containers: &[Value], init_containers: &[Value], member: &str) -> Amounts {
    sum_lists(containers, init_containers, |container| quantities(&container["resources"][member]))
}

pub(crate) fn list<'a>(of: &'a Value, member: &str) -> &'a [Value] {
    of[member].as_array().map_or(&[], Vec::as_slice)
}

fn sum(spec: &Value, amounts: impl Fn(&Value) -> Amounts) -> Amounts {
    sum_lists(list(spec, "containers"), list(spec, "initContainers"), amounts)
}

fn sum_lists(
    containers: &[Value],
    init_containers: &[Value],
    amounts: impl Fn(&Value) -> Amounts,
) -> Amounts {
    let mut total = Amounts::new();
    for container in containers {
        for (name, amount) in amounts(container) {
            grow(&mut total, &name, &amount);
        }
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in init_containers {
        let keeps_running = container["restartPolicy"] == "Always";
        for (name, amount) in amounts(container) {
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
    raise(&mut total, largest);
    total
}

/// The larger of both, by name.
fn raise(amounts: &mut Amounts, others: Amounts) {
    for (name, amount) in others {
        if amounts.get(&name).is_none_or(|least| amount.compare(least).is_gt()) {
            amounts.insert(name, amount);
        }
    }
}

pub(crate) fn grow(sums: &mut Amounts, name: &str, amount: &Quantity) {
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
    fn a_container_that_is_resized_counts_with_the_largest_of_its_amounts() {
        let pod = |status: Value, reason: &str| {
            json!({
                "spec": {"containers": [{"name": "c", "resources": {
                    "requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}]},
                "status": {"containerStatuses": [status],
                    "conditions": [{"type": "PodResizePending", "reason": reason}]},
            })
        };
        let of =
            |pod: &Value| (requests_of(pod)["cpu"].to_string(), limits_of(pod)["cpu"].to_string());
        let two_three = ("2".to_owned(), "3".to_owned());
        assert_eq!(of(&pod(json!({"name": "c"}), "Deferred")), two_three);
        let has = |allocated: &str, requests: &str, limits: &str| {
            json!({"name": "c", "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}})
        };
        assert_eq!(of(&pod(has("1", "1", "1"), "Deferred")), two_three);
        assert_eq!(of(&pod(has("1", "1", "1"), "Infeasible")), ("1".to_owned(), "1".to_owned()));
        assert_eq!(of(&pod(has("5", "4", "6"), "")), ("5".to_owned(), "6".to_owned()));
        let mut whole = pod(has("1", "1", "1"), "");
        whole["spec"]["resources"] = json!({"requests": {"cpu": "7"}});
        assert_eq!(of(&whole).0, "7");
        whole["status"]["resources"] = json!({"requests": {"cpu": "8", "memory": "1"}});
        assert_eq!(of(&whole).0, "8");
        assert!(!requests_of(&whole).contains_key("memory"));
    }

    #[test]
    fn overhead_adds_to_a_limit_only_if_there_is_one() {
        let spec = json!({"containers": [], "overhead": {"cpu": "1"}});
        assert!(limits(&spec).is_empty());
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}], "overhead": {"cpu": "1"}});
        assert_eq!(limits(&spec)["cpu"].as_str(), "2");
    }
}
