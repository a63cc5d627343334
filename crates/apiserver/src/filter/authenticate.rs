//! Authentication: the identity that the transport vouches for, else a token the server was given,
//! else what an [`Authenticator`] says, else 401. Health endpoints answer whoever shows no
//! credentials.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, header};
use setpoint_registry::Identity;
use setpoint_serve::ConnectionPlace;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// What an authenticator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// The request comes from this user. Nobody else is asked. The user is put into
    /// `system:authenticated`.
    User(Identity),
    /// The next one is asked: the request shows no credentials of this kind.
    NoOpinion,
    /// The credentials are of this kind and wrong: 401. Nobody else is asked.
    Refused,
}

/// Says who sends a request.
/// [`ApiServerBuilder::authenticator`](crate::ApiServerBuilder::authenticator) adds one.
///
/// It is asked when neither the transport nor [`Credentials`] know the user. A request whose user
/// nobody knows is answered with 401; the health endpoints answer it as `system:anonymous` if it
/// shows no token.
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
    /// Looks at the head of a request. Dropping the future must leave nothing behind.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication>;
}

/// Everybody who is asked who sends a request, in order.
#[derive(Debug)]
pub(crate) struct Authenticators {
    /// Tokens that were given to the server.
    pub(crate) credentials: Credentials,
    /// What an embedder adds.
    pub(crate) added: Vec<Arc<dyn Authenticator>>,
}

impl Authenticators {
    /// Who a request comes from; `None` is answered with 401.
    pub(crate) async fn identify(
        &self,
        request: &Parts,
        may_be_anonymous: bool,
    ) -> Option<Identity> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Some(identity.clone());
        }
        if let Some(identity) = self.credentials.authenticate(&request.headers) {
            return Some(identity);
        }
        for authenticator in &self.added {
            match authenticator.authenticate(request).await {
                Authentication::User(identity) => return Some(authenticated(identity)),
                Authentication::NoOpinion => {}
                Authentication::Refused => return None,
            }
        }
        let shows_token =
            bearer(&request.headers).is_some() || from_protocols(&request.headers).is_some();
        (may_be_anonymous && !shows_token).then(Identity::anonymous)
    }
}

/// A user in the group of all that are known.
fn authenticated(identity: Identity) -> Identity {
    const GROUP: &str = "system:authenticated";
    if identity.is_in(GROUP) {
        return identity;
    }
    let groups = identity.groups.iter().cloned().chain([GROUP.into()]).collect();
    Identity { groups, ..identity }
}

/// The group of whoever shows no credentials.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Credentials that are accepted. Tokens are kept as digests and never printed.
#[derive(Clone, Default)]
pub struct Credentials {
    tokens: Vec<([u8; 32], Identity)>,
}

impl Credentials {
    /// None: only identities that a transport vouches for get in.
    pub fn none() -> Self {
        Self::default()
    }

    /// Accepts a bearer token.
    #[must_use]
    pub fn token(mut self, token: &str, identity: Identity) -> Self {
        self.tokens.push((Sha256::digest(token).into(), identity));
        self
    }

    /// The user of the request's token.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Option<Identity> {
        let token = bearer(headers).map(Cow::from).or_else(|| from_protocols(headers))?;
        // Digests are compared, so that how long it takes tells nothing about a token.
        let digest: [u8; 32] = Sha256::digest(&*token).into();
        self.tokens.iter().find(|(d, _)| *d == digest).map(|(_, who)| who.clone())
    }
}

/// Gives the connection of an authenticated request a place that anonymous peers cannot take.
pub(crate) fn keep_connection(extensions: &Extensions, identity: &Identity) {
    if let Some(place) = extensions.get::<ConnectionPlace>()
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

/// The bearer token: the scheme in any case, then one space, then the first word. Other schemes, an
/// empty token and a second space count as no credentials.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Takes the user's secrets out of a request that goes on to somebody else: what they say has been
/// heard.
pub(crate) fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    let protocols = || headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let words = || protocols().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    if words().any(|word| word.trim().starts_with(TOKEN_PROTOCOL)) {
        let kept = words().map(str::trim).filter(|word| !word.starts_with(TOKEN_PROTOCOL));
        let kept = kept.collect::<Vec<_>>().join(", ");
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        if let (false, Ok(kept)) = (kept.is_empty(), HeaderValue::try_from(kept)) {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
        }
    }
}

/// What the name of a WebSocket protocol that carries a token begins with.
pub(crate) const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The token that browsers, which cannot set headers on WebSockets, send among the protocols.
fn from_protocols(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let mut words = lines.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let encoded = words.find_map(|word| word.trim().strip_prefix(TOKEN_PROTOCOL))?;
    let token = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    String::from_utf8(token).ok().map(Cow::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn identify(add: impl FnOnce(&mut http::Request<()>)) -> Option<Identity> {
        let credentials = Credentials::none().token("t0ken", Identity::admin());
        let chain = Authenticators { credentials, added: Vec::new() };
        let mut request = http::Request::new(());
        add(&mut request);
        chain.identify(&request.into_parts().0, false).await
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
    async fn only_the_known_token_gets_in() {
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
    fn secrets_are_taken_out_and_other_protocols_stay() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer t0ken"));
        let protocols = "base64url.bearer.authorization.k8s.io.dDBrZW4, v5.channel.k8s.io,x";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        strip_credentials(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[header::SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io, x");
    }

    #[tokio::test]
    async fn identity_of_the_transport_is_trusted() {
        let loopback = |request: &mut http::Request<()>| {
            request.extensions_mut().insert(Identity::loopback());
        };
        assert_eq!(identify(loopback).await, Some(Identity::loopback()));
    }

    #[derive(Debug)]
    struct Says(Authentication);
    impl Authenticator for Says {
        fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, Authentication> {
            let answer = self.0.clone();
            Box::pin(async move { answer })
        }
    }

    #[tokio::test]
    async fn first_answer_wins() {
        let bob = || Authentication::User(Identity::new("bob", ["team"]));
        for (answers, expected) in [
            (vec![Authentication::NoOpinion, bob()], Some(vec!["team", "system:authenticated"])),
            (vec![bob(), Authentication::Refused], Some(vec!["team", "system:authenticated"])),
            (vec![Authentication::Refused, bob()], None),
            (vec![Authentication::NoOpinion], None),
        ] {
            let added = answers.into_iter().map(|a| Arc::new(Says(a)) as Arc<dyn Authenticator>);
            let chain = Authenticators { credentials: Credentials::none(), added: added.collect() };
            let (parts, ()) = http::Request::new(()).into_parts();
            let identity = chain.identify(&parts, false).await;
            let groups = identity
                .as_ref()
                .map(|i| i.groups.iter().map(|group| &**group).collect::<Vec<_>>());
            assert_eq!(groups, expected);
        }
    }

    #[test]
    fn tokens_are_not_printed() {
        let text = format!("{:?}", Credentials::none().token("t0ken", Identity::admin()));
        assert_eq!(text, r#"["system:admin"]"#);
    }
}
