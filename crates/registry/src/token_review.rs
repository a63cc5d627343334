//! Reviews of tokens. The registry knows no credentials: an implementation of this trait
//! authenticates.
use crate::identity::Identity;
use futures::future::BoxFuture;
use std::fmt::Debug;

/// Authenticates the token of a review. Set by
/// [`Registry::set_token_reviewer`](crate::Registry::set_token_reviewer).
pub trait TokenReviewer: Debug + Send + Sync {
    /// The user of a token that is for one of the audiences. If there are none, those of the server
    /// count. Dropping the future must leave no side effects.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String])
    -> BoxFuture<'a, TokenVerdict>;
}

/// The result of a token's review.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenVerdict {
    /// The user; `None`: the token is not valid.
    pub user: Option<Identity>,
    /// The requested audiences that the token is for.
    pub audiences: Vec<String>,
    /// Why the token is not valid.
    pub error: String,
}
