//! Public keys of other issuers: JSON Web Key Sets (RFC 7517).

use crate::key::{Algorithm, number, p521_verifies};
use crate::token::{TokenError, UnverifiedToken};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Maximum size of a document in bytes: 1 MiB. Large providers publish some KiB.
pub const JWKS_BYTES_MAX: usize = 1 << 20;

/// Maximum number of keys of a set: 256. Large providers publish about ten.
pub const JWKS_KEYS_MAX: usize = 256;

/// The most RSA or short ECDSA signatures that are checked on a thread that serves requests. Each
/// takes a tenth of a millisecond, some tenths for the longest RSA keys.
const QUICK_CHECKS_MAX: usize = 4;

/// Why a document has no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwksError {
    /// More than [`JWKS_BYTES_MAX`] bytes.
    #[error("more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
    /// More than [`JWKS_KEYS_MAX`] keys.
    #[error("more than {JWKS_KEYS_MAX} keys")]
    TooMany,
    /// Not a JSON Web Key Set.
    #[error("not a JSON Web Key Set: {0}")]
    Syntax(#[source] serde_json::Error),
}

/// The public keys of another issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Jwk {
    id: String,
    key: Key,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa(Vec<u8>, Vec<u8>),
    /// A curve by its algorithm, and an uncompressed point.
    Point(Algorithm, Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl JwkSet {
    /// Reads a document. Keys of unknown kinds and damaged ones are left out: an issuer may publish
    /// keys for other purposes too.
    ///
    /// # Errors
    ///
    /// The document is too large, has too many keys or another form.
    pub fn parse(document: &[u8]) -> Result<Self, JwksError> {
        if document.len() > JWKS_BYTES_MAX {
            return Err(JwksError::TooLarge);
        }
        let document: Document = serde_json::from_slice(document).map_err(JwksError::Syntax)?;
        if document.keys.len() > JWKS_KEYS_MAX {
            return Err(JwksError::TooMany);
        }
        Ok(Self { keys: document.keys.iter().filter_map(Jwk::read).collect() })
    }

    /// The number of keys that can be used.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that may have signed a token: those with its key id, or all if it names none.
    fn candidates<'a>(
        &'a self,
        token: &'a UnverifiedToken<'_>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &'a Key> {
        let id = token.key_id().filter(|id| !id.is_empty());
        let named = self.keys.iter().filter(move |key| id.is_none_or(|id| id == key.id));
        named.map(|key| &key.key).filter(move |key| key.has(algorithm))
    }

    /// Whether [`verify`](Self::verify) takes several milliseconds: ES512, or many keys. Call it on
    /// a thread that may block then.
    pub fn is_slow(&self, token: &UnverifiedToken<'_>) -> bool {
        Algorithm::parse(token.algorithm()).is_some_and(|algorithm| {
            let n = self.candidates(token, algorithm).count();
            n > QUICK_CHECKS_MAX || n > 0 && algorithm == Algorithm::Es512
        })
    }

    /// The claims of a token that one of the keys has signed.
    ///
    /// # Errors
    ///
    /// No key has the id and fits the algorithm that it names, or none has signed it.
    pub fn verify(&self, token: UnverifiedToken<'_>) -> Result<Map<String, Value>, TokenError> {
        if token.has_extension() {
            return Err(TokenError::Extension);
        }
        let algorithm = Algorithm::parse(token.algorithm()).ok_or(TokenError::UnknownKey)?;
        let (signed, signature) = token.signed();
        if self.candidates(&token, algorithm).next().is_none() {
            return Err(TokenError::UnknownKey);
        }
        let is_signer = |key: &Key| key.verifies(algorithm, signed, signature);
        let is_signed = self.candidates(&token, algorithm).any(is_signer);
        if is_signed { Ok(token.into_claims()) } else { Err(TokenError::Signature) }
    }
}

impl Jwk {
    fn read(jwk: &Value) -> Option<Self> {
        let text = |member: &str| jwk.get(member).and_then(Value::as_str);
        let bytes = |member: &str| URL_SAFE_NO_PAD.decode(text(member)?.trim_end_matches('=')).ok();
        let key = match text("kty")? {
            "RSA" => Key::Rsa(number(&bytes("n")?), number(&bytes("e")?)),
            "EC" => {
                let (algorithm, n_bytes) = match text("crv")? {
                    "P-256" => (Algorithm::Es256, 32),
                    "P-384" => (Algorithm::Es384, 48),
                    "P-521" => (Algorithm::Es512, 66),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != n_bytes || y.len() != n_bytes {
                    return None;
                }
                // 4: an uncompressed point.
                Key::Point(algorithm, [&[4][..], &x, &y].concat())
            }
            _ => return None,
        };
        Some(Self { id: text("kid").unwrap_or_default().to_owned(), key })
    }
}

impl Key {
    /// Whether keys of this type have the algorithm.
    fn has(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa(..) => rsa(algorithm).is_some(),
            Self::Point(own, _) => *own == algorithm,
        }
    }

    fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        match (self, rsa(algorithm)) {
            (Self::Rsa(n, e), Some(parameters)) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
            }
            (Self::Point(Algorithm::Es256, point), _) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, signature)
                    .is_ok()
            }
            (Self::Point(Algorithm::Es384, point), _) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)
                    .verify(signed, signature)
                    .is_ok()
            }
            (Self::Point(Algorithm::Es512, point), _) => p521_verifies(point, signed, signature),
            _ => false,
        }
    }
}

/// The parameters of an RSA algorithm.
fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 => return None,
    })
}

#[cfg(test)]
mod tests;
