//! What each check looks at.
use super::checks::Violation;
use super::subject::{SECCOMP_CONTAINER, SECCOMP_POD, Subject, containers, plural, quoted, set};
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::field::quote;
use std::collections::HashSet;

type Found = Option<Violation>;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Capabilities that containers have by default.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Volumes of restricted pods.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Kernel parameters that affect the pod only, by the minor version that permits them.
const SYSCTLS: [(u32, &str); 11] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
];
/// Permitted with the last of them.
const SYSCTL_WMEM: &str = "net.ipv4.tcp_wmem";

fn is_safe_profile(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

pub(super) fn app_armor_profile(subject: &Subject<'_>) -> Found {
    let kind = |context: &'_ Value| context["appArmorProfile"].is_object();
    let is_bad = |context: &Value| {
        kind(context) && !is_safe_profile(text(&context["appArmorProfile"], "type"))
    };
    let is_allowed = |profile: &str| {
        matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/")
    };
    let annotations: Vec<String> = subject
        .annotations()
        .into_iter()
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !is_allowed(value))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let noun = plural("annotation", "annotations", annotations.len()).to_owned();
    let setters = subject.setters(is_bad).into_iter();
    let setters: Vec<String> = setters.chain((!annotations.is_empty()).then_some(noun)).collect();
    if setters.is_empty() {
        return None;
    }
    let bad = subject.contexts().filter(|context| is_bad(context));
    let mut values = set(bad.map(|context| text(&context["appArmorProfile"], "type")));
    values.extend(annotations.iter().map(String::as_str));
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let (setters, values) = (setters.join(" and "), quoted(&values));
    Violation::new(reason, format!("{setters} must not set AppArmor profile type to {values}"))
}

fn added(container: &Value) -> impl Iterator<Item = &str> {
    list(&container["securityContext"]["capabilities"], "add").iter().filter_map(Value::as_str)
}
/// Who adds capabilities that are not allowed, and which.
fn adds_besides(subject: &Subject<'_>, allowed: &[&str]) -> Option<String> {
    let is_bad = |name: &&str| !allowed.contains(name);
    let names = subject.names(|container| added(container).any(|name| is_bad(&name)));
    if names.is_empty() {
        return None;
    }
    let bad = set(subject.containers().flat_map(added).filter(is_bad));
    let (containers, bad) = (containers(&names), quoted(&bad));
    Some(format!("{containers} must not include {bad} in securityContext.capabilities.add"))
}
pub(super) fn capabilities_baseline(subject: &Subject<'_>) -> Found {
    Violation::new("non-default capabilities", adds_besides(subject, &CAPABILITIES)?)
}
pub(super) fn capabilities_restricted(subject: &Subject<'_>) -> Found {
    let drops_all = |container: &Value| {
        let drop = list(&container["securityContext"]["capabilities"], "drop");
        drop.iter().any(|name| name == "ALL")
    };
    let keeping = subject.names(|container| !drops_all(container));
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let containers = containers(&keeping);
        details.push(format!(r#"{containers} must set securityContext.capabilities.drop=["ALL"]"#));
    }
    details.extend(adds_besides(subject, &["NET_BIND_SERVICE"]));
    match details.is_empty() {
        true => None,
        false => Violation::new("unrestricted capabilities", details.join("; ")),
    }
}
pub(super) fn capabilities_restricted_25(subject: &Subject<'_>) -> Found {
    unless(subject.is_windows(), capabilities_restricted, subject)
}
/// The check, unless an exception holds.
fn unless(is_excepted: bool, check: fn(&Subject<'_>) -> Found, subject: &Subject<'_>) -> Found {
    (!is_excepted).then(|| check(subject)).flatten()
}

pub(super) fn host_namespaces(subject: &Subject<'_>) -> Found {
    let members = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set: Vec<String> = members
        .filter(|member| subject.spec()[*member] == true)
        .map(|member| format!("{member}=true"))
        .collect();
    if set.is_empty() { None } else { Violation::new("host namespaces", set.join(", ")) }
}
pub(super) fn host_path_volumes(subject: &Subject<'_>) -> Found {
    let paths = subject.volumes().iter().filter(|volume| volume["hostPath"].is_object());
    let names: Vec<&str> = paths.map(|volume| text(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    let noun = plural("volume", "volumes", names.len());
    Violation::new("hostPath volumes", format!("{noun} {}", quoted(&names)))
}
pub(super) fn host_ports(subject: &Subject<'_>) -> Found {
    let ports = |container: &Value| -> Vec<i64> {
        let ports = list(container, "ports").iter().filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).collect()
    };
    let names = subject.names(|container| !ports(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let mut all: Vec<String> =
        subject.containers().flat_map(ports).map(|port| port.to_string()).collect();
    all.sort_unstable();
    all.dedup();
    let (uses, noun) =
        (plural("uses", "use", names.len()), plural("hostPort", "hostPorts", all.len()));
    Violation::new("hostPort", format!("{} {uses} {noun} {}", containers(&names), all.join(", ")))
}
pub(super) fn host_probes(subject: &Subject<'_>) -> Found {
    fn hosts(container: &Value) -> Vec<&str> {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let hosts = handlers.into_iter().flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|action| text(&handler[action], "host"))
        });
        hosts.filter(|host| !host.is_empty()).collect()
    }
    let names = set(subject.names(|container| !hosts(container).is_empty()).into_iter());
    if names.is_empty() {
        return None;
    }
    let all = set(subject.containers().flat_map(hosts));
    let noun = plural("probe or lifecycle host", "probe or lifecycle hosts", all.len());
    let uses = plural("uses", "use", names.len());
    let detail = format!("{} {uses} {noun} {}", containers(&names), quoted(&all));
    Violation::new("probe or lifecycle host", detail)
}
pub(super) fn privileged(subject: &Subject<'_>) -> Found {
    let names = subject.names(|container| container["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    let containers = containers(&names);
    Violation::new(
        "privileged",
        format!("{containers} must not set securityContext.privileged=true"),
    )
}
pub(super) fn proc_mount(subject: &Subject<'_>) -> Found {
    let mount = |container: &'_ Value| -> Option<String> {
        let mount = container["securityContext"]["procMount"].as_str()?;
        (mount != "Default").then(|| mount.to_owned())
    };
    let names = subject.names(|container| mount(container).is_some());
    if names.is_empty() {
        return None;
    }
    let mounts: Vec<String> = subject.containers().filter_map(mount).collect();
    let mounts = quoted(&set(mounts.iter().map(String::as_str)));
    let containers = containers(&names);
    Violation::new(
        "procMount",
        format!("{containers} must not set securityContext.procMount to {mounts}"),
    )
}
pub(super) fn proc_mount_35(subject: &Subject<'_>) -> Found {
    unless(subject.has_own_users(), proc_mount, subject)
}

fn se_linux(subject: &Subject<'_>, types: &[&str]) -> Found {
    let options = |context: &'_ Value| context["seLinuxOptions"].clone();
    let is_bad = |options: &Value| {
        !types.contains(&text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    let setters = subject.setters(|context| is_bad(&options(context)))?;
    let all: Vec<Value> = subject.contexts().map(options).collect();
    let kinds = set(all.iter().map(|options| text(options, "type")).filter(|t| !types.contains(t)));
    let mut bad = Vec::new();
    if !kinds.is_empty() {
        bad.push(format!("{} {}", plural("type", "types", kinds.len()), quoted(&kinds)));
    }
    for member in ["user", "role"] {
        if all.iter().any(|options| !text(options, member).is_empty()) {
            bad.push(format!("{member} may not be set"));
        }
    }
    let bad = bad.join("; ");
    Violation::new(
        "seLinuxOptions",
        format!("{setters} set forbidden securityContext.seLinuxOptions: {bad}"),
    )
}
pub(super) fn se_linux_options(subject: &Subject<'_>) -> Found {
    se_linux(subject, &["", "container_t", "container_init_t", "container_kvm_t"])
}
pub(super) fn se_linux_options_31(subject: &Subject<'_>) -> Found {
    let types = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    se_linux(subject, &types)
}

/// The annotations that versions before 1.19 had.
pub(super) fn seccomp_annotations(subject: &Subject<'_>) -> Found {
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let names: HashSet<&str> = subject.names(|_| true).into_iter().collect();
    let is_meant = |key: &str| {
        let container = key.strip_prefix(SECCOMP_CONTAINER);
        key == SECCOMP_POD || container.is_some_and(|name| names.contains(name))
    };
    let bad: Vec<String> = subject
        .annotations()
        .into_iter()
        .filter(|(key, value)| is_meant(key) && !is_allowed(value))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let noun = plural("annotation", "annotations", bad.len());
    Violation::new("seccompProfile", format!("forbidden {noun} {}", bad.join(", ")))
}
pub(super) fn seccomp_baseline(subject: &Subject<'_>) -> Found {
    let is_bad = |context: &Value| {
        let profile = &context["seccompProfile"];
        profile.is_object() && !is_safe_profile(text(profile, "type"))
    };
    let setters = subject.setters(is_bad)?;
    let bad = subject.contexts().filter(|context| is_bad(context));
    let kinds = quoted(&set(bad.map(|context| text(&context["seccompProfile"], "type"))));
    Violation::new(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {kinds}"),
    )
}
pub(super) fn seccomp_restricted(subject: &Subject<'_>) -> Found {
    if let Some(found) = seccomp_baseline(subject) {
        return Some(found);
    }
    if subject.spec()["securityContext"]["seccompProfile"].is_object() {
        return None;
    }
    let names =
        subject.names(|container| !container["securityContext"]["seccompProfile"].is_object());
    if names.is_empty() {
        return None;
    }
    Violation::new(
        "seccompProfile",
        format!(
            r#"pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#,
            containers(&names)
        ),
    )
}
pub(super) fn seccomp_restricted_25(subject: &Subject<'_>) -> Found {
    match subject.is_windows() {
        // Only what is set is checked: on Windows there is no such profile.
        true => seccomp_baseline(subject),
        false => seccomp_restricted(subject),
    }
}

fn sysctls_of(subject: &Subject<'_>, version: u32) -> Found {
    let is_allowed = |name: &str| {
        SYSCTLS.iter().any(|(since, known)| *known == name && *since <= version)
            || version >= 32 && name == SYSCTL_WMEM
    };
    let all = list(&subject.spec()["securityContext"], "sysctls").iter();
    let bad: Vec<&str> =
        all.map(|sysctl| text(sysctl, "name")).filter(|name| !is_allowed(name)).collect();
    if bad.is_empty() { None } else { Violation::new("forbidden sysctls", bad.join(", ")) }
}
pub(super) fn sysctls(subject: &Subject<'_>) -> Found {
    sysctls_of(subject, 0)
}
pub(super) fn sysctls_27(subject: &Subject<'_>) -> Found {
    sysctls_of(subject, 27)
}
pub(super) fn sysctls_29(subject: &Subject<'_>) -> Found {
    sysctls_of(subject, 29)
}
pub(super) fn sysctls_32(subject: &Subject<'_>) -> Found {
    sysctls_of(subject, 32)
}
pub(super) fn host_process(subject: &Subject<'_>) -> Found {
    let setters = subject.setters(|context| context["windowsOptions"]["hostProcess"] == true)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Violation::new("hostProcess", detail)
}

pub(super) fn privilege_escalation(subject: &Subject<'_>) -> Found {
    let names = subject
        .names(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if names.is_empty() {
        return None;
    }
    let containers = containers(&names);
    let detail = format!("{containers} must set securityContext.allowPrivilegeEscalation=false");
    Violation::new("allowPrivilegeEscalation != false", detail)
}
pub(super) fn privilege_escalation_25(subject: &Subject<'_>) -> Found {
    unless(subject.is_windows(), privilege_escalation, subject)
}
pub(super) fn restricted_volumes(subject: &Subject<'_>) -> Found {
    let bad: Vec<&Value> = subject
        .volumes()
        .iter()
        .filter(|volume| !VOLUMES.iter().any(|kind| volume[*kind].is_object()))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &'_ Value| {
        let mut members = volume.as_object().into_iter().flatten().map(|(name, _)| name);
        members.find(|name| *name != "name").cloned().unwrap_or_else(|| "unknown".to_owned())
    };
    let kinds: Vec<String> = bad.iter().map(|volume| kind(volume)).collect();
    let kinds = set(kinds.iter().map(String::as_str));
    let names: Vec<&str> = bad.iter().map(|volume| text(volume, "name")).collect();
    let detail = format!(
        "{} {} {} restricted volume {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("type", "types", kinds.len()),
        quoted(&kinds)
    );
    Violation::new("restricted volume types", detail)
}
pub(super) fn run_as_non_root(subject: &Subject<'_>) -> Found {
    const REASON: &str = "runAsNonRoot != true";
    if let Some(setters) = subject.setters(|context| context["runAsNonRoot"] == false) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Violation::new(REASON, detail);
    }
    if subject.spec()["securityContext"]["runAsNonRoot"] == true {
        return None;
    }
    let names = subject.names(|container| container["securityContext"]["runAsNonRoot"].is_null());
    if names.is_empty() {
        return None;
    }
    let containers = containers(&names);
    Violation::new(
        REASON,
        format!("pod or {containers} must set securityContext.runAsNonRoot=true"),
    )
}
pub(super) fn run_as_non_root_35(subject: &Subject<'_>) -> Found {
    unless(subject.has_own_users(), run_as_non_root, subject)
}
pub(super) fn run_as_user(subject: &Subject<'_>) -> Found {
    let setters = subject.setters(|context| context["runAsUser"] == 0)?;
    Violation::new("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
pub(super) fn run_as_user_35(subject: &Subject<'_>) -> Found {
    unless(subject.has_own_users(), run_as_user, subject)
}
