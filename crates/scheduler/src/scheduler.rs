//! The scheduler's controllers.

mod groups;
mod watches;

pub(crate) use watches::pod_group_resource;

use crate::binder::{Binder, FIELD_MANAGER};
use crate::cycle::{Decision, Verdict};
use crate::group::{PodGroups, group_of};
use crate::pod::{Owner, OwnerKind, Pod};
use crate::state::{Assumed, Retry, State};
use k8s_openapi::api::core::v1;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::Value;
use setpoint_informer::{Cacheable, Event, Object};
use setpoint_object::label::Selector;
use setpoint_runtime::events::EventApi;
use setpoint_runtime::manager::AddError;
use setpoint_runtime::queue::{AddOptions, Priorities};
use setpoint_runtime::source::{Enqueue, KeySink, SourceRun, source_fn};
use setpoint_runtime::{
    Action, BoxError, BuildError, Context, Controller, Manager, Reconciler, Request,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The scheduler of pods that name none.
pub const SCHEDULER_NAME: &str = "default-scheduler";
/// Bindings and conditions that are written at the same time.
const WRITERS: usize = 16;
/// A refused pod is tried again after this time even if nothing has changed: five minutes, as in
/// kube-scheduler.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Refused pods that are compared with changes at once.
const SLICE_PODS: usize = 256;

/// Why a scheduler could not be added to a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// A controller could not be built: the scheduler's name is too long.
    #[error("build the scheduler's controllers")]
    Build(#[source] BuildError),
    /// The manager has another scheduler of this name, or takes no more members.
    #[error("add the scheduler to the manager")]
    Add(#[source] AddError),
}

/// A scheduler. Does nothing until a manager that it was added to runs. The server must have
/// `resource.k8s.io/v1`: Kubernetes 1.34 or later.
#[derive(Debug, Clone)]
#[must_use]
pub struct Scheduler {
    name: Arc<str>,
    seed: u64,
    in_place: bool,
    has_taint_rules: bool,
    pod_groups: PodGroups,
}

impl Scheduler {
    /// A scheduler of the pods with `schedulerName: default-scheduler`. `seed` chooses among
    /// equally good nodes.
    pub fn new(seed: u64) -> Self {
        let name = SCHEDULER_NAME.into();
        let pod_groups = PodGroups::Ignored;
        Self { name, seed, in_place: false, has_taint_rules: false, pod_groups }
    }

    /// Whether costly expressions about devices are evaluated on the thread of the cycle, for
    /// simulations: the relative speed of two threads is random. Default: on another thread.
    pub fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// Whether devices also have the taints of DeviceTaintRules, kube-scheduler's feature gate
    /// `DRADeviceTaintRules`. The server has to serve them in `resource.k8s.io/v1beta2`: without
    /// that, no pod is placed. Default: they have the taints of their slices only.
    pub fn device_taint_rules(mut self, has_taint_rules: bool) -> Self {
        self.has_taint_rules = has_taint_rules;
        self
    }

    /// What becomes of pods that belong to a PodGroup. Default: they are placed as all others.
    pub fn pod_groups(mut self, pod_groups: PodGroups) -> Self {
        self.pod_groups = pod_groups;
        self
    }

    /// The `schedulerName` of the pods that it places, and its name in events. Default:
    /// [`SCHEDULER_NAME`].
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds the scheduler to a manager, which runs it. Only one scheduler of a name may run in a
    /// cluster: two could fill the same place.
    ///
    /// # Errors
    ///
    /// The manager has another scheduler of this name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), SchedulerError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::with(SmallRng::seed_from_u64(self.seed), self.pod_groups)),
            name: self.name.clone(),
            changed: Notify::new(),
            pods: OnceLock::new(),
            written: OnceLock::new(),
        });
        let cycles = self.cycles(&shared).map_err(SchedulerError::Build)?;
        let writer = shared.clone();
        // As kube-scheduler's events, whatever those of the manager's controllers are.
        let recorder = manager.handle().recorder(self.name.clone());
        let recorder = recorder.in_api(EventApi::New).field_manager(FIELD_MANAGER);
        let writes = Controller::builder(format!("{}-writer", self.name))
            .concurrency(WRITERS)
            .source(source_fn("scheduling decisions", async move |keys: KeySink<Request>| {
                // A second start would be a second scheduler; controllers start once.
                _ = writer.written.set(keys);
                Ok(SourceRun::none())
            }))
            .build(Binder { shared, recorder })
            .map_err(SchedulerError::Build)?;
        manager.add(writes).map_err(SchedulerError::Add)?;
        manager.add(cycles).map_err(SchedulerError::Add)?;
        Ok(())
    }

    /// The controller that runs cycles, and keeps the state that they decide by.
    fn cycles(&self, shared: &Arc<Shared>) -> Result<Controller, BuildError> {
        let refused = shared.clone();
        let mut cycles = Controller::builder(&*self.name)
            // One cycle at a time: each sees what the one before has placed.
            .concurrency(1)
            .priorities(Priorities::Strict);
        cycles = watches::pods_and_nodes(cycles, shared);
        cycles = watches::owners(cycles, shared);
        cycles = watches::volumes(cycles, shared);
        cycles = watches::budgets(cycles, shared);
        cycles = watches::devices(cycles, shared);
        cycles = cycles
            .source(source_fn("refused pods", async move |keys: KeySink<Request>| {
                _ = refused.pods.set(keys.clone());
                Ok(SourceRun::new(async move {
                    refused.retry_refused(&keys).await;
                    Ok(())
                }))
            }))
            .sync_timeout(None);
        if self.has_taint_rules {
            cycles = watches::taint_rules(cycles, shared);
        }
        if self.pod_groups != PodGroups::Ignored {
            cycles = watches::pod_groups(cycles, shared);
        }
        cycles.build(Cycles { shared: shared.clone(), in_place: self.in_place })
    }
}

/// What the scheduler's parts share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) name: Arc<str>,
    /// Wakes the source of refused pods.
    changed: Notify,
    /// The keys of pods that wait.
    pods: OnceLock<KeySink<Request>>,
    /// The keys of pods with something to write.
    written: OnceLock<KeySink<Request>>,
}

impl Shared {
    /// A handler that takes objects of one type into the state: `None` if it is gone.
    fn on<K: Cacheable>(
        self: &Arc<Self>,
        put: impl Fn(&mut State, &Request, Option<&Value>) + Send + Sync + 'static,
    ) -> impl Fn(&Event<K>, &Enqueue<'_, Request>) + Send + Sync + 'static {
        let shared = self.clone();
        move |event, _| {
            let object = object(event);
            shared.put(|state| put(state, event.key(), object.as_ref()));
        }
    }

    /// Changes the state, and wakes the source of refused pods if that may help some.
    pub(crate) fn put(&self, put: impl FnOnce(&mut State)) {
        self.change(put);
    }

    /// The same for a change with a result.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let has_changed = state.has_changed();
        drop(state);
        if has_changed {
            self.changed.notify_one();
        }
        changed
    }

    /// A handler that takes in what owners of one kind select.
    fn on_owner<K: Cacheable>(
        self: &Arc<Self>,
        kind: OwnerKind,
        selector: impl Fn(&Value) -> Option<Selector> + Send + Sync + 'static,
    ) -> impl Fn(&Event<K>, &Enqueue<'_, Request>) + Send + Sync + 'static {
        self.on(move |state, key, owner| {
            let owner_key = Owner { kind, key: key.clone() };
            state.view.put_owner(owner_key, owner.and_then(&selector));
        })
    }

    fn on_pod(&self, event: &Event<v1::Pod>, keys: &Enqueue<'_, Request>) {
        let key = event.key();
        let earlier = self.state.lock().pod(key);
        let pod = match event {
            Event::Deleted { .. } => None,
            event => event.object().and_then(value).map(|pod| Pod::read(&pod, earlier.as_deref())),
        };
        let mut state = self.state.lock();
        let priority = match pod {
            Some(pod) => state.put_pod(pod, &self.name),
            None => {
                state.remove_pod(key);
                None
            }
        };
        let has_changed = state.has_changed();
        drop(state);
        if let Some(priority) = priority {
            keys.add_with(key.clone(), AddOptions::default().priority(priority));
        }
        if has_changed {
            self.changed.notify_one();
        }
    }

    /// Hands out refused pods that changes may help, a slice at a time.
    async fn retry_refused(&self, keys: &KeySink<Request>) {
        loop {
            // Cancel safe: a permit that is lost with it belongs to a scheduler that stops.
            self.changed.notified().await;
            loop {
                let woken = self.state.lock().take_woken(SLICE_PODS, Instant::now());
                let is_last = woken.len() < SLICE_PODS;
                woken.into_iter().for_each(|retry| add(keys, retry));
                if is_last {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let changes = self.state.lock().take_changes();
            if changes == 0 {
                continue;
            }
            let mut after = None;
            loop {
                let now = Instant::now();
                let (retries, last) =
                    self.state.lock().helped(changes, after.as_ref(), SLICE_PODS, now);
                retries.into_iter().for_each(|retry| add(keys, retry));
                after = last;
                if after.is_none() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hands out a pod again.
    pub(crate) fn retry(&self, retry: Option<Retry>) {
        if let (Some(keys), Some(retry)) = (self.pods.get(), retry) {
            add(keys, retry);
        }
    }

    /// Hands out what is to be written about a pod.
    fn write(&self, key: Request, priority: i32) {
        if let Some(keys) = self.written.get() {
            keys.add_with(key, AddOptions::default().priority(priority));
        }
    }
}

fn add(keys: &KeySink<Request>, retry: Retry) {
    let options = AddOptions::default().priority(retry.priority).after(retry.after);
    keys.add_with(retry.key, options);
}

/// The object of an event as a tree; `None` if it is gone.
fn object<K: Cacheable>(event: &Event<K>) -> Option<Value> {
    match event {
        Event::Deleted { .. } => None,
        event => event.object().and_then(value),
    }
}

/// The object as a tree; `None` if it is not JSON, which no server sends.
pub(crate) fn value<K: Cacheable>(object: &Object<K>) -> Option<Value> {
    serde_json::from_slice(&object.json()?).ok()
}

/// Runs cycles.
struct Cycles {
    shared: Arc<Shared>,
    /// Everything runs on the thread of the cycle.
    in_place: bool,
}

impl Reconciler for Cycles {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, _: Context) -> Result<Action, BoxError> {
        if group_of(&request).is_some() {
            // Boxed, so that cycles about single pods are small.
            return Box::pin(self.group_pass(&request)).await;
        }
        let shared = &self.shared;
        let (mut decision, mut rng) = {
            let mut state = shared.state.lock();
            let Some(pod) = state.begin(&request) else { return Ok(Action::await_change()) };
            let rng = SmallRng::from_rng(&mut state.rng);
            (Box::new(Decision::new(state.view.clone(), pod, state.first.clone())), rng)
        };
        let verdict = loop {
            match decision.step(&mut rng) {
                Some(verdict) => break verdict,
                // Cancel safe: nothing has been written.
                None => tokio::task::yield_now().await,
            }
            if decision.is_costly() && !self.in_place {
                let there = move || {
                    let step = decision.step(&mut rng);
                    (decision, rng, step)
                };
                let step;
                // Cancel safe, for the same reason.
                (decision, rng, step) = tokio::task::spawn_blocking(there).await?;
                if let Some(verdict) = step {
                    break verdict;
                }
            }
        };
        let (now, first) = (Instant::now(), decision.next_first());
        let cycle = decision.into_cycle();
        let priority = cycle.pod.spec.priority;
        let mut state = shared.state.lock();
        state.first = first;
        let action = match verdict {
            Verdict::Place(node) => match state.assume(&cycle, &node, now) {
                Assumed::Yes => Action::await_change(),
                Assumed::NoLongerFits => return Ok(Action::requeue()),
                // An event has queued what replaced it.
                Assumed::Obsolete => return Ok(Action::await_change()),
            },
            Verdict::Refuse(refused) => {
                let retry = state.refuse(cycle.pod, *refused, now);
                let after =
                    retry.map_or(RETRY_MAX, |retry| retry.after.max(Duration::from_millis(1)));
                Action::requeue_after(after)
            }
        };
        drop(state);
        shared.write(request, priority);
        Ok(action)
    }
}
