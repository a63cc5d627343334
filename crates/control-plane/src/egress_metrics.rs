//! Metrics of dials through proxies, under kube-apiserver's names.

use crate::families::Families;
use setpoint_egress::{DialObserver, Protocol, Stage, Transport};
use setpoint_registry::figures::{Family, Histogram, Labelled, Series};
use setpoint_runtime::metrics::Metrics;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Upper bounds of the buckets in seconds.
const DIAL_SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 2.5, 12.5];

const WAY: [&str; 2] = ["protocol", "transport"];
const WAY_AND_STAGE: [&str; 3] = ["protocol", "transport", "stage"];

/// Counts dials: `apiserver_egress_dialer_dial_start_total` and `…_dial_duration_seconds` by
/// protocol and transport, and `…_dial_failure_count`, also by the stage that has failed. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub struct EgressMetrics(Arc<Figures>);

#[derive(Debug)]
struct Figures {
    started: Labelled<AtomicU64>,
    failed: Labelled<AtomicU64>,
    took: Labelled<Histogram>,
}

impl EgressMetrics {
    /// Registers the metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let figures = Arc::new(Figures {
            started: Labelled::counters(&WAY, 0),
            failed: Labelled::counters(&WAY_AND_STAGE, 0),
            took: Labelled::new(&WAY, 0, || Histogram::new(&DIAL_SECONDS)),
        });
        let read = figures.clone();
        Families::register(metrics, move || read.families());
        Self(figures)
    }
}

impl DialObserver for EgressMetrics {
    fn started(&self, protocol: Protocol, transport: Transport) {
        self.0.started.add(&[protocol.name(), transport.name()]);
    }

    fn failed(&self, protocol: Protocol, transport: Transport, stage: Stage) {
        self.0.failed.add(&[protocol.name(), transport.name(), stage.name()]);
    }

    fn dialed(&self, protocol: Protocol, transport: Transport, took: Duration) {
        self.0.took.time(&[protocol.name(), transport.name()], took);
    }
}

impl Figures {
    fn families(&self) -> Vec<Family> {
        vec![
            Family {
                name: "apiserver_egress_dialer_dial_start_total",
                help: "Dials through proxies",
                series: Series::Counters(self.started.counts()),
            },
            Family {
                name: "apiserver_egress_dialer_dial_failure_count",
                help: "Dials through proxies that failed",
                series: Series::Counters(self.failed.counts()),
            },
            Family {
                name: "apiserver_egress_dialer_dial_duration_seconds",
                help: "How long dials through proxies took that succeeded",
                series: Series::Histograms(self.took.times()),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_are_counted_by_way_and_stage() {
        let metrics = Metrics::new();
        let counted = EgressMetrics::register(&metrics);
        let http = (Protocol::HttpConnect, Transport::Tcp);
        let grpc = (Protocol::Grpc, Transport::Uds);
        for (protocol, transport) in [http, grpc, grpc] {
            counted.started(protocol, transport);
        }
        counted.failed(grpc.0, grpc.1, Stage::Proxy);
        counted.dialed(http.0, http.1, Duration::from_millis(30));
        let text = metrics.prometheus();
        for line in [
            r#"dial_start_total{protocol="http_connect",transport="tcp"} 1"#,
            r#"dial_start_total{protocol="grpc",transport="uds"} 2"#,
            r#"dial_failure_count{protocol="grpc",transport="uds",stage="proxy"} 1"#,
            r#"dial_duration_seconds_count{protocol="http_connect",transport="tcp"} 1"#,
            r#"dial_duration_seconds_bucket{le="0.1",protocol="http_connect",transport="tcp"} 1"#,
        ] {
            assert!(text.contains(&format!("apiserver_egress_dialer_{line}")), "{line}\n{text}");
        }
    }
}
