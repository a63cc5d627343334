use super::*;
use crate::key::SigningKey;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{self, RsaKeyPair};
use serde_json::json;

const RSA: &[u8] = include_bytes!("../../testdata/rsa.key");
const P256: &[u8] = include_bytes!("../../testdata/p256.key");
const P384: &[u8] = include_bytes!("../../testdata/p384.key");
const P521: &[u8] = include_bytes!("../../testdata/p521.key");

fn set(keys: &[Value]) -> JwkSet {
    JwkSet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn jwk(pem: &[u8], id: &str) -> Value {
    let mut jwk = SigningKey::from_pem(pem).unwrap().verifying_key().jwk();
    jwk["kid"] = id.into();
    jwk
}

fn token(header: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(header), encode(&json!({"iss": "https://a"})));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn by_rsa(header: &Value, encoding: &'static dyn signature::RsaEncoding) -> String {
    use rustls_pki_types::pem::PemObject as _;
    let der = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_slice(RSA).unwrap();
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    token(header, |signed| {
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(encoding, &SystemRandom::new(), signed, &mut signature).unwrap();
        signature
    })
}

fn by_curve(header: &Value, pem: &[u8]) -> String {
    let key = SigningKey::from_pem(pem).unwrap();
    token(header, |signed| key.sign(signed).unwrap())
}

fn verify(keys: &JwkSet, token: &str) -> Result<(), TokenError> {
    keys.verify(UnverifiedToken::parse(token)?).map(drop)
}

#[test]
fn every_algorithm_is_verified_and_none_is_taken_for_another() {
    let keys = set(&[jwk(RSA, "r"), jwk(P256, "a"), jwk(P384, "b"), jwk(P521, "c")]);
    let rsa: [(&str, &'static dyn signature::RsaEncoding); 6] = [
        ("RS256", &signature::RSA_PKCS1_SHA256),
        ("RS384", &signature::RSA_PKCS1_SHA384),
        ("RS512", &signature::RSA_PKCS1_SHA512),
        ("PS256", &signature::RSA_PSS_SHA256),
        ("PS384", &signature::RSA_PSS_SHA384),
        ("PS512", &signature::RSA_PSS_SHA512),
    ];
    for (algorithm, encoding) in rsa {
        for (named, expected) in [
            (algorithm, Ok(())),
            (if algorithm == "RS256" { "PS256" } else { "RS256" }, Err(TokenError::Signature)),
            ("ES256", Err(TokenError::UnknownKey)),
            ("HS256", Err(TokenError::UnknownKey)),
            ("none", Err(TokenError::UnknownKey)),
        ] {
            let token = by_rsa(&json!({"alg": named, "kid": "r"}), encoding);
            assert_eq!(verify(&keys, &token), expected, "{algorithm} as {named}");
        }
    }
    for (pem, id, algorithm) in [(P256, "a", "ES256"), (P384, "b", "ES384"), (P521, "c", "ES512")] {
        let sign = |header: Value| verify(&keys, &by_curve(&header, pem));
        assert_eq!(sign(json!({"alg": algorithm, "kid": id})), Ok(()));
        // Without an id, each key of the type is tried.
        assert_eq!(sign(json!({"alg": algorithm})), Ok(()));
        assert_eq!(sign(json!({"alg": algorithm, "kid": "r"})), Err(TokenError::UnknownKey));
        assert_eq!(sign(json!({"alg": algorithm, "kid": "x"})), Err(TokenError::UnknownKey));
        let with_extension = json!({"alg": algorithm, "kid": id, "crit": ["b64"]});
        assert_eq!(sign(with_extension), Err(TokenError::Extension));
    }
}

#[test]
fn keys_that_cannot_be_used_are_left_out() {
    let damaged = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
    let keys = set(&[
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}),
        json!({"kty": "oct", "k": "AA"}),
        damaged,
        json!(7),
        jwk(P256, "a"),
    ]);
    assert_eq!(keys.len(), 1);
    let many = json!({"keys": vec![jwk(P256, "a"); JWKS_KEYS_MAX + 1]}).to_string();
    assert!(matches!(JwkSet::parse(many.as_bytes()), Err(JwksError::TooMany)));
    assert!(matches!(JwkSet::parse(&vec![b' '; JWKS_BYTES_MAX + 1]), Err(JwksError::TooLarge)));
    assert!(matches!(JwkSet::parse(b"{}"), Err(JwksError::Syntax(_))));
}

#[test]
fn long_checks_are_known_before() {
    let keys = set(&[jwk(P256, "a"), jwk(P521, "c")]);
    let is_slow = |keys: &JwkSet, header: Value, pem| {
        keys.is_slow(&UnverifiedToken::parse(&by_curve(&header, pem)).unwrap())
    };
    assert!(!is_slow(&keys, json!({"alg": "ES256"}), P256));
    assert!(is_slow(&keys, json!({"alg": "ES512"}), P521));
    assert!(is_slow(&set(&vec![jwk(P256, "a"); 5]), json!({"alg": "ES256"}), P256));
}

proptest! {
    #[test]
    fn no_document_and_no_token_is_a_panic(document in ".{0,200}", token in "[a-zA-Z0-9_.-]{0,120}") {
        let keys = JwkSet::parse(document.as_bytes()).unwrap_or_default();
        prop_assert!(verify(&keys, &token).is_err());
    }
}
