//! The options about users: how they are known, and what they may do. Named as kube-apiserver's.

use crate::booleans::boolean;
use crate::durations::any_duration;
use crate::egress::Egress;
use crate::issuers::IssuerOptions;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use setpoint::abac::Abac;
use setpoint::apiserver::Anonymous;
use setpoint::egress::{Dialer, EgressType};
use setpoint::object::field::quote;
use setpoint::object::time::Clock;
use setpoint::registry::{AllowAuthenticated, AlwaysDeny};
use setpoint::remote::{AccessFigures, AccessWebhook, AccessWebhookOptions, TokenWebhook};
use setpoint::runtime::metrics::Metrics;
use setpoint::{AuthorizationConfig, ConfigMetrics, ControlPlaneBuilder, IssuerMetrics};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Who is known, and who may do what.
#[derive(Debug, Args)]
pub(crate) struct UserOptions {
    /// Who may do what, in the order of the modes. `RBAC`: what roles and bindings allow; those of
    /// a new cluster are created. `AlwaysAllow`: every authenticated user may do everything.
    /// `AlwaysDeny`: only members of `system:masters` may do anything.
    /// `Webhook`: another server decides. `Node`: the rights of node agents. `ABAC`: the policies
    /// of `--authorization-policy-file`.
    /// Default: `RBAC`.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE[,MODE...]")]
    authorization_mode: Vec<AuthorizationMode>,
    /// A file of kind AuthorizationConfiguration with the chain of authorizers. It is reloaded
    /// while the server runs. Excludes `--authorization-mode` and `--authorization-webhook-*`.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// A file with a policy a line, in JSON, for the mode `ABAC` or that type of
    /// `--authorization-config`. It is read once.
    #[arg(long, value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
    #[command(flatten)]
    issuers: IssuerOptions,
    /// Whether requests without credentials are answered as those of `system:anonymous`, who may
    /// read health and version unless a role allows more. Otherwise they are answered with 401.
    /// Default: true, unless `AlwaysAllow` is a mode; then only health endpoints are.
    #[arg(long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    anonymous_auth: Option<bool>,
    /// A kubeconfig with the server that decides in the mode `Webhook`
    /// (`authorization.k8s.io/v1` SubjectAccessReview).
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// How long a request that the webhook allowed stays allowed. 0: the webhook is asked each
    /// time. Default: 5m.
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long any other decision of the webhook counts. Default: 30s.
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// A kubeconfig with a server that authenticates further bearer tokens
    /// (`authentication.k8s.io/v1` TokenReview).
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers count.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = any_duration)]
    authentication_token_webhook_cache_ttl: Duration,
}

/// Authorization, by kube-apiserver's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthorizationMode {
    /// Roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
    /// Everything is allowed to authenticated users.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nothing is allowed.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
    /// Policies of a file.
    #[value(name = "ABAC")]
    Abac,
    /// What the agents of nodes need.
    #[value(name = "Node")]
    Node,
    /// Another server decides.
    #[value(name = "Webhook")]
    Webhook,
}

impl AuthorizationMode {
    fn name(self) -> &'static str {
        match self {
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Abac => "ABAC",
            Self::Node => "Node",
            Self::Webhook => "Webhook",
        }
    }
}

impl UserOptions {
    /// Adds the authenticators and authorizers. `own_issuers`: those of this server's tokens.
    /// `server_hash`: in metrics. `egress`: how other servers are reached.
    pub(crate) async fn apply(
        &self,
        mut plane: ControlPlaneBuilder,
        clock: &Clock,
        metrics: &Metrics,
        own_issuers: Vec<String>,
        server_hash: &str,
        egress: &Egress,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        let dialer = egress.selector.dialer(EgressType::ControlPlane);
        let counted =
            |subject| ConfigMetrics::register(metrics, subject, clock.clone(), server_hash);
        let observer = || IssuerMetrics::register(metrics, clock.clone(), server_hash);
        let of_file = || counted("authentication");
        let applied = self.issuers.apply(plane, clock, own_issuers, egress, observer, of_file);
        let anonymous;
        (plane, anonymous) = applied?;
        if anonymous.is_some() && self.anonymous_auth.is_some() {
            bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
            );
        }
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let ttl = self.authentication_token_webhook_cache_ttl;
            let webhook = TokenWebhook::open(path, dialer.clone(), ttl);
            let webhook = webhook.await.context("open the token webhook")?;
            plane = plane.authenticator(Arc::new(webhook));
        }
        let allows_all;
        let counted = || counted("authorization");
        (plane, allows_all) = self.authorizers(plane, metrics, dialer, counted).await?;
        let of_flags = match self.anonymous_auth {
            Some(true) => Anonymous::Everywhere,
            Some(false) => Anonymous::Nowhere,
            None if allows_all => Anonymous::Health,
            None => Anonymous::Everywhere,
        };
        Ok(plane.anonymous(anonymous.unwrap_or(of_flags)))
    }

    /// Adds the authorizers. Returns whether one of them allows everything.
    async fn authorizers(
        &self,
        mut plane: ControlPlaneBuilder,
        metrics: &Metrics,
        dialer: Dialer,
        of_file: impl FnOnce() -> ConfigMetrics,
    ) -> anyhow::Result<(ControlPlaneBuilder, bool)> {
        if let Some(path) = &self.authorization_config {
            let has_flags = !self.authorization_mode.is_empty()
                || self.authorization_webhook_config_file.is_some()
                || self.authorization_webhook_cache_authorized_ttl.is_some()
                || self.authorization_webhook_cache_unauthorized_ttl.is_some();
            if has_flags {
                bail!(
                    "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
                );
            }
            let opened = AuthorizationConfig::open(path, self.policies()?, dialer).await;
            let (chain, worker) =
                opened.with_context(|| format!("use --authorization-config {}", path.display()))?;
            let mut authorizers = worker.config().authorizers.iter();
            let allows_all = authorizers.any(|one| one.kind == "AlwaysAllow");
            chain.figures().register(metrics);
            let chain = (chain, worker.metrics(of_file()));
            return Ok((plane.authorization_config(chain), allows_all));
        }
        let modes = match &self.authorization_mode[..] {
            [] => &[AuthorizationMode::Rbac][..],
            modes => modes,
        };
        let has_webhook = modes.contains(&AuthorizationMode::Webhook);
        if self.authorization_webhook_config_file.is_some() && !has_webhook {
            bail!("cannot specify --authorization-webhook-config-file without mode Webhook");
        }
        if self.authorization_policy_file.is_some() && !modes.contains(&AuthorizationMode::Abac) {
            bail!("cannot specify --authorization-policy-file without mode ABAC");
        }
        for (i, mode) in modes.iter().enumerate() {
            if modes[..i].contains(mode) {
                let names: Vec<_> = modes.iter().map(|mode| quote(mode.name())).collect();
                let names = names.join(" ");
                bail!("authorization-mode [{names}] has mode specified more than once");
            }
            plane = match mode {
                AuthorizationMode::Rbac => plane.rbac(),
                AuthorizationMode::Abac => match self.policies()? {
                    Some(policies) => plane.authorizer(policies),
                    None => {
                        bail!("authorization-mode ABAC's authorization policy file not passed")
                    }
                },
                AuthorizationMode::Node => plane.node_authorizer(),
                AuthorizationMode::AlwaysAllow => plane.authorizer(Arc::new(AllowAuthenticated)),
                AuthorizationMode::AlwaysDeny => plane.authorizer(Arc::new(AlwaysDeny)),
                AuthorizationMode::Webhook => {
                    let figures = AccessFigures::default();
                    figures.register(metrics);
                    plane.authorizer(Arc::new(self.webhook(dialer.clone()).await?.figures(figures)))
                }
            };
        }
        Ok((plane, modes.contains(&AuthorizationMode::AlwaysAllow)))
    }

    /// The policies of ABAC.
    fn policies(&self) -> anyhow::Result<Option<Arc<Abac>>> {
        let Some(path) = &self.authorization_policy_file else {
            return Ok(None);
        };
        let policies = Abac::load(path)?;
        if policies.has_unversioned() {
            let file = path.display().to_string();
            tracing::warn!(file, "the policy file has policies without a version");
        }
        Ok(Some(Arc::new(policies)))
    }

    async fn webhook(&self, dialer: Dialer) -> anyhow::Result<AccessWebhook> {
        let Some(path) = &self.authorization_webhook_config_file else {
            bail!("authorization-mode Webhook's authorization config file not passed");
        };
        let defaults = AccessWebhookOptions::default();
        let options = AccessWebhookOptions {
            authorized_ttl: self
                .authorization_webhook_cache_authorized_ttl
                .unwrap_or(defaults.authorized_ttl),
            unauthorized_ttl: self
                .authorization_webhook_cache_unauthorized_ttl
                .unwrap_or(defaults.unauthorized_ttl),
            ..defaults
        };
        AccessWebhook::open(path, dialer, options).await.context("open the authorization webhook")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;
    use setpoint::ControlPlane;
    use std::io::{PipeReader, Write as _};
    use std::os::fd::AsRawFd as _;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        users: UserOptions,
    }

    /// The path of a file that can be read once, as that of a shell's `<(command)`, while its end
    /// is held.
    pub(crate) fn once(text: &str) -> (String, PipeReader) {
        let (end, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        (format!("/dev/fd/{}", end.as_raw_fd()), end)
    }

    #[tokio::test]
    async fn configurations_and_their_digests_are_of_one_read() {
        let start = "apiVersion: apiserver.config.k8s.io/v1\nkind: ";
        let (authentication, _end) = once(&format!("{start}AuthenticationConfiguration\n"));
        let all = "authorizers: [{type: AlwaysAllow, name: alwaysallow}]\n";
        let (authorization, _end) = once(&format!("{start}AuthorizationConfiguration\n{all}"));
        let authentication = format!("--authentication-config={authentication}");
        let authorization = format!("--authorization-config={authorization}");
        let program =
            Program::try_parse_from(["setpoint", &authentication, &authorization]).unwrap();
        let (metrics, plane) = (Metrics::new(), ControlPlane::builder());
        let (clock, egress) = (Clock::wall(), Egress::default());
        let applied =
            program.users.apply(plane, &clock, &metrics, Vec::new(), "sha256:5e", &egress).await;
        drop(applied.unwrap());
        let text = metrics.prometheus();
        for (subject, hash) in [
            ("authentication", "841fee19c7588ad10db6aafdec5115aa27f100f2cca20628a3350183764c37b5"),
            ("authorization", "cd7bd4885b2af5319229fcac2b3a1d4039a506e677fe746c89c5f1409c7c39ff"),
        ] {
            let name = format!("apiserver_{subject}_config_controller_last_config_info");
            let line =
                format!("{name}{{apiserver_id_hash=\"sha256:5e\",hash=\"sha256:{hash}\"}} 1");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
