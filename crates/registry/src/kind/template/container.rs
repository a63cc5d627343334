//! Containers.
use super::{CONTAINERS, Pod, environment, probe, security};
use crate::features::Feature;
use crate::kind::at::{At, same};
use crate::kind::{format, resources, text};
use serde_json::Value;
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// Whether an init container keeps running beside the containers.
pub(in crate::kind) fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// The containers of a pod.
pub(super) fn containers(at: &At<'_, '_>, pod: &Pod<'_>) {
    at.get("containers").need();
    let mut names = HashSet::new();
    for container in at.each("containers") {
        common(&container, pod);
        let name = container.get("name");
        if !names.insert(name.text()) {
            name.duplicate();
        }
        hooks_and_probes(&container, pod);
        if container.is_on(Feature::ContainerRestartRules) {
            restart_policy(&container);
        } else if container.has("restartPolicy") {
            container.get("restartPolicy").forbidden("may not be set for non-init containers");
        }
    }
    host_ports(at.each("containers"));
}

/// Containers that run before the others.
pub(super) fn init_containers(at: &At<'_, '_>, pod: &Pod<'_>) {
    let mut names: HashSet<&str> =
        at.list_of("containers").iter().map(|container| text(container, "name")).collect();
    for container in at.each("initContainers") {
        common(&container, pod);
        // Without a policy the API does not look at the rules.
        if container.has("restartPolicy") {
            init_restart_policy(&container);
        } else if !container.list_of("restartPolicyRules").is_empty() {
            container.get("restartPolicy").required(NEEDS_POLICY);
        }
        let name = container.get("name");
        if names.contains(name.text()) {
            name.duplicate_of(name.text());
        } else if !name.text().is_empty() {
            names.insert(name.text());
        }
        host_ports(std::iter::once(container));
        if is_sidecar(container.value) {
            hooks_and_probes(&container, pod);
            continue;
        }
        for member in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(member) {
                container
                    .get(member)
                    .forbidden("may not be set for init containers without restartPolicy=Always");
            }
        }
        for policy in container.each("resizePolicy") {
            if policy.text_of("restartPolicy") == "RestartContainer" {
                policy.get("restartPolicy").invalid(
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
    }
}

/// Members that an ephemeral container does not have, in the order of their declaration. A list
/// without items counts, an object without members only where it differs from none.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Containers that debug a running pod.
pub(super) fn ephemeral_containers(at: &At<'_, '_>, pod: &Pod<'_>) {
    let others: HashSet<&str> = CONTAINERS
        .into_iter()
        .flat_map(|list| at.list_of(list))
        .map(|container| text(container, "name"))
        .collect();
    let mut names = others.clone();
    for container in at.each("ephemeralContainers") {
        common(&container, pod);
        trimmed_image(&container);
        container.get("name").unique(&mut names);
        let target = container.get("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        for member in NOT_EPHEMERAL {
            let at = container.get(member);
            if at.is_set() && (member != "resources" || !same(at.value, &Value::Null)) {
                at.forbidden("cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.each("volumeMounts") {
            for member in ["subPath", "subPathExpr"] {
                if !mount.text_of(member).is_empty() {
                    mount.get(member).forbidden("cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// Ephemeral containers may only be added.
pub(in crate::kind) fn ephemeral(new: &At<'_, '_>, old: &[Value]) {
    let by_name: HashMap<&str, &Value> =
        new.list().iter().map(|container| (text(container, "name"), container)).collect();
    for container in old {
        let name = field::quote(text(container, "name"));
        let change = match by_name.get(text(container, "name")) {
            None => "removed",
            Some(same) if *same != container => "changed",
            Some(_) => continue,
        };
        new.forbidden(format!("existing ephemeral containers {name} may not be {change}\n"));
    }
}

/// The image of a container of a pod. In a template, white space around it is allowed.
pub(in crate::kind) fn trimmed_image(at: &At<'_, '_>) {
    let image = at.get("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

/// What every container has.
fn common(at: &At<'_, '_>, pod: &Pod<'_>) {
    at.get("name").named(name::dns1123_label);
    at.get("image").need();
    at.get("terminationMessagePolicy").one_of(&["File", "FallbackToLogsOnError"]);
    ports(at);
    environment::variables(at);
    mounts(at, pod);
    devices(at, pod);
    at.get("imagePullPolicy").one_of(&["Always", "IfNotPresent", "Never"]);
    resources::of_container(&at.get("resources"), &pod.claims);
    resize_policy(at, pod);
    security::of_container(&at.get("securityContext"), pod.host_users);
}

fn hooks_and_probes(at: &At<'_, '_>, pod: &Pod<'_>) {
    probe::lifecycle(&at.get("lifecycle"), pod.grace, pod.os);
    probe::probes(at, pod.grace);
}

fn ports(at: &At<'_, '_>) {
    let mut names = HashSet::new();
    for port in at.each("ports") {
        let name = port.get("name");
        if !name.text().is_empty() {
            let faults = format::port_name(name.text());
            if faults.is_empty() {
                name.unique(&mut names);
            }
            name.faults(faults);
        }
        match port.int_of("containerPort") {
            0 => port.get("containerPort").required(""),
            _ => port.get("containerPort").port(),
        }
        if port.int_of("hostPort") != 0 {
            port.get("hostPort").port();
        }
        port.get("protocol").one_of(&["SCTP", "TCP", "UDP"]);
    }
}

/// Two containers that run at the same time do not use the same port of the host.
fn host_ports<'v: 'p, 'p>(containers: impl Iterator<Item = At<'v, 'p>>) {
    let mut seen = HashSet::new();
    for container in containers {
        for port in container.each("ports") {
            let number = port.int_of("hostPort");
            let key = (port.text_of("protocol"), port.text_of("hostIP"), number);
            if number != 0 && !seen.insert(key) {
                let (protocol, ip, number) = key;
                let shown = format!("{protocol}/{ip}/{number}");
                port.get("hostPort")
                    .report(|path| field::Error::duplicate(path, &shown.as_str().into()));
            }
        }
    }
}

/// Paths of mounts or devices by the names of their volumes; as in the API, the last one of each.
fn paths_by_name<'v>(list: &'v [Value], path: &str) -> HashMap<&'v str, &'v str> {
    list.iter().map(|one| (text(one, "name"), text(one, path))).collect()
}

/// A few paths of mounts lack the index of the mount, as in the API.
fn mounts(at: &At<'_, '_>, pod: &Pod<'_>) {
    let devices = paths_by_name(at.list_of("volumeDevices"), "devicePath");
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let all = at.get("volumeMounts");
    let mut paths = HashSet::new();
    for mount in all.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        name.need();
        if !pod.volumes.contains_key(name.text()) {
            name.report(|path| field::Error::not_found(path, &name.text().into()));
        }
        path.need();
        if !paths.insert(path.text()) {
            path.invalid("must be unique");
        }
        if devices.contains_key(name.text()) {
            name.invalid("must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            path.invalid("must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (mount.text_of("subPath"), mount.text_of("subPathExpr"));
        format::descending_path(&all.get("subPath"), sub);
        if !expression.is_empty() && !sub.is_empty() {
            mount.get("subPathExpr").invalid("subPathExpr and subPath are mutually exclusive");
        }
        format::descending_path(&all.get("subPathExpr"), expression);
        propagation(at, &all, &mount);
    }
}
fn propagation(at: &At<'_, '_>, all: &At<'_, '_>, mount: &At<'_, '_>) {
    let mode = all.shown_as("mountPropagation", mount.get("mountPropagation").value);
    mode.one_of_if_set(&["Bidirectional", "HostToContainer", "None"]);
    if mode.text() == "Bidirectional" && !at.is("securityContext.privileged") {
        mode.forbidden(
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
    let recursive = all.shown_as("recursiveReadOnly", mount.get("recursiveReadOnly").value);
    recursive.one_of_if_set(&["Disabled", "Enabled", "IfPossible"]);
    if matches!(recursive.text(), "Enabled" | "IfPossible") {
        if !mount.is("readOnly") {
            recursive.forbidden("may only be specified when readOnly is true");
        }
        if mode.is_set() && mode.text() != "None" {
            recursive
                .forbidden("may only be specified when mountPropagation is None or not specified");
        }
    }
}

fn devices(at: &At<'_, '_>, pod: &Pod<'_>) {
    let mounts = paths_by_name(at.list_of("volumeMounts"), "mountPath");
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in at.each("volumeDevices") {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        name.need();
        if names.contains(name.text()) {
            name.invalid("must be unique");
        }
        match pod.volumes.get(name.text()) {
            None => name.not_found(),
            Some(false) => name.invalid(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(true) => {}
        }
        path.need();
        if paths.contains(path.text()) {
            path.invalid("must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid("can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.contains_key(name.text()) {
            name.invalid("must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            path.invalid("must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.insert(name.text());
        }
    }
}

/// What happens to a container whose resources change. The API's paths lack the index.
fn resize_policy(at: &At<'_, '_>, pod: &Pod<'_>) {
    let all = at.get("resizePolicy");
    let mut seen = HashSet::new();
    for policy in all.items() {
        let name = policy.text_of("resourceName");
        if !seen.insert(name) {
            policy.report(|path| field::Error::duplicate(path, &name.into()));
        }
        let shown = |value: &Value, supported: &[&str]| match value.as_str() {
            None | Some("") => all.required(""),
            Some(text) if supported.contains(&text) => {}
            Some(_) => all.report(|path| field::Error::not_supported(path, value, supported)),
        };
        shown(policy.get("resourceName").value, &["cpu", "memory"]);
        let restart = policy.get("restartPolicy");
        shown(restart.value, &["NotRequired", "RestartContainer"]);
        if pod.never_restarts && restart.text() != "NotRequired" {
            all.invalid_as(
                restart.value,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

const NEEDS_POLICY: &str = "must specify restartPolicy when restart rules are used";

/// Maximum number of rules that decide whether a container restarts, and of exit codes of a rule.
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// The policy of an init container that has one.
fn init_restart_policy(at: &At<'_, '_>) {
    let restarts_all = at.is_on(Feature::RestartAllContainersOnContainerExits);
    let rules = at.get("restartPolicyRules");
    match (at.is_on(Feature::ContainerRestartRules), is_sidecar(at.value)) {
        (true, true) if !restarts_all => {
            if rules.len() > 0 {
                rules.forbidden("restartPolicyRules are not allowed for init containers with restart policy Always");
            }
        }
        (true, _) => restart_policy(at),
        (false, true) => {}
        (false, false) => at.get("restartPolicy").unsupported(&["Always"]),
    }
}

/// Whether a container restarts, independent of the pod's policy.
fn restart_policy(at: &At<'_, '_>) {
    let (policy, rules) = (at.get("restartPolicy"), at.get("restartPolicyRules"));
    if policy.is_set() {
        policy.one_of_if_set(&["Always", "Never", "OnFailure"]);
    } else if rules.len() > 0 {
        policy.required(NEEDS_POLICY);
    }
    rules.at_most(RESTART_RULES_MAX);
    for rule in rules.items() {
        let actions = match at.is_on(Feature::RestartAllContainersOnContainerExits) {
            true => &["Restart", "RestartAllContainers"][..],
            false => &["Restart"],
        };
        rule.get("action").choice(actions);
        match rule.given("exitCodes") {
            None => rule.get("exitCodes").required("must be specified"),
            Some(codes) => {
                codes.get("operator").choice(&["In", "NotIn"]);
                codes.get("values").at_most(EXIT_CODES_MAX);
            }
        }
    }
}
