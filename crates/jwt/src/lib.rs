//! Signing keys and signed tokens: JSON Web Tokens (RFC 7519) in compact form, for a server that
//! issues tokens and verifies its own.
//!
//! # Theory
//!
//! - **One algorithm per key.** A key decides how its signatures are checked: RSA is `RS256`, P-256
//!   is `ES256`, P-384 is `ES384`, P-521 is `ES512`. The header of a token only has to agree. So
//!   `alg: none`, an HMAC with a public key as its secret, and a token of another key type are
//!   refused.
//! - **A key has an id** (`kid`): the SHA-256 of its public key in DER, as Kubernetes computes it.
//!   Tokens name the key that signed them.
//! - **Rotation** is a [`KeySet`] with several keys: one signs, all of them verify. A [`KeyRing`]
//!   is a handle whose set can be replaced while it is in use.
//! - **Verification ends with claims.** [`UnverifiedToken`] shows only the issuer, which selects
//!   the authenticator. Times and audiences are claims, and are checked by the caller, which has a
//!   clock.
//! - **Keys of other issuers** are a [`JwkSet`]. There the header chooses the algorithm among those
//!   of the key's type (RSA keys have six), never one of another type.
//! - **Certificate requests** are verified with the same keys: [`verify_request`]; other proofs
//!   that a requester has a private key with [`verify_possession`].
//! - **Detached signatures** with a shared secret prove only to its other owner that a text is
//!   whole: [`sign_detached`]. Nothing here verifies one, so no token can be signed with a secret.
//! - **Signatures of ES256 are deterministic** (RFC 6979): in a simulation the same key and claims
//!   give the same token.
//!
//! Signatures are computed by `ring`, `p256` and `p521`; RSASSA-PSS is checked with `num-bigint`.
//! This crate knows nothing of Kubernetes' objects or HTTP, has no clock and draws randomness only
//! from what it is given.

mod detached;
mod jwk;
mod key;
mod key_set;
mod possession;
mod request;
mod rsa;
mod token;

pub use detached::sign_detached;
pub use jwk::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, JwkSet, JwksError};
pub use key::{Algorithm, KeyError, SigningKey, VerifyingKey};
pub use key_set::{KEYS_MAX, KeyRing, KeySet, RandomSource};
pub use possession::{KeyType, key_type, verify_possession};
pub use request::{RequestSignatureError, attribute_text, verify_request};
pub use token::{TOKEN_BYTES_MAX, TokenError, UnverifiedToken};
