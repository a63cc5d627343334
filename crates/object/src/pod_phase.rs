//! The phases of pods (`status.phase`): `Pending`, `Running`, `Succeeded`, `Failed` and `Unknown`.

/// Whether a phase is a pod's last: `Succeeded` or `Failed` (`IsPodPhaseTerminal` of
/// `k8s.io/kubernetes/pkg/api/v1/pod`). The containers of such a pod have ended and do not start
/// again. An empty phase, which a pod without a status has, is not terminal.
///
/// ```
/// use setpoint_object::pod_phase;
///
/// assert!(pod_phase::is_terminal("Failed"));
/// assert!(!pod_phase::is_terminal("Running") && !pod_phase::is_terminal(""));
/// ```
pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}
