//! Another program that signs the tokens of service accounts: kube-apiserver's
//! `--service-account-signing-endpoint`, with the service `v1.ExternalJWTSigner`.
//!
//! # Theory
//!
//! | call | when |
//! |---|---|
//! | `FetchKeys` | at start; when the last answer says so, or ten seconds after a failure; when a token names an unknown key |
//! | `Metadata` | at start |
//! | `Sign` | for each token |
//!
//! The keys of the last good answer are used until there is another one. Callers that lack a key at
//! the same time share one call.

mod error;
mod metrics;
mod proto;

pub(crate) use error::OpenError;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use error::{HeaderError, KeysError, SignError};
use futures::future::{BoxFuture, FutureExt as _};
use metrics::SignerMetrics;
use parking_lot::Mutex;
use prost::Message;
use proto::{FetchKeysRequest, FetchKeysResponse, MetadataRequest, MetadataResponse};
use proto::{SignJwtRequest, SignJwtResponse};
use serde::Deserialize;
use serde_json::Value;
use setpoint::object::error::chain;
use setpoint::object::time::Clock;
use setpoint::registry::jwt::{KeyRing, KeySet, VerifyingKey};
use setpoint::registry::{TokenSigner, TokenSignerError};
use setpoint::runtime::metrics::Metrics;
use setpoint_grpc::{RpcError, SocketClient};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest time of a call: a minute, as kube-apiserver waits for the keys.
const TIMEOUT: Duration = Duration::from_secs(60);
/// When the keys are asked for again after a failure, as kube-apiserver.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes: 1 MiB, a thousand keys.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The shortest of the longest lifetimes that a signer may have, as kube-apiserver's.
const EXPIRATION_MIN: Duration = Duration::from_secs(600);
/// Maximum length of a key's id in bytes.
const KEY_ID_BYTES_MAX: usize = 1024;
/// The algorithms of kube-apiserver's own keys.
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];

/// A program that signs. Its owner runs it.
pub(crate) struct Signer {
    client: SocketClient,
    ring: KeyRing,
    clock: Clock,
    metrics: SignerMetrics,
    max_expiration: Duration,
    /// When the keys are due.
    next: Mutex<Instant>,
    /// Held during a call for keys; how often there was an answer.
    fetches: tokio::sync::Mutex<u64>,
    /// The same number, for callers that do not wait.
    n_fetches: Mutex<u64>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The header of a token. There must be no other member.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

impl Signer {
    /// Asks the program behind a socket for its keys, and how long its tokens may be. Waits a
    /// minute for it. `asked` is the longest lifetime that this server is to allow.
    pub(crate) async fn open(
        path: &str,
        asked: Option<Duration>,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, OpenError> {
        let mut new = Self {
            client: SocketClient::new(path, TIMEOUT, ANSWER_BYTES_MAX),
            ring: KeyRing::from_system(),
            clock: clock.clone(),
            metrics: SignerMetrics::register(metrics),
            max_expiration: EXPIRATION_MIN,
            next: Mutex::new(Instant::now()),
            fetches: tokio::sync::Mutex::default(),
            n_fetches: Mutex::default(),
        };
        new.fetch().await.map_err(OpenError::Keys)?;
        let told: MetadataResponse = new.call(proto::METADATA, &MetadataRequest {}).await?;
        let seconds = told.max_token_expiration_seconds;
        new.max_expiration = Duration::from_secs(seconds.try_into().unwrap_or_default());
        if new.max_expiration < EXPIRATION_MIN {
            return Err(OpenError::Short(seconds));
        }
        match asked.filter(|asked| *asked > new.max_expiration) {
            Some(asked) => Err(OpenError::Long { asked, max: new.max_expiration }),
            None => Ok(Arc::new(new)),
        }
    }

    /// Its public keys.
    pub(crate) fn keys(&self) -> KeyRing {
        self.ring.clone()
    }

    /// Asks for the keys whenever they are due, until `stop`. Dropping the future stops it at once.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let next = *self.next.lock();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: a dropped sleep has done nothing.
                () = tokio::time::sleep_until(next) => {}
            }
            let fetched = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: keys are replaced at the end, in one step.
                fetched = self.fetch() => fetched,
            };
            if let Err(error) = fetched {
                tracing::warn!(
                    error = chain(&error),
                    "ask for the keys of tokens: the former ones stay"
                );
                *self.next.lock() = Instant::now() + RETRY;
            }
        }
    }

    /// Calls the program, and counts it.
    async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<A, RpcError> {
        let begin = Instant::now();
        let answer = self.client.call(method, question).await;
        self.metrics.called(method, answer.as_ref().err(), begin.elapsed());
        answer
    }

    /// Replaces the keys. Whoever has waited for another's answer takes that.
    async fn fetch(&self) -> Result<(), KeysError> {
        let before = *self.n_fetches.lock();
        let mut fetches = self.fetches.lock().await;
        if *fetches != before {
            return Ok(());
        }
        let fetched = self.fetch_alone().await;
        self.metrics.fetched(fetched.as_ref().err(), self.clock.now());
        fetched?;
        *fetches += 1;
        *self.n_fetches.lock() = *fetches;
        Ok(())
    }

    async fn fetch_alone(&self) -> Result<(), KeysError> {
        let answer: FetchKeysResponse = self.call(proto::FETCH_KEYS, &FetchKeysRequest {}).await?;
        let hint = answer.refresh_hint_seconds;
        let pause = u64::try_from(hint).ok().filter(|seconds| *seconds > 0);
        let pause = pause.ok_or(KeysError::Hint(hint))?;
        if answer.keys.is_empty() {
            return Err(KeysError::None);
        }
        let time = answer.data_timestamp.filter(|time| time.is_valid()).ok_or(KeysError::Time)?;
        let (mut published, mut others) = (Vec::new(), Vec::new());
        for key in answer.keys {
            if key.key_id.is_empty() || key.key_id.len() > KEY_ID_BYTES_MAX {
                return Err(KeysError::Id(key.key_id));
            }
            if key.key.is_empty() {
                return Err(KeysError::Empty);
            }
            let list = if key.exclude_from_oidc_discovery { &mut others } else { &mut published };
            list.push(VerifyingKey::from_der(&key.key, key.key_id)?);
        }
        self.ring.set(KeySet::of_signer(published, others));
        *self.next.lock() = Instant::now() + Duration::from_secs(pause);
        self.metrics.dated(time.seconds());
        Ok(())
    }

    async fn signed(&self, claims: &Value) -> Result<String, SignError> {
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let question = SignJwtRequest { claims: claims.clone() };
        let answer: SignJwtResponse = self.call(proto::SIGN, &question).await?;
        self.check(&answer.header).await?;
        if answer.signature.is_empty() {
            return Err(SignError::NoSignature);
        }
        Ok(format!("{}.{claims}.{}", answer.header, answer.signature))
    }

    /// Checks the header of a token. Its key must not be one that is not published, for others
    /// could not verify the token.
    async fn check(&self, header: &str) -> Result<(), HeaderError> {
        let header = URL_SAFE_NO_PAD.decode(header)?;
        let header: Header = serde_json::from_slice(&header)?;
        if header.typ != "JWT" {
            return Err(HeaderError::Type);
        }
        match header.kid.len() {
            0 => return Err(HeaderError::NoKeyId),
            1..=KEY_ID_BYTES_MAX => {}
            _ => return Err(HeaderError::LongKeyId),
        }
        if !ALGORITHMS.contains(&&*header.alg) {
            return Err(HeaderError::Algorithm(header.alg));
        }
        let keys = || self.ring.current().map_err(HeaderError::Keys);
        if !keys()?.has(&header.kid)
            && let Err(error) = self.fetch().await
        {
            tracing::warn!(error = chain(&error), "ask for the key of a new token");
        }
        match keys()?.hides(&header.kid) {
            true => Err(HeaderError::Hidden(header.kid)),
            false => Ok(()),
        }
    }
}

impl TokenSigner for Signer {
    fn sign(&self, claims: Value) -> BoxFuture<'_, Result<String, TokenSignerError>> {
        async move {
            let signed = self.signed(&claims).await;
            self.metrics.signed(signed.as_ref().err());
            Ok(signed?)
        }
        .boxed()
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), TokenSignerError>> {
        async { Ok(self.fetch().await?) }.boxed()
    }

    fn max_expiration(&self) -> Duration {
        self.max_expiration
    }

    fn keys_age_max(&self) -> Duration {
        self.next.lock().saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests;
