//! The encrypting store.

use crate::config::EncryptionConfig;
use crate::environment::Environment;
use crate::metrics::{EncryptionMetrics, Transformations};
use crate::nonce::NonceSource;
use crate::provider::{Chain, Opened, Prefix, ReadError, Reader, SealError, Seeds};
use crate::resource::{self, GroupResource};
use crate::usage::Usage;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use setpoint_object::error::chain;
use setpoint_object::keys::{self, Directory};
use setpoint_object::time::Clock;
use setpoint_store::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Bytes that a range decrypts before it yields: about a millisecond with the slowest cipher.
const OPENED_AT_ONCE: usize = 256 << 10;

/// Replaces an unencrypted value if no provider accepts such: a sealed value without content.
const REFUSED: &[u8] = b"k8s:enc:refused:v1::";

/// A store over another one that encrypts values of the configured resources on write and decrypts
/// them on read.
///
/// A handle; cheap to clone. Its methods are as cancel safe as those of the inner store.
#[derive(Debug, Clone)]
pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // Configuration.
    /// The store below, which knows under which names values are stored.
    inner: Arc<dyn Store>,
    config: RwLock<Arc<EncryptionConfig>>,
    directory: Directory,
    environment: Arc<Environment>,
    /// Treats every key as one of `secrets`, for test suites with their own keys.
    is_all_secret: bool,
    // Statistics.
    usage: Usage,
    /// Whether ranges or feeds have returned values that could not be decrypted, since the last
    /// reload.
    gave_sealed: AtomicBool,
    /// Whether such a value has been logged since the last reload: of the present, of the past.
    has_logged: [AtomicBool; 2],
    /// Incremented when feeds must restart, because a reload may allow more values to be decrypted.
    restarts: watch::Sender<u64>,
    /// Incremented when another configuration is in use.
    configs: watch::Sender<u64>,
}

impl EncryptedStore {
    /// A store over `inner`, which takes the nonces of its writes and the seeds of plugins from
    /// `nonces`. By `clock`, seeds of plugins expire ([`WRITE_TTL`](crate::kms::WRITE_TTL)). With
    /// plugins, somebody has to run [`poll`](Self::poll).
    pub fn new(
        inner: Arc<dyn Store>,
        config: EncryptionConfig,
        nonces: NonceSource,
        clock: Clock,
    ) -> Self {
        Self::over(inner, config, nonces, clock, false)
    }

    /// A store that treats every key as one of a Secret, for test suites with their own keys.
    #[doc(hidden)]
    pub fn of_secrets(
        inner: Arc<dyn Store>,
        config: EncryptionConfig,
        nonces: NonceSource,
        clock: Clock,
    ) -> Self {
        Self::over(inner, config, nonces, clock, true)
    }

    fn over(
        inner: Arc<dyn Store>,
        config: EncryptionConfig,
        nonces: NonceSource,
        clock: Clock,
        is_all_secret: bool,
    ) -> Self {
        let shared = Shared {
            inner: inner.clone(),
            config: RwLock::new(Arc::new(config)),
            directory: resource::built_in(),
            environment: Arc::new(Environment {
                nonces,
                clock,
                metrics: EncryptionMetrics::default(),
            }),
            is_all_secret,
            usage: Usage::default(),
            gave_sealed: AtomicBool::new(false),
            has_logged: Default::default(),
            restarts: watch::Sender::new(0),
            configs: watch::Sender::new(0),
        };
        Self { inner, shared: Arc::new(shared) }
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<EncryptionConfig> {
        self.shared.config.read().clone()
    }

    /// Uses another configuration from the next call on. If there were values that could not be
    /// decrypted, feeds end with [`StoreError::Unavailable`], so that their readers read again.
    pub fn set_config(&self, config: EncryptionConfig) {
        *self.shared.config.write() = Arc::new(config);
        self.shared.has_logged.iter().for_each(|has| has.store(false, Ordering::Relaxed));
        self.shared.configs.send_modify(|n| *n += 1);
        self.shared.restart_if_sealed();
    }

    /// Adds what is counted of values and of plugins to a registry of metrics:
    /// `apiserver_storage_transformation_*`, `apiserver_storage_envelope_transformation_*` and
    /// `apiserver_envelope_encryption_*`. `server_hash`: the hash of the server's name, a label of
    /// the families about key ids.
    pub fn register_metrics(&self, registry: &mut Registry, server_hash: &str) {
        self.shared.environment.metrics.register(registry, server_hash);
    }

    /// What plugins take from the program.
    pub(crate) fn environment(&self) -> &Arc<Environment> {
        &self.shared.environment
    }

    /// Changes whenever another configuration is in use.
    pub(crate) fn configs(&self) -> watch::Receiver<u64> {
        self.shared.configs.subscribe()
    }

    /// Ends all feeds, because values can be decrypted that could not be before.
    pub(crate) fn restart_feeds(&self) {
        self.shared.gave_sealed.store(false, Ordering::Release);
        self.shared.restarts.send_modify(|n| *n += 1);
    }

    /// Number of values that each current writing key has encrypted since the program started, by
    /// `provider:name`.
    pub fn writes(&self) -> Vec<(String, u64)> {
        let config = self.config();
        let writers = config.chains().filter_map(|(_, chain)| chain.writer());
        let mut writes: Vec<_> =
            writers.map(|key| (format!("{key:?}"), self.shared.usage.of(key))).collect();
        writes.sort();
        writes.dedup();
        writes
    }
}

impl Shared {
    fn view(&self) -> View<'_> {
        let config = self.config.read().clone();
        View { shared: self, config, last: None, seeds: Seeds::default() }
    }

    /// Ends all feeds if there were values that could not be decrypted.
    fn restart_if_sealed(&self) {
        if self.gave_sealed.swap(false, Ordering::AcqRel) {
            self.restarts.send_modify(|n| *n += 1);
        }
    }
}

/// One configuration for the duration of one call.
struct View<'a> {
    shared: &'a Shared,
    config: Arc<EncryptionConfig>,
    /// What is known of the last key's prefix: neighboring keys mostly share it.
    last: Option<Last>,
    /// What plugins have answered.
    seeds: Seeds,
}

/// A prefix, its providers, and the counts of its resource.
struct Last {
    prefix: Bytes,
    of: Option<(Arc<Chain>, Transformations)>,
}

impl View<'_> {
    /// The providers of a key's resource, with what they share.
    fn chain(&mut self, key: &Bytes) -> Option<(&Chain, &mut Transformations, &mut Seeds)> {
        // A key without a prefix belongs to no object: it is its own prefix.
        let named = keys::prefix_of(key);
        let prefix = named.map_or(&key[..], str::as_bytes);
        if self.last.as_ref().is_none_or(|last| last.prefix != prefix) {
            let resource = match self.shared.is_all_secret {
                true => Some(("", "secrets")),
                false => named.and_then(|prefix| self.shared.directory.resource(prefix)),
            };
            let chain = resource.and_then(|name| Some((name, self.config.chain(name)?.clone())));
            let of = chain.map(|((group, resource), chain)| {
                let name = GroupResource { group: group.to_owned(), resource: resource.to_owned() };
                let counts = self.shared.environment.metrics.of_resource(&name.to_string());
                (chain, counts)
            });
            self.last = Some(Last { prefix: key.slice_ref(prefix), of });
        }
        let (chain, counts) = self.last.as_mut()?.of.as_mut()?;
        Some((&**chain, counts, &mut self.seeds))
    }

    /// Asks plugins for the seeds that a stored value needs. Then it can be decrypted.
    async fn ask(&mut self, key: &Bytes, stored: &Bytes, reader: Reader) {
        let environment = &self.shared.environment;
        if let Some((chain, _, seeds)) = self.chain(key) {
            chain.ask(stored, seeds, reader, environment).await;
        }
    }

    /// Decrypts a stored value.
    fn open(&mut self, key: &Bytes, stored: &Bytes) -> Result<Opened, ReadError> {
        let Shared { environment, inner, .. } = self.shared;
        let place = inner.stored_key(key);
        match self.chain(key) {
            Some((chain, counts, seeds)) => {
                let opened = chain.open(stored, &place, seeds, environment, counts);
                match opened {
                    // Versions of this server that knew no other name bound it to the key.
                    Err(error) if *place != **key => {
                        let opened = chain.open(stored, key, seeds, environment, counts);
                        let stale = |opened| Opened { is_stale: true, ..opened };
                        opened.map(stale).map_err(|_| error)
                    }
                    opened => opened,
                }
            }
            None if is_sealed(stored) => Err(ReadError::NotConfigured),
            None => Ok(Opened { value: stored.clone(), is_stale: false }),
        }
    }

    /// The same, for a reader of one key.
    fn open_one(&mut self, mut kv: KeyValue) -> Result<KeyValue, StoreError> {
        kv.value =
            self.open(&kv.key, &kv.value).map_err(|error| unreadable(&kv.key, &error))?.value;
        Ok(kv)
    }

    /// The same, for a reader of many keys: a value that cannot be decrypted is returned as stored,
    /// or as [`REFUSED`]. `is_past`: it may have been replaced since.
    fn open_many(&mut self, key: &Bytes, stored: Bytes, is_past: bool) -> Bytes {
        match self.open(key, &stored) {
            Ok(opened) => opened.value,
            Err(error) => {
                self.gave_sealed();
                self.log(key, &stored, is_past, &error);
                sealed(stored)
            }
        }
    }

    /// The same, for a previous value: not being able to decrypt it is expected after a key was
    /// retired, so it is not recorded. Readers do not keep it.
    fn open_previous(&mut self, key: &Bytes, stored: Bytes) -> Bytes {
        match self.open(key, &stored) {
            Ok(opened) => opened.value,
            Err(_) => sealed(stored),
        }
    }

    /// Records that a reader of many keys gets a value that could not be decrypted, so that it
    /// reads again after the next reload. If there was a reload since the call began, that is now.
    fn gave_sealed(&self) {
        self.shared.gave_sealed.store(true, Ordering::Release);
        let is_current = Arc::ptr_eq(&self.config, &self.shared.config.read());
        if !is_current {
            self.shared.restart_if_sealed();
        }
    }

    /// Logs the first value of the present and the first one of the past after each reload.
    fn log(&self, key: &Bytes, stored: &Bytes, is_past: bool, error: &ReadError) {
        let has_logged = &self.shared.has_logged[usize::from(is_past)];
        if has_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let prefix = Prefix::parse(stored);
        tracing::warn!(
            key = %String::from_utf8_lossy(key),
            provider = prefix.map(|prefix| prefix.kind),
            name = prefix.map(|prefix| prefix.key),
            is_past,
            error = chain(&error),
            "a value cannot be decrypted: requests that need it fail. Further ones are not logged"
        );
    }

    /// Encrypts a value.
    fn seal(&mut self, key: &Bytes, value: Bytes) -> Result<Bytes, StoreError> {
        let Shared { environment, usage, inner, .. } = self.shared;
        let Some((chain, counts, _)) = self.chain(key) else { return Ok(value) };
        let sealed = chain.seal(value, &inner.stored_key(key), environment, counts);
        if let Some(writer) = chain.writer() {
            usage.count(writer);
        }
        sealed.map_err(|error| match error {
            SealError::Cipher(_) => StoreError::Unavailable(error.to_string()),
            SealError::Kms(error) => StoreError::Unwritable { reason: error.to_string() },
        })
    }
}

/// The value that a reader of many keys gets if it cannot be decrypted.
fn sealed(stored: Bytes) -> Bytes {
    if is_sealed(&stored) { stored } else { Bytes::from_static(REFUSED) }
}
fn unreadable(key: &[u8], error: &ReadError) -> StoreError {
    let key = String::from_utf8_lossy(key).into_owned();
    StoreError::Unreadable { key, fault: ReadFault::Transform, reason: error.to_string() }
}

impl Store for EncryptedStore {
    delegate!(inner: revision, compact, divide, size_bytes, keeps_history, stored_key);

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            let Snapshot { revision, value } = self.inner.get(key, at).await?;
            let Some(kv) = value else { return Ok(Snapshot { revision, value: None }) };
            let mut view = self.shared.view();
            view.ask(&kv.key, &kv.value, Reader::One).await;
            Ok(Snapshot { revision, value: Some(view.open_one(kv)?) })
        }
        .boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let at = request.at;
            let mut found = self.inner.range(request).await?;
            let is_past = matches!(at, At::Exactly(revision) if revision < found.revision);
            let mut view = self.shared.view();
            let mut n_bytes = 0;
            for kv in &mut found.value.entries {
                if n_bytes > OPENED_AT_ONCE {
                    n_bytes = 0;
                    // Cancel safe, like this whole function: decrypting changes nothing.
                    tokio::task::yield_now().await;
                }
                n_bytes += kv.value.len();
                view.ask(&kv.key, &kv.value, Reader::Many).await;
                let stored = std::mem::take(&mut kv.value);
                kv.value = view.open_many(&kv.key, stored, is_past);
            }
            Ok(found)
        }
        .boxed()
    }

    fn commit(&self, mut txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            {
                let mut view = self.shared.view();
                for op in &mut txn.ops {
                    if let Op::Put(key, value) = op {
                        *value = view.seal(key, std::mem::take(value))?;
                    }
                }
            }
            match self.inner.commit(txn).await? {
                Committed::Refused { revision, found } => {
                    let mut view = self.shared.view();
                    for kv in found.iter().flatten() {
                        // Cancel safe: nothing was committed.
                        view.ask(&kv.key, &kv.value, Reader::One).await;
                    }
                    let open = |kv: Option<KeyValue>| kv.map(|kv| view.open_one(kv)).transpose();
                    let found = found.into_iter().map(open).collect::<Result<_, _>>()?;
                    Ok(Committed::Refused { revision, found })
                }
                done => Ok(done),
            }
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            // Subscribed before the feed is opened, so that a reload in between ends it.
            let restarts = self.shared.restarts.subscribe();
            let born = *restarts.borrow();
            let inner = self.inner.changes(prefix, after).await?;
            let shared = self.shared.clone();
            let feed = EncryptedFeed { inner, shared, restarts, born, batch: None };
            Ok(Box::new(feed) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    fn rewrite_due<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            if self.inner.rewrite_due(key).await? {
                return Ok(true);
            }
            let mut view = self.shared.view();
            if view.chain(&Bytes::copy_from_slice(key)).is_none() {
                return Ok(false);
            }
            let Some(kv) = self.inner.get(key, At::Latest).await?.value else { return Ok(false) };
            view.ask(&kv.key, &kv.value, Reader::One).await;
            let opened = view.open(&kv.key, &kv.value).map_err(|error| unreadable(key, &error))?;
            Ok(opened.is_stale)
        }
        .boxed()
    }
}

/// The inner store's feed, decrypted.
struct EncryptedFeed {
    inner: Box<dyn ChangeFeed>,
    shared: Arc<Shared>,
    restarts: watch::Receiver<u64>,
    /// The restart count when it was opened.
    born: u64,
    /// What the inner feed has given, while plugins are asked.
    batch: Option<Batch>,
}

impl ChangeFeed for EncryptedFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            let born = self.born;
            let restarted = async { self.restarts.wait_for(|n| *n != born).await.map(drop) };
            if self.batch.is_none() {
                let batch = tokio::select! {
                    biased;
                    // Cancel safe: it is state, and the next call checks it again. An error means
                    // that the store is gone, which the inner feed reports.
                    Ok(()) = restarted => return Err(restart()),
                    // Cancel safe: as the contract requires of a feed.
                    batch = self.inner.next() => batch?,
                };
                self.batch = Some(batch);
            }
            let mut view = self.shared.view();
            // Cancel safe: the batch stays where it is, and its values as they are.
            for change in self.batch.iter().flat_map(|batch| &batch.changes) {
                if let Some(value) = &change.value {
                    view.ask(&change.key, value, Reader::Feed).await;
                }
                if let Some(previous) = &change.previous {
                    view.ask(&previous.key, &previous.value, Reader::Feed).await;
                }
            }
            // There is one.
            let Some(mut batch) = self.batch.take() else { return Err(restart()) };
            for change in &mut batch.changes {
                let value = change.value.take();
                change.value = value.map(|value| view.open_many(&change.key, value, false));
                if let Some(previous) = &mut change.previous {
                    let value = std::mem::take(&mut previous.value);
                    previous.value = view.open_previous(&previous.key, value);
                }
            }
            Ok(batch)
        }
        .boxed()
    }
}

/// The end of a feed whose values can be read better from the beginning.
fn restart() -> StoreError {
    StoreError::Unavailable("the encryption configuration has changed".to_owned())
}

#[cfg(test)]
mod tests;
