//! Encryption at rest: configuration files and stored values.
use bytes::Bytes;
use futures::FutureExt;
use setpoint_encryption::{ConfigError, EncryptedStore, EncryptionConfig, NonceSource, Prefix};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_store::{
    At, Committed, MemoryStore, Op, RangeRequest, Store, StoreError, Txn, is_sealed,
};
use std::sync::Arc;

const KEY: &str = "/registry/secrets/default/a";
/// All providers, with a key that the corpus' values were written with.
const CONFIG: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODw==}]}
  - secretbox: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - aescbc: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODw==}]}
  - kms: {apiVersion: v2, name: k, endpoint: 'unix:///nowhere'}
  - identity: {}
";

/// A configuration is accepted, with the same result each time, or refused with bounded errors. Any
/// stored value is read or refused, and an encrypted value is never returned undecrypted. Every
/// written value is read back.
pub fn check(input: &[u8]) {
    check_config(input);
    check_prefix(input);
    check_stored(&Bytes::copy_from_slice(input));
}

fn check_config(input: &[u8]) {
    match EncryptionConfig::parse(input) {
        Ok(config) => {
            let again = EncryptionConfig::parse(input).unwrap();
            assert_eq!((config.hash(), config.summary()), (again.hash(), again.summary()));
            assert!(!config.summary().is_empty());
        }
        Err(ConfigError::Faults(faults)) => {
            assert!((1..=ConfigError::FAULTS_MAX).contains(&faults.len()));
        }
        Err(_) => {}
    }
}

fn check_prefix(input: &[u8]) {
    let Some(Prefix { kind, key }) = Prefix::parse(input) else { return };
    let head = ["v1", "v2"].map(|version| format!("k8s:enc:{kind}:{version}:{key}:"));
    assert!(head.iter().any(|head| input.starts_with(head.as_bytes())));
    assert!(is_sealed(input) && !kind.contains(':') && !key.contains(':'));
}

fn check_stored(input: &Bytes) {
    let below = MemoryStore::default();
    let mut n = 0_u64;
    let nonces = NonceSource::new(move |bytes| {
        n += 1;
        bytes.fill(0);
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        Ok(())
    });
    let config = EncryptionConfig::parse(CONFIG.as_bytes()).unwrap();
    let clock = Clock::starting_at(Timestamp::from_secs(1));
    let store = EncryptedStore::new(Arc::new(below.clone()), config, nonces, clock);
    if !put(&below, input) {
        return;
    }
    let ranged = store.range(RangeRequest::prefix("/registry/")).now_or_never().unwrap().unwrap();
    let ranged = &ranged.value.entries[0].value;
    match store.get(KEY.as_bytes(), At::Latest).now_or_never().unwrap() {
        Ok(found) => {
            let value = found.value.unwrap().value;
            assert_eq!(&value, ranged);
            assert!(is_sealed(input) || value == input);
        }
        Err(StoreError::Unreadable { key, .. }) => {
            assert_eq!(key, KEY);
            assert!(is_sealed(input) && ranged == input);
        }
        Err(other) => panic!("{other}"),
    }
    if put(&store, input) {
        let found = store.get(KEY.as_bytes(), At::Latest).now_or_never().unwrap().unwrap();
        assert_eq!(&found.value.unwrap().value, input);
        let stored = below.get(KEY.as_bytes(), At::Latest).now_or_never().unwrap().unwrap();
        let stored = stored.value.unwrap().value;
        assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:k:"));
        // Nonce and tag, plus the plaintext.
        assert_eq!(stored.len(), 20 + 12 + input.len() + 16);
    }
}

/// Whether the value was stored.
fn put(store: &dyn Store, value: &Bytes) -> bool {
    let ops = vec![Op::Put(KEY.into(), value.clone())];
    match store.commit(Txn { ops, ..Txn::default() }).now_or_never().unwrap() {
        Ok(Committed::Done(_)) => true,
        Err(StoreError::TooLarge { .. }) => false,
        other => panic!("{other:?}"),
    }
}
