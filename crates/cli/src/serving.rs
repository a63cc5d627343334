//! The options about the handshakes of clients, about the election among servers and about the end
//! of one, named as kube-apiserver's.

use crate::booleans::boolean;
use crate::durations::any_duration;
use anyhow::Context as _;
use clap::{ArgAction, Args};
use setpoint::ServeOptions;
use setpoint::apiserver::listen::{CertificateFiles, LIMITS, Limits, TlsPolicy};
use setpoint::runtime::election::Timings;
use std::str::FromStr;
use std::time::Duration;

/// What clients may negotiate, how servers are elected, and how the server ends.
#[derive(Debug, Args)]
pub(crate) struct ServingOptions {
    /// The oldest version of TLS: `VersionTLS12` or `VersionTLS13`. `VersionTLS10` and
    /// `VersionTLS11` are taken for `VersionTLS12`. Default: `VersionTLS12`.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// The cipher suites of TLS 1.2, separated by commas: `TLS_ECDHE_ECDSA_WITH_` or
    /// `TLS_ECDHE_RSA_WITH_` and `AES_128_GCM_SHA256`, `AES_256_GCM_SHA384` or
    /// `CHACHA20_POLY1305_SHA256`. Those of TLS 1.3 are always accepted. Default: all.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// The groups of the key exchange by number, separated by commas: 23 (P-256), 24 (P-384), 29
    /// (X25519). Default: all.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', allow_negative_numbers = true)]
    tls_curve_preferences: Vec<i64>,
    /// A certificate for clients that ask for certain hosts: its file, that of its key, and perhaps
    /// the hosts, such as `foo.crt,foo.key:*.foo.com,foo.com`. Without them, the hosts are those in
    /// the certificate. An address of the server stands for clients that connect to it and name no
    /// host. May be given several times. The files are reloaded while the server runs.
    #[arg(long, value_name = "CRT,KEY[:HOSTS]")]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Maximum concurrent requests of an HTTP/2 connection; 0: 250.
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
    /// Serve HTTP/1.1 only.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    disable_http2_serving: bool,
    /// With the feature gate `CoordinatedLeaderElection`: how long the other servers wait for a
    /// silent one that elects the holders of Leases. In whole seconds.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    coordinated_leadership_lease_duration: Duration,
    /// How long that server does so without renewing its Lease.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    coordinated_leadership_renew_deadline: Duration,
    /// How often it renews its Lease.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    coordinated_leadership_retry_period: Duration,
    /// How long requests are served after SIGTERM: `/readyz` fails and the server's address leaves
    /// the Service `kubernetes`, so that clients go elsewhere. A second signal ends the program at
    /// once.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    shutdown_delay_duration: Duration,
    /// After that, answer new requests with 429 until those in progress are done, rather than stop
    /// listening.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    shutdown_send_retry_after: bool,
}

impl ServingOptions {
    /// The durations of the election of the server that elects the holders of Leases.
    pub(crate) fn coordinated_leadership(&self) -> anyhow::Result<Timings> {
        let timings = Timings {
            lease: self.coordinated_leadership_lease_duration,
            renew: self.coordinated_leadership_renew_deadline,
            retry: self.coordinated_leadership_retry_period,
        };
        timings.validate().context("use --coordinated-leadership-*")?;
        Ok(timings)
    }

    pub(crate) fn apply(self, mut options: ServeOptions) -> anyhow::Result<ServeOptions> {
        let mut policy = TlsPolicy::default().http2(!self.disable_http2_serving);
        if !self.tls_min_version.is_empty() {
            policy = policy.min_version(&self.tls_min_version).context("use --tls-min-version")?;
        }
        let suites = self.tls_cipher_suites.iter().filter(|name| !name.is_empty());
        let suites = suites.map(String::as_str);
        policy = policy.cipher_suites(suites).context("use --tls-cipher-suites")?;
        let groups = policy.groups(self.tls_curve_preferences);
        options = options.tls_policy(groups.context("use --tls-curve-preferences")?);
        for NamedFiles { files, hosts } in self.tls_sni_cert_key {
            options = options.named_tls_files(files, hosts);
        }
        if self.http2_max_streams_per_connection > 0 {
            let streams_max = self.http2_max_streams_per_connection;
            options = options.limits(Limits { streams_max, ..LIMITS });
        }
        Ok(options
            .shutdown_delay(self.shutdown_delay_duration)
            .shutdown_send_retry_after(self.shutdown_send_retry_after))
    }
}

/// The files of a certificate, and the hosts that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedFiles {
    files: CertificateFiles,
    hosts: Vec<String>,
}

/// Why files cannot be read from a text. `Display` gives kube-apiserver's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NamedFilesError {
    #[error("empty names list is not allowed")]
    NoHosts,
    #[error("expected comma separated certificate and key file paths")]
    NoPair,
}

impl FromStr for NamedFiles {
    type Err = NamedFilesError;
    fn from_str(text: &str) -> Result<Self, NamedFilesError> {
        let (files, hosts) = match text.split_once(':') {
            Some((_, hosts)) if hosts.trim().is_empty() => return Err(NamedFilesError::NoHosts),
            Some((files, hosts)) => (files, hosts.split(',').map(str::trim).collect()),
            None => (text, Vec::new()),
        };
        let files: Vec<&str> = files.split(',').map(str::trim).collect();
        let [certificate, key] = files[..] else { return Err(NamedFilesError::NoPair) };
        Ok(Self {
            files: CertificateFiles { certificate: certificate.into(), key: key.into() },
            hosts: hosts.into_iter().map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_hosts_are_read_as_by_kube_apiserver() {
        let read = |text: &str| {
            let NamedFiles { files, hosts } = text.parse()?;
            let paths = [files.certificate, files.key].map(|path| path.display().to_string());
            Ok::<_, NamedFilesError>((paths.join(" "), hosts.join(" ")))
        };
        let both = |files: &str, hosts: &str| Ok((files.to_owned(), hosts.to_owned()));
        assert_eq!(read("a.crt,a.key"), both("a.crt a.key", ""));
        assert_eq!(read("a.crt, a.key : *.a.com, a.com"), both("a.crt a.key", "*.a.com a.com"));
        assert_eq!(read("a,b:::1"), both("a b", "::1"));
        assert_eq!(read("a,b: "), Err(NamedFilesError::NoHosts));
        assert_eq!(read("a"), Err(NamedFilesError::NoPair));
        assert_eq!(read("a,b,c:d"), Err(NamedFilesError::NoPair));
    }
}
