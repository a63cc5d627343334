//! Writes families of metrics.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_registry::figures::{Family, Labels, Series};
use setpoint_runtime::metrics::Metrics;
use std::fmt;

/// Families that are read at each scrape.
///
/// A counter whose name does not end in `_total`, as some of kube-apiserver's, has no type:
/// OpenMetrics has no such counters.
pub(crate) struct Families<F>(F);

impl<F: Fn() -> Vec<Family> + Send + Sync + 'static> Families<F> {
    /// Registers them.
    pub(crate) fn register(metrics: &Metrics, read: F) {
        metrics.update(|registry| registry.register_collector(Box::new(Self(read))));
    }
}

impl<F> fmt::Debug for Families<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl<F: Fn() -> Vec<Family> + Send + Sync + 'static> Collector for Families<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0().iter().try_for_each(|family| encode(&mut encoder, family))
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
    let Family { name, help, series } = family;
    match series {
        Series::Counters(all) => match name.strip_suffix("_total") {
            Some(name) => {
                let kind = MetricType::Counter;
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                each(&mut family, all, |one, n| one.encode_counter::<NoLabelSet, _, u64>(n, None))
            }
            None => {
                let kind = MetricType::Unknown;
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                each(&mut family, all, |one, n| one.encode_gauge(n))
            }
        },
        Series::Gauges(all) => {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            each(&mut family, all, |one, n| one.encode_gauge(n))
        }
        Series::Histograms(all) => {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            each(&mut family, all, |one, counts| {
                let (sum, n) = (counts.sum, counts.count());
                one.encode_histogram::<NoLabelSet>(sum, n, &counts.buckets, None)
            })
        }
    }
}

/// Writes each series of a family.
fn each<T>(
    family: &mut MetricEncoder<'_>,
    all: &[(Labels, T)],
    write: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    all.iter().try_for_each(|(labels, value)| match labels.is_empty() {
        true => write(family, value),
        false => write(&mut family.encode_family(labels)?, value),
    })
}
