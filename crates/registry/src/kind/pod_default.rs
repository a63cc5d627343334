//! Defaults of pod templates, containers, volumes and claims.
use crate::kind::{Fill, Members};
use serde_json::{Value, json};
use setpoint_object::image::ImageReference;

/// An object with a member `template`, or a PodTemplate.
pub(super) fn template(owner: &mut Members) {
    let Some(template) = owner.object("template") else { return };
    drop_annotations(template);
    if let Some(pod) = template.object("spec") {
        spec(pod);
    }
}

/// Annotations for init containers from before there were members. The API drops them.
const INIT_CONTAINERS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];
/// Drops annotations of a pod or a template that members have replaced.
pub(super) fn drop_annotations(object: &mut Members) {
    let Some(metadata) = object.object("metadata") else { return };
    let Some(annotations) = metadata.object("annotations") else { return };
    let before = annotations.len();
    annotations.retain(|key, _| !INIT_CONTAINERS.contains(&key.as_str()));
    if before > 0 && annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// PodSpec.
pub(super) fn spec(pod: &mut Members) {
    pod.absent("dnsPolicy", "ClusterFirst");
    pod.absent("restartPolicy", "Always");
    pod.absent("securityContext", json!({}));
    pod.absent("terminationGracePeriodSeconds", 30);
    pod.absent("schedulerName", "default-scheduler");
    // `serviceAccount` is the older name of `serviceAccountName`. Both are set; the newer one takes
    // precedence.
    if let Some(name) = pod.get("serviceAccountName").cloned() {
        pod.insert("serviceAccount".to_owned(), name);
    } else if let Some(name) = pod.get("serviceAccount").cloned() {
        pod.insert("serviceAccountName".to_owned(), name);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        pod.each(list).for_each(container);
    }
    pod.each("volumes").for_each(volume);
}

/// Container, init container, ephemeral container.
fn container(container: &mut Members) {
    let policy = pull_policy(container.text("image"));
    container.absent("imagePullPolicy", policy);
    container.absent("terminationMessagePath", "/dev/termination-log");
    container.absent("terminationMessagePolicy", "File");
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.object(name) {
            probe.absent("timeoutSeconds", 1);
            probe.absent("periodSeconds", 10);
            probe.absent("successThreshold", 1);
            probe.absent("failureThreshold", 3);
            http_get(probe);
            if let Some(grpc) = probe.object("grpc") {
                grpc.absent("service", "");
            }
        }
    }
    if let Some(lifecycle) = container.object("lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.object(name) {
                http_get(hook);
            }
        }
    }
    for variable in container.each("env") {
        if let Some(field) = variable.object("valueFrom").and_then(|from| from.object("fieldRef")) {
            field.absent("apiVersion", "v1");
        }
    }
}

fn http_get(handler: &mut Members) {
    if let Some(get) = handler.object("httpGet") {
        get.absent("path", "/");
        get.absent("scheme", "HTTP");
    }
}

/// `Always` for an image whose tag is or defaults to `latest`. A text that names no image has no
/// tag.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let Some(image) = ImageReference::parse(image) else { return "IfNotPresent" };
    match (image.tag, image.digest) {
        (Some("latest"), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

/// A resource with a limit and no request is requested at its limit.
pub(super) fn requests_from_limits(container: &mut Members) {
    let Some(resources) = container.object("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(requests) = resources.object_or_new("requests") {
        for (name, limit) in limits {
            requests.absent(&name, limit);
        }
    }
}

/// Resources of the whole pod, if some are given. Huge pages are limited by what the containers
/// limit. Where there is a limit, requests are those of the containers, else the limits.
pub(super) fn pod_resources(pod: &mut Members) {
    let is_given = |member: &str| {
        let amounts = pod.get("resources").and_then(|resources| resources.get(member));
        amounts.and_then(Value::as_object).is_some_and(|amounts| !amounts.is_empty())
    };
    if !is_given("limits") && !is_given("requests") {
        return;
    }
    let list = |name: &str| pod.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of_containers =
        |member| setpoint_quota::pod::of_lists(list("containers"), list("initContainers"), member);
    let (limited, requested) = (of_containers("limits"), of_containers("requests"));
    let Some(resources) = pod.object("resources") else { return };
    let is_huge_page = |name: &str| name.starts_with("hugepages-");
    let has_request = |resources: &Members, name: &str| {
        resources.get("requests").is_some_and(|requests| requests.get(name).is_some())
    };
    for (name, limit) in limited.iter().filter(|(name, _)| is_huge_page(name)) {
        if !has_request(resources, name)
            && let Some(limits) = resources.object_or_new("limits")
        {
            limits.absent(name, limit.as_str());
        }
    }
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let is_countable = |name: &str| matches!(name, "cpu" | "memory");
    let requested = requested.iter().filter(|(name, _)| is_countable(name));
    let mut requests: Vec<(&str, Value)> =
        requested.map(|(name, request)| (name.as_str(), request.as_str().into())).collect();
    let limits = limits.iter().filter(|(name, _)| is_countable(name) || is_huge_page(name));
    requests.extend(limits.map(|(name, limit)| (name.as_str(), limit.clone())));
    if !requests.is_empty()
        && let Some(given) = resources.object_or_new("requests")
    {
        requests.into_iter().for_each(|(name, request)| given.absent(name, request));
    }
}

/// With host networking, a container's port is the host's port.
pub(super) fn host_ports(container: &mut Members) {
    for port in container.each("ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            port.absent("hostPort", number);
        }
    }
}

/// `0644` in decimal, as in JSON.
const MODE: i32 = 0o644;

/// An hour, the lifetime of projected service account tokens.
const TOKEN_SECONDS: i64 = 3600;

/// Volume.
fn volume(volume: &mut Members) {
    if !volume.keys().any(|name| name != "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.object(source) {
            source.absent("defaultMode", MODE);
        }
    }
    if let Some(downward) = volume.object("downwardAPI") {
        field_refs(downward);
    }
    if let Some(projected) = volume.object("projected") {
        for source in projected.each("sources") {
            if let Some(token) = source.object("serviceAccountToken") {
                token.absent("expirationSeconds", TOKEN_SECONDS);
            }
            if let Some(downward) = source.object("downwardAPI") {
                field_refs(downward);
            }
        }
    }
    if let Some(path) = volume.object("hostPath") {
        path.absent("type", "");
    }
    if let Some(image) = volume.object("image") {
        let policy = pull_policy(image.text("reference"));
        image.absent("pullPolicy", policy);
    }
    let template = volume.object("ephemeral").and_then(|e| e.object("volumeClaimTemplate"));
    if let Some(spec) = template.and_then(|template| template.object("spec")) {
        claim_spec(spec);
    }
}

fn field_refs(downward: &mut Members) {
    for item in downward.each("items") {
        if let Some(field) = item.object("fieldRef") {
            field.absent("apiVersion", "v1");
        }
    }
}

/// PersistentVolumeClaim, also as a template of a StatefulSet.
pub(super) fn volume_claim(object: &mut Members) {
    if let Some(spec) = object.object("spec") {
        claim_spec(spec);
    }
    if let Some(status) = object.object_or_new("status") {
        status.absent("phase", "Pending");
    }
}

/// PersistentVolumeClaimSpec.
pub(super) fn claim_spec(spec: &mut Members) {
    spec.absent("volumeMode", "Filesystem");
}
