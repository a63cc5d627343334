//! The options of service account tokens, named as kube-apiserver's.

use crate::booleans::boolean;
use crate::durations::any_duration;
use crate::token_signer::{OpenError, Signer};
use clap::{ArgAction, Args};
use setpoint::ServeOptions;
use setpoint::object::time::Clock;
use setpoint::registry::ServiceAccountTokens;
use setpoint::runtime::metrics::Metrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How tokens of service accounts are signed and accepted.
#[derive(Debug, Args)]
pub(crate) struct ServiceAccountOptions {
    /// The private key (PEM: RSA, P-256, P-384 or P-521) that service account tokens are signed
    /// with. Default: `service-account.key` in the folder of certificates, which is made if it is
    /// missing.
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// The Unix socket of a program that signs service account tokens, in the place of a key:
    /// Kubernetes' `ExternalJWTSigner`. `@name` is an abstract socket.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = [
        "service_account_signing_key_file", "service_account_key_file",
    ])]
    service_account_signing_endpoint: Option<String>,
    /// Additional keys (PEM, public or private) whose service account tokens are accepted. May be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// The issuer of service account tokens. May be given several times: the first one is that of
    /// new tokens, all are accepted. Default: `https://kubernetes.default.svc.cluster.local`.
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,
    /// The URL of the public keys in the discovery document. Default: this server's.
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// The audiences that identify this server, separated by commas. Default: the issuers.
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// Maximum lifetime of a service account token: seconds, or a duration such as `24h`, from an
    /// hour on. Default: none.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    service_account_max_token_expiration: Option<Duration>,
    /// Whether tokens that are injected into pods are valid for a year.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    service_account_extend_token_expiration: bool,
    /// Whether a token in a Secret is accepted only while the Secret and its ServiceAccount exist.
    /// Other tokens always depend on their objects.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    service_account_lookup: bool,
}

/// The bounds of kube-apiserver.
fn lifetime(text: &str) -> Result<Duration, String> {
    let max = any_duration(text)?;
    match max.as_secs() {
        3600..=0x1_0000_0000 => Ok(max),
        _ => Err("must be between 1 hour and 2^32 seconds".to_owned()),
    }
}

impl ServiceAccountOptions {
    /// What the control plane is built with.
    pub(crate) fn tokens(&self) -> ServiceAccountTokens {
        let mut tokens = ServiceAccountTokens::new()
            .extend_expiration(self.service_account_extend_token_expiration)
            .lookup(self.service_account_lookup);
        for issuer in &self.service_account_issuer {
            tokens = tokens.issuer(issuer);
        }
        for audience in &self.api_audiences {
            tokens = tokens.audience(audience);
        }
        if let Some(uri) = &self.service_account_jwks_uri {
            tokens = tokens.jwks_uri(uri);
        }
        if let Some(max) = self.service_account_max_token_expiration {
            tokens = tokens.max_expiration(max);
        }
        tokens
    }

    /// The program that signs, if one is named. Waits for it.
    pub(crate) async fn signer(
        &self,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Option<Arc<Signer>>, OpenError> {
        let Some(path) = &self.service_account_signing_endpoint else { return Ok(None) };
        let asked = self.service_account_max_token_expiration;
        Signer::open(path, asked, clock, metrics).await.map(Some)
    }

    /// The issuers of this server's own tokens.
    pub(crate) fn issuers(&self) -> Vec<String> {
        self.tokens().issuers().into_iter().map(str::to_owned).collect()
    }

    /// Sets the files of keys.
    pub(crate) fn apply(self, mut options: ServeOptions) -> ServeOptions {
        if let Some(path) = self.service_account_signing_key_file {
            options = options.service_account_signing_key_file(path);
        }
        let keys = self.service_account_key_file.into_iter();
        keys.fold(options, ServeOptions::service_account_key_file)
    }
}
