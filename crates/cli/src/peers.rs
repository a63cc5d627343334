//! The options about other servers of the same store, named as kube-apiserver's.

use anyhow::{Context as _, bail};
use clap::Args;
use setpoint::apiserver::listen::read_file;
use setpoint::registry::{Feature, FeatureGates};
use setpoint::runtime::metrics::Metrics;
use setpoint::{ControlPlaneBuilder, PeerOptions as Peers, ServeOptions};
use std::path::PathBuf;

/// How other servers of the store reach this one, and this one them.
#[derive(Debug, Args)]
pub(crate) struct PeerOptions {
    /// The authorities (PEM) of the certificates of other servers of the store: requests for
    /// resources that this server does not serve are passed on to those that do. Read at start.
    /// Default: they are not passed on.
    #[arg(long, value_name = "FILE")]
    peer_ca_file: Option<PathBuf>,
    /// The address at which other servers of the store reach this one, with
    /// `--peer-advertise-port`. Default: the advertised address.
    #[arg(long, value_name = "IP")]
    peer_advertise_ip: Option<String>,
    /// The port at which other servers of the store reach this one, with `--peer-advertise-ip`.
    #[arg(long, value_name = "PORT")]
    peer_advertise_port: Option<u16>,
}

impl PeerOptions {
    /// Refuses options without the feature.
    pub(crate) fn check(&self, features: FeatureGates) -> anyhow::Result<()> {
        if features.is_on(Feature::UnknownVersionInteroperabilityProxy) {
            return Ok(());
        }
        for (name, is_given) in [
            ("peer-ca-file", self.peer_ca_file.is_some()),
            ("peer-advertise-ip", self.peer_advertise_ip.is_some()),
            ("peer-advertise-port", self.peer_advertise_port.is_some()),
        ] {
            if is_given {
                bail!(
                    "--{name} requires UnknownVersionInteroperabilityProxy feature to be turned on"
                );
            }
        }
        Ok(())
    }

    /// Asks peers, and counts that in `metrics`.
    pub(crate) fn apply(
        &self,
        plane: ControlPlaneBuilder,
        metrics: &Metrics,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        let Some(path) = &self.peer_ca_file else { return Ok(plane) };
        let authorities = read_file(path).context("use --peer-ca-file")?;
        let metrics = Some(metrics.clone());
        Ok(plane.peers(Peers { metrics, ..Peers::new(authorities) }))
    }

    /// Says where peers reach the server.
    pub(crate) fn serve(&self, options: ServeOptions) -> ServeOptions {
        match (&self.peer_advertise_ip, self.peer_advertise_port) {
            (Some(host), Some(port)) => options.peer_address(host, port),
            _ => options,
        }
    }
}
