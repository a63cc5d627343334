//! Names of resources (`cpu`, `example.com/gpu`) and their quantities.
use crate::kind::at::At;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::{field, name};
use setpoint_quota::pod::is_for_pods;
use std::cmp::Ordering;
use std::collections::HashSet;

/// The resources of nodes that containers request, besides huge pages.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The resources that a quota limits, besides huge pages. The last nine are numbers of objects.
const OF_QUOTAS: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// The first of [`OF_QUOTAS`] that counts objects.
const FIRST_COUNT: usize = 10;

/// Whether it is a size of huge pages: `hugepages-2Mi`.
pub(super) fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}
/// Whether a quota knows it without a domain.
pub(super) fn is_of_quotas(name: &str) -> bool {
    OF_QUOTAS.contains(&name) || is_huge(name) || name.starts_with("requests.hugepages-")
}
/// Whether it has no domain, or that of Kubernetes.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}
/// Whether it is a resource that a device plugin advertises: `example.com/gpu`.
pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && name::qualified_name(&format!("requests.{name}")).is_empty()
}
/// Whether limits may be above requests.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

/// A qualified name; one without a domain is a standard one.
pub(super) fn name(at: &At<'_, '_>, name: &str) {
    let faults = name::qualified_name(name);
    if !faults.is_empty() {
        return faults.into_iter().for_each(|fault| at.invalid_as(&name.into(), fault));
    }
    if !name.contains('/') && !is_of_quotas(name) && name != "storage" {
        at.invalid_as(&name.into(), "must be a standard resource type or fully qualified");
    }
}
/// The name of a resource of a container.
pub(super) fn container_name(at: &At<'_, '_>, name: &str) {
    self::name(at, name);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge(name) {
            at.invalid_as(&name.into(), "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        at.invalid_as(&name.into(), "doesn't follow extended resource name standard");
    }
}
/// The name of a resource of a whole pod.
fn pod_name(at: &At<'_, '_>, name: &str) {
    let before = at.n_errors();
    self::name(at, name);
    if at.n_errors() == before && !is_for_pods(name) {
        at.report(|path| {
            field::Error::not_supported(path, &name.into(), &["cpu", "hugepages-", "memory"])
        });
    }
}
/// The name of a resource that a quota limits.
pub(super) fn quota_name(at: &At<'_, '_>, name: &str) {
    self::name(at, name);
    if !name.contains('/') && !is_of_quotas(name) {
        at.invalid_as(&name.into(), "must be a standard resource for quota");
    }
}

/// The quantity of a resource: not negative, and whole if it counts things.
pub(super) fn quantity(at: &At<'_, '_>, name: &str) {
    let Some(quantity) = at.quantity() else { return };
    not_negative(at);
    let counts = OF_QUOTAS[FIRST_COUNT..].contains(&name) || is_extended(name);
    if counts && !quantity.is_whole() {
        at.invalid("must be an integer");
    }
}
/// A quantity that is not negative.
pub(super) fn not_negative(at: &At<'_, '_>) {
    if at.quantity().is_some_and(|q| q.compare(&Quantity::from_units(0)).is_lt()) {
        at.invalid("must be greater than or equal to 0");
    }
}
/// A quantity that is positive.
pub(super) fn positive(at: &At<'_, '_>, detail: &str) {
    if at.quantity().is_some_and(|q| q.compare(&Quantity::from_units(0)).is_le()) {
        at.invalid(detail);
    }
}
/// A map of resources.
pub(super) fn quantities(at: &At<'_, '_>, form: fn(&At<'_, '_>, &str)) {
    for (name, entry) in at.all() {
        form(&entry, name);
        quantity(&entry, name);
    }
}

/// The resources of a container: limits and requests.
pub(super) fn of_container(at: &At<'_, '_>, claims: &HashSet<&str>) {
    requirements(at, container_name, claims);
}
/// The resources of a whole pod. `claims`: the names of its claims.
pub(super) fn of_pod(at: &At<'_, '_>, claims: &HashSet<&str>) {
    if at.has("claims") {
        at.get("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    requirements(at, pod_name, claims);
}

/// The resources that a pod needs besides those of its containers, as the limits of a container.
pub(super) fn overhead(at: &At<'_, '_>, value: &Value) {
    let mut found = Found::default();
    let limits = at.shown_as("limits", value);
    for (name, entry) in limits.all() {
        container_name(&entry, name);
        quantity(&entry, name);
        found.check(name, &entry);
    }
    found.end(at);
}

/// Which resources a container or a pod asks for.
#[derive(Default)]
struct Found {
    has_basic: bool,
    has_huge: bool,
}

impl Found {
    /// Checks the amount of a limit or a request, whose name and sign are checked.
    fn check(&mut self, name: &str, entry: &At<'_, '_>) {
        self.has_basic |= matches!(name, "cpu" | "memory");
        if is_huge(name) {
            self.has_huge = true;
            if !is_multiple(entry, name) {
                entry.invalid(format!(
                    "{} is not positive integer multiple of {name}",
                    entry.text()
                ));
            }
        }
    }

    /// Checks them together.
    fn end(&self, at: &At<'_, '_>) {
        if self.has_huge && !self.has_basic {
            at.forbidden("HugePages require cpu or memory");
        }
    }
}

fn requirements(at: &At<'_, '_>, form: fn(&At<'_, '_>, &str), claims: &HashSet<&str>) {
    let (limits, requests) = (at.get("limits"), at.get("requests"));
    let mut found = Found::default();
    for (name, entry) in at.entries("limits") {
        form(&entry, name);
        quantity(&entry, name);
        found.check(name, &entry);
    }
    for (name, entry) in at.entries("requests") {
        form(&entry, name);
        quantity(&entry, name);
        let limit = limits.value.get(name).and_then(Value::as_str);
        let limit = limit.and_then(|text| Quantity::parse(text).ok());
        match (entry.quantity(), limit) {
            (Some(amount), Some(limit)) => match amount.compare(&limit) {
                Ordering::Equal => {}
                _ if !may_overcommit(name) => requests.invalid_as(
                    entry.value,
                    format!("must be equal to {name} limit of {}", limit.as_str()),
                ),
                Ordering::Greater => requests.invalid_as(
                    entry.value,
                    format!("must be less than or equal to {name} limit of {}", limit.as_str()),
                ),
                Ordering::Less => {}
            },
            (_, None) if !may_overcommit(name) => {
                limits.required("Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        found.check(name, &entry);
    }
    found.end(at);
    claim_names(at, claims);
}
/// Whether the amount of huge pages is a number of whole pages.
fn is_multiple(entry: &At<'_, '_>, name: &str) -> bool {
    let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let (Some(size), Some(amount)) = (size, entry.quantity()) else { return false };
    size.value() > 0 && size.milli_value() % 1000 == 0 && amount.value() % size.value() == 0
}

/// The claims that a container uses: names of the pod's claims, each once.
fn claim_names(at: &At<'_, '_>, known: &HashSet<&str>) {
    let mut whole = HashSet::new();
    let mut parts: HashSet<(&str, &str)> = HashSet::new();
    let mut named = HashSet::new();
    for claim in at.each("claims") {
        let (name, request) = (claim.text_of("name"), claim.text_of("request"));
        let duplicate = |text: String| {
            claim.report(|path| field::Error::duplicate(path, &text.into()));
        };
        if name.is_empty() {
            claim.required("");
            continue;
        }
        if whole.contains(name) || request.is_empty() && named.contains(name) {
            duplicate(name.to_owned());
        } else if !request.is_empty() {
            claim.get("request").named(name::dns1123_label);
            if !parts.insert((name, request)) {
                duplicate(format!("{name}/{request}"));
            }
        } else {
            whole.insert(name);
        }
        named.insert(name);
        if !known.contains(name) {
            claim.report(|path| {
                let mut error = field::Error::not_found(path, &name.into());
                let mut names: Vec<&str> = known.iter().copied().collect();
                names.sort_unstable();
                error.detail = match names.is_empty() {
                    true => "must be one of the names in pod.spec.resourceClaims which is empty"
                        .to_owned(),
                    false => format!(
                        "must be one of the names in pod.spec.resourceClaims: {}",
                        names.join(", ")
                    ),
                };
                error
            });
        }
    }
}
