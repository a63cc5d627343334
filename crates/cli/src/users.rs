//! The options about users: how they are known, and what they may do. Named as kube-apiserver's.

use crate::up::duration;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use setpoint::ControlPlaneBuilder;
use setpoint::apiserver::Anonymous;
use setpoint::registry::{AllowAuthenticated, AlwaysDeny};
use setpoint::remote::{AccessWebhook, AccessWebhookOptions, TokenWebhook};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Who is known, and who may do what.
#[derive(Debug, Args)]
pub(crate) struct UserOptions {
    /// Who may do what, in the order of the modes. `RBAC`: what roles and bindings allow; those of
    /// a new cluster are created. `AlwaysAllow`: every authenticated user may do everything.
    /// `AlwaysDeny`: only members of `system:masters` may do anything.
    /// `Webhook`: what another server says.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "RBAC",
        value_name = "MODE[,MODE...]"
    )]
    authorization_mode: Vec<AuthorizationMode>,
    /// Whether requests without credentials are answered as those of `system:anonymous`, who may
    /// read health and version unless a role allows more. Otherwise they are answered with 401.
    /// Default: true, unless `AlwaysAllow` is a mode; then only health endpoints are.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    anonymous_auth: Option<bool>,
    /// A kubeconfig with the server that decides in the mode `Webhook`
    /// (`authorization.k8s.io/v1` SubjectAccessReview).
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// How long a request that the webhook allowed stays allowed.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long any other decision of the webhook counts.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
    /// A kubeconfig with a server that knows further bearer tokens
    /// (`authentication.k8s.io/v1` TokenReview).
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers count.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
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
    /// Another server decides.
    #[value(name = "Webhook")]
    Webhook,
}

impl UserOptions {
    /// Adds the authenticators and authorizers.
    pub(crate) async fn apply(
        &self,
        mut plane: ControlPlaneBuilder,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let ttl = self.authentication_token_webhook_cache_ttl;
            let webhook = TokenWebhook::open(path, ttl).await.context("open the token webhook")?;
            plane = plane.authenticator(Arc::new(webhook));
        }
        for mode in &self.authorization_mode {
            plane = match mode {
                AuthorizationMode::Rbac => plane.rbac(),
                AuthorizationMode::AlwaysAllow => plane.authorizer(Arc::new(AllowAuthenticated)),
                AuthorizationMode::AlwaysDeny => plane.authorizer(Arc::new(AlwaysDeny)),
                AuthorizationMode::Webhook => plane.authorizer(Arc::new(self.webhook().await?)),
            };
        }
        let allows_all = self.authorization_mode.contains(&AuthorizationMode::AlwaysAllow);
        Ok(plane.anonymous(match self.anonymous_auth {
            Some(true) => Anonymous::Everywhere,
            Some(false) => Anonymous::Nowhere,
            None if allows_all => Anonymous::Health,
            None => Anonymous::Everywhere,
        }))
    }

    async fn webhook(&self) -> anyhow::Result<AccessWebhook> {
        let Some(path) = &self.authorization_webhook_config_file else {
            bail!("the mode Webhook needs --authorization-webhook-config-file");
        };
        let options = AccessWebhookOptions {
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            ..AccessWebhookOptions::default()
        };
        AccessWebhook::open(path, options).await.context("open the authorization webhook")
    }
}
