//! Token and access reviews by the API server.

use std::{sync::Arc, time::Duration};

use http::Request;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use setpoint_object::bounded::Expiring;
use tokio::{sync::Semaphore, time::Instant};

use super::bearer::Fingerprint;
use crate::answer::{self, AnswerError};

/// How many answers of each kind are cached.
pub const REVIEW_CACHE_MAX: usize = 1024;

/// How many reviews run concurrently; further requests wait. So a flood of invalid tokens does not
/// reach the API server.
pub const REVIEWS_MAX: usize = 16;

/// How long the result of a token review is cached: 1 min.
const TOKEN_LASTS: Duration = Duration::from_secs(60);
/// The time-out of a token review, with retries: 10 s.
const TOKEN_MAX: Duration = Duration::from_secs(10);
/// How long a permission is cached: 5 min.
const ALLOWED_LASTS: Duration = Duration::from_secs(5 * 60);
/// How long a refusal is cached: 30 s.
const DENIED_LASTS: Duration = Duration::from_secs(30);
/// The maximum length of a path whose answer is cached, in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// The maximum length of a user whose answers are cached, in bytes of JSON.
const USER_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of the answer to a review: 1 MiB. It has a few hundred; the groups of a user fit
/// many times.
pub const REVIEW_BYTES_MAX: usize = 1 << 20;
/// The time-out of one try of a review: 10 s.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// The time-out of an access review, with retries: 30 s. The pauses take 5 s of it.
const ACCESS_MAX: Duration = Duration::from_secs(30);
/// How often a review is tried.
const TRIES_MAX: u32 = 5;
/// The delay before the second try.
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// The growth of each delay.
const RETRY_FACTOR: f64 = 1.5;
/// The random part of a delay, at most.
const RETRY_JITTER: f64 = 0.2;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A user: the `user` of a TokenReview's status, as JSON text.
pub(super) type User = Arc<str>;

/// The attributes of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attributes {
    pub(super) path: String,
    pub(super) verb: String,
}

/// Sends reviews to the API server and caches the answers.
pub(super) struct Reviewer {
    // Helpers.
    client: kube_client::Client,
    places: Semaphore,

    // State.
    rng: Mutex<SmallRng>,
    tokens: Mutex<Expiring<Fingerprint, Option<User>, Instant>>,
    permissions: Mutex<Expiring<(User, Attributes), bool, Instant>>,
}

impl Reviewer {
    pub(super) fn new(client: kube_client::Client, seed: u64) -> Self {
        Self {
            client,
            places: Semaphore::new(REVIEWS_MAX),
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            tokens: Mutex::new(Expiring::new(REVIEW_CACHE_MAX)),
            permissions: Mutex::new(Expiring::new(REVIEW_CACHE_MAX)),
        }
    }

    /// Returns the user of a token; `None` if the token is invalid.
    pub(super) async fn authenticate(
        &self,
        fingerprint: Fingerprint,
        token: &str,
    ) -> Result<Option<User>, kube_client::Error> {
        let known = self.tokens.lock().get(&fingerprint, Instant::now()).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        let reviewed = within(TOKEN_MAX, self.ask(TOKEN_REVIEWS, &review)).await?;
        let status = &reviewed["status"];
        let is_somebody = status["authenticated"].as_bool().unwrap_or_default();
        let user = is_somebody.then(|| User::from(status["user"].to_string()));
        // The cache is bounded in bytes too.
        if user.as_ref().is_none_or(|user| user.len() <= USER_BYTES_MAX) {
            self.tokens.lock().put(fingerprint, user.clone(), Instant::now() + TOKEN_LASTS);
        }
        Ok(user)
    }

    /// Returns whether a user is permitted.
    pub(super) async fn authorize(
        &self,
        user: &User,
        attributes: Attributes,
    ) -> Result<bool, kube_client::Error> {
        let question = (user.clone(), attributes);
        let known = self.permissions.lock().get(&question, Instant::now()).copied();
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
        let reviewed = within(ACCESS_MAX, self.ask(ACCESS_REVIEWS, &review)).await?;
        let status = &reviewed["status"];
        let may = status["allowed"].as_bool().unwrap_or_default()
            && !status["denied"].as_bool().unwrap_or_default();
        if user.len() <= USER_BYTES_MAX && question.1.path.len() <= PATH_BYTES_MAX {
            let lasts = if may { ALLOWED_LASTS } else { DENIED_LASTS };
            self.permissions.lock().put(question, may, Instant::now() + lasts);
        }
        Ok(may)
    }

    /// Creates a review; retries transient failures.
    async fn ask(&self, path: &str, review: &Value) -> Result<Value, kube_client::Error> {
        let _place = self.places.acquire().await;
        let mut pause = RETRY_FIRST;
        let mut n_tries = 1;
        loop {
            let request = Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(review.to_string().into_bytes())
                .map_err(kube_client::Error::HttpError)?;
            let answered = answer::request(&self.client, request, REVIEW_BYTES_MAX, ATTEMPT_MAX);
            let error = match answered.await {
                Ok(reviewed) => return Ok(reviewed),
                Err(error) => error,
            };
            let may_pass = match &error {
                // It would be as long again.
                error if is_too_long(error) => false,
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

/// The outcome of a review, its wait for a place included, if it comes in time.
async fn within(
    time_max: Duration,
    asked: impl Future<Output = Result<Value, kube_client::Error>>,
) -> Result<Value, kube_client::Error> {
    let asked = tokio::time::timeout(time_max, asked).await;
    asked.unwrap_or_else(|expired| Err(kube_client::Error::Service(expired.into())))
}

fn is_too_long(error: &kube_client::Error) -> bool {
    matches!(AnswerError::of(error), Some(AnswerError::TooLong { .. }))
}

#[cfg(test)]
mod tests;
