//! LimitRanger: default and checked amounts of containers, pods and claims (spec: admission §2).
//!
//! Every LimitRange of the namespace is used, in the order of their names.
mod amount;

use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use amount::{Amounts, Bounds};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::error::aggregate;
use setpoint_object::meta::ObjectExt;
use setpoint_object::quantity::Quantity;
use setpoint_object::{ApiError, GroupVersionResource};
use std::collections::HashSet;
use std::sync::Arc;

/// Records on a pod which amounts were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The lists of containers with amounts, each with the noun of its containers.
const CONTAINERS: [(&str, &str); 2] =
    [("containers", "container"), ("initContainers", "init container")];

#[derive(Debug)]
pub(super) struct LimitRanger;

impl Admission for LimitRanger {
    fn name(&self) -> &str {
        "LimitRanger"
    }
    /// The containers of a stored pod change only by a resize. An object that is being deleted is
    /// not checked.
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Create => is_pod(review) || is_claim(review),
            Operation::Update => {
                (is_claim(review) || review.is_part("", "pods", "resize"))
                    && review.old.is_none_or(|old| old.deletion_timestamp().is_empty())
            }
            Operation::Delete | Operation::Connect => false,
        }
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            if !is_claim(review) {
                for range in ranges(review).await? {
                    set_defaults(&range, object);
                }
            }
            Ok(())
        }
        .boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(object) = object else { return Ok(()) };
            for range in ranges(review).await? {
                let faults = match is_claim(review) {
                    true => claim_faults(&range, object, &review.resource.gvk.kind),
                    false => pod_faults(&range, object, &review.resource.gvk.kind),
                };
                if !faults.is_empty() {
                    return Err(review.forbidden(&joined(faults)));
                }
            }
            Ok(())
        }
        .boxed()
    }
}
fn is_pod(review: &Review<'_>) -> bool {
    review.is("", "pods")
}
fn is_claim(review: &Review<'_>) -> bool {
    review.is("", "persistentvolumeclaims")
}
async fn ranges(review: &Review<'_>) -> Result<Vec<Arc<Value>>, ApiError> {
    let ranges = GroupVersionResource::new("", "v1", "limitranges");
    review.objects().trees(&ranges, review.namespace).await
}
/// One fault as it is, several in brackets; each once.
fn joined(faults: Vec<String>) -> String {
    let mut seen = HashSet::with_capacity(faults.len());
    let all: Vec<&str> =
        faults.iter().map(String::as_str).filter(|fault| seen.insert(*fault)).collect();
    aggregate(&all)
}
/// The limits of a range for a type of object.
fn limits<'a>(range: &'a Value, of: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&range["spec"], "limits").iter().filter(move |limit| text(limit, "type") == of)
}

/// Sets the amounts that the containers of a pod lack.
fn set_defaults(range: &Value, pod: &mut Value) {
    let mut defaults: [Vec<(&String, &Value)>; 2] = Default::default();
    for limit in limits(range, "Container") {
        for (into, member) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
            into.extend(limit[member].as_object().into_iter().flatten());
        }
    }
    for amounts in &mut defaults {
        amounts.sort_by_key(|(name, _)| *name);
    }
    if defaults.iter().all(Vec::is_empty) {
        return;
    }
    let mut done = Vec::new();
    for (member, noun) in CONTAINERS {
        let containers = pod["spec"].get_mut(member).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (amounts, (member, word)) in
                defaults.iter().zip([("requests", "request"), ("limits", "limit")])
            {
                let set = set(container, member, amounts);
                if !set.is_empty() {
                    let name = text(container, "name");
                    done.push(format!("{} {word} for {noun} {name}", set.join(", ")));
                }
            }
        }
    }
    if !done.is_empty() {
        let annotations = pod.meta_mut().entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            let note = format!("LimitRanger plugin set: {}", done.join("; "));
            annotations.insert(ANNOTATION.to_owned(), note.into());
        }
    }
}
/// Sets missing amounts of a container; returns their names.
fn set<'n>(container: &mut Value, member: &str, defaults: &[(&'n String, &Value)]) -> Vec<&'n str> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        let given = container.get("resources").and_then(|resources| resources.get(member));
        if given.is_some_and(|given| given.get(name.as_str()).is_some()) {
            continue;
        }
        let resources = &mut container["resources"];
        if !resources.is_object() {
            *resources = json!({});
        }
        let amounts = &mut container["resources"][member];
        if !amounts.is_object() {
            *amounts = json!({});
        }
        amounts[name.as_str()] = (*amount).clone();
        set.push(name.as_str());
    }
    set
}

/// What a pod violates, in the order of the limits.
fn pod_faults(range: &Value, pod: &Value, kind: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in list(&range["spec"], "limits") {
        match text(limit, "type") {
            "Container" => {
                let bounds = Bounds::new(limit, "Container");
                let lists = CONTAINERS.iter().flat_map(|(member, _)| list(&pod["spec"], member));
                for container in lists {
                    bounds.check(&Amounts::of(&container["resources"]), &mut faults);
                }
            }
            of if of == kind => {
                Bounds::new(limit, kind).check(&Amounts::of_pod(&pod["spec"]), &mut faults);
            }
            _ => {}
        }
    }
    faults
}
/// What a claim violates: its storage is a request without a limit.
fn claim_faults(range: &Value, claim: &Value, kind: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let requests = &claim["spec"]["resources"]["requests"];
    for limit in limits(range, kind) {
        for (member, word) in [("min", "minimum"), ("max", "maximum")] {
            for (name, bound) in limit[member].as_object().into_iter().flatten() {
                let Some(bound) = bound.as_str().and_then(|text| Quantity::parse(text).ok()) else {
                    continue;
                };
                let usage = format!("{word} {name} usage per {kind} is {bound}");
                let request = requests[name].as_str().and_then(|text| Quantity::parse(text).ok());
                match request {
                    None => faults.push(format!("{usage}.  No request is specified")),
                    Some(request) => {
                        let order = request.compare(&bound);
                        if if member == "min" { order.is_lt() } else { order.is_gt() } {
                            faults.push(format!("{usage}, but request is {request}"));
                        }
                    }
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({"spec": {"limits": limits}})
    }
    fn pod(resources: Value) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_are_set_and_noted() {
        let range = range(json!([{
            "type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"memory": "1Gi", "cpu": "500m"},
        }]));
        let mut made = pod(json!({}));
        set_defaults(&range, &mut made);
        let set = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(made["spec"]["containers"][0]["resources"], set);
        assert_eq!(
            made["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
        );
        let mut full = pod(set.clone());
        set_defaults(&range, &mut full);
        assert_eq!(full, pod(set));
    }

    #[test]
    fn amounts_out_of_bounds_are_faults() {
        let check = |limits: Value, resources: Value| {
            joined(pod_faults(&range(limits), &pod(resources), "Pod"))
        };
        let amounts = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        let of =
            |member: &str, amount: &str| json!([{"type": "Container", member: {"cpu": amount}}]);
        for (limits, resources, fault) in [
            (
                of("min", "100m"),
                amounts("50m", "200m"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                of("max", "1"),
                amounts("1", "2"),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                of("maxLimitRequestRatio", "2"),
                amounts("500m", "2"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            ),
            (
                of("min", "100m"),
                json!({}),
                "minimum cpu usage per Container is 100m.  No request is specified",
            ),
            (
                json!([{"type": "Pod", "max": {"memory": "1Gi"}}]),
                json!({}),
                "maximum memory usage per Pod is 1Gi.  No limit is specified",
            ),
            (
                json!([{"type": "Pod", "max": {"cpu": "1", "memory": "1Gi"}}]),
                amounts("1", "2"),
                "[maximum cpu usage per Pod is 1, but limit is 2, maximum memory usage per Pod is 1Gi.  No limit is specified]",
            ),
        ] {
            assert_eq!(check(limits, resources), fault);
        }
        assert_eq!(
            pod_faults(&range(of("min", "100m")), &pod(amounts("100m", "1")), "Pod"),
            [""; 0]
        );
    }

    #[test]
    fn claims_have_bounds_of_storage() {
        let range =
            range(json!([{"type": "Claim", "max": {"storage": "1Gi"}, "min": {"storage": "1Mi"}}]));
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let check = |size: &str| claim_faults(&range, &claim(size), "Claim");
        assert_eq!(check("2Gi"), ["maximum storage usage per Claim is 1Gi, but request is 2Gi"]);
        assert_eq!(check("1Ki"), ["minimum storage usage per Claim is 1Mi, but request is 1Ki"]);
        assert_eq!(check("1Gi"), [""; 0]);
    }
}
