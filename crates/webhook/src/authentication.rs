//! Token review webhooks: the user of a bearer token (WHK-10).

use crate::review::{Form, ReviewError, Version, check_object, nullable};
use crate::{Refusal, UserInfo};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A request for the user of a token.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRequest {
    /// The bearer token. Secret: `Debug` omits it.
    pub token: String,
    /// The audiences of which the token must be valid for at least one; empty means the API server
    /// itself.
    pub audiences: Vec<String>,
}

impl std::fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRequest").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

/// The authenticated user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authenticated {
    /// The user.
    pub user: UserInfo,
    /// The requested audiences that the token is valid for; empty if the webhook does not know
    /// audiences.
    pub audiences: Vec<String>,
}

/// Authenticates tokens.
///
/// Every `Fn(TokenRequest) -> impl Future<Output = Result<Option<Authenticated>, Refusal>>`
/// implements it.
pub trait Authenticator: Send + Sync + 'static {
    /// The token's user; `None` if the token is unknown.
    ///
    /// # Errors
    ///
    /// If the user cannot be determined. The API server receives the refusal's message and tries
    /// its next authenticator.
    fn authenticate(
        &self,
        request: TokenRequest,
    ) -> impl Future<Output = Result<Option<Authenticated>, Refusal>> + Send;
}

impl<F, Fut> Authenticator for F
where
    F: Fn(TokenRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Authenticated>, Refusal>> + Send,
{
    fn authenticate(
        &self,
        request: TokenRequest,
    ) -> impl Future<Output = Result<Option<Authenticated>, Refusal>> + Send {
        self(request)
    }
}

/// The result of an authenticator.
pub(crate) type Outcome = Result<Option<Authenticated>, Refusal>;

/// Object-safe form of [`Authenticator`].
pub(crate) trait ErasedAuthenticator: Send + Sync {
    fn authenticate_boxed(&self, request: TokenRequest) -> BoxFuture<'_, Outcome>;
}

impl<A: Authenticator> ErasedAuthenticator for A {
    fn authenticate_boxed(&self, request: TokenRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(self.authenticate(request))
    }
}

/// A token review that was read. It has no request UID; its metadata's UID, if any, is repeated.
pub(crate) struct TokenReview {
    pub(crate) version: Version,
    pub(crate) uid: String,
    pub(crate) request: TokenRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default, deserialize_with = "nullable")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Default, Deserialize, Serialize)]
struct Metadata {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    uid: String,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "nullable")]
    token: String,
    #[serde(default, deserialize_with = "nullable")]
    audiences: Vec<String>,
}

impl TokenReview {
    /// Parses a review.
    pub(crate) fn open(body: &[u8]) -> Result<Self, ReviewError> {
        check_object(body)?;
        let wire: Wire = serde_json::from_slice(body)?;
        let version = Form::TOKEN.version(&wire.api_version, &wire.kind)?;
        let Spec { token, audiences } = wire.spec.ok_or(ReviewError::NoRequest)?;
        Ok(Self { version, uid: wire.metadata.uid, request: TokenRequest { token, audiences } })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata,
    spec: Empty,
    status: TokenStatus<'a>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Default, Serialize)]
struct TokenStatus<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    authenticated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a UserInfo>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// Serializes the review with this result.
pub(crate) fn write(version: Version, uid: &str, answer: &Outcome) -> Bytes {
    let status = match answer {
        Ok(Some(Authenticated { user, audiences })) => TokenStatus {
            authenticated: Some(true),
            user: Some(user),
            audiences,
            ..TokenStatus::default()
        },
        Ok(None) => TokenStatus::default(),
        Err(refusal) => TokenStatus { error: &refusal.status().message, ..TokenStatus::default() },
    };
    let review = Review {
        kind: Form::TOKEN.kind,
        api_version: Form::TOKEN.api_version(version),
        metadata: Metadata { uid: uid.to_owned() },
        spec: Empty {},
        status,
    };
    // Cannot fail: every key is a string and every number is finite.
    serde_json::to_vec(&review).unwrap_or_default().into()
}
