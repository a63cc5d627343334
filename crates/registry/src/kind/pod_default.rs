//! Defaults of pod templates, containers, volumes and claims.
use crate::kind::{Fill, Members};
use serde_json::{Value, json};

/// An object with a member `template`, or a PodTemplate.
pub(super) fn template(owner: &mut Members) {
    if let Some(pod) = owner.object("template").and_then(|template| template.object("spec")) {
        spec(pod);
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
    if !is_reference(image) {
        return "IfNotPresent";
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

/// Maximum length of the name of an image without its domain, in bytes.
const IMAGE_NAME_MAX: usize = 255;
/// Maximum length of a tag, in bytes.
const TAG_MAX: usize = 128;

/// Whether a text names an image, as the distribution specification has it:
/// `[domain/]path[:tag][@digest]`.
fn is_reference(image: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    // The identifier of an image is not its name.
    if image.len() == 64 && is_hex(image) {
        return false;
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let has_digest = digest.is_none_or(|digest| {
        digest.split_once(':').is_some_and(|(algorithm, hex)| {
            let starts = algorithm.starts_with(|c: char| c.is_ascii_alphabetic());
            let inner = |b: u8| b.is_ascii_alphanumeric() || b"+._-".contains(&b);
            starts && algorithm.bytes().all(inner) && hex.len() >= 32 && is_hex(hex)
        })
    });
    let is_domain = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first != first.to_lowercase()
    };
    let (domain, path) = match name.split_once('/').filter(|(first, _)| is_domain(first)) {
        Some((domain, path)) => (Some(domain), path),
        None => (None, name),
    };
    let has_domain = domain.is_none_or(|domain| {
        let (host, port) = domain.split_once(':').map_or((domain, None), |(h, p)| (h, Some(p)));
        let label = |label: &str| {
            let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !label.is_empty()
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        host.split('.').all(label)
            && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    });
    let (path, tag) = path.split_once(':').map_or((path, None), |(p, t)| (p, Some(t)));
    let has_tag = tag.is_none_or(|tag| {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        (1..=TAG_MAX).contains(&tag.len())
            && tag.bytes().next().is_some_and(word)
            && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
    });
    let has_path = path.len() <= IMAGE_NAME_MAX && path.split('/').all(is_image_part);
    has_digest && has_domain && has_tag && has_path
}
/// Lower-case letters and digits, with single separators between them: `.`, `_`, `__` or dashes.
fn is_image_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = part.split(is_word).filter(|separator| !separator.is_empty());
    part.starts_with(is_word)
        && part.ends_with(is_word)
        && separators.into_iter().all(|separator| {
            matches!(separator, "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
        })
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
