//! What a kubelet refuses because of security contexts.

use super::{full_name, items, text};
use serde_json::Value;

/// The sysctls that kubelets let pods set, and whether they belong to the network. The others
/// belong to the pod's IPC.
const SAFE_SYSCTLS: [(&str, bool); 12] = [
    ("kernel.shm_rmid_forced", false),
    ("net.ipv4.ip_local_port_range", true),
    ("net.ipv4.tcp_syncookies", true),
    ("net.ipv4.ping_group_range", true),
    ("net.ipv4.ip_unprivileged_port_start", true),
    ("net.ipv4.ip_local_reserved_ports", true),
    ("net.ipv4.tcp_keepalive_time", true),
    ("net.ipv4.tcp_fin_timeout", true),
    ("net.ipv4.tcp_keepalive_intvl", true),
    ("net.ipv4.tcp_keepalive_probes", true),
    ("net.ipv4.tcp_rmem", true),
    ("net.ipv4.tcp_wmem", true),
];

/// Why the pod's sysctls are refused.
pub(super) fn forbidden_sysctl(spec: &Value) -> Option<String> {
    items(&spec["securityContext"]["sysctls"]).iter().find_map(|sysctl| {
        let name = normalized(text(&sysctl["name"]));
        let found = SAFE_SYSCTLS.iter().find(|(safe, _)| *safe == name);
        let fault = match found {
            None => "not allowlisted",
            Some((_, true)) if spec["hostNetwork"] == true => "not allowed with host Net enabled",
            Some((_, false)) if spec["hostIPC"] == true => "not allowed with host IPC enabled",
            Some(_) => return None,
        };
        Some(format!("forbidden sysctl: {name:?} {fault}"))
    })
}

/// A name with dots between its parts. If its first separator is a slash, slashes are its
/// separators, and dots belong to its parts.
fn normalized(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

/// Why a container cannot be made: it must not run as root, and says that it does. The user of its
/// image is not known.
pub(super) fn fault(pod: &Value, container: &Value) -> Option<String> {
    let contexts = [&container["securityContext"], &pod["spec"]["securityContext"]];
    let given = |member: &str| {
        contexts.iter().map(|context| &context[member]).find(|value| !value.is_null())
    };
    let breaks = given("runAsNonRoot").is_some_and(|value| *value == true)
        && given("runAsUser").is_some_and(|user| *user == 0);
    breaks.then(|| {
        let (pod, container) = (full_name(pod), text(&container["name"]));
        let fault = "container's runAsUser breaks non-root policy";
        format!("{fault} (pod: \"{pod}\", container: {container})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_safe_sysctls_of_own_namespaces_are_set() {
        let fault = |name: &str, member: &str| {
            let sysctls = json!([{"name": name, "value": "1"}]);
            forbidden_sysctl(&json!({"securityContext": {"sysctls": sysctls}, member: true}))
        };
        for (name, member, forbidden) in [
            ("kernel.shm_rmid_forced", "hostNetwork", None),
            ("kernel/shm_rmid_forced", "x", None),
            ("kernel.msgmax", "x", Some(r#"forbidden sysctl: "kernel.msgmax" not allowlisted"#)),
            (
                "net.ipv4.tcp_rmem",
                "hostNetwork",
                Some(r#"forbidden sysctl: "net.ipv4.tcp_rmem" not allowed with host Net enabled"#),
            ),
            (
                "kernel.shm_rmid_forced",
                "hostIPC",
                Some(
                    r#"forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled"#,
                ),
            ),
        ] {
            assert_eq!(fault(name, member).as_deref(), forbidden);
        }
    }

    #[test]
    fn a_container_that_must_not_be_root_is_not_made_as_root() {
        let fault = |pod: Value, container: Value| {
            let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
                             "spec": {"securityContext": pod}});
            fault(&pod, &json!({"name": "c", "securityContext": container}))
        };
        let message =
            "container's runAsUser breaks non-root policy (pod: \"p_n(u)\", container: c)";
        let (strict, root) = (json!({"runAsNonRoot": true}), json!({"runAsUser": 0}));
        assert_eq!(fault(strict.clone(), root.clone()).as_deref(), Some(message));
        assert_eq!(
            fault(json!({"runAsNonRoot": true, "runAsUser": 0}), json!({"runAsUser": 7})),
            None
        );
        assert_eq!(fault(root, json!({"runAsNonRoot": false})), None);
        assert_eq!(fault(strict, json!({})), None, "the image says who it is");
    }
}
