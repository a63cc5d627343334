//! What is counted of encryption, under the names of Kubernetes' API server.

use crate::kms::RpcError;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use setpoint_object::time::Timestamp;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Maximum number of key ids that have series, in each direction together: 100, as in Kubernetes.
/// The least recently used ones are dropped.
const KEY_IDS_MAX: usize = 100;

type Labels<const N: usize> = [(&'static str, String); N];
type Seconds = Gauge<f64, AtomicU64>;

/// Buckets that double.
#[derive(Debug, Clone, Copy)]
struct Doubling {
    first: f64,
    n: u16,
}

impl MetricConstructor<Histogram> for Doubling {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(self.first, 2.0, self.n))
    }
}

type Latencies<const N: usize> = Family<Labels<N>, Histogram, Doubling>;

/// Counts of one store. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EncryptionMetrics(Arc<Families>);

struct Families {
    // Transformations.
    durations: Latencies<2>,
    operations: Family<Labels<4>, Counter>,
    misses: Counter,
    seeds: Histogram,
    failed_seeds: Counter,
    // Plugins.
    calls: Latencies<3>,
    key_uses: Family<Labels<3>, Counter>,
    key_times: Family<Labels<3>, Seconds>,
    key_reports: Family<Labels<2>, Seconds>,
    invalid_key_ids: Family<Labels<2>, Counter>,
    sources: Family<Labels<1>, Gauge>,
    // The key ids that have series, the most recent last.
    used: Mutex<VecDeque<Labels<3>>>,
    reported: Mutex<VecDeque<Labels<2>>>,
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl Default for EncryptionMetrics {
    fn default() -> Self {
        Self(Arc::new(Families {
            durations: Family::new_with_constructor(Doubling { first: 5e-6, n: 25 }),
            operations: Family::default(),
            misses: Counter::default(),
            seeds: Doubling { first: 5e-6, n: 14 }.new_metric(),
            failed_seeds: Counter::default(),
            calls: Family::new_with_constructor(Doubling { first: 1e-4, n: 20 }),
            key_uses: Family::default(),
            key_times: Family::default(),
            key_reports: Family::default(),
            invalid_key_ids: Family::default(),
            sources: Family::default(),
            used: Mutex::default(),
            reported: Mutex::default(),
        }))
    }
}

impl EncryptionMetrics {
    /// Adds the families to a registry. `server_hash`: the hash of the server's name, a label of
    /// the families about key ids.
    pub(crate) fn register(&self, registry: &mut Registry, server_hash: &str) {
        let families = &*self.0;
        let storage = registry.sub_registry_with_prefix("apiserver_storage");
        storage.register(
            "transformation_duration_seconds",
            "Duration of encrypting or decrypting a value",
            families.durations.clone(),
        );
        storage.register(
            "transformation_operations",
            "Values that were encrypted or decrypted, by result",
            families.operations.clone(),
        );
        storage.register(
            "envelope_transformation_cache_misses",
            "Reads of values whose seed was not in memory",
            families.misses.clone(),
        );
        storage.register(
            "data_key_generation_duration_seconds",
            "Duration of making a seed",
            families.seeds.clone(),
        );
        storage.register(
            "data_key_generation_failures",
            "Seeds that could not be made",
            families.failed_seeds.clone(),
        );
        let kms = registry.sub_registry_with_prefix("apiserver_envelope_encryption");
        kms.register(
            "kms_operations_latency_seconds",
            "Duration of calls to KMS plugins by gRPC status",
            families.calls.clone(),
        );
        kms.register(
            "invalid_key_id_from_status",
            "Key ids of plugins that were refused",
            families.invalid_key_ids.clone(),
        );
        kms.register("dek_source_cache_size", "Seeds in memory", families.sources.clone());
        let server = ("apiserver_id_hash".into(), server_hash.to_owned().into());
        let kms = kms.sub_registry_with_label(server);
        kms.register(
            "key_id_hash",
            "Values that were encrypted or decrypted, by key id",
            families.key_uses.clone(),
        );
        kms.register(
            "key_id_hash_last_timestamp_seconds",
            "Time at which a key id was used last",
            families.key_times.clone(),
        );
        kms.register(
            "key_id_hash_status_last_timestamp_seconds",
            "Time at which a plugin has reported a key id last",
            families.key_reports.clone(),
        );
    }

    /// The counts of values of a resource.
    pub(crate) fn of_resource(&self, resource: &str) -> Transformations {
        Transformations {
            families: self.0.clone(),
            resource: resource.to_owned(),
            known: Vec::new(),
        }
    }

    /// A value needs a seed that is not in memory.
    pub(crate) fn missed(&self) {
        self.0.misses.inc();
    }

    /// A seed was made, or not, in this time.
    pub(crate) fn generated(&self, is_made: bool, elapsed: Duration) {
        match is_made {
            true => self.0.seeds.observe(elapsed.as_secs_f64()),
            false => _ = self.0.failed_seeds.inc(),
        }
    }

    /// A call of a plugin.
    pub(crate) fn called(
        &self,
        provider: &str,
        method: &'static str,
        error: Option<&RpcError>,
        elapsed: Duration,
    ) {
        let status = error.map_or_else(|| "OK".to_owned(), |error| error.code.to_string());
        let labels = [
            ("grpc_status_code", status),
            ("method_name", method.to_owned()),
            ("provider_name", provider.to_owned()),
        ];
        self.0.calls.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    /// A value was encrypted or decrypted with the key whose id has this hash: `direction` is
    /// `to_storage` or `from_storage`.
    pub(crate) fn key_used(
        &self,
        direction: &'static str,
        provider: &str,
        key_id_hash: &str,
        now: Timestamp,
    ) {
        let labels = [
            ("key_id_hash", key_id_hash.to_owned()),
            ("provider_name", provider.to_owned()),
            ("transformation_type", direction.to_owned()),
        ];
        if let Some(old) = latest(&mut self.0.used.lock(), &labels) {
            self.0.key_uses.remove(&old);
            self.0.key_times.remove(&old);
        }
        self.0.key_uses.get_or_create(&labels).inc();
        self.0.key_times.get_or_create(&labels).set(now.0.as_secs_f64());
    }

    /// A plugin has reported the key whose id has this hash.
    pub(crate) fn key_reported(&self, provider: &str, key_id_hash: &str, now: Timestamp) {
        let labels =
            [("key_id_hash", key_id_hash.to_owned()), ("provider_name", provider.to_owned())];
        if let Some(old) = latest(&mut self.0.reported.lock(), &labels) {
            self.0.key_reports.remove(&old);
        }
        self.0.key_reports.get_or_create(&labels).set(now.0.as_secs_f64());
    }

    /// A plugin has reported something that is not a key id.
    pub(crate) fn invalid_key_id(&self, provider: &str, error: &'static str) {
        let labels = [("error", error.to_owned()), ("provider_name", provider.to_owned())];
        self.0.invalid_key_ids.get_or_create(&labels).inc();
    }

    /// How many seeds of a provider are in memory.
    pub(crate) fn sources(&self, provider: &str, n: usize) {
        let labels = [("provider_name", provider.to_owned())];
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.0.sources.get_or_create(&labels).set(n);
    }
}

/// Makes labels the most recent ones. Returns those that were dropped for them.
fn latest<const N: usize>(
    recent: &mut VecDeque<Labels<N>>,
    labels: &Labels<N>,
) -> Option<Labels<N>> {
    // The present key is nearly always the last one.
    if recent.back() == Some(labels) {
        return None;
    }
    match recent.iter().position(|known| known == labels) {
        Some(at) => _ = recent.remove(at),
        None if recent.len() == KEY_IDS_MAX => {
            let old = recent.pop_front();
            recent.push_back(labels.clone());
            return old;
        }
        None => {}
    }
    recent.push_back(labels.clone());
    None
}

/// Counts values of one resource.
#[derive(Debug)]
pub(crate) struct Transformations {
    families: Arc<Families>,
    resource: String,
    /// The series that were used before: a range has thousands of values.
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    direction: &'static str,
    prefix: String,
    status: &'static str,
    operations: Counter,
    /// Only of those that succeed, as in Kubernetes.
    durations: Option<Histogram>,
}

impl Transformations {
    /// Counts a value: `direction` is `to_storage` or `from_storage`, `prefix` that of the
    /// provider, `status` `OK`, a gRPC status or `unknown-non-grpc`.
    pub(crate) fn count(
        &mut self,
        direction: &'static str,
        prefix: &str,
        status: &'static str,
        elapsed: Duration,
    ) {
        let is = |known: &Known| {
            known.direction == direction && known.prefix == prefix && known.status == status
        };
        let at = self.known.iter().position(is).unwrap_or_else(|| {
            let series = self.series(direction, prefix, status);
            self.known.push(series);
            self.known.len() - 1
        });
        let known = &self.known[at];
        known.operations.inc();
        if let Some(durations) = &known.durations {
            durations.observe(elapsed.as_secs_f64());
        }
    }

    fn series(&self, direction: &'static str, prefix: &str, status: &'static str) -> Known {
        let direction_and_prefix = [
            ("transformation_type", direction.to_owned()),
            ("transformer_prefix", prefix.to_owned()),
        ];
        let [of_type, of_prefix] = direction_and_prefix.clone();
        let resource = ("resource", self.resource.clone());
        let operation = [resource, ("status", status.to_owned()), of_type, of_prefix];
        let durations = &self.families.durations;
        Known {
            direction,
            prefix: prefix.to_owned(),
            status,
            operations: self.families.operations.get_or_create_owned(&operation),
            durations: (status == "OK")
                .then(|| durations.get_or_create_owned(&direction_and_prefix)),
        }
    }
}
