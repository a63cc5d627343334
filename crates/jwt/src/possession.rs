//! Public keys as certificates have them, and proofs that a private key is known.

use crate::rsa::RsaKey;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ED25519, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521,
    OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::x509::SubjectPublicKeyInfo;

/// Length of an Ed25519 key, in bytes.
const ED25519_BYTES: usize = 32;

/// The type of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyType {
    /// Ed25519.
    Ed25519,
    /// On the curve P-224.
    P224,
    /// On the curve P-256.
    P256,
    /// On the curve P-384.
    P384,
    /// On the curve P-521.
    P521,
    /// RSA.
    Rsa {
        /// Length of the modulus in bits, a multiple of eight.
        bits: usize,
    },
    /// X25519 or DSA, which cannot be certified.
    Other,
}

/// The type of a public key, if Go's `crypto/x509` reads the key; `None`: it refuses it.
pub fn key_type(key: &SubjectPublicKeyInfo<'_>) -> Option<KeyType> {
    let x25519 = x509_parser::der_parser::oid!(1.3.101.110);
    let dsa = x509_parser::der_parser::oid!(1.2.840.10040.4.1);
    let algorithm = &key.algorithm.algorithm;
    let point = &*key.subject_public_key.data;
    if *algorithm == OID_SIG_ED25519 {
        let is_plain = key.algorithm.parameters.is_none() && point.len() == ED25519_BYTES;
        return is_plain.then_some(KeyType::Ed25519);
    }
    if *algorithm == OID_PKCS1_RSAENCRYPTION {
        let rsa = RsaKey::of(key)?;
        return rsa.is_public().then(|| KeyType::Rsa { bits: rsa.bits().div_ceil(8) * 8 });
    }
    if *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        return curve(key);
    }
    (*algorithm == x25519 || *algorithm == dsa).then_some(KeyType::Other)
}

/// The curve of a key, if its point has the right form and is on the curve.
fn curve(key: &SubjectPublicKeyInfo<'_>) -> Option<KeyType> {
    let p224 = x509_parser::der_parser::oid!(1.3.132.0.33);
    let point = &*key.subject_public_key.data;
    let name = key.algorithm.parameters.as_ref()?.as_oid().ok()?;
    let (ty, field_bytes) = if name == OID_EC_P256 {
        (KeyType::P256, 32)
    } else if name == OID_NIST_EC_P384 {
        (KeyType::P384, 48)
    } else if name == OID_NIST_EC_P521 {
        (KeyType::P521, 66)
    } else if name == p224 {
        (KeyType::P224, 28)
    } else {
        return None;
    };
    let is_uncompressed = point.first() == Some(&4) && point.len() == 1 + 2 * field_bytes;
    let is_on_curve = match ty {
        KeyType::P224 => p224::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
        KeyType::P256 => p256::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
        KeyType::P384 => p384::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
        KeyType::P521 => p521::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
        _ => true,
    };
    (is_uncompressed && is_on_curve).then_some(ty)
}

/// Whether a signature of a text is of a key: with SHA-256 by ECDSA on P-256, P-384 and P-521 and
/// by RSASSA-PSS with a salt of any length, or Ed25519. As Kubernetes' agents prove that they have
/// the key for which they request a certificate.
///
/// RSA and P-521 take some milliseconds.
pub fn verify_possession(key: &SubjectPublicKeyInfo<'_>, text: &[u8], signature: &[u8]) -> bool {
    let point = &*key.subject_public_key.data;
    match key_type(key) {
        Some(KeyType::Ed25519) => {
            UnparsedPublicKey::new(&ED25519, point).verify(text, signature).is_ok()
        }
        Some(KeyType::P256) => {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(text, signature).is_ok()
        }
        Some(KeyType::P384) => {
            UnparsedPublicKey::new(&ECDSA_P384_SHA256_ASN1, point).verify(text, signature).is_ok()
        }
        Some(KeyType::P521) => {
            crate::request::p521_verifies(point, &Sha256::digest(text), signature)
        }
        // Go's has any salt that fits.
        Some(KeyType::Rsa { .. }) => {
            RsaKey::of(key).is_some_and(|rsa| rsa.pss_verifies::<Sha256>(text, signature, None))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::FromDer as _;

    const UID: &[u8] = b"1d5ec3b6-9f4e-4a8f-8d44-1f2f8f6c2a11";

    /// Keys and signatures that openssl made.
    #[test]
    fn proofs_of_every_type_verify() {
        for (name, ty, key, proof) in [
            (
                "ed25519",
                KeyType::Ed25519,
                &include_bytes!("../testdata/possession/ed25519.der")[..],
                &include_bytes!("../testdata/possession/ed25519.sig")[..],
            ),
            (
                "p256",
                KeyType::P256,
                include_bytes!("../testdata/possession/p256.der"),
                include_bytes!("../testdata/possession/p256.sig"),
            ),
            (
                "p384",
                KeyType::P384,
                include_bytes!("../testdata/possession/p384.der"),
                include_bytes!("../testdata/possession/p384.sig"),
            ),
            (
                "p521",
                KeyType::P521,
                include_bytes!("../testdata/possession/p521.der"),
                include_bytes!("../testdata/possession/p521.sig"),
            ),
            (
                "rsa3072, salt of the hash's length",
                KeyType::Rsa { bits: 3072 },
                include_bytes!("../testdata/possession/rsa3072.der"),
                include_bytes!("../testdata/possession/rsa3072.sig"),
            ),
            (
                "rsa3072, longest salt",
                KeyType::Rsa { bits: 3072 },
                include_bytes!("../testdata/possession/rsa3072.der"),
                include_bytes!("../testdata/possession/rsa3072-max.sig"),
            ),
        ] {
            let (_, key) = SubjectPublicKeyInfo::from_der(key).unwrap();
            assert_eq!(key_type(&key), Some(ty), "{name}");
            assert!(verify_possession(&key, UID, proof), "{name}");
            assert!(!verify_possession(&key, b"another", proof), "{name}");
            for at in [0, proof.len() / 2, proof.len() - 1] {
                let mut changed = proof.to_vec();
                changed[at] ^= 1;
                assert!(!verify_possession(&key, UID, &changed), "{name}, byte {at}");
            }
            assert!(!verify_possession(&key, UID, &[]), "{name}");
        }
    }

    #[test]
    fn keys_that_go_refuses_have_no_type() {
        for (ty, key) in [
            (KeyType::P224, &include_bytes!("../testdata/possession/p224.der")[..]),
            (KeyType::P256, include_bytes!("../testdata/possession/p256.der")),
            (KeyType::P384, include_bytes!("../testdata/possession/p384.der")),
            (KeyType::P521, include_bytes!("../testdata/possession/p521.der")),
        ] {
            let mut off_curve = key.to_vec();
            let last = off_curve.len() - 1;
            off_curve[last] ^= 1;
            let (_, key) = SubjectPublicKeyInfo::from_der(key).unwrap();
            let (_, off_curve) = SubjectPublicKeyInfo::from_der(&off_curve).unwrap();
            assert_eq!((key_type(&key), key_type(&off_curve)), (Some(ty), None));
        }
        let other = include_bytes!("../testdata/possession/x25519.der");
        let (_, other) = SubjectPublicKeyInfo::from_der(other).unwrap();
        assert_eq!(key_type(&other), Some(KeyType::Other));
        let secp256k1 = include_bytes!("../testdata/possession/secp256k1.der");
        let (_, secp256k1) = SubjectPublicKeyInfo::from_der(secp256k1).unwrap();
        assert_eq!(key_type(&secp256k1), None);
    }
}
