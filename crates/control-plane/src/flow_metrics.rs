//! Metrics of priority and fairness, under kube-apiserver's names.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_apiserver::{
    FlowControl, FlowControlReader, FlowFigures, LevelFigures, UtilizationFigures,
};
use setpoint_registry::figures::Distribution;
use setpoint_runtime::metrics::Metrics;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Writes the figures at each scrape. Empty until the server is built.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowMetrics(Arc<OnceLock<FlowControlReader>>);

impl FlowMetrics {
    /// Registers the metrics.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        metrics.update(|registry| registry.register_collector(Box::new(new.clone())));
        new
    }

    /// Sets the server whose figures are written, once.
    pub(crate) fn follow(&self, reader: FlowControlReader) {
        // A second server keeps the first one's place: builders are used once.
        _ = self.0.set(reader);
    }
}

impl Collector for FlowMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(reader) = self.0.get() else { return Ok(()) };
        let figures = reader.read();
        levels(&mut encoder, &figures)?;
        flows(&mut encoder, &figures)
    }
}

/// A gauge of levels: name without its start, help, value.
type OfLevel = (&'static str, &'static str, fn(&LevelFigures) -> i64);
const LEVELS: [OfLevel; 4] = [
    ("nominal_limit_seats", "Seats of a level by its shares", |level| level.nominal.into()),
    ("lower_limit_seats", "Seats that a level never lends", |level| level.min.into()),
    ("upper_limit_seats", "Seats of a level with borrowed ones", |level| level.max.into()),
    ("current_limit_seats", "Seats that a level may use now", |level| level.current.into()),
];

fn levels(encoder: &mut DescriptorEncoder<'_>, figures: &FlowControl) -> fmt::Result {
    for (name, help, value) in LEVELS {
        let name = format!("apiserver_flowcontrol_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for level in &figures.levels {
            let labels = [("priority_level", level.priority_level.as_str())];
            family.encode_family(&labels)?.encode_gauge(&value(level))?;
        }
    }
    let name = "apiserver_flowcontrol_priority_level_seat_utilization";
    let help = "The part of a level's seats that is in use, as of each nanosecond";
    let seats: &[PartOfLevel] = &[("executing", |used| &used.seats)];
    utilization(encoder, name, help, seats, figures)?;
    let name = "apiserver_flowcontrol_priority_level_request_utilization";
    let help = "The requests of a level as a part of its limits, as of each nanosecond";
    let requests: &[PartOfLevel] =
        &[("waiting", |used| &used.waiting), ("executing", |used| &used.executing)];
    utilization(encoder, name, help, requests, figures)
}

/// A part of a level's limits: the phase of requests, and its distribution.
type PartOfLevel = (&'static str, fn(&UtilizationFigures) -> &Distribution);

/// Writes parts of levels that are not exempt.
fn utilization(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    parts: &[PartOfLevel],
    figures: &FlowControl,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for level in &figures.levels {
        let Some(used) = &level.utilization else { continue };
        for (phase, part) in parts {
            let labels = [("phase", *phase), ("priority_level", level.priority_level.as_str())];
            let mut metric = family.encode_family(&labels)?;
            let part = part(used);
            metric.encode_histogram::<NoLabelSet>(part.sum, part.count(), &part.buckets, None)?;
        }
    }
    Ok(())
}

/// A gauge of schemas: name without its start, help, value.
type OfFlow = (&'static str, &'static str, fn(&FlowFigures) -> u64);
const FLOWS: [OfFlow; 4] = [
    ("current_inqueue_requests", "Requests that wait", |flow| flow.waiting),
    ("current_inqueue_seats", "Seats of the requests that wait", |flow| flow.waiting_seats),
    ("current_executing_requests", "Requests that run", |flow| flow.executing),
    ("current_executing_seats", "Seats of the requests that run", |flow| flow.seats),
];

/// Numbers that each request of a schema adds: name without its start, help, distribution.
type Numbers = (&'static str, &'static str, fn(&FlowFigures) -> &Distribution);
const NUMBERS: [Numbers; 2] = [
    (
        "request_queue_length_after_enqueue",
        "Requests in a queue, with the one that came to it",
        |flow| &flow.queue_lengths,
    ),
    ("work_estimated_seats", "Seats that requests need", |flow| &flow.needed_seats),
];

fn labels(flow: &FlowFigures) -> [(&str, &str); 2] {
    [("priority_level", &flow.priority_level), ("flow_schema", &flow.flow_schema)]
}

fn flows(encoder: &mut DescriptorEncoder<'_>, figures: &FlowControl) -> fmt::Result {
    for (name, help, value) in FLOWS {
        let name = format!("apiserver_flowcontrol_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for flow in &figures.flows {
            let value = i64::try_from(value(flow)).unwrap_or(i64::MAX);
            family.encode_family(&labels(flow))?.encode_gauge(&value)?;
        }
    }
    let (name, help) = ("apiserver_flowcontrol_dispatched_requests", "Requests that began to run");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for flow in &figures.flows {
        let labels = labels(flow);
        let mut metric = family.encode_family(&labels)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&flow.dispatched, None)?;
    }
    let (name, help) = ("apiserver_flowcontrol_rejected_requests", "Requests that were refused");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for flow in &figures.flows {
        // Series begin with the first refusal, as kube-apiserver's do.
        for (reason, count) in flow.rejected.iter().filter(|(_, count)| *count > 0) {
            let [level, schema] = labels(flow);
            let labels = [level, schema, ("reason", *reason)];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
    }
    let (name, help) =
        ("apiserver_flowcontrol_request_wait_duration_seconds", "How long requests waited");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for flow in &figures.flows {
        for (executed, waited) in ["false", "true"].into_iter().zip(&flow.waited) {
            let n = waited.count();
            if n > 0 {
                let [level, schema] = labels(flow);
                let labels = [level, schema, ("execute", executed)];
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(waited.sum, n, &waited.buckets, None)?;
            }
        }
    }
    let (name, help) = ("apiserver_flowcontrol_request_execution_seconds", "How long requests ran");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for flow in &figures.flows {
        for (kind, executed) in ["watch", "regular"].into_iter().zip(&flow.executed) {
            let n = executed.count();
            if n > 0 {
                let [level, schema] = labels(flow);
                let labels = [level, schema, ("type", kind)];
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(executed.sum, n, &executed.buckets, None)?;
            }
        }
    }
    for (name, help, value) in NUMBERS {
        let name = format!("apiserver_flowcontrol_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        for flow in &figures.flows {
            let Distribution { sum, buckets } = value(flow);
            let n = buckets.iter().map(|(_, count)| count).sum();
            if n > 0 {
                let labels = labels(flow);
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(*sum, n, buckets, None)?;
            }
        }
    }
    Ok(())
}
