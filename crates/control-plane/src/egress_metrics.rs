//! Metrics of dials through proxies, under kube-apiserver's names.

use crate::families::Families;
use setpoint_egress::{
    DialFailure, DialObserver, Protocol, Segment, Stage, Transport, TunnelStatus,
};
use setpoint_registry::figures::{Family, Histogram, Labelled, Labels, Series};
use setpoint_runtime::metrics::Metrics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in seconds.
const DIAL_SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 2.5, 12.5];

const WAY: [&str; 2] = ["protocol", "transport"];
const WAY_AND_STAGE: [&str; 3] = ["protocol", "transport", "stage"];

/// Counts dials: `apiserver_egress_dialer_dial_start_total` and `…_dial_duration_seconds` by
/// protocol and transport, and `…_dial_failure_count`, also by the stage that has failed; and
/// tunnels: `konnectivity_network_proxy_client_*`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EgressMetrics(Arc<Figures>);

#[derive(Debug)]
struct Figures {
    started: Labelled<AtomicU64>,
    failed: Labelled<AtomicU64>,
    took: Labelled<Histogram>,
    packets: Labelled<AtomicU64>,
    stream_failed: Labelled<AtomicU64>,
    tunnel_failed: Labelled<AtomicU64>,
    /// Tunnels by status, in the order of [`TunnelStatus::ALL`].
    tunnels: [AtomicU64; TunnelStatus::ALL.len()],
}

impl EgressMetrics {
    /// Registers the metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let figures = Arc::new(Figures {
            started: Labelled::counters(&WAY, 0),
            failed: Labelled::counters(&WAY_AND_STAGE, 0),
            took: Labelled::new(&WAY, 0, || Histogram::new(&DIAL_SECONDS)),
            packets: Labelled::counters(&["segment", "packet_type"], 0),
            stream_failed: Labelled::counters(&["segment", "code", "packet_type"], 0),
            tunnel_failed: Labelled::counters(&["reason"], 0),
            tunnels: Default::default(),
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

    fn tunnel(&self, from: Option<TunnelStatus>, to: Option<TunnelStatus>) {
        for (i, status) in TunnelStatus::ALL.into_iter().enumerate() {
            if to == Some(status) {
                self.0.tunnels[i].fetch_add(1, Ordering::Relaxed);
            }
            if from == Some(status) {
                self.0.tunnels[i].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn tunnel_failed(&self, why: DialFailure) {
        self.0.tunnel_failed.add(&[why.name()]);
    }

    fn packet(&self, segment: Segment, kind: &'static str) {
        self.0.packets.add(&[segment.name(), kind]);
    }

    fn stream_failed(&self, segment: Segment, code: &'static str) {
        self.0.stream_failed.add(&[segment.name(), code, "Unknown"]);
    }
}

impl Figures {
    fn statuses(&self) -> Vec<(Labels, u64)> {
        let of = |(status, n): (TunnelStatus, &AtomicU64)| {
            (vec![("status", status.name().to_owned())], n.load(Ordering::Relaxed))
        };
        TunnelStatus::ALL.into_iter().zip(&self.tunnels).map(of).collect()
    }

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
            Family {
                name: "konnectivity_network_proxy_client_stream_packets_total",
                help: "Packets in tunnels",
                series: Series::Counters(self.packets.counts()),
            },
            Family {
                name: "konnectivity_network_proxy_client_stream_errors_total",
                help: "Streams of tunnels that broke",
                series: Series::Counters(self.stream_failed.counts()),
            },
            Family {
                name: "konnectivity_network_proxy_client_dial_failure_total",
                help: "Tunnels that got no connection",
                series: Series::Counters(self.tunnel_failed.counts()),
            },
            Family {
                name: "konnectivity_network_proxy_client_client_connections",
                help: "Open tunnels",
                series: Series::Gauges(self.statuses()),
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

    #[test]
    fn tunnels_are_counted_by_status() {
        let metrics = Metrics::new();
        let counted = EgressMetrics::register(&metrics);
        let (dialing, ok) = (Some(TunnelStatus::Dialing), Some(TunnelStatus::Ok));
        for (from, to) in [(None, dialing), (None, dialing), (dialing, ok), (dialing, None)] {
            counted.tunnel(from, to);
        }
        counted.tunnel_failed(DialFailure::Endpoint);
        counted.packet(Segment::FromClient, "DIAL_REQ");
        counted.stream_failed(Segment::ToClient, "Unavailable");
        let text = metrics.prometheus();
        for line in [
            r#"client_connections{status="dialing"} 0"#,
            r#"client_connections{status="ok"} 1"#,
            r#"dial_failure_total{reason="endpoint"} 1"#,
            r#"stream_packets_total{segment="from_client",packet_type="DIAL_REQ"} 1"#,
            r#"stream_errors_total{segment="to_client",code="Unavailable",packet_type="Unknown"} 1"#,
        ] {
            let line = format!("konnectivity_network_proxy_client_{line}");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
