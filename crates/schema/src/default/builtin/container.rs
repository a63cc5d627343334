//! Containers, probes and hooks.
use super::fill::{Fill, Object};
use serde_json::Value;

/// Container, init container, ephemeral container.
pub(super) fn container(container: &mut Object) {
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

fn http_get(handler: &mut Object) {
    if let Some(get) = handler.object("httpGet") {
        get.absent("path", "/");
        get.absent("scheme", "HTTP");
    }
}

/// `Always` for an image whose tag is or defaults to `latest`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

/// A resource that is limited but not requested is requested at its limit.
pub(super) fn requests_from_limits(container: &mut Object) {
    let Some(resources) = container.object("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(requests) = resources.object_or_new("requests") {
        for (name, limit) in limits {
            requests.absent(&name, limit);
        }
    }
}

/// On the host's network a container's port is the host's.
pub(super) fn host_ports(container: &mut Object) {
    for port in container.each("ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            port.absent("hostPort", number);
        }
    }
}
