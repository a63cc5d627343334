//! Asking the API server who somebody is and what they may.

use std::{sync::Arc, time::Duration};

use http::Request;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{bearer::Fingerprint, recent::Recent};

/// How many answers are kept of each kind.
pub const REVIEW_CACHE_MAX: usize = 1024;

/// How many reviews are asked for at once; requests beyond them wait. So a flood of made-up tokens
/// is not one on the API server.
pub const REVIEWS_MAX: usize = 16;

/// How long it is remembered whose a token is, or that it is nobody's: 1 min.
const TOKEN_LASTS: Duration = Duration::from_secs(60);
/// How long asking about a token may take: 10 s.
const TOKEN_MAX: Duration = Duration::from_secs(10);
/// How long a permission holds: 5 min.
const ALLOWED_LASTS: Duration = Duration::from_secs(5 * 60);
/// How long a refusal holds: 30 s.
const DENIED_LASTS: Duration = Duration::from_secs(30);
/// The longest path about which an answer is remembered, in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// How often a review is asked for.
const TRIES_MAX: u32 = 5;
/// How long after the first try the second is.
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// How much longer each next wait is.
const RETRY_FACTOR: f64 = 1.5;
/// How much longer a wait is by chance, at most.
const RETRY_JITTER: f64 = 0.2;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A user as the API server names it: the `user` of a TokenReview's status, as JSON text.
pub(super) type User = Arc<str>;

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attributes {
    pub(super) path: String,
    pub(super) verb: String,
}

/// Asks the API server, and remembers its answers for a while.
pub(super) struct Reviewer {
    // Helpers.
    client: kube_client::Client,
    places: Semaphore,

    // State.
    rng: Mutex<SmallRng>,
    tokens: Mutex<Recent<Fingerprint, Option<User>>>,
    permissions: Mutex<Recent<(User, Attributes), bool>>,
}

impl Reviewer {
    pub(super) fn new(client: kube_client::Client, seed: u64) -> Self {
        Self {
            client,
            places: Semaphore::new(REVIEWS_MAX),
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            tokens: Mutex::new(Recent::new(REVIEW_CACHE_MAX)),
            permissions: Mutex::new(Recent::new(REVIEW_CACHE_MAX)),
        }
    }

    /// Whose a token is; `None` is nobody's.
    pub(super) async fn whose(
        &self,
        fingerprint: Fingerprint,
        token: &str,
    ) -> Result<Option<User>, kube_client::Error> {
        let known = self.tokens.lock().get(&fingerprint);
        if let Some(known) = known {
            return Ok(known);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        let asked = tokio::time::timeout(TOKEN_MAX, self.ask(TOKEN_REVIEWS, &review)).await;
        let reviewed = match asked {
            Ok(reviewed) => reviewed?,
            Err(expired) => return Err(kube_client::Error::Service(expired.into())),
        };
        let status = &reviewed["status"];
        let is_somebody = status["authenticated"].as_bool().unwrap_or_default();
        let user = is_somebody.then(|| User::from(status["user"].to_string()));
        self.tokens.lock().put(fingerprint, user.clone(), TOKEN_LASTS);
        Ok(user)
    }

    /// Whether a user may.
    pub(super) async fn may(
        &self,
        user: &User,
        attributes: Attributes,
    ) -> Result<bool, kube_client::Error> {
        let question = (user.clone(), attributes);
        let known = self.permissions.lock().get(&question);
        if let Some(known) = known {
            return Ok(known);
        }
        let who: Value = serde_json::from_str(user).unwrap_or_default();
        let (path, verb) = (&question.1.path, &question.1.verb);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": who["username"],
                "uid": who["uid"],
                "groups": who["groups"],
                "extra": who["extra"],
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let reviewed = self.ask(ACCESS_REVIEWS, &review).await?;
        let status = &reviewed["status"];
        let may = status["allowed"].as_bool().unwrap_or_default()
            && !status["denied"].as_bool().unwrap_or_default();
        // What is remembered is bounded in bytes, too.
        if question.1.path.len() <= PATH_BYTES_MAX {
            let lasts = if may { ALLOWED_LASTS } else { DENIED_LASTS };
            self.permissions.lock().put(question, may, lasts);
        }
        Ok(may)
    }

    /// Creates a review, again after failures that may pass.
    async fn ask(&self, path: &str, review: &Value) -> Result<Value, kube_client::Error> {
        let _place = self.places.acquire().await;
        let mut pause = RETRY_FIRST;
        let mut n_tries = 1;
        loop {
            let request = Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(review.to_string().into_bytes())
                .map_err(kube_client::Error::HttpError)?;
            let error = match self.client.request::<Value>(request).await {
                Ok(reviewed) => return Ok(reviewed),
                Err(error) => error,
            };
            let may_pass = match &error {
                kube_client::Error::Api(status) => status.code == 429 || status.code >= 500,
                kube_client::Error::HyperError(_) | kube_client::Error::Service(_) => true,
                _ => false,
            };
            if !may_pass || n_tries == TRIES_MAX {
                return Err(error);
            }
            n_tries += 1;
            let jitter = 1.0 + RETRY_JITTER * self.rng.lock().random::<f64>();
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = pause.mul_f64(RETRY_FACTOR);
        }
    }
}

#[cfg(test)]
mod tests;
