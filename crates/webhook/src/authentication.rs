//! Token review webhooks: who does this token belong to (WHK-10).

use crate::review::{Form, ReviewError, Version, check_object, nullable};
use crate::{Refusal, UserInfo};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A question: whose token is this.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRequest {
    /// The bearer token. A secret: not shown by `Debug`.
    pub token: String,
    /// Whom the token must be meant for, at least one of them; empty for the API server itself.
    pub audiences: Vec<String>,
}

impl std::fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRequest").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authenticated {
    /// The user.
    pub user: UserInfo,
    /// Those of the request's audiences that the token is meant for; empty when the webhook knows
    /// nothing of audiences.
    pub audiences: Vec<String>,
}

/// Tells whose tokens are.
///
/// Every `Fn(TokenRequest) -> impl Future<Output = Result<Option<Authenticated>, Refusal>>` is one.
pub trait Authenticator: Send + Sync + 'static {
    /// The token's user; `None` for a token of nobody.
    ///
    /// # Errors
    ///
    /// When that cannot be found out: the API server gets the refusal's message, and asks its next
    /// authenticator.
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

/// What an authenticator says.
pub(crate) type Answer = Result<Option<Authenticated>, Refusal>;

/// [`Authenticator`] behind a pointer.
pub(crate) trait ErasedAuthenticator: Send + Sync {
    fn authenticate_boxed(&self, request: TokenRequest) -> BoxFuture<'_, Answer>;
}

impl<A: Authenticator> ErasedAuthenticator for A {
    fn authenticate_boxed(&self, request: TokenRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.authenticate(request))
    }
}

/// A token review that was read. It has no UID of its own; that of its metadata, if any, is
/// repeated.
pub(crate) struct Question {
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

impl Question {
    /// Reads a review.
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

/// The review with this answer.
pub(crate) fn write(version: Version, uid: &str, answer: &Answer) -> Bytes {
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
    // Every key is a text and every number finite, which is all that could fail.
    serde_json::to_vec(&review).unwrap_or_default().into()
}
