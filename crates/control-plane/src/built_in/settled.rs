//! Controllers whose objects every control plane has. They sleep while these are settled.

use super::context::Context;
use super::serves;
use crate::while_needed::{Watched, while_needed};
use futures::future::FutureExt as _;
use setpoint_controllers::{
    ApiServices, ClusterRoleAggregation, FlowSchemas, NamespaceController, NamespaceDefaults,
    ServiceCidrs, Setup, TrustBundlePublisher,
};
use setpoint_registry::Registry;
use setpoint_runtime::{BoxError, Manager};
use std::sync::Arc;

// What they watch.
const NAMESPACES: Watched = Watched::all("", "namespaces");
const ACCOUNTS: Watched = Watched::named("", "serviceaccounts", NamespaceDefaults::ACCOUNT);
const ROOT_CAS: Watched = Watched::named("", "configmaps", NamespaceDefaults::ROOT_CA);
const CLUSTER_ROLES: Watched = Watched::all("rbac.authorization.k8s.io", "clusterroles");
const SCHEMAS: Watched = Watched::all("flowcontrol.apiserver.k8s.io", "flowschemas");
const LEVELS: Watched = Watched::all("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
const DEFINITIONS: Watched = Watched::all("apiextensions.k8s.io", "customresourcedefinitions");
const SERVICE_CIDRS: Watched = Watched::all("networking.k8s.io", "servicecidrs");
const API_SERVICES: Watched = Watched::all("apiregistration.k8s.io", "apiservices");
const TRUST_BUNDLES: Watched = Watched::all("certificates.k8s.io", "clustertrustbundles");

/// Runs those that share a manager.
pub(super) async fn shared(context: &Context<'_>) -> Result<(), BoxError> {
    let registry = context.registry();
    let controllers = SharedControllers::of(context);
    let run = |stop| {
        let add = |setup: &Setup, manager: &mut Manager| controllers.add_to(setup, manager);
        context.separate_setup().run(stop, add).boxed()
    };
    let is_settled = || controllers.is_settled(registry);
    while_needed(registry, context.stop, &controllers.watched(), is_settled, run).await
}

/// Runs the controller of the ranges of Services.
pub(super) async fn service_ranges(context: &Context<'_>) -> Result<(), BoxError> {
    let registry = context.registry();
    let is_settled = || {
        SERVICE_CIDRS.is_as_started(registry)
            || ServiceCidrs::is_settled(&SERVICE_CIDRS.objects(registry))
    };
    let run = |stop| {
        let add =
            |setup: &Setup, manager: &mut Manager| ServiceCidrs::new(setup.clone()).add_to(manager);
        context.separate_setup().run(stop, add).boxed()
    };
    while_needed(registry, context.stop, &[SERVICE_CIDRS], is_settled, run).await
}

/// Publishes the server's authorities in a trust bundle of a version.
pub(super) async fn trust_bundle(
    context: &Context<'_>,
    version: &'static str,
    authorities: Arc<str>,
) -> Result<(), BoxError> {
    let registry = context.registry();
    let is_settled =
        || TrustBundlePublisher::is_settled(&TRUST_BUNDLES.objects(registry), &authorities);
    let run = |stop| {
        let setup = context.separate_setup();
        TrustBundlePublisher::new(setup, version, authorities.clone()).run(stop).boxed()
    };
    while_needed(registry, context.stop, &[TRUST_BUNDLES], is_settled, run).await
}

/// The version of trust bundles that the server has, if it has any: they need a feature gate.
pub(super) fn trust_bundle_version(registry: &Registry) -> Option<&'static str> {
    let is_served =
        |version: &&str| serves(registry, ["certificates.k8s.io", version, "clustertrustbundles"]);
    TrustBundlePublisher::VERSIONS.into_iter().find(is_served)
}

/// Those that share a manager.
struct SharedControllers {
    deletes_namespaces: bool,
    aggregates: bool,
    has_defaults: bool,
    api_services: bool,
    root_ca: Option<Arc<str>>,
}

impl SharedControllers {
    fn of(context: &Context<'_>) -> Self {
        let settings = context.settings;
        Self {
            deletes_namespaces: context.is_on("namespace-controller"),
            aggregates: settings.aggregates && context.is_on("clusterrole-aggregation-controller"),
            has_defaults: settings.accounts
                && (context.is_on("serviceaccount-controller")
                    || context.is_on("root-ca-certificate-publisher-controller")),
            api_services: settings.api_services,
            root_ca: settings.root_ca.clone(),
        }
    }

    fn add_to(&self, setup: &Setup, manager: &mut Manager) -> Result<(), BoxError> {
        FlowSchemas::new(setup.clone()).add_to(manager)?;
        if self.deletes_namespaces {
            NamespaceController::new(setup.clone()).add_to(manager)?;
        }
        if self.aggregates {
            ClusterRoleAggregation::new(setup.clone()).add_to(manager)?;
        }
        if self.has_defaults {
            NamespaceDefaults::new(setup.clone()).root_ca(self.root_ca.clone()).add_to(manager)?;
        }
        if self.api_services {
            ApiServices::new(setup.clone()).add_to(manager)?;
        }
        Ok(())
    }

    /// What they watch.
    fn watched(&self) -> Vec<Watched> {
        let mut watched = vec![SCHEMAS, LEVELS];
        if self.deletes_namespaces || self.has_defaults {
            watched.push(NAMESPACES);
        }
        if self.aggregates {
            watched.push(CLUSTER_ROLES);
        }
        if self.has_defaults {
            watched.push(ACCOUNTS);
            watched.extend(self.root_ca.as_ref().map(|_| ROOT_CAS));
        }
        if self.api_services {
            watched.extend([DEFINITIONS, API_SERVICES]);
        }
        watched
    }

    /// Whether none of them has work.
    fn is_settled(&self, registry: &Registry) -> bool {
        if !self.is_fresh(registry) {
            return self.have_no_work(registry);
        }
        debug_assert!(
            // Objects that somebody writes meanwhile are not of the start; their signal wakes the
            // controllers.
            self.have_no_work(registry) || !self.is_fresh(registry),
            "a start leaves no work"
        );
        true
    }

    /// Whether the objects are those that every control plane has written at its start, as these
    /// controllers would leave them. Then they need not be read.
    fn is_fresh(&self, registry: &Registry) -> bool {
        let has_defaults = registry.has_default_accounts();
        let is_as_started = |watched: &Watched| watched.is_as_started(registry);
        (has_defaults || !self.has_defaults) && self.watched().iter().all(is_as_started)
    }

    /// The same as [`Self::is_settled`], by the objects.
    fn have_no_work(&self, registry: &Registry) -> bool {
        let all = |watched: Watched| watched.objects(registry);
        let root_ca = self.root_ca.as_deref();
        let maps = || root_ca.map(|_| all(ROOT_CAS)).unwrap_or_default();
        FlowSchemas::is_settled(&all(SCHEMAS), &all(LEVELS))
            && (!self.deletes_namespaces || NamespaceController::is_settled(&all(NAMESPACES)))
            && (!self.aggregates || ClusterRoleAggregation::is_settled(&all(CLUSTER_ROLES)))
            && (!self.has_defaults
                || NamespaceDefaults::is_settled(
                    &all(NAMESPACES),
                    &all(ACCOUNTS),
                    &maps(),
                    root_ca,
                ))
            && (!self.api_services
                || ApiServices::is_settled(&all(DEFINITIONS), &all(API_SERVICES)))
    }
}
