//! Authentication by a bearer token, before every handler.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};
use setpoint_object::seed;

use super::{
    review::{Attributes, Reviewer},
    serve::text,
};
use crate::error::chain;

/// The hash of a token.
pub(super) type Fingerprint = [u8; 32];

/// Admits requests with a valid bearer token (1.3): a known token, or a token of the API server
/// whose user is permitted to get the path. Without a valid token the answer is 401, without the
/// permission 403, and 500 if the API server cannot be asked. Cheap to clone.
#[derive(Clone)]
pub struct BearerAuth(Method);

#[derive(Clone)]
enum Method {
    Known(Fingerprint),
    Reviewed(Arc<Reviewer>),
}

impl BearerAuth {
    /// Accepts one known token.
    pub fn token(token: &str) -> Self {
        Self(Method::Known(fingerprint(token)))
    }

    /// Accepts tokens of the API server. A `TokenReview` returns the user of a token, and a
    /// `SubjectAccessReview` whether the user may access the path, with the lower-case method as
    /// the verb. This program's own user must be permitted to create both.
    ///
    /// Results of token reviews are cached for a minute, permissions for five minutes, refusals for
    /// 30 s; at most [`REVIEW_CACHE_MAX`](super::REVIEW_CACHE_MAX) of each kind. A request that
    /// fails on the way, or is answered with 429 or 5xx, is retried, up to five tries in all, 500
    /// ms after the first and half as long again each time. An answer has at most
    /// [`REVIEW_BYTES_MAX`](super::REVIEW_BYTES_MAX) bytes; a token review takes at most 10 s, an
    /// access review 30 s.
    ///
    /// # Panics
    ///
    /// If the operating system provides no randomness, for the jitter on these delays.
    pub fn reviewed(client: kube_client::Client) -> Self {
        Self::reviewed_seeded(client, seed::from_entropy())
    }

    /// [`reviewed`](Self::reviewed) with a seed of the jitter, for a simulation.
    pub fn reviewed_seeded(client: kube_client::Client, seed: u64) -> Self {
        Self(Method::Reviewed(Arc::new(Reviewer::new(client, seed))))
    }

    /// Checks whether the request may pass. The error is the answer to send.
    pub(super) async fn admit(&self, request: &Parts) -> Result<(), Response<Bytes>> {
        let Some(token) = bearer_token(&request.headers) else {
            return Err(unauthorized());
        };
        let fingerprint = fingerprint(token);
        let reviewer = match &self.0 {
            // Hashes are compared, so the timing reveals nothing about the token.
            Method::Known(known) if *known == fingerprint => return Ok(()),
            Method::Known(_) => return Err(unauthorized()),
            Method::Reviewed(reviewer) => reviewer,
        };
        let failed = |what: &'static str| {
            move |error: kube_client::Error| {
                tracing::error!(error = chain(&error), what);
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}\n"))
            }
        };
        let user = reviewer.authenticate(fingerprint, token).await;
        let Some(user) = user.map_err(failed("Authentication failed"))? else {
            return Err(unauthorized());
        };
        let attributes = Attributes {
            path: request.uri.path().to_owned(),
            verb: request.method.as_str().to_ascii_lowercase(),
        };
        let may = reviewer.authorize(&user, attributes).await;
        if may.map_err(failed("Authorization failed"))? {
            return Ok(());
        }
        Err(text(StatusCode::FORBIDDEN, "Authorization denied\n"))
    }
}

fn unauthorized() -> Response<Bytes> {
    let mut answer = text(StatusCode::UNAUTHORIZED, "Unauthorized\n");
    let bearer = http::HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    answer
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn fingerprint(token: &str) -> Fingerprint {
    let mut bytes = Fingerprint::default();
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

impl fmt::Debug for BearerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Method::Known(_) => "BearerAuth::token",
            Method::Reviewed(_) => "BearerAuth::reviewed",
        })
    }
}
