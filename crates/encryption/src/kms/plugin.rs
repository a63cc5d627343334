//! One plugin: its health, the present seed, and the seeds that it has decrypted.

use super::KmsError;
use super::cache::Sources;
use super::envelope::{self, Dek, SEED_BYTES, SourceId, check, hashed, source_id};
use super::proto::*;
use crate::environment::Environment;
use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use parking_lot::Mutex;
use prost::Message as _;
use setpoint_grpc::{RpcError, SocketClient, shortened};
use setpoint_object::error::aggregate;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

/// Period of `Status` while the plugin is healthy: a minute, as in Kubernetes.
pub const POSITIVE_INTERVAL: Duration = Duration::from_secs(60);
/// Period of `Status` while it is not: ten seconds, as in Kubernetes.
pub const NEGATIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a seed is written with after `Status` has confirmed its key id: three minutes, as in
/// Kubernetes.
pub const WRITE_TTL: Duration = Duration::from_secs(180);
/// How long a feed, which serves all resources, waits for a seed.
pub const FEED_WAIT_MAX: Duration = Duration::from_secs(3);

/// How long a result of `Status` is reused: as in Kubernetes.
const POSITIVE_TTL: Duration = Duration::from_secs(20);
const NEGATIVE_TTL: Duration = Duration::from_secs(3);
/// Maximum size of a response in bytes: 256 KiB. The largest that is used has some 35 KiB: a seed,
/// a key id and annotations. Of the 4 MiB that gRPC in Go allows, annotations could be some
/// hundred thousand.
pub(super) const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Maximum number of `Decrypt` calls at the same time; others wait, within their timeout.
const DECRYPTS_MAX: usize = 16;
/// Maximum number of seeds that are remembered because a reader lacks them.
const WANTED_MAX: usize = 64;

/// A call that several callers share.
type Flight<T> = Shared<BoxFuture<'static, Result<T, KmsError>>>;
type WeakFlight<T> = WeakShared<BoxFuture<'static, Result<T, KmsError>>>;

/// A plugin. The configuration owns it; it does nothing by itself.
pub(crate) struct Plugin {
    // Configuration.
    name: String,
    header: String,
    timeout: Duration,
    client: SocketClient,
    // The present seed.
    state: Mutex<Option<Arc<Present>>>,
    // Health.
    checked: Mutex<Option<Checked>>,
    checking: Mutex<Option<WeakFlight<()>>>,
    version: Mutex<Option<String>>,
    /// The last call was not answered.
    is_silent: AtomicBool,
    // Seeds.
    sources: Mutex<Sources>,
    decrypting: Mutex<HashMap<SourceId, WeakFlight<Arc<Dek>>>>,
    decrypts: Arc<Semaphore>,
    /// What readers of many values lack.
    wanted: Mutex<BTreeMap<SourceId, EncryptedObject>>,
    has_wanted: Notify,
}

/// The seed that writes.
#[derive(Debug)]
pub(crate) struct Present {
    dek: Arc<Dek>,
    id: SourceId,
    /// Everything of a stored value but its data.
    object: EncryptedObject,
    /// Until when it may write.
    until: Timestamp,
}

/// The last result of `Status`.
#[derive(Debug, Clone)]
struct Checked {
    result: Result<(), KmsError>,
    until: Instant,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Plugin {
    /// A plugin at a socket.
    pub(crate) fn new(name: &str, path: &str, timeout: Duration) -> Self {
        Self {
            name: name.to_owned(),
            header: format!("k8s:enc:kms:v2:{name}:"),
            timeout,
            client: SocketClient::new(path, timeout, ANSWER_BYTES_MAX),
            state: Mutex::default(),
            checked: Mutex::default(),
            checking: Mutex::default(),
            version: Mutex::default(),
            is_silent: AtomicBool::new(false),
            sources: Mutex::default(),
            decrypting: Mutex::default(),
            decrypts: Arc::new(Semaphore::new(DECRYPTS_MAX)),
            wanted: Mutex::default(),
            has_wanted: Notify::new(),
        }
    }

    /// The provider's name in the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The prefix of its values.
    pub(crate) fn header(&self) -> &str {
        &self.header
    }

    /// The maximum time of a call.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn present(&self) -> Option<Arc<Present>> {
        self.state.lock().clone()
    }

    /// Whether the plugin has been healthy once, so that values can be read.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().is_some()
    }

    /// Encrypts a value for a place, after the header.
    pub(crate) fn seal(
        &self,
        value: &[u8],
        place: &[u8],
        environment: &Environment,
    ) -> Result<Vec<u8>, KmsError> {
        let present = self.present().ok_or(KmsError::NotReady)?;
        let now = environment.clock.now();
        if now > present.until {
            return Err(KmsError::Expired {
                key_id_hash: present.dek.key_id_hash().to_owned(),
                expired: present.until.rfc3339(),
                now: now.rfc3339(),
            });
        }
        let data = present.dek.seal(value, place, &environment.nonces);
        let data = data.map_err(|error| KmsError::Randomness(error.to_string()))?;
        let object = EncryptedObject { encrypted_data: data.into(), ..present.object.clone() };
        let hash = present.dek.key_id_hash();
        environment.metrics.key_used("to_storage", &self.name, hash, now);
        let mut out = Vec::with_capacity(self.header.len() + object.encoded_len());
        out.extend_from_slice(self.header.as_bytes());
        out.extend_from_slice(&object.encode_to_vec());
        Ok(out)
    }

    /// Whether another key or another form writes now than the one that wrote an object.
    pub(crate) fn is_stale(&self, object: &EncryptedObject) -> bool {
        self.present().is_none_or(|present| {
            present.object.key_id != object.key_id
                || present.object.encrypted_dek_source_type != object.encrypted_dek_source_type
        })
    }

    /// The key of an object, if it is in memory.
    pub(crate) fn known(&self, id: &SourceId) -> Option<Arc<Dek>> {
        let present = self.present().filter(|present| present.id == *id);
        present.map(|present| present.dek.clone()).or_else(|| self.sources.lock().get(id))
    }

    /// The key of an object: calls `Decrypt` unless it is in memory. Dropping the future cancels
    /// the call, unless others wait for it.
    pub(crate) async fn dek(
        self: &Arc<Self>,
        id: SourceId,
        object: &EncryptedObject,
        environment: &Arc<Environment>,
    ) -> Result<Arc<Dek>, KmsError> {
        if let Some(dek) = self.known(&id) {
            return Ok(dek);
        }
        let flight = {
            let mut decrypting = self.decrypting.lock();
            match decrypting.get(&id).and_then(WeakShared::upgrade) {
                Some(flight) => flight,
                None => {
                    // Calls that nobody waits for any more.
                    decrypting.retain(|_, flight| flight.upgrade().is_some());
                    let object =
                        EncryptedObject { encrypted_data: Default::default(), ..object.clone() };
                    let call = self.clone().decrypt(id, object, environment.clone());
                    let flight: Flight<_> = call.boxed().shared();
                    decrypting.extend(flight.downgrade().map(|weak| (id, weak)));
                    flight
                }
            }
        };
        flight.await
    }

    async fn decrypt(
        self: Arc<Self>,
        id: SourceId,
        object: EncryptedObject,
        environment: Arc<Environment>,
    ) -> Result<Arc<Dek>, KmsError> {
        environment.metrics.missed();
        let waited = timeout(self.timeout, self.decrypts.clone().acquire_owned()).await;
        let Ok(Ok(_permit)) = waited else { return Err(KmsError::Decrypt(RpcError::deadline())) };
        let source_type = object.encrypted_dek_source_type;
        let key_id = object.key_id.clone();
        let question = DecryptRequest {
            ciphertext: object.encrypted_dek_source,
            uid: uid(&environment)?,
            key_id: object.key_id,
            annotations: object.annotations,
        };
        let answer = self.call::<DecryptResponse>(DECRYPT, &question, &environment).await;
        let plaintext = Zeroizing::new(answer.map_err(KmsError::Decrypt)?.plaintext);
        let dek = Arc::new(Dek::new(source_type, plaintext, &key_id)?);
        let n = self.sources.lock().put(id, dek.clone());
        environment.metrics.sources(&self.name, n);
        Ok(dek)
    }

    /// Calls the plugin, and counts that.
    async fn call<A: prost::Message + Default>(
        &self,
        method: &'static str,
        question: &impl prost::Message,
        environment: &Environment,
    ) -> Result<A, RpcError> {
        let start = Instant::now();
        let answer = self.client.call::<A>(method, question).await;
        let error = answer.as_ref().err();
        let is_silent = error.is_some_and(RpcError::is_unanswered);
        self.is_silent.store(is_silent, Ordering::Relaxed);
        environment.metrics.called(&self.name, method, error, start.elapsed());
        answer
    }

    /// Whether the last call was not answered.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Whether the plugin is healthy: calls `Status` unless that was done some seconds ago. A new
    /// key id makes a new seed. Dropping the future cancels the call, unless others wait for it.
    pub(crate) async fn check(
        self: &Arc<Self>,
        environment: &Arc<Environment>,
    ) -> Result<(), KmsError> {
        if let Some(checked) = &*self.checked.lock()
            && Instant::now() < checked.until
        {
            return checked.result.clone();
        }
        let flight = {
            let mut checking = self.checking.lock();
            match checking.as_ref().and_then(WeakShared::upgrade) {
                Some(flight) => flight,
                None => {
                    let call = self.clone().check_now(environment.clone());
                    let flight: Flight<()> = call.boxed().shared();
                    *checking = flight.downgrade();
                    flight
                }
            }
        };
        flight.await
    }

    async fn check_now(self: Arc<Self>, environment: Arc<Environment>) -> Result<(), KmsError> {
        let result = self.status(&environment).await;
        let ttl = if result.is_ok() { POSITIVE_TTL } else { NEGATIVE_TTL };
        let checked = Checked { result: result.clone(), until: Instant::now() + ttl };
        *self.checked.lock() = Some(checked);
        result
    }

    async fn status(&self, environment: &Environment) -> Result<(), KmsError> {
        let name = || self.name.clone();
        let answer = self.call::<StatusResponse>(STATUS, &StatusRequest {}, environment).await;
        let status = answer.map_err(|source| KmsError::Status { name: name(), source })?;
        let mut reasons = Vec::new();
        if status.healthz != "ok" {
            reasons.push(format!("got unexpected healthz status: {}", shortened(&status.healthz)));
        }
        reasons.extend(self.version_fault(&status.version));
        let hash = hashed(&status.key_id);
        match envelope::check_key_id(&status.key_id) {
            Err(error) => {
                environment.metrics.invalid_key_id(&self.name, error.label());
                reasons.push(format!("got invalid KMSv2 KeyID hash {hash:?}: {error}"));
            }
            Ok(()) => {
                environment.metrics.key_reported(&self.name, &hash, environment.clock.now());
                reasons.extend(self.rotate(&status.key_id, environment).await.err());
            }
        }
        let reason = match &reasons[..] {
            [] => return Ok(()),
            reasons => aggregate(reasons),
        };
        Err(KmsError::Unhealthy { name: name(), reason })
    }

    /// The version must be one of two that mean the same, and must stay the same.
    fn version_fault(&self, version: &str) -> Option<String> {
        if !["v2", "v2beta1"].contains(&version) {
            let got = shortened(version);
            return Some(format!("expected KMSv2 API version v2, got {got}"));
        }
        let mut first = self.version.lock();
        let first = first.get_or_insert_with(|| version.to_owned());
        (first.as_str() != version).then(|| {
            format!("KMSv2 API version should not change after the initial status response version {first}, got {version}")
        })
    }

    /// Confirms the present seed, or makes a new one if the key id has changed. If that fails, the
    /// present seed stays in use until it expires.
    async fn rotate(&self, key_id: &str, environment: &Environment) -> Result<(), String> {
        // From before the call, because it is an upper bound.
        let until = environment.clock.now() + WRITE_TTL;
        let present = self.present();
        if let Some(present) = &present
            && present.object.key_id == key_id
        {
            let confirmed = Present {
                dek: present.dek.clone(),
                id: present.id,
                object: present.object.clone(),
                until,
            };
            *self.state.lock() = Some(Arc::new(confirmed));
            return Ok(());
        }
        let uid = uid(environment).map_err(|error| error.to_string())?;
        let made = self.generate(&uid, environment).await;
        let (error, encrypted_with) = match made {
            Ok(mut made) if made.object.key_id == key_id => {
                made.until = until;
                let (id, dek) = (made.id, made.dek.clone());
                *self.state.lock() = Some(Arc::new(made));
                let n = self.sources.lock().put(id, dek);
                environment.metrics.sources(&self.name, n);
                return Ok(());
            }
            Ok(made) => ("<nil>".to_owned(), made.object.key_id),
            Err(error) => (error.to_string(), String::new()),
        };
        let (is_missing, state_hash, expires) = match &present {
            None => {
                ("got unexpected nil transformer", String::new(), "0001-01-01T00:00:00Z".to_owned())
            }
            Some(present) => {
                ("<nil>", present.dek.key_id_hash().to_owned(), present.until.rfc3339())
            }
        };
        Err(format!(
            "failed to rotate DEK uid={uid:?}, useSeed=true, errState={is_missing}, errGen={error}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}, stateKeyIDHash={state_hash:?}, expirationTimestamp={expires}",
            hashed(key_id),
            hashed(&encrypted_with),
        ))
    }

    /// Makes a seed, and lets the plugin encrypt it.
    async fn generate(&self, uid: &str, environment: &Environment) -> Result<Present, KmsError> {
        let mut seed = Zeroizing::new(vec![0; SEED_BYTES]);
        let start = Instant::now();
        let filled = environment.nonces.fill(&mut seed);
        environment.metrics.generated(filled.is_ok(), start.elapsed());
        filled.map_err(|error| KmsError::Randomness(error.to_string()))?;
        let question = EncryptRequest { plaintext: seed.to_vec(), uid: uid.to_owned() };
        let answer = self.call::<EncryptResponse>(ENCRYPT, &question, environment).await;
        let answer = answer.map_err(KmsError::Encrypt)?;
        let object = EncryptedObject {
            encrypted_data: Default::default(),
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: HKDF_SHA256_XNONCE_AES_GCM_SEED,
        };
        check(&object)?;
        let dek = Arc::new(Dek::new(object.encrypted_dek_source_type, seed, &object.key_id)?);
        Ok(Present { dek, id: source_id(&object), object, until: Timestamp(Duration::ZERO) })
    }

    /// Records that a reader of many values lacks a seed. Beyond [`WANTED_MAX`] another one is
    /// forgotten: when the others are there, the reader reads again.
    pub(crate) fn want(&self, id: SourceId, object: EncryptedObject) {
        let mut wanted = self.wanted.lock();
        if wanted.contains_key(&id) {
            return;
        }
        if wanted.len() == WANTED_MAX {
            wanted.pop_first();
        }
        wanted.insert(id, EncryptedObject { encrypted_data: Default::default(), ..object });
        self.has_wanted.notify_one();
    }

    /// Asks for the seeds that readers lack. Whether there is one more now.
    pub(crate) async fn retry(self: &Arc<Self>, environment: &Arc<Environment>) -> bool {
        let wanted = self.wanted.lock().clone();
        let mut has_more = false;
        for (id, object) in wanted {
            match self.dek(id, &object, environment).await {
                Ok(_) => {
                    self.wanted.lock().remove(&id);
                    has_more = true;
                }
                Err(error) if error.is_unanswered() => break,
                Err(_) => {}
            }
        }
        has_more
    }

    /// Whether readers lack seeds.
    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.lock().is_empty()
    }

    /// Waits until a reader lacks another seed. Cancel safe.
    pub(crate) async fn until_wanted(&self) {
        self.has_wanted.notified().await;
    }
}

/// A random UUID, by which plugins name requests in their logs.
fn uid(environment: &Environment) -> Result<String, KmsError> {
    let mut bytes = [0; 16];
    let filled = environment.nonces.fill(&mut bytes);
    filled.map_err(|error| KmsError::Randomness(error.to_string()))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}
