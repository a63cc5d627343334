//! Security contexts of pods and containers, and what an operating system does not have.
use super::{ALL_CONTAINERS, profile};
use crate::features::Feature;
use crate::kind::at::At;
use crate::kind::format;
use serde_json::Value;
use setpoint_object::name;
use std::collections::HashSet;

/// The largest user or group.
const ID_MAX: i64 = i32::MAX as i64;
/// Maximum length of the name of a kernel parameter, in bytes.
const SYSCTL_MAX: usize = 253;

/// The security context of a pod.
pub(super) fn of_pod(spec: &At<'_, '_>) {
    let at = spec.get("securityContext");
    if !at.is_set() {
        return;
    }
    for member in ["fsGroup", "runAsUser", "runAsGroup"] {
        at.get(member).between(0, ID_MAX);
    }
    for group in at.each("supplementalGroups") {
        group.between(0, ID_MAX);
    }
    if spec.is("shareProcessNamespace") && spec.is("hostPID") {
        at.shown_as("shareProcessNamespace", spec.get("shareProcessNamespace").value)
            .invalid("ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(spec, &at);
    at.get("fsGroupChangePolicy").one_of_if_set(&["Always", "OnRootMismatch"]);
    profile::seccomp(&at.get("seccompProfile"));
    windows_options(&at.get("windowsOptions"));
    profile::app_armor(&at.get("appArmorProfile"));
    at.get("supplementalGroupsPolicy").one_of_if_set(&["Merge", "Strict"]);
    // `MountOption` is a feature. Where any policy is stored, it may be that, too.
    let policy = at.get("seLinuxChangePolicy");
    let has_mounts = at.is_on(Feature::SELinuxMount) || !policy.stored().is_null();
    policy.one_of_if_set(match has_mounts {
        true => &["MountOption", "Recursive"],
        false => &["Recursive"],
    });
}

/// Kernel parameters: their names, each once, and none that the host shares.
fn sysctls(spec: &At<'_, '_>, at: &At<'_, '_>) {
    let mut names = HashSet::new();
    for sysctl in at.each("sysctls") {
        let name = sysctl.get("name");
        if !name.need() {
            continue;
        }
        let is_first = names.insert(name.text());
        if !is_sysctl(name.text()) {
            name.invalid(format!(
                r"must have at most {SYSCTL_MAX} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            ));
        } else if !is_first {
            name.duplicate();
        }
        match namespace_of(name.text()) {
            "net" if spec.is("hostNetwork") => {
                name.invalid("may not be specified when 'hostNetwork' is true");
            }
            "ipc" if spec.is("hostIPC") => {
                name.invalid("may not be specified when 'hostIPC' is true");
            }
            _ => {}
        }
    }
}
/// Names of lower case letters, digits, `-` and `_`, with dots or slashes between them.
fn is_sysctl(name: &str) -> bool {
    name.len() <= SYSCTL_MAX
        && name.split(['.', '/']).all(|part| format::has_label_form(part, b"-_"))
}
/// The namespace that a kernel parameter is in: `net`, `ipc` or none of them.
fn namespace_of(name: &str) -> &'static str {
    // The first separator says which of the two a name uses.
    let dotted;
    let name = match name.find(['.', '/']) {
        Some(i) if name[i..].starts_with('/') => {
            dotted = name.replace('/', ".");
            &dotted
        }
        _ => name,
    };
    if name.starts_with("net.") {
        "net"
    } else if matches!(name, "kernel.sem")
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p))
    {
        "ipc"
    } else {
        ""
    }
}

/// The security context of a container.
pub(super) fn of_container(at: &At<'_, '_>, host_users: bool) {
    if !at.is_set() {
        return;
    }
    for member in ["runAsUser", "runAsGroup"] {
        at.get(member).between(0, ID_MAX);
    }
    let mount = at.get("procMount");
    mount.one_of_if_set(&["Default", "Unmasked"]);
    if host_users && mount.text() == "Unmasked" {
        mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    profile::seccomp(&at.get("seccompProfile"));
    if at.get("allowPrivilegeEscalation").value == &Value::Bool(false) {
        if at.is("privileged") {
            at.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if at.texts_of("capabilities.add").any(|name| name == "CAP_SYS_ADMIN") {
            at.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    windows_options(&at.get("windowsOptions"));
    profile::app_armor(&at.get("appArmorProfile"));
}

/// Maximum lengths on Windows: of a credential specification, of a domain and of a user.
const CREDENTIAL_BYTES_MAX: usize = 64 * 1024;
const DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;

fn windows_options(at: &At<'_, '_>) {
    at.get("gmsaCredentialSpecName").formed(name::dns1123_subdomain);
    let credential = at.get("gmsaCredentialSpec");
    if credential.is_set() {
        match credential.text().len() {
            0 => credential.invalid("gmsaCredentialSpec cannot be an empty string"),
            n if n > CREDENTIAL_BYTES_MAX => {
                credential.invalid("gmsaCredentialSpec size must be under 64 KiB");
            }
            _ => {}
        }
    }
    let account = at.get("runAsUserName");
    if !account.is_set() {
        return;
    }
    let text = account.text();
    if text.is_empty() {
        return account.invalid("runAsUserName cannot be an empty string");
    }
    if text.bytes().any(|b| b.is_ascii_control()) {
        return account.invalid("runAsUserName cannot contain control characters");
    }
    let (domain, user) = match text.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => {
            return account.invalid("runAsUserName cannot contain more than one backslash");
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
        account.invalid(format!(
            "runAsUserName's Domain length must be under {DOMAIN_MAX} characters"
        ));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_windows_domain(domain)) {
        account.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    match user.len() {
        0 => account.invalid("runAsUserName's User cannot be empty"),
        n if n > USER_MAX => account.invalid(format!(
            "runAsUserName's User length must not be longer than {USER_MAX} characters"
        )),
        _ => {}
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        account.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user
        .contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']'])
    {
        account.invalid(
            r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#,
        );
    }
}
fn is_net_bios(domain: &str) -> bool {
    const FORBIDDEN: [char; 9] = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(FORBIDDEN)
}
fn is_windows_domain(domain: &str) -> bool {
    domain
        .split('.')
        .all(|label| label.len() <= 63 && format::has_label_form(&label.to_ascii_lowercase(), b"-"))
}

/// Either all containers are processes of a Windows host or none of them.
pub(super) fn host_processes(at: &At<'_, '_>) {
    let of_pod = at.get("securityContext.windowsOptions.hostProcess").value.as_bool();
    let (mut n_containers, mut n_processes) = (0, 0);
    for list in ALL_CONTAINERS {
        for container in at.each(list) {
            let own = container.get("securityContext.windowsOptions.hostProcess");
            let is_process = own.value.as_bool();
            n_containers += 1;
            n_processes += usize::from(is_process.or(of_pod) == Some(true));
            if let (Some(of_pod), Some(own_value)) = (of_pod, is_process)
                && of_pod != own_value
            {
                own.invalid(format!(
                    "pod hostProcess value must be identical if both are specified, was {of_pod}"
                ));
            }
        }
    }
    if n_processes == 0 {
        return;
    }
    if n_processes != n_containers {
        at.invalid_union(
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
    if !at.is("hostNetwork") {
        at.get("hostNetwork").invalid_as(
            &Value::Bool(false),
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
}

/// Members that Windows does not have, of pods and of the security contexts of containers, in the
/// API's order.
const NOT_WINDOWS: [&str; 15] = [
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];
const NOT_WINDOWS_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The name of the operating system, and no options of another one.
pub(super) fn operating_system(at: &At<'_, '_>) {
    let Some(os) = at.given("os") else { return };
    let name = os.get("name");
    if !name.need() {
        return;
    }
    let contexts = |rule: &dyn Fn(&At<'_, '_>)| {
        for list in ALL_CONTAINERS {
            for container in at.each(list) {
                rule(&container.get("securityContext"));
            }
        }
    };
    let refuse = |at: &At<'_, '_>, members: &[&str]| {
        for member in members.iter().filter(|member| at.has(member)) {
            at.get(member).forbidden("cannot be set for a windows pod");
        }
    };
    match name.text() {
        "linux" => {
            let rule = |context: &At<'_, '_>| {
                if context.has("windowsOptions") {
                    context
                        .get("windowsOptions")
                        .forbidden("windows options cannot be set for a linux pod");
                }
            };
            rule(&at.get("securityContext"));
            contexts(&rule);
        }
        "windows" => {
            refuse(at, &NOT_WINDOWS);
            contexts(&|context| refuse(context, &NOT_WINDOWS_CONTAINER));
        }
        _ => os.report(|path| {
            setpoint_object::field::Error::not_supported(path, name.value, &["linux", "windows"])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernel_parameters() {
        for valid in [
            "a",
            "kernel.shm_rmid_forced",
            "net/ipv4/ip_forward",
            "net.ipv4.conf.IF".to_lowercase().as_str(),
        ] {
            assert!(is_sysctl(valid), "{valid}");
        }
        for invalid in ["", "A", "_a", "a_", "a..b", ".a", "a.", "a b", &"a".repeat(254)] {
            assert!(!is_sysctl(invalid), "{invalid}");
        }
        for (name, namespace) in [
            ("net.core.somaxconn", "net"),
            ("net/core/somaxconn", "net"),
            ("kernel.shmmax", "ipc"),
            ("kernel.sem", "ipc"),
            ("fs.mqueue.msg_max", "ipc"),
            ("kernel.panic", ""),
        ] {
            assert_eq!(namespace_of(name), namespace, "{name}");
        }
    }
}
