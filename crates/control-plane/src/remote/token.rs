//! Authentication by a webhook: `TokenReview` (spec: auth §1, row 7).

use super::cache::{Answer, Answers};
use super::{ATTEMPT_MAX, Remote, RemoteError};
use futures::future::{BoxFuture, FutureExt as _};
use http::request::Parts;
use kube_client::Config;
use serde_json::{Value, json};
use setpoint_apiserver::{Authentication, Authenticator, bearer_token};
use setpoint_egress::Dialer;
use setpoint_registry::Identity;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer counts by default: 2 min, as kube-apiserver's.
pub const TOKEN_TTL: Duration = Duration::from_secs(120);

/// An authenticator that posts bearer tokens as a `TokenReview` (`authentication.k8s.io/v1`) to
/// another server. While that does not answer, the tokens that only it knows are invalid.
#[derive(Debug)]
pub struct TokenWebhook {
    remote: Remote,
    ttl: Duration,
    answers: Answers<Option<Identity>>,
}

impl TokenWebhook {
    /// An authenticator that calls the server of a kubeconfig's current context, and caches its
    /// answers for `ttl` ([`TOKEN_TTL`]; zero: not cached). Call it within a tokio
    /// runtime. Connects later, with the dialer.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be used.
    pub async fn open(
        kubeconfig: impl AsRef<Path>,
        dialer: Dialer,
        ttl: Duration,
    ) -> Result<Self, RemoteError> {
        let remote = Remote::open(kubeconfig.as_ref(), dialer).await?;
        Ok(Self { remote, ttl, answers: Answers::new() })
    }

    /// The same for an API server.
    ///
    /// # Errors
    ///
    /// No client of it can be made.
    pub fn at(server: Config, ttl: Duration) -> Result<Self, RemoteError> {
        let remote = Remote::at(server, "/apis/authentication.k8s.io/v1/tokenreviews")?;
        Ok(Self { remote, ttl, answers: Answers::new() })
    }

    async fn identify(&self, token: &str) -> Option<Identity> {
        if let Some(answer) = self.answers.get(token.as_bytes()) {
            return answer;
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        match self.remote.review(&review, ATTEMPT_MAX).await {
            Ok(answer) => {
                let identity = identity(&answer["status"]);
                self.answers.keep(token.as_bytes(), identity.clone(), self.ttl);
                identity
            }
            Err(error) => {
                tracing::warn!(error, "ask the token webhook");
                None
            }
        }
    }
}

impl Answer for Option<Identity> {
    fn n_bytes(&self) -> usize {
        let Some(identity) = self else { return 0 };
        let groups: usize = identity.groups.iter().map(|group| group.len() + 32).sum();
        let values =
            |values: &Vec<String>| values.iter().map(|text| text.len() + 24).sum::<usize>();
        let extra = identity.extra.iter().map(|(key, list)| key.len() + 48 + values(list));
        identity.user.len() + identity.uid.len() + groups + extra.sum::<usize>()
    }
}

impl Authenticator for TokenWebhook {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication> {
        async move {
            let Some(token) = bearer_token(&request.headers) else {
                return Authentication::NoOpinion;
            };
            match self.identify(&token).await {
                Some(identity) => Authentication::User(identity),
                None => Authentication::NoOpinion,
            }
        }
        .boxed()
    }
}

/// The user of a review's `status`; `None` if the token is invalid.
fn identity(status: &Value) -> Option<Identity> {
    let user = &status["user"];
    let name = user["username"].as_str().filter(|name| !name.is_empty())?;
    if status["authenticated"] != true {
        return None;
    }
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let extra = user["extra"].as_object().into_iter().flatten();
    let extra: BTreeMap<_, _> = extra.map(|(key, values)| (key.clone(), texts(values))).collect();
    let groups = texts(&user["groups"]);
    Some(Identity {
        uid: user["uid"].as_str().unwrap_or_default().into(),
        extra: Arc::new(extra),
        ..Identity::new(name, groups.iter().map(String::as_str))
    })
}
