//! Authentication: the identity from the transport, otherwise from a token of the server, otherwise
//! from an [`Authenticator`]. A request without credentials may be anonymous ([`Anonymous`]). All
//! others are answered with 401.

mod authorities;
mod bootstrap;
mod request_header;
mod service_account;
pub(crate) mod subject;

pub use authorities::{AuthorityError, ClientAuthorities};
pub use request_header::{NotText, RequestHeader, RequestHeaderNames};
pub use subject::identity as certificate_user;

use crate::filter::impersonate;
use crate::token_use::TokenUse;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bootstrap::BootstrapTokens;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use service_account::ServiceAccounts;
use setpoint_object::users::{self, AUTHENTICATED, UNAUTHENTICATED};
use setpoint_registry::{Identity, Registry, TokenReviewer, TokenVerdict, WeakRegistry, is_health};
use setpoint_serve::ConnectionSlot;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// An authenticator's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// The request comes from this user. No further authenticator is called. The user is added to
    /// `system:authenticated`, unless it is `system:anonymous` or in `system:unauthenticated`.
    User(Identity),
    /// The same, by a token for these audiences, which are among the requested [`TokenAudiences`].
    Token(Identity, Vec<String>),
    /// The request has no credentials of this kind. The next authenticator is called.
    NoOpinion,
    /// The credentials are of this kind and invalid, for the given reason, which a TokenReview
    /// shows. The next authenticator is called: it may know them.
    Invalid(String),
    /// The credentials are of this kind and invalid: 401. No further authenticator is called.
    Refused,
}

/// The audiences of a TokenReview: an extension of the request that an
/// [`Authenticator`] gets. Without it, a token must be for the server's own audiences
/// ([`ServiceAccountTokens::audiences`](setpoint_registry::ServiceAccountTokens::audiences)).
///
/// An authenticator without audiences ignores it. Its users are valid for the server's own ones.
#[derive(Debug, Clone)]
pub struct TokenAudiences(pub Arc<[String]>);

/// Determines the user of a request.
/// [`ApiServerBuilder::authenticator`](crate::ApiServerBuilder::authenticator) adds one.
///
/// It is called if neither the transport, nor [`Credentials`], nor the token of a service account
/// identify the user. A request without a known user is anonymous ([`Anonymous`]) or answered with
/// 401.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use setpoint_apiserver::{Authentication, Authenticator, Identity};
///
/// /// Users of a proxy that this server trusts.
/// #[derive(Debug)]
/// struct Proxy;
///
/// impl Authenticator for Proxy {
///     fn authenticate<'a>(&'a self, request: &'a http::request::Parts) -> BoxFuture<'a, Authentication> {
///         let user = request.headers.get("x-remote-user").and_then(|user| user.to_str().ok());
///         let answer = match user {
///             Some(user) => Authentication::User(Identity::new(user, [])),
///             None => Authentication::NoOpinion,
///         };
///         async move { answer }.boxed()
///     }
/// }
/// ```
pub trait Authenticator: std::fmt::Debug + Send + Sync {
    /// Authenticates by the head of a request. Dropping the future must leave no side effects.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication>;
}

/// The connection of a request has a client certificate, and nobody knows it: an extension of the
/// request, set by listeners. Such a request is never anonymous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnknownCertificate;

/// Which requests without credentials are those of `system:anonymous`. All others are answered with
/// 401, and so are requests with invalid credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Anonymous {
    /// None.
    Nowhere,
    /// Those for the health endpoints: `/healthz`, `/livez`, `/readyz` and what is below.
    #[default]
    Health,
    /// Those for exactly these paths.
    Paths(Vec<String>),
    /// All. What they may do is up to the authorizers.
    Everywhere,
}

impl Anonymous {
    /// Whether a request for this path may be anonymous.
    fn is_allowed(&self, path: &str) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Health => is_health(path),
            Self::Paths(paths) => paths.iter().any(|allowed| allowed == path),
            Self::Everywhere => true,
        }
    }
}

/// The authenticators in call order.
#[derive(Debug)]
pub(crate) struct Authenticators {
    registry: WeakRegistry,
    /// Tokens of the server.
    credentials: Credentials,
    /// The first of the chain.
    accounts: Arc<ServiceAccounts>,
    /// Kubernetes' own, then those of an embedder.
    chain: Vec<Arc<dyn Authenticator>>,
    /// Tokens that single listeners accept, for reviews.
    of_listeners: Mutex<Vec<Credentials>>,
    anonymous: Anonymous,
}

impl Authenticators {
    pub(crate) fn new(
        registry: &Registry,
        credentials: Credentials,
        has_bootstrap_tokens: bool,
        added: Vec<Arc<dyn Authenticator>>,
    ) -> Self {
        let registry = registry.downgrade();
        let accounts = Arc::new(ServiceAccounts::new(registry.clone()));
        let mut chain: Vec<Arc<dyn Authenticator>> = vec![accounts.clone()];
        if has_bootstrap_tokens {
            chain.push(Arc::new(BootstrapTokens::new(registry.clone())));
        }
        chain.extend(added);
        Self {
            registry,
            credentials,
            accounts,
            chain,
            of_listeners: Mutex::default(),
            anonymous: Anonymous::default(),
        }
    }

    /// Sets which requests may be anonymous. Default: [`Anonymous::Health`].
    pub(crate) fn anonymous(self, anonymous: Anonymous) -> Self {
        Self { anonymous, ..self }
    }

    /// Adds tokens that one listener accepts. Reviews know them; other listeners do not accept
    /// them.
    pub(crate) fn add_listener(&self, credentials: &Credentials) {
        self.of_listeners.lock().push(credentials.clone());
    }

    /// The user of a request; `None` is answered with 401.
    pub(crate) async fn identify(&self, request: &Parts) -> Option<Identity> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Some(identity.clone());
        }
        if let Some(identity) = self.credentials.authenticate(&request.headers) {
            return Some(identity);
        }
        for authenticator in &self.chain {
            match authenticator.authenticate(request).await {
                Authentication::User(identity) | Authentication::Token(identity, _) => {
                    return Some(authenticated(identity));
                }
                Authentication::NoOpinion | Authentication::Invalid(_) => {}
                Authentication::Refused => return None,
            }
        }
        let shows_credentials = has_credentials(request);
        let may_be_anonymous = self.anonymous.is_allowed(request.uri.path());
        (may_be_anonymous && !shows_credentials).then(Identity::anonymous)
    }

    /// What kind of token of a service account a request has, whose user is this.
    pub(crate) async fn token_use(
        &self,
        request: &Parts,
        identity: Option<&Identity>,
    ) -> Option<TokenUse> {
        if identity.is_some_and(|identity| users::service_account_of(&identity.user).is_none()) {
            return None;
        }
        let (token, registry) = (bearer_token(&request.headers)?, self.registry.upgrade()?);
        self.accounts.token_use(&registry, &token, identity.is_some()).await
    }

    /// Authenticates a token as if a request had it. The second value is what the authenticators
    /// say against it. `is_shown`: the request has a token.
    async fn user_of(
        &self,
        request: &Parts,
        own: &[String],
        asked: &[String],
        is_shown: bool,
    ) -> Result<(Identity, Vec<String>), Vec<String>> {
        let of_server = || -> Vec<String> {
            own.iter().filter(|audience| asked.contains(audience)).cloned().collect()
        };
        let known = self.credentials.authenticate(&request.headers).or_else(|| {
            let of_listeners = self.of_listeners.lock();
            of_listeners.iter().find_map(|known| known.authenticate(&request.headers))
        });
        if let Some(identity) = known.filter(|_| !of_server().is_empty()) {
            return Ok((authenticated(identity), of_server()));
        }
        let mut errors = Vec::new();
        if is_shown {
            errors.push(INVALID_TOKEN.to_owned());
        }
        for authenticator in &self.chain {
            match authenticator.authenticate(request).await {
                Authentication::User(identity) if !of_server().is_empty() => {
                    return Ok((authenticated(identity), of_server()));
                }
                Authentication::Token(identity, audiences) => {
                    return Ok((authenticated(identity), audiences));
                }
                Authentication::Invalid(error) if errors.contains(&error) => {}
                Authentication::Invalid(error) => errors.push(error),
                Authentication::User(_) | Authentication::NoOpinion => {}
                Authentication::Refused => return Err(errors),
            }
        }
        if errors.is_empty() && self.anonymous == Anonymous::Everywhere {
            return Ok((Identity::anonymous(), asked.to_vec()));
        }
        Err(errors)
    }

    async fn verdict(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let own: Vec<String> = match self.registry.upgrade() {
            Some(registry) => {
                let own = registry.service_account_tokens().audiences();
                own.into_iter().map(str::to_owned).collect()
            }
            None => Vec::new(),
        };
        let asked = if audiences.is_empty() { &own[..] } else { audiences };
        let header = format!("Bearer {token}");
        // What a request with this token would not show is as the token of no request.
        let is_shown = bearer_of(&header).is_some();
        let mut request = http::Request::builder().extension(TokenAudiences(asked.into()));
        if is_shown {
            request = request.header(header::AUTHORIZATION, header);
        }
        let outcome = match request.body(()) {
            Ok(request) => self.user_of(&request.into_parts().0, &own, asked, is_shown).await,
            // Not a header: no token either.
            Err(_) => Err(vec![INVALID_TOKEN.to_owned()]),
        };
        match outcome {
            Ok((user, audiences)) => {
                TokenVerdict { user: Some(user), audiences, error: String::new() }
            }
            Err(errors) => {
                let error = match &*errors {
                    [] => String::new(),
                    [error] => error.clone(),
                    errors => format!("[{}]", errors.join(", ")),
                };
                TokenVerdict { error, ..TokenVerdict::default() }
            }
        }
    }
}

/// The error of a review of an invalid token, before the details.
const INVALID_TOKEN: &str = "invalid bearer token";

impl TokenReviewer for Authenticators {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, TokenVerdict> {
        Box::pin(self.verdict(token, audiences))
    }
}

/// Adds a user to the group of authenticated users. A proxy may forward a request that is nobody's:
/// `system:anonymous`, and whoever is in `system:unauthenticated`, is not added.
pub(crate) fn authenticated(identity: Identity) -> Identity {
    let is_nobody = &*identity.user == users::ANONYMOUS || identity.is_in(UNAUTHENTICATED);
    if is_nobody || identity.is_in(AUTHENTICATED) {
        return identity;
    }
    let groups = identity.groups.iter().cloned().chain([AUTHENTICATED.into()]).collect();
    Identity { groups, ..identity }
}

/// Accepted credentials. Tokens are stored as digests and never printed.
#[derive(Clone, Default)]
pub struct Credentials {
    tokens: Vec<([u8; 32], Identity)>,
}

impl Credentials {
    /// No credentials: only identities from a transport are accepted.
    pub fn none() -> Self {
        Self::default()
    }

    /// Accepts a bearer token. Its user is added to `system:authenticated`.
    #[must_use]
    pub fn token(mut self, token: &str, identity: Identity) -> Self {
        self.tokens.push((Sha256::digest(token).into(), authenticated(identity)));
        self
    }

    /// The user of the request's token.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Option<Identity> {
        let token = bearer_token(headers)?;
        // Compares digests, so that the time it takes reveals nothing about a token.
        let digest: [u8; 32] = Sha256::digest(&*token).into();
        self.tokens.iter().find(|(d, _)| *d == digest).map(|(_, who)| who.clone())
    }
}

/// Marks the connection of an authenticated request, so that anonymous peers cannot displace it.
pub(crate) fn keep_connection(extensions: &Extensions, identity: &Identity) {
    if let Some(place) = extensions.get::<ConnectionSlot>()
        && !identity.is_in(UNAUTHENTICATED)
    {
        place.authenticated();
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tokens.iter().map(|(_, identity)| &identity.user)).finish()
    }
}

/// The bearer token of a request: of its `Authorization` header, or, of a WebSocket's, among the
/// protocols. Other schemes, an empty token and a second space before the token count as none.
pub fn bearer_token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    bearer(headers).map(Cow::from).or_else(|| from_protocols(headers))
}

/// Whether a request has a token, or a client certificate of an unknown authority.
pub(crate) fn has_credentials(request: &Parts) -> bool {
    request.extensions.get::<UnknownCertificate>().is_some()
        || bearer(&request.headers).is_some()
        || protocols(&request.headers).any(|word| word.starts_with(TOKEN_PROTOCOL))
}

/// The warning for a header whose token is ignored because of a second space; `None` for others.
pub(crate) fn extra_space(headers: &HeaderMap) -> Option<&'static str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && rest.starts_with(' ')).then_some(
        "the provided Authorization header contains extra space before the bearer token, and is ignored",
    )
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_of(headers.get(header::AUTHORIZATION)?.to_str().ok()?)
}
/// The bearer token: the scheme in any case, then one space, then the first word. Other schemes, an
/// empty token and a second space count as no credentials.
fn bearer_of(header: &str) -> Option<&str> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Removes the user's secrets from a request that is forwarded, and the user it acts as: they have
/// been checked already.
pub(crate) fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    impersonate::strip(headers);
    request_header::strip_standard(headers);
    if protocols(headers).any(|word| word.starts_with(TOKEN_PROTOCOL)) {
        let remaining = protocols(headers).filter(|word| !word.starts_with(TOKEN_PROTOCOL));
        let remaining = remaining.collect::<Vec<_>>().join(", ");
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        if let (false, Ok(remaining)) = (remaining.is_empty(), HeaderValue::try_from(remaining)) {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, remaining);
        }
    }
}

/// Prefix of the WebSocket protocol name that contains a token.
pub(crate) const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The protocols that a WebSocket's client offers.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

/// The token that browsers, which cannot set headers on WebSockets, send among the protocols.
fn from_protocols(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let encoded = protocols(headers).find_map(|word| word.strip_prefix(TOKEN_PROTOCOL))?;
    let token = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    String::from_utf8(token).ok().map(Cow::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let store = Arc::new(setpoint_store::MemoryStore::default());
        let clock = setpoint_object::time::Clock::starting_at(Default::default());
        Registry::builder(store, clock).seed(1).build().0
    }
    async fn identify(add: impl FnOnce(&mut http::Request<()>)) -> Option<Identity> {
        let credentials = Credentials::none().token("t0ken", Identity::admin());
        let chain = Authenticators::new(&registry(), credentials, false, Vec::new());
        let mut request = http::Request::new(());
        add(&mut request);
        chain.identify(&request.into_parts().0).await
    }
    async fn who(authorization: Option<&'static str>) -> Option<Identity> {
        identify(|request| {
            if let Some(text) = authorization {
                let value = HeaderValue::from_static(text);
                request.headers_mut().insert(header::AUTHORIZATION, value);
            }
        })
        .await
    }

    #[tokio::test]
    async fn only_a_known_token_is_accepted() {
        assert_eq!(who(Some("Bearer t0ken")).await, Some(Identity::admin()));
        assert_eq!(who(Some("bearer t0ken more words")).await, Some(Identity::admin()));
        for refused in
            [None, Some("Bearer other"), Some("Bearer  t0ken"), Some("Basic t0ken"), Some("t0ken")]
        {
            assert_eq!(who(refused).await, None, "{refused:?}");
        }
    }

    #[tokio::test]
    async fn token_may_come_as_a_websocket_protocol() {
        let who = |protocols: &'static str| {
            identify(move |request| {
                let value = HeaderValue::from_static(protocols);
                request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
            })
        };
        let token = "base64url.bearer.authorization.k8s.io.dDBrZW4, x.k8s.io";
        assert_eq!(who(token).await, Some(Identity::admin()));
        assert_eq!(who("base64url.bearer.authorization.k8s.io.AAAA").await, None);
        assert_eq!(who("x.k8s.io").await, None);
    }

    #[test]
    fn tokens_are_removed_and_other_protocols_stay() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer t0ken"));
        let protocols = "base64url.bearer.authorization.k8s.io.dDBrZW4, v5.channel.k8s.io,x";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        strip_credentials(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[header::SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io, x");
    }

    #[tokio::test]
    async fn the_identity_from_the_transport_is_trusted() {
        let loopback = |request: &mut http::Request<()>| {
            request.extensions_mut().insert(Identity::loopback());
        };
        assert_eq!(identify(loopback).await, Some(Identity::loopback()));
    }

    #[derive(Debug)]
    struct Answers(Authentication);
    impl Authenticator for Answers {
        fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, Authentication> {
            let answer = self.0.clone();
            Box::pin(async move { answer })
        }
    }

    #[tokio::test]
    async fn the_first_authenticator_with_an_answer_decides() {
        let bob = || Authentication::User(Identity::new("bob", ["team"]));
        for (answers, expected) in [
            (vec![Authentication::NoOpinion, bob()], Some(vec!["team", "system:authenticated"])),
            (vec![bob(), Authentication::Refused], Some(vec!["team", "system:authenticated"])),
            (vec![Authentication::Refused, bob()], None),
            (
                vec![Authentication::Invalid("old".to_owned()), bob()],
                Some(vec!["team", "system:authenticated"]),
            ),
            (vec![Authentication::Invalid("old".to_owned())], None),
            (vec![Authentication::NoOpinion], None),
        ] {
            let added = answers.into_iter().map(|a| Arc::new(Answers(a)) as Arc<dyn Authenticator>);
            let chain =
                Authenticators::new(&registry(), Credentials::none(), true, added.collect());
            let (parts, ()) = http::Request::new(()).into_parts();
            let identity = chain.identify(&parts).await;
            let groups = identity
                .as_ref()
                .map(|i| i.groups.iter().map(|group| &**group).collect::<Vec<_>>());
            assert_eq!(groups, expected);
        }
    }

    #[test]
    fn requests_without_credentials_are_anonymous_where_it_is_allowed() {
        let allowed = |anonymous: &Anonymous| {
            let paths = ["/livez", "/readyz/ping", "/livezx", "/metrics", "/api"];
            paths.map(|path| anonymous.is_allowed(path))
        };
        assert_eq!(allowed(&Anonymous::Nowhere), [false; 5]);
        assert_eq!(allowed(&Anonymous::Health), [true, true, false, false, false]);
        let paths = Anonymous::Paths(vec!["/livez".to_owned(), "/metrics".to_owned()]);
        assert_eq!(allowed(&paths), [true, false, false, true, false]);
        assert_eq!(allowed(&Anonymous::Everywhere), [true; 5]);
    }

    #[test]
    fn a_forwarded_anonymous_user_is_not_authenticated() {
        let groups = |name: &str, groups: &[&str]| {
            let identity = authenticated(Identity::new(name, groups.iter().copied()));
            identity.groups.iter().map(|group| group.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(groups("bob", &["team"]), ["team", AUTHENTICATED]);
        assert_eq!(groups("bob", &[AUTHENTICATED]), [AUTHENTICATED]);
        assert_eq!(groups(users::ANONYMOUS, &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert!(groups(users::ANONYMOUS, &[]).is_empty());
        assert_eq!(groups("bob", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
    }

    #[test]
    fn tokens_are_not_printed() {
        let text = format!("{:?}", Credentials::none().token("t0ken", Identity::admin()));
        assert_eq!(text, r#"["system:admin"]"#);
    }
}
