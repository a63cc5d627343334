//! A manager that serves webhooks.

mod certificates;

pub use certificates::{WebhookCertificates, WebhookCertificatesError};

use certificates::CertificateKeeper;
use setpoint_runtime::{
    BuildError, Manager, Runnable,
    endpoint::{Check, HealthError},
    manager::AddError,
};
use setpoint_webhook::{
    RegisterError, WebhookServer, Webhooks,
    server::{ServerError, WebhookServerBuilder},
    webhooks::WebhooksBuilder,
};
use std::{future::Future, net::SocketAddr, sync::Arc};

use crate::WebhookMetrics;

/// The name of the manager's member, and of its readiness check.
const NAME: &str = "webhooks";

/// The name of the readiness check of certificates that the program issues.
const CERTIFICATES: &str = "webhook-certificates";

/// Why a manager cannot serve webhooks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerWebhooksError {
    /// Two webhooks have one path, or a path is invalid.
    #[error("register the webhooks")]
    Register(#[from] RegisterError),
    /// There is no certificate, or the address is taken.
    #[error("serve the webhooks")]
    Bind(#[from] ServerError),
    /// The manager has a readiness check of this name.
    #[error("check the readiness of the webhooks")]
    Health(#[from] HealthError),
    /// The manager has a member of this name.
    #[error("add the webhooks to the manager")]
    Add(#[from] AddError),
    /// The certificates cannot be read, made or written.
    #[error(transparent)]
    Certificates(#[from] WebhookCertificatesError),
    /// The controller of the certificates cannot be built.
    #[error("build the controller of the certificates")]
    Build(#[from] BuildError),
}

/// What a manager serves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServedWebhooks {
    /// The address, with the port that was picked; `None` when the server is disabled.
    pub address: Option<SocketAddr>,
    /// The webhooks, to be asked in this process: [`Webhooks::handle`].
    pub webhooks: Webhooks,
}

/// Webhooks of a [`Manager`].
pub trait ManagerWebhooks {
    /// Serves webhooks while the manager runs: on port 9443 of every address, with the certificate
    /// of [`CertificateFiles::default`](setpoint_webhook::certificate::CertificateFiles).
    ///
    /// They start before the caches and stop after them, on every replica, leader or not. They are
    /// counted in the manager's metrics, and the check `webhooks` of its `/readyz` dials them. The
    /// manager's metrics take the place of those of the builder. At most once for a manager.
    ///
    /// ```no_run
    /// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::prelude::*;
    /// use setpoint::webhook::{Call, Change, Refusal, Webhooks};
    ///
    /// async fn validate(change: Change<ConfigMap>, _call: Call) -> Result<(), Refusal> {
    ///     match change.after() {
    ///         Some(map) if map.data.is_none() => Err(Refusal::denied("data is missing")),
    ///         _ => Ok(()),
    ///     }
    /// }
    ///
    /// # async fn example(client: setpoint::kube_client::Client) -> Result<(), BoxError> {
    /// let mut manager = Manager::new(client);
    /// manager.webhooks(Webhooks::builder().validate(validate)).await?;
    /// manager.run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Two webhooks have one path, the certificate cannot be read, the address is taken, or the
    /// manager serves webhooks already. In the first three cases it may be called again.
    fn webhooks(
        &mut self,
        webhooks: WebhooksBuilder,
    ) -> impl Future<Output = Result<ServedWebhooks, ManagerWebhooksError>> + Send {
        self.webhooks_with(webhooks, |server| server)
    }

    /// [`webhooks`](Self::webhooks), with another port, certificate or CA of clients.
    ///
    /// # Errors
    ///
    /// As [`webhooks`](Self::webhooks).
    fn webhooks_with(
        &mut self,
        webhooks: WebhooksBuilder,
        server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
    ) -> impl Future<Output = Result<ServedWebhooks, ManagerWebhooksError>> + Send;

    /// [`webhooks_with`](Self::webhooks_with), with certificates that the program issues, renews
    /// and writes into the configurations that API servers read. Call it before the manager runs:
    /// it reads or makes the Secret at once. If a configuration had another CA, the check
    /// `webhook-certificates` of `/readyz` fails for [`WebhookCertificates::PROPAGATION`].
    ///
    /// # Errors
    ///
    /// As [`webhooks`](Self::webhooks), or the API server refuses what [`WebhookCertificates`]
    /// needs.
    fn webhooks_with_certificates(
        &mut self,
        webhooks: WebhooksBuilder,
        certificates: WebhookCertificates,
        server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
    ) -> impl Future<Output = Result<ServedWebhooks, ManagerWebhooksError>> + Send;
}

impl ManagerWebhooks for Manager {
    async fn webhooks_with(
        &mut self,
        webhooks: WebhooksBuilder,
        server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
    ) -> Result<ServedWebhooks, ManagerWebhooksError> {
        // Nothing is registered before the address is bound, so that a program may try again.
        let metrics = Arc::new(WebhookMetrics::new());
        let webhooks = webhooks.metrics(metrics.clone()).build()?;
        let builder = WebhookServer::builder(webhooks.clone(), self.clock().clone());
        let server = server(builder).bind().await?;
        let (address, started) = (server.address(), Arc::new(server.started_check()));
        let answers = Check::new(move || {
            let started = started.clone();
            async move { Ok(started.check().await?) }
        });
        // Refused if webhooks are served already.
        self.health().readyz(NAME, answers)?;
        metrics.add_to(&self.metrics());
        let member = Runnable::webhooks(|stop| async { Ok(server.run(stop).await?) });
        self.add_runnable(NAME, member)?;
        Ok(ServedWebhooks { address, webhooks })
    }

    async fn webhooks_with_certificates(
        &mut self,
        webhooks: WebhooksBuilder,
        certificates: WebhookCertificates,
        server: impl FnOnce(WebhookServerBuilder) -> WebhookServerBuilder + Send,
    ) -> Result<ServedWebhooks, ManagerWebhooksError> {
        let (client, clock) = (self.client().kube().clone(), self.clock().clone());
        let keeper = CertificateKeeper::start(client, clock, certificates).await?;
        let (current, is_known) = (keeper.current(), keeper.is_known());
        let controller = keeper.controller()?;
        let served =
            self.webhooks_with(webhooks, |builder| server(builder.certificate_of(current))).await?;
        self.health().readyz(CERTIFICATES, is_known)?;
        self.add(controller)?;
        Ok(served)
    }
}
