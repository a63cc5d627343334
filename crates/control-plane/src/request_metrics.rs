//! Request metrics of the API server, under kube-apiserver's names.

use crate::families::Families;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use setpoint_apiserver::{
    Attributes, Ended, Identity, Metrics as Observer, Requested, Subresource, Verb, WatchMetrics,
};
use setpoint_registry::Resource;
use setpoint_registry::figures::{Distribution, Family, Histogram, Labels as Pairs, Series};
use setpoint_runtime::metrics::Metrics;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets of `apiserver_request_duration_seconds`, in seconds, as in
/// kube-apiserver.
pub const REQUEST_SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// The same of `apiserver_request_sli_duration_seconds`.
const SLI_SECONDS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];
/// Buckets of answers in bytes.
const ANSWER_BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Buckets of events of watches in bytes.
const EVENT_BYTES: [f64; 8] =
    [1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0];
/// Buckets of authentication, in seconds: 1 ms, doubled 14 times.
const AUTHENTICATION_SECONDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

/// Maximum number of sets of labels that are counted. Definitions come and go, and their series
/// remain; with twenty series each, this is enough for 500 of them.
const SERIES_MAX: usize = 10_000;

/// Counts requests to an API server in a manager's or a program's [`Metrics`]:
///
/// | metric | labels |
/// |---|---|
/// | `apiserver_request_total` | those of long-running requests, `dry_run`, `code` |
/// | `apiserver_request_duration_seconds` | the same without `code` |
/// | `apiserver_request_sli_duration_seconds` | the same labels as below; without watches, dry runs, and the time in queues and in webhooks |
/// | `apiserver_response_sizes` | those of long-running requests; reads only |
/// | `apiserver_request_terminations_total` | those of long-running requests, `code` |
/// | `apiserver_current_inflight_requests` | `request_kind`: `mutating`, `readOnly` |
/// | `apiserver_longrunning_requests` | `verb`, `group`, `version`, `resource`, `subresource`, `scope`, `component` |
/// | `apiserver_watch_events_total`, `apiserver_watch_events_sizes` | `group`, `version`, `resource` |
/// | `apiserver_requested_deprecated_apis` | `group`, `version`, `resource`, `subresource`, `removed_release` |
/// | `authentication_attempts`, `authentication_duration_seconds` | `result`: `success`, `failure` (no credentials), `error` (refused ones) |
/// | `authenticated_user_requests` | `username`: one of five that kube-apiserver names, `email_id`, `other` |
///
/// A request is counted when it has ended: its answer is sent, or its watch is over. The code is 0
/// if the client disconnected before the response.
///
/// Text chosen by a client never becomes a label. A resource without a row in this server's catalog
/// is `other`, also when a [`Backend`](setpoint_apiserver::Backend) serves it. A verb unknown to
/// kube-apiserver is `other` too. For a path, `subresource` is the server's root (`/healthz`,
/// `/apis`), or empty if the path is not under one. Series of a deleted definition remain; beyond
/// 10,000 sets of labels, a resource that has none is `other`. The verb of an apply is `APPLY`. The
/// gauge of requests in flight is the value at the scrape, not the maximum of the last second.
///
/// ```
/// use setpoint_control_plane::ControlPlane;
/// use setpoint_runtime::metrics::Metrics;
///
/// let metrics = Metrics::new();
/// // Counts, and serves `/metrics`.
/// let plane = ControlPlane::builder().serve_metrics(&metrics).build();
/// assert!(metrics.prometheus().contains("apiserver_current_inflight_requests"));
/// ```
#[derive(Debug, Default)]
pub struct RequestMetrics {
    /// A request that ends is counted in one row, in place.
    rows: RwLock<HashMap<Answered, Row>>,
    terminated: Mutex<HashMap<(Labels, u16), u64>>,
    long_running: RwLock<HashMap<Labels, Gauge>>,
    /// Writes, then reads.
    in_flight: [AtomicI64; 2],
    watches: Mutex<HashMap<WatchKey, Arc<WatchCounts>>>,
    deprecated: RwLock<HashSet<Deprecated>>,
    authentication: Authentication,
}

/// What is counted of requests with the same labels and code.
#[derive(Debug)]
struct Row {
    took: Histogram,
    /// Without the time in queues and in webhooks.
    own: Histogram,
    sizes: Histogram,
}

impl Row {
    fn new() -> Self {
        Self {
            took: Histogram::new(&REQUEST_SECONDS),
            own: Histogram::new(&SLI_SECONDS),
            sizes: Histogram::new(&ANSWER_BYTES),
        }
    }
}

/// The watches of one version of a resource.
#[derive(Debug)]
struct WatchCounts(Histogram);

impl WatchMetrics for WatchCounts {
    fn sent(&self, n_bytes: usize) {
        self.0.size(n_bytes as u64);
    }
}

/// Group, version and resource.
type WatchKey = [Arc<str>; 3];

/// A version of a resource that is deprecated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Deprecated {
    group: LabelValue,
    version: LabelValue,
    resource: LabelValue,
    subresource: LabelValue,
    /// The release that no longer has it; empty if none is known.
    removed: String,
}

/// The users that kube-apiserver names, then addresses and all others.
const USERS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

#[derive(Debug)]
struct Authentication {
    /// Successes, then requests without credentials, then with refused ones.
    took: [Histogram; 3],
    /// In the order of [`USERS`].
    users: [AtomicU64; USERS.len()],
}

impl Default for Authentication {
    fn default() -> Self {
        let took = std::array::from_fn(|_| Histogram::new(&AUTHENTICATION_SECONDS));
        Self { took, users: Default::default() }
    }
}

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Labels {
    verb: &'static str,
    group: LabelValue,
    version: LabelValue,
    resource: LabelValue,
    subresource: LabelValue,
    scope: &'static str,
    component: &'static str,
}

/// What a row is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Answered {
    request: Labels,
    dry_run: &'static str,
    code: u16,
}

/// A label value, shared with the catalog row it comes from, so that a request allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LabelValue {
    Fixed(&'static str),
    OfRow(Arc<str>),
    Subresource(Subresource),
}

impl LabelValue {
    fn text(&self) -> String {
        match self {
            Self::Fixed(text) => (*text).to_owned(),
            Self::OfRow(text) => text.to_string(),
            Self::Subresource(subresource) => subresource.as_str().to_owned(),
        }
    }
}

const NONE: LabelValue = LabelValue::Fixed("");
const OTHER: LabelValue = LabelValue::Fixed("other");

impl Labels {
    fn of(request: &Attributes) -> Self {
        let verb = verb(request);
        match &request.requested {
            Requested::Resource(target) => Self {
                verb,
                group: LabelValue::OfRow(target.resource.gvk.group.clone()),
                version: LabelValue::OfRow(target.resource.gvk.version.clone()),
                resource: LabelValue::OfRow(target.resource.resource.clone()),
                subresource: target.subresource.clone().map_or(NONE, LabelValue::Subresource),
                scope: scope(request),
                component: COMPONENT,
            },
            Requested::Path(path) => Self {
                verb,
                group: NONE,
                version: NONE,
                resource: NONE,
                subresource: LabelValue::Fixed(root(path)),
                scope: "",
                component: "",
            },
            _ => Self {
                verb,
                group: NONE,
                version: NONE,
                resource: OTHER,
                subresource: NONE,
                scope: scope(request),
                component: COMPONENT,
            },
        }
    }
}

impl Labels {
    fn pairs(&self) -> Pairs {
        vec![
            ("verb", self.verb.to_owned()),
            ("group", self.group.text()),
            ("version", self.version.text()),
            ("resource", self.resource.text()),
            ("subresource", self.subresource.text()),
            ("scope", self.scope.to_owned()),
            ("component", self.component.to_owned()),
        ]
    }
    /// The same for a resource that is not named.
    fn of_other(self) -> Self {
        Self { group: NONE, version: NONE, resource: OTHER, subresource: NONE, ..self }
    }
    /// Whether the sizes of answers are counted: only those of reads are.
    fn is_read(&self) -> bool {
        matches!(self.verb, "GET" | "LIST" | "WATCH")
    }
}

const COMPONENT: &str = "apiserver";

/// The verb as kube-apiserver's metrics name it: the HTTP method where there is one.
fn verb(request: &Attributes) -> &'static str {
    use Subresource::{Attach, Exec, PortForward, Proxy};
    if matches!(request.subresource(), Some(Attach | Exec | PortForward | Proxy)) {
        return "CONNECT";
    }
    match &request.verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if request.is_apply() => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Other(method) => match &**method {
            "head" => "GET",
            "post" => "POST",
            "put" => "PUT",
            _ => "other",
        },
        _ => "other",
    }
}

fn scope(request: &Attributes) -> &'static str {
    if !request.name().is_empty() || request.verb == Verb::Create {
        "resource"
    } else if !request.namespace().is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

/// The root of a path, if it is one of the server's own.
fn root(path: &str) -> &'static str {
    const ROOTS: [&str; 9] = [
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/apis",
        "/api",
    ];
    let is_root = |root: &&str| {
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ROOTS.into_iter().find(|root| is_root(root)).unwrap_or_default()
}

impl RequestMetrics {
    /// Registers the metrics. Registering twice in the same [`Metrics`] produces duplicate series.
    pub fn register(metrics: &Metrics) -> Arc<Self> {
        let new = Arc::new(Self::default());
        let read = new.clone();
        Families::register(metrics, move || read.families());
        new
    }

    fn in_flight(&self, request: &Attributes) -> &AtomicI64 {
        &self.in_flight[usize::from(request.verb.is_read_only())]
    }

    /// Counts a long-running request that begins (1) or ends (-1).
    fn long_running(&self, request: &Attributes, change: i64) {
        let labels = Labels::of(request);
        if let Some(gauge) = self.long_running.read().get(&labels) {
            gauge.inc_by(change);
            return;
        }
        let mut all = self.long_running.write();
        // Once there is no room, there never is: the end finds what the begin has counted.
        entry(&mut all, labels, Labels::of_other).or_default().inc_by(change);
    }

    fn deprecated(&self, request: &Attributes) {
        let Ok(target) = request.target() else { return };
        if target.resource.deprecation.is_none() {
            return;
        }
        let labels = Labels::of(request);
        let requested = Deprecated {
            group: labels.group,
            version: labels.version,
            resource: labels.resource,
            subresource: labels.subresource,
            removed: target.resource.removed_release().unwrap_or_default().to_owned(),
        };
        let has_room = {
            let known = self.deprecated.read();
            known.len() < SERIES_MAX && !known.contains(&requested)
        };
        if has_room {
            self.deprecated.write().insert(requested);
        }
    }

    fn families(&self) -> Vec<Family> {
        let mut families = self.of_requests();
        families.extend(self.of_watches());
        families.extend(self.authentication.families());
        families
    }

    fn of_requests(&self) -> Vec<Family> {
        let mut total = Vec::new();
        let [mut took, mut own, mut sizes] = [(); 3].map(|()| BTreeMap::new());
        for (answered, row) in &*self.rows.read() {
            let labels = answered.request.pairs();
            let timed = [&labels[..], &[("dry_run", answered.dry_run.to_owned())]].concat();
            let counts = row.took.times();
            let coded = [&timed[..], &[("code", answered.code.to_string())]].concat();
            total.push((coded, counts.count()));
            add(&mut took, timed, counts);
            add(&mut own, labels.clone(), row.own.times());
            add(&mut sizes, labels, row.sizes.sizes());
        }
        let terminated = self.terminated.lock().clone().into_iter().map(|((labels, code), n)| {
            ([&labels.pairs()[..], &[("code", code.to_string())]].concat(), n)
        });
        let long_running = self.long_running.read();
        let long_running = long_running.iter();
        let long_running = long_running.map(|(labels, n)| (labels.pairs(), positive(n.get())));
        let kinds = ["mutating", "readOnly"].into_iter().zip(&self.in_flight);
        let in_flight = kinds
            .map(|(kind, n)| (vec![("request_kind", kind.to_owned())], positive(n.load(Relaxed))));
        vec![
            Family {
                name: "apiserver_request_total",
                help: "Requests that are over, by what they were and the HTTP status code",
                series: Series::Counters(total),
            },
            Family {
                name: "apiserver_request_duration_seconds",
                help: "How long requests took; watches as long as they were open",
                series: histograms(took),
            },
            Family {
                name: "apiserver_request_sli_duration_seconds",
                help: "How long requests took, without the time in queues and in webhooks",
                series: histograms(own),
            },
            Family {
                name: "apiserver_response_sizes",
                help: "Bytes of the answers to reads, as they were encoded",
                series: histograms(sizes),
            },
            Family {
                name: "apiserver_request_terminations_total",
                help: "Requests that the server has ended to protect itself",
                series: Series::Counters(terminated.collect()),
            },
            Family {
                name: "apiserver_longrunning_requests",
                help: "Watches and streams that are open",
                series: Series::Gauges(long_running.collect()),
            },
            Family {
                name: "apiserver_current_inflight_requests",
                help: "Requests that are being answered, without long-running ones",
                series: Series::Gauges(in_flight.collect()),
            },
        ]
    }

    fn of_watches(&self) -> [Family; 3] {
        let (mut totals, mut sizes) = (Vec::new(), Vec::new());
        for ([group, version, resource], counts) in &*self.watches.lock() {
            let names = ["group", "version", "resource"].into_iter();
            let labels = names.zip([group, version, resource].map(|text| text.to_string()));
            let (labels, counts): (Pairs, _) = (labels.collect(), counts.0.sizes());
            totals.push((labels.clone(), counts.count()));
            sizes.push((labels, counts));
        }
        let deprecated = self.deprecated.read();
        let deprecated = deprecated.iter().map(|one| {
            let labels = vec![
                ("group", one.group.text()),
                ("version", one.version.text()),
                ("resource", one.resource.text()),
                ("subresource", one.subresource.text()),
                ("removed_release", one.removed.clone()),
            ];
            (labels, 1)
        });
        [
            Family {
                name: "apiserver_watch_events_total",
                help: "Events that were sent to watches",
                series: Series::Counters(totals),
            },
            Family {
                name: "apiserver_watch_events_sizes",
                help: "Bytes of events that were sent to watches",
                series: Series::Histograms(sizes),
            },
            Family {
                name: "apiserver_requested_deprecated_apis",
                help: "Deprecated versions of resources that were requested",
                series: Series::Gauges(deprecated.collect()),
            },
        ]
    }
}

/// The entry of labels, or if there is no room for them, that of others.
fn entry<K: Eq + Hash, T>(
    all: &mut HashMap<K, T>,
    labels: K,
    of_other: impl FnOnce(K) -> K,
) -> Entry<'_, K, T> {
    let has_room = all.len() < SERIES_MAX || all.contains_key(&labels);
    all.entry(if has_room { labels } else { of_other(labels) })
}

/// Adds a distribution to those with the same labels. One without values is left out.
fn add(all: &mut BTreeMap<Pairs, Distribution>, labels: Pairs, counts: Distribution) {
    use std::collections::btree_map::Entry;
    if counts.count() == 0 {
        return;
    }
    match all.entry(labels) {
        Entry::Vacant(entry) => _ = entry.insert(counts),
        Entry::Occupied(mut known) => known.get_mut().add(&counts),
    }
}

fn histograms(all: BTreeMap<Pairs, Distribution>) -> Series {
    Series::Histograms(all.into_iter().collect())
}

/// A reader may see the end of a request before its begin.
fn positive(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}

impl Authentication {
    fn families(&self) -> [Family; 3] {
        let results = ["success", "failure", "error"].into_iter().zip(&self.took);
        let results =
            results.map(|(result, took)| (vec![("result", result.to_owned())], took.times()));
        let took: Vec<_> = results.filter(|(_, took)| took.count() > 0).collect();
        let attempts = took.iter().map(|(labels, took)| (labels.clone(), took.count())).collect();
        let users = USERS.into_iter().zip(&self.users);
        let users = users.map(|(user, n)| (vec![("username", user.to_owned())], n.load(Relaxed)));
        [
            Family {
                name: "authentication_attempts",
                help: "Authenticated requests, by result",
                series: Series::Counters(attempts),
            },
            Family {
                name: "authentication_duration_seconds",
                help: "How long authentication took",
                series: Series::Histograms(took),
            },
            Family {
                name: "authenticated_user_requests",
                help: "Requests of authenticated users",
                series: Series::Counters(users.filter(|(_, n)| *n > 0).collect()),
            },
        ]
    }
}

impl Observer for RequestMetrics {
    fn authenticated(&self, identity: Option<&Identity>, has_credentials: bool, took: Duration) {
        let result = match (identity, has_credentials) {
            (Some(_), _) => 0,
            (None, false) => 1,
            (None, true) => 2,
        };
        self.authentication.took[result].time(took);
        if let Some(identity) = identity {
            let known = USERS[..5].iter().position(|user| *user == &*identity.user);
            let idx = known.unwrap_or(if identity.user.contains('@') { 5 } else { 6 });
            self.authentication.users[idx].fetch_add(1, Relaxed);
        }
    }

    fn begun(&self, request: &Attributes) {
        if request.is_long_running() {
            self.long_running(request, 1);
        } else {
            self.in_flight(request).fetch_add(1, Relaxed);
        }
    }

    fn ended(&self, request: &Attributes, ended: &Ended) {
        if request.is_long_running() {
            self.long_running(request, -1);
        } else {
            self.in_flight(request).fetch_sub(1, Relaxed);
        }
        self.deprecated(request);
        let dry_run = if request.dry_run { "All" } else { "" };
        let code = ended.code.unwrap_or_default();
        let answered = Answered { request: Labels::of(request), dry_run, code };
        if ended.is_terminated {
            let key = (answered.request.clone(), code);
            let of_other = |(labels, code): (Labels, u16)| (labels.of_other(), code);
            *entry(&mut self.terminated.lock(), key, of_other).or_default() += 1;
        }
        let count = |row: &Row| {
            row.took.time(ended.elapsed);
            if !request.dry_run && request.verb != Verb::Watch {
                row.own.time(ended.elapsed.saturating_sub(request.waited()));
            }
            // An answer over HTTP has a body.
            if answered.request.is_read() && ended.n_bytes > 0 {
                row.sizes.size(ended.n_bytes);
            }
        };
        if let Some(row) = self.rows.read().get(&answered) {
            return count(row);
        }
        let of_other =
            |answered: Answered| Answered { request: answered.request.of_other(), ..answered };
        let mut rows = self.rows.write();
        count(entry(&mut rows, answered.clone(), of_other).or_insert_with(Row::new));
    }

    fn watch(&self, resource: &Resource) -> Option<Arc<dyn WatchMetrics>> {
        let gvk = &resource.gvk;
        let key = [gvk.group.clone(), gvk.version.clone(), resource.resource.clone()];
        let mut watches = self.watches.lock();
        let counts = entry(&mut watches, key, |_| ["", "", "other"].map(Arc::from))
            .or_insert_with(|| Arc::new(WatchCounts(Histogram::new(&EVENT_BYTES))));
        Some(counts.clone())
    }
}

#[cfg(test)]
mod tests;
