//! The public key of a request, and the proof that its private key is known to the requester.
use crate::kind::at::At;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_jwt::{KeyType, key_type, verify_possession, verify_request};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Maximum length of a key, a proof and a request, in bytes.
const KEY_BYTES_MAX: usize = 10 * 1024;
/// The sizes that RSA keys may have, in bits.
const RSA_BITS: [usize; 2] = [3072, 4096];

/// Exactly one of a certificate request, and a key with a proof.
pub(super) fn validate(spec: &At<'_, '_>) {
    let bytes = |member: &str| STANDARD.decode(spec.text_of(member)).unwrap_or_default();
    let request = bytes("stubPKCS10Request");
    let (key, proof) = (bytes("pkixPublicKey"), bytes("proofOfPossession"));
    match (request.is_empty(), key.is_empty(), proof.is_empty()) {
        (false, true, true) => stub(&spec.get("stubPKCS10Request"), &request),
        (true, false, false) => key_and_proof(spec, &key, &proof),
        _ => spec.invalid_bare(
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    }
}

/// A certificate request that is signed with its own key; what else it says does not matter.
fn stub(at: &At<'_, '_>, request: &[u8]) {
    if request.len() > KEY_BYTES_MAX {
        return at.too_long(KEY_BYTES_MAX);
    }
    let Some(request) = read_request(request) else {
        return at.invalid_bare("must be a valid PKCS#10 CSR");
    };
    let key = &request.certification_request_info.subject_pki;
    if is_supported(at, key, "elliptic public keys must use curve P256, P384, or P521", None)
        // An algorithm that is not known here proves nothing.
        && verify_request(&request).is_err()
    {
        at.invalid_bare("invalid signature");
    }
}

fn key_and_proof(spec: &At<'_, '_>, key: &[u8], proof: &[u8]) {
    let (at, proof_at) = (spec.get("pkixPublicKey"), spec.get("proofOfPossession"));
    if key.len() > KEY_BYTES_MAX {
        return at.too_long(KEY_BYTES_MAX);
    }
    if proof.len() > KEY_BYTES_MAX {
        return proof_at.too_long(KEY_BYTES_MAX);
    }
    let Some(key) = read_key(key) else {
        return at.invalid("must be a valid PKIX-serialized public key");
    };
    let signed = spec.text_of("podUID").as_bytes();
    if is_supported(&at, &key, "elliptic public keys must use curve P256 or P384", Some(at.value))
        && !verify_possession(&key, signed, proof)
    {
        proof_at.invalid_bare("could not verify proof-of-possession signature");
    }
}

/// Reports a key that no certificate is made for. `shown`: what the error about an unknown type
/// shows.
fn is_supported(
    at: &At<'_, '_>,
    key: &SubjectPublicKeyInfo<'_>,
    curves: &str,
    shown: Option<&Value>,
) -> bool {
    const UNKNOWN: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
    match key_type(key) {
        Some(KeyType::Ed25519 | KeyType::P256 | KeyType::P384 | KeyType::P521) => return true,
        Some(KeyType::P224) => at.invalid_as(&"curve P-224".into(), curves),
        Some(KeyType::Rsa { bits }) if RSA_BITS.contains(&bits) => return true,
        Some(KeyType::Rsa { bits }) => at.invalid_as(
            &format!("{bits}-bit modulus").into(),
            "RSA keys must have modulus size 3072 or 4096",
        ),
        _ => match shown {
            Some(key) => at.invalid_as(key, UNKNOWN),
            None => at.invalid_bare(UNKNOWN),
        },
    }
    false
}

fn read_request(der: &[u8]) -> Option<X509CertificationRequest<'_>> {
    let (rest, request) = X509CertificationRequest::from_der(der).ok()?;
    let key = &request.certification_request_info.subject_pki;
    (rest.is_empty() && key_type(key).is_some()).then_some(request)
}
fn read_key(der: &[u8]) -> Option<SubjectPublicKeyInfo<'_>> {
    let (rest, key) = SubjectPublicKeyInfo::from_der(der).ok()?;
    (rest.is_empty() && key_type(&key).is_some()).then_some(key)
}

/// Whether a certificate's key is that of a stored request.
///
/// # Errors
///
/// The member whose key cannot be read, and why.
pub(super) fn is_key_of(
    spec: &Value,
    key: &SubjectPublicKeyInfo<'_>,
) -> Result<bool, (&'static str, &'static str)> {
    let bytes = |member: &str| STANDARD.decode(crate::kind::text(spec, member)).unwrap_or_default();
    let request = bytes("stubPKCS10Request");
    if !request.is_empty() {
        let Some(request) = read_request(&request) else {
            return Err(("stubPKCS10Request", "must be a valid PKCS#10 CSR"));
        };
        return Ok(is_same(&request.certification_request_info.subject_pki, key));
    }
    let wanted = bytes("pkixPublicKey");
    let wanted = read_key(&wanted);
    let wanted = wanted.ok_or(("pkixPublicKey", "must be a valid PKIX-serialized public key"))?;
    Ok(is_same(&wanted, key))
}

fn is_same(a: &SubjectPublicKeyInfo<'_>, b: &SubjectPublicKeyInfo<'_>) -> bool {
    key_type(a) == key_type(b) && a.subject_public_key.data == b.subject_public_key.data
}
