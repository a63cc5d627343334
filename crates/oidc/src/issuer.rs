//! One issuer: its keys, and the users of its tokens.

use crate::authenticator::{Outcome, User};
use crate::claims;
use crate::config::JwtAuthenticator;
use crate::fetch::{FetchError, Fetcher};
use crate::keys::Keys;
use crate::mapping::{Mapping, Place, Refusal};
use crate::remembered::Remembered;
use setpoint_jwt::{Algorithm, JwkSet, TokenError, UnverifiedToken};
use setpoint_object::field::quote;
use setpoint_object::time::{Clock, Timestamp};
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The error for a signature that no key verifies.
const UNVERIFIED: &str = "failed to verify id token signature";

/// What all issuers share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// The algorithms that tokens may have.
    pub(crate) algorithms: Arc<[Algorithm]>,
    /// Bounds the work on other threads.
    pub(crate) slow: Arc<Semaphore>,
}

/// An issuer that tokens name.
#[derive(Debug)]
pub(crate) struct TrustedIssuer {
    jwt: JwtAuthenticator,
    mapping: Arc<Mapping>,
    keys: Keys,
    fetcher: Fetcher,
    remembered: Remembered,
    shared: Shared,
}

impl TrustedIssuer {
    /// # Errors
    ///
    /// Its CA cannot be used.
    pub(crate) fn new(
        jwt: JwtAuthenticator,
        mapping: Arc<Mapping>,
        shared: Shared,
    ) -> Result<Self, FetchError> {
        let authority = Some(&*jwt.issuer.certificate_authority).filter(|pem| !pem.is_empty());
        let fetcher = Fetcher::new(authority, &shared.clock)?;
        let (keys, remembered) = (Keys::new(), Remembered::default());
        Ok(Self { jwt, mapping, keys, fetcher, remembered, shared })
    }

    pub(crate) fn url(&self) -> &str {
        &self.jwt.issuer.url
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Follows its keys until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        self.keys.follow(&self.jwt.issuer, &self.fetcher, stop).await;
    }

    /// The user of a token that names this issuer.
    pub(crate) async fn authenticate(self: &Arc<Self>, token: &str) -> Outcome {
        let digest = Remembered::digest(token);
        let now = self.shared.clock.now();
        if let Some(user) = self.remembered.get(&digest, now) {
            return Outcome::User(user);
        }
        match self.verify(token, now).await {
            Ok(user) => {
                let user = Arc::new(user);
                self.remembered.put(digest, user.clone(), now);
                Outcome::User(user)
            }
            Err(why) => Outcome::Invalid(why),
        }
    }

    async fn verify(self: &Arc<Self>, token: &str, now: Timestamp) -> Result<User, String> {
        let Some(keys) = self.keys.current() else {
            return Err("oidc: authenticator not initialized".to_owned());
        };
        let failed = |why: &str| format!("oidc: verify token: failed to verify signature: {why}");
        self.check_algorithm(token)?;
        match self.checked(token, keys, now).await? {
            Checked::User(user) => return Ok(user),
            Checked::Unsigned => {}
        }
        // The issuer may have other keys by now.
        match self.keys.again().await {
            None => Err(failed(UNVERIFIED)),
            Some(Err(error)) => Err(failed(&format!("fetching keys {error}"))),
            Some(Ok(keys)) => match self.checked(token, keys, now).await? {
                Checked::User(user) => Ok(user),
                Checked::Unsigned => Err(failed(UNVERIFIED)),
            },
        }
    }

    fn check_algorithm(&self, token: &str) -> Result<(), String> {
        let token = UnverifiedToken::parse(token)
            .map_err(|error| format!("oidc: verify token: oidc: malformed jwt: {error}"))?;
        let allowed = &self.shared.algorithms;
        if Algorithm::parse(token.algorithm()).is_some_and(|own| allowed.contains(&own)) {
            return Ok(());
        }
        let names: Vec<_> = allowed.iter().map(|algorithm| quote(algorithm.as_str())).collect();
        Err(format!(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, expected [{}] got {}",
            names.join(" "),
            quote(token.algorithm())
        ))
    }

    /// Checks signature and claims, on another thread if it takes long.
    async fn checked(
        self: &Arc<Self>,
        token: &str,
        keys: Arc<JwkSet>,
        now: Timestamp,
    ) -> Result<Checked, String> {
        let is_slow = UnverifiedToken::parse(token).is_ok_and(|token| keys.is_slow(&token));
        if !is_slow {
            match self.check(token, &keys, now, Place::Serving) {
                Err(Refusal::Costly) => {}
                Ok(checked) => return Ok(checked),
                Err(Refusal::Invalid(why)) => return Err(why),
            }
        }
        let busy = || "oidc: verify token: the server is stopping".to_owned();
        let permit = self.shared.slow.clone().acquire_owned().await.map_err(|_| busy())?;
        let (this, token) = (self.clone(), token.to_owned());
        let there = tokio::task::spawn_blocking(move || {
            let checked = this.check(&token, &keys, now, Place::Elsewhere);
            drop(permit);
            checked
        });
        match there.await.map_err(|_| busy())? {
            Ok(checked) => Ok(checked),
            Err(Refusal::Invalid(why)) => Err(why),
            // Elsewhere nothing is too costly.
            Err(Refusal::Costly) => Err("oidc: verify token: too costly".to_owned()),
        }
    }

    fn check(
        &self,
        token: &str,
        keys: &JwkSet,
        now: Timestamp,
        place: Place,
    ) -> Result<Checked, Refusal> {
        let malformed = |error: TokenError| {
            Refusal::Invalid(format!("oidc: verify token: oidc: malformed jwt: {error}"))
        };
        let parsed = UnverifiedToken::parse(token).map_err(malformed)?;
        let claims = match keys.verify(parsed) {
            Ok(claims) => claims,
            Err(TokenError::UnknownKey | TokenError::Signature) => return Ok(Checked::Unsigned),
            Err(error) => return Err(malformed(error)),
        };
        claims::check(&claims, &self.jwt.issuer.audiences, now)
            .map_err(|why| format!("oidc: verify token: {why}"))?;
        let groups = &self.jwt.claim_mappings.groups.claim;
        let is_distributed = !groups.is_empty()
            && !claims.contains_key(groups)
            && claims.get("_claim_names").is_some_and(|names| names.get(groups).is_some());
        if is_distributed {
            let why = "oidc: could not expand distributed claims: not supported by this server";
            return Err(Refusal::Invalid(why.to_owned()));
        }
        self.mapping.user(&self.jwt, &claims, place).map(Checked::User)
    }
}

/// The result for a well-formed token.
enum Checked {
    User(User),
    /// No key has signed it.
    Unsigned,
}

/// An error with its causes.
pub(crate) fn text_of(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            // Writing to a String cannot fail.
            _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    text
}
