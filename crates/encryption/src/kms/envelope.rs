//! The stored form of a value, and the keys that encrypt data (DEKs).
//!
//! ```text
//! k8s:enc:kms:v2:‹name›: ‹EncryptedObject, a protocol buffer›
//!                         ├ encryptedData           ‹info (32)› ‹nonce (12)› ‹ciphertext› ‹tag (16)›
//!                         ├ keyID                   the plugin's key that encrypted the seed
//!                         ├ encryptedDEKSource      the seed, as the plugin encrypted it
//!                         ├ annotations             the plugin's notes
//!                         └ encryptedDEKSourceType  1
//! ```
//!
//! The AES-256 key of a value is HKDF-SHA256's expansion of the seed with the value's `info`, which
//! is random. So a seed has no limit of writes. With type 0, which Kubernetes wrote before 1.28,
//! there is no `info`, and the plaintext of the source is the key.

use super::KmsError;
use super::proto::{AES_GCM_KEY, EncryptedObject, HKDF_SHA256_XNONCE_AES_GCM_SEED};
use crate::cipher::{Cipher, Kind, OpenError};
use crate::nonce::NonceSource;
use bytes::Bytes;
use hkdf::Hkdf;
use prost::Message as _;
use setpoint_object::error::aggregate;
use setpoint_object::name::{dns1123_label, dns1123_subdomain};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Length of `info` and of a derived key in bytes, and the least length of a seed.
pub(crate) const SEED_BYTES: usize = 32;
/// Maximum length of what a plugin decrypts: far longer than any seed, but it is kept in memory.
const PLAINTEXT_BYTES_MAX: usize = 1024;
/// Maximum lengths that Kubernetes stores and reads, in bytes.
const SOURCE_BYTES_MAX: usize = 1024;
const KEY_ID_BYTES_MAX: usize = 1024;
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

/// Identifies an encrypted source with everything that the plugin needs to decrypt it.
pub(crate) type SourceId = [u8; 32];

/// A problem of an encrypted object, in the words of Kubernetes' API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Not a protocol buffer.
    #[error("proto: cannot parse invalid wire-format data")]
    Malformed,
    /// Neither a key nor a seed.
    #[error("unknown encryptedDEKSourceType: {0}")]
    SourceType(i32),
    /// No data.
    #[error("encrypted data is empty")]
    NoData,
    /// No source.
    #[error("failed to validate encrypted DEK source: encrypted DEK source is empty")]
    NoSource,
    /// A source of more than a kibibyte.
    #[error(
        "failed to validate encrypted DEK source: encrypted DEK source is {0} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"
    )]
    LongSource(usize),
    /// A wrong key id.
    #[error("failed to validate key id: {0}")]
    KeyId(#[source] KeyIdError),
    /// Wrong annotations.
    #[error("failed to validate annotations: {0}")]
    Annotations(String),
}

/// A problem of a key id, in the words of Kubernetes' API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyIdError {
    /// No key id.
    #[error("keyID is empty")]
    Empty,
    /// A key id of more than a kibibyte.
    #[error("keyID is {0} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}")]
    TooLong(usize),
}

impl KeyIdError {
    /// The label of metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong(_) => "too_long",
        }
    }
}

/// Checks a key id.
pub(crate) fn check_key_id(key_id: &str) -> Result<(), KeyIdError> {
    match key_id.len() {
        0 => Err(KeyIdError::Empty),
        n if n > KEY_ID_BYTES_MAX => Err(KeyIdError::TooLong(n)),
        _ => Ok(()),
    }
}

/// Parses what follows the prefix of a stored value.
pub(crate) fn parse(stored: Bytes) -> Result<EncryptedObject, EnvelopeError> {
    let object = EncryptedObject::decode(stored).map_err(|_| EnvelopeError::Malformed)?;
    if object.encrypted_data.is_empty() && is_type(object.encrypted_dek_source_type) {
        return Err(EnvelopeError::NoData);
    }
    check(&object)?;
    Ok(object)
}

fn is_type(number: i32) -> bool {
    matches!(number, AES_GCM_KEY | HKDF_SHA256_XNONCE_AES_GCM_SEED)
}

/// Checks everything but the data.
pub(crate) fn check(object: &EncryptedObject) -> Result<(), EnvelopeError> {
    if !is_type(object.encrypted_dek_source_type) {
        return Err(EnvelopeError::SourceType(object.encrypted_dek_source_type));
    }
    match object.encrypted_dek_source.len() {
        0 => return Err(EnvelopeError::NoSource),
        n if n > SOURCE_BYTES_MAX => return Err(EnvelopeError::LongSource(n)),
        _ => {}
    }
    check_key_id(&object.key_id).map_err(EnvelopeError::KeyId)?;
    let mut faults: Vec<String> = Vec::new();
    let mut n_bytes = 0;
    for (name, note) in &object.annotations {
        n_bytes += name.len() + note.len();
        if faults.is_empty() {
            faults.extend(domain_fault(name));
        }
    }
    if n_bytes > ANNOTATIONS_BYTES_MAX {
        faults.push(format!(
            "total size of annotations is {n_bytes}, which exceeds the max size of {ANNOTATIONS_BYTES_MAX}"
        ));
    }
    match &faults[..] {
        [] => Ok(()),
        faults => Err(EnvelopeError::Annotations(aggregate(faults))),
    }
}

/// The problem of an annotation's name, which must be a domain of two labels or more.
fn domain_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("annotations: Required value".to_owned());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let shown = setpoint_grpc::shortened(name);
    let invalid = |value: &str, why: &str| format!("annotations: Invalid value: {value:?}: {why}");
    let faults = dns1123_subdomain(name);
    if !faults.is_empty() {
        return Some(invalid(shown, &faults.join(",")));
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return Some(invalid(shown, why));
    }
    let wrong = name.split('.').map(|label| (label, dns1123_label(label)));
    let (label, faults) = wrong.into_iter().find(|(_, faults)| !faults.is_empty())?;
    Some(invalid(setpoint_grpc::shortened(label), &faults.join(",")))
}

/// The id of an object's source: a digest of its type, its bytes, the key id and the annotations,
/// each with its length.
pub(crate) fn source_id(object: &EncryptedObject) -> SourceId {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    part(&object.encrypted_dek_source_type.to_be_bytes());
    part(&object.encrypted_dek_source);
    part(object.key_id.as_bytes());
    for (name, note) in &object.annotations {
        part(name.as_bytes());
        part(note);
    }
    digest.finalize().into()
}

/// `sha256:‹hex›`; empty for an empty text. Key ids are shown in no other form.
pub(crate) fn hashed(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = String::with_capacity(7 + 64);
    hash.push_str("sha256:");
    for byte in Sha256::digest(text) {
        hash.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
    hash
}

/// What encrypts values.
pub(crate) struct Dek {
    secret: Secret,
    key_id_hash: String,
}

enum Secret {
    /// A seed, from which each value's key is derived.
    Seed(Zeroizing<Vec<u8>>),
    /// A key.
    Key(Cipher),
}

/// Omits the secret.
impl std::fmt::Debug for Dek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dek").field("key_id_hash", &self.key_id_hash).finish_non_exhaustive()
    }
}

impl Dek {
    /// From the plaintext of a source, which the key with this id has encrypted.
    pub(crate) fn new(
        source_type: i32,
        plaintext: Zeroizing<Vec<u8>>,
        key_id: &str,
    ) -> Result<Self, KmsError> {
        let n = plaintext.len();
        if n > PLAINTEXT_BYTES_MAX {
            return Err(KmsError::SeedBytes(n));
        }
        let secret = match source_type {
            AES_GCM_KEY => {
                Secret::Key(Cipher::new(Kind::AesGcm, &plaintext).ok_or(KmsError::KeyBytes(n))?)
            }
            _ if n < SEED_BYTES => return Err(KmsError::SeedBytes(n)),
            _ => Secret::Seed(plaintext),
        };
        Ok(Self { secret, key_id_hash: hashed(key_id) })
    }

    /// The hash of the id of the plugin's key, under which each value is counted.
    pub(crate) fn key_id_hash(&self) -> &str {
        &self.key_id_hash
    }

    /// Decrypts the data of an object.
    pub(crate) fn open(&self, data: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError> {
        match &self.secret {
            Secret::Key(cipher) => cipher.open(data, place),
            Secret::Seed(seed) => {
                let (info, sealed) = data.split_at_checked(SEED_BYTES).ok_or(OpenError::Short)?;
                // The seed is long enough.
                derived(seed, info).ok_or(OpenError::Short)?.open(sealed, place)
            }
        }
    }

    /// Encrypts a value.
    pub(crate) fn seal(
        &self,
        value: &[u8],
        place: &[u8],
        nonces: &NonceSource,
    ) -> std::io::Result<Vec<u8>> {
        match &self.secret {
            Secret::Key(cipher) => cipher.seal(&[], value, place, nonces),
            Secret::Seed(seed) => {
                let mut info = [0; SEED_BYTES];
                nonces.fill(&mut info)?;
                let cipher = derived(seed, &info);
                let cipher =
                    cipher.ok_or_else(|| std::io::Error::other("the seed is too short"))?;
                cipher.seal(&info, value, place, nonces)
            }
        }
    }
}

/// The key of one value. `None`: the seed is too short.
fn derived(seed: &[u8], info: &[u8]) -> Option<Cipher> {
    let mut key = Zeroizing::new([0; SEED_BYTES]);
    Hkdf::<Sha256>::from_prk(seed).ok()?.expand(info, &mut *key).ok()?;
    Cipher::new(Kind::AesGcm, &*key)
}
