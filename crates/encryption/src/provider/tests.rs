use super::*;
use crate::metrics::EncryptionMetrics;
use rand::SeedableRng;
use setpoint_object::time::{Clock, Timestamp};

fn key(kind: Kind, name: &str, byte: u8) -> Key {
    Key::new(kind, name, &[byte; 32]).unwrap()
}
fn keys(kind: Kind, keys: Vec<Key>) -> Arc<Provider> {
    Arc::new(Provider::Keys(kind, keys))
}
fn chain(providers: impl IntoIterator<Item = Arc<Provider>>) -> Chain {
    Chain { providers: providers.into_iter().collect() }
}
fn identity() -> Arc<Provider> {
    Arc::new(Provider::Identity)
}
fn gcm(names: &[(&str, u8)]) -> Arc<Provider> {
    keys(Kind::AesGcm, names.iter().map(|(name, byte)| key(Kind::AesGcm, name, *byte)).collect())
}
fn nonces() -> NonceSource {
    NonceSource::from_rng(rand::rngs::StdRng::seed_from_u64(1))
}
fn written(by: &Chain) -> Bytes {
    by.writer().unwrap().seal(b"value", b"place", &nonces()).unwrap()
}
fn read(by: &Chain, stored: &Bytes) -> Result<(Bytes, bool), String> {
    let metrics = EncryptionMetrics::default();
    let mut counts = metrics.of_resource("secrets");
    let clock = Clock::starting_at(Timestamp::from_secs(1));
    let environment = Environment { nonces: nonces(), clock, metrics };
    let seeds = Seeds::default();
    let opened = by.open(stored, b"place", &seeds, &environment, &mut counts);
    let opened = opened.map_err(|error| error.to_string())?;
    Ok((opened.value, opened.is_stale))
}

#[test]
fn first_key_of_the_first_provider_writes_and_other_values_are_stale() {
    let old = chain([gcm(&[("a", 1)])]);
    let stored = written(&old);
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:a:"));
    let fresh = Ok(("value".into(), false));
    let stale = Ok(("value".into(), true));
    assert_eq!(read(&old, &stored), fresh);
    assert_eq!(read(&chain([gcm(&[("b", 2), ("a", 1)])]), &stored), stale);
    assert_eq!(read(&chain([gcm(&[("b", 2)]), gcm(&[("a", 1)])]), &stored), stale);
    assert_eq!(read(&chain([identity(), gcm(&[("a", 1)])]), &stored), stale);
    assert_eq!(read(&chain([gcm(&[("a", 1)]), identity()]), &stored), fresh);
    let plain = Bytes::from_static(b"value");
    assert_eq!(read(&chain([identity(), gcm(&[("a", 1)])]), &plain), fresh);
    assert_eq!(read(&chain([gcm(&[("a", 1)]), identity()]), &plain), stale);
}

#[test]
fn unreadable_values_have_kubernetes_error_texts() {
    let stored = written(&chain([gcm(&[("a", 1)])]));
    let plain = Bytes::from_static(b"value");
    for (by, stored, text) in [
        (chain([identity()]), &stored, "no matching prefix found"),
        (chain([gcm(&[("a", 1)])]), &plain, "no matching prefix found"),
        (
            chain([gcm(&[("b", 1)]), identity()]),
            &stored,
            "no matching key was found for the provided AES transformer",
        ),
        (chain([gcm(&[("a", 2)])]), &stored, "cipher: message authentication failed"),
        (
            chain([gcm(&[("b", 2)]), gcm(&[("a", 2)])]),
            &stored,
            "[no matching key was found for the provided AES transformer, cipher: message authentication failed]",
        ),
        (
            chain([keys(Kind::AesCbc, vec![key(Kind::AesCbc, "a", 1)])]),
            &stored,
            "no matching prefix found",
        ),
    ] {
        assert_eq!(read(&by, stored), Err(text.to_owned()), "{by:?}");
    }
}

/// Names may have a common beginning, and two keys may have one name: the key that decrypts the
/// value is right.
#[test]
fn every_matching_key_is_tried() {
    let stored = written(&chain([gcm(&[("a:b", 1)])]));
    assert_eq!(read(&chain([gcm(&[("a", 2), ("a:b", 1)])]), &stored), Ok(("value".into(), true)));
    let stored = written(&chain([gcm(&[("a", 1)])]));
    assert_eq!(
        read(&chain([gcm(&[("a", 2)]), gcm(&[("a", 1)])]), &stored),
        Ok(("value".into(), true))
    );
    assert_eq!(read(&chain([gcm(&[("a", 2), ("a", 1)])]), &stored), Ok(("value".into(), true)));
}

#[test]
fn prefixes_are_parsed() {
    for (stored, prefix) in [
        ("k8s:enc:aesgcm:v1:key1:xyz", Some(("aesgcm", "key1"))),
        ("k8s:enc:kms:v2:plugin:xyz", Some(("kms", "plugin"))),
        ("k8s:enc:aesgcm:v1::", Some(("aesgcm", ""))),
        ("k8s:enc:aesgcm:v2:key1:xyz", None),
        ("k8s:enc:aesgcm:v1:key1", None),
        ("k8s:enc:", None),
        ("{}", None),
        ("", None),
    ] {
        let found = Prefix::parse(stored.as_bytes()).map(|prefix| (prefix.kind, prefix.key));
        assert_eq!(found, prefix, "{stored}");
    }
}

#[test]
fn debug_output_has_no_secrets() {
    let key = Key::new(Kind::Secretbox, "name", b"0123456789abcdef0123456789abcdef").unwrap();
    assert_eq!(format!("{key:?}"), "secretbox:name");
    assert!(!format!("{:?}", keys(Kind::Secretbox, vec![key])).contains("0123"));
}
