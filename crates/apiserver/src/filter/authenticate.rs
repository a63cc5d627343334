//! Who asks: an identity the transport vouches for, else a bearer token.
//!
//! Only the administrator has credentials so far; any other token or certificate is refused with 401. Health endpoints answer
//! whoever shows none.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Extensions, HeaderMap, header};
use setpoint_registry::Identity;
use setpoint_serve::ConnectionPlace;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

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

    /// Who a request comes from; `None` is answered with 401.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        may_be_anonymous: bool,
    ) -> Option<Identity> {
        if let Some(identity) = extensions.get::<Identity>() {
            return Some(identity.clone());
        }
        if let Some(token) = bearer(headers).map(Cow::from).or_else(|| from_protocols(headers)) {
            // Digests are compared, so that how long it takes tells nothing about a token.
            let digest: [u8; 32] = Sha256::digest(&*token).into();
            return self.tokens.iter().find(|(d, _)| *d == digest).map(|(_, who)| who.clone());
        }
        may_be_anonymous.then(Identity::anonymous)
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

/// The bearer token: the scheme in any case, then one space, then the first word. Other schemes, an empty token and a second
/// space count as no credentials.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
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
    use http::HeaderValue;

    fn who(authorization: Option<&'static str>) -> Option<Identity> {
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(text));
        }
        Credentials::none().token("t0ken", Identity::admin()).authenticate(
            &headers,
            &Extensions::new(),
            false,
        )
    }

    #[test]
    fn only_the_known_token_gets_in() {
        assert_eq!(who(Some("Bearer t0ken")), Some(Identity::admin()));
        assert_eq!(who(Some("bearer t0ken more words")), Some(Identity::admin()));
        for refused in
            [None, Some("Bearer other"), Some("Bearer  t0ken"), Some("Basic t0ken"), Some("t0ken")]
        {
            assert_eq!(who(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn token_may_come_as_a_websocket_protocol() {
        let who = |protocols: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
            let credentials = Credentials::none().token("t0ken", Identity::admin());
            credentials.authenticate(&headers, &Extensions::new(), false)
        };
        let token = "base64url.bearer.authorization.k8s.io.dDBrZW4, x.k8s.io";
        assert_eq!(who(token), Some(Identity::admin()));
        assert_eq!(who("base64url.bearer.authorization.k8s.io.AAAA"), None);
        assert_eq!(who("x.k8s.io"), None);
    }

    #[test]
    fn identity_of_the_transport_is_trusted() {
        let mut extensions = Extensions::new();
        extensions.insert(Identity::loopback());
        let who = Credentials::none().authenticate(&HeaderMap::new(), &extensions, false);
        assert_eq!(who, Some(Identity::loopback()));
    }

    #[test]
    fn tokens_are_not_printed() {
        let text = format!("{:?}", Credentials::none().token("t0ken", Identity::admin()));
        assert_eq!(text, r#"["system:admin"]"#);
    }
}
