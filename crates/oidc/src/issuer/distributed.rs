//! Groups that a token does not have itself (*distributed claims*).
//!
//! The endpoint that the token names answers with another token. Its issuer may be anybody: the
//! trusted issuer has named the endpoint, so its word counts for the groups. Its keys are found by
//! discovery at the issuer's URL, through the same client; signature, audience and times are
//! checked as those of any token.

use super::{TrustedIssuer, UNVERIFIED, malformed, text_of};
use crate::authenticator::User;
use crate::claims::full_issuer;
use crate::fetch::FetchError;
use crate::mapping::Place;
use crate::remembered::Digest;
use crate::sources::Endpoint;
use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_jwt::{JwkSet, UnverifiedToken};
use setpoint_object::field::quote;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum size of an endpoint's answer in bytes: 1 MiB, some ten thousand groups.
pub const CLAIMS_BYTES_MAX: usize = 1 << 20;

/// Maximum number of groups that are elsewhere: 10,000. Each request of the user compares them with
/// the roles.
pub const CLAIM_VALUES_MAX: usize = 10_000;

/// How long a request waits for groups that are elsewhere, their issuer's keys included: 30 s, as
/// kube-apiserver's client.
pub const CLAIM_MAX: Duration = Duration::from_secs(30);

/// How many tokens of an issuer have their groups read at the same time: 32.
pub const CLAIMS_AT_ONCE: usize = 32;

/// Maximum size of the URL of an issuer in bytes.
const ISSUER_BYTES_MAX: usize = 2048;

/// The turns of reading. Those of one token come one after the other, so that requests with the
/// same new token read its groups once.
#[derive(Debug)]
pub(super) struct Turns(Vec<Semaphore>);

impl Turns {
    pub(super) fn new() -> Self {
        Self((0..CLAIMS_AT_ONCE).map(|_| Semaphore::new(1)).collect())
    }

    /// Waits for a turn. `None`: never.
    async fn take(&self, digest: &Digest) -> Option<SemaphorePermit<'_>> {
        self.0[usize::from(digest[0]) % self.0.len()].acquire().await.ok()
    }
}

/// The error of claims that are elsewhere.
pub(super) fn unexpanded(why: String) -> String {
    format!("oidc: could not expand distributed claims: {why}")
}

impl TrustedIssuer {
    /// The user of a verified token whose groups are elsewhere.
    ///
    /// # Errors
    ///
    /// The groups cannot be read, are not signed, or are for others; or the claims make no user.
    pub(super) async fn expand(
        self: &Arc<Self>,
        digest: Digest,
        claims: Map<String, Value>,
        endpoint: Endpoint,
    ) -> Result<Arc<User>, String> {
        let claim = quote(&self.jwt.claim_mappings.groups.claim);
        let expanded = self.expanded(digest, claims, endpoint);
        tokio::time::timeout(CLAIM_MAX, expanded).await.unwrap_or_else(|_| {
            let late = format!("no answer within {} s", CLAIM_MAX.as_secs());
            Err(unexpanded(format!("while getting distributed claim {claim}: {late}")))
        })
    }

    async fn expanded(
        self: &Arc<Self>,
        digest: Digest,
        mut claims: Map<String, Value>,
        endpoint: Endpoint,
    ) -> Result<Arc<User>, String> {
        let _turn = self.turns.take(&digest).await;
        if let Some(user) = self.remembered.get(&digest, self.shared.clock.now()) {
            return Ok(user);
        }
        let claim = &self.jwt.claim_mappings.groups.claim;
        let value = self.resolve(claim, &endpoint).await.map_err(unexpanded)?;
        claims.insert(claim.clone(), value);
        // They may be many.
        let work = move |this: &Self| this.mapping.user(&this.jwt, &claims, Place::Elsewhere);
        let user = self.elsewhere(work).await.ok_or_else(|| unexpanded(stopping()))??;
        Ok(self.remember(digest, user))
    }

    /// The value of a claim.
    async fn resolve(self: &Arc<Self>, claim: &str, endpoint: &Endpoint) -> Result<Value, String> {
        let Endpoint { url, access_token } = endpoint;
        let read = self.fetcher.get_claims(url, access_token, CLAIMS_BYTES_MAX).await;
        let answer = read.map_err(|error| {
            let why = match &error {
                FetchError::Status(code, _) => {
                    format!("error while getting distributed claim JWT: {code}")
                }
                error => format!("Get {}: {}", quote(url), text_of(error)),
            };
            format!("while getting distributed claim {}: {why}", quote(claim))
        })?;
        let named = answer.clone();
        let issuer = self.elsewhere(move |_| parse(&named).map(|token| issuer_of(&token))).await;
        let issuer = issuer.ok_or_else(stopping)?.map_err(|_| {
            // As Go's library says it.
            let why = match answer.trim_ascii().starts_with(b"{") {
                true => "token is not compact JWT",
                false => "malformed token",
            };
            let claim = quote(claim);
            format!("getting untrusted issuer from endpoint {url} failed for claim {claim}: {why}")
        })?;
        let mut found = self.verified(answer, &issuer).await?;
        let value = found.remove(claim).ok_or_else(|| {
            format!(
                "jwt returned by distributed claim endpoint {} did not contain claim: {claim}",
                quote(url)
            )
        })?;
        match value.as_array().map_or(1, Vec::len) {
            0..=CLAIM_VALUES_MAX => Ok(value),
            n => Err(format!(
                "distributed claim {} has {n} values, more than {CLAIM_VALUES_MAX}",
                quote(claim)
            )),
        }
    }

    /// The claims of an answer that names this issuer.
    async fn verified(
        self: &Arc<Self>,
        answer: Bytes,
        issuer: &str,
    ) -> Result<Map<String, Value>, String> {
        let unknown = |why: &str| {
            format!(
                "verifying untrusted issuer {issuer} failed: verifier not initialized for issuer: {}: {why}",
                quote(issuer)
            )
        };
        let other;
        let keys = if issuer == self.url() {
            &self.keys
        } else if issuer.starts_with("https://") && issuer.len() <= ISSUER_BYTES_MAX {
            other = self.others.get(issuer);
            other.keys()
        } else {
            return Err(unknown("unsupported URL"));
        };
        let failed = |why: &str| format!("verify distributed claim token: {why}");
        let unsigned = |why: &str| failed(&format!("failed to verify signature: {why}"));
        keys.discovered_soon().await.map_err(|why| unknown(&why))?;
        let known = match keys.of_known_issuer().await {
            Some(Ok(keys)) => keys,
            Some(Err(error)) => return Err(unsigned(&format!("fetching keys {error}"))),
            None => return Err(unsigned(UNVERIFIED)),
        };
        if let Some(claims) =
            self.of_answer(answer.clone(), known).await.map_err(|why| failed(&why))?
        {
            return Ok(claims);
        }
        // The issuer may have other keys by now.
        let claims = match keys.again().await {
            None => None,
            Some(Err(error)) => return Err(unsigned(&format!("fetching keys {error}"))),
            Some(Ok(keys)) => self.of_answer(answer, keys).await.map_err(|why| failed(&why))?,
        };
        claims.ok_or_else(|| unsigned(UNVERIFIED))
    }

    /// The claims of an answer that one of the keys has signed. `None`: none has.
    async fn of_answer(
        self: &Arc<Self>,
        answer: Bytes,
        keys: Arc<JwkSet>,
    ) -> Result<Option<Map<String, Value>>, String> {
        let work = move |this: &Self| {
            let token = parse(&answer)?;
            this.check_algorithm(&token)?;
            this.signed(token, &keys, this.shared.clock.now())
        };
        self.elsewhere(work).await.ok_or_else(stopping)?
    }
}

fn stopping() -> String {
    "the server is stopping".to_owned()
}

/// The token of an answer, which may end with a line.
fn parse(answer: &[u8]) -> Result<UnverifiedToken<'_>, String> {
    let text = std::str::from_utf8(answer.trim_ascii()).unwrap_or_default();
    UnverifiedToken::parse_within(text, CLAIMS_BYTES_MAX).map_err(malformed)
}

/// The issuer that a token names.
fn issuer_of(token: &UnverifiedToken<'_>) -> String {
    full_issuer(token.issuer()).to_owned()
}
