//! Signatures and subjects of certificate requests.

use crate::rsa::{BITS_MIN, RsaKey, SHA384_INFO};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::der_parser::Oid;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521,
    OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_MD5WITHRSAENC,
    OID_PKCS1_RSAENCRYPTION, OID_PKCS1_RSASSAPSS, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
    OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ECDSA_WITH_SHA512, OID_SIG_ED25519,
};
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::{AlgorithmIdentifier, AttributeTypeAndValue};

/// Why the signature of a certificate request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestSignatureError {
    /// The algorithm is not supported: the signature may be valid.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Unsupported,
    /// The algorithm of this name is not secure, whoever signs.
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    Insecure(&'static str),
    /// The key is on a curve that no signer knows.
    #[error("x509: unsupported elliptic curve")]
    Curve,
    /// The signature is not of the request's key. The text is Go's for this type of key.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Verifies a certificate request with its own key: RSA of 1024 to 8192 bits, ECDSA on P-224,
/// P-256, P-384 and P-521, Ed25519. SHA-1 is accepted, as by Go: a request is of its own key. ECDSA
/// on P-521, and RSA below 2048 bits, take some milliseconds.
///
/// # Errors
///
/// The signature is invalid, or of an algorithm that is not supported.
pub fn verify_request(request: &X509CertificationRequest<'_>) -> Result<(), RequestSignatureError> {
    let error = match request.verify_signature() {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if has_other_curve(request) {
        return Err(RequestSignatureError::Curve);
    }
    let algorithm = &request.signature_algorithm;
    if algorithm.algorithm == OID_PKCS1_MD5WITHRSAENC {
        return Err(RequestSignatureError::Insecure("MD5-RSA"));
    }
    if algorithm.algorithm == OID_PKCS1_RSASSAPSS && !is_common_pss(algorithm) {
        return Err(RequestSignatureError::Unsupported);
    }
    match (verify_other(request), error) {
        (Some(true), _) => Ok(()),
        (None, X509Error::SignatureUnsupportedAlgorithm) => Err(RequestSignatureError::Unsupported),
        _ => Err(RequestSignatureError::Invalid(refusal(request))),
    }
}

/// The text of an attribute of a subject, in each encoding that Go reads: a name that is not read
/// would be one that is not checked.
pub fn attribute_text(attribute: &AttributeTypeAndValue<'_>) -> String {
    const BMP: u32 = 30;
    let bytes = attribute.as_slice();
    match attribute.as_str() {
        Ok(text) => text.to_owned(),
        Err(_) if attribute.attr_value().tag().0 == BMP => {
            let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            String::from_utf16_lossy(&units.collect::<Vec<u16>>())
        }
        // T61String: a character for each byte.
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Whether the key is on a curve other than those of Go's standard library.
fn has_other_curve(request: &X509CertificationRequest<'_>) -> bool {
    let algorithm = &request.certification_request_info.subject_pki.algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    let p224 = x509_parser::der_parser::oid!(1.3.132.0.33);
    let known = [p224, OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521];
    algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY
        && curve.is_some_and(|curve| !known.contains(&curve))
}

/// Whether the parameters of RSASSA-PSS are those that Go knows: one hash, a salt of its length.
fn is_common_pss(algorithm: &AlgorithmIdentifier<'_>) -> bool {
    let parameters = algorithm.parameters.as_ref().map(RsaSsaPssParams::try_from);
    let Some(Ok(parameters)) = parameters else { return false };
    let salt_bytes =
        [(OID_NIST_HASH_SHA256, 32), (OID_NIST_HASH_SHA384, 48), (OID_NIST_HASH_SHA512, 64)];
    let hash = parameters.hash_algorithm_oid();
    let is_one = parameters.mask_gen_algorithm().is_ok_and(|mask| mask.hash == *hash);
    let is_its = |(of, n_bytes): &(_, u32)| of == hash && *n_bytes == parameters.salt_length();
    is_one && salt_bytes.iter().any(is_its)
}

/// The hash of RSASSA-PSS.
fn pss_hash(algorithm: &AlgorithmIdentifier<'_>) -> Option<Oid<'static>> {
    let parameters = RsaSsaPssParams::try_from(algorithm.parameters.as_ref()?).ok()?;
    Some(parameters.hash_algorithm_oid().to_owned())
}

/// What Go says about an invalid signature.
fn refusal(request: &X509CertificationRequest<'_>) -> &'static str {
    let algorithm = &request.certification_request_info.subject_pki.algorithm.algorithm;
    if *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        "x509: ECDSA verification failure"
    } else if *algorithm == OID_PKCS1_RSAENCRYPTION {
        "crypto/rsa: verification error"
    } else if *algorithm == OID_SIG_ED25519 {
        "x509: Ed25519 verification failure"
    } else {
        "x509: the signature does not verify"
    }
}

/// Whether a signature of an algorithm is valid that `x509_parser` refuses; `None` for others.
fn verify_other(request: &X509CertificationRequest<'_>) -> Option<bool> {
    let info = &request.certification_request_info;
    let key = &*info.subject_pki.subject_public_key.data;
    let signature = &*request.signature_value.data;
    let algorithm = &request.signature_algorithm.algorithm;
    let rsa: [(_, &dyn VerificationAlgorithm); 2] = [
        (OID_PKCS1_SHA256WITHRSA, &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        (OID_PKCS1_SHA512WITHRSA, &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
    ];
    if let Some((_, rsa)) = rsa.into_iter().find(|(id, _)| id == algorithm) {
        return Some(UnparsedPublicKey::new(rsa, key).verify(info.raw, signature).is_ok());
    }
    if *algorithm == OID_PKCS1_SHA384WITHRSA || *algorithm == OID_PKCS1_RSASSAPSS {
        let rsa = RsaKey::of(&info.subject_pki).filter(|rsa| rsa.bits() >= BITS_MIN)?;
        return Some(match pss_hash(&request.signature_algorithm) {
            _ if *algorithm == OID_PKCS1_SHA384WITHRSA => {
                rsa.pkcs1_verifies(&SHA384_INFO, &Sha384::digest(info.raw), signature)
            }
            // The salt is as long as the hash: `is_common_pss`.
            Some(id) if id == OID_NIST_HASH_SHA256 => {
                rsa.pss_verifies::<Sha256>(info.raw, signature, Some(32))
            }
            Some(id) if id == OID_NIST_HASH_SHA384 => {
                rsa.pss_verifies::<Sha384>(info.raw, signature, Some(48))
            }
            _ => rsa.pss_verifies::<Sha512>(info.raw, signature, Some(64)),
        });
    }
    let sha1 = x509_parser::der_parser::oid!(1.2.840.10045.4.1);
    let hash = if *algorithm == OID_SIG_ECDSA_WITH_SHA256 {
        Sha256::digest(info.raw).to_vec()
    } else if *algorithm == OID_SIG_ECDSA_WITH_SHA384 {
        Sha384::digest(info.raw).to_vec()
    } else if *algorithm == OID_SIG_ECDSA_WITH_SHA512 {
        Sha512::digest(info.raw).to_vec()
    } else if *algorithm == sha1 {
        digest(&SHA1_FOR_LEGACY_USE_ONLY, info.raw).as_ref().to_vec()
    } else {
        return None;
    };
    let curve = info.subject_pki.algorithm.parameters.as_ref()?.as_oid().ok()?;
    if curve == OID_NIST_EC_P521 {
        Some(p521_verifies(key, &hash, signature))
    } else if curve == OID_NIST_EC_P384 {
        Some(p384_verifies(key, &hash, signature))
    } else if curve == OID_EC_P256 {
        Some(p256_verifies(key, &hash, signature))
    } else {
        // The only other one that is known.
        Some(p224_verifies(key, &hash, signature))
    }
}

/// Defines a function: whether a signature of a hash is of the key of a point, on a curve whose
/// numbers have so many bytes.
macro_rules! verifier {
    ($name:ident, $curve:ident, $n_bytes:literal) => {
        pub(crate) fn $name(point: &[u8], hash: &[u8], signature: &[u8]) -> bool {
            use $curve::ecdsa::signature::hazmat::PrehashVerifier as _;
            let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(point);
            let signature = $curve::ecdsa::Signature::from_der(signature);
            // A shorter hash is the same number; the crates refuse less than half of the length.
            let mut number = vec![0; usize::saturating_sub($n_bytes, hash.len())];
            number.extend_from_slice(hash);
            match (key, signature) {
                (Ok(key), Ok(signature)) => key.verify_prehash(&number, &signature).is_ok(),
                _ => false,
            }
        }
    };
}
verifier!(p224_verifies, p224, 28);
verifier!(p256_verifies, p256, 32);
verifier!(p384_verifies, p384, 48);
verifier!(p521_verifies, p521, 66);

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::FromDer as _;

    /// The outcome of a request that openssl made, and of the same one with another subject.
    fn verify(pem: &[u8]) -> [Result<(), RequestSignatureError>; 2] {
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).unwrap();
        let mut changed = block.contents.clone();
        let at = changed.windows(3).position(|name| name == b"ann").unwrap();
        changed[at] = b'b';
        [&block.contents, &changed].map(|der| {
            let (_, request) = X509CertificationRequest::from_der(der).unwrap();
            verify_request(&request)
        })
    }

    #[test]
    fn requests_of_every_common_key_are_verified() {
        for pem in [
            &include_bytes!("../testdata/requests/p521-sha256.csr")[..],
            include_bytes!("../testdata/requests/p521-sha384.csr"),
            include_bytes!("../testdata/requests/p521-sha512.csr"),
            include_bytes!("../testdata/requests/p256-sha512.csr"),
            include_bytes!("../testdata/requests/p224-sha256.csr"),
            include_bytes!("../testdata/requests/p256-sha1.csr"),
            include_bytes!("../testdata/requests/p384-sha1.csr"),
            include_bytes!("../testdata/requests/p384-sha512.csr"),
            include_bytes!("../testdata/requests/p521-sha1.csr"),
            include_bytes!("../testdata/requests/pss-sha384.csr"),
            include_bytes!("../testdata/requests/rsa1024-sha1.csr"),
            include_bytes!("../testdata/requests/rsa1024-sha256.csr"),
            include_bytes!("../testdata/requests/rsa1024-sha384.csr"),
            include_bytes!("../testdata/requests/rsa1024-sha512.csr"),
            include_bytes!("../testdata/requests/pss1024-sha256.csr"),
            include_bytes!("../testdata/requests/pss1024-sha384.csr"),
        ] {
            let [signed, changed] = verify(pem);
            assert_eq!(signed, Ok(()), "{}", String::from_utf8_lossy(pem));
            assert!(matches!(changed, Err(RequestSignatureError::Invalid(_))), "{changed:?}");
        }
    }

    #[test]
    fn requests_of_other_algorithms_are_unsupported() {
        for pem in [
            &include_bytes!("../testdata/requests/p256-sha224.csr")[..],
            include_bytes!("../testdata/requests/pss-sha256-salt20.csr"),
        ] {
            assert_eq!(verify(pem), [Err(RequestSignatureError::Unsupported); 2]);
        }
        let pem = include_bytes!("../testdata/requests/rsa1024-md5.csr");
        assert_eq!(verify(pem), [Err(RequestSignatureError::Insecure("MD5-RSA")); 2]);
        let pem = include_bytes!("../testdata/requests/secp256k1-sha256.csr");
        assert_eq!(verify(pem), [Err(RequestSignatureError::Curve); 2]);
    }

    #[test]
    fn a_wrong_signature_is_refused_in_the_words_of_go() {
        for (pem, text) in [
            (
                &include_bytes!("../testdata/requests/p521-sha256.csr")[..],
                "x509: ECDSA verification failure",
            ),
            (
                include_bytes!("../testdata/requests/rsa1024-sha256.csr"),
                "crypto/rsa: verification error",
            ),
        ] {
            let [_, changed] = verify(pem);
            assert_eq!(changed.unwrap_err().to_string(), text);
        }
    }
}
