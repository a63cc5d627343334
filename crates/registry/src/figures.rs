//! What the registry counts, for metrics: admission, webhooks, authorization, rules in CEL, and
//! the objects of each resource.
//!
//! # Theory
//!
//! Counted in place in atomic numbers, and read on request. Only calls of webhooks, which cross the
//! network, take a lock. Families have the names, labels and buckets of kube-apiserver.
//!
//! Labels are names of plugins, operations and outcomes, and names of webhooks and definitions. The
//! last two are written by users: beyond [`NAMES_MAX`] series, the rest is counted as `other`.

mod histogram;
mod webhooks;

pub use histogram::{Distribution, Histogram};
pub(crate) use webhooks::{Call, Outcome, Webhooks};

use crate::admission::Operation;
use crate::authorize::Decision;
use crate::shared::Registry;
use setpoint_object::ApiError;
use std::collections::BTreeMap;
use std::sync::OnceLock;
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
/// Buckets of rules in CEL, in seconds.
const CEL_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

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
    authorized: [Histogram; 4],
    compiled: Histogram,
    evaluated: Histogram,
}

/// Durations of a plugin or a step of admission, by operation, half and outcome. A histogram exists
/// once something is counted in it.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCounts([OnceLock<Histogram>; 16]);

const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
const HALVES: [&str; 2] = ["admit", "validate"];
const REJECTED: [&str; 2] = ["false", "true"];

impl Operation {
    /// The operation as metrics name it.
    pub(crate) fn label(self) -> &'static str {
        OPERATIONS[self.index()]
    }
    fn index(self) -> usize {
        match self {
            Self::Create => 0,
            Self::Update => 1,
            Self::Delete => 2,
            Self::Connect => 3,
        }
    }
}

impl AdmissionCounts {
    /// Counts one run of a half.
    pub(crate) fn ran<T>(
        &self,
        operation: Operation,
        is_validating: bool,
        outcome: &Result<T, ApiError>,
        took: Duration,
    ) {
        let idx =
            operation.index() * 4 + usize::from(is_validating) * 2 + usize::from(outcome.is_err());
        self.0[idx].get_or_init(|| Histogram::new(&ADMISSION_SECONDS)).time(took);
    }
    /// The series, with the name of the plugin if there is one.
    pub(crate) fn series(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (Labels, Distribution)> {
        self.0.iter().enumerate().filter_map(move |(idx, counts)| {
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
            authorized: std::array::from_fn(|_| Histogram::new(&AUTHORIZATION_SECONDS)),
            compiled: Histogram::new(&CEL_SECONDS),
            evaluated: Histogram::new(&CEL_SECONDS),
        }
    }
}

const DECISIONS: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];

impl Figures {
    /// Counts the decision on a request.
    pub(crate) fn authorized(&self, decision: &Result<Decision, ApiError>, took: Duration) {
        let idx = match decision {
            Ok(Decision::Allow(_)) => 0,
            Ok(Decision::Deny(_)) => 1,
            Ok(Decision::NoOpinion(_)) => 2,
            Err(_) => 3,
        };
        self.authorized[idx].time(took);
    }
    /// Counts the compilation of the rules of one schema.
    pub(crate) fn compiled(&self, took: Duration) {
        self.compiled.time(took);
    }
    /// Counts the evaluation of all rules for one object.
    pub(crate) fn evaluated(&self, took: Duration) {
        self.evaluated.time(took);
    }
    fn decisions(&self) -> Vec<(Labels, Distribution)> {
        let all = DECISIONS.into_iter().zip(&self.authorized);
        let all = all.map(|(word, counts)| (vec![("result", word.to_owned())], counts.times()));
        all.filter(|(_, counts)| counts.count() > 0).collect()
    }
}

impl Registry {
    /// What the registry counts, under kube-apiserver's names, with labels and buckets like there.
    /// Counting objects looks at a leaf for each 16 of them, so call it on a thread that may be
    /// held up.
    ///
    /// | family | labels |
    /// |---|---|
    /// | `apiserver_admission_controller_admission_duration_seconds` | `name`, `operation`, `type`, `rejected` |
    /// | `apiserver_admission_step_admission_duration_seconds` | the same without `name` |
    /// | `apiserver_admission_webhook_admission_duration_seconds` | `name`, `type`, `operation`, `rejected` |
    /// | `apiserver_admission_webhook_request_total` | the same, and `code` |
    /// | `apiserver_admission_webhook_rejection_count` | `name`, `type`, `operation`, `error_type`, `rejection_code` |
    /// | `apiserver_crd_conversion_webhook_duration_seconds` | `crd_name`, `from_version`, `to_version`, `succeeded` |
    /// | `authorization_attempts_total`, `authorization_duration_seconds` | `result` |
    /// | `apiserver_cel_compilation_duration_seconds` | |
    /// | `apiserver_cel_evaluation_duration_seconds` | |
    /// | `apiserver_storage_objects` | `resource`, with its group |
    /// | `apiserver_resource_objects`, `apiserver_watch_cache_resource_version` | `group`, `resource` |
    pub fn figures(&self) -> Vec<Family> {
        let figures = &self.inner.figures;
        let decisions = figures.decisions();
        let attempts = decisions.iter().map(|(labels, counts)| (labels.clone(), counts.count()));
        let mut families = vec![
            Family {
                name: "apiserver_admission_controller_admission_duration_seconds",
                help: "How long plugins of admission took",
                series: Series::Histograms(self.inner.admission.counted()),
            },
            Family {
                name: "apiserver_admission_step_admission_duration_seconds",
                help: "How long the halves of admission took, each with all plugins",
                series: Series::Histograms(figures.steps.series(None).collect()),
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
                series: Series::Histograms(vec![(Vec::new(), figures.compiled.times())]),
            },
            Family {
                name: "apiserver_cel_evaluation_duration_seconds",
                help: "How long it took to evaluate the rules in CEL for an object",
                series: Series::Histograms(vec![(Vec::new(), figures.evaluated.times())]),
            },
        ];
        families.extend(figures.webhooks.families());
        families.extend(self.objects_by_resource());
        families
    }
    fn objects_by_resource(&self) -> [Family; 3] {
        let catalog = self.catalog();
        // One row of each resource: its versions have the same objects.
        let mut rows = BTreeMap::new();
        for row in catalog.rows.values().filter(|row| !row.storage_version_hash.is_empty()) {
            rows.entry(row.storage_prefix.clone()).or_insert(row);
        }
        let (mut named, mut grouped, mut newest) = (Vec::new(), Vec::new(), Vec::new());
        for (prefix, row) in rows {
            let (index, revision) = self.inner.cache.resource(&prefix).snapshot();
            let n_objects = index.count(usize::MAX) as u64;
            let group = ("group", row.gvk.group.to_string());
            let labels = vec![group, ("resource", row.resource.to_string())];
            let name = row.group_resource().to_string();
            named.push((vec![("resource", name)], n_objects));
            grouped.push((labels.clone(), n_objects));
            newest.push((labels, revision));
        }
        [
            Family {
                name: "apiserver_storage_objects",
                help: "Objects of a resource; deprecated for apiserver_resource_objects",
                series: Series::Gauges(named),
            },
            Family {
                name: "apiserver_resource_objects",
                help: "Objects of a resource",
                series: Series::Gauges(grouped),
            },
            Family {
                name: "apiserver_watch_cache_resource_version",
                help: "The newest revision among the objects of a resource in the watch cache",
                series: Series::Gauges(newest),
            },
        ]
    }
}
