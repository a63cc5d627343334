//! What authorizers, impersonation, Pod Security and policies have decided.

use super::labelled::Labelled;
use super::{AUTHORIZATION_SECONDS, Family, Histogram, Series};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Buckets of policies, in seconds.
const POLICY_SECONDS: [f64; 5] = [5e-7, 0.001, 0.01, 0.1, 1.0];

/// Final decisions, by authorizer.
#[derive(Debug)]
pub(crate) struct Authorizers(Labelled<AtomicU64>);

impl Default for Authorizers {
    fn default() -> Self {
        Self(Labelled::counters(&["type", "name", "decision"], 2))
    }
}

impl Authorizers {
    /// Counts a decision of an authorizer of this type and name.
    pub(crate) fn decided(&self, (kind, name): (&str, &str), is_allowed: bool) {
        self.0.add(&[kind, name, allowed(is_allowed)]);
    }

    pub(crate) fn family(&self) -> Family {
        Family {
            name: "apiserver_authorization_decisions_total",
            help: "Requests that an authorizer has allowed or denied",
            series: Series::Counters(self.0.counts()),
        }
    }
}

/// Requests as other users, and the questions about them, by mode.
#[derive(Debug)]
pub(crate) struct Impersonation {
    attempts: Labelled<Histogram>,
    questions: Labelled<Histogram>,
}

impl Default for Impersonation {
    fn default() -> Self {
        let times =
            || Labelled::new(&["mode", "decision"], 0, || Histogram::new(&AUTHORIZATION_SECONDS));
        Self { attempts: times(), questions: times() }
    }
}

impl Impersonation {
    /// Counts a request. `mode`: the one that allowed it; empty: none.
    pub(crate) fn attempted(&self, mode: &str, is_allowed: bool, took: Duration) {
        self.attempts.time(&[mode, allowed(is_allowed)], took);
    }

    /// Counts a question to the authorizers.
    pub(crate) fn asked(&self, mode: &str, is_allowed: bool, took: Duration) {
        self.questions.time(&[mode, allowed(is_allowed)], took);
    }

    pub(super) fn families(&self) -> [Family; 4] {
        [
            Family {
                name: "apiserver_impersonation_attempts_total",
                help: "Requests as another user",
                series: Series::Counters(self.attempts.counts()),
            },
            Family {
                name: "apiserver_impersonation_attempts_duration_seconds",
                help: "How long it took to decide whether a user may act as another one",
                series: Series::Histograms(self.attempts.times()),
            },
            Family {
                name: "apiserver_impersonation_authorization_attempts_total",
                help: "Questions to the authorizers about requests as another user",
                series: Series::Counters(self.questions.counts()),
            },
            Family {
                name: "apiserver_impersonation_authorization_attempts_duration_seconds",
                help: "How long the authorizers took to answer them",
                series: Series::Histograms(self.questions.times()),
            },
        ]
    }
}

/// Checks of pods and of templates of pods.
#[derive(Debug)]
pub(crate) struct PodSecurity {
    evaluations: Labelled<AtomicU64>,
    exemptions: Labelled<AtomicU64>,
    errors: Labelled<AtomicU64>,
}

impl Default for PodSecurity {
    fn default() -> Self {
        Self {
            evaluations: Labelled::counters(
                &[
                    "decision",
                    "policy_level",
                    "policy_version",
                    "mode",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
                0,
            )
            .with_zeros(&[
                &["allow", "privileged", "latest", "enforce", "create", "pod", ""],
                &["allow", "privileged", "latest", "enforce", "update", "pod", ""],
            ]),
            exemptions: Labelled::counters(&["request_operation", "resource", "subresource"], 0)
                .with_zeros(&[
                    &["create", "pod", ""],
                    &["update", "pod", ""],
                    &["create", "controller", ""],
                    &["update", "controller", ""],
                ]),
            errors: Labelled::counters(
                &["fatal", "request_operation", "resource", "subresource"],
                0,
            ),
        }
    }
}

impl PodSecurity {
    /// Counts a check in a mode: `enforce`, `audit`, `warn`. `about`: the operation, the kind of
    /// resource and the subresource.
    pub(crate) fn evaluated(
        &self,
        is_allowed: bool,
        [level, version]: [&str; 2],
        mode: &str,
        [operation, resource, subresource]: [&str; 3],
    ) {
        let decision = if is_allowed { "allow" } else { "deny" };
        let values = [decision, level, version, mode, operation, resource, subresource];
        self.evaluations.add(&values);
    }

    /// Counts a request that is not checked.
    pub(crate) fn exempted(&self, about: [&str; 3]) {
        self.exemptions.add(&about);
    }

    /// Counts an error. After one that is not fatal, the request is checked against the strictest
    /// policy.
    pub(crate) fn failed(&self, is_fatal: bool, [operation, resource, subresource]: [&str; 3]) {
        let fatal = if is_fatal { "true" } else { "false" };
        self.errors.add(&[fatal, operation, resource, subresource]);
    }

    pub(super) fn families(&self) -> [Family; 3] {
        let counted = |name, help, counts: &Labelled<AtomicU64>| Family {
            name,
            help,
            series: Series::Counters(counts.counts()),
        };
        [
            counted(
                "pod_security_evaluations_total",
                "Policies of Pod Security that were evaluated",
                &self.evaluations,
            ),
            counted(
                "pod_security_exemptions_total",
                "Requests that are exempt from Pod Security",
                &self.exemptions,
            ),
            counted(
                "pod_security_errors_total",
                "Errors that prevent the evaluation of Pod Security",
                &self.errors,
            ),
        ]
    }
}

/// Evaluations of admission policies, by policy and binding.
#[derive(Debug)]
pub(crate) struct Policies {
    validating: Labelled<Histogram>,
    mutating: Labelled<Histogram>,
}

impl Default for Policies {
    fn default() -> Self {
        let times = || Histogram::new(&POLICY_SECONDS);
        Self {
            validating: Labelled::new(
                &["policy", "policy_binding", "error_type", "enforcement_action"],
                2,
                times,
            ),
            mutating: Labelled::new(&["policy", "policy_binding", "error_type"], 2, times),
        }
    }
}

impl Policies {
    /// Counts a failed expression of a validating policy with a binding, with its message and what
    /// comes of it: `allow` or an action.
    pub(crate) fn validated(
        &self,
        [policy, binding]: [&str; 2],
        message: &str,
        action: &str,
        took: Duration,
    ) {
        let kind = if message.starts_with("compilation") {
            "compile_error"
        } else if message.starts_with("validation failed due to running out of cost budget") {
            "out_of_budget"
        } else {
            "invalid_error"
        };
        self.validating.time(&[policy, binding, kind, action], took);
    }

    /// Counts the outcome of a mutating policy with a binding.
    pub(crate) fn mutated(&self, [policy, binding]: [&str; 2], is_error: bool, took: Duration) {
        let kind = if is_error { "invalid_error" } else { "no_error" };
        self.mutating.time(&[policy, binding, kind], took);
    }

    pub(super) fn families(&self) -> [Family; 4] {
        [
            Family {
                name: "apiserver_validating_admission_policy_check_total",
                help: "Outcomes of validating admission policies",
                series: Series::Counters(self.validating.counts()),
            },
            Family {
                name: "apiserver_validating_admission_policy_check_duration_seconds",
                help: "How long it took to evaluate validating admission policies",
                series: Series::Histograms(self.validating.times()),
            },
            Family {
                name: "apiserver_mutating_admission_policy_check_total",
                help: "Outcomes of mutating admission policies",
                series: Series::Counters(self.mutating.counts()),
            },
            Family {
                name: "apiserver_mutating_admission_policy_check_duration_seconds",
                help: "How long it took to evaluate mutating admission policies",
                series: Series::Histograms(self.mutating.times()),
            },
        ]
    }
}

fn allowed(is_allowed: bool) -> &'static str {
    if is_allowed { "allowed" } else { "denied" }
}
