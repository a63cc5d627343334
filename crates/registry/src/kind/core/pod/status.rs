//! What a node agent reports of a pod.
use super::update::changed_annotations;
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::template::is_sidecar;
use crate::kind::{Report, address, list, resources, text};
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// Warns of addresses that are not written in the canonical form.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for member in ["podIPs", "hostIPs"] {
        for (i, address) in list(&pod["status"], member).iter().enumerate() {
            let place = || format!("status.{member}[{i}].ip");
            all.extend(address::ip_warning(place, text(address, "ip")));
        }
    }
    all
}

/// Why a pod is completed: reason and message.
pub(super) fn completion(pod: &Value) -> Option<(&'static str, &'static str)> {
    match text(&pod["status"], "phase") {
        "Succeeded" => Some(("Succeeded", "The pod has completed successfully.")),
        "Failed" => Some(("Failed", "The pod failed.")),
        _ => None,
    }
}

/// The statuses of containers.
const STATUSES: [&str; 3] =
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// The highest id of a user or a group.
const ID_MAX: i64 = i32::MAX as i64;

/// Validates a write through `/status`.
pub(super) fn validate(pod: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        changed_annotations(pod, old, errors);
    }
    // In the order of Kubernetes, whose messages list them so.
    check(pod, old, errors, |at| {
        let status = at.get("status");
        conditions(&status);
        let nominated = status.get("nominatedNodeName");
        nominated.named_if_set(name::dns1123_subdomain);
        if let Some(old) = old {
            nomination(&nominated, old);
        }
        if status.int_of("observedGeneration") < 0 {
            status.get("observedGeneration").invalid("must be a non-negative integer");
        }
        if let Some(old) = old {
            if status.has("qosClass") {
                status.get("qosClass").immutable(&old["status"]["qosClass"]);
            }
            states(&status, old);
        }
        claims(&status, at.list_of("spec.resourceClaims"));
        if let Some(claim) = status.given("extendedResourceClaimStatus") {
            extended_claim(&claim, &at.get("spec"));
        }
        node_resources(at);
        addresses(&status.get("podIPs"));
        let first = status.list_of("hostIPs").first();
        if let Some(first) = first.filter(|first| text(first, "ip") != status.text_of("hostIP")) {
            status.get("hostIPs").report(|path| {
                let path = path.index(0).child("ip");
                let shown = text(first, "ip").into();
                field::Error::invalid(path, &shown, "must be equal to `hostIP`")
            });
        }
        addresses(&status.get("hostIPs"));
        for member in STATUSES {
            status.each(member).for_each(|container| user(&container, at.text_of("spec.os.name")));
        }
        for (member, list) in
            [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
        {
            let specs = by_name(&at.value["spec"], list);
            for container in status.each(member).filter(|one| one.has("allocatedResourcesStatus")) {
                let allocatable =
                    specs.get(container.text_of("name")).map(|spec| allocatable(spec));
                for allocated in container.each("allocatedResourcesStatus") {
                    allocated_resource(&allocated, allocatable.as_ref());
                }
            }
        }
        for container in status.each("ephemeralContainerStatuses") {
            let allocated = container.get("allocatedResourcesStatus");
            if allocated.len() > 0 {
                allocated.forbidden("must not be specified in container status");
            }
        }
        if at.is_on(Feature::ImageVolumeWithDigest) {
            image_volumes(&status);
        }
    });
}

/// Maximum length of the reference to an image, in bytes.
const IMAGE_BYTES_MAX: usize = 256;

/// What is reported of volumes that are images.
fn image_volumes(status: &At<'_, '_>) {
    for member in STATUSES {
        for container in status.each(member) {
            for mount in container.each("volumeMounts") {
                let volume = mount.get("volumeStatus");
                let Some(image) = volume.given("image") else { continue };
                let reference =
                    volume.shown_as("imageVolumeStatus.imageRef", image.get("imageRef").value);
                match reference.text().len() {
                    0 => reference.required("imageRef must not be empty"),
                    1..=IMAGE_BYTES_MAX => {}
                    _ => reference.too_long(IMAGE_BYTES_MAX),
                }
            }
        }
    }
}

/// What claims take of the node's resources.
fn node_resources(at: &At<'_, '_>) {
    let status = at.get("status");
    let claims = at.list_of("spec.resourceClaims").iter();
    let claims: HashSet<_> = claims
        .chain(status.list_of("resourceClaimStatuses"))
        .filter_map(|claim| claim["resourceClaimName"].as_str())
        .collect();
    for taken in status.each("nodeAllocatableResourceClaimStatuses") {
        let name = taken.get("resourceClaimName");
        if name.text().is_empty() {
            name.required("must not be empty");
        }
        if !claims.contains(name.text()) {
            name.invalid_as(&name.text().into(), "no mapping found in pod reference");
        }
        taken.get("containers").need_for("must not be empty");
        let amounts = taken.get("resources");
        if amounts.len() == 0 {
            amounts.required("must not be empty");
        }
        for (resource, amount) in amounts.all() {
            if !resources::is_native(resource) {
                amount.invalid_as(&resource.into(), "must be a node allocatable resource name");
            }
            if amount
                .quantity()
                .is_some_and(|amount| amount.compare(&Quantity::from_units(0)).is_lt())
            {
                amount.invalid("must be non-negative");
            }
        }
    }
}

/// The items of a list by their names. Of two with one name, the first one counts.
fn by_name<'v>(of: &'v Value, member: &str) -> HashMap<&'v str, &'v Value> {
    list(of, member).iter().rev().map(|item| (text(item, "name"), item)).collect()
}

/// A pod that is bound to a node does not become nominated for one.
fn nomination(nominated: &At<'_, '_>, old: &Value) {
    let is_bound = !text(&old["spec"], "nodeName").is_empty();
    let is_new = nominated.text() != text(&old["status"], "nominatedNodeName");
    let is_kept = !nominated.is_on(Feature::ClearingNominatedNodeNameAfterBinding);
    if is_bound && is_new && !nominated.text().is_empty() && !is_kept {
        nominated.forbidden("may not be set on pods that are already bound to a node");
    }
}

/// The ids that a container runs with. `os`: that of the pod.
fn user(container: &At<'_, '_>, os: &str) {
    let Some(linux) = container.given("user.linux") else { return };
    match os {
        "windows" => linux.forbidden("cannot be set for a windows pod"),
        "" | "linux" => {
            for member in ["uid", "gid"] {
                linux.get(member).between(0, ID_MAX);
            }
            linux.each("supplementalGroups").for_each(|group| group.between(0, ID_MAX));
        }
        _ => {}
    }
}

fn conditions(status: &At<'_, '_>) {
    for condition in status.each("conditions") {
        if condition.int_of("observedGeneration") < 0 {
            condition.get("observedGeneration").invalid("must be a non-negative integer");
        }
        let kind = condition.get("type");
        if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
            condition.shown_as("Type", kind.value).faults(name::qualified_name(kind.text()));
        }
    }
}

fn claims(status: &At<'_, '_>, claims: &[Value]) {
    let known: HashSet<&str> = claims.iter().map(|claim| text(claim, "name")).collect();
    let mut seen = HashSet::new();
    for claim in status.each("resourceClaimStatuses") {
        let name = claim.get("name");
        if !known.contains(name.text()) {
            name.invalid("must match the name of an entry in `spec.resourceClaims`");
        }
        name.unique(&mut seen);
        claim.get("resourceClaimName").formed(name::dns1123_subdomain);
    }
}

/// The claim that was made for extended resources: which request is for which container.
fn extended_claim(claim: &At<'_, '_>, spec: &At<'_, '_>) {
    let mappings = claim.get("requestMappings");
    mappings.need_for("at least one request mapping is required");
    // Of two containers with one name, the last one counts.
    let all = ["initContainers", "containers"].into_iter().flat_map(|list| spec.list_of(list));
    let all: HashMap<&str, &Value> = all.map(|one| (text(one, "name"), one)).collect();
    let mut seen = HashSet::new();
    for mapping in mappings.items() {
        let members = ["containerName", "resourceName", "requestName"];
        let [container, resource, request] = members.map(|member| mapping.text_of(member));
        match all.get(container) {
            Some(found) if found["resources"]["requests"].get(resource).is_none() => {
                mapping.get("resourceName").invalid_as(&resource.into(), "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests");
            }
            Some(_) => {}
            None => mapping.get("containerName").invalid_as(&container.into(), "must match the name of an entry in spec.initContainers.name or spec.containers.name"),
        }
        for fault in name::dns1123_label(request) {
            claim.get("requestName").invalid_as(&request.into(), fault);
        }
        if !seen.insert([container, resource, request]) {
            members.iter().for_each(|member| mapping.get(member).duplicate());
        }
    }
    claim.get("resourceClaimName").named(name::dns1123_subdomain);
}

/// The longest message about the health of a resource, in bytes.
const HEALTH_MESSAGE_BYTES_MAX: usize = 1024;

/// The names of resources that may be allocated for a container: its claims and its requests.
fn allocatable(container: &Value) -> HashSet<String> {
    let resources = &container["resources"];
    let of_claim = |claim: &Value| match text(claim, "request") {
        "" => format!("claim:{}", text(claim, "name")),
        request => format!("claim:{}/{request}", text(claim, "name")),
    };
    let requests = resources["requests"].as_object().into_iter().flatten();
    let requests = requests.map(|(name, _)| name.clone());
    let requests = requests.filter(|name| !name.starts_with(CLAIM));
    list(resources, "claims").iter().map(of_claim).chain(requests).collect()
}
/// What the name of an allocated resource begins with if it is that of a claim.
const CLAIM: &str = "claim:";

/// What was allocated for a container, and how it does. `allocatable`: what may be, if there is
/// such a container.
fn allocated_resource(at: &At<'_, '_>, allocatable: Option<&HashSet<String>>) {
    let name = at.get("name");
    if allocatable.is_some_and(|known| !known.contains(name.text())) {
        name.invalid_as(&name.text().into(), match name.text().starts_with(CLAIM) {
            true => "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
            false => "must match one of the container's resource requests",
        });
    }
    let mut seen = HashSet::new();
    for resource in at.each("resources") {
        resource.get("health").choice(&["Healthy", "Unhealthy", "Unknown"]);
        let message = resource.get("message");
        if message.is_set()
            && message.need_for("must be non-empty if specified")
            && message.text().len() > HEALTH_MESSAGE_BYTES_MAX
        {
            message.too_long(HEALTH_MESSAGE_BYTES_MAX);
        }
        resource.get("resourceID").unique(&mut seen);
    }
}

/// At most one address of each family.
fn addresses(at: &At<'_, '_>) {
    for item in at.items() {
        for fault in address::old_ip(&item, item.text_of("ip")) {
            item.invalid_as(item.get("ip").value, fault);
        }
    }
    if at.len() > 1 {
        // What is no address has no family.
        let bad =
            at.list().iter().position(|item| !address::old_ip(at, text(item, "ip")).is_empty());
        if let Some(i) = bad {
            let text = text(&at.list()[i], "ip");
            at.report(|path| {
                let detail =
                    format!("failed to check for dual stack with error:invalid IP[{i}]: {text}");
                field::Error::internal(path, detail)
            });
        }
        let n_six = at.list().iter().filter(|item| address::is_six(text(item, "ip"))).count();
        if at.len() > 2 || n_six != 1 || bad.is_some() {
            at.invalid("may specify no more than one IP for each IP family");
        }
    }
}

/// Containers that have ended for good stay ended.
fn states(status: &At<'_, '_>, old: &Value) {
    let (spec, before) = (&old["spec"], &old["status"]);
    let has_rules = status.is_on(Feature::ContainerRestartRules);
    let has_all = has_rules && status.is_on(Feature::RestartAllContainersOnContainerExits);
    let restarts_all = ["initContainers", "containers"].iter().filter(|_| has_all).any(|member| {
        list(spec, member).iter().any(|container| {
            let rules = list(container, "restartPolicyRules").iter();
            rules.map(|rule| text(rule, "action")).any(|action| action == "RestartAllContainers")
        })
    });
    for (member, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        if containers.is_some() && restarts_all {
            continue;
        }
        let specs = containers.map(|containers| by_name(spec, containers)).unwrap_or_default();
        // Of the states of a container, one that is not terminated counts.
        let runs: HashSet<&str> = status
            .list_of(member)
            .iter()
            .filter(|status| status["state"]["terminated"].is_null())
            .map(|status| text(status, "name"))
            .collect();
        for (i, container) in list(before, member).iter().enumerate() {
            let (name, ended) = (text(container, "name"), &container["state"]["terminated"]);
            if ended.is_null() || !runs.contains(name) {
                continue;
            }
            let code = ended["exitCode"].as_i64().unwrap_or(0);
            let own = specs.get(name).copied();
            let may_restart = match has_rules {
                // A container that is not in the spec does not restart.
                true => own.is_some_and(|own| restarts(own, spec, code, has_all)),
                false if containers.is_none() => false,
                false => {
                    let is_sidecar =
                        member == "initContainerStatuses" && own.is_some_and(is_sidecar);
                    is_sidecar || by_policy(text(spec, "restartPolicy"), code) == Some(true)
                }
            };
            if !may_restart {
                status.get(member).report(|path| {
                    let path = path.index(i).child("state");
                    field::Error::forbidden(path, "may not be transitioned to non-terminated state")
                });
            }
        }
    }
}

/// Whether a container restarts after an exit code: by its rules, else by its own policy, else by
/// that of its pod.
/// `has_all`: whether rules may restart all containers.
fn restarts(container: &Value, spec: &Value, code: i64, has_all: bool) -> bool {
    let own = container.get("restartPolicy").and_then(Value::as_str).and_then(|policy| {
        let rule = list(container, "restartPolicyRules").iter().find(|rule| {
            let codes = &rule["exitCodes"];
            let is_listed = list(codes, "values").iter().any(|value| *value == code);
            match text(codes, "operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
        });
        let is_action = |rule: &&Value| match text(rule, "action") {
            "Restart" => true,
            "RestartAllContainers" => has_all,
            _ => false,
        };
        rule.filter(is_action).map(|_| true).or_else(|| by_policy(policy, code))
    });
    own.or_else(|| by_policy(text(spec, "restartPolicy"), code)).unwrap_or(true)
}

/// Whether a policy restarts after an exit code, if it is known.
fn by_policy(policy: &str, code: i64) -> Option<bool> {
    match policy {
        "Always" => Some(true),
        "OnFailure" => Some(code != 0),
        "Never" => Some(false),
        _ => None,
    }
}
