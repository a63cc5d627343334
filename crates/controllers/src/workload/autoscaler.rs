//! HorizontalPodAutoscalers: how many replicas a target has.
//!
//! # Theory
//!
//! Every 15 s a pass reads the target's `scale` and the metrics, and writes the size:
//!
//! | the target has | wanted |
//! |---|---|
//! | no replicas | none: a user has switched it off. With `HPAScaleToZero`, if this controller has, as below |
//! | more than `maxReplicas`, fewer than `minReplicas` | the bound, at once |
//! | else | the greatest recommendation of all metrics (`replicas`), stabilized and limited (`behavior`) |
//!
//! If a metric is missing, the others may let the target grow, but not shrink. The target is of any
//! kind with the subresource `scale`. Metrics come from the metrics APIs of the server, or from
//! another [`MetricsSource`]. The rules, the conditions and the texts are those of
//! kube-controller-manager's `horizontal-pod-autoscaler-controller`, with its defaults. What it
//! remembers for stabilization is in memory only, as there.

mod behavior;
mod evaluate;
mod metrics;
mod overlap;
mod pod;
mod replicas;
mod rescale;
mod status;

pub use metrics::{MetricObject, MetricsError, MetricsSource, PodMetric, PodMetrics};

use super::COMPONENT;
use super::pod_control::message;
use super::view::view;
use crate::api::Api;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use behavior::{Behavior, Bounds, History, Limited};
use evaluate::{Found, Scaled};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::DynamicObject;
use kube_core::discovery::ApiResource;
use metrics::ApiMetrics;
use overlap::Selectors;
use parking_lot::Mutex;
use pod::Pod;
use replicas::Tolerance;
use rescale::{LastScale, Rescale};
use setpoint_object::label::Selector;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;
use setpoint_runtime::mapper::Mapper;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The controller's name in events.
const NAME: &str = "horizontal-pod-autoscaler";
/// Time between two passes over an autoscaler: 15 s, as `--horizontal-pod-autoscaler-sync-period`.
const PERIOD: Duration = Duration::from_secs(15);
/// How far the usage may be from the target: a tenth, as `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;
/// Number of autoscalers that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// How often a size is written again after a conflict: 5, as `retry.DefaultRetry`.
const WRITES_MAX: usize = 5;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

view! {
    /// A HorizontalPodAutoscaler.
    Autoscaler of api::HorizontalPodAutoscaler {
        /// The spec.
        spec: api::HorizontalPodAutoscalerSpec,
        /// The observed state.
        status: api::HorizontalPodAutoscalerStatus,
    }
}

/// The controller of HorizontalPodAutoscalers.
#[must_use]
pub struct HorizontalPodAutoscalerController {
    api: Api,
    source: Option<Arc<dyn MetricsSource>>,
    scales_to_zero: bool,
}

impl fmt::Debug for HorizontalPodAutoscalerController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HorizontalPodAutoscalerController")
            .field("has_own_source", &self.source.is_some())
            .field("scales_to_zero", &self.scales_to_zero)
            .finish_non_exhaustive()
    }
}

impl HorizontalPodAutoscalerController {
    /// Creates a controller that reads the server's metrics APIs.
    pub fn new(setup: Setup) -> Self {
        let scales_to_zero = setup.scales_to_zero();
        Self { api: setup.api("horizontal-pod-autoscaler"), source: None, scales_to_zero }
    }

    /// Reads metrics from `source` instead, for example from a simulation.
    pub fn metrics(mut self, source: Arc<dyn MetricsSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let Self { api, source, scales_to_zero } = self;
        let source = source.unwrap_or_else(|| Arc::new(ApiMetrics { api }));
        let pass = Pass {
            source,
            scales_to_zero,
            mapper: OnceLock::new(),
            known: Mutex::default(),
            selectors: Mutex::default(),
        };
        let controller = Controller::builder(NAME)
            .for_(Watch::<Autoscaler>::new())
            // Its cache is read.
            .watches(Watch::<Pod>::new().index_labels(), |_| Vec::new())
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Pass {
    source: Arc<dyn MetricsSource>,
    scales_to_zero: bool,
    mapper: OnceLock<Mapper>,
    /// One entry for each autoscaler.
    known: Mutex<BTreeMap<Request, Known>>,
    /// One entry for each autoscaler whose target is known.
    selectors: Mutex<Selectors>,
}

/// What is remembered of an autoscaler.
#[derive(Debug, Default)]
struct Known {
    /// When the last pass was.
    passed: Option<Timestamp>,
    history: History,
    /// The last write of a scale, until it is known to be carried out: its answer may be lost.
    attempt: Option<Rescale>,
    /// How the target was scaled last: the write of the status may fail.
    scaled: Option<LastScale>,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let Some(autoscaler) = client.api::<Autoscaler>().get_own(request).await? else {
            self.known.lock().remove(request);
            self.selectors.lock().remove(request);
            return Ok(Action::await_change());
        };
        let now = context.clock().now();
        // A change does not bring the next pass forward: rates are per pass.
        let wait = {
            let mut known = self.known.lock();
            let known = known.entry(request.clone()).or_default();
            let wait = known.passed.map_or(Duration::ZERO, |at| (at + PERIOD).since(now));
            if wait.is_zero() {
                known.passed = Some(now);
            }
            wait
        };
        if !wait.is_zero() {
            return Ok(Action::requeue_after(wait));
        }
        let mapper = self.mapper.get_or_init(|| Mapper::new(client.kube().clone()));
        let status = autoscaler.status.clone();
        let mut run = Run {
            pass: self,
            mapper,
            request,
            context,
            client: &client,
            reference: ObjectReference::of(&*autoscaler),
            autoscaler: &autoscaler,
            status,
            now,
        };
        if let Err(error) = run.scale().await {
            tracing::debug!(autoscaler = %request, error, "not scaled");
        }
        let status = run.status;
        status::write(&client, context, &autoscaler, &status, request).await?;
        Ok(Action::requeue_after(PERIOD))
    }
}

impl Pass {
    /// Remembers the selector of an autoscaler, and returns all autoscalers that select one of the
    /// pods, sorted.
    fn selecting(&self, request: &Request, selector: &Selector, pods: &[Arc<Pod>]) -> Vec<Request> {
        let mut selectors = self.selectors.lock();
        selectors.set(request, selector);
        selectors.selecting(pods)
    }
}

/// One pass over one autoscaler.
struct Run<'a> {
    pass: &'a Pass,
    mapper: &'a Mapper,
    request: &'a Request,
    context: &'a Context,
    client: &'a Client,
    reference: ObjectReference,
    autoscaler: &'a Autoscaler,
    /// What becomes of the status.
    status: api::HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

/// The size that a pass proposes, with the reason.
struct Desired {
    replicas: i32,
    reason: String,
    metrics: Option<Vec<api::MetricStatus>>,
}

impl Run<'_> {
    async fn scale(&mut self) -> Result<(), String> {
        let (resource, mut scale) = match self.read_scale().await {
            Ok(found) => found,
            Err(error) => {
                self.warn("FailedGetScale", &error);
                let message = format!(
                    "the HPA controller was unable to get the target's current scale: {error}"
                );
                self.set(ABLE, false, "FailedGetScale", message);
                return Err(error);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.set(ABLE, true, "SucceededGetScale", message);
        let current = replicas(&scale);
        self.with_history(|history, now| history.start(current, now));
        self.rescaled(current);
        let proposal = self.propose(&scale, current).await?;
        let Desired { replicas: desired, reason, metrics } = proposal;
        let is_rescaled = desired != current;
        if is_rescaled {
            let attempt = Rescale { from: current, to: desired, at: self.now };
            self.with_known(|known| known.attempt = Some(attempt));
            if let Err(error) = self.write_scale(&resource, &mut scale, desired).await {
                let note = format!("New size: {desired}; reason: {reason}; error: {error}");
                self.warn("FailedRescale", &note);
                let message =
                    format!("the HPA controller was unable to update the target scale: {error}");
                self.set(ABLE, false, "FailedUpdateScale", message);
                self.status.current_replicas = Some(current);
                self.status.current_metrics = metrics;
                return Err(error);
            }
            let message =
                format!("the HPA controller was able to update the target scale to {desired}");
            self.set(ABLE, true, "SucceededRescale", message);
            let note = format!("New size: {desired}; reason: {reason}");
            self.context.recorder().normal(&self.reference, "SuccessfulRescale", note);
            self.rescaled(desired);
        }
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.current_metrics = metrics;
        Ok(())
    }

    /// The resource and the scale of the target.
    async fn read_scale(&self) -> Result<(ApiResource, Scale), String> {
        let target = &self.autoscaler.spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or_default();
        let group = match version.split('/').collect::<Vec<_>>()[..] {
            [_] => "",
            [group, _] => group,
            _ => return Err(format!("unexpected GroupVersion string: {version}")),
        };
        let resource = match self.mapper.resolve_preferred(group, &target.kind).await {
            Ok(mapping) => mapping.resource,
            Err(error) if error.is_no_match() => {
                let kind = &target.kind;
                return Err(format!("no matches for kind {kind:?} in group {group:?}"));
            }
            Err(error) => return Err(message(&error)),
        };
        let key = self.target();
        let scales = self.client.api_with::<DynamicObject>(resource.clone()).scale();
        match scales.get(&key).await {
            Ok(Some(scale)) => Ok((resource, scale)),
            Ok(None) => {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                Err(format!("{}{group} {:?} not found", resource.plural, target.name))
            }
            Err(error) => Err(message(&error)),
        }
    }

    fn target(&self) -> Request {
        let name = self.autoscaler.spec.scale_target_ref.name.as_str();
        Request::new(self.request.namespace.clone(), name)
    }

    /// Writes the size; after a conflict again, with the latest scale.
    async fn write_scale(
        &self,
        resource: &ApiResource,
        scale: &mut Scale,
        desired: i32,
    ) -> Result<(), String> {
        let key = self.target();
        let scales = self.client.api_with::<DynamicObject>(resource.clone()).scale();
        for left in (0..WRITES_MAX).rev() {
            scale.spec.get_or_insert_default().replicas = Some(desired);
            match scales.replace(&key, scale).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() && left > 0 => {
                    if let Ok(Some(latest)) = scales.get(&key).await {
                        *scale = latest;
                    }
                }
                Err(error) => return Err(message(&error)),
            }
        }
        Ok(())
    }

    /// Proposes a size.
    async fn propose(&mut self, scale: &Scale, current: i32) -> Result<Desired, String> {
        let spec = &self.autoscaler.spec;
        let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let at_once = |replicas: i32, reason: &str| {
            Ok(Desired { replicas, reason: reason.to_owned(), metrics: None })
        };
        let is_own_zero = current == 0 && self.is_own_zero();
        if current == 0 && !(is_own_zero && (min != 0 || self.may_wake())) {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set(ACTIVE, false, "ScalingDisabled", message);
            if !self.pass.scales_to_zero {
                self.forget_zero();
            }
            return at_once(0, "");
        } else if current > max {
            return at_once(max, "Current number of replicas above Spec.MaxReplicas");
        } else if current < min && !is_own_zero {
            return at_once(min, "Current number of replicas below Spec.MinReplicas");
        }
        let (recommended, name, metrics) = match self.recommend(scale).await {
            Ok(found) => found,
            Err((metrics, error)) => {
                self.status.current_replicas = Some(current);
                self.status.current_metrics = metrics;
                self.warn("FailedComputeMetricsReplicas", &error);
                return Err(error);
            }
        };
        // A proposal is never negative.
        let recommended = recommended.max(0);
        let reason = match recommended.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{name} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let normalized = self.normalize(Bounds { current, min, max }, recommended);
        let replicas = if is_own_zero { normalized.max(min) } else { normalized };
        let reason = match replicas > normalized && reason.is_empty() {
            true => "Current number of replicas below Spec.MinReplicas".to_owned(),
            false => reason,
        };
        Ok(Desired { replicas, reason, metrics: Some(metrics) })
    }

    /// The greatest recommendation, its metric, and the status of all metrics. An error has the
    /// status too.
    async fn recommend(
        &mut self,
        scale: &Scale,
    ) -> Result<(i32, String, Vec<api::MetricStatus>), (Option<Vec<api::MetricStatus>>, String)>
    {
        let text = scale.status.as_ref().and_then(|status| status.selector.as_deref());
        let text = text.unwrap_or_default();
        let pods = self.select(text).map_err(|error| (None, error))?;
        let specs = self.autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let scaled = Scaled {
            source: &*self.pass.source,
            mapper: self.mapper,
            namespace: &self.request.namespace,
            selector: text,
            pods: &pods,
            spec_replicas: replicas(scale),
            status_replicas: scale.status.as_ref().map_or(0, |status| status.replicas),
            tolerance: self.tolerance(),
            now: self.now,
        };
        let mut statuses = Vec::with_capacity(specs.len());
        let mut failures = Vec::new();
        let (mut greatest, mut metric) = (0, String::new());
        for spec in specs {
            match scaled.evaluate(spec).await {
                Ok(Found { replicas, name, status }) => {
                    statuses.push(status);
                    if greatest == 0 || replicas > greatest {
                        (greatest, metric) = (replicas, name);
                    }
                }
                Err(failed) => {
                    // As in kube-controller-manager: an entry without a type.
                    statuses.push(api::MetricStatus::default());
                    self.warn(failed.reason, &failed.note);
                    failures.push(failed);
                }
            }
        }
        let n_failed = failures.len();
        let first = failures.into_iter().next();
        if let Some(first) = first
            && (n_failed >= specs.len() || greatest < replicas(scale))
        {
            let message =
                format!("the HPA was unable to compute the replica count: {}", first.note);
            self.set(ACTIVE, false, first.reason, message);
            let n = specs.len();
            let error = format!(
                "invalid metrics ({n_failed} invalid out of {n}), first error is: {}",
                first.error
            );
            return Err((Some(statuses), error));
        }
        let message =
            format!("the HPA was able to successfully calculate a replica count from {metric}");
        self.set(ACTIVE, true, "ValidMetricFound", message);
        Ok((greatest, metric, statuses))
    }

    /// The pods of the target, which no other autoscaler may have.
    fn select(&mut self, text: &str) -> Result<Vec<Arc<Pod>>, String> {
        if text.is_empty() {
            let error = "selector is required";
            self.warn("SelectorRequired", error);
            let message = "the HPA target's scale is missing a selector";
            self.set(ACTIVE, false, "InvalidSelector", message);
            return Err(error.to_owned());
        }
        let selector = Selector::parse(text).map_err(|error| {
            let error = format!(
                "couldn't convert selector into a corresponding internal selector object: {error}"
            );
            self.warn("InvalidSelector", &error);
            self.set(ACTIVE, false, "InvalidSelector", error.clone());
            error
        })?;
        let pods = self.client.api::<Pod>().select().namespace(self.request.namespace.clone());
        let pods = pods.labels(selector.clone()).all().map_err(|error| message(&error))?;
        let selecting = self.pass.selecting(self.request, &selector, &pods);
        if selecting.len() > 1 {
            let names: Vec<String> =
                selecting.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect();
            let error = format!(
                "pods by selector {text} are controlled by multiple HPAs: [{}]",
                names.join(" ")
            );
            self.warn("AmbiguousSelector", &error);
            self.set(ACTIVE, false, "AmbiguousSelector", error.clone());
            return Err(error);
        }
        Ok(pods)
    }

    /// The recommendation, stabilized and limited.
    fn normalize(&mut self, bounds: Bounds, recommended: i32) -> i32 {
        let behavior = self.behavior();
        let current = bounds.current;
        let (stable, limited) = self.with_history(|history, now| match &behavior {
            None => {
                let stable = history.stabilized(recommended, now);
                (stable, behavior::limited(bounds, stable))
            }
            Some(behavior) => {
                let stable = history.stabilized_by(behavior, current, recommended, now);
                (stable, history.limited(behavior, bounds, stable, now))
            }
        });
        let is_up = behavior.is_some() && recommended >= current;
        let (reason, message) = match (stable == recommended, is_up) {
            (true, _) => ("ReadyForNewScale", "recommended size matches current size"),
            (false, true) => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
            (false, false) => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
        };
        self.set(ABLE, true, reason, message);
        let Limited { replicas, reason, message } = limited;
        self.set(LIMITED, replicas != stable, reason, message);
        replicas
    }

    fn with_known<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(self.pass.known.lock().entry(self.request.clone()).or_default())
    }

    fn with_history<T>(&self, act: impl FnOnce(&mut History, Timestamp) -> T) -> T {
        self.with_known(|known| act(&mut known.history, self.now))
    }

    fn behavior(&self) -> Option<Behavior> {
        let behavior = self.autoscaler.spec.behavior.as_ref()?;
        Some(Behavior::new(behavior.scale_up.as_ref(), behavior.scale_down.as_ref()))
    }

    fn tolerance(&self) -> Tolerance {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        let of = |rules: Option<&api::HPAScalingRules>| {
            let own = rules.and_then(|rules| Quantity::parse(&rules.tolerance.as_ref()?.0).ok());
            own.map_or(TOLERANCE, |own| own.approximate())
        };
        Tolerance {
            down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }

    fn warn(&self, reason: &str, note: &str) {
        self.context.recorder().warning(&self.reference, reason, note);
    }

    /// Sets a condition. Its time changes with its status.
    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let n = conditions.iter().position(|held| held.type_ == kind).unwrap_or_else(|| {
            let type_ = kind.to_owned();
            conditions.push(api::HorizontalPodAutoscalerCondition { type_, ..Default::default() });
            conditions.len() - 1
        });
        let held = &mut conditions[n];
        let status = if is_true { "True" } else { "False" };
        if held.status != status {
            status.clone_into(&mut held.status);
            held.last_transition_time = Some(time(self.now));
        }
        held.reason = Some(reason.to_owned());
        held.message = Some(message.into());
    }
}

fn replicas(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

fn time(at: Timestamp) -> Time {
    let seconds = i64::try_from(at.0.as_secs()).unwrap_or(i64::MAX);
    Time(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX))
}
