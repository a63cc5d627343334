//! What built-in controllers are made of.

use super::feed::Feed;
use super::{Settings, has_taint_rules, serves};
use kube_client::Client;
use setpoint_apiserver::ApiServer;
use setpoint_controllers::{GroupProtection, Setup};
use setpoint_registry::{Feature, Registry};
use std::sync::OnceLock;
use tokio_util::sync::CancellationToken;

/// Workloads, which are served as PodGroups are.
const WORKLOADS: [&str; 3] = ["scheduling.k8s.io", GroupProtection::VERSION, "workloads"];
/// The controller that deletes expired bootstrap tokens.
pub(super) const TOKEN_CLEANER: &str = "token-cleaner-controller";

/// The server whose controllers run, and their settings.
pub(super) struct Context<'a> {
    pub(super) server: &'a ApiServer,
    pub(super) stop: &'a CancellationToken,
    pub(super) settings: &'a Settings,
    /// Made when the first controller of it runs. One for most of them, because each client has a
    /// queue and a task.
    client: OnceLock<Client>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        server: &'a ApiServer,
        stop: &'a CancellationToken,
        settings: &'a Settings,
    ) -> Self {
        Self { server, stop, settings, client: OnceLock::new() }
    }

    pub(super) fn registry(&self) -> &'a Registry {
        self.server.registry()
    }

    /// Whether a controller runs, by its name in kube-controller-manager.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let Settings { selection, bootstrap_tokens, .. } = self.settings;
        // Where bootstrap tokens are accepted, expired ones are deleted unless that is turned off.
        let has_expiring = *bootstrap_tokens && name == TOKEN_CLEANER;
        selection.is_enabled(name) || has_expiring && !selection.is_disabled(name)
    }

    /// The client that most of them share.
    pub(super) fn client(&self) -> Client {
        self.client.get_or_init(|| self.server.client()).clone()
    }

    /// For a controller with the client that most of them share.
    pub(super) fn setup(&self) -> Setup {
        self.setup_with(self.client())
    }

    /// For a controller with its own client, which ends with it.
    pub(super) fn separate_setup(&self) -> Setup {
        self.setup_with(self.server.client())
    }

    fn setup_with(&self, client: Client) -> Setup {
        let registry = self.registry();
        let features = registry.features();
        let has_workloads = features.is_on(Feature::WorkloadWithJob) && serves(registry, WORKLOADS);
        let setup = Setup::new(client, registry.clock().clone())
            .seed(self.settings.seed)
            .in_place(registry.works_in_place())
            .device_taint_rules(has_taint_rules(registry))
            .scale_to_zero(features.is_on(Feature::HPAScaleToZero))
            .workloads_of_jobs(has_workloads);
        match &self.settings.signers {
            Some(signers) => setup.signers(signers.clone()),
            None => setup,
        }
    }

    /// Changes of all objects.
    pub(super) fn feed(&self) -> Feed {
        Feed(self.registry().object_changes())
    }
}
