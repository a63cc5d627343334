//! Several keys: one signs, all of them verify.

use crate::key::{Algorithm, KeyError, SigningKey, VerifyingKey, system_random};
use crate::token::{self, TokenError, UnverifiedToken};
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;

/// Maximum number of keys in a set.
///
/// 16: a rotation needs two or three. A token without a key id is checked with each of them, which
/// takes a tenth of a millisecond per key.
pub const KEYS_MAX: usize = 16;

/// The keys of an issuer.
#[derive(Debug)]
pub struct KeySet {
    /// `None`: another program signs.
    signing: Option<Arc<SigningKey>>,
    /// The public half of `signing` first.
    verifying: Vec<VerifyingKey>,
    /// How many of them are published: the first ones.
    n_published: usize,
}

impl KeySet {
    /// A set of one key.
    pub fn new(signing: SigningKey) -> Self {
        let verifying = vec![signing.verifying_key().clone()];
        Self { signing: Some(Arc::new(signing)), verifying, n_published: 1 }
    }

    /// The keys of another program that signs. `others` verify, too, but are not published. There
    /// may be more than [`KEYS_MAX`]: whoever asks that program limits its answers.
    pub fn of_signer(published: Vec<VerifyingKey>, others: Vec<VerifyingKey>) -> Self {
        let n_published = published.len();
        Self { signing: None, verifying: [published, others].concat(), n_published }
    }

    /// Adds keys that verify only: former signing keys, and those of other issuers that are
    /// trusted. Keys beyond [`KEYS_MAX`] are ignored.
    #[must_use]
    pub fn verify_also(mut self, keys: impl IntoIterator<Item = VerifyingKey>) -> Self {
        for key in keys {
            let is_known = self.verifying.iter().any(|known| known.id() == key.id());
            if !is_known && self.verifying.len() < KEYS_MAX {
                self.verifying.push(key);
            }
        }
        self.n_published = self.verifying.len();
        self
    }

    /// Whether a token names no key, or one of these.
    pub fn has_key_of(&self, token: &UnverifiedToken<'_>) -> bool {
        token.key_id().is_none_or(|id| self.has(id))
    }

    /// Whether a key has this id.
    pub fn has(&self, id: &str) -> bool {
        self.verifying.iter().any(|key| key.id() == id)
    }

    /// Whether a key of this id verifies, but is not published.
    pub fn hides(&self, id: &str) -> bool {
        self.verifying[self.n_published..].iter().any(|key| key.id() == id)
    }

    /// Whether [`sign`](Self::sign) takes several milliseconds.
    pub fn is_slow(&self) -> bool {
        self.signing.as_ref().is_some_and(|key| key.is_slow())
    }

    /// Signs claims: a token in compact form.
    ///
    /// # Errors
    ///
    /// The operating system gives no randomness to an ECDSA key on P-384 or P-521, or
    /// an RSA key; or another program signs.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        token::sign(self.signing.as_ref().ok_or(KeyError::NoPrivate)?, claims)
    }

    /// The claims of a token that one of the keys has signed.
    ///
    /// # Errors
    ///
    /// The token names no key of the set, or its signature is not of that key.
    pub fn verify(&self, token: UnverifiedToken<'_>) -> Result<Map<String, Value>, TokenError> {
        token.verify(&self.verifying)
    }

    /// The public keys as a JSON Web Key Set (RFC 7517).
    pub fn jwks(&self) -> Value {
        json!({"keys": self.published().iter().map(VerifyingKey::jwk).collect::<Vec<_>>()})
    }

    fn published(&self) -> &[VerifyingKey] {
        &self.verifying[..self.n_published]
    }

    /// The algorithms of the published keys, sorted.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms: Vec<_> = self.published().iter().map(VerifyingKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        algorithms
    }
}

/// Fills a slice with random bytes.
pub type RandomSource = dyn Fn(&mut [u8]) -> std::io::Result<()> + Send + Sync;

/// A handle to a [`KeySet`] that can be replaced while it is in use. Cheap to clone.
#[derive(Clone)]
pub struct KeyRing(Arc<Shared>);

struct Shared {
    keys: RwLock<Option<Arc<KeySet>>>,
    random: Box<RandomSource>,
}

impl KeyRing {
    /// A handle without keys. [`current`](Self::current) makes one from `random`, unless
    /// [`set`](Self::set) was called before.
    pub fn new(random: Box<RandomSource>) -> Self {
        Self(Arc::new(Shared { keys: RwLock::default(), random }))
    }

    /// The same with the operating system's randomness.
    pub fn from_system() -> Self {
        Self::new(Box::new(system_random))
    }

    /// Replaces the keys. Tokens that the former ones signed are refused unless the new set
    /// contains their public halves.
    pub fn set(&self, keys: KeySet) {
        let former = self.0.keys.write().replace(Arc::new(keys));
        drop(former);
    }

    /// Adds keys that verify only to the present set; see [`KeySet::verify_also`].
    ///
    /// # Errors
    ///
    /// As [`current`](Self::current).
    pub fn verify_also(
        &self,
        keys: impl IntoIterator<Item = VerifyingKey>,
    ) -> Result<(), KeyError> {
        let present = self.current()?;
        let all = present.verifying.iter().cloned().chain(keys);
        let signing = present.signing.clone();
        self.set(KeySet { signing, verifying: Vec::new(), n_published: 0 }.verify_also(all));
        Ok(())
    }

    /// Whether there are keys already.
    pub fn is_set(&self) -> bool {
        self.0.keys.read().is_some()
    }

    /// The present keys. The first call makes a key on P-256, if there is none.
    ///
    /// # Errors
    ///
    /// There is no key and no randomness.
    pub fn current(&self) -> Result<Arc<KeySet>, KeyError> {
        if let Some(keys) = &*self.0.keys.read() {
            return Ok(keys.clone());
        }
        let made = Arc::new(KeySet::new(SigningKey::generate(&*self.0.random)?));
        // Another caller may have been faster: its key is used.
        Ok(self.0.keys.write().get_or_insert(made).clone())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRing").field(&*self.0.keys.read()).finish()
    }
}
