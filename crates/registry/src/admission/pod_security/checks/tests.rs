use super::*;
use serde_json::{Value, json};

/// The error of a check for a pod in a minor version; empty: allowed.
fn of(id: &str, version: u32, pod: &Value) -> String {
    let check = CHECKS.iter().find(|check| check.id == id).unwrap();
    let found = check.versions.iter().rev().find(|(since, _)| *since <= version);
    let violation = found.and_then(|(_, function)| function(&Subject::new(pod)));
    violation.map_or_else(String::new, |found| format!("{} ({})", found.reason, found.detail))
}
fn spec(spec: Value) -> Value {
    json!({"spec": spec})
}
/// A pod with a container per security context.
fn contexts(contexts: &[Value]) -> Value {
    let containers = contexts
        .iter()
        .zip(["a", "b", "c"])
        .map(|(context, name)| json!({"name": name, "securityContext": context}));
    spec(json!({"containers": containers.collect::<Value>()}))
}
fn of_pod(context: Value) -> Value {
    spec(json!({"securityContext": context, "containers": [{"name": "a"}]}))
}

/// `(check, version, pod, what is said)`; each check has a pod that is allowed and one that is not.
fn cases() -> Vec<(&'static str, u32, Value, &'static str)> {
    let profile = |kind: &str| json!({"seccompProfile": {"type": kind}});
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}, "spec": {"containers": [{"name": "a"}]}});
    let adds = |name: &str| contexts(&[json!({"capabilities": {"add": [name]}})]);
    let volume = |kind: &str| spec(json!({"volumes": [{"name": "v", kind: {}}]}));
    let port = |n: u32| spec(json!({"containers": [{"name": "a", "ports": [{"hostPort": n}]}]}));
    let probe = |host: &str| {
        spec(json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": host}}}]}))
    };
    let sysctl = |name: &str| of_pod(json!({"sysctls": [{"name": name}]}));
    let app_armor = "container.apparmor.security.beta.kubernetes.io/a";
    let type_of = |kind: &str| of_pod(json!({"seLinuxOptions": {"type": kind}}));
    let all = json!({"capabilities": {"drop": ["ALL"]}});
    let own_users = |context: Value| {
        let mut pod = contexts(&[context]);
        pod["spec"]["hostUsers"] = false.into();
        pod
    };
    let windows = || spec(json!({"os": {"name": "windows"}, "containers": [{"name": "a"}]}));
    vec![
        ("appArmorProfile", 36, annotated(app_armor, "localhost/x"), ""),
        (
            "appArmorProfile",
            36,
            annotated(app_armor, "unconfined"),
            r#"forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/a="unconfined"")"#,
        ),
        (
            "appArmorProfile",
            36,
            of_pod(json!({"appArmorProfile": {"type": "Unconfined"}})),
            r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")"#,
        ),
        ("capabilities_baseline", 36, adds("CHOWN"), ""),
        (
            "capabilities_baseline",
            36,
            adds("NET_ADMIN"),
            r#"non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add)"#,
        ),
        ("hostNamespaces", 36, spec(json!({"hostNetwork": false})), ""),
        (
            "hostNamespaces",
            36,
            spec(json!({"hostNetwork": true, "hostPID": true})),
            "host namespaces (hostNetwork=true, hostPID=true)",
        ),
        ("hostPathVolumes", 36, volume("emptyDir"), ""),
        ("hostPathVolumes", 36, volume("hostPath"), r#"hostPath volumes (volume "v")"#),
        ("hostPorts", 36, port(0), ""),
        ("hostPorts", 36, port(80), r#"hostPort (container "a" uses hostPort 80)"#),
        ("hostProbesAndHostLifecycle", 33, probe("h"), ""),
        ("hostProbesAndHostLifecycle", 34, probe(""), ""),
        (
            "hostProbesAndHostLifecycle",
            34,
            probe("h"),
            r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#,
        ),
        ("privileged", 36, contexts(&[json!({"privileged": false})]), ""),
        (
            "privileged",
            36,
            contexts(&[json!({"privileged": true}), json!({"privileged": true})]),
            r#"privileged (containers "a", "b" must not set securityContext.privileged=true)"#,
        ),
        ("procMount", 36, contexts(&[json!({"procMount": "Default"})]), ""),
        ("procMount", 36, own_users(json!({"procMount": "Unmasked"})), ""),
        (
            "procMount",
            34,
            own_users(json!({"procMount": "Unmasked"})),
            r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        ),
        ("seLinuxOptions", 31, type_of("container_engine_t"), ""),
        (
            "seLinuxOptions",
            30,
            type_of("container_engine_t"),
            r#"seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "container_engine_t")"#,
        ),
        (
            "seLinuxOptions",
            36,
            contexts(&[json!({"seLinuxOptions": {"user": "u", "role": "r"}})]),
            r#"seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: user may not be set; role may not be set)"#,
        ),
        ("seccompProfile_baseline", 36, of_pod(profile("RuntimeDefault")), ""),
        (
            "seccompProfile_baseline",
            36,
            of_pod(profile("Unconfined")),
            r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ),
        ("seccompProfile_baseline", 18, of_pod(profile("Unconfined")), ""),
        (
            "seccompProfile_baseline",
            18,
            annotated("seccomp.security.alpha.kubernetes.io/pod", "unconfined"),
            r#"seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")"#,
        ),
        ("sysctls", 32, sysctl("net.ipv4.tcp_wmem"), ""),
        ("sysctls", 29, sysctl("net.ipv4.tcp_wmem"), "forbidden sysctls (net.ipv4.tcp_wmem)"),
        ("sysctls", 27, sysctl("net.ipv4.ip_local_reserved_ports"), ""),
        ("sysctls", 36, sysctl("kernel.msgmax"), "forbidden sysctls (kernel.msgmax)"),
        ("windowsHostProcess", 36, of_pod(json!({"windowsOptions": {"hostProcess": false}})), ""),
        (
            "windowsHostProcess",
            36,
            of_pod(json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            "allowPrivilegeEscalation",
            36,
            contexts(&[json!({"allowPrivilegeEscalation": false})]),
            "",
        ),
        ("allowPrivilegeEscalation", 25, windows(), ""),
        (
            "allowPrivilegeEscalation",
            24,
            windows(),
            r#"allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)"#,
        ),
        ("capabilities_restricted", 36, contexts(&[all]), ""),
        (
            "capabilities_restricted",
            36,
            contexts(&[
                json!({"capabilities": {"drop": ["ALL"], "add": ["CHOWN", "NET_BIND_SERVICE"]}}),
                Value::Null,
            ]),
            r#"unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"]; container "a" must not include "CHOWN" in securityContext.capabilities.add)"#,
        ),
        ("procMount_restricted", 36, contexts(&[json!({"procMount": "Default"})]), ""),
        (
            "procMount_restricted",
            36,
            own_users(json!({"procMount": "Unmasked"})),
            r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        ),
        ("restrictedVolumes", 36, volume("projected"), ""),
        (
            "restrictedVolumes",
            36,
            volume("hostPath"),
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#,
        ),
        ("runAsNonRoot", 36, of_pod(json!({"runAsNonRoot": true})), ""),
        ("runAsNonRoot", 36, own_users(json!({"runAsNonRoot": false})), ""),
        (
            "runAsNonRoot",
            36,
            contexts(&[json!({"runAsNonRoot": false}), Value::Null]),
            r#"runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)"#,
        ),
        (
            "runAsNonRoot",
            36,
            contexts(&[Value::Null, Value::Null]),
            r#"runAsNonRoot != true (pod or containers "a", "b" must set securityContext.runAsNonRoot=true)"#,
        ),
        ("runAsUser", 36, of_pod(json!({"runAsUser": 1})), ""),
        (
            "runAsUser",
            36,
            of_pod(json!({"runAsUser": 0})),
            "runAsUser=0 (pod must not set runAsUser=0)",
        ),
        ("seccompProfile_restricted", 36, contexts(&[profile("Localhost")]), ""),
        ("seccompProfile_restricted", 36, windows(), ""),
        (
            "seccompProfile_restricted",
            36,
            contexts(&[Value::Null]),
            r#"seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
    ]
}

#[test]
fn each_check_allows_and_refuses() {
    for (id, version, pod, expected) in cases() {
        assert_eq!(of(id, version, &pod), expected, "{id} in 1.{version}: {pod}");
    }
}

#[test]
fn every_check_has_cases() {
    let cases = cases();
    for check in CHECKS {
        let of = |is_allowed: bool| {
            cases.iter().any(|(id, _, _, said)| *id == check.id && said.is_empty() == is_allowed)
        };
        assert!(of(true) && of(false), "{}", check.id);
    }
}

#[test]
fn stricter_checks_replace_those_of_the_baseline() {
    let pod =
        spec(json!({"containers": [{"name": "c"}], "volumes": [{"name": "h", "hostPath": {}}]}));
    let reasons = |level: Level, version: Option<u32>| -> Vec<String> {
        let found = violations(&LevelVersion { level, version }, &Subject::new(&pod));
        found.into_iter().map(|found| found.reason).collect()
    };
    assert_eq!(reasons(Level::Privileged, None), [""; 0]);
    assert_eq!(reasons(Level::Baseline, None), ["hostPath volumes"]);
    assert_eq!(
        reasons(Level::Restricted, None),
        [
            "allowPrivilegeEscalation != false",
            "unrestricted capabilities",
            "restricted volume types",
            "runAsNonRoot != true",
            "seccompProfile"
        ]
    );
    assert_eq!(
        reasons(Level::Restricted, Some(7)),
        ["restricted volume types", "runAsNonRoot != true"]
    );
    // A mount that the baseline permits to pods with users of their own.
    let mut pod = contexts(&[json!({"procMount": "Unmasked"})]);
    pod["spec"]["hostUsers"] = false.into();
    let n_mounts = |level: Level| {
        let found = violations(&LevelVersion { level, version: None }, &Subject::new(&pod));
        found.iter().filter(|found| found.reason == "procMount").count()
    };
    assert_eq!((n_mounts(Level::Baseline), n_mounts(Level::Restricted)), (0, 1));
}
