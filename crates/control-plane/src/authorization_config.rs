//! The file of `--authorization-config`: an AuthorizationConfiguration, read again while the server
//! runs.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: AuthorizationConfiguration
//! authorizers:
//!   - type: Webhook
//!     name: policy
//!     webhook:
//!       timeout: 3s
//!       subjectAccessReviewVersion: v1
//!       matchConditionSubjectAccessReviewVersion: v1
//!       failurePolicy: Deny
//!       connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/policy.kubeconfig}
//!       matchConditions:
//!         - expression: has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'
//!   - type: RBAC
//!     name: rbac
//! ```
//!
//! The authorizers are asked in the order of the file. A changed file that is valid replaces the
//! chain as a whole; otherwise the present one stays. Types other than webhooks that the first file
//! had must stay, and `RBAC`, `Node` and `ABAC` cannot be added later. The policies of `ABAC` are
//! those of [`abac`](crate::abac), which are not read again.

mod document;
mod reload;
mod validate;

pub use document::{
    AuthorizationConfig, AuthorizationConfigError, AuthorizerConfig, ConnectionInfo,
    FILE_BYTES_MAX, MatchCondition, WebhookConfig,
};
pub use reload::{AuthorizationWorker, RELOAD_PERIOD};

use crate::ControlPlaneBuilder;
use crate::abac::Abac;
use crate::remote::{
    AccessFigures, AccessWebhook, AccessWebhookOptions, MatchConditions, RemoteError, ReviewVersion,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use setpoint_egress::Dialer;
use setpoint_object::ApiError;
use setpoint_registry::{
    AllowAuthenticated, AlwaysDeny, Attributes, Authorizer, Decision, Identity, MissingRole,
    NodeAuthorizer, Rbac, Rule,
};
use std::path::Path;
use std::sync::Arc;

/// A chain of authorizers that a configuration names.
#[derive(Debug)]
pub struct ConfiguredAuthorizers {
    current: RwLock<Arc<[Arc<dyn Authorizer>]>>,
    /// `None` if the first configuration did not have the type `RBAC`.
    rbac: Option<Arc<Rbac>>,
    /// `None` if the first configuration did not have the type `Node`.
    node: Option<Arc<NodeAuthorizer>>,
    abac: Option<Arc<Abac>>,
    /// Of all webhooks, also of later configurations.
    figures: AccessFigures,
    /// To webhooks with a kubeconfig.
    dialer: Dialer,
}

impl ConfiguredAuthorizers {
    /// Makes the authorizers of a valid configuration. The type `ABAC` needs `abac`. Call it within
    /// a tokio runtime: it makes the clients of webhooks, which connect later, those of kubeconfigs
    /// with the dialer.
    ///
    /// # Errors
    ///
    /// The kubeconfig of a webhook cannot be used, or `abac` is missing.
    pub async fn new(
        config: &AuthorizationConfig,
        abac: Option<Arc<Abac>>,
        dialer: Dialer,
    ) -> Result<Self, AuthorizationConfigError> {
        let has = |kind| config.authorizers.iter().any(|one| one.kind == kind);
        let rbac = has("RBAC").then(|| Arc::new(Rbac::new()));
        let node = has("Node").then(|| Arc::new(NodeAuthorizer::new()));
        if has("ABAC") && abac.is_none() {
            let reason = "authorizer type ABAC needs a policy file";
            return Err(AuthorizationConfigError::Names(reason.to_owned()));
        }
        let abac = abac.filter(|_| has("ABAC"));
        let figures = AccessFigures::default();
        let this = Self { current: RwLock::new(Arc::new([])), rbac, node, abac, figures, dialer };
        let authorizers = this.make(config).await?;
        this.replace(authorizers);
        Ok(this)
    }

    /// What its webhooks have done, to be shown on a page of metrics.
    pub fn figures(&self) -> &AccessFigures {
        &self.figures
    }

    async fn make(
        &self,
        config: &AuthorizationConfig,
    ) -> Result<Arc<[Arc<dyn Authorizer>]>, RemoteError> {
        let mut authorizers: Vec<Arc<dyn Authorizer>> = Vec::new();
        for one in &config.authorizers {
            // What is missing or unknown has been refused before; nothing is allowed by mistake.
            let deny = || Arc::new(AlwaysDeny) as Arc<dyn Authorizer>;
            let authorizer = match (&*one.kind, &one.webhook) {
                ("Webhook", Some(webhook)) => {
                    let webhook = self.webhook(webhook).await?.named(&one.name);
                    Arc::new(webhook.figures(self.figures.clone()))
                }
                ("RBAC", _) => match &self.rbac {
                    Some(rbac) => rbac.clone(),
                    None => deny(),
                },
                ("Node", _) => match &self.node {
                    Some(node) => node.clone(),
                    None => deny(),
                },
                ("ABAC", _) => match &self.abac {
                    Some(abac) => abac.clone(),
                    None => deny(),
                },
                ("AlwaysAllow", _) => Arc::new(AllowAuthenticated),
                _ => deny(),
            };
            authorizers.push(Arc::new(Named { name: one.name.clone(), authorizer }));
        }
        Ok(authorizers.into())
    }

    async fn webhook(&self, config: &WebhookConfig) -> Result<AccessWebhook, RemoteError> {
        let options = AccessWebhookOptions {
            authorized_ttl: config.cached(config.authorized_ttl, config.cache_authorized_requests),
            unauthorized_ttl: config
                .cached(config.unauthorized_ttl, config.cache_unauthorized_requests),
            fails_closed: config.failure_policy == "Deny",
        };
        let version = match &*config.subject_access_review_version {
            "v1beta1" => ReviewVersion::V1Beta1,
            _ => ReviewVersion::V1,
        };
        let webhook = match &config.connection_info.kube_config_file {
            Some(file) => {
                AccessWebhook::open(Path::new(file), self.dialer.clone(), options).await?
            }
            None => AccessWebhook::in_cluster(version, options)?,
        };
        let compile = |condition: &MatchCondition| {
            let text = &condition.expression;
            // They have been compiled before.
            MatchConditions::compile(text).ok().map(|program| (text.clone(), program))
        };
        let conditions = config.match_conditions.iter().filter_map(compile).collect();
        Ok(webhook
            .version(version)
            .timeout(config.timeout.max())
            .match_conditions(MatchConditions::new(conditions)))
    }

    fn replace(&self, authorizers: Arc<[Arc<dyn Authorizer>]>) {
        let former = std::mem::replace(&mut *self.current.write(), authorizers);
        drop(former);
    }
}

/// An authorizer under the name in the configuration.
#[derive(Debug)]
struct Named {
    name: String,
    authorizer: Arc<dyn Authorizer>,
}

impl Authorizer for Named {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        self.authorizer.authorize(request)
    }

    fn fails_closed(&self) -> bool {
        self.authorizer.fails_closed()
    }

    fn decides_health(&self) -> bool {
        self.authorizer.decides_health()
    }

    fn kind(&self) -> (&str, &str) {
        (self.authorizer.kind().0, &self.name)
    }

    fn rules(&self, identity: &Identity, namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        self.authorizer.rules(identity, namespace)
    }

    fn missing_roles(&self, identity: &Identity, namespace: &str) -> Vec<MissingRole> {
        self.authorizer.missing_roles(identity, namespace)
    }

    fn concerns(&self, identity: &Identity) -> bool {
        self.authorizer.concerns(identity)
    }

    fn role(&self, namespace: &str, is_cluster: bool, name: &str) -> Option<Arc<[Rule]>> {
        self.authorizer.role(namespace, is_cluster, name)
    }
}

impl Authorizer for ConfiguredAuthorizers {
    /// Not called, because the [members](Authorizer::members) are called instead.
    fn authorize<'a>(
        &'a self,
        _request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        async { Ok(Decision::NoOpinion(String::new())) }.boxed()
    }

    fn members(&self) -> Option<Arc<[Arc<dyn Authorizer>]>> {
        Some(self.current.read().clone())
    }
}

impl ControlPlaneBuilder {
    /// Adds the chain of a configuration to the authorizers, and runs its worker with the control
    /// plane. If the chain has RBAC, this includes [`rbac`](Self::rbac). Default: none.
    pub fn authorization_config(
        mut self,
        (chain, worker): (Arc<ConfiguredAuthorizers>, AuthorizationWorker),
    ) -> Self {
        if let Some(rbac) = &chain.rbac {
            self.extensions.set_rbac(rbac.clone());
        }
        if let Some(node) = &chain.node {
            self.extensions.follow_nodes(node.clone());
        }
        self.extensions.task(move |_, stop| worker.run(stop).boxed());
        self.authorizer(chain)
    }
}
