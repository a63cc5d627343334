//! Webhook configurations, compiled once per version.
use crate::admission::Review;
use crate::admission::composed::Composed;
use crate::admission::followed::{Followed, GROUP};
use crate::admission::manifests::{Loaded, Manifests};
use crate::admission::matching::{Criteria, texts};
use crate::kind::admissionregistration::expression;
use crate::webhook::{WebhookCaller, WebhookClient, WebhookClients};
use serde_json::Value;
use setpoint_cel::eval::Program;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Timeout of a hook without one: ten seconds, as the API's default.
const TIMEOUT_SECONDS: u64 = 10;

/// The hooks in call order: configurations by name, each in its own order.
pub(super) type Hooks = Arc<[Arc<Hook>]>;

/// The configurations of one kind.
#[derive(Debug)]
pub(super) struct Configurations {
    clients: Arc<dyn WebhookClients>,
    caller: WebhookCaller,
    stored: Followed<Arc<Hook>>,
    composed: Composed<Arc<Hook>>,
}
impl Configurations {
    pub(super) fn new(
        resource: &str,
        caller: WebhookCaller,
        clients: Arc<dyn WebhookClients>,
        manifests: Option<Manifests>,
    ) -> Self {
        let (stored, composed) = (Followed::new(resource), Composed::new(manifests));
        Self { clients, caller, stored, composed }
    }
    /// The present hooks that see writes of a resource: those of manifests first. A broken webhook
    /// of the API could not be removed if it saw its own configuration.
    pub(super) fn hooks(&self, review: &Review<'_>) -> Hooks {
        let compile = |loaded: &Loaded| {
            let configurations = loaded.hooks.iter();
            configurations
                .flat_map(|configuration| self.compile(configuration, "manifest/"))
                .collect()
        };
        if *review.resource.gvk.group == *GROUP {
            return self.composed.own(compile);
        }
        let stored =
            self.stored.all(review.inner, |configuration| self.compile(&configuration, ""));
        self.composed.all(stored, compile)
    }
    /// Whether all that may concern a write could be read.
    ///
    /// # Errors
    ///
    /// As [`Followed::are_known`].
    pub(super) fn are_known(&self, review: &Review<'_>) -> Result<(), ApiError> {
        if *review.resource.gvk.group == *GROUP {
            return Ok(());
        }
        self.hooks(review);
        self.stored.are_known(review)
    }
    /// The hooks of a configuration. `place`: begins their uids.
    fn compile(&self, configuration: &Value, place: &str) -> Vec<Arc<Hook>> {
        let name = configuration.name();
        let hooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
        let client = |config: &Value| self.clients.client(self.caller, config);
        hooks.map(|(n, hook)| Arc::new(Hook::new([place, name], n, hook, client))).collect()
    }
    /// Whether one of them may match a write of this kind.
    pub(super) fn may_match(&self, review: &Review<'_>) -> bool {
        self.hooks(review).iter().any(|hook| hook.criteria.may_match(review))
            || self.are_known(review).is_err()
    }
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) configuration: String,
    pub(super) name: String,
    /// Differs from those of all other hooks.
    pub(super) uid: String,
    pub(super) client: Arc<dyn WebhookClient>,
    pub(super) criteria: Criteria,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    /// Whether a dry run may be sent to it.
    pub(super) takes_dry_runs: bool,
    pub(super) timeout: Duration,
    /// The version of AdmissionReview that it gets.
    pub(super) review_version: &'static str,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    /// The expressions of its match conditions.
    pub(super) conditions: Vec<String>,
    compiled: OnceLock<Vec<Result<Program, expression::Fault>>>,
}
impl Hook {
    /// `of`: the beginning of its uid, and the name of its configuration.
    fn new(
        of: [&str; 2],
        n: usize,
        hook: &Value,
        client: impl FnOnce(&Value) -> Arc<dyn WebhookClient>,
    ) -> Self {
        let text = |name: &str| hook[name].as_str().unwrap_or_default();
        let ([place, configuration], name) = (of, text("name").to_owned());
        let versions = texts(&hook["admissionReviewVersions"]);
        let is_old = versions.into_iter().find(|version| matches!(&**version, "v1" | "v1beta1"));
        let conditions = hook["matchConditions"].as_array().into_iter().flatten();
        let expression = |condition: &Value| condition["expression"].as_str().map(str::to_owned);
        Self {
            configuration: configuration.to_owned(),
            uid: format!("{place}{configuration}/{name}/{n}"),
            name,
            client: client(&hook["clientConfig"]),
            criteria: Criteria::of_webhook(hook),
            fails_open: text("failurePolicy") == "Ignore",
            takes_dry_runs: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(
                hook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS),
            ),
            review_version: if is_old.as_deref() == Some("v1beta1") { "v1beta1" } else { "v1" },
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            conditions: conditions.filter_map(expression).collect(),
            compiled: OnceLock::new(),
        }
    }
    /// Whether [`Hook::programs`] has compiled them.
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
    /// The conditions' programs, compiled at the first call.
    pub(super) fn programs(&self) -> &[Result<Program, expression::Fault>] {
        let compile = |expression: &String| expression::condition(expression);
        self.compiled.get_or_init(|| self.conditions.iter().map(compile).collect())
    }
}
