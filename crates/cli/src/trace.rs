//! `--tracing-config-file`: spans of requests to an OpenTelemetry collector.

use anyhow::Context as _;
use clap::Args;
use setpoint::egress::Dialer;
use setpoint::object::time::Clock;
use setpoint::otlp::{Exporter, Resource, TracingConfig};
use setpoint::runtime::election::machine_identity;
use setpoint::spans::Tracer;
use std::path::PathBuf;

/// What kube-apiserver's spans are of.
const SERVICE: &str = "apiserver";

/// Where spans are sent.
#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// A TracingConfiguration (`apiserver.config.k8s.io/v1`): the collector that gets spans of
    /// requests by OTLP over gRPC, and how many requests are sampled. Read at start.
    #[arg(long, value_name = "FILE")]
    tracing_config_file: Option<PathBuf>,
}

impl TraceOptions {
    /// The tracer, and the exporter of its spans, which connects with the dialer; `None`: nothing
    /// is traced.
    pub(crate) async fn open(
        self,
        clock: &Clock,
        dialer: Dialer,
    ) -> anyhow::Result<Option<(Tracer, Exporter)>> {
        let Some(path) = self.tracing_config_file else { return Ok(None) };
        let config = tokio::task::spawn_blocking(move || TracingConfig::load(&path)).await??;
        let identity = machine_identity().context("read the operating system's randomness")?;
        let resource = Resource {
            service_name: SERVICE.to_owned(),
            instance_id: format!("{SERVICE}-{identity}"),
        };
        let seed = setpoint::object::seed::from_entropy();
        let tracer = Tracer::new(config.sampling, clock.clone(), seed);
        let exporter = Exporter::new(tracer.queue().clone(), config.endpoint, resource);
        Ok(Some((tracer, exporter.dialer(dialer))))
    }
}
