//! Authorization by a webhook: `SubjectAccessReview` (spec: auth §2.5).

use super::cache::{Answer, Answers};
use super::conditions::{MatchConditions, Verdict};
use super::figures::AccessFigures;
use super::{ATTEMPT_MAX, Remote, RemoteError, Retry};
use futures::future::{BoxFuture, FutureExt as _};
use kube_client::Config;
use serde_json::{Value, json};
use setpoint_egress::Dialer;
use setpoint_object::ApiError;
use setpoint_object::error::chain;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::{Operator, Selector};
use setpoint_registry::{Attributes, Authorizer, Decision, Subresource};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The name of a webhook without one, as that of kube-apiserver's flags.
const DEFAULT_NAME: &str = "default";

/// How long decisions count, and what happens without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessWebhookOptions {
    /// How long the decision to allow is cached. Default: 5 min; zero: not cached.
    pub authorized_ttl: Duration,
    /// How long any other decision is cached. Default: 30 s; zero: not cached.
    pub unauthorized_ttl: Duration,
    /// Whether requests are refused, with a 500, while the webhook does not answer. Default: false,
    /// the next authorizer decides, and the 500 is the answer if none allows the request.
    pub fails_closed: bool,
}

impl Default for AccessWebhookOptions {
    fn default() -> Self {
        Self {
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            fails_closed: false,
        }
    }
}

/// The version of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`.
    #[default]
    V1,
    /// `authorization.k8s.io/v1beta1`, whose groups are the member `group`.
    V1Beta1,
}

impl ReviewVersion {
    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// The path of reviews at an API server.
    fn path(self) -> String {
        format!("/apis/authorization.k8s.io/{}/subjectaccessreviews", self.as_str())
    }
}

/// An authorizer that posts a `SubjectAccessReview` (`authorization.k8s.io`) to another server.
///
/// | its status | decision |
/// |---|---|
/// | `allowed: true` | allow |
/// | `denied: true` | deny: no further authorizer is called |
/// | neither | no opinion |
/// | no answer in time, or none after five attempts | an error; with `fails_closed`, no further authorizer is called |
///
/// A request that does not meet the [match conditions](Self::match_conditions) is not sent to the
/// server.
#[derive(Debug)]
pub struct AccessWebhook {
    name: String,
    figures: AccessFigures,
    remote: Remote,
    options: AccessWebhookOptions,
    answers: Answers<Decision>,
    conditions: MatchConditions,
    version: ReviewVersion,
    attempt_max: Duration,
    decides_health: bool,
}

impl AccessWebhook {
    /// An authorizer that calls the server of a kubeconfig's current context. Call it within a
    /// tokio runtime. Connects later, with the dialer.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be used.
    pub async fn open(
        kubeconfig: impl AsRef<Path>,
        dialer: Dialer,
        options: AccessWebhookOptions,
    ) -> Result<Self, RemoteError> {
        Ok(Self::new(Remote::open(kubeconfig.as_ref(), dialer).await?, options))
    }

    /// An authorizer that calls the API server of the cluster in which this process is a pod. Call
    /// it within a tokio runtime. Connects later.
    ///
    /// # Errors
    ///
    /// This process is not in a pod.
    pub fn in_cluster(
        version: ReviewVersion,
        options: AccessWebhookOptions,
    ) -> Result<Self, RemoteError> {
        Ok(Self::new(Remote::in_cluster(&version.path())?, options).version(version))
    }

    /// An authorizer that calls an API server. Call it within a tokio runtime. Connects later. It
    /// is not asked about the health endpoints, as by the servers of Kubernetes that ask another
    /// one.
    ///
    /// # Errors
    ///
    /// No client of it can be made.
    pub fn at(
        server: Config,
        version: ReviewVersion,
        options: AccessWebhookOptions,
    ) -> Result<Self, RemoteError> {
        let new = Self::new(Remote::at(server, &version.path())?, options).version(version);
        Ok(Self { decides_health: false, ..new })
    }

    fn new(remote: Remote, options: AccessWebhookOptions) -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            figures: AccessFigures::default(),
            remote,
            options,
            answers: Answers::new(),
            conditions: MatchConditions::default(),
            version: ReviewVersion::default(),
            attempt_max: ATTEMPT_MAX,
            decides_health: true,
        }
    }

    /// The name in metrics and audit annotations. Default: `default`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Counts together with others. Default: alone.
    #[must_use]
    pub fn figures(mut self, figures: AccessFigures) -> Self {
        self.figures = figures;
        self
    }

    /// Only requests that meet these conditions are sent to the server. Default: all.
    #[must_use]
    pub fn match_conditions(mut self, conditions: MatchConditions) -> Self {
        self.conditions = conditions;
        self
    }

    /// The version of the reviews. Default: v1.
    #[must_use]
    pub fn version(mut self, version: ReviewVersion) -> Self {
        self.version = version;
        self
    }

    /// Timeout of one attempt, at most 30 s. Default: 10 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.attempt_max = timeout.min(super::CONNECTION_MAX);
        self
    }

    async fn decide(&self, request: &Attributes) -> Result<Decision, ApiError> {
        let mut spec = spec(request);
        if !self.conditions.is_empty() {
            let begun = Instant::now();
            let verdict = self.conditions.evaluate(&spec).await;
            self.figures.matched(&self.name, begun.elapsed());
            match verdict {
                Verdict::Met => {}
                Verdict::Unmet { has_failed } => {
                    if has_failed {
                        self.figures.match_failed(&self.name);
                    }
                    self.figures.excluded(&self.name);
                    return Ok(Decision::NoOpinion(String::new()));
                }
                Verdict::Failed(error) => {
                    self.figures.match_failed(&self.name);
                    return Err(ApiError::internal(error));
                }
            }
        }
        if self.version == ReviewVersion::V1Beta1
            && let Some(members) = spec.as_object_mut()
            && let Some(groups) = members.remove("groups")
        {
            members.insert("group".to_owned(), groups);
        }
        let question = spec.to_string().into_bytes();
        if let Some(decision) = self.answers.get(&question) {
            return Ok(decision);
        }
        let review = json!({
            "apiVersion": format!("authorization.k8s.io/{}", self.version.as_str()),
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        let mut count = |took, error: Option<&_>| self.figures.called(&self.name, took, error);
        let asked = self.remote.ask_observed(&review, self.attempt_max, Retry::REVIEW, &mut count);
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    name = self.name,
                    "ask the authorization webhook"
                );
                if !self.options.fails_closed {
                    self.figures.failed_open(&self.name, &error);
                }
                return Err(ApiError::internal(error.message));
            }
        };
        let status = &answer["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        let (decision, ttl) = match (status["allowed"] == true, status["denied"] == true) {
            (true, false) => (Decision::Allow(reason), self.options.authorized_ttl),
            (false, true) => (Decision::Deny(reason), self.options.unauthorized_ttl),
            (false, false) => (Decision::NoOpinion(reason), self.options.unauthorized_ttl),
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response";
                return Err(ApiError::internal(error));
            }
        };
        self.answers.keep(&question, decision.clone(), ttl);
        Ok(decision)
    }
}

impl Answer for Decision {
    fn n_bytes(&self) -> usize {
        let (Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason)) = self;
        reason.len()
    }
}

impl Authorizer for AccessWebhook {
    fn kind(&self) -> (&str, &str) {
        ("Webhook", &self.name)
    }

    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        self.decide(request).boxed()
    }

    fn fails_closed(&self) -> bool {
        self.options.fails_closed
    }

    fn decides_health(&self) -> bool {
        self.decides_health
    }
}

/// The review's `spec`.
fn spec(request: &Attributes) -> Value {
    let mut spec = request.identity.user_info();
    // A user is `username` in a review of a token, and `user` here.
    let user = spec.as_object_mut().and_then(|members| members.remove("username"));
    spec["user"] = user.unwrap_or_default();
    let verb = request.verb.as_str();
    if !request.is_resource() {
        spec["nonResourceAttributes"] = json!({"path": request.path(), "verb": verb});
        return spec;
    }
    let mut resource = json!({});
    for (member, text) in [
        ("verb", verb),
        ("namespace", request.scope()),
        ("group", request.group()),
        ("version", request.version()),
        ("resource", request.resource()),
        ("subresource", request.subresource().map_or("", Subresource::as_str)),
        ("name", request.name()),
    ] {
        if !text.is_empty() {
            resource[member] = text.into();
        }
    }
    let requirements = |requirements: Vec<Value>| json!({"requirements": requirements});
    if let Ok(selector) = FieldSelector::parse(&request.field_selector)
        && !selector.is_everything()
    {
        let terms = selector.terms().iter().map(|term| {
            let operator = if term.negated { "NotIn" } else { "In" };
            json!({"key": &*term.path, "operator": operator, "values": [&*term.value]})
        });
        resource["fieldSelector"] = requirements(terms.collect());
    }
    if let Ok(selector) = Selector::parse(&request.label_selector)
        && !selector.is_everything()
    {
        let terms = selector.requirements().iter().filter_map(|term| {
            let operator = match term.operator {
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::In | Operator::Equals => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                // A review has no such operator. Leaving a term out asks for more.
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            let mut shown = json!({"key": term.key, "operator": operator});
            if !term.values.is_empty() {
                shown["values"] = json!(term.values);
            }
            Some(shown)
        });
        let terms: Vec<Value> = terms.collect();
        if !terms.is_empty() {
            resource["labelSelector"] = requirements(terms);
        }
    }
    spec["resourceAttributes"] = resource;
    spec
}
