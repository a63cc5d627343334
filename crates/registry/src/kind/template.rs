//! Validation of pods and pod templates.
mod container;
mod environment;
mod placement;
mod privileged;
mod probe;
mod profile;
mod security;
mod volume;
mod warnings;

pub(super) use container::{ephemeral, is_sidecar, trimmed_image};
pub(crate) use placement::toleration_errors;
pub(super) use placement::{may_compare, node_selector, taint_effect, tolerations};
pub(crate) use privileged::refuse_privileged;
pub(super) use profile::{APP_ARMOR_OF_CONTAINER, app_armor_warnings, take_app_armor};
pub(super) use volume::{access_modes, claim, claim_spec, persistent_source};
pub(super) use warnings::{
    of_claim as claim_warnings, of_pod as pod_warnings, of_template as template_warnings,
};

use crate::features::Feature;
use crate::kind::annotated::{self, Struct, Type};
use crate::kind::at::At;
use crate::kind::{address, format, resources, text};
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// The containers of a pod, by list.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];
/// All of them, with those that debug it.
pub(super) const ALL_CONTAINERS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// What the rules of a container have to know of its pod.
struct Pod<'v> {
    /// Its volumes without faults, and whether each is a claim, which can be a block device.
    volumes: HashMap<&'v str, bool>,
    /// The names of its resource claims.
    claims: HashSet<&'v str>,
    /// Its grace period in seconds.
    grace: Option<i64>,
    os: &'v str,
    never_restarts: bool,
    /// It has the user namespace of its node.
    host_users: bool,
}

/// A template. The API's paths to its labels and annotations omit `metadata`.
pub(super) fn template(at: &At<'_, '_>) {
    metadata(at);
    let spec = at.get("spec");
    self::spec(&spec, None);
    agreement(&at.get("metadata.annotations"), &spec);
    if !at.list_of("spec.ephemeralContainers").is_empty() {
        at.get("spec.ephemeralContainers")
            .forbidden("ephemeral containers not allowed in pod template");
    }
}
/// Labels and annotations of a template.
pub(super) fn metadata(at: &At<'_, '_>) {
    at.shown_as("labels", at.get("metadata.labels").value).labels();
    let annotations = at.shown_as("annotations", at.get("metadata.annotations").value);
    annotations.annotations();
    self::annotations(&annotations, &at.get("spec"));
}

/// Metadata that an object in a template may not have: path, as reported, in the order of its
/// declaration.
const UNSET: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// The metadata of an object that is made from a template: annotations and labels only.
pub(super) fn metadata_of_template(at: &At<'_, '_>) {
    at.get("annotations").annotations();
    at.get("labels").labels();
    for (member, shown) in UNSET {
        let given = at.get(member);
        let is_zero = given.value == "" || member == "generation" && given.int() == Some(0);
        if given.is_set() && !is_zero {
            at.shown_as(shown, given.value).forbidden("cannot be set");
        }
    }
}

/// The annotation of a pod that a node agent copied from its own files.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation that says which pods of a ReplicaSet are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation that had tolerations before they were members.
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const TOLERATION: Struct = Struct {
    name: "core.Toleration",
    members: &[
        ("Key", Type::Text("string")),
        ("Operator", Type::Text("core.TolerationOperator")),
        ("Value", Type::Text("string")),
        ("Effect", Type::Text("core.TaintEffect")),
        ("TolerationSeconds", Type::Integer),
    ],
};
/// The annotations of a pod that have a meaning.
pub(super) fn annotations(at: &At<'_, '_>, spec: &At<'_, '_>) {
    let mirror = at.key(MIRROR);
    if mirror.is_set() && spec.text_of("nodeName").is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    annotated::check(at, (TOLERATIONS, Type::List(&TOLERATION)), at, |given| {
        tolerations(given, may_compare(&spec.get("tolerations")));
    });
    let cost = at.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.text()) && at.is_on(Feature::PodDeletionCost) {
        cost.invalid("must be a 32bit integer");
    }
    profile::annotations(at, spec);
}
/// Annotations of a new pod, or of a template, that say something else than its members.
pub(super) fn agreement(annotations: &At<'_, '_>, spec: &At<'_, '_>) {
    profile::agreement(annotations.value, spec);
}
/// A number of 32 bits without a plus sign or leading zeros.
fn is_cost(text: &str) -> bool {
    text.is_empty() || text.parse::<i32>().is_ok_and(|cost| cost.to_string() == text)
}

/// The spec of a pod, with the pod's metadata, or of a template.
pub(super) fn spec(at: &At<'_, '_>, metadata: Option<&Value>) {
    let pod_name = metadata.map(|metadata| text(metadata, "name"));
    let is_pod = metadata.is_some();
    at.get("terminationGracePeriodSeconds").need();
    let volumes = volume::volumes(at, pod_name);
    let pod = Pod {
        volumes,
        claims: at
            .list_of("resourceClaims")
            .iter()
            .map(|claim| text(claim, "name"))
            .filter(|name| !name.is_empty())
            .collect(),
        grace: at.get("terminationGracePeriodSeconds").int(),
        os: at.text_of("os.name"),
        never_restarts: at.text_of("restartPolicy") == "Never",
        host_users: at.get("hostUsers").value != &Value::Bool(false),
    };
    let is_mirror = metadata.is_some_and(|metadata| metadata["annotations"].get(MIRROR).is_some());
    match is_mirror {
        true => at.each("resourceClaims").for_each(|_| {
            at.report(|_| {
                let path = field::Path::new("[]");
                field::Error::forbidden(path, "static pods do not support resource claims")
            });
        }),
        false => claims(at),
    }
    container::containers(at, &pod);
    container::init_containers(at, &pod);
    container::ephemeral_containers(at, &pod);
    if at.is_on(Feature::PodLevelResources) {
        pod_resources(at, &pod.claims);
    }
    host_network(at, is_pod);
    at.get("restartPolicy").one_of(&["Always", "OnFailure", "Never"]);
    at.get("dnsPolicy").one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    at.get("nodeSelector").labels();
    security::of_pod(at);
    placement::affinity(at);
    dns(at);
    for gate in at.each("readinessGates") {
        let condition = gate.get("conditionType");
        condition.faults(name::qualified_name(condition.text()));
    }
    let mut seen = HashSet::new();
    for gate in at.each("schedulingGates") {
        let name = gate.text_of("name");
        for fault in name::qualified_name(name) {
            gate.invalid_as(&name.into(), fault);
        }
        if !seen.insert(name) {
            gate.report(|path| field::Error::duplicate(path, &name.into()));
        }
    }
    placement::spread(at);
    security::host_processes(at);
    host_users(at);
    host_name(at);
    at.get("serviceAccountName").named_if_set(name::dns1123_subdomain);
    at.get("nodeName").named_if_set(name::dns1123_subdomain);
    at.get("activeDeadlineSeconds").between(1, i32::MAX.into());
    at.get("hostname").named_if_set(name::dns1123_label);
    at.get("subdomain").named_if_set(name::dns1123_label);
    let tolerated = at.get("tolerations");
    tolerations(&tolerated, may_compare(&tolerated));
    for alias in at.each("hostAliases") {
        alias.get("ip").faults(address::old_ip(&alias, alias.text_of("ip")));
        for host in alias.each("hostnames") {
            host.faults(name::dns1123_subdomain(host.text()));
        }
    }
    at.get("priorityClassName").named_if_set(name::dns1123_subdomain);
    at.get("runtimeClassName").formed(name::dns1123_subdomain);
    if at.has("preemptionPolicy") {
        at.get("preemptionPolicy").one_of(&["PreemptLowerPriority", "Never"]);
    }
    let overhead = at.get("overhead");
    resources::overhead(&overhead, overhead.value);
    security::operating_system(at);
    if let Some(group) = at.given("schedulingGroup") {
        let name = group.get("podGroupName");
        match name.is_set() {
            true => name.formed(name::dns1123_subdomain),
            false => name.invalid("must specify one of: `podGroupName`"),
        }
    }
    file_keys(at);
}

/// Claims of devices: each has a name, and names a claim or a template.
fn claims(at: &At<'_, '_>) {
    let mut seen = HashSet::new();
    for claim in at.each("resourceClaims") {
        let name = claim.get("name");
        if name.need() {
            if seen.insert(name.text()) {
                name.faults(name::dns1123_label(name.text()));
            } else {
                name.duplicate();
            }
        }
        match (claim.has("resourceClaimName"), claim.has("resourceClaimTemplateName")) {
            (true, true) => claim.invalid(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => claim.invalid(
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for member in ["resourceClaimName", "resourceClaimTemplateName"] {
            claim.get(member).formed(name::dns1123_subdomain);
        }
    }
}

/// Resources of the whole pod: at least what its containers request.
fn pod_resources(at: &At<'_, '_>, claims: &HashSet<&str>) {
    let Some(whole) = at.given("resources") else { return };
    if at.text_of("os.name") == "windows" {
        return whole.forbidden("may not be set for a windows pod");
    }
    resources::of_pod(&whole, claims);
    let requests = setpoint_quota::pod::of_containers(at.value, "requests");
    for (name, sum) in &requests {
        let request = whole.entry("requests", name);
        if request.quantity().is_some_and(|request| sum.compare(&request).is_gt()) {
            request.invalid(format!(
                "must be greater than or equal to aggregate container requests of {sum}"
            ));
        }
    }
    let limits = setpoint_quota::pod::of_containers(at.value, "limits");
    for (name, sum) in limits.iter().filter(|(name, _)| resources::is_huge(name)) {
        let limit = whole.entry("limits", name);
        if limit.quantity().is_some_and(|limit| sum.compare(&limit).is_gt()) {
            limit.invalid(format!(
                "must be greater than or equal to aggregate container limits of {sum}"
            ));
        }
    }
    for (i, container) in at.list_of("containers").iter().enumerate() {
        let limits = container["resources"]["limits"].as_object();
        for (name, limit) in limits.into_iter().flatten() {
            let most = whole.entry("limits", name).quantity();
            let limit_value = limit.as_str().and_then(|text| Quantity::parse(text).ok());
            if let (Some(most), Some(value)) = (most, limit_value)
                && value.compare(&most).is_gt()
            {
                whole.report(|path| {
                    let path = path.child("containers").index(i).key(name).child("limits");
                    let detail = format!("must be less than or equal to pod limits of {most}");
                    field::Error::invalid(path, limit, detail)
                });
            }
        }
    }
}
/// With host networking, a container's port is the host's port.
fn host_network(at: &At<'_, '_>, is_pod: bool) {
    if !at.is("hostNetwork") {
        return;
    }
    for container in at.each("containers") {
        for port in container.each("ports") {
            let host = port.int_of("hostPort");
            if (is_pod || host != 0) && host != port.int_of("containerPort") {
                port.get("hostPort").invalid_as(
                    &host.into(),
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// Limits of a resolver's configuration, as `MaxDNSNameservers`, `MaxDNSSearchPaths` and
/// `MaxDNSSearchListChars`.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;

fn dns(at: &At<'_, '_>) {
    let config = at.get("dnsConfig");
    let servers = config.get("nameservers");
    if at.text_of("dnsPolicy") == "None" {
        if !config.is_set() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.len() == 0 {
            return servers
                .required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        servers.invalid(format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    for server in servers.items() {
        server.faults(address::old_ip(&server, server.text()));
    }
    let searches = config.get("searches");
    if searches.len() > SEARCHES_MAX {
        searches.invalid(format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    let length: usize = config.texts_of("searches").map(|search| search.len() + 1).sum();
    if length > SEARCH_CHARACTERS_MAX + 1 {
        searches.invalid(format!(
            "must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the search list"
        ));
    }
    for search in searches.items() {
        let name = search.text();
        if name != "." {
            let name = name.strip_suffix('.').unwrap_or(name);
            for fault in format::subdomain_with_underscores(name) {
                search.invalid_as(&name.into(), fault);
            }
        }
    }
    for option in config.each("options") {
        if option.text_of("name").is_empty() {
            option.required("must not be empty");
        }
    }
}

/// A pod with users of its own shares nothing of its node's namespaces.
fn host_users(at: &At<'_, '_>) {
    if at.get("hostUsers").value != &Value::Bool(false) {
        return;
    }
    for (member, shown) in
        [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
    {
        let may = member == "hostNetwork" && at.is_on(Feature::UserNamespacesHostNetworkSupport);
        if at.is(member) && !may {
            at.get(shown).forbidden("when `hostUsers` is false");
        }
    }
    for list in ALL_CONTAINERS {
        for container in at.each(list).filter(|c| !c.list_of("volumeDevices").is_empty()) {
            container.get("volumeDevices").forbidden("when `hostUsers` is false");
        }
    }
}

/// Maximum length of a host name, in bytes.
const HOST_NAME_MAX: usize = 64;

fn host_name(at: &At<'_, '_>) {
    let Some(name) = at.given("hostnameOverride") else { return };
    if at.is("setHostnameAsFQDN") {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if at.is("hostNetwork") {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.text().len() > HOST_NAME_MAX {
        name.too_long(HOST_NAME_MAX);
    }
    name.faults(name::dns1123_subdomain(name.text()));
}

/// Variables that are read from a file name an `emptyDir`.
fn file_keys(at: &At<'_, '_>) {
    let volumes: HashMap<&str, &Value> =
        at.list_of("volumes").iter().map(|volume| (text(volume, "name"), volume)).collect();
    for list in ALL_CONTAINERS {
        for container in at.each(list) {
            for variable in container.each("env") {
                if !variable.has("valueFrom.fileKeyRef") {
                    continue;
                }
                let name = variable.get("valueFrom.fileKeyRef.volumeName");
                match volumes.get(name.text()) {
                    None => name.not_found(),
                    Some(volume) if volume.get("emptyDir").is_none() => {
                        name.invalid("referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
