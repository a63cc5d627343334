//! Calls of webhooks.

use super::{Distribution, Family, Histogram, Labels, NAMES_MAX, Series};
use crate::conversion::{Conversion, ConversionError, ConversionRequest};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint_object::skim;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Buckets of admission webhooks, in seconds.
const CALL_SECONDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Buckets of conversion webhooks, in seconds: 1 ms, doubled 14 times.
const CONVERSION_SECONDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// The name of what is counted beyond [`NAMES_MAX`] series.
const OTHER: &str = "other";
/// The largest code that is a label; higher ones are counted as this one.
const CODE_MAX: u16 = 600;

/// Counts calls of webhooks.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    calls: Mutex<BTreeMap<Call, Histogram>>,
    conversions: Arc<Mutex<BTreeMap<Versions, Histogram>>>,
}

/// A call of an admission webhook, as it is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// The name of the webhook.
    pub(crate) name: String,
    /// The operation of the request.
    pub(crate) operation: &'static str,
    /// Whether the webhook may change the object.
    pub(crate) is_mutating: bool,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The webhook allowed the request.
    Allowed,
    /// The call failed, and the failure policy lets the request pass.
    Ignored,
    /// The call failed, and so does the request.
    Failed,
    /// The webhook refused the request, with this code.
    Refused(u16),
}

impl Outcome {
    fn is_rejected(self) -> bool {
        matches!(self, Self::Failed | Self::Refused(_))
    }
    fn code(self) -> u16 {
        match self {
            Self::Allowed => 200,
            Self::Ignored | Self::Failed => 503,
            Self::Refused(code) => code.min(CODE_MAX),
        }
    }
}

/// A conversion, as it is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Versions {
    definition: Arc<str>,
    from: String,
    to: String,
    has_succeeded: bool,
}

impl Webhooks {
    /// Counts a call.
    pub(crate) fn called(&self, mut call: Call, took: Duration) {
        let mut calls = self.calls.lock();
        if calls.len() >= NAMES_MAX && !calls.contains_key(&call) {
            OTHER.clone_into(&mut call.name);
            // An answer has any code: the rest of the labels is bounded.
            if let Outcome::Refused(code) = &mut call.outcome {
                *code = CODE_MAX;
            }
        }
        calls.entry(call).or_insert_with(|| Histogram::new(&CALL_SECONDS)).time(took);
    }
    /// A conversion of a definition whose calls are counted.
    pub(crate) fn conversion(
        &self,
        definition: Arc<str>,
        conversion: Arc<dyn Conversion>,
    ) -> Arc<dyn Conversion> {
        let counts = self.conversions.clone();
        Arc::new(CountedConversion { definition, conversion, counts })
    }
    /// The families.
    pub(super) fn families(&self) -> [Family; 5] {
        let mut durations: BTreeMap<Labels, Distribution> = BTreeMap::new();
        let (mut requests, mut rejections) = (Vec::new(), Vec::new());
        let mut ignored: BTreeMap<Labels, u64> = BTreeMap::new();
        for (call, counts) in &*self.calls.lock() {
            let counts = counts.times();
            let half = if call.is_mutating { "admit" } else { "validating" };
            let labels = || {
                vec![
                    ("name", call.name.clone()),
                    ("type", half.to_owned()),
                    ("operation", call.operation.to_owned()),
                ]
            };
            let code = call.outcome.code().to_string();
            let rejected = ("rejected", call.outcome.is_rejected().to_string());
            let with = |more: &[(&'static str, String)]| [&labels()[..], more].concat();
            requests.push((with(&[rejected.clone(), ("code", code.clone())]), counts.count()));
            if call.outcome == Outcome::Ignored {
                *ignored.entry(labels()[..2].to_vec()).or_default() += counts.count();
            }
            if call.outcome.is_rejected() {
                let kind = match call.outcome {
                    Outcome::Failed => "calling_webhook_error",
                    _ => "no_error",
                };
                let labels = with(&[("error_type", kind.to_owned()), ("rejection_code", code)]);
                rejections.push((labels, counts.count()));
            }
            match durations.entry(with(&[rejected])) {
                Entry::Vacant(entry) => _ = entry.insert(counts),
                Entry::Occupied(mut all) => all.get_mut().add(&counts),
            }
        }
        let conversions = self.conversions.lock();
        let conversions = conversions.iter().map(|(versions, counts)| {
            let labels = vec![
                ("crd_name", versions.definition.to_string()),
                ("from_version", versions.from.clone()),
                ("to_version", versions.to.clone()),
                ("succeeded", versions.has_succeeded.to_string()),
            ];
            (labels, counts.times())
        });
        [
            Family {
                name: "apiserver_admission_webhook_admission_duration_seconds",
                help: "How long calls of admission webhooks took",
                series: Series::Histograms(durations.into_iter().collect()),
            },
            Family {
                name: "apiserver_admission_webhook_request_total",
                help: "Calls of admission webhooks",
                series: Series::Counters(requests),
            },
            Family {
                name: "apiserver_admission_webhook_rejection_count",
                help: "Requests that admission webhooks, or failed calls of them, have rejected",
                series: Series::Counters(rejections),
            },
            Family {
                name: "apiserver_admission_webhook_fail_open_count",
                help: "Failed calls of admission webhooks whose policy is to ignore failures",
                series: Series::Counters(ignored.into_iter().collect()),
            },
            Family {
                name: "apiserver_crd_conversion_webhook_duration_seconds",
                help: "How long calls of conversion webhooks took",
                series: Series::Histograms(conversions.collect()),
            },
        ]
    }
}

/// Counts the calls of a conversion. A batch is one call; its objects may have several versions,
/// and the first one's is counted.
#[derive(Debug)]
pub(crate) struct CountedConversion {
    definition: Arc<str>,
    conversion: Arc<dyn Conversion>,
    counts: Arc<Mutex<BTreeMap<Versions, Histogram>>>,
}

impl Conversion for CountedConversion {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        let from = request.objects.first().and_then(|object| version_of(object));
        let (_, to) = request.api_version.rsplit_once('/').unwrap_or(("", &request.api_version));
        let (to, definition, counts) =
            (to.to_owned(), self.definition.clone(), self.counts.clone());
        let begun = Instant::now();
        let call = self.conversion.convert(request);
        async move {
            let converted = call.await;
            let from = from.unwrap_or_default();
            let has_succeeded = converted.is_ok();
            let mut versions = Versions { definition, from, to, has_succeeded };
            let mut counts = counts.lock();
            if counts.len() >= NAMES_MAX && !counts.contains_key(&versions) {
                versions = Versions {
                    definition: OTHER.into(),
                    from: OTHER.to_owned(),
                    to: OTHER.to_owned(),
                    has_succeeded,
                };
            }
            let counts = counts.entry(versions);
            counts.or_insert_with(|| Histogram::new(&CONVERSION_SECONDS)).time(begun.elapsed());
            converted
        }
        .boxed()
    }
}

fn version_of(object: &[u8]) -> Option<String> {
    let version = skim::scalar(object, &["apiVersion"])?;
    Some(version.rsplit('/').next().unwrap_or_default().to_owned())
}
