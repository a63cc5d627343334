//! Tokens of OpenID Connect issuers: [`setpoint_oidc`] behind the trait of authenticators, and its
//! place in a control plane.

use crate::ControlPlaneBuilder;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use setpoint_apiserver::{Authentication, Authenticator, bearer_token};
use setpoint_oidc::{Oidc, OidcWorker, Outcome};
use setpoint_registry::Identity;
use std::sync::Arc;

/// Authenticates by the tokens of other issuers.
#[derive(Debug, Clone)]
pub struct IssuerTokens(Oidc);

impl IssuerTokens {
    /// An authenticator over these issuers. The worker that was made with them must run.
    pub fn new(oidc: Oidc) -> Self {
        Self(oidc)
    }
}

impl Authenticator for IssuerTokens {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication> {
        async move {
            let Some(token) = bearer_token(&request.headers) else {
                return Authentication::NoOpinion;
            };
            match self.0.authenticate(&token).await {
                Outcome::NoOpinion => Authentication::NoOpinion,
                Outcome::Invalid(why) => Authentication::Invalid(why),
                Outcome::User(user) => Authentication::User(Identity {
                    uid: user.uid.as_str().into(),
                    extra: Arc::new(user.extra.clone()),
                    ..Identity::new(&user.username, user.groups.iter().map(String::as_str))
                }),
            }
        }
        .boxed()
    }
}

impl ControlPlaneBuilder {
    /// Accepts the tokens of other issuers, and runs the worker with the control plane. Like
    /// [`authenticator`](Self::authenticator), called after those that were added before. Default:
    /// none.
    pub fn issuers(self, (oidc, worker): (Oidc, OidcWorker)) -> Self {
        let mut this = self.authenticator(Arc::new(IssuerTokens::new(oidc)));
        this.extensions.task(move |_, stop| worker.run(stop).boxed());
        this
    }
}
