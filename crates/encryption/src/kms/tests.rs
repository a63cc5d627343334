use super::envelope::hashed;
use super::plugin::ANSWER_BYTES_MAX;
use super::proto::EncryptedObject;
use super::testing::{Answer, Behavior, KmsPlugin, Method};
use super::*;
use crate::cipher::{Cipher, Kind};
use crate::config::EncryptionConfig;
use crate::nonce::NonceSource;
use crate::reload::{Look, Reloader};
use crate::store::EncryptedStore;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::join_all;
use prost::Message as _;
use rand::SeedableRng;
use rand::rngs::StdRng;
use setpoint_grpc::frame;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_store::*;
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "/registry/secrets/default/a";
const NOT_READY: &str = "got unexpected nil transformer";

/// Begins at 2001-09-09T01:46:40Z.
fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_secs(1_000_000_000))
}

/// A plugin, and stores over the same data that use it.
struct Place {
    folder: tempfile::TempDir,
    plugin: KmsPlugin,
    inner: MemoryStore,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plugin = KmsPlugin::bind(&folder.path().join("socket"), "key-1").unwrap();
        Self { folder, plugin, inner: MemoryStore::default() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn text(&self, more: &str) -> String {
        let socket = self.socket();
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}'}}\n{more}",
            socket.display()
        )
    }

    /// A server: its seeds are those of this number.
    fn store(&self, server: u64) -> EncryptedStore {
        let config = EncryptionConfig::parse(self.text("").as_bytes()).unwrap();
        let nonces = NonceSource::from_rng(StdRng::seed_from_u64(server));
        EncryptedStore::new(Arc::new(self.inner.clone()), config, nonces, clock())
    }

    /// The same, with a seed.
    async fn ready(&self, server: u64) -> EncryptedStore {
        let store = self.store(server);
        store.check_plugins().await.unwrap();
        store
    }

    fn calls(&self) -> [usize; 3] {
        [Method::Status, Method::Encrypt, Method::Decrypt].map(|method| self.plugin.calls(method))
    }
}

async fn try_put(store: &dyn Store, key: &str, value: &str) -> Result<(), StoreError> {
    let ops = vec![Op::Put(key.to_owned().into(), value.to_owned().into())];
    store.commit(Txn { ops, ..Txn::default() }).await.map(|_| ())
}

async fn put(store: &dyn Store, key: &str, value: &str) {
    try_put(store, key, value).await.unwrap();
}

async fn get(store: &dyn Store, key: &str) -> Result<String, String> {
    match store.get(key.as_bytes(), At::Latest).await {
        Ok(found) => Ok(String::from_utf8_lossy(&found.value.unwrap().value).into_owned()),
        Err(StoreError::Unreadable { reason, .. }) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

/// How many values of a range are sealed, of how many.
async fn sealed(store: &dyn Store) -> (usize, usize) {
    let range = store.range(RangeRequest::prefix("/registry/")).await.unwrap().value;
    (range.entries.iter().filter(|kv| is_sealed(&kv.value)).count(), range.entries.len())
}

fn stored(value: &[u8]) -> EncryptedObject {
    EncryptedObject::decode(value.strip_prefix(b"k8s:enc:kms:v2:test:").unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn store_with_a_plugin_conforms() {
    let place = Place::new();
    conformance::check(async || {
        let config = EncryptionConfig::parse(place.text("").as_bytes()).unwrap();
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let nonces = NonceSource::from_rng(StdRng::seed_from_u64(1));
        let store = EncryptedStore::of_secrets(inner, config, nonces, clock());
        store.check_plugins().await.unwrap();
        // The suite lets days pass at once.
        let mut tasks = JoinSet::new();
        tasks.spawn(store.clone().poll(CancellationToken::new()));
        tasks.detach_all();
        store
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn values_have_the_form_of_kubernetes() {
    let place = Place::new();
    let store = place.ready(1).await;
    put(&store, SECRET, "hunter2").await;
    let raw = place.inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    let object = stored(&raw);
    assert_eq!((&*object.key_id, object.encrypted_dek_source_type), ("key-1", 1));
    assert_eq!(object.encrypted_dek_source.len(), 32);
    assert_eq!(object.annotations["note.test.example"], b"1");
    // The first block of HKDF's expansion (RFC 5869, section 2.3), written out.
    let pad = hashed("key-1").into_bytes();
    let seed: Vec<u8> = object.encrypted_dek_source.iter().zip(&pad).map(|(a, b)| a ^ b).collect();
    let (info, data) = object.encrypted_data.split_at(32);
    let key = hmac(&seed, &[info, &[1]].concat());
    let opened = Cipher::new(Kind::AesGcm, &key).unwrap().open(data, SECRET.as_bytes());
    assert_eq!(opened.unwrap(), b"hunter2");
}

/// What a kube-apiserver 1.36 has stored for a Secret, with a plugin that encrypts as the one here.
const OF_KUBERNETES: [&str; 6] = [
    "azhzOmVuYzprbXM6djI6dGVzdDoKgwKuCnQByJjgzlrDfb1YUseCWbADLvkI3j1ikmnvcIJbV7EVxfi+DaEmnDd4um",
    "itR9zKHzVikELlMAiRoB2Rx286ocdZfLnuP8Eij+e1bJKhC7Cea8piS/Mkixun8xlLg7T/FXUb3711uOHpHruBcH0Y",
    "IkHerNnfKzv8W+F5Ou/R9X/VfzglBqWH74upVeZSvV6hLxSuCCjKiRqm1exuc1UHqWuuZk+iREspnRL1IjvY7j57TB",
    "O6q8XBllrB3TBfkBdCIdicVQYue+kva5wNhdTSmWKY3CR98edb9F7aPCBKu98chtihRFbrVIVU8fxb20WiZmOpnTDQ",
    "31YkZ6tkWHRGe6syEgVrZXktMRogsg/TASgyTw6swX8G8NoTxxe6Eeny3+1aIIWOv3d37yUiFgoRbm90ZS50ZXN0Lm",
    "V4YW1wbGUSATEoAQ==",
];

#[tokio::test(start_paused = true)]
async fn values_of_kube_apiserver_are_read() {
    let place = Place::new();
    let store = place.ready(1).await;
    let value = STANDARD.decode(OF_KUBERNETES.concat()).unwrap();
    let key = "/registry/secrets/default/s";
    let ops = vec![Op::Put(key.into(), value.into())];
    place.inner.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    // A protocol buffer of a Secret.
    let opened = get(&store, key).await.unwrap();
    assert!(opened.starts_with("k8s\0\n\u{c}\n\u{2}v1\u{12}\u{6}Secret"), "{opened:?}");
    assert!(!store.rewrite_due(key.as_bytes()).await.unwrap());
    assert_eq!(place.calls(), [1, 1, 1]);
}

/// HMAC-SHA256 with a key of 32 bytes.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        block
    };
    let inner = Sha256::digest([&pad(0x36)[..], message].concat());
    Sha256::digest([&pad(0x5c)[..], &inner].concat()).to_vec()
}

/// Before 1.28 Kubernetes' API server wrote values whose source is the key itself.
#[tokio::test(start_paused = true)]
async fn values_without_a_seed_are_read_and_are_stale() {
    let place = Place::new();
    let store = place.ready(1).await;
    let nonces = NonceSource::from_rng(StdRng::seed_from_u64(9));
    let key = [7; 32];
    let data = Cipher::new(Kind::AesGcm, &key).unwrap();
    let data = data.seal(&[], b"hunter2", SECRET.as_bytes(), &nonces).unwrap();
    let pad = hashed("key-1").into_bytes();
    let object = EncryptedObject {
        encrypted_data: data.into(),
        key_id: "key-1".to_owned(),
        encrypted_dek_source: key.iter().zip(&pad).map(|(a, b)| a ^ b).collect::<Vec<_>>().into(),
        annotations: [("note.test.example".to_owned(), Vec::new())].into(),
        encrypted_dek_source_type: 0,
    };
    let value = [b"k8s:enc:kms:v2:test:", &*object.encode_to_vec()].concat();
    let ops = vec![Op::Put(SECRET.into(), value.into())];
    place.inner.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    assert_eq!(get(&store, SECRET).await.unwrap(), "hunter2");
    assert!(store.rewrite_due(SECRET.as_bytes()).await.unwrap());
    put(&store, SECRET, "hunter2").await;
    assert!(!store.rewrite_due(SECRET.as_bytes()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn plugin_is_called_once_for_many_values() {
    let place = Place::new();
    let one = place.ready(1).await;
    for n in 0..100 {
        put(&one, &format!("/registry/secrets/default/{n}"), "x").await;
    }
    assert_eq!(sealed(&one).await, (0, 100));
    assert_eq!(place.calls(), [1, 1, 0]);
    // Another server asks for the seed of the first once, also if many ask at the same time.
    let two = place.ready(2).await;
    let gets = (0..100).map(|n| {
        let two = &two;
        async move { get(two, &format!("/registry/secrets/default/{n}")).await.unwrap() }
    });
    join_all(gets).await;
    assert_eq!(sealed(&two).await, (0, 100));
    assert_eq!(place.calls(), [2, 2, 1]);
    // After a day the seed is asked for again.
    sleep(SOURCE_TTL).await;
    assert_eq!(sealed(&two).await, (0, 100));
    assert_eq!(place.calls(), [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn changed_key_id_makes_values_stale() {
    let place = Place::new();
    let store = place.ready(1).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(store.clone().poll(CancellationToken::new()));
    put(&store, SECRET, "hunter2").await;
    place.plugin.change(|behavior| behavior.key_id = "key-2".to_owned());
    assert!(!store.rewrite_due(SECRET.as_bytes()).await.unwrap(), "it is not known yet");
    sleep(2 * POSITIVE_INTERVAL).await;
    assert!(store.rewrite_due(SECRET.as_bytes()).await.unwrap());
    assert_eq!(get(&store, SECRET).await.unwrap(), "hunter2");
    put(&store, SECRET, "hunter2").await;
    assert!(!store.rewrite_due(SECRET.as_bytes()).await.unwrap());
    let raw = place.inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    assert_eq!(stored(&raw).key_id, "key-2");
    assert_eq!(place.plugin.calls(Method::Encrypt), 2);
    assert_eq!(place.plugin.calls(Method::Decrypt), 0, "the server has made both seeds");
}

/// Other servers read on with what they know, and write for three minutes.
#[tokio::test(start_paused = true)]
async fn plugin_that_stops_ends_writes_after_three_minutes() {
    let mut place = Place::new();
    let (one, two) = (place.ready(1).await, place.ready(2).await);
    let mut tasks = JoinSet::new();
    tasks.spawn(one.clone().poll(CancellationToken::new()));
    put(&one, SECRET, "hunter2").await;
    put(&two, "/registry/secrets/default/b", "of another").await;
    place.plugin.stop().await;
    sleep(WRITE_TTL - Duration::from_secs(30)).await;
    put(&one, SECRET, "hunter3").await;
    sleep(Duration::from_secs(60)).await;
    let refused = try_put(&one, SECRET, "hunter4").await.unwrap_err();
    assert!(matches!(refused, StoreError::Unwritable { .. }), "{refused:?}");
    let text = refused.to_string();
    let start = format!(
        "encryptedDEKSource with keyID hash {:?} expired at 2001-09-09T01:49:",
        hashed("key-1")
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains(" (current time is 2001-09-09T01:50:"), "{text}");
    assert_eq!(get(&one, SECRET).await.unwrap(), "hunter3");
    let asked = Instant::now();
    let failed = get(&one, "/registry/secrets/default/b").await.unwrap_err();
    let start = "failed to decrypt DEK, error: rpc error: code = DeadlineExceeded desc = ";
    assert!(failed.starts_with(start), "{failed}");
    assert_eq!(asked.elapsed().as_secs(), 3);
    let unhealthy = one.check_plugins().await.unwrap_err().to_string();
    assert_eq!(
        unhealthy,
        format!(
            "kms-provider-0: failed to perform status section of the healthz check for KMS Provider test, error: rpc error: code = DeadlineExceeded desc = latest balancer error: connection error: desc = \"transport: Error while dialing: dial unix {}: connect: no such file or directory\"",
            place.socket().display()
        )
    );
    place.plugin.start().unwrap();
    sleep(2 * NEGATIVE_INTERVAL).await;
    one.check_plugins().await.unwrap();
    put(&one, SECRET, "hunter5").await;
    assert_eq!(get(&one, "/registry/secrets/default/b").await.unwrap(), "of another");
}

#[tokio::test(start_paused = true)]
async fn plugin_that_starts_later_makes_everything_readable() {
    let mut place = Place::new();
    let before = place.ready(1).await;
    put(&before, SECRET, "hunter2").await;
    put(&before, "/registry/configmaps/default/a", "plain").await;
    place.plugin.stop().await;
    let store = place.store(2);
    let unhealthy = store.check_plugins().await.unwrap_err().to_string();
    assert!(unhealthy.contains("DeadlineExceeded"), "{unhealthy}");
    assert_eq!(try_put(&store, SECRET, "x").await.unwrap_err().to_string(), NOT_READY);
    assert_eq!(get(&store, SECRET).await.unwrap_err(), NOT_READY);
    assert_eq!(get(&store, "/registry/configmaps/default/a").await.unwrap(), "plain");
    let mut feed = store.changes("/registry/".into(), Revision(1)).await.unwrap();
    let changes = feed.next().await.unwrap().changes;
    assert!(changes[0].value.as_deref().is_some_and(is_sealed));
    assert_eq!(sealed(&store).await, (1, 2));
    let mut tasks = JoinSet::new();
    tasks.spawn(store.clone().poll(CancellationToken::new()));
    sleep(Duration::from_secs(60)).await;
    place.plugin.start().unwrap();
    let ended = loop {
        if let Err(error) = feed.next().await {
            break error;
        }
    };
    assert!(matches!(ended, StoreError::Unavailable(_)), "{ended}");
    assert_eq!(sealed(&store).await, (0, 2));
    let mut feed = store.changes("/registry/".into(), Revision(1)).await.unwrap();
    let changes = feed.next().await.unwrap().changes;
    assert_eq!(changes[0].value.as_deref(), Some(&b"hunter2"[..]));
    // Nothing is wanted any more: no feed ends without a reason.
    assert!(timeout(Duration::from_secs(3600), feed.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn plugin_that_does_not_answer_is_waited_for_once() {
    let place = Place::new();
    for server in 1..=20 {
        let store = place.ready(server).await;
        put(&store, &format!("/registry/secrets/default/{server}"), "x").await;
    }
    let store = place.ready(99).await;
    let from = store.revision().await.unwrap().0 - 20;
    place.plugin.answer(Method::Decrypt, Answer::Never);
    // A range over twenty seeds.
    let start = Instant::now();
    assert_eq!(sealed(&store).await, (20, 20));
    assert_eq!(start.elapsed().as_secs(), 3);
    // A feed, after which other changes do not wait.
    let start = Instant::now();
    let mut feed = store.changes("/registry/".into(), Revision(from)).await.unwrap();
    let mut n = 0;
    while n < 20 {
        n += feed.next().await.unwrap().changes.len();
    }
    assert!(start.elapsed() < 2 * FEED_WAIT_MAX, "{:?}", start.elapsed());
    put(&store, "/registry/configmaps/default/a", "plain").await;
    assert_eq!(feed.next().await.unwrap().changes.len(), 1);
    // Requests wait for their own values only.
    assert_eq!(get(&store, "/registry/configmaps/default/a").await.unwrap(), "plain");
    let failed = get(&store, "/registry/secrets/default/1").await.unwrap_err();
    assert_eq!(
        failed,
        "failed to decrypt DEK, error: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    place.plugin.answer(Method::Decrypt, Answer::Right);
    assert_eq!(sealed(&store).await, (0, 20 + 1));
    // Who has the sealed values reads again, although others have asked for the seeds before.
    let mut tasks = JoinSet::new();
    tasks.spawn(store.clone().poll(CancellationToken::new()));
    let ended = timeout(Duration::from_secs(60), feed.next()).await.unwrap();
    assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_feed_loses_no_change() {
    let place = Place::new();
    let (one, two) = (place.ready(1).await, place.ready(2).await);
    let mut feed = two.changes("/registry/".into(), two.revision().await.unwrap()).await.unwrap();
    put(&one, SECRET, "hunter2").await;
    place.plugin.answer(Method::Decrypt, Answer::Never);
    assert!(timeout(Duration::from_secs(1), feed.next()).await.is_err());
    place.plugin.answer(Method::Decrypt, Answer::Right);
    let changes = feed.next().await.unwrap().changes;
    assert_eq!(changes[0].value.as_deref(), Some(&b"hunter2"[..]));
}

/// What a plugin may say, and what the health check says about it.
#[tokio::test(start_paused = true)]
async fn wrong_answers_are_refused() {
    type Change = Box<dyn Fn(&mut Behavior)>;
    let raw = |method: Method, bytes: Vec<u8>| -> Change {
        Box::new(move |behavior| _ = behavior.answers.insert(method, Answer::Raw(bytes.clone())))
    };
    let with = |text: &str| -> Change {
        let text = text.to_owned();
        Box::new(move |behavior| behavior.key_id = text.clone())
    };
    let annotated = |name: &str, n: usize| -> Change {
        let name = name.to_owned();
        Box::new(move |behavior| behavior.annotations = [(name.clone(), vec![0; n])].into())
    };
    let huge = [&[0], &u32::MAX.to_be_bytes()[..], b"x"].concat();
    let long = frame(&super::proto::DecryptResponse { plaintext: vec![0; ANSWER_BYTES_MAX] });
    let cases: Vec<(Change, &str)> = vec![
        (Box::new(|b| b.healthz = "sick".into()), "got unexpected healthz status: sick"),
        (Box::new(|b| b.version = "v1".into()), "expected KMSv2 API version v2, got v1"),
        (with(""), "got invalid KMSv2 KeyID hash \"\": keyID is empty"),
        (with(&"k".repeat(1025)), "keyID is 1025 bytes, which exceeds the max size of 1024"),
        (
            Box::new(|b| b.encrypted_with = Some("other".into())),
            "errGen=<nil>, statusKeyIDHash=\"sha256:",
        ),
        (Box::new(|b| b.ciphertext = Some(Vec::new())), "encrypted DEK source is empty"),
        (
            Box::new(|b| b.ciphertext = Some(vec![0; 1025])),
            "encrypted DEK source is 1025 bytes, which exceeds the max size of 1024",
        ),
        (
            annotated("plain", 1),
            "failed to validate annotations: annotations: Invalid value: \"plain\": should be a domain with at least two segments separated by dots",
        ),
        (
            annotated("A.b", 1),
            "annotations: Invalid value: \"A.b\": a lowercase RFC 1123 subdomain",
        ),
        (annotated("", 1), "annotations: Required value"),
        (
            annotated("a.b", 32 << 10),
            "total size of annotations is 32771, which exceeds the max size of 32768",
        ),
        (
            raw(Method::Status, vec![1, 0, 0, 0, 1, 5]),
            "code = Internal desc = grpc: the message is compressed",
        ),
        (raw(Method::Status, Vec::new()), "code = Internal desc = cardinality violation"),
        (
            raw(Method::Status, vec![0, 0, 0, 0, 9, 1]),
            "code = Internal desc = grpc: the message does not have",
        ),
        (
            raw(Method::Status, vec![0, 0, 0, 0, 1, 0xff]),
            "code = Internal desc = grpc: failed to unmarshal",
        ),
        (
            raw(Method::Status, huge),
            "code = ResourceExhausted desc = grpc: received message larger than max (4294967295 vs. 262144)",
        ),
        (raw(Method::Encrypt, long.to_vec()), "code = ResourceExhausted"),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let place = Place::new();
        place.plugin.change(change);
        let store = place.store(1);
        let checked = store.check_plugins().await;
        let error = checked.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}\ndoes not contain\n{expected}");
        let written = try_put(&store, SECRET, "x").await.map_err(|error| error.to_string());
        // As in Kubernetes, the key of a plugin that says it is sick, or old, is used.
        match at {
            0 | 1 => assert!(written.is_ok(), "{written:?}"),
            _ => assert_eq!(written.unwrap_err(), NOT_READY),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_seeds_are_refused() {
    for (plaintext, expected) in [
        (vec![], "invalid seed length 0 used for key generation"),
        (vec![1; 31], "invalid seed length 31 used for key generation"),
        (vec![1; 1025], "invalid seed length 1025 used for key generation"),
        (vec![1; 32], "cipher: message authentication failed"),
    ] {
        let place = Place::new();
        put(&place.ready(1).await, SECRET, "hunter2").await;
        place.plugin.change(|behavior| behavior.plaintext = Some(plaintext));
        assert_eq!(get(&place.ready(2).await, SECRET).await.unwrap_err(), expected);
    }
    let place = Place::new();
    put(&place.ready(1).await, SECRET, "hunter2").await;
    let store = place.ready(2).await;
    place
        .plugin
        .answer(Method::Decrypt, Answer::Fail(Code::FAILED_PRECONDITION, "the key is gone: 100 %"));
    assert_eq!(
        get(&store, SECRET).await.unwrap_err(),
        "failed to decrypt DEK, error: rpc error: code = FailedPrecondition desc = the key is gone: 100 %"
    );
}

/// What an attacker may store: nothing is asked for it.
#[tokio::test(start_paused = true)]
async fn malformed_values_ask_no_plugin() {
    let place = Place::new();
    let store = place.ready(1).await;
    put(&store, SECRET, "hunter2").await;
    let raw = place.inner.get(SECRET.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    let right = stored(&raw);
    let encoded = |change: &dyn Fn(&mut EncryptedObject)| {
        let mut object = right.clone();
        change(&mut object);
        object.encode_to_vec()
    };
    for (rest, expected) in [
        (b"\xff\xff".to_vec(), "proto: cannot parse invalid wire-format data"),
        (Vec::new(), "encrypted data is empty"),
        (encoded(&|o| o.encrypted_data = Bytes::new()), "encrypted data is empty"),
        (encoded(&|o| o.encrypted_dek_source_type = 7), "unknown encryptedDEKSourceType: 7"),
        (
            encoded(&|o| o.encrypted_dek_source = vec![0; 2000].into()),
            "failed to validate encrypted DEK source: encrypted DEK source is 2000 bytes, which exceeds the max size of 1024",
        ),
        (encoded(&|o| o.key_id.clear()), "failed to validate key id: keyID is empty"),
        (
            encoded(&|o| o.encrypted_data = Bytes::from_static(b"short")),
            "the stored data was shorter than the required size",
        ),
    ] {
        let value = [b"k8s:enc:kms:v2:test:", &*rest].concat();
        let ops = vec![Op::Put(SECRET.into(), value.into())];
        place.inner.commit(Txn { ops, ..Txn::default() }).await.unwrap();
        assert_eq!(get(&store, SECRET).await.unwrap_err(), expected);
    }
    assert_eq!(place.calls(), [1, 1, 0]);
    // Of version 1, or of another plugin.
    for prefix in ["k8s:enc:kms:v1:test:", "k8s:enc:kms:v2:other:"] {
        let ops = vec![Op::Put(SECRET.into(), prefix.into())];
        place.inner.commit(Txn { ops, ..Txn::default() }).await.unwrap();
        assert_eq!(get(&store, SECRET).await.unwrap_err(), "no matching prefix found");
    }
}

#[tokio::test(start_paused = true)]
async fn reload_waits_for_the_plugins() {
    let mut place = Place::new();
    let file = place.folder.path().join("encryption.yaml");
    let store = place.ready(1).await;
    std::fs::write(&file, place.text("  - identity: {}\n")).unwrap();
    place.plugin.stop().await;
    let mut reloader = Reloader::new(&file, store.clone());
    for _ in 0..2 {
        let Look::Refused(error) = reloader.look().await else { panic!("it is tried each time") };
        let start = "health check for new transformers failed: kms-provider-0: failed to perform status section";
        assert!(error.to_string().starts_with(start), "{error}");
    }
    place.plugin.start().unwrap();
    assert!(matches!(reloader.look().await, Look::Taken));
    put(&store, SECRET, "hunter2").await;
    assert_eq!(get(&store, SECRET).await.unwrap(), "hunter2");
}

#[tokio::test(start_paused = true)]
async fn values_and_calls_are_counted() {
    let place = Place::new();
    put(&place.ready(1).await, SECRET, "hunter2").await;
    let store = place.ready(2).await;
    let mut registry = prometheus_client::registry::Registry::default();
    store.register_metrics(&mut registry, "sha256:5e");
    get(&store, SECRET).await.unwrap();
    put(&store, SECRET, "hunter3").await;
    place.plugin.change(|behavior| behavior.key_id.clear());
    sleep(Duration::from_secs(30)).await;
    store.check_plugins().await.unwrap_err();
    put(&place.inner, SECRET, "k8s:enc:other").await;
    get(&store, SECRET).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let hash = hashed("key-1");
    for line in [
        r#"apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="from_storage",transformer_prefix="k8s:enc:kms:v2:test:"} 1"#.to_owned(),
        r#"apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="to_storage",transformer_prefix="k8s:enc:kms:v2:test:"} 1"#.to_owned(),
        r#"apiserver_storage_transformation_operations_total{resource="secrets",status="unknown-non-grpc",transformation_type="from_storage",transformer_prefix="unknown"} 1"#.to_owned(),
        r#"apiserver_storage_transformation_duration_seconds_count{transformation_type="to_storage",transformer_prefix="k8s:enc:kms:v2:test:"} 1"#.to_owned(),
        "apiserver_storage_envelope_transformation_cache_misses_total 1".to_owned(),
        "apiserver_storage_data_key_generation_duration_seconds_count 1".to_owned(),
        r#"apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/Status",provider_name="test"} 2"#.to_owned(),
        format!(r#"apiserver_envelope_encryption_key_id_hash_total{{apiserver_id_hash="sha256:5e",key_id_hash="{hash}",provider_name="test",transformation_type="from_storage"}} 1"#),
        r#"apiserver_envelope_encryption_invalid_key_id_from_status_total{error="empty",provider_name="test"} 1"#.to_owned(),
        r#"apiserver_envelope_encryption_dek_source_cache_size{provider_name="test"} 2"#.to_owned(),
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
    }
}
