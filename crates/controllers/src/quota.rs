//! Resource quotas: `status.hard` is `spec.hard`, and `status.used` is what the objects of the
//! namespace use.
//!
//! # Theory
//!
//! ```text
//! quota is new, or its limits have changed ──┐
//! an object that it counts is gone, or ended ┼─▶ pass: read the quota, add up the objects, PUT status
//! five minutes have passed ──────────────────┘
//! ```
//!
//! The API server adds to the usage when objects are created, in the same commit. A pass reads the
//! quota *before* it lists the objects, and writes the status only if the quota has not changed
//! since. So no object that was created meanwhile is missing in what it writes. An object that was
//! deleted meanwhile causes another pass.
//!
//! A pass costs a list of each counted resource of the namespace. Charges of the API server cause
//! none.

use crate::api::{Api, Discovered, RequestError, Resource, discover, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::gc::{ObjectEvent, ObjectFeed};
use crate::setup::Setup;
use k8s_openapi::api::core::v1::ResourceQuota;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::Skim;
use setpoint_object::pod_phase;
use setpoint_object::quantity::Quantity;
use setpoint_object::skim::scalar;
use setpoint_object::time::Clock;
use setpoint_quota::pod::quantities;
use setpoint_quota::{Scopes, Term, Usage, add, is_relevant, usage};
use setpoint_runtime::{Action, BoxError, Context, Controller, Predicate, Request, Watch};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The controller's name in its user agent and in logs.
const NAME: &str = "resourcequota-controller";
/// Time between two passes over a quota if nothing happens: five minutes, as
/// kube-controller-manager's `--resource-quota-sync-period`.
pub const RESYNC_PERIOD: Duration = Duration::from_secs(300);
/// Pause before the second pass over new limits. Writers that have not seen the limits have ended
/// by then.
const SECOND_PASS: Duration = Duration::from_secs(2);
/// How often a pass starts over if the quota changes while it lists.
const ATTEMPTS_MAX: usize = 10;
/// Number of quotas that are processed at the same time: 5, as kube-controller-manager's
/// `--concurrent-resource-quota-syncs`.
const WORKERS: usize = 5;
/// Keys that wait for the queue.
const KEYS_MAX: usize = 1024;

/// Fills the status of resource quotas. It does nothing until [`QuotaController::run`].
#[must_use]
pub struct QuotaController {
    setup: Setup,
    feed: Option<Box<dyn ObjectFeed>>,
}

impl fmt::Debug for QuotaController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaController").finish_non_exhaustive()
    }
}

impl QuotaController {
    /// Creates a controller that starts from `setup`. Its clock decides whether the grace
    /// period of a pod is over.
    pub fn new(setup: Setup) -> Self {
        Self { setup, feed: None }
    }

    /// Follows `feed` for deleted objects. Default: usage is added up once per
    /// [`RESYNC_PERIOD`] only.
    pub fn feed(mut self, feed: impl ObjectFeed) -> Self {
        self.feed = Some(Box::new(feed));
        self
    }

    /// Runs until `stop`, then lets running passes finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If a part of it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let mut manager = self.setup.bare_manager().build();
        let counted = Arc::new(Counted::default());
        let quotas = Quotas {
            api: self.setup.api(NAME),
            clock: self.setup.clock().clone(),
            counted: counted.clone(),
            discovered: Mutex::new(None),
        };
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        // A charge of the API server changes the usage only.
        let has_new_limits = Predicate::new(|event: &Event<ResourceQuota>| match event {
            Event::Updated { new, .. } => !has_limits(new),
            _ => true,
        });
        let controller = Controller::builder(NAME)
            .for_(Watch::<ResourceQuota>::new().filter(has_new_limits))
            .channel(keys)
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(quotas))?;
        manager.add(controller)?;
        let follow = async {
            match self.feed {
                Some(feed) => follow(feed, &counted, sender).await,
                None => drop(sender),
            }
        };
        let follow = async {
            tokio::select! {
                biased;
                // Cancel safe: the program of the controller ends.
                () = stop.cancelled() => {}
                () = follow => {}
            }
        };
        let (ended, ()) = tokio::join!(manager.run(stop.clone()), follow);
        Ok(ended?)
    }
}

/// Whether the status has the limits of the spec.
fn has_limits(quota: &Object<ResourceQuota>) -> bool {
    let json = quota.json().unwrap_or_default();
    let Ok(quota) = serde_json::from_slice::<Value>(&json) else { return false };
    same(&quantities(&quota["spec"]["hard"]), &quantities(&quota["status"]["hard"]))
}
fn same(a: &Usage, b: &Usage) -> bool {
    a.len() == b.len()
        && a.iter().all(|(name, amount)| b.get(name).is_some_and(|b| b.compare(amount).is_eq()))
}

/// What the known quotas count: kinds, by namespace and name of the quota.
#[derive(Debug, Default)]
struct Counted(Mutex<BTreeMap<String, BTreeMap<String, HashSet<String>>>>);

impl Counted {
    fn set(&self, namespace: &str, name: &str, kinds: HashSet<String>) {
        let mut all = self.0.lock();
        all.entry(namespace.to_owned()).or_default().insert(name.to_owned(), kinds);
    }
    fn remove(&self, namespace: &str, name: &str) {
        let mut all = self.0.lock();
        let Some(quotas) = all.get_mut(namespace) else { return };
        quotas.remove(name);
        if quotas.is_empty() {
            all.remove(namespace);
        }
    }
    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
    /// The quotas of a namespace that count a kind.
    fn of(&self, namespace: &str, kind: &str) -> Vec<String> {
        let all = self.0.lock();
        let quotas = all.get(namespace).into_iter().flatten();
        quotas.filter(|(_, kinds)| kinds.contains(kind)).map(|(name, _)| name.clone()).collect()
    }
    fn all(&self) -> Vec<Request> {
        let all = self.0.lock();
        let one = |(namespace, quotas): (&String, &BTreeMap<String, HashSet<String>>)| {
            let names: Vec<Request> =
                quotas.keys().map(|name| Request::new(namespace.as_str(), name.as_str())).collect();
            names
        };
        all.iter().flat_map(one).collect()
    }
}

/// Sends the quotas that a change of an object may relieve, until the feed or the receiver ends.
async fn follow(mut feed: Box<dyn ObjectFeed>, counted: &Counted, keys: mpsc::Sender<Request>) {
    let mut is_listing = true;
    while let Some(event) = feed.next().await {
        let (bytes, is_deleted) = match event {
            ObjectEvent::Restarted => {
                is_listing = true;
                continue;
            }
            ObjectEvent::Synced => {
                is_listing = false;
                // Deletions before it are not known one by one.
                for key in counted.all() {
                    if keys.send(key).await.is_err() {
                        return;
                    }
                }
                continue;
            }
            ObjectEvent::Put(bytes) => (bytes, false),
            ObjectEvent::Deleted(bytes) => (bytes, true),
        };
        if is_listing || counted.is_empty() || !is_deleted && !may_relieve(&bytes) {
            continue;
        }
        let Ok(skim) = Skim::of(&bytes) else { continue };
        for name in counted.of(&skim.namespace, &skim.kind) {
            if keys.send(Request::new(&*skim.namespace, name.as_str())).await.is_err() {
                return;
            }
        }
    }
}
/// Whether an object may be a pod that needs no resources any more, or one that an update moved out
/// of the scope `NotTerminating`. Deadlines cannot be removed, so none moves back.
fn may_relieve(object: &[u8]) -> bool {
    let phase = scalar(object, &["status", "phase"]);
    phase.as_deref().is_some_and(pod_phase::is_terminal)
        || scalar(object, &["spec", "activeDeadlineSeconds"]).is_some()
}

/// Reconciles one quota.
struct Quotas {
    api: Api,
    clock: Clock,
    counted: Arc<Counted>,
    /// The resources of the server, until one is missing.
    discovered: Mutex<Option<Arc<Discovered>>>,
}

impl BoxedReconciler for Quotas {
    type Error = RequestError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, RequestError> {
        let namespace = &*request.namespace;
        let name = &*request.name;
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{name}");
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut quota) = self.api.get_opt(&path).await? else {
                self.counted.remove(namespace, name);
                return Ok(Action::await_change());
            };
            let hard = quantities(&quota["spec"]["hard"]);
            let resources = self.resources(&hard).await?;
            let kinds = resources.iter().map(|resource| resource.kind.clone()).collect();
            // Before the list: a deletion after it causes another pass.
            self.counted.set(namespace, name, kinds);
            let used = self.add_up(namespace, &hard, &Term::all(&quota), &resources).await?;
            let status = &quota["status"];
            let has_limits = same(&hard, &quantities(&status["hard"]));
            if has_limits && same(&used, &quantities(&status["used"])) {
                return Ok(Action::requeue_after(RESYNC_PERIOD));
            }
            quota["status"] = json!({"hard": shown(&hard), "used": shown(&used)});
            match self.api.put(&format!("{path}/status"), &quota).await {
                Err(error) if error.is_conflict() => continue,
                Err(error) if error.is_not_found() => {
                    self.counted.remove(namespace, name);
                    return Ok(Action::await_change());
                }
                written => _ = written?,
            }
            return Ok(Action::requeue_after(if has_limits { RESYNC_PERIOD } else { SECOND_PASS }));
        }
        Ok(Action::requeue_after(SECOND_PASS))
    }
}

impl Quotas {
    /// The resources that limits are about.
    async fn resources(&self, hard: &Usage) -> Result<Vec<Resource>, RequestError> {
        let find = |discovered: &Discovered| -> (Vec<Resource>, bool) {
            let is_counted = |resource: &&Resource| {
                resource.namespaced
                    && resource.serves("list")
                    && !is_event(resource)
                    && hard.keys().any(|n| is_relevant(n, &resource.group, &resource.resource))
            };
            let found: Vec<Resource> =
                discovered.resources.iter().filter(is_counted).cloned().collect();
            let is_known =
                |name: &String| found.iter().any(|r| is_relevant(name, &r.group, &r.resource));
            let is_complete = hard.keys().all(is_known);
            (found, is_complete)
        };
        let known = self.discovered.lock().clone();
        if let Some(known) = known
            && let (found, true) = find(&known)
        {
            return Ok(found);
        }
        let discovered = Arc::new(Box::pin(discover(&self.api)).await?);
        let (found, _) = find(&discovered);
        *self.discovered.lock() = Some(discovered);
        Ok(found)
    }

    /// What the objects of a namespace use of the limits.
    async fn add_up(
        &self,
        namespace: &str,
        hard: &Usage,
        terms: &[Term],
        resources: &[Resource],
    ) -> Result<Usage, RequestError> {
        let now = self.clock.now().0.as_secs();
        // As in the reference, what no resource is counted for has no usage.
        let is_counted =
            |name: &&String| resources.iter().any(|r| is_relevant(name, &r.group, &r.resource));
        let counted = hard.keys().filter(is_counted);
        let mut sum: Usage = counted.map(|name| (name.clone(), Quantity::default())).collect();
        for resource in resources {
            let (group, plural) = (&*resource.group, &*resource.resource);
            let collection = resource.collection(namespace);
            let listed = self.api.list_pages(&collection, |object| {
                let scopes = match group.is_empty() {
                    true => Scopes::of(plural, &object),
                    false => Scopes::default(),
                };
                if terms.iter().all(|term| scopes.is_in(term)) {
                    let mut amounts = usage(group, plural, &object, now);
                    amounts.retain(|name, _| hard.contains_key(name));
                    add(&mut sum, &amounts);
                }
            });
            // A 404: its definition was deleted.
            ignore_not_found(listed.await)?;
        }
        Ok(sum)
    }
}
/// Whether a resource is one of Kubernetes' Events, which are not counted.
fn is_event(resource: &Resource) -> bool {
    resource.resource == "events" && matches!(&*resource.group, "" | "events.k8s.io")
}
fn shown(amounts: &Usage) -> Map<String, Value> {
    amounts.iter().map(|(name, amount)| (name.clone(), amount.as_str().into())).collect()
}
