//! Pods: validation, updates, and the status of their containers as one word (spec: api-server
//! §5.6, §12.1).
pub(crate) mod actions;
mod cells;
mod containers;
mod label_keys;
pub(crate) mod references;
pub(crate) mod secrets;
mod status;
mod update;

use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::{
    Action, Charged, Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, ProxiedTo,
    Report, Selectable, StatusMeta, StatusRule, list, not_supported, pod_default, template, text,
};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use std::collections::{HashMap, VecDeque};

/// Pod.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    returns_deleted: true,
    has_node_streams: true,
    proxied_to: ProxiedTo::Address,
    graceful: true,
    default,
    prepare,
    prepare_status,
    validate,
    validate_status: status::validate,
    warnings,
    prepare_warnings: template::app_armor_warnings,
    status_warnings: status::warnings,
    pod_spec: "spec",
    disabled: &[
        (
            Some(Feature::DynamicResourceAllocation),
            &["spec.resourceClaims", "status.resourceClaimStatuses"],
        ),
        (
            Some(Feature::PodObservedGenerationTracking),
            &["status.observedGeneration", "status.conditions[].observedGeneration"],
        ),
        (
            Some(Feature::ImageVolumeWithDigest),
            &[
                "status.containerStatuses[].volumeMounts[].volumeStatus",
                "status.ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
                "status.initContainerStatuses[].volumeMounts[].volumeStatus",
            ],
        ),
        (
            Some(Feature::DRANodeAllocatableResources),
            &["status.nodeAllocatableResourceClaimStatuses"],
        ),
        (Some(Feature::DRAExtendedResource), &["status.extendedResourceClaimStatus"]),
        (
            Some(Feature::InPlacePodLevelResourcesVerticalScaling),
            &["status.resources", "status.allocatedResources"],
        ),
        (
            Some(Feature::ResourceHealthStatus),
            &[
                "status.containerStatuses[].allocatedResourcesStatus",
                "status.ephemeralContainerStatuses[].allocatedResourcesStatus",
                "status.initContainerStatuses[].allocatedResourcesStatus",
            ],
        ),
        (
            Some(Feature::ResourceHealthStatusMessage),
            &[
                "status.containerStatuses[].allocatedResourcesStatus[].resources[].message",
                "status.ephemeralContainerStatuses[].allocatedResourcesStatus[].resources[].message",
                "status.initContainerStatuses[].allocatedResourcesStatus[].resources[].message",
            ],
        ),
    ],
    charged: Charged::Updates { parts: &["", "resize"], may_need: may_need_more },
    actions: &[("binding", Action::Bind), ("eviction", Action::Evict)],
    parts: &[containers::EPHEMERAL, containers::RESIZE],
    selectable: &[
        Selectable::new("spec.nodeName"),
        Selectable { path: "spec.nodeName", ..Selectable::new("spec.host") },
        Selectable::new("spec.restartPolicy"),
        Selectable::new("spec.schedulerName"),
        Selectable::new("spec.serviceAccountName"),
        Selectable { absent: "false", ..Selectable::new("spec.hostNetwork") },
        Selectable::new("status.phase"),
        Selectable::new("status.podIP"),
        Selectable::new("status.podIPs"),
        Selectable::new("status.nominatedNodeName"),
    ],
    unknown_label: not_supported,
    cells: Some(cells::cells),
    completion: status::completion,
    rules: "containers, variables, probes, ports, resources, security contexts, volumes, affinity, spreading, tolerations, also in annotations, DNS, kernel parameters, gates; annotations that agree with fields; what updates, `status`, `resize` and `ephemeralcontainers` may change",
    // `prepare` reads the class of a new pod.
    status: Some(StatusRule { keeps_new: true, ..StatusRule::new(StatusMeta::Pod, "{}") }),
    ..Kind::plain("", "Pod")
};

fn default(object: &mut Members, _version: &str) {
    pod_default::drop_annotations(object);
    if let Some(status) = object.object("status") {
        addresses(status);
    }
    let Some(pod) = object.object("spec") else { return };
    pod_default::spec(pod);
    let grace = pod.get_mut("terminationGracePeriodSeconds");
    if let Some(grace) = grace.filter(|grace| grace.as_i64().is_some_and(|grace| grace < 0)) {
        *grace = 1.into();
    }
    // Only Pods, not templates: there these defaults would change workloads that older clients
    // wrote.
    pod.absent("enableServiceLinks", true);
    let host_network = pod.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in pod.each(list) {
            pod_default::requests_from_limits(container);
            if host_network {
                pod_default::host_ports(container);
            }
        }
    }
    pod_default::pod_resources(pod);
}

/// Whether an update may need more of a quota. One of the pod itself does only if it gets an
/// `activeDeadlineSeconds`, or loses it: other scopes and its requests do not change.
fn may_need_more(part: &str, pod: &Value, old: &Value) -> bool {
    let ends = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].is_i64();
    !part.is_empty() || ends(old) != ends(pod)
}

/// The single address is the first of the list, and wins over another one.
fn addresses(status: &mut Members) {
    let first = |status: &Members| {
        let first = status.get("podIPs").and_then(|all| all.get(0)).map(|first| &first["ip"]);
        first.and_then(Value::as_str).map(str::to_owned)
    };
    let single = status.text("podIP").to_owned();
    match first(status) {
        Some(first) if single.is_empty() => drop(status.insert("podIP".to_owned(), first.into())),
        first if single.is_empty() || first.as_ref() == Some(&single) => {}
        _ => drop(status.insert("podIPs".to_owned(), json!([{"ip": single}]))),
    }
}

/// A new pod is pending, and says so if gates keep it from being scheduled; its label keys become
/// part of selectors, and annotations for AppArmor become members. A pod that exists keeps its
/// status.
fn prepare(context: &Context<'_>, pod: &mut Value, old: Option<&Value>) {
    if old.is_some() {
        return;
    }
    let merges_spread =
        context.features.is_on(Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge);
    label_keys::merge(pod, merges_spread);
    template::take_app_armor(pod);
    // A class that the client gives stays, whatever the resources say.
    let class = setpoint_quota::qos::of(pod).to_owned();
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": message, "lastProbeTime": null, "lastTransitionTime": context.now.rfc3339(),
        }]);
    }
}

/// A class and generations that the node agent leaves out stay.
fn prepare_status(_: &Context<'_>, pod: &mut Value, old: &Value) {
    let keep = |new: &mut Value, old: &Value, member: &str| {
        if new[member].is_null()
            && let Some(value) = old.get(member)
            && let Some(new) = new.as_object_mut()
        {
            new.insert(member.to_owned(), value.clone());
        }
    };
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let (status, before) = (&mut pod["status"], &old["status"]);
    keep(status, before, "qosClass");
    keep(status, before, "observedGeneration");
    // A type may be there more than once.
    let mut known: HashMap<&str, VecDeque<&Value>> = HashMap::new();
    for condition in list(before, "conditions") {
        known.entry(text(condition, "type")).or_default().push_back(condition);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let before = known.get_mut(text(condition, "type")).and_then(VecDeque::pop_front);
        if let Some(before) = before {
            keep(condition, before, "observedGeneration");
        }
    }
}

/// Warns of a name that is not a label, because it becomes the host name, and of what is probably
/// not meant.
fn warnings(pod: &Value) -> Vec<String> {
    let messages = name::dns1123_label(pod.name());
    let mut all = Vec::new();
    if !messages.is_empty() {
        all.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            messages.join(" ")
        ));
    }
    all.append(&mut template::pod_warnings(pod));
    all
}

/// The rules of a pod, new or changed.
fn rules(at: &At<'_, '_>) {
    let spec = at.get("spec");
    template::annotations(&at.get("metadata.annotations"), &spec);
    template::spec(&spec, Some(at.get("metadata").value));
    tokens_have_an_account(&spec);
    for list in ["containers", "initContainers"] {
        spec.each(list).for_each(|container| template::trimmed_image(&container));
    }
}

/// A projected token is that of the pod's service account.
fn tokens_have_an_account(spec: &At<'_, '_>) {
    if !spec.text_of("serviceAccountName").is_empty() {
        return;
    }
    for volume in spec.each("volumes") {
        for source in volume.each("projected.sources") {
            if source.has("serviceAccountToken") {
                source
                    .get("serviceAccountToken")
                    .forbidden("must not be specified when serviceAccountName is not set");
            }
        }
    }
}

/// Validates a new or changed pod.
fn validate(pod: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        return update::validate(pod, old, errors);
    }
    check(pod, None, errors, |at| {
        rules(at);
        let spec = at.get("spec");
        if !spec.list_of("ephemeralContainers").is_empty() {
            spec.get("ephemeralContainers").forbidden("cannot be set on create");
        }
        if !spec.text_of("nodeName").is_empty() && !spec.list_of("schedulingGates").is_empty() {
            spec.get("nodeName")
                .forbidden("cannot be set until all schedulingGates have been cleared");
        }
        template::agreement(&at.get("metadata.annotations"), &spec);
    });
}
