//! Who may come in: a token in the `Authorization` header, before every handler.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};

use super::{
    review::{Attributes, Reviewer},
    route::text,
};
use crate::error::chain;

/// What tells one token from another, and not what it is.
pub(super) type Fingerprint = [u8; 32];

/// Lets those in who bring a token that is good (1.3): one that is known here, or one that the API
/// server knows and whose user it lets get the path. Who brings none is refused with 401, who may
/// not with 403; when nobody can be asked the answer is 500. Cheap to clone.
#[derive(Clone)]
pub struct BearerAuth(How);

#[derive(Clone)]
enum How {
    Known(Fingerprint),
    Reviewed(Arc<Reviewer>),
}

impl BearerAuth {
    /// One token that is known here.
    pub fn token(token: &str) -> Self {
        Self(How::Known(fingerprint(token)))
    }

    /// Tokens of the API server: it is asked whose a token is (`TokenReview`), and whether that
    /// user may do what the request says (`SubjectAccessReview` of a path, with the method in lower
    /// case as the verb). This program's own user must be allowed to create both.
    ///
    /// An answer about a token holds for a minute, a permission for five, a refusal for 30 s, in at
    /// most [`REVIEW_CACHE_MAX`](super::REVIEW_CACHE_MAX) answers of each kind. A request that
    /// fails on the way or is answered 429 or 5xx is made again, up to five times in all, 500 ms
    /// after the first and half as long again each time.
    ///
    /// The seed is that of the jitter on these waits.
    pub fn reviewed(client: kube_client::Client, seed: u64) -> Self {
        Self(How::Reviewed(Arc::new(Reviewer::new(client, seed))))
    }

    /// Whether the request may pass; otherwise its answer.
    pub(super) async fn admit(&self, request: &Parts) -> Result<(), Response<Bytes>> {
        let Some(token) = bearer_token(&request.headers) else {
            return Err(unauthorized());
        };
        let fingerprint = fingerprint(token);
        let reviewer = match &self.0 {
            // What is compared are hashes: how long it takes says nothing about the token.
            How::Known(known) if *known == fingerprint => return Ok(()),
            How::Known(_) => return Err(unauthorized()),
            How::Reviewed(reviewer) => reviewer,
        };
        let failed = |what: &'static str| {
            move |error: kube_client::Error| {
                tracing::error!(error = chain(&error), what);
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}\n"))
            }
        };
        let user = reviewer.whose(fingerprint, token).await;
        let Some(user) = user.map_err(failed("Authentication failed"))? else {
            return Err(unauthorized());
        };
        let attributes = Attributes {
            path: request.uri.path().to_owned(),
            verb: request.method.as_str().to_ascii_lowercase(),
        };
        let may = reviewer.may(&user, attributes).await;
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
            How::Known(_) => "BearerAuth::token",
            How::Reviewed(_) => "BearerAuth::reviewed",
        })
    }
}
