use super::*;
use crate::key_set::{KeyRing, KeySet};
use proptest::prelude::*;

const RSA: &[u8] = include_bytes!("../../testdata/rsa.key");
const RSA_PKCS1: &[u8] = include_bytes!("../../testdata/rsa-pkcs1.key");
const RSA_PUBLIC: &[u8] = include_bytes!("../../testdata/rsa.pub");
const P256: &[u8] = include_bytes!("../../testdata/p256.key");
const P256_SEC1: &[u8] = include_bytes!("../../testdata/p256-sec1.key");
const P256_PUBLIC: &[u8] = include_bytes!("../../testdata/p256.pub");
const P256_CERTIFICATE: &[u8] = include_bytes!("../../testdata/p256.crt");
const P384: &[u8] = include_bytes!("../../testdata/p384.key");
const P384_PUBLIC: &[u8] = include_bytes!("../../testdata/p384.pub");
const P521: &[u8] = include_bytes!("../../testdata/p521.key");
const P521_PUBLIC: &[u8] = include_bytes!("../../testdata/p521.pub");

fn key(pem: &[u8]) -> SigningKey {
    SigningKey::from_pem(pem).unwrap()
}

fn set(pem: &[u8]) -> KeySet {
    KeySet::new(key(pem))
}

fn claims() -> Value {
    json!({"iss": "https://a", "sub": "b", "exp": 7})
}

fn verify(keys: &KeySet, token: &str) -> Result<Value, TokenError> {
    keys.verify(UnverifiedToken::parse(token)?).map(Value::Object)
}

/// A token of any header, signed by `key`.
fn forged(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

#[test]
fn every_kind_of_key_signs_what_its_public_half_verifies() {
    for (private, public, algorithm) in [
        (RSA, RSA_PUBLIC, "RS256"),
        (P256, P256_PUBLIC, "ES256"),
        (P384, P384_PUBLIC, "ES384"),
        (P521, P521_PUBLIC, "ES512"),
    ] {
        let token = set(private).sign(&claims()).unwrap();
        let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!(header["alg"], algorithm);
        let public = VerifyingKey::all_from_pem(public).unwrap();
        assert_eq!(header["kid"], public[0].id());
        assert_eq!(header.as_object().unwrap().len(), 2);
        let other = set(if algorithm == "ES256" { P384 } else { P256 });
        assert_eq!(verify(&other, &token), Err(TokenError::UnknownKey), "{algorithm}");
        let rotated = other.verify_also(public);
        assert_eq!(verify(&rotated, &token), Ok(claims()), "{algorithm}");
    }
}

#[test]
fn key_ids_are_those_of_kubernetes() {
    // Computed with openssl: SHA-256 of the public key in DER.
    for (pem, id) in [
        (RSA_PUBLIC, "cJmb_cphE87J9hNptnlp-mk5xg-n64DGNmF7JUZuTLg"),
        (P256_PUBLIC, "dbpHZxZwAKnj8I3h7JnnZrL751Q2LVE0OVfgYBObsG0"),
        (P384_PUBLIC, "dX05xuLflHW57PFpSsrixWIkhsJF42Gnajv6bAiEzTw"),
    ] {
        assert_eq!(VerifyingKey::all_from_pem(pem).unwrap()[0].id(), id);
    }
}

#[test]
fn keys_are_read_from_every_usual_form() {
    let id = |pem| VerifyingKey::all_from_pem(pem).unwrap()[0].id().to_owned();
    assert_eq!(id(RSA), id(RSA_PUBLIC));
    assert_eq!(id(RSA_PKCS1), id(RSA_PUBLIC));
    assert_eq!(id(P256_SEC1), id(P256_PUBLIC));
    assert_eq!(id(P256_CERTIFICATE), id(P256_PUBLIC));
    assert_eq!(key(P256_SEC1).to_pem().unwrap().as_bytes(), P256);
    let both = [RSA_PUBLIC, P256_PUBLIC].concat();
    assert_eq!(VerifyingKey::all_from_pem(&both).unwrap().len(), 2);
}

#[test]
fn unusable_files_are_refused() {
    let short = include_bytes!("../../testdata/rsa-short.key");
    let text = |pem: &[u8]| SigningKey::from_pem(pem).unwrap_err().to_string();
    assert!(text(short).contains("2048"), "{}", text(short));
    assert_eq!(text(RSA_PUBLIC), "no private key in the file");
    assert_eq!(text(b"hello"), "no private key in the file");
    assert!(text(b"-----BEGIN PRIVATE KEY-----\n?\n").starts_with("not a PEM file"));
    assert!(VerifyingKey::all_from_pem(b"").is_err());
}

#[test]
fn algorithm_of_the_header_must_be_that_of_the_key() {
    let keys = set(P256);
    let id = key(P256).verifying_key().id().to_owned();
    let none = forged(&json!({"alg": "none", "kid": id}), &claims(), |_| Vec::new());
    assert_eq!(verify(&keys, &none), Err(TokenError::UnknownKey));
    // The public key as the secret of an HMAC.
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, P256_PUBLIC);
    let hmac = |text: &[u8]| ring::hmac::sign(&secret, text).as_ref().to_vec();
    for algorithm in ["HS256", "ES256"] {
        let header = json!({"alg": algorithm, "kid": id});
        assert!(verify(&keys, &forged(&header, &claims(), hmac)).is_err(), "{algorithm}");
    }
    // The right key under another name.
    let header = json!({"alg": "RS256", "kid": id});
    let token = forged(&header, &claims(), |text| key(P256).sign(text).unwrap());
    assert_eq!(verify(&keys, &token), Err(TokenError::UnknownKey));
    let header = json!({"alg": "ES256", "kid": id, "crit": ["b64"], "b64": false});
    let token = forged(&header, &claims(), |text| key(P256).sign(text).unwrap());
    assert_eq!(verify(&keys, &token), Err(TokenError::Extension));
}

#[test]
fn token_of_another_key_with_this_key_id_is_refused() {
    let id = key(P256).verifying_key().id().to_owned();
    let other = SigningKey::generate(|bytes| {
        bytes.fill(9);
        Ok(())
    })
    .unwrap();
    let header = json!({"alg": "ES256", "kid": id});
    let token = forged(&header, &claims(), |text| other.sign(text).unwrap());
    assert_eq!(verify(&set(P256), &token), Err(TokenError::Signature));
    // Without a key id, every key of the algorithm is tried.
    let token = forged(&json!({"alg": "ES256"}), &claims(), |text| key(P256).sign(text).unwrap());
    let keys = KeySet::new(other).verify_also([key(P256).verifying_key().clone()]);
    assert_eq!(verify(&keys, &token), Ok(claims()));
}

#[test]
fn ring_makes_one_key_of_its_randomness_and_tokens_repeat() {
    let ring = || {
        KeyRing::new(Box::new(|bytes: &mut [u8]| {
            bytes.fill(3);
            Ok(())
        }))
    };
    let (first, second) = (ring(), ring());
    assert!(!first.is_set());
    let token = first.current().unwrap().sign(&claims()).unwrap();
    assert!(first.is_set());
    assert_eq!(token, second.current().unwrap().sign(&claims()).unwrap());
    first.set(set(RSA));
    assert!(verify(&first.current().unwrap(), &token).is_err());
    let failing = KeyRing::new(Box::new(|bytes: &mut [u8]| {
        bytes.fill(0);
        Ok(())
    }));
    assert!(failing.current().is_err());
}

#[test]
fn key_sets_are_published_without_private_members() {
    let keys = set(RSA).verify_also([RSA, P256, P384].map(|pem| key(pem).verifying_key().clone()));
    let jwks = keys.jwks();
    let members =
        |n: usize| jwks["keys"][n].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 3);
    assert_eq!(members(0), ["alg", "e", "kid", "kty", "n", "use"]);
    assert_eq!(jwks["keys"][0]["e"], "AQAB");
    assert_eq!(members(1), ["alg", "crv", "kid", "kty", "use", "x", "y"]);
    let names: Vec<_> = keys.algorithms().iter().map(|algorithm| algorithm.as_str()).collect();
    assert_eq!(names, ["ES256", "ES384", "RS256"]);
}

#[test]
fn private_keys_are_not_printed() {
    let id = key(P256).verifying_key().id().to_owned();
    assert_eq!(format!("{:?}", key(P256)), format!("SigningKey({id:?})"));
}

proptest! {
    #[test]
    fn a_changed_token_is_refused(at in any::<prop::sample::Index>(), with in "[A-Za-z0-9_.-]") {
        let keys = set(P256);
        let token = keys.sign(&claims()).unwrap();
        let at = at.index(token.len());
        let changed = format!("{}{with}{}", &token[..at], &token[at + 1..]);
        prop_assume!(changed != token);
        prop_assert!(verify(&keys, &changed).is_err());
    }

    #[test]
    fn any_text_is_refused(text in ".{0,200}") {
        prop_assert!(verify(&set(P256), &text).is_err());
    }
}
