//! Chains of providers: the first one writes, all of them read.
//!
//! # Theory
//!
//! The prefix of a value names the provider and the key that wrote it:
//!
//! ```text
//! k8s:enc:aesgcm:v1:key2:‹nonce, ciphertext, tag›
//!        └provider┘ └key┘
//! ```
//!
//! Several providers may have keys of the same name, and a name may begin with another name and a
//! colon. So every provider and key with a matching prefix is tried in order until one decrypts the
//! value. A value is *stale* if another key than the first key of the first provider decrypted it.

use crate::cipher::{Cipher, Kind, OpenError};
use crate::nonce::NonceSource;
use bytes::Bytes;
use setpoint_store::is_sealed;
use std::fmt;
use std::sync::Arc;

/// Identifies a key without exposing it: SHA-256 of its cipher and its bytes.
pub(crate) type KeyId = [u8; 32];

/// A key with its name.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) id: KeyId,
    pub(crate) kind: Kind,
    /// The prefix of values it writes: `k8s:enc:<kind>:v1:<name>:`.
    header: Vec<u8>,
    cipher: Cipher,
}

impl Key {
    /// `None` if the cipher does not support the secret's length.
    pub(crate) fn new(kind: Kind, name: &str, secret: &[u8]) -> Option<Self> {
        use sha2::Digest as _;
        let mut digest = sha2::Sha256::new();
        digest.update(kind.name());
        digest.update(b"\0");
        digest.update(secret);
        Some(Self {
            name: name.to_owned(),
            id: digest.finalize().into(),
            kind,
            header: format!("k8s:enc:{}:v1:{name}:", kind.name()).into_bytes(),
            cipher: Cipher::new(kind, secret)?,
        })
    }

    /// Encrypts a value for a place.
    pub(crate) fn seal(
        &self,
        value: &[u8],
        place: &[u8],
        nonces: &NonceSource,
    ) -> std::io::Result<Bytes> {
        self.cipher.seal(&self.header, value, place, nonces).map(Bytes::from)
    }
}

/// Omits the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

/// One element of a list of providers.
#[derive(Debug)]
pub(crate) enum Provider {
    /// Values are not encrypted.
    Identity,
    /// At least one key; the first writes.
    Keys(Kind, Vec<Key>),
}

/// Why no provider can read a value. The texts are those of Kubernetes' API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The resource is not in the configuration, but the value is encrypted.
    #[error("identity transformer tried to read encrypted data")]
    NotConfigured,
    /// The resource is in the configuration, but no provider of it wrote the value.
    #[error("no matching prefix found")]
    NoProvider,
    /// A provider of the right kind has no key of this name.
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(&'static str),
    /// The key cannot decrypt it.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// Several keys were tried and failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<ReadError>),
}

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) value: Bytes,
    /// Whether it should be written again, because another key writes now.
    pub(crate) is_stale: bool,
}

/// The providers of a resource, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    pub(crate) providers: Vec<Arc<Provider>>,
}

impl Chain {
    /// The key that writes; `None` if values are written unencrypted.
    pub(crate) fn writer(&self) -> Option<&Key> {
        match &**self.providers.first()? {
            Provider::Identity => None,
            Provider::Keys(_, keys) => keys.first(),
        }
    }

    /// Decrypts a stored value.
    pub(crate) fn open(&self, stored: &Bytes, place: &[u8]) -> Result<Opened, ReadError> {
        let mut errors = Vec::new();
        for (idx, provider) in self.providers.iter().enumerate() {
            match &**provider {
                Provider::Identity if is_sealed(stored) => {}
                Provider::Identity => {
                    return Ok(Opened { value: stored.clone(), is_stale: idx != 0 });
                }
                Provider::Keys(kind, keys) => match open(*kind, keys, stored, place) {
                    None => {}
                    Some(Err(error)) => errors.push(error),
                    Some(Ok((value, is_stale))) => {
                        return Ok(Opened { value, is_stale: is_stale || idx != 0 });
                    }
                },
            }
        }
        Err(one_of(errors).unwrap_or(ReadError::NoProvider))
    }
}

/// Tries the keys of one provider; `None` if another provider wrote the value.
fn open(
    kind: Kind,
    keys: &[Key],
    stored: &[u8],
    place: &[u8],
) -> Option<Result<(Bytes, bool), ReadError>> {
    let written = stored.strip_prefix(setpoint_store::SEALED_PREFIX)?;
    let written = written.strip_prefix(kind.name().as_bytes())?;
    if !written.starts_with(b":v1:") {
        return None;
    }
    let mut errors = Vec::new();
    for (idx, key) in keys.iter().enumerate() {
        let Some(sealed) = stored.strip_prefix(&*key.header) else { continue };
        match key.cipher.open(sealed, place) {
            Ok(value) => return Some(Ok((value.into(), idx != 0))),
            Err(error) => errors.push(ReadError::Open(error)),
        }
    }
    Some(Err(one_of(errors).unwrap_or(ReadError::NoKey(kind.title()))))
}

/// Combines errors as Kubernetes does: each once.
fn one_of(mut errors: Vec<ReadError>) -> Option<ReadError> {
    let mut once = Vec::new();
    for error in errors.drain(..) {
        if !once.contains(&error) {
            once.push(error);
        }
    }
    match once.len() {
        0 | 1 => once.pop(),
        _ => Some(ReadError::Several(once)),
    }
}

/// The parsed prefix of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<'v> {
    /// The provider: `aesgcm`, `secretbox`, `aescbc`, `kms`, or an unknown one.
    pub kind: &'v str,
    /// The name of the key, up to the first colon.
    pub key: &'v str,
}

impl<'v> Prefix<'v> {
    /// Parses `k8s:enc:<provider>:v1:<key>:` (`v2` for kms); `None` for other values.
    pub fn parse(stored: &'v [u8]) -> Option<Self> {
        let rest = stored.strip_prefix(setpoint_store::SEALED_PREFIX)?;
        let mut words = rest.splitn(4, |byte| *byte == b':');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (kind, version, key) = (word()?, word()?, word()?);
        words.next()?;
        let is_known = version == "v1" || version == "v2" && kind == "kms";
        is_known.then_some(Self { kind, key })
    }
}

#[cfg(test)]
mod tests;
