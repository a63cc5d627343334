//! Authorization: whether a user may do something.
//!
//! The API server authorizes every request once, before it is routed to an answer. The registry
//! authorizes the further actions of a request: an apply or a PUT that creates, a role that grants
//! rights, a binding that refers to such a role.
use crate::figures::{Authorizers, Decided, Family, Figures};
use crate::identity::Identity;
use crate::latency::Layer;
use crate::routed::Attributes;
use crate::verb::Verb;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use setpoint_object::field::quote;
use setpoint_object::users::{MASTERS, UNAUTHENTICATED};
use setpoint_object::{ApiError, GroupResource};
use setpoint_rbac::{MissingRole, Rule};
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use tokio::time::Instant;

/// An authorizer's decision with its reason: a sentence for the audit log, and for the client if
/// the request is refused. May be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed. No further authorizer is called.
    Allow(String),
    /// The request is refused. No further authorizer is called.
    Deny(String),
    /// The next authorizer is called. A request on which no authorizer has an opinion is refused.
    NoOpinion(String),
}

/// Decides whether a user may do something.
/// [`RegistryBuilder::authorizer`](crate::RegistryBuilder::authorizer) adds one.
///
/// It is called for every request, so it should answer from memory. It returns an error if it
/// cannot decide: the request is then refused unless a later authorizer allows it.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use setpoint_object::ApiError;
/// use setpoint_registry::{Attributes, Authorizer, Decision};
///
/// /// Only `alice` may access secrets.
/// #[derive(Debug)]
/// struct Secrets;
///
/// impl Authorizer for Secrets {
///     fn authorize<'a>(&'a self, request: &'a Attributes) -> BoxFuture<'a, Result<Decision, ApiError>> {
///         let decision = match (request.resource(), &*request.identity.user) {
///             ("secrets", "alice") => Decision::Allow("secrets are alice's".to_owned()),
///             ("secrets", _) => Decision::Deny("secrets are alice's".to_owned()),
///             _ => Decision::NoOpinion(String::new()),
///         };
///         async move { Ok(decision) }.boxed()
///     }
/// }
/// ```
pub trait Authorizer: Debug + Send + Sync {
    /// Decides. Dropping the future must leave no side effects.
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>>;

    /// Whether its error ends the chain: the request is refused, whatever later authorizers would
    /// say. Default: false.
    fn fails_closed(&self) -> bool {
        false
    }

    /// The rules that a user holds in a namespace (empty: in the whole cluster), for
    /// SelfSubjectRulesReviews and for writers of roles: who holds the rights of a role may give
    /// it. `None`: it does not decide by rules. Default: `None`.
    fn rules(&self, _identity: &Identity, _namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        None
    }

    /// The roles that bindings of a user name in a namespace and that do not exist. Default: none.
    fn missing_roles(&self, _identity: &Identity, _namespace: &str) -> Vec<MissingRole> {
        Vec::new()
    }

    /// Whether it may have an opinion about a user. The rules of others are complete without it.
    /// Default: true.
    fn concerns(&self, _identity: &Identity) -> bool {
        true
    }

    /// Whether it also decides who may get the health endpoints. If no authorizer does, everybody
    /// may. Default: false.
    fn decides_health(&self) -> bool {
        false
    }

    /// Its type and its name in metrics. Must be one of few.
    fn kind(&self) -> (&str, &str) {
        ("Custom", "")
    }

    /// The authorizers that are called instead of it, one after the other, if it is a chain of
    /// others that may change while the server runs. Default: `None`, it is called itself.
    fn members(&self) -> Option<Arc<[Arc<dyn Authorizer>]>> {
        None
    }

    /// The rules of a role; `namespace` is ignored for a ClusterRole. Default: `None`.
    fn role(&self, _namespace: &str, _is_cluster: bool, _name: &str) -> Option<Arc<[Rule]>> {
        None
    }
}

/// Rules that allow everything.
pub(crate) static EVERYTHING: LazyLock<Arc<[Rule]>> = LazyLock::new(|| {
    let all = || vec!["*".to_owned()];
    let resources = Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() };
    let paths = Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() };
    Arc::new([resources, paths])
});

/// Whether rules allow everything.
pub(crate) fn holds_everything(held: &[Arc<[Rule]>]) -> bool {
    let held: Vec<&Rule> = held.iter().flat_map(|rules| rules.iter()).collect();
    setpoint_rbac::missing(EVERYTHING.iter(), &held).is_none()
}

/// The rules of a user, of all authorizers.
#[derive(Debug)]
pub(crate) struct UserRules {
    /// In the order of the authorizers.
    pub(crate) rules: Vec<Arc<[Rule]>>,
    /// An authorizer decides by rules.
    pub(crate) is_known: bool,
    /// The types of authorizers that do not.
    pub(crate) unlisted: Vec<String>,
    /// Roles that bindings name and that do not exist.
    pub(crate) missing_roles: Vec<MissingRole>,
}

/// What the authorizers say of a request.
#[derive(Debug)]
pub(crate) struct Opinion {
    /// The first that is not `NoOpinion`, or the reasons of all.
    pub(crate) decision: Decision,
    /// Of those that could not decide, if no other did.
    pub(crate) failures: Vec<ApiError>,
}

/// Allows everything to authenticated users, and the health endpoints to everybody. The default of
/// a registry without authorizers. As the last of a chain, it allows what the others did not
/// decide.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAuthenticated;

impl Authorizer for AllowAuthenticated {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let decision = if request.identity.is_in(UNAUTHENTICATED) {
            Decision::NoOpinion(String::new())
        } else {
            Decision::Allow(String::new())
        };
        async move { Ok(decision) }.boxed()
    }

    fn kind(&self) -> (&str, &str) {
        ("AlwaysAllow", "alwaysallow")
    }

    fn rules(&self, identity: &Identity, _namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        match identity.is_in(UNAUTHENTICATED) {
            true => Some(Vec::new()),
            false => Some(vec![EVERYTHING.clone()]),
        }
    }
}

/// Allows nothing, so that only `system:masters` may act: for tests of what happens then.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(
        &'a self,
        _request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        let decision = Decision::NoOpinion("Everything is forbidden.".to_owned());
        async move { Ok(decision) }.boxed()
    }

    fn decides_health(&self) -> bool {
        true
    }

    fn kind(&self) -> (&str, &str) {
        ("AlwaysDeny", "alwaysdeny")
    }

    fn rules(&self, _identity: &Identity, _namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        Some(Vec::new())
    }
}

/// The authorizers in call order. Before them, `system:masters` is allowed everything, and
/// the health endpoints are open to all users unless an authorizer decides about them.
#[derive(Debug)]
pub(crate) struct Chain {
    authorizers: Vec<Arc<dyn Authorizer>>,
    decided: Authorizers,
}

impl Chain {
    /// A chain of `authorizers`, or [`AllowAuthenticated`] if there are none.
    pub(crate) fn new(mut authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        if authorizers.is_empty() {
            authorizers.push(Arc::new(AllowAuthenticated));
        }
        Self { authorizers, decided: Authorizers::default() }
    }

    /// The decisions of each authorizer, for metrics.
    pub(crate) fn decisions(&self) -> Family {
        self.decided.family()
    }

    /// The authorizers with those of chains in their places.
    fn flat(&self) -> Cow<'_, [Arc<dyn Authorizer>]> {
        let is_chain = |authorizer: &Arc<dyn Authorizer>| authorizer.members().is_some();
        if !self.authorizers.iter().any(is_chain) {
            return Cow::Borrowed(&self.authorizers);
        }
        let mut flat = Vec::new();
        for authorizer in &self.authorizers {
            match authorizer.members() {
                Some(members) => flat.extend(members.iter().cloned()),
                None => flat.push(authorizer.clone()),
            }
        }
        Cow::Owned(flat)
    }

    /// Decides. The first answer that is not `NoOpinion` counts.
    ///
    /// # Errors
    ///
    /// No authorizer allowed the request, and one returned an error: the last one's.
    pub(crate) async fn decide(&self, request: &Attributes) -> Result<Decision, ApiError> {
        let Opinion { decision, mut failures } = self.opinion(request).await;
        failures.pop().map_or(Ok(decision), Err)
    }

    /// Asks the authorizers. One that fails closed denies the request.
    pub(crate) async fn opinion(&self, request: &Attributes) -> Opinion {
        let allowed = || Decision::Allow(String::new());
        let mut failures = Vec::new();
        if request.identity.is_in(MASTERS) {
            return Opinion { decision: allowed(), failures };
        }
        let authorizers = self.flat();
        if is_probe(request) && !authorizers.iter().any(|authorizer| authorizer.decides_health()) {
            return Opinion { decision: allowed(), failures };
        }
        let mut reasons = Vec::new();
        for authorizer in authorizers.iter() {
            match authorizer.authorize(request).await {
                Ok(Decision::NoOpinion(reason)) if reason.is_empty() => {}
                Ok(Decision::NoOpinion(reason)) => reasons.push(reason),
                Ok(decision) => {
                    let is_allowed = matches!(decision, Decision::Allow(_));
                    self.decided.decided(authorizer.kind(), is_allowed);
                    return Opinion { decision, failures: Vec::new() };
                }
                Err(error) => {
                    failures.push(error);
                    if authorizer.fails_closed() {
                        self.decided.decided(authorizer.kind(), false);
                        return Opinion { decision: Decision::Deny(String::new()), failures };
                    }
                }
            }
        }
        Opinion { decision: Decision::NoOpinion(reasons.join("\n")), failures }
    }

    /// The rules of a user in a namespace; empty for cluster scope.
    pub(crate) fn rules(&self, identity: &Identity, namespace: &str) -> UserRules {
        let mut held = UserRules {
            rules: Vec::new(),
            is_known: false,
            unlisted: Vec::new(),
            missing_roles: Vec::new(),
        };
        for authorizer in self.flat().iter().filter(|one| one.concerns(identity)) {
            match authorizer.rules(identity, namespace) {
                Some(rules) => {
                    held.is_known = true;
                    held.rules.extend(rules);
                    held.missing_roles.extend(authorizer.missing_roles(identity, namespace));
                }
                None => held.unlisted.push(authorizer.kind().0.to_owned()),
            }
        }
        if identity.is_in(MASTERS) {
            // A role may say the same of them already.
            if !holds_everything(&held.rules) {
                held.rules.insert(0, EVERYTHING.clone());
            }
            held.is_known = true;
            held.unlisted.clear();
        }
        held
    }

    /// The rules of a role, from the first authorizer that knows it.
    pub(crate) fn role(
        &self,
        namespace: &str,
        is_cluster: bool,
        name: &str,
    ) -> Option<Arc<[Rule]>> {
        self.flat().iter().find_map(|known| known.role(namespace, is_cluster, name))
    }

    /// Refuses the request unless an authorizer allows it, and records the decision for the audit
    /// log and in `figures`.
    ///
    /// # Errors
    ///
    /// 403; 500 if no authorizer allowed the request and one returned an error.
    pub(crate) async fn authorize(
        &self,
        request: &Attributes,
        figures: &Figures,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let decision = self.decide(request).await;
        let decided = match &decision {
            Ok(Decision::Allow(_)) => Decided::Allowed,
            Ok(Decision::Deny(_)) => Decided::Denied,
            Ok(Decision::NoOpinion(_)) => Decided::NoOpinion,
            Err(_) => Decided::Failed,
        };
        let took = begun.elapsed();
        figures.authorized(decided, took);
        request.took(Layer::Authorization, took);
        let (word, reason) = match &decision {
            Ok(Decision::Allow(reason)) => (Some("allow"), reason.as_str()),
            Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
                (Some("forbid"), reason.as_str())
            }
            Err(_) => (None, "internal error"),
        };
        let reason = if reason.is_empty() { Cow::default() } else { reason.to_owned().into() };
        if let Some(word) = word {
            request.annotate_with("authorization.k8s.io/decision".into(), word.into());
        }
        request.annotate_with("authorization.k8s.io/reason".into(), reason);
        match decision? {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => {
                Err(forbidden(request, &reason))
            }
        }
    }
}

/// The 403 of a request, with Kubernetes' message. `reason` follows it, if it is not empty.
pub fn forbidden(request: &Attributes, reason: &str) -> ApiError {
    let (user, verb) = (&*request.identity.user, &request.verb);
    let mut why = if request.is_resource() {
        let resource = match request.subresource() {
            Some(subresource) => format!("{}/{subresource}", request.resource()),
            None => request.resource().to_owned(),
        };
        let place = match request.scope() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        format!(
            "User {} cannot {verb} resource {} in API group {} {place}",
            quote(user),
            quote(&resource),
            quote(request.group()),
        )
    } else {
        format!("User {} cannot {verb} path {}", quote(user), quote(request.path()))
    };
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let resource =
        GroupResource { group: request.group().into(), resource: request.resource().into() };
    ApiError::forbidden(&resource, request.name(), &why)
}

/// Health endpoints that everybody may get, as by the ClusterRole `system:public-info-viewer`,
/// where no authorizer decides about them. Single checks below them, and other methods, need a
/// right, such as that of `system:monitoring`.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Whether everybody may make a request if no authorizer decides about it.
pub(crate) fn is_probe(request: &Attributes) -> bool {
    request.verb == Verb::Get && ALWAYS_ALLOWED.contains(&request.path())
}

/// Whether `path` is a health endpoint: `/healthz`, `/livez`, `/readyz` or one of their checks.
pub fn is_health(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    matches!(first, Some("healthz" | "livez" | "readyz"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::ResourcePath;
    use crate::figures::Series;
    use crate::identity::Identity;
    use crate::routed::Requested;

    #[derive(Debug)]
    struct Answers(Result<Decision, u16>);
    impl Authorizer for Answers {
        fn authorize<'a>(
            &'a self,
            _request: &'a Attributes,
        ) -> BoxFuture<'a, Result<Decision, ApiError>> {
            let answer = self.0.clone();
            async move { answer.map_err(|_| ApiError::internal("out of reach")) }.boxed()
        }
    }

    fn request(user: Identity) -> Attributes {
        let path = ResourcePath {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            subresource: None,
        };
        Attributes::new(user, Verb::Get, Requested::Unrouted(path))
    }

    async fn check(answers: Vec<Result<Decision, u16>>) -> String {
        let authorizers = answers.into_iter().map(|a| Arc::new(Answers(a)) as Arc<dyn Authorizer>);
        let chain = Chain::new(authorizers.collect());
        match chain.authorize(&request(Identity::new("bob", [])), &Figures::default()).await {
            Ok(()) => "allowed".to_owned(),
            Err(error) => format!("{} {}", error.code(), error.0.message),
        }
    }

    #[tokio::test]
    async fn the_first_authorizer_with_an_opinion_decides() {
        let allow = || Ok(Decision::Allow("a".to_owned()));
        let deny = || Ok(Decision::Deny("because".to_owned()));
        let none = |why: &str| Ok(Decision::NoOpinion(why.to_owned()));
        let forbidden = r#"403 deployments.apps "web" is forbidden: User "bob" cannot get resource "deployments" in API group "apps" in the namespace "shop""#;
        assert_eq!(check(vec![none(""), allow(), deny()]).await, "allowed");
        assert_eq!(check(vec![deny(), allow()]).await, format!("{forbidden}: because"));
        assert_eq!(check(vec![none("x"), none(""), none("y")]).await, format!("{forbidden}: x\ny"));
        assert_eq!(check(vec![Err(0), allow()]).await, "allowed");
        assert_eq!(
            check(vec![Err(0), none("")]).await,
            "500 Internal error occurred: out of reach"
        );
    }

    /// An authorizer that cannot decide, and lets nobody else.
    #[derive(Debug)]
    struct Closed;
    impl Authorizer for Closed {
        fn authorize<'a>(
            &'a self,
            _request: &'a Attributes,
        ) -> BoxFuture<'a, Result<Decision, ApiError>> {
            async { Err(ApiError::internal("out of reach")) }.boxed()
        }
        fn fails_closed(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn an_error_ends_the_chain_if_the_authorizer_fails_closed() {
        let allows = || Arc::new(Answers(Ok(Decision::Allow(String::new()))));
        let bob = request(Identity::new("bob", []));
        let chain = Chain::new(vec![Arc::new(Closed), allows()]);
        assert_eq!(chain.authorize(&bob, &Figures::default()).await.unwrap_err().code(), 500);
        // Without a decision.
        let annotations: Vec<_> = bob.audit_annotations().into_iter().collect();
        let reason = ("authorization.k8s.io/reason".to_owned(), "internal error".to_owned());
        assert_eq!(annotations, [reason]);
        let chain = Chain::new(vec![allows(), Arc::new(Closed)]);
        assert!(chain.authorize(&bob, &Figures::default()).await.is_ok());
    }

    #[tokio::test]
    async fn health_is_for_everybody_to_get_and_no_more() {
        let chain = Chain::new(vec![Arc::new(Answers(Ok(Decision::NoOpinion(String::new()))))]);
        for (verb, path, is_allowed) in [
            ("get", "/healthz", true),
            ("get", "/livez", true),
            ("get", "/readyz", true),
            ("head", "/healthz", false),
            ("post", "/readyz", false),
            ("get", "/healthz/etcd", false),
        ] {
            let requested = Requested::Path(path.to_owned());
            let request = Attributes::new(Identity::anonymous(), Verb::from(verb), requested);
            let allowed = chain.authorize(&request, &Figures::default()).await;
            assert_eq!(allowed.is_ok(), is_allowed, "{verb} {path}: {allowed:?}");
        }
        // Unless an authorizer decides about them, even one of a chain.
        let denies = Arc::new(AlwaysDeny) as Arc<dyn Authorizer>;
        let requested = Requested::Path("/healthz".to_owned());
        let request = Attributes::new(Identity::anonymous(), Verb::Get, requested);
        for authorizer in [denies.clone(), Arc::new(Several([denies].into()))] {
            let (chain, figures) = (Chain::new(vec![authorizer]), Figures::default());
            assert_eq!(chain.authorize(&request, &figures).await.unwrap_err().code(), 403);
        }
    }

    #[derive(Debug)]
    struct Several(Arc<[Arc<dyn Authorizer>]>);
    impl Authorizer for Several {
        fn authorize<'a>(
            &'a self,
            _request: &'a Attributes,
        ) -> BoxFuture<'a, Result<Decision, ApiError>> {
            async { Err(ApiError::internal("not asked")) }.boxed()
        }
        fn members(&self) -> Option<Arc<[Arc<dyn Authorizer>]>> {
            Some(self.0.clone())
        }
    }

    #[tokio::test]
    async fn members_are_asked_in_the_place_of_a_chain() {
        let one = |answer| Arc::new(Answers(Ok(answer))) as Arc<dyn Authorizer>;
        let none = |why: &str| Decision::NoOpinion(why.to_owned());
        let several = Several([one(none("a")), Arc::new(AllowAuthenticated)].into());
        let chain = Chain::new(vec![one(none("b")), Arc::new(several)]);
        assert!(
            chain.authorize(&request(Identity::new("bob", [])), &Figures::default()).await.is_ok()
        );
        let Series::Counters(decided) = chain.decisions().series else { panic!("counters") };
        let labels = [("type", "AlwaysAllow"), ("name", "alwaysallow"), ("decision", "allowed")];
        assert_eq!(decided, [(labels.map(|(name, value)| (name, value.to_owned())).into(), 1)]);
        let held = chain.rules(&Identity::new("bob", []), "");
        assert_eq!((held.rules.len(), held.is_known), (1, true));
        assert_eq!(held.unlisted, ["Custom", "Custom"]);
        let several = Several([one(none("c"))].into());
        let chain = Chain::new(vec![Arc::new(several), one(none("b"))]);
        let error = chain
            .authorize(&request(Identity::new("bob", [])), &Figures::default())
            .await
            .unwrap_err();
        assert!(error.0.message.ends_with(": c\nb"), "{}", error.0.message);
    }

    #[tokio::test]
    async fn masters_and_health_need_no_opinion() {
        let chain = Chain::new(vec![Arc::new(Answers(Ok(Decision::Deny(String::new()))))]);
        assert!(chain.authorize(&request(Identity::admin()), &Figures::default()).await.is_ok());
        let path = |path: &str| {
            let path = Requested::Path(path.to_owned());
            Attributes::new(Identity::anonymous(), Verb::Get, path)
        };
        for open in ["/livez", "/readyz", "/healthz"] {
            assert!(chain.authorize(&path(open), &Figures::default()).await.is_ok(), "{open}");
        }
        for closed in ["/livez/ping", "/livez/", "/readyz/etcd", "/HEALTHZ"] {
            let refused = chain.authorize(&path(closed), &Figures::default()).await;
            assert_eq!(refused.unwrap_err().code(), 403, "{closed}");
        }
        let error = chain.authorize(&path("/version"), &Figures::default()).await.unwrap_err();
        assert_eq!(
            error.0.message,
            r#"forbidden: User "system:anonymous" cannot get path "/version""#
        );
    }

    #[tokio::test]
    async fn without_authorizers_authenticated_users_may_do_everything() {
        let chain = Chain::new(Vec::new());
        assert!(
            chain.authorize(&request(Identity::new("bob", [])), &Figures::default()).await.is_ok()
        );
        assert!(
            chain.authorize(&request(Identity::anonymous()), &Figures::default()).await.is_err()
        );
    }
}
