//! Who asks: an identity the transport vouches for, else a bearer token.
//!
//! Only the administrator has credentials so far; any other token or certificate is refused with 401. Health endpoints answer
//! whoever shows none.

use crate::identity::Identity;
use crate::route::Route;
use http::{Extensions, HeaderMap, header};
use sha2::{Digest, Sha256};

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
        route: Option<&Route>,
    ) -> Option<Identity> {
        if let Some(identity) = extensions.get::<Identity>() {
            return Some(identity.clone());
        }
        if let Some(token) = bearer(headers) {
            // Digests are compared, so that how long it takes tells nothing about a token.
            let digest: [u8; 32] = Sha256::digest(token).into();
            return self.tokens.iter().find(|(d, _)| *d == digest).map(|(_, who)| who.clone());
        }
        matches!(route, Some(Route::Health { .. })).then(Identity::anonymous)
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
            None,
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
    fn identity_of_the_transport_is_trusted() {
        let mut extensions = Extensions::new();
        extensions.insert(Identity::loopback());
        let who = Credentials::none().authenticate(&HeaderMap::new(), &extensions, None);
        assert_eq!(who, Some(Identity::loopback()));
    }

    #[test]
    fn tokens_are_not_printed() {
        let text = format!("{:?}", Credentials::none().token("t0ken", Identity::admin()));
        assert_eq!(text, r#"["system:admin"]"#);
    }
}
