//! What the registry counts, for metrics: admission, webhooks, authorization, rules in CEL,
//! requests to the store, and the objects of each resource.
//!
//! # Theory
//!
//! Counted in place in atomic numbers, and read on request. Requests to the store take a lock of
//! readers; only calls of webhooks, which cross the network, take one that excludes others.
//! Families have the names, labels and buckets of kube-apiserver.
//!
//! Labels are names of plugins, operations and outcomes, and names that users write: of webhooks,
//! definitions, policies and networks. Beyond [`NAMES_MAX`] series, the rest is counted as `other`.

mod allocations;
mod changes;
mod decisions;
mod histogram;
mod labelled;
mod store;
mod webhooks;

pub(crate) use allocations::{Allocations, Choice, Usage};
pub(crate) use changes::Changes;
pub(crate) use decisions::{Authorizers, Impersonation, PodSecurity, Policies};
pub use histogram::{Distribution, Histogram};
pub use labelled::Labelled;
pub(crate) use store::{MeasuredStore, StoreRequests};
pub(crate) use webhooks::{Call, Outcome, Webhooks};

use crate::features::{Emulation, FeatureGates, Release};
use setpoint_object::ApiError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum series whose labels are names that users choose, in each family.
pub const NAMES_MAX: usize = 1_000;

/// Buckets of plugins and steps of admission, in seconds.
const ADMISSION_SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Buckets of authorization, in seconds: 1 ms, doubled 14 times.
const AUTHORIZATION_SECONDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// Prometheus' default buckets, in seconds: of rules in CEL, of allocations, of webhooks that
/// authorize.
pub const DEFAULT_SECONDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Labels of a series: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// A family of metrics.
#[derive(Debug)]
pub struct Family {
    /// The full name, as it is in Prometheus' text format.
    pub name: &'static str,
    /// One line about it.
    pub help: &'static str,
    /// Its series.
    pub series: Series,
}

/// The series of a family.
#[derive(Debug)]
pub enum Series {
    /// Numbers that only grow.
    Counters(Vec<(Labels, u64)>),
    /// Numbers.
    Gauges(Vec<(Labels, u64)>),
    /// Distributions.
    Histograms(Vec<(Labels, Distribution)>),
}

/// The counts of a registry.
#[derive(Debug)]
pub(crate) struct Figures {
    /// The steps of admission.
    pub(crate) steps: AdmissionCounts,
    /// Calls of admission and conversion webhooks.
    pub(crate) webhooks: Webhooks,
    /// Requests to the store.
    pub(crate) store: Arc<StoreRequests>,
    /// Requests as other users.
    pub(crate) impersonation: Impersonation,
    /// Checks of pods.
    pub(crate) pod_security: PodSecurity,
    /// Evaluations of admission policies.
    pub(crate) policies: Policies,
    /// Changes that kinds count.
    pub(crate) changes: Changes,
    authorized: [Histogram; 4],
    compiled: Histogram,
    evaluated: Histogram,
}

/// Durations of a plugin or a step of admission, by operation, half and outcome. Made once
/// something is counted: an idle registry holds no space for those of its plugins.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCounts(OnceLock<Box<[OnceLock<Histogram>; 16]>>);

/// Operations, as metrics name them.
pub(crate) const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
const HALVES: [&str; 2] = ["admit", "validate"];
const REJECTED: [&str; 2] = ["false", "true"];

impl AdmissionCounts {
    /// Counts one run of a half. The operation is an index of [`OPERATIONS`].
    pub(crate) fn ran<T>(
        &self,
        operation: usize,
        is_validating: bool,
        outcome: &Result<T, ApiError>,
        took: Duration,
    ) {
        let idx = operation * 4 + usize::from(is_validating) * 2 + usize::from(outcome.is_err());
        let histogram = &self.0.get_or_init(Box::default)[idx];
        histogram.get_or_init(|| Histogram::new(&ADMISSION_SECONDS)).time(took);
    }
    /// The series, with the name of the plugin if there is one.
    pub(crate) fn series(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (Labels, Distribution)> {
        let all = self.0.get().into_iter().flat_map(|all| all.iter());
        all.enumerate().filter_map(move |(idx, counts)| {
            let counts = counts.get()?.times();
            let name = name.map(|name| ("name", name.to_owned()));
            let others = [
                ("operation", OPERATIONS[idx / 4]),
                ("type", HALVES[idx / 2 % 2]),
                ("rejected", REJECTED[idx % 2]),
            ];
            let others = others.map(|(name, value)| (name, value.to_owned()));
            Some((name.into_iter().chain(others).collect(), counts))
        })
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            steps: AdmissionCounts::default(),
            webhooks: Webhooks::default(),
            store: Arc::default(),
            impersonation: Impersonation::default(),
            pod_security: PodSecurity::default(),
            policies: Policies::default(),
            changes: Changes::default(),
            authorized: std::array::from_fn(|_| Histogram::new(&AUTHORIZATION_SECONDS)),
            compiled: Histogram::new(&DEFAULT_SECONDS),
            evaluated: Histogram::new(&DEFAULT_SECONDS),
        }
    }
}

/// The beta counters of faults of Kubernetes' declarative validation. There is none here, so they
/// stay zero; end-to-end tests check that they are there.
fn declarative_validation() -> impl Iterator<Item = Family> {
    let families = [
        (
            "apiserver_validation_declarative_validation_mismatch_total",
            "How often declarative validation, which this server does not have, found something else",
        ),
        (
            "apiserver_validation_declarative_validation_panic_total",
            "How often declarative validation, which this server does not have, panicked",
        ),
    ];
    families.into_iter().map(|(name, help)| Family {
        name,
        help,
        series: Series::Counters(vec![(Vec::new(), 0)]),
    })
}

/// The release whose API the server has, beside the one that it is of.
fn version(emulation: Emulation) -> Family {
    let labels = [
        ("binary", Release::PRESENT.to_string()),
        ("component", "kube".to_owned()),
        ("emulation", emulation.release().to_string()),
        ("min_compat", emulation.min_compatibility().to_string()),
    ];
    Family {
        name: "version_info",
        help: "The emulated release, and the oldest one that shares the store",
        series: Series::Gauges(vec![(labels.into(), 1)]),
    }
}

/// Which features are on.
fn features(gates: FeatureGates) -> Family {
    let series = gates.known().map(|(feature, stage)| {
        let labels = [("name", feature.name()), ("stage", stage)];
        let labels = labels.map(|(name, value)| (name, value.to_owned()));
        (labels.into(), u64::from(gates.is_on(feature)))
    });
    Family {
        name: "kubernetes_feature_enabled",
        help: "Whether a feature is on",
        series: Series::Gauges(series.collect()),
    }
}

/// A decision on a request, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decided {
    Allowed,
    Denied,
    NoOpinion,
    Failed,
}

/// The decisions in order, as metrics name them.
const DECISIONS: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];

impl Figures {
    /// Counts the decision on a request.
    pub(crate) fn authorized(&self, decided: Decided, took: Duration) {
        self.authorized[decided as usize].time(took);
    }
    /// Counts the compilation of the rules of one schema.
    pub(crate) fn compiled(&self, took: Duration) {
        self.compiled.time(took);
    }
    /// Counts the evaluation of all rules for one object.
    pub(crate) fn evaluated(&self, took: Duration) {
        self.evaluated.time(took);
    }
    /// The families, with how long each plugin of admission took, and which features are on.
    pub(crate) fn families(
        &self,
        plugins: Vec<(Labels, Distribution)>,
        gates: FeatureGates,
    ) -> Vec<Family> {
        let decisions = self.decisions();
        let attempts = decisions.iter().map(|(labels, counts)| (labels.clone(), counts.count()));
        let mut families = vec![
            Family {
                name: "apiserver_admission_controller_admission_duration_seconds",
                help: "How long plugins of admission took",
                series: Series::Histograms(plugins),
            },
            Family {
                name: "apiserver_admission_step_admission_duration_seconds",
                help: "How long the halves of admission took, each with all plugins",
                series: Series::Histograms(self.steps.series(None).collect()),
            },
            Family {
                name: "authorization_attempts_total",
                help: "Decisions of authorization",
                series: Series::Counters(attempts.collect()),
            },
            Family {
                name: "authorization_duration_seconds",
                help: "How long authorization took",
                series: Series::Histograms(decisions),
            },
            Family {
                name: "apiserver_cel_compilation_duration_seconds",
                help: "How long it took to compile the rules in CEL of a definition's version",
                series: Series::Histograms(vec![(Vec::new(), self.compiled.times())]),
            },
            Family {
                name: "apiserver_cel_evaluation_duration_seconds",
                help: "How long it took to evaluate the rules in CEL for an object",
                series: Series::Histograms(vec![(Vec::new(), self.evaluated.times())]),
            },
        ];
        families.extend(self.webhooks.families());
        families.extend(self.impersonation.families());
        families.extend(self.pod_security.families());
        families.extend(self.policies.families());
        families.extend(self.changes.families());
        families.extend(declarative_validation());
        families.extend([features(gates), version(gates.emulation())]);
        families
    }
    fn decisions(&self) -> Vec<(Labels, Distribution)> {
        let all = DECISIONS.into_iter().zip(&self.authorized);
        let all = all.map(|(word, counts)| (vec![("result", word.to_owned())], counts.times()));
        all.filter(|(_, counts)| counts.count() > 0).collect()
    }
}
