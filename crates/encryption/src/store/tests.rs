use super::*;
use crate::config::ConfigError;
use rand::SeedableRng;
use rand::rngs::StdRng;
use setpoint_object::time::Timestamp;
use std::time::Duration;

const GCM: &str = "aesgcm: {keys: [{name: one, secret: AAECAwQFBgcICQoLDA0ODw==}]}";
const TWO: &str = "aesgcm: {keys: [{name: two, secret: dGhpcyBpcyBwYXNzd29yZA==}]}";
const FORGED: &str = "aesgcm: {keys: [{name: one, secret: dGhpcyBpcyBwYXNzd29yZA==}]}";
const BOX: &str =
    "secretbox: {keys: [{name: box, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}";
const CBC: &str = "aescbc: {keys: [{name: cbc, secret: AAECAwQFBgcICQoLDA0ODw==}]}";
const PLAIN: &str = "identity: {}";

/// Configures Secrets and `widgets.example.com` with these providers.
fn config(providers: &[&str]) -> EncryptionConfig {
    let list: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, widgets.example.com]\n  providers:\n{list}"
    );
    EncryptionConfig::parse(text.as_bytes()).unwrap()
}
fn nonces() -> NonceSource {
    NonceSource::from_rng(StdRng::seed_from_u64(7))
}
fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_secs(1))
}
fn over(inner: &MemoryStore, providers: &[&str]) -> EncryptedStore {
    EncryptedStore::new(Arc::new(inner.clone()), config(providers), nonces(), clock())
}
async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let ops = vec![Op::Put(key.to_owned().into(), value.to_owned().into())];
    match store.commit(Txn { ops, ..Txn::default() }).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Refused { .. } => unreachable!("nothing is compared"),
    }
}
async fn get(store: &dyn Store, key: &str) -> Result<String, String> {
    match store.get(key.as_bytes(), At::Latest).await {
        Ok(found) => Ok(text(&found.value.unwrap().value)),
        Err(error) => Err(error.to_string()),
    }
}
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

const SECRET: &str = "/registry/secrets/default/a";

#[tokio::test(start_paused = true)]
async fn conforms_with_every_cipher() {
    for provider in [GCM, BOX, CBC, PLAIN] {
        conformance::check(async || {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
            EncryptedStore::of_secrets(inner, config(&[provider]), nonces(), clock())
        })
        .await;
    }
}

#[tokio::test]
async fn conforms_over_the_disk_engine() {
    let folder = tempfile::tempdir().unwrap();
    let n = std::cell::Cell::new(0);
    conformance::check(async || {
        n.set(n.get() + 1);
        let folder = folder.path().join(n.get().to_string());
        let inner = Arc::new(DiskStore::open(folder, DiskOptions::default()).unwrap());
        EncryptedStore::of_secrets(inner, config(&[GCM]), nonces(), clock())
    })
    .await;
}

#[tokio::test]
async fn configured_resources_are_stored_encrypted_and_others_as_they_are() {
    let inner = MemoryStore::default();
    let store = over(&inner, &[GCM, PLAIN]);
    for (key, is_chosen) in [
        (SECRET, true),
        ("/registry/example.com/widgets/default/a", true),
        ("/registry/example.com/gadgets/default/a", false),
        ("/registry/configmaps/default/a", false),
        ("/registry/ranges/serviceips", false),
        ("compact_rev_key", false),
    ] {
        put(&store, key, "hunter2").await;
        let stored = get(&inner, key).await.unwrap();
        assert_eq!(stored.starts_with("k8s:enc:aesgcm:v1:one:"), is_chosen, "{key}");
        assert_eq!(stored.contains("hunter2"), !is_chosen, "{key}");
        assert_eq!(get(&store, key).await.unwrap(), "hunter2");
    }
    assert_eq!(store.writes(), [("aesgcm:one".to_owned(), 2)]);
}

/// A value that was moved to another key, truncated or changed is refused.
#[tokio::test]
async fn tampered_values_are_refused() {
    let inner = MemoryStore::default();
    let store = over(&inner, &[GCM]);
    put(&store, SECRET, "hunter2").await;
    let stored = inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    let mut flipped = stored.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    for value in [stored.clone(), stored.slice(..stored.len() - 1), flipped.into()] {
        let key = if value == stored { "/registry/secrets/default/b" } else { SECRET };
        let ops = vec![Op::Put(key.into(), value)];
        inner.commit(Txn { ops, ..Txn::default() }).await.unwrap();
        assert_eq!(
            get(&store, key).await.unwrap_err(),
            format!("unable to transform key {key:?}: cipher: message authentication failed")
        );
    }
    // Without identity, planted unencrypted values are refused.
    put(&inner, SECRET, "planted").await;
    let refused = get(&store, SECRET).await.unwrap_err();
    assert_eq!(refused, format!("unable to transform key {SECRET:?}: no matching prefix found"));
    let range = store.range(RangeRequest::prefix("/registry/")).await.unwrap().value;
    assert!(range.entries.iter().all(|kv| is_sealed(&kv.value)), "{range:?}");
}

/// A store whose keys have other names below.
#[derive(Debug)]
struct Renamed {
    inner: MemoryStore,
}

impl Store for Renamed {
    delegate!(inner: revision, get, range, changes, commit, compact);

    fn stored_key<'a>(&self, key: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        text(key).replacen("/registry/", "/other/", 1).into_bytes().into()
    }
}

#[tokio::test]
async fn a_value_is_bound_to_the_name_that_its_key_has_in_the_engine() {
    let inner = MemoryStore::default();
    let store = |inner: Arc<dyn Store>| {
        EncryptedStore::of_secrets(inner, config(&[GCM]), nonces(), clock())
    };
    let renamed = store(Arc::new(Renamed { inner: inner.clone() }));
    put(&renamed, SECRET, "v").await;
    let stored = inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    // A server whose keys have those names reads it.
    let (other, name) = (MemoryStore::default(), "/other/secrets/default/a");
    let ops = vec![Op::Put(name.into(), stored)];
    other.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    assert_eq!(get(&store(Arc::new(other)), name).await, Ok("v".to_owned()));
    assert_eq!(get(&renamed, SECRET).await, Ok("v".to_owned()));
    assert!(!renamed.rewrite_due(SECRET.as_bytes()).await.unwrap());
    // One that is bound to the key is read, too, and due to be written again.
    put(&store(Arc::new(inner.clone())), SECRET, "w").await;
    assert_eq!(get(&renamed, SECRET).await, Ok("w".to_owned()));
    assert!(renamed.rewrite_due(SECRET.as_bytes()).await.unwrap());
}

#[tokio::test]
async fn a_key_is_rotated_step_by_step() {
    let inner = MemoryStore::default();
    let old = over(&inner, &[GCM, PLAIN]);
    put(&old, SECRET, "hunter2").await;
    let due = async |store: &EncryptedStore| store.rewrite_due(SECRET.as_bytes()).await.unwrap();
    assert!(!due(&old).await);
    // The new key as the second: it reads what a server one step ahead writes.
    let second = over(&inner, &[GCM, TWO, PLAIN]);
    let first = over(&inner, &[TWO, GCM, PLAIN]);
    assert!(!due(&second).await);
    assert!(due(&first).await);
    put(&first, SECRET, "hunter2").await;
    assert_eq!(get(&second, SECRET).await.unwrap(), "hunter2");
    assert!(!due(&first).await);
    assert!(due(&second).await, "until the next step");
    // The old key is removed.
    let done = over(&inner, &[TWO]);
    assert_eq!(get(&done, SECRET).await.unwrap(), "hunter2");
    assert!(get(&old, SECRET).await.is_err());
    assert!(!done.rewrite_due(b"/registry/secrets/default/none").await.unwrap());
    assert!(!done.rewrite_due(b"/registry/configmaps/default/a").await.unwrap());
}

/// From each provider to every other.
#[tokio::test]
async fn every_provider_is_migrated_to_every_other() {
    let forms = [PLAIN, GCM, BOX, CBC, TWO];
    for from in forms {
        for to in forms.into_iter().filter(|to| *to != from) {
            let inner = MemoryStore::default();
            put(&over(&inner, &[from]), SECRET, "hunter2").await;
            let store = over(&inner, &[to, from]);
            assert_eq!(get(&store, SECRET).await.unwrap(), "hunter2");
            assert!(store.rewrite_due(SECRET.as_bytes()).await.unwrap(), "{from} to {to}");
            put(&store, SECRET, "hunter2").await;
            assert_eq!(get(&over(&inner, &[to]), SECRET).await.unwrap(), "hunter2");
        }
    }
}

#[tokio::test]
async fn a_lost_key_affects_its_own_values_only() {
    let inner = MemoryStore::default();
    let right = over(&inner, &[GCM]);
    let from = put(&right, SECRET, "hunter2").await;
    put(&right, "/registry/configmaps/default/a", "plain").await;
    for (providers, reason) in [
        (&[FORGED] as &[_], "cipher: message authentication failed"),
        (&[TWO], "no matching key was found for the provided AES transformer"),
        (&[PLAIN, BOX], "no matching prefix found"),
    ] {
        let wrong = over(&inner, providers);
        let text = format!("unable to transform key {SECRET:?}: {reason}");
        assert_eq!(get(&wrong, SECRET).await.unwrap_err(), text);
        assert_eq!(wrong.rewrite_due(SECRET.as_bytes()).await.unwrap_err().to_string(), text);
        let compares = vec![Compare::Absent(SECRET.into())];
        let ops = vec![Op::Put(SECRET.into(), "overwritten".into())];
        let refused = wrong.commit(Txn { compares, ops, ttl: None }).await.unwrap_err();
        assert_eq!(refused.to_string(), text);
        assert_eq!(get(&wrong, "/registry/configmaps/default/a").await.unwrap(), "plain");
        // A feed and a range over everything continue.
        let range = wrong.range(RangeRequest::prefix("/registry/")).await.unwrap().value;
        let sealed: Vec<_> = range.entries.iter().map(|kv| is_sealed(&kv.value)).collect();
        assert_eq!(sealed, [false, true]);
        let mut feed = wrong.changes("/registry/".into(), Revision(from.0 - 1)).await.unwrap();
        let mut changes = Vec::new();
        while changes.len() < 2 {
            changes.extend(feed.next().await.unwrap().changes);
        }
        assert!(is_sealed(changes[0].value.as_ref().unwrap()));
        assert_eq!(changes[1].value.as_deref(), Some(&b"plain"[..]));
    }
    assert_eq!(get(&right, SECRET).await.unwrap(), "hunter2", "and nothing was lost");
}

#[tokio::test]
async fn encrypted_values_of_unconfigured_resources_are_not_read() {
    let inner = MemoryStore::default();
    let key = "/registry/configmaps/default/a";
    put(&inner, key, "k8s:enc:aesgcm:v1:one:xyz").await;
    assert_eq!(
        get(&over(&inner, &[GCM]), key).await.unwrap_err(),
        format!(
            "unable to transform key {key:?}: identity transformer tried to read encrypted data"
        )
    );
}

#[tokio::test]
async fn a_feed_delivers_the_value_and_the_previous_one() {
    let inner = MemoryStore::default();
    let store = over(&inner, &[GCM]);
    let mut feed = store.changes("/registry/".into(), Revision(0)).await;
    if feed.is_err() {
        feed = store.changes("/registry/".into(), store.revision().await.unwrap()).await;
    }
    let mut feed = feed.unwrap();
    put(&store, SECRET, "1").await;
    put(&store, SECRET, "2").await;
    let mut changes = Vec::new();
    while changes.len() < 2 {
        changes.extend(feed.next().await.unwrap().changes);
    }
    assert_eq!(changes[1].value.as_deref(), Some(&b"2"[..]));
    assert_eq!(changes[1].previous.as_ref().map(|kv| &*kv.value), Some(&b"1"[..]));
}

#[tokio::test]
async fn the_encrypted_size_counts_for_the_limit() {
    let store = over(&MemoryStore::default(), &[GCM]);
    let fits = |n| Txn { ops: vec![Op::Put(SECRET.into(), vec![7; n].into())], ..Txn::default() };
    let plain = over(&MemoryStore::default(), &[PLAIN]);
    // A value that just fits unencrypted does not fit encrypted.
    let mut n = VALUE_BYTES_MAX;
    while plain.commit(fits(n)).await.is_err() {
        n -= 1;
    }
    assert!(matches!(store.commit(fits(n)).await, Err(StoreError::TooLarge { .. })));
    store.commit(fits(n - 200)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_applied_and_an_invalid_one_is_not() {
    use crate::reload::{Look, RELOAD_PERIOD, Reloader};
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |providers: &[&str]| {
        let list: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n{list}"
        );
        std::fs::write(file.path(), text).unwrap();
    };
    write(&[GCM]);
    let inner = MemoryStore::default();
    let from = put(&over(&inner, &[TWO]), SECRET, "hunter2").await;
    let config = EncryptionConfig::load(file.path()).unwrap();
    let store = EncryptedStore::new(Arc::new(inner.clone()), config, nonces(), clock());
    let mut reloader = Reloader::new(file.path(), store.clone());
    assert!(matches!(reloader.look().await, Look::Same));
    let mut feed = store.changes("/registry/".into(), Revision(from.0 - 1)).await.unwrap();
    let batch = feed.next().await.unwrap();
    assert!(batch.changes.iter().any(|change| change.value.as_deref().is_some_and(is_sealed)));

    std::fs::write(file.path(), "resources: [").unwrap();
    assert!(matches!(reloader.look().await, Look::Refused(ConfigError::Syntax { .. })));
    assert!(matches!(reloader.look().await, Look::StillRefused));
    std::fs::remove_file(file.path()).unwrap();
    assert!(matches!(reloader.look().await, Look::Refused(ConfigError::Read { .. })));
    assert!(matches!(reloader.look().await, Look::StillRefused));
    put(&store, "/registry/secrets/default/b", "goes on").await;

    // The reload task applies the valid file at its next check; then all values can be read again.
    write(&[GCM, TWO]);
    let stop = tokio_util::sync::CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let reports = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let reported = reports.clone();
    let reloader = reloader.report(move |hash| reported.lock().push(hash.copied()));
    tasks.spawn(reloader.run(stop.clone()));
    tokio::time::sleep(RELOAD_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(get(&store, SECRET).await.unwrap(), "hunter2");
    assert_eq!(*reports.lock(), [Some(*store.config().hash())]);
    let ended = loop {
        if let Err(error) = feed.next().await {
            break error;
        }
    };
    assert!(matches!(ended, StoreError::Unavailable(_)), "{ended}");
    let mut feed = store.changes("/registry/".into(), Revision(from.0 - 1)).await.unwrap();
    let changes = feed.next().await.unwrap().changes;
    assert_eq!(changes[0].value.as_deref(), Some(&b"hunter2"[..]));
    // A reload with all values readable ends no feed.
    store.set_config(self::config(&[TWO, GCM]));
    put(&store, SECRET, "hunter3").await;
    while feed.next().await.unwrap().revision < store.revision().await.unwrap() {}
    // A file that stays invalid is reported once.
    write(&["rot13: {}"]);
    tokio::time::sleep(2 * RELOAD_PERIOD + Duration::from_secs(1)).await;
    assert_eq!(reports.lock()[1..], [None]);
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

/// The end of a feed, which must come without a change.
async fn ended(feed: &mut dyn ChangeFeed) -> StoreError {
    let next = tokio::time::timeout(Duration::from_secs(1), feed.next()).await;
    next.expect("the feed ends").unwrap_err()
}

/// A watch cache starts with the state of some revisions ago. It kept the values that could not be
/// decrypted after a reload, because only those of the present were recorded.
#[tokio::test(start_paused = true)]
async fn readers_of_a_past_range_read_again_after_a_reload() {
    let inner = MemoryStore::default();
    let from = put(&over(&inner, &[TWO]), SECRET, "hunter2").await;
    put(&inner, "/registry/configmaps/default/a", "later").await;
    let store = over(&inner, &[GCM]);
    let past = async || {
        let request = RangeRequest { at: At::Exactly(from), ..RangeRequest::prefix("/registry/") };
        store.range(request).await.unwrap().value.entries.remove(0).value
    };
    let mut feed = store.changes("/registry/".into(), from).await.unwrap();
    assert!(is_sealed(&past().await));
    assert_eq!(feed.next().await.unwrap().changes.len(), 1);
    store.set_config(config(&[GCM, TWO]));
    assert!(matches!(ended(&mut *feed).await, StoreError::Unavailable(_)));
    assert_eq!(past().await, "hunter2");
}

/// A reload while a value is being decrypted with the configuration before.
#[tokio::test(start_paused = true)]
async fn a_value_that_is_given_sealed_after_a_reload_is_read_again_at_once() {
    let inner = MemoryStore::default();
    let from = put(&over(&inner, &[TWO]), SECRET, "hunter2").await;
    let store = over(&inner, &[GCM]);
    let mut feed = store.changes("/registry/".into(), from).await.unwrap();
    let stored = inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    let mut view = store.shared.view();
    store.set_config(config(&[GCM, TWO]));
    assert!(is_sealed(&view.open_many(&stored.key, stored.value, false)));
    assert!(matches!(ended(&mut *feed).await, StoreError::Unavailable(_)));
}
