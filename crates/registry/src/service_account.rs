//! How tokens of service accounts are signed and accepted: keys, issuers, audiences, lifetimes.
use futures::future::BoxFuture;
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use serde_json::Value;
use setpoint_jwt::KeyRing;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The default issuer of tokens: the name of the API server in a cluster with the usual domain, as
/// in clusters of kubeadm.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the tokens in Secrets, which do not expire.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The lifetime in seconds of tokens that are injected into pods, if it is extended: a year.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Another program that signs tokens: a plugin of kube-apiserver's
/// `--service-account-signing-endpoint`. Its public keys are in the [`KeyRing`] of the settings,
/// where the implementation puts them.
pub trait TokenSigner: fmt::Debug + Send + Sync {
    /// Signs the claims of a token.
    ///
    /// Errors are shown to the client, with `failed to generate token: ` before them.
    fn sign(&self, claims: Value) -> BoxFuture<'_, Result<String, TokenSignerError>>;
    /// Asks for the public keys, because a token names one that is not among them.
    fn refresh(&self) -> BoxFuture<'_, Result<(), TokenSignerError>>;
    /// The longest lifetime of its tokens.
    fn max_expiration(&self) -> Duration;
    /// How long others may keep the public keys.
    fn keys_age_max(&self) -> Duration;
}

/// Why another program has not signed a token, or has not told its keys.
pub type TokenSignerError = Box<dyn std::error::Error + Send + Sync>;

/// The settings of service account tokens, named as kube-apiserver's flags `--service-account-*`
/// and `--api-audiences`. Set by
/// [`RegistryBuilder::service_account_tokens`](crate::RegistryBuilder::service_account_tokens).
#[derive(Debug, Clone)]
#[must_use]
pub struct ServiceAccountTokens {
    keys: Option<KeyRing>,
    signer: Option<Arc<dyn TokenSigner>>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    jwks_uri: String,
    max_expiration: Option<Duration>,
    extends_expiration: bool,
    are_looked_up: bool,
}

impl Default for ServiceAccountTokens {
    fn default() -> Self {
        Self::new()
    }
}

impl ServiceAccountTokens {
    /// Tokens of [`DEFAULT_ISSUER`], with a key that is made when it is first needed.
    pub fn new() -> Self {
        Self {
            keys: None,
            signer: None,
            issuers: Vec::new(),
            audiences: Vec::new(),
            jwks_uri: String::new(),
            max_expiration: None,
            extends_expiration: true,
            are_looked_up: true,
        }
    }
    /// The keys. Their set can be replaced while the server runs. Default: one key on P-256, made
    /// when it is first needed; it is lost when the process ends, and its tokens with it.
    pub fn keys(mut self, keys: KeyRing) -> Self {
        self.keys = Some(keys);
        self
    }
    /// Another program that signs in the place of the keys' private one. Without an effect on
    /// tokens in Secrets: there are none of its keys. Default: none.
    pub fn signed_by(mut self, signer: Arc<dyn TokenSigner>) -> Self {
        self.signer = Some(signer);
        self
    }
    /// An issuer whose tokens are accepted. The first one is that of new tokens. Default:
    /// [`DEFAULT_ISSUER`].
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuers.push(issuer.into());
        self
    }
    /// An audience that identifies this server. A token must be for one of them. Default: the
    /// issuers.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audiences.push(audience.into());
        self
    }
    /// The URL of the public keys in the discovery document. Default: `/openid/v1/jwks` of this
    /// server.
    pub fn jwks_uri(mut self, uri: impl Into<String>) -> Self {
        self.jwks_uri = uri.into();
        self
    }
    /// Maximum lifetime of a token. Requests for more get this, and a warning. Default: none.
    pub fn max_expiration(mut self, max: Duration) -> Self {
        self.max_expiration = Some(max);
        self
    }
    /// Whether tokens that are injected into pods are valid for a year, so that programs which
    /// never read a renewed token continue to work. Default: yes, as kube-apiserver.
    pub fn extend_expiration(mut self, extends: bool) -> Self {
        self.extends_expiration = extends;
        self
    }
    /// Whether a token of a Secret is accepted only while the Secret and its ServiceAccount exist.
    /// Other tokens always depend on their objects. Default: yes, as kube-apiserver's
    /// `--service-account-lookup`.
    pub fn lookup(mut self, are_looked_up: bool) -> Self {
        self.are_looked_up = are_looked_up;
        self
    }

    /// Sets the keys to ones that are made of `seed`, or of the operating system's randomness, if
    /// there are none.
    pub(crate) fn with_keys(mut self, seed: Option<u64>) -> Self {
        self.keys.get_or_insert_with(|| match seed {
            Some(seed) => KeyRing::new(Box::new(move |bytes: &mut [u8]| {
                SmallRng::seed_from_u64(seed).fill_bytes(bytes);
                Ok(())
            })),
            None => KeyRing::from_system(),
        });
        self
    }
    /// The keys.
    pub fn key_ring(&self) -> KeyRing {
        self.keys.clone().unwrap_or_else(KeyRing::from_system)
    }
    /// The program that signs, if it is another one.
    pub fn signer(&self) -> Option<&Arc<dyn TokenSigner>> {
        self.signer.as_ref()
    }
    /// The accepted issuers. New tokens have the first one.
    pub fn issuers(&self) -> Vec<&str> {
        match &*self.issuers {
            [] => vec![DEFAULT_ISSUER],
            issuers => issuers.iter().map(String::as_str).collect(),
        }
    }
    /// The audiences of this server.
    pub fn audiences(&self) -> Vec<&str> {
        match &*self.audiences {
            [] => self.issuers(),
            audiences => audiences.iter().map(String::as_str).collect(),
        }
    }
    /// The URL of the public keys; empty: this server's.
    pub fn public_keys_uri(&self) -> &str {
        &self.jwks_uri
    }
    /// See [`lookup`](Self::lookup).
    pub fn looks_up(&self) -> bool {
        self.are_looked_up
    }
    /// The maximum lifetime in seconds, if there is one.
    pub(crate) fn max_seconds(&self) -> Option<i64> {
        let of_signer = self.signer.as_ref().map(|signer| signer.max_expiration());
        let max = [self.max_expiration, of_signer].into_iter().flatten().min();
        max.map(seconds)
    }
    /// The lifetime in seconds of tokens that are injected into pods, if it is extended.
    pub(crate) fn extended_seconds(&self) -> i64 {
        let of_signer = self.signer.as_ref().map(|signer| seconds(signer.max_expiration()));
        of_signer.map_or(EXTENDED_SECONDS, |max| max.min(EXTENDED_SECONDS))
    }
    /// See [`extend_expiration`](Self::extend_expiration).
    pub(crate) fn extends(&self) -> bool {
        self.extends_expiration
    }
}

fn seconds(duration: Duration) -> i64 {
    duration.as_secs().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_issuer_replaces_the_default_and_audiences_follow() {
        let tokens = ServiceAccountTokens::new();
        assert_eq!(
            (tokens.issuers(), tokens.audiences()),
            (vec![DEFAULT_ISSUER], vec![DEFAULT_ISSUER])
        );
        let tokens = tokens.issuer("https://a").issuer("https://b");
        assert_eq!(tokens.audiences(), ["https://a", "https://b"]);
        let tokens = tokens.audience("api");
        assert_eq!((tokens.issuers()[0], tokens.audiences()), ("https://a", vec!["api"]));
    }

    #[test]
    fn keys_are_a_function_of_the_seed() {
        let id = |seed| {
            let tokens = ServiceAccountTokens::new().with_keys(seed);
            tokens.key_ring().current().unwrap().jwks()
        };
        assert_eq!(id(Some(1)), id(Some(1)));
        assert_ne!(id(Some(1)), id(Some(2)));
        assert_ne!(id(None), id(None));
    }
}
