//! Metrics of the process and of its build, under the names of Prometheus' clients and of
//! Kubernetes.

use crate::families::Families;
use http::HeaderValue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_apiserver::build_info;
use setpoint_registry::figures::{Family, Series};
use setpoint_runtime::metrics::Metrics;
use std::fmt;

/// Ticks per second in `/proc/<pid>/stat`: the same on every architecture that Linux runs on today.
const TICKS: f64 = 100.0;

/// Registers the metrics. Those of the process are read from `/proc` at each scrape; elsewhere than
/// on Linux there are none.
pub(crate) fn register(metrics: &Metrics) {
    metrics.update(|registry| registry.register_collector(Box::new(Process)));
    Families::register(metrics, || {
        let labels = build_info().into_iter().collect();
        vec![Family {
            name: "kubernetes_build_info",
            help: "The build of this server: always 1",
            series: Series::Gauges(vec![(labels, 1)]),
        }]
    });
}

/// Registers the start of the process alone.
pub(crate) fn register_start(metrics: &Metrics) {
    metrics.update(|registry| registry.register_collector(Box::new(Start)));
}

/// The start of the process in seconds since 1970, as headers write it.
pub(crate) fn start() -> Option<HeaderValue> {
    let started = Usage::read()?.started?;
    HeaderValue::try_from(format!("{:.0}", started.floor())).ok()
}

/// Name and help of the start of the process.
const START: (&str, &str) = ("process_start_time_seconds", "Start of the process, since 1970");

#[derive(Debug)]
struct Process;

#[derive(Debug)]
struct Start;

impl Collector for Start {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let started = Usage::read().and_then(|usage| usage.started);
        started.map_or(Ok(()), |started| gauge(&mut encoder, START, started))
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(usage) = Usage::read() else { return Ok(()) };
        let help = "Processor time of the process, user and system";
        let kind = MetricType::Counter;
        encoder
            .encode_descriptor("process_cpu_seconds", help, None, kind)?
            .encode_counter::<NoLabelSet, _, u64>(&usage.cpu, None)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory of the process in RAM", usage.resident),
            ("process_virtual_memory_bytes", "Addresses that the process has", usage.addresses),
            (START.0, START.1, usage.started),
            ("process_open_fds", "File descriptors that are open", usage.open_files),
            ("process_max_fds", "File descriptors that may be open", usage.open_files_max),
        ] {
            let Some(value) = value else { continue };
            gauge(&mut encoder, (name, help), value)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    value: f64,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

/// What the process uses.
#[derive(Debug, PartialEq)]
struct Usage {
    /// Seconds.
    cpu: f64,
    /// Seconds since 1970.
    started: Option<f64>,
    addresses: Option<f64>,
    resident: Option<f64>,
    open_files: Option<f64>,
    open_files_max: Option<f64>,
}

impl Usage {
    fn read() -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let mut usage = Self::parse(
            &read("/proc/self/stat"),
            &read("/proc/self/status"),
            &read("/proc/self/limits"),
            &read("/proc/stat"),
        )?;
        // Without the descriptor that reads the directory.
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|all| all.count().saturating_sub(1));
        usage.open_files = open.and_then(|n| u32::try_from(n).ok()).map(f64::from);
        Some(usage)
    }

    /// From the texts of `/proc/self/stat`, `…/status`, `…/limits` and `/proc/stat`.
    fn parse(stat: &str, status: &str, limits: &str, of_system: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain any.
        let (_, fields) = stat.rsplit_once(") ")?;
        // The first field is the third of the manual.
        let fields: Vec<&str> = fields.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let number = |text: &str, name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let booted = number(of_system, "btime ");
        Some(Self {
            cpu: (field(14)? + field(15)?) / TICKS,
            started: booted.zip(field(22)).map(|(booted, ticks)| booted + ticks / TICKS),
            addresses: field(23),
            resident: number(status, "VmRSS:").map(|kib| kib * 1024.0),
            open_files: None,
            open_files_max: number(limits, "Max open files"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_the_texts_of_proc() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 1000 8192 2 18446744073709551615 1";
        let status = "Name:\ta\nVmRSS:\t    12 kB\nThreads:\t9\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files     \n";
        let usage = Usage::parse(stat, status, limits, "cpu 1 2\nbtime 1700000000\n").unwrap();
        let expected = Usage {
            cpu: 2.0,
            started: Some(1_700_000_010.0),
            addresses: Some(8192.0),
            resident: Some(12_288.0),
            open_files: None,
            open_files_max: Some(1024.0),
        };
        assert_eq!(usage, expected);
        assert_eq!(Usage::parse("", "", "", ""), None);
    }
}
