//! Resources that other servers of the same store have, and this one does not.
//!
//! # Theory
//!
//! Servers of one store may have different releases or options, so that one serves a resource and
//! another does not. A [`PeerServer`] is another server, with what its aggregated discovery lists.
//! Whoever finds the servers [sets](Peers::set) all of them, again and again.
//!
//! | a request for | goes to |
//! |---|---|
//! | a resource that is served here | nobody else |
//! | a resource that a peer lists | the handler of one of them, each in its turn, after authorization |
//! | the same, with the header `x-kubernetes-peer-proxied: true` | nobody: it has come from a peer |
//!
//! Aggregated discovery shows what peers list, too, unless a client asks for the profile `nopeer`.
//! The order of groups, versions and resources is merged in the order of the servers' names, so
//! that it is the same at all of them. What is served here is shown as it is here.
//!
//! Source: Kubernetes' `apiserver/pkg/util/peerproxy` and
//! `apiserver/pkg/endpoints/discovery/aggregated`.

use crate::extra::Handler;
use serde_json::{Map, Value};
use setpoint_registry::ResourcePath;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The header of a request that a peer has passed on. Its value is `true`.
pub const PEER_PROXIED: &str = "x-kubernetes-peer-proxied";

/// How long a request waits until peers are known for the first time: five seconds. Only requests
/// for resources that are not served here do.
const KNOWN_MAX: Duration = Duration::from_secs(5);

/// Another server.
#[derive(Clone)]
pub struct PeerServer {
    /// Its name, which differs from those of the others.
    pub name: String,
    /// What it serves: the entries of its aggregated discovery without its own peers
    /// (`APIGroupDiscovery`), those of the core group with others.
    pub groups: Vec<Value>,
    /// Passes requests on to it.
    pub handler: Arc<dyn Handler>,
}

impl fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerServer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The peers of a server: a handle, cheap to clone. A change applies to later requests.
#[derive(Debug, Clone)]
pub struct Peers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: not known yet, and somebody looks.
    table: watch::Sender<Option<Arc<PeerTable>>>,
    turn: AtomicUsize,
}

/// All peers at one moment.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    /// The name of this server.
    own: String,
    servers: Vec<PeerServer>,
    /// Who serves a resource: group, version, resource; indexes of servers.
    resources: HashMap<(String, String), HashMap<String, Vec<usize>>>,
}

/// No peers.
impl Default for Peers {
    fn default() -> Self {
        let (table, _) = watch::channel(Some(Arc::default()));
        Self(Arc::new(Inner { table, turn: AtomicUsize::new(0) }))
    }
}

impl Peers {
    /// Peers will be set soon. Until then, requests for resources that are not served here wait,
    /// for at most five seconds.
    pub fn expect(&self) {
        self.0.table.send_replace(None);
    }

    /// Replaces the peers. `own`: the name of this server among them. Walks over all they list.
    pub fn set(&self, own: &str, servers: Vec<PeerServer>) {
        let table = Arc::new(PeerTable::new(own, servers));
        self.0.table.send_replace(Some(table));
    }

    /// The present peers.
    pub(crate) fn table(&self) -> Arc<PeerTable> {
        self.0.table.borrow().clone().unwrap_or_default()
    }

    /// A peer that serves a resource.
    pub(crate) async fn find(&self, path: &ResourcePath) -> Option<Arc<dyn Handler>> {
        let mut known = self.0.table.subscribe();
        // Cancel safe: it waits for a state.
        let table =
            timeout(KNOWN_MAX, known.wait_for(Option::is_some)).await.ok()?.ok()?.clone()?;
        let of_version = table.resources.get(&(path.group.clone(), path.version.clone()))?;
        let serving = of_version.get(&path.resource)?;
        let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
        let server = serving.get(turn.checked_rem(serving.len())?)?;
        Some(table.servers.get(*server)?.handler.clone())
    }
}

/// A member of a discovery entry as text.
fn text<'v>(entry: &'v Value, pointer: &str) -> &'v str {
    entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A member of a discovery entry as a list.
fn list<'v>(entry: &'v Value, member: &str) -> &'v [Value] {
    entry.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The levels of a document: where the name of an entry is, and where its entries are.
const LEVELS: [(&str, &str); 3] =
    [("/metadata/name", "versions"), ("/version", "resources"), ("/resource", "")];

impl PeerTable {
    fn new(own: &str, mut servers: Vec<PeerServer>) -> Self {
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        let mut resources: HashMap<_, HashMap<String, Vec<usize>>> = HashMap::new();
        for (i, server) in servers.iter().enumerate() {
            for group in &server.groups {
                for version in list(group, "versions") {
                    let of_version = (text(group, LEVELS[0].0), text(version, LEVELS[1].0));
                    let of_version = (of_version.0.to_owned(), of_version.1.to_owned());
                    let serving = resources.entry(of_version).or_default();
                    for resource in list(version, "resources") {
                        let serving = serving.entry(text(resource, LEVELS[2].0).to_owned());
                        serving.or_default().push(i);
                    }
                }
            }
        }
        Self { own: own.to_owned(), servers, resources }
    }

    /// Whether peers list a resource of a named group that is not served here.
    pub(crate) fn has_more_than(&self, is_served: impl Fn(&str, &str, &str) -> bool) -> bool {
        let mut versions = self.resources.iter().filter(|((group, _), _)| !group.is_empty());
        versions.any(|((group, version), resources)| {
            resources.keys().any(|resource| !is_served(group, version, resource))
        })
    }

    /// The groups of this server and its peers. `local` are the entries of this server without the
    /// core group.
    pub(crate) fn merged(&self, local: &[Value]) -> Vec<Value> {
        let own = self.servers.partition_point(|server| server.name < self.own);
        let is_named = |group: &&Value| !text(group, LEVELS[0].0).is_empty();
        let of_peers = self.servers.iter().map(|server| server.groups.iter().filter(is_named));
        let mut lists: Vec<Vec<&Value>> = of_peers.map(Iterator::collect).collect();
        lists.insert(own, local.iter().collect());
        merge(&lists, own, &LEVELS)
    }
}

/// Merges lists of entries by their names. Entries of the list `own` are taken first, then those of
/// the others in their order.
fn merge(lists: &[Vec<&Value>], own: usize, levels: &[(&str, &str)]) -> Vec<Value> {
    let Some(((name, inner), below)) = levels.split_first() else { return Vec::new() };
    let mut entries: BTreeMap<&str, Vec<(usize, &Value)>> = BTreeMap::new();
    for (i, list) in lists.iter().enumerate() {
        for entry in list {
            entries.entry(text(entry, name)).or_default().push((i, entry));
        }
    }
    let names = lists.iter().map(|list| list.iter().map(|entry| text(entry, name)).collect());
    let order = merged_order(names.collect());
    let merged = order.into_iter().filter_map(|name| {
        let found = entries.get(name)?;
        let first = found.iter().find(|(i, _)| *i == own).or(found.first())?.1;
        if inner.is_empty() || found.len() == 1 {
            return Some(first.clone());
        }
        let lists: Vec<Vec<&Value>> =
            found.iter().map(|(_, entry)| list(entry, inner).iter().collect()).collect();
        let own = found.iter().position(|(i, _)| *i == own).unwrap_or(0);
        let mut members: Map<String, Value> = first.as_object().cloned().unwrap_or_default();
        members.insert((*inner).to_owned(), merge(&lists, own, below).into());
        Some(Value::Object(members))
    });
    merged.collect()
}

/// All names of some lists: the first list, with the names of each further one behind the name that
/// precedes them there.
fn merged_order(lists: Vec<Vec<&str>>) -> Vec<&str> {
    let mut lists = lists.into_iter();
    let mut merged = lists.next().unwrap_or_default();
    for list in lists {
        let known: HashSet<&str> = merged.iter().copied().collect();
        let mut behind: HashMap<Option<&str>, Vec<&str>> = HashMap::new();
        let (mut before, mut seen) = (None, HashSet::new());
        for name in list {
            if known.contains(name) {
                before = Some(name);
            } else if seen.insert(name) {
                behind.entry(before).or_default().push(name);
            }
        }
        if behind.is_empty() {
            continue;
        }
        let mut next = behind.remove(&None).unwrap_or_default();
        for name in merged {
            next.push(name);
            next.extend(behind.remove(&Some(name)).unwrap_or_default());
        }
        merged = next;
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{Body, RequestBody};
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty};
    use serde_json::json;

    #[test]
    fn names_stay_behind_those_that_precede_them() {
        let merged = |lists: &[&[&str]]| {
            merged_order(lists.iter().map(|list| list.to_vec()).collect()).join(" ")
        };
        assert_eq!(merged(&[]), "");
        assert_eq!(merged(&[&["a", "b"], &["a", "b"]]), "a b");
        assert_eq!(merged(&[&["a", "c"], &["a", "b", "b", "c", "d"]]), "a b c d");
        assert_eq!(merged(&[&["b"], &["a", "b"], &["a", "x"]]), "a x b");
        assert_eq!(merged(&[&[], &["a"], &["b"]]), "b a");
    }

    fn group(name: &str, versions: &[(&str, &[&str])]) -> Value {
        let version = |(version, resources): &(&str, &[&str])| {
            let resources: Vec<Value> =
                resources.iter().map(|name| json!({"resource": name})).collect();
            json!({"version": version, "resources": resources})
        };
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"metadata": {"name": name}, "versions": versions})
    }

    fn server(name: &str, groups: Vec<Value>) -> PeerServer {
        let text = name.to_owned();
        let handler = move |_: Request<RequestBody>| {
            let text = text.clone();
            async move { Response::new(Body::once(text)) }
        };
        PeerServer { name: name.to_owned(), groups, handler: Arc::new(handler) }
    }

    fn path(group: &str, version: &str, resource: &str) -> ResourcePath {
        ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            subresource: None,
        }
    }

    #[test]
    fn groups_versions_and_resources_are_merged() {
        let core = json!({"metadata": {}, "versions": [{"version": "v1", "resources": []}]});
        let of_peer = vec![
            core,
            group("apps", &[("v1", &["a"])]),
            group("batch", &[("v1", &["crons", "jobs"]), ("v2", &["jobs"])]),
        ];
        let table = PeerTable::new("b", vec![server("a", of_peer)]);
        let mut own_apps = group("apps", &[("v1", &["a"])]);
        own_apps["own"] = json!(true);
        let local = [own_apps.clone(), group("batch", &[("v1", &["jobs"])])];
        let batch = group("batch", &[("v1", &["crons", "jobs"]), ("v2", &["jobs"])]);
        assert_eq!(table.merged(&local), [own_apps.clone(), batch.clone()]);
        assert_eq!(table.merged(&[own_apps.clone(), batch.clone()]), [own_apps, batch]);
        assert_eq!(PeerTable::default().merged(&local), local);
        let is_served = |_: &str, version: &str, _: &str| version == "v1";
        assert!(table.has_more_than(is_served));
        assert!(!table.has_more_than(|_, _, _| true));
        assert!(!PeerTable::default().has_more_than(|_, _, _| false));
    }

    #[tokio::test(start_paused = true)]
    async fn peers_that_serve_a_resource_take_turns() {
        let peers = Peers::default();
        assert!(peers.find(&path("batch", "v1", "jobs")).await.is_none());
        peers.expect();
        let jobs = || vec![group("batch", &[("v1", &["jobs"])])];
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let none = vec![group("batch", &[("v1", &["crons"])])];
            peers.set("x", vec![server("a", jobs()), server("b", none), server("c", jobs())]);
        };
        let path = path("batch", "v1", "jobs");
        let (found, ()) = tokio::join!(peers.find(&path), late);
        assert!(found.is_some());
        let mut names = Vec::new();
        for _ in 0..4 {
            let handler = peers.find(&path).await.unwrap();
            let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
            let answer = handler.handle(Request::new(body)).await;
            let body = answer.into_body();
            names.push(String::from_utf8(body.as_bytes().unwrap().to_vec()).unwrap());
        }
        names.sort();
        assert_eq!(names, ["a", "a", "c", "c"]);
        peers.expect();
        let begun = tokio::time::Instant::now();
        assert!(peers.find(&path).await.is_none());
        assert_eq!(begun.elapsed(), KNOWN_MAX);
    }
}
