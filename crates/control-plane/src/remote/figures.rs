//! Counts of authorization webhooks, under kube-apiserver's names.

use crate::families::Families;
use setpoint_registry::figures::{DEFAULT_SECONDS, Family, Histogram, Labelled, Series};
use setpoint_remote::RequestError;
use setpoint_runtime::metrics::Metrics;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The `type` of a webhook in labels.
const WEBHOOK: &str = "Webhook";
/// Buckets of match conditions, in seconds.
const CONDITION_SECONDS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// What authorization webhooks have done. Cheap to clone; clones count together.
///
/// | family | labels |
/// |---|---|
/// | `apiserver_authorization_webhook_evaluations_total`, `…_duration_seconds` | `name`, `result`: `success`, `timeout` or `error` |
/// | `apiserver_authorization_webhook_evaluations_fail_open_total` | the same |
/// | `apiserver_authorization_match_condition_evaluation_seconds`, `…_evaluation_errors_total`, `…_exclusions_total` | `type`, `name` |
#[derive(Debug, Clone)]
pub struct AccessFigures(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    calls: Labelled<Histogram>,
    failed_open: Labelled<AtomicU64>,
    conditions: Labelled<Histogram>,
    condition_errors: Labelled<AtomicU64>,
    exclusions: Labelled<AtomicU64>,
}

impl Default for AccessFigures {
    fn default() -> Self {
        let of_calls: &[&str] = &["name", "result"];
        let of_conditions: &[&str] = &["type", "name"];
        Self(Arc::new(Counts {
            calls: Labelled::new(of_calls, 1, || Histogram::new(&DEFAULT_SECONDS)),
            failed_open: Labelled::counters(of_calls, 1),
            conditions: Labelled::new(of_conditions, 2, || Histogram::new(&CONDITION_SECONDS)),
            condition_errors: Labelled::counters(of_conditions, 2),
            exclusions: Labelled::counters(of_conditions, 2),
        }))
    }
}

impl AccessFigures {
    /// Shows them on a page of metrics.
    pub fn register(&self, metrics: &Metrics) {
        let counts = self.0.clone();
        Families::register(metrics, move || counts.families());
    }

    /// An attempt to ask a webhook.
    pub(super) fn called(&self, name: &str, took: Duration, error: Option<&RequestError>) {
        self.0.calls.time(&[name, result(error)], took);
    }

    /// A request that the next authorizer decides, because the webhook did not answer.
    pub(super) fn failed_open(&self, name: &str, error: &RequestError) {
        self.0.failed_open.add(&[name, result(Some(error))]);
    }

    /// The conditions of a webhook were evaluated.
    pub(super) fn matched(&self, name: &str, took: Duration) {
        self.0.conditions.time(&[WEBHOOK, name], took);
    }

    /// They have failed.
    pub(super) fn match_failed(&self, name: &str) {
        self.0.condition_errors.add(&[WEBHOOK, name]);
    }

    /// They exclude a request.
    pub(super) fn excluded(&self, name: &str) {
        self.0.exclusions.add(&[WEBHOOK, name]);
    }
}

fn result(error: Option<&RequestError>) -> &'static str {
    match error {
        None => "success",
        Some(error) if error.is_timeout => "timeout",
        Some(_) => "error",
    }
}

impl Counts {
    fn families(&self) -> Vec<Family> {
        vec![
            Family {
                name: "apiserver_authorization_webhook_evaluations_total",
                help: "Attempts to ask authorization webhooks",
                series: Series::Counters(self.calls.counts()),
            },
            Family {
                name: "apiserver_authorization_webhook_duration_seconds",
                help: "How long attempts to ask authorization webhooks took",
                series: Series::Histograms(self.calls.times()),
            },
            Family {
                name: "apiserver_authorization_webhook_evaluations_fail_open_total",
                help: "Requests that other authorizers decided because a webhook did not answer",
                series: Series::Counters(self.failed_open.counts()),
            },
            Family {
                name: "apiserver_authorization_match_condition_evaluation_seconds",
                help: "How long the match conditions of authorization webhooks took",
                series: Series::Histograms(self.conditions.times()),
            },
            Family {
                name: "apiserver_authorization_match_condition_evaluation_errors_total",
                help: "Requests for which match conditions of authorization webhooks failed",
                series: Series::Counters(self.condition_errors.counts()),
            },
            Family {
                name: "apiserver_authorization_match_condition_exclusions_total",
                help: "Requests that match conditions kept from authorization webhooks",
                series: Series::Counters(self.exclusions.counts()),
            },
        ]
    }
}
