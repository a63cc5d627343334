//! The options about connections to kubelets and from browsers, named as kube-apiserver's.

use anyhow::Context as _;
use clap::Args;
use setpoint::apiserver::listen::CertificateFiles;
use setpoint::apiserver::{Cors, GoAwayChance, Hsts};
use setpoint::{ControlPlaneBuilder, KubeletOptions};
use std::path::PathBuf;

/// How kubelets are reached, and what answers say about connections.
#[derive(Debug, Args)]
pub(crate) struct ConnectionOptions {
    /// The client certificate (PEM, with its chain) that kubelets see: for logs, commands and
    /// forwarded ports of pods, and the proxies of nodes. Reloaded while the server runs.
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// The authorities (PEM) that kubelets' certificates are checked with. Reloaded while the
    /// server runs. Default: they are not checked.
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Which types of a node's addresses are used to reach its kubelet, the best first. Default:
    /// `Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP`.
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    kubelet_preferred_address_types: Vec<String>,
    /// The port of kubelets whose nodes name none.
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    kubelet_port: u16,
    /// Pages of which origins may read answers: regular expressions that begin the host with `^` or
    /// `//` and end it with `$` or `:`, such as `//example\.com(:|$)`. Default: none.
    #[arg(long, value_name = "REGEX,...", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// The directives of the header `Strict-Transport-Security`: `max-age=SECONDS`,
    /// `includeSubDomains`, `preload`. Default: there is no such header.
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// The chance that a request over HTTP/2 is the last of its connection, from 0 to 0.02, so that
    /// clients connect to other servers behind a load balancer now and then.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0)]
    goaway_chance: f64,
}

impl ConnectionOptions {
    pub(crate) fn apply(
        self,
        mut plane: ControlPlaneBuilder,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        let certificates = self.kubelet_client_certificate.zip(self.kubelet_client_key);
        let identity = certificates.map(|(certificate, key)| CertificateFiles { certificate, key });
        let mut kubelets = KubeletOptions::default()
            .port(self.kubelet_port)
            .files(identity, self.kubelet_certificate_authority)
            .context("use the certificates for kubelets")?;
        if !self.kubelet_preferred_address_types.is_empty() {
            kubelets = kubelets.address_types(self.kubelet_preferred_address_types);
        }
        plane = plane.kubelets(kubelets);
        if !self.cors_allowed_origins.is_empty() {
            let origins = Cors::new(self.cors_allowed_origins);
            plane = plane.cors(origins.context("use --cors-allowed-origins")?);
        }
        let directives = &self.strict_transport_security_directives;
        if !directives.is_empty() {
            let hsts = Hsts::new(directives.iter().map(String::as_str));
            plane = plane.hsts(hsts.context("use --strict-transport-security-directives")?);
        }
        let chance = GoAwayChance::new(self.goaway_chance).context("use --goaway-chance")?;
        Ok(plane.go_away_chance(chance))
    }
}
