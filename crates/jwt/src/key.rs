//! Keys: reading, making, signing, checking.

mod der;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
    UnparsedPublicKey,
};
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// How often a generated number may be out of range before the source of randomness is given up.
/// One number in 2^32 is.
const GENERATE_ATTEMPTS_MAX: usize = 4;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file is not PEM.
    #[error("not a PEM file: {0}")]
    Pem(String),
    /// The file has no key of the requested kind.
    #[error("no {0} key in the file")]
    Missing(&'static str),
    /// The key is damaged, or neither RSA of 2048 to 4096 bits nor on one of the curves P-256,
    /// P-384 and P-521.
    #[error(
        "the key is damaged or of another kind: RSA (2048 to 4096 bits), P-256, P-384 and P-521 can be used, P-384 in PKCS #8"
    )]
    Unsupported,
    /// The source of randomness failed.
    #[error("no randomness for a key")]
    Randomness(#[source] std::io::Error),
    /// A token cannot be signed.
    #[error("sign a token")]
    Sign,
    /// The set has no private key: another program signs.
    #[error("another program signs tokens")]
    NoPrivate,
}

/// A signature algorithm (RFC 7518 §3.1). Keys of this server have the first four; tokens of other
/// issuers ([`JwkSet`](crate::JwkSet)) may have any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
}

impl Algorithm {
    /// All, sorted by name.
    pub const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// Its name in the header of a token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
        }
    }

    /// The algorithm of this name; `None` for all others, such as `none` and `HS256`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

/// A public key. Verifies the tokens of one signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    algorithm: Algorithm,
    id: String,
    /// An uncompressed point, or an RSA key in PKCS #1.
    public: Vec<u8>,
    /// The coordinates of a point, or modulus and exponent of an RSA key, big-endian.
    numbers: [Vec<u8>; 2],
}

impl VerifyingKey {
    /// All keys of a PEM file: public keys, certificates and private keys, whose public half is
    /// taken.
    ///
    /// # Errors
    ///
    /// The file is not PEM, has no key, or one that cannot be used.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for (kind, der) in sections(pem)? {
            match kind {
                SectionKind::PublicKey => keys.push(Self::from_spki(&der)?),
                SectionKind::Certificate => {
                    let (_, certificate) =
                        X509Certificate::from_der(&der).map_err(|_| KeyError::Unsupported)?;
                    keys.push(Self::from_spki(certificate.public_key().raw)?);
                }
                _ => {
                    if let Some(key) = Private::from_section(kind, &der) {
                        keys.push(key?.public()?);
                    }
                }
            }
        }
        if keys.is_empty() { Err(KeyError::Missing("public or private")) } else { Ok(keys) }
    }

    /// A key of another program, in DER (SubjectPublicKeyInfo), with the id that it has there.
    ///
    /// # Errors
    ///
    /// The key is damaged, or of a kind that cannot be used.
    pub fn from_der(der: &[u8], id: impl Into<String>) -> Result<Self, KeyError> {
        Ok(Self { id: id.into(), ..Self::from_spki(der)? })
    }

    /// The key of a SubjectPublicKeyInfo.
    fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (rest, info) =
            SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Unsupported)?;
        let parsed = info.parsed().map_err(|_| KeyError::Unsupported)?;
        if !rest.is_empty() {
            return Err(KeyError::Unsupported);
        }
        let (algorithm, numbers) = match parsed {
            PublicKey::RSA(key) if matches!(key.key_size(), 2048..=4096) => {
                (Algorithm::Rs256, [number(key.modulus), number(key.exponent)])
            }
            PublicKey::EC(point) => {
                let curve =
                    info.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
                let curve = curve.map(|curve| curve.to_id_string()).unwrap_or_default();
                let (algorithm, n_bytes) = match &*curve {
                    "1.2.840.10045.3.1.7" => (Algorithm::Es256, 32),
                    "1.3.132.0.34" => (Algorithm::Es384, 48),
                    "1.3.132.0.35" => (Algorithm::Es512, 66),
                    _ => return Err(KeyError::Unsupported),
                };
                match point.data().split_first() {
                    Some((4, numbers)) if numbers.len() == 2 * n_bytes => {
                        let (x, y) = numbers.split_at(n_bytes);
                        (algorithm, [x.to_vec(), y.to_vec()])
                    }
                    _ => return Err(KeyError::Unsupported),
                }
            }
            _ => return Err(KeyError::Unsupported),
        };
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        Ok(Self { algorithm, id, public: info.subject_public_key.data.to_vec(), numbers })
    }

    /// Its id: the SHA-256 of the public key in DER (SubjectPublicKeyInfo), in unpadded base64url.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm of its signatures.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether a signature is this key's.
    pub(crate) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn ring::signature::VerificationAlgorithm = match self.algorithm {
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Es512 => return p521_verifies(&self.public, signed, signature),
            // No key of this server.
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.public).verify(signed, signature).is_ok()
    }

    /// The key as a JSON Web Key (RFC 7517).
    pub fn jwk(&self) -> Value {
        let [first, second] = self.numbers.each_ref().map(|n| URL_SAFE_NO_PAD.encode(n));
        let mut jwk = match self.algorithm {
            Algorithm::Es256 => json!({"kty": "EC", "crv": "P-256", "x": first, "y": second}),
            Algorithm::Es384 => json!({"kty": "EC", "crv": "P-384", "x": first, "y": second}),
            Algorithm::Es512 => json!({"kty": "EC", "crv": "P-521", "x": first, "y": second}),
            _ => json!({"kty": "RSA", "n": first, "e": second}),
        };
        jwk["use"] = "sig".into();
        jwk["kid"] = self.id.as_str().into();
        jwk["alg"] = self.algorithm.as_str().into();
        jwk
    }
}

/// Whether a signature with ES512 is of an uncompressed point. Takes some milliseconds.
pub(crate) fn p521_verifies(point: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    use p521::ecdsa::signature::Verifier as _;
    let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(point);
    let signature = p521::ecdsa::Signature::from_slice(signature);
    match (key, signature) {
        (Ok(key), Ok(signature)) => key.verify(signed, &signature).is_ok(),
        _ => false,
    }
}

/// A big-endian number without leading zeros.
pub(crate) fn number(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// The PEM sections of a file.
fn sections(pem: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, KeyError> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| KeyError::Pem(error.to_string()))
}

/// A private key. Signs tokens. Its `Debug` output is the id of its public key.
pub struct SigningKey {
    private: Private,
    public: VerifyingKey,
}

enum Private {
    /// Not ring's: it draws randomness for each signature.
    Es256(Box<p256::SecretKey>),
    Es384(EcdsaKeyPair),
    Es512(Box<p521::SecretKey>),
    Rs256(RsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public.id).finish()
    }
}

impl SigningKey {
    /// Makes a key on P-256 from random bytes. Takes less than a millisecond.
    ///
    /// # Errors
    ///
    /// The source of randomness fails, or returns no number of the curve.
    pub fn generate(
        mut random: impl FnMut(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<Self, KeyError> {
        for _ in 0..GENERATE_ATTEMPTS_MAX {
            let mut bytes = [0; 32];
            random(&mut bytes).map_err(KeyError::Randomness)?;
            if let Ok(key) = p256::SecretKey::from_slice(&bytes) {
                return Self::new(Private::Es256(Box::new(key)));
            }
        }
        Err(KeyError::Randomness(std::io::Error::other("it returns no number of the curve")))
    }

    /// As [`generate`](Self::generate), from the operating system's randomness.
    ///
    /// # Errors
    ///
    /// The operating system gives none.
    pub fn generate_from_system() -> Result<Self, KeyError> {
        Self::generate(system_random)
    }

    /// The first private key of a PEM file, in PKCS #8, PKCS #1 (RSA) or SEC 1 (P-256
    /// and P-521).
    ///
    /// # Errors
    ///
    /// The file is not PEM, has no private key, or one that cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let mut keys = sections(pem)?.into_iter();
        match keys.find_map(|(kind, der)| Private::from_section(kind, &der)) {
            Some(key) => Self::new(key?),
            None => Err(KeyError::Missing("private")),
        }
    }

    fn new(private: Private) -> Result<Self, KeyError> {
        let public = private.public()?;
        if public.algorithm == Algorithm::Rs256 && public.numbers[0].len() > 512 {
            return Err(KeyError::Unsupported);
        }
        Ok(Self { private, public })
    }

    /// A key on P-256 in PKCS #8 PEM; `None` for others, which came from a file.
    pub fn to_pem(&self) -> Option<String> {
        match &self.private {
            Private::Es256(key) => key.to_pkcs8_pem(LineEnding::LF).ok().map(|pem| (*pem).clone()),
            Private::Es384(_) | Private::Es512(_) | Private::Rs256(_) => None,
        }
    }

    /// Its public half.
    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.public
    }

    /// Whether a signature takes several milliseconds (RSA, P-521). Sign on a thread that may block
    /// then.
    pub fn is_slow(&self) -> bool {
        matches!(self.private, Private::Es512(_) | Private::Rs256(_))
    }

    /// The signature of a text.
    pub(crate) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.private {
            Private::Es256(key) => {
                let key = p256::ecdsa::SigningKey::from(&**key);
                let signature: p256::ecdsa::Signature =
                    key.try_sign(text).map_err(|_| KeyError::Sign)?;
                Ok(signature.to_bytes().to_vec())
            }
            Private::Es384(key) => {
                let signature = key.sign(&SystemRandom::new(), text);
                Ok(signature.map_err(|_| KeyError::Sign)?.as_ref().to_vec())
            }
            Private::Es512(key) => {
                let key = p521::ecdsa::SigningKey::from_bytes(&key.to_bytes())
                    .map_err(|_| KeyError::Sign)?;
                let signature: p521::ecdsa::Signature =
                    key.try_sign(text).map_err(|_| KeyError::Sign)?;
                Ok(signature.to_bytes().to_vec())
            }
            Private::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let random = SystemRandom::new();
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
        }
    }
}

/// Fills a slice with the operating system's randomness.
pub(crate) fn system_random(bytes: &mut [u8]) -> std::io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| std::io::Error::other("the operating system gives no randomness"))
}

impl Private {
    /// The private key of a PEM section; `None` if the section has none.
    fn from_section(kind: SectionKind, der: &[u8]) -> Option<Result<Self, KeyError>> {
        let es256 = |key| Self::Es256(Box::new(key));
        let es512 = |key| Self::Es512(Box::new(key));
        let key = match kind {
            SectionKind::PrivateKey => p256::SecretKey::from_pkcs8_der(der)
                .map(es256)
                .ok()
                .or_else(|| {
                    let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
                    let key = EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new());
                    key.map(Self::Es384).ok()
                })
                .or_else(|| p521::SecretKey::from_pkcs8_der(der).map(es512).ok())
                .or_else(|| RsaKeyPair::from_pkcs8(der).map(Self::Rs256).ok()),
            SectionKind::EcPrivateKey => p256::SecretKey::from_sec1_der(der)
                .map(es256)
                .ok()
                .or_else(|| p521::SecretKey::from_sec1_der(der).map(es512).ok()),
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der).map(Self::Rs256).ok(),
            _ => return None,
        };
        Some(key.ok_or(KeyError::Unsupported))
    }

    fn public(&self) -> Result<VerifyingKey, KeyError> {
        let info = match self {
            Self::Es256(key) => {
                use p256::elliptic_curve::sec1::ToEncodedPoint as _;
                der::p256(key.public_key().to_encoded_point(false).as_bytes())
            }
            Self::Es384(key) => der::p384(key.public_key().as_ref()),
            Self::Es512(key) => {
                use p521::elliptic_curve::sec1::ToEncodedPoint as _;
                der::p521(key.public_key().to_encoded_point(false).as_bytes())
            }
            Self::Rs256(key) => der::rsa(key.public_key().as_ref()),
        };
        VerifyingKey::from_spki(&info)
    }
}
