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
use crate::environment::Environment;
use crate::kms::{self, Dek, KmsError, Plugin, SourceId};
use crate::metrics::Transformations;
use crate::nonce::NonceSource;
use bytes::Bytes;
use setpoint_store::is_sealed;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

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
            header: format!("{}{name}:", kind.prefix()).into_bytes(),
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
    /// A plugin has the keys.
    Kms(Arc<Plugin>),
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
    /// The plugin that has the key, or what it wrote.
    #[error("{0}")]
    Kms(#[from] KmsError),
    /// Several keys were tried and failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<ReadError>),
}

impl ReadError {
    /// The label of metrics.
    fn status(&self) -> &'static str {
        match self {
            Self::Kms(error) => error.code().and_then(kms::Code::name),
            _ => None,
        }
        .unwrap_or("unknown-non-grpc")
    }
}

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// No randomness, or too large a value.
    #[error("encrypt a value: {0}")]
    Cipher(#[from] std::io::Error),
    /// The plugin that has the key.
    #[error("{0}")]
    Kms(#[from] KmsError),
}

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) value: Bytes,
    /// Whether it should be written again, because another key writes now.
    pub(crate) is_stale: bool,
}

/// The seeds that a call has asked plugins for, by provider and source. A failure is here, too, so
/// that the call asks once.
#[derive(Debug, Default)]
pub(crate) struct Seeds {
    asked: HashMap<(String, SourceId), Result<Arc<Dek>, KmsError>>,
    /// The plugins that have not answered. They are not asked again.
    silent: Vec<(String, KmsError)>,
}

/// How long a reader waits for a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Of one value.
    One,
    /// Of many values. What it lacks is asked for again later.
    Many,
    /// Of everything that changes.
    Feed,
}

impl Seeds {
    /// Asks a plugin for a seed that is not in memory.
    async fn ask(
        &mut self,
        plugin: &Arc<Plugin>,
        sealed: Bytes,
        reader: Reader,
        environment: &Arc<Environment>,
    ) {
        // What cannot be parsed needs no seed.
        let Ok(object) = kms::parse(sealed) else { return };
        let id = kms::source_id(&object);
        let place = (plugin.name().to_owned(), id);
        if plugin.is_ready() && plugin.known(&id).is_some() || self.asked.contains_key(&place) {
            return;
        }
        let silent = self.silent.iter().find(|(name, _)| name == plugin.name());
        let result = match silent {
            Some((_, error)) => Err(error.clone()),
            // As in Kubernetes: without a present key it is unknown what is stale.
            None if !plugin.is_ready() => Err(KmsError::NotReady),
            None if reader != Reader::Feed => plugin.dek(id, &object, environment).await,
            None if plugin.is_silent() => Err(KmsError::Decrypt(kms::RpcError::deadline())),
            None => {
                let call = plugin.dek(id, &object, environment);
                let late = |_| Err(KmsError::Decrypt(kms::RpcError::deadline()));
                timeout(kms::FEED_WAIT_MAX, call).await.unwrap_or_else(late)
            }
        };
        if let Err(error) = &result {
            if error.is_unanswered() && silent.is_none() {
                self.silent.push((plugin.name().to_owned(), error.clone()));
            }
            if reader != Reader::One {
                plugin.want(id, object);
            }
        }
        self.asked.insert(place, result);
    }

    fn get(&self, plugin: &Plugin, id: SourceId) -> Result<Arc<Dek>, KmsError> {
        let asked = || self.asked.get(&(plugin.name().to_owned(), id)).cloned();
        match plugin.known(&id) {
            Some(dek) => Ok(dek),
            None => asked().unwrap_or(Err(KmsError::NotReady)),
        }
    }
}

/// The providers of a resource, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    pub(crate) providers: Vec<Arc<Provider>>,
}

impl Chain {
    /// The key of a cipher that writes, if one does.
    pub(crate) fn writer(&self) -> Option<&Key> {
        match &**self.providers.first()? {
            Provider::Keys(_, keys) => keys.first(),
            _ => None,
        }
    }

    /// What writes: `identity`, or `provider:name`.
    pub(crate) fn writer_name(&self) -> String {
        match self.providers.first().map(|first| &**first) {
            Some(Provider::Kms(plugin)) => format!("kms:{}", plugin.name()),
            _ => self.writer().map_or("identity".to_owned(), |key| format!("{key:?}")),
        }
    }

    /// Encrypts a value.
    pub(crate) fn seal(
        &self,
        value: Bytes,
        place: &[u8],
        environment: &Environment,
        counts: &mut Transformations,
    ) -> Result<Bytes, SealError> {
        let start = Instant::now();
        let (prefix, result) = match self.providers.first().map(|first| &**first) {
            None => return Ok(value),
            Some(Provider::Identity) => ("", Ok(value)),
            Some(Provider::Keys(kind, keys)) => {
                let Some(key) = keys.first() else { return Ok(value) };
                let sealed = key.seal(&value, place, &environment.nonces);
                (kind.prefix(), sealed.map_err(SealError::from))
            }
            Some(Provider::Kms(plugin)) => {
                let sealed = plugin.seal(&value, place, environment);
                (plugin.header(), sealed.map(Bytes::from).map_err(SealError::from))
            }
        };
        let status = if result.is_ok() { "OK" } else { "unknown-non-grpc" };
        counts.count("to_storage", prefix, status, start.elapsed());
        result
    }

    /// Asks plugins for the seeds that a value needs, so that [`open`](Self::open) finds them.
    /// Dropping the future cancels calls that nobody else waits for.
    pub(crate) async fn ask(
        &self,
        stored: &Bytes,
        seeds: &mut Seeds,
        reader: Reader,
        environment: &Arc<Environment>,
    ) {
        for provider in &self.providers {
            if let Provider::Kms(plugin) = &**provider
                && let Some(sealed) = stored.strip_prefix(plugin.header().as_bytes())
            {
                seeds.ask(plugin, stored.slice_ref(sealed), reader, environment).await;
            }
        }
    }

    /// Decrypts a stored value.
    pub(crate) fn open(
        &self,
        stored: &Bytes,
        place: &[u8],
        seeds: &Seeds,
        environment: &Environment,
        counts: &mut Transformations,
    ) -> Result<Opened, ReadError> {
        let mut errors = Vec::new();
        for (idx, provider) in self.providers.iter().enumerate() {
            let start = Instant::now();
            let (prefix, result) = match &**provider {
                Provider::Identity if is_sealed(stored) => continue,
                Provider::Identity => ("identity", Some(Ok((stored.clone(), false)))),
                Provider::Keys(kind, keys) => (kind.prefix(), open(*kind, keys, stored, place)),
                Provider::Kms(plugin) => {
                    (plugin.header(), open_kms(plugin, stored, place, seeds, environment))
                }
            };
            let Some(result) = result else { continue };
            let status = result.as_ref().map_or_else(ReadError::status, |_| "OK");
            counts.count("from_storage", prefix, status, start.elapsed());
            match result {
                Err(error) => errors.push(error),
                Ok((value, is_stale)) => {
                    return Ok(Opened { value, is_stale: is_stale || idx != 0 });
                }
            }
        }
        Err(one_of(errors).unwrap_or_else(|| {
            counts.count("from_storage", "unknown", "unknown-non-grpc", Duration::ZERO);
            ReadError::NoProvider
        }))
    }
}

/// Decrypts a value of a plugin; `None` if another provider wrote it.
fn open_kms(
    plugin: &Plugin,
    stored: &Bytes,
    place: &[u8],
    seeds: &Seeds,
    environment: &Environment,
) -> Option<Result<(Bytes, bool), ReadError>> {
    let sealed = stored.slice_ref(stored.strip_prefix(plugin.header().as_bytes())?);
    let open = || {
        let object = kms::parse(sealed).map_err(KmsError::from)?;
        if !plugin.is_ready() {
            return Err(ReadError::Kms(KmsError::NotReady));
        }
        let dek = seeds.get(plugin, kms::source_id(&object))?;
        let Environment { metrics, clock, .. } = environment;
        metrics.key_used("from_storage", plugin.name(), dek.key_id_hash(), clock.now());
        let value = dek.open(&object.encrypted_data, place)?;
        Ok((value.into(), plugin.is_stale(&object)))
    };
    Some(open())
}

/// Tries the keys of one provider; `None` if another provider wrote the value.
fn open(
    kind: Kind,
    keys: &[Key],
    stored: &[u8],
    place: &[u8],
) -> Option<Result<(Bytes, bool), ReadError>> {
    stored.strip_prefix(kind.prefix().as_bytes())?;
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
