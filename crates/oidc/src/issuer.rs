//! One issuer: its keys, and the users of its tokens.

mod distributed;
mod others;

pub use distributed::{CLAIM_MAX, CLAIM_VALUES_MAX, CLAIMS_AT_ONCE, CLAIMS_BYTES_MAX};
pub use others::OTHER_ISSUERS_MAX;

use crate::authenticator::{Observer, Outcome, User};
use crate::claims;
use crate::config::JwtAuthenticator;
use crate::fetch::{FetchError, Fetcher};
use crate::keys::Keys;
use crate::mapping::{Mapping, Place, Refusal};
use crate::remembered::{Digest, Remembered};
use crate::sources::{self, Endpoint};
use distributed::Turns;
use others::Others;
use serde_json::{Map, Value};
use setpoint_dial::{Dialer, EgressSelector};
use setpoint_jwt::{Algorithm, JwkSet, TokenError, UnverifiedToken};
use setpoint_object::field::quote;
use setpoint_object::time::{Clock, Timestamp};
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;
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
    pub(crate) observer: Arc<dyn Observer>,
    /// How issuers are reached that name a selector; `None`: none may.
    pub(crate) egress: Option<EgressSelector>,
}

/// An issuer that tokens name.
#[derive(Debug)]
pub(crate) struct TrustedIssuer {
    jwt: JwtAuthenticator,
    mapping: Arc<Mapping>,
    keys: Keys,
    fetcher: Fetcher,
    remembered: Remembered,
    /// For claims that are elsewhere.
    turns: Turns,
    others: Others,
    shared: Shared,
}

impl TrustedIssuer {
    /// # Errors
    ///
    /// Its CA cannot be used.
    pub(crate) fn new(
        jwt: JwtAuthenticator,
        mapping: Arc<Mapping>,
        dialer: Dialer,
        shared: Shared,
    ) -> Result<Self, FetchError> {
        let authority = Some(&*jwt.issuer.certificate_authority).filter(|pem| !pem.is_empty());
        let fetcher = Fetcher::new(authority, &shared.clock, dialer)?;
        Ok(Self {
            jwt,
            mapping,
            keys: Keys::new(),
            fetcher,
            remembered: Remembered::default(),
            turns: Turns::new(),
            others: Others::new(),
            shared,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.jwt.issuer.url
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Follows its keys until `stop`, and those of issuers of claims that are elsewhere.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let read = |hash: Option<&[u8; 32]>| self.shared.observer.keys_read(self.url(), hash);
        tokio::join!(
            self.keys.follow(&self.jwt.issuer, &self.fetcher, read, stop),
            self.others.run(&self.fetcher, stop),
        );
    }

    /// The user of a token that names this issuer.
    pub(crate) async fn authenticate(self: &Arc<Self>, token: &str) -> Outcome {
        let digest = Remembered::digest(token);
        let now = self.shared.clock.now();
        if let Some(user) = self.remembered.get(&digest, now) {
            return Outcome::User(user);
        }
        let started = Instant::now();
        let found = match self.verify(token, now).await {
            Ok(Verified::User(user)) => Ok(self.remember(digest, user)),
            Ok(Verified::Distributed(claims, endpoint)) => {
                self.expand(digest, claims, endpoint).await
            }
            Err(why) => Err(why),
        };
        self.shared.observer.checked(self.url(), started.elapsed(), found.is_ok());
        match found {
            Ok(user) => Outcome::User(user),
            Err(why) => Outcome::Invalid(why),
        }
    }

    fn remember(&self, digest: Digest, user: User) -> Arc<User> {
        let user = Arc::new(user);
        self.remembered.put(digest, user.clone(), self.shared.clock.now());
        user
    }

    async fn verify(self: &Arc<Self>, token: &str, now: Timestamp) -> Result<Verified, String> {
        let failed = |why: &str| format!("oidc: verify token: failed to verify signature: {why}");
        let parsed = UnverifiedToken::parse(token)
            .map_err(|error| format!("oidc: verify token: oidc: malformed jwt: {error}"))?;
        self.check_algorithm(&parsed).map_err(|why| format!("oidc: verify token: {why}"))?;
        let keys = match self.keys.of_known_issuer().await {
            Some(read) => read.map_err(|error| failed(&format!("fetching keys {error}")))?,
            None => return Err("oidc: authenticator not initialized".to_owned()),
        };
        if let Some(verified) = self.checked(token, keys, now).await? {
            return Ok(verified);
        }
        // The issuer may have other keys by now.
        let verified = match self.keys.again().await {
            None => None,
            Some(Err(error)) => return Err(failed(&format!("fetching keys {error}"))),
            Some(Ok(keys)) => self.checked(token, keys, now).await?,
        };
        verified.ok_or_else(|| failed(UNVERIFIED))
    }

    fn check_algorithm(&self, token: &UnverifiedToken<'_>) -> Result<(), String> {
        let allowed = &self.shared.algorithms;
        if Algorithm::parse(token.algorithm()).is_some_and(|own| allowed.contains(&own)) {
            return Ok(());
        }
        let names: Vec<_> = allowed.iter().map(|algorithm| quote(algorithm.as_str())).collect();
        Err(format!(
            "oidc: id token signed with unsupported algorithm, expected [{}] got {}",
            names.join(" "),
            quote(token.algorithm())
        ))
    }

    /// Checks signature and claims, on another thread if it takes long. `None`: no key has signed
    /// it.
    async fn checked(
        self: &Arc<Self>,
        token: &str,
        keys: Arc<JwkSet>,
        now: Timestamp,
    ) -> Result<Option<Verified>, String> {
        let is_slow = UnverifiedToken::parse(token).is_ok_and(|token| keys.is_slow(&token));
        if !is_slow {
            match self.check(token, &keys, now, Place::Serving) {
                Err(Refusal::Costly) => {}
                Ok(checked) => return Ok(checked),
                Err(Refusal::Invalid(why)) => return Err(why),
            }
        }
        let token = token.to_owned();
        let work = move |this: &Self| this.check(&token, &keys, now, Place::Elsewhere);
        Ok(self.elsewhere(work).await.ok_or("oidc: verify token: the server is stopping")??)
    }

    /// Does work on another thread, when it is its turn. `None`: the server is stopping.
    async fn elsewhere<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.shared.slow.clone().acquire_owned().await.ok()?;
        let this = self.clone();
        let there = tokio::task::spawn_blocking(move || {
            let done = work(&this);
            drop(permit);
            done
        });
        there.await.ok()
    }

    fn check(
        &self,
        token: &str,
        keys: &JwkSet,
        now: Timestamp,
        place: Place,
    ) -> Result<Option<Verified>, Refusal> {
        let failed = |why: String| Refusal::Invalid(format!("oidc: verify token: {why}"));
        let parsed = UnverifiedToken::parse(token).map_err(malformed).map_err(failed)?;
        let Some(claims) = self.signed(parsed, keys, now).map_err(failed)? else {
            return Ok(None);
        };
        let groups = &self.jwt.claim_mappings.groups.claim;
        if !groups.is_empty()
            && let Some(endpoint) =
                sources::endpoint(&claims, groups).map_err(distributed::unexpanded)?
        {
            return Ok(Some(Verified::Distributed(claims, endpoint)));
        }
        self.mapping.user(&self.jwt, &claims, place).map(|user| Some(Verified::User(user)))
    }

    /// The claims of a token that one of the keys has signed, for this server and for now. `None`:
    /// none has.
    fn signed(
        &self,
        token: UnverifiedToken<'_>,
        keys: &JwkSet,
        now: Timestamp,
    ) -> Result<Option<Map<String, Value>>, String> {
        let claims = match keys.verify(token) {
            Ok(claims) => claims,
            Err(TokenError::UnknownKey | TokenError::Signature) => return Ok(None),
            Err(error) => return Err(malformed(error)),
        };
        claims::check(&claims, &self.jwt.issuer.audiences, now)?;
        Ok(Some(claims))
    }
}

fn malformed(error: TokenError) -> String {
    format!("oidc: malformed jwt: {error}")
}

/// What a token of the issuer says.
enum Verified {
    User(User),
    /// The groups are elsewhere.
    Distributed(Map<String, Value>, Endpoint),
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
