//! The checks of the Pod Security Standards: one row each.
use super::container_checks as on;
use super::policy::{Level, LevelVersion};
use super::subject::Subject;

/// What is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// In a few words: `hostPort`.
    pub(super) reason: String,
    /// Where and why.
    pub(super) detail: String,
}
impl Violation {
    pub(super) fn new(reason: &str, detail: impl Into<String>) -> Option<Self> {
        Some(Self { reason: reason.to_owned(), detail: detail.into() })
    }
}

type Function = fn(&Subject<'_>) -> Option<Violation>;

/// One check.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) id: &'static str,
    level: Level,
    /// The check that this one makes superfluous.
    replaces: &'static str,
    /// First minor versions, ascending, each with the check from then on.
    versions: &'static [(u32, Function)],
}

const fn row(
    id: &'static str,
    level: Level,
    replaces: &'static str,
    versions: &'static [(u32, Function)],
) -> Check {
    Check { id, level, replaces, versions }
}

/// All checks: those of the baseline, then those of restricted pods, each in the order of their
/// ids.
#[rustfmt::skip]
pub(super) static CHECKS: &[Check] = &[
    row("appArmorProfile", Level::Baseline, "", &[(0, on::app_armor_profile)]),
    row("capabilities_baseline", Level::Baseline, "", &[(0, on::capabilities_baseline)]),
    row("hostNamespaces", Level::Baseline, "", &[(0, on::host_namespaces)]),
    row("hostPathVolumes", Level::Baseline, "", &[(0, on::host_path_volumes)]),
    row("hostPorts", Level::Baseline, "", &[(0, on::host_ports)]),
    row("hostProbesAndHostLifecycle", Level::Baseline, "", &[(34, on::host_probes)]),
    row("privileged", Level::Baseline, "", &[(0, on::privileged)]),
    row("procMount", Level::Baseline, "", &[(0, on::proc_mount), (35, on::proc_mount_35)]),
    row("seLinuxOptions", Level::Baseline, "", &[(0, on::se_linux_options), (31, on::se_linux_options_31)]),
    row("seccompProfile_baseline", Level::Baseline, "", &[(0, on::seccomp_annotations), (19, on::seccomp_baseline)]),
    row("sysctls", Level::Baseline, "", &[(0, on::sysctls), (27, on::sysctls_27), (29, on::sysctls_29), (32, on::sysctls_32)]),
    row("windowsHostProcess", Level::Baseline, "", &[(0, on::host_process)]),
    row("allowPrivilegeEscalation", Level::Restricted, "", &[(8, on::privilege_escalation), (25, on::privilege_escalation_25)]),
    row("capabilities_restricted", Level::Restricted, "capabilities_baseline", &[(22, on::capabilities_restricted), (25, on::capabilities_restricted_25)]),
    row("procMount_restricted", Level::Restricted, "procMount", &[(35, on::proc_mount)]),
    row("restrictedVolumes", Level::Restricted, "hostPathVolumes", &[(0, on::restricted_volumes)]),
    row("runAsNonRoot", Level::Restricted, "", &[(0, on::run_as_non_root), (35, on::run_as_non_root_35)]),
    row("runAsUser", Level::Restricted, "", &[(23, on::run_as_user), (35, on::run_as_user_35)]),
    row("seccompProfile_restricted", Level::Restricted, "seccompProfile_baseline", &[(19, on::seccomp_restricted), (25, on::seccomp_restricted_25)]),
];

/// What a pod violates, in the order of the checks.
pub(super) fn violations(policy: &LevelVersion, subject: &Subject<'_>) -> Vec<Violation> {
    let functions = functions(policy);
    let is_replaced = |id: &str| functions.iter().any(|(check, _)| check.replaces == id);
    let found = functions.iter().filter(|(check, _)| !is_replaced(check.id));
    found.filter_map(|(_, function)| function(subject)).collect()
}

/// The checks of a policy, in its version.
fn functions(policy: &LevelVersion) -> Vec<(&'static Check, Function)> {
    let version = policy.version.unwrap_or(u32::MAX);
    let applies = CHECKS.iter().filter(|check| check.level <= policy.level);
    let function = |check: &'static Check| {
        let found = check.versions.iter().rev().find(|(since, _)| *since <= version);
        found.map(|(_, function)| (check, *function))
    };
    applies.filter_map(function).collect()
}

#[cfg(test)]
mod tests;
