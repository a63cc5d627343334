//! What every built-in controller starts from.

use crate::api::Api;
use crate::defaults::{ACCOUNT, ROOT_CA};
use crate::workload::certificates::Signers;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use setpoint_object::time::Clock;
use setpoint_object::{Prune, seed};
use setpoint_runtime::cache::ByType;
use setpoint_runtime::{BoxError, CacheOptions, Manager, ManagerBuilder};
use std::fmt;
use tokio_util::sync::CancellationToken;

/// The client, the clock and the randomness of controllers. Cheap to clone; controllers with one
/// client share its connection.
#[derive(Clone)]
#[must_use]
pub struct Setup {
    client: Client,
    clock: Clock,
    seed: u64,
    in_place: bool,
    signers: Option<Signers>,
    device_taint_rules: bool,
    scale_to_zero: bool,
    workloads_of_jobs: bool,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Setup {
    /// Controllers send requests with `client`, and date conditions and compute ages by `clock`.
    pub fn new(client: Client, clock: Clock) -> Self {
        let seed = seed::from_entropy();
        Self {
            client,
            clock,
            seed,
            in_place: false,
            signers: None,
            device_taint_rules: false,
            scale_to_zero: false,
            workloads_of_jobs: false,
        }
    }

    /// The authorities that sign certificate requests. Default: none, and so none is signed.
    pub fn signers(mut self, signers: Signers) -> Self {
        self.signers = Some(signers);
        self
    }

    /// Whether pods are evicted because of DeviceTaintRules, too, kube-controller-manager's feature
    /// gate `DRADeviceTaintRules`. The server has to serve them in `resource.k8s.io/v1beta2`:
    /// without that, no pod is evicted from a tainted device. Default: taints of slices only.
    pub fn device_taint_rules(mut self, has_taint_rules: bool) -> Self {
        self.device_taint_rules = has_taint_rules;
        self
    }

    /// Whether HorizontalPodAutoscalers scale to zero, kube-controller-manager's feature gate
    /// `HPAScaleToZero`. Default: no.
    pub fn scale_to_zero(mut self, scales_to_zero: bool) -> Self {
        self.scale_to_zero = scales_to_zero;
        self
    }

    /// Whether Jobs whose pods are a gang get a Workload and a PodGroup, kube-controller-manager's
    /// feature gate `WorkloadWithJob`. The server has to serve both, in
    /// `scheduling.k8s.io/v1alpha2`: without that, no Job goes on. Default: they get none.
    pub fn workloads_of_jobs(mut self, has_workloads: bool) -> Self {
        self.workloads_of_jobs = has_workloads;
        self
    }

    /// The seed for all randomness, for simulations. Default: the operating system's randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether costly work runs on the thread of its task, for simulations: the relative speed of
    /// two threads is random. Default: it runs on other threads.
    pub fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// A manager for controllers of this crate. Controllers that share one share its caches, its
    /// events and its tasks. It caches what they read, no more: of ServiceAccounts and ConfigMaps
    /// those that every namespace has, and definitions without their schemas.
    ///
    /// # Errors
    ///
    /// None in practice: the rules of the caches are constants.
    pub fn manager(&self) -> Result<ManagerBuilder, BoxError> {
        let named = |name: &str| {
            let mut rule = ByType::default();
            rule.config.fields = Some(format!("metadata.name={name}"));
            rule
        };
        let mut definitions = ByType::default();
        // Most bytes of a definition are its schemas.
        definitions.config.prune = Some(Prune::parse([
            "metadata.managedFields",
            "metadata.annotations",
            "spec.versions[*].schema",
            "status",
        ])?);
        let caches = CacheOptions::new()
            .of::<ServiceAccount>(&(), named(ACCOUNT))?
            .of::<ConfigMap>(&(), named(ROOT_CA))?
            .of::<CustomResourceDefinition>(&(), definitions)?;
        Ok(self.bare_manager().cache(caches).quiet())
    }

    /// Runs the controllers that `add` adds, on one [manager](Self::manager), until `stop`, and
    /// then lets running passes finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// The error of `add`, or of a part that fails permanently.
    pub async fn run(
        self,
        stop: CancellationToken,
        add: impl FnOnce(&Self, &mut Manager) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let mut manager = self.manager()?.build();
        add(&self, &mut manager)?;
        Ok(manager.run(stop).await?)
    }

    /// A manager that caches what its controllers watch.
    pub(crate) fn bare_manager(&self) -> ManagerBuilder {
        Manager::builder(self.client.clone()).clock(self.clock.clone()).seed(self.seed)
    }

    /// The client of a controller.
    pub(crate) fn api(&self, controller: &str) -> Api {
        Api::new(self.client.clone(), controller)
    }

    /// A client that writes as the server itself.
    pub(crate) fn api_of_server(&self, part: &str) -> Api {
        Api::of_server(self.client.clone(), part)
    }

    /// The authorities that sign certificate requests.
    pub(crate) fn signing(&self) -> Option<&Signers> {
        self.signers.as_ref()
    }

    /// Whether autoscalers scale to zero.
    pub(crate) fn scales_to_zero(&self) -> bool {
        self.scale_to_zero
    }

    /// Whether pods are evicted because of DeviceTaintRules.
    pub(crate) fn has_device_taint_rules(&self) -> bool {
        self.device_taint_rules
    }

    /// Whether Jobs get Workloads.
    pub(crate) fn has_workloads_of_jobs(&self) -> bool {
        self.workloads_of_jobs
    }

    /// A seed for randomness beside the manager's.
    pub(crate) fn own_seed(&self) -> u64 {
        self.seed
    }

    /// Whether costly work runs on the thread of its task.
    pub(crate) fn works_in_place(&self) -> bool {
        self.in_place
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
