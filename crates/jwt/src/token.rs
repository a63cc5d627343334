//! Tokens in compact form (RFC 7515): `header.claims.signature`, each in unpadded base64url.

use crate::key::{KeyError, SigningKey, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum size of a token in bytes.
///
/// 16 KiB: Kubernetes' tokens have about one, and a request's head is limited to some dozen.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not three parts of base64url with a JSON object in the first two, or too long.
    #[error("the token is malformed")]
    Malformed,
    /// It uses an extension (`crit`).
    #[error("the token uses an unknown extension")]
    Extension,
    /// No key has the id and the algorithm that it names.
    #[error("no key verifies the token")]
    UnknownKey,
    /// The signature is not of the key.
    #[error("the token's signature is invalid")]
    Signature,
}

/// A token that was parsed but not verified. Its content is untrusted.
#[derive(Debug)]
pub struct UnverifiedToken<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Header,
    claims: Map<String, Value>,
}

/// The members of a header that matter. A repeated member is an error.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token of at most [`TOKEN_BYTES_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// The text has another form, or is longer.
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        Self::parse_within(text, TOKEN_BYTES_MAX)
    }

    /// The same for tokens that do not travel in the head of a request. Takes some milliseconds per
    /// megabyte: call it for long texts on a thread that may block.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), with another limit.
    pub fn parse_within(text: &'a str, bytes_max: usize) -> Result<Self, TokenError> {
        if text.len() > bytes_max {
            return Err(TokenError::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |part| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        let header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::Malformed)?;
        Ok(Self { signed, signature: decode(signature)?, header, claims })
    }

    /// The issuer that it names; empty if it names none.
    pub fn issuer(&self) -> &str {
        self.claims.get("iss").and_then(Value::as_str).unwrap_or_default()
    }

    /// The name of the algorithm in its header.
    pub fn algorithm(&self) -> &str {
        &self.header.alg
    }

    /// The id of the key that it names.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Whether it uses an extension (`crit`).
    pub(crate) fn has_extension(&self) -> bool {
        self.header.crit.is_some()
    }

    /// What is signed, and the signature.
    pub(crate) fn signed(&self) -> (&[u8], &[u8]) {
        (self.signed.as_bytes(), &self.signature)
    }

    /// The unverified claims.
    pub(crate) fn into_claims(self) -> Map<String, Value> {
        self.claims
    }

    /// The claims, if one of the keys has signed them.
    pub(crate) fn verify(self, keys: &[VerifyingKey]) -> Result<Map<String, Value>, TokenError> {
        if self.header.crit.is_some() {
            return Err(TokenError::Extension);
        }
        let mut error = TokenError::UnknownKey;
        for key in keys {
            // A token without a key id may be of any key.
            let is_named = self.header.kid.as_ref().is_none_or(|id| id == key.id());
            if !is_named || self.header.alg != key.algorithm().as_str() {
                continue;
            }
            if key.verifies(self.signed.as_bytes(), &self.signature) {
                return Ok(self.claims);
            }
            error = TokenError::Signature;
        }
        Err(error)
    }
}

/// Signs claims.
pub(crate) fn sign(key: &SigningKey, claims: &Value) -> Result<String, KeyError> {
    let public = key.verifying_key();
    let header = json!({"alg": public.algorithm().as_str(), "kid": public.id()});
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

#[cfg(test)]
mod tests;
