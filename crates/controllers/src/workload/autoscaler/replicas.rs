//! From metrics to a recommended number of replicas. No requests, no clock.
//!
//! # Theory
//!
//! The recommendation is the number of pods times the usage ratio, present to target, rounded up.
//! Within the tolerance around 1 it is the present number. Pods count like this:
//!
//! | pod | counts as |
//! |---|---|
//! | being deleted, or `Failed` | nothing |
//! | `Pending`; for CPU also not ready yet | 0 % if the others need more, else nothing |
//! | without a metric | 0 % if the others need more, 100 % if they need less |
//! | any other | what its metric says |
//!
//! If that correction would turn growing into shrinking or the reverse, the size stays.

use super::metrics::PodMetric;
use setpoint_object::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long the CPU of a new pod may be unrepresentative of its load: 5 min, as
/// `--horizontal-pod-autoscaler-cpu-initialization-period`.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
/// How long after its start a pod's first change of readiness may be: 30 s, as
/// `--horizontal-pod-autoscaler-initial-readiness-delay`.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// How far the usage ratio may be from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerance {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What counts of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodState {
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) is_being_deleted: bool,
    pub(super) started: Option<Timestamp>,
    /// The condition `Ready`: whether it is false, whether it is true, and since when.
    pub(super) ready: Option<Ready>,
}

/// The condition `Ready` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) is_true: bool,
    pub(super) is_false: bool,
    pub(super) since: Timestamp,
}

/// What each pod should use, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A percentage of the requests, which are given by pod.
    Utilization { percent: i32, requests: BTreeMap<String, i64> },
    /// This much.
    Average(i64),
}

/// A recommendation, with the usage that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The percentage of the requests; `None` for other targets.
    pub(super) utilization: Option<i32>,
    /// The usage of a pod, or of everything, in thousandths.
    pub(super) usage: i64,
}

/// The pods of a target, by what their metrics are worth.
#[derive(Debug, Default)]
struct Groups<'p> {
    n_counted: usize,
    unready: BTreeSet<&'p str>,
    missing: BTreeSet<&'p str>,
    ignored: BTreeSet<&'p str>,
}

impl<'p> Groups<'p> {
    fn new(
        pods: &'p [PodState],
        metrics: &BTreeMap<String, PodMetric>,
        is_cpu: bool,
        now: Timestamp,
    ) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = pod.name.as_str();
            if pod.is_being_deleted || pod.phase == "Failed" {
                groups.ignored.insert(name);
            } else if pod.phase == "Pending" {
                groups.unready.insert(name);
            } else {
                match metrics.get(name) {
                    None => _ = groups.missing.insert(name),
                    Some(metric) if is_cpu && pod.is_starting(metric, now) => {
                        groups.unready.insert(name);
                    }
                    Some(_) => groups.n_counted += 1,
                }
            }
        }
        groups
    }
}

impl PodState {
    /// Whether its CPU is not yet representative of its load.
    fn is_starting(&self, metric: &PodMetric, now: Timestamp) -> bool {
        let (Some(ready), Some(started)) = (self.ready, self.started) else { return true };
        if started + CPU_INITIALIZATION > now {
            // Not ready, or the window of the metric began before it was.
            ready.is_false || metric.at < ready.since + metric.window
        } else {
            // Never ready.
            ready.is_false && started + INITIAL_READINESS > ready.since
        }
    }
}

impl Target {
    /// The usage ratio, the percentage, and the usage of a pod.
    fn ratio(&self, usage: &BTreeMap<&str, i64>) -> Result<(f64, Option<i32>, i64), String> {
        match self {
            Self::Utilization { percent, requests } => {
                let known =
                    usage.iter().filter_map(|(pod, used)| Some((used, requests.get(*pod)?)));
                let (mut used_sum, mut requested_sum, mut n) = (0, 0, 0);
                for (used, requested) in known {
                    used_sum += i128::from(*used);
                    requested_sum += i128::from(*requested);
                    n += 1;
                }
                if requested_sum == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let present = used_sum * 100 / requested_sum;
                let present = i32::try_from(present).unwrap_or(i32::MAX);
                let ratio = f64::from(present) / f64::from(*percent);
                Ok((ratio, Some(present), to_i64(used_sum / n)))
            }
            Self::Average(target) => {
                let n = i128::try_from(usage.len().max(1)).unwrap_or(i128::MAX);
                let sum: i128 = usage.values().copied().map(i128::from).sum();
                let present = to_i64(sum / n);
                Ok((present as f64 / *target as f64, None, present))
            }
        }
    }

    /// What a pod without a metric is taken to use if the others need less.
    fn fallback(&self, pod: &str) -> i64 {
        match self {
            Self::Utilization { percent, requests } => {
                let request = requests.get(pod).copied().unwrap_or_default();
                to_i64(i128::from(request) * i128::from((*percent).max(100)) / 100)
            }
            Self::Average(target) => *target,
        }
    }
}

/// The recommendation for a metric of each pod.
///
/// # Errors
///
/// No pods, or no metrics that count.
pub(super) fn per_pod(
    pods: &[PodState],
    metrics: &BTreeMap<String, PodMetric>,
    target: &Target,
    current: i32,
    tolerance: Tolerance,
    is_cpu: bool,
    now: Timestamp,
) -> Result<Proposal, String> {
    require(pods)?;
    let groups = Groups::new(pods, metrics, is_cpu, now);
    let mut usage: BTreeMap<&str, i64> =
        metrics.iter().map(|(pod, metric)| (pod.as_str(), metric.milli)).collect();
    usage.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if usage.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let (ratio, utilization, used) = target.ratio(&usage)?;
    let proposal = |replicas| Proposal { replicas, utilization, usage: used };
    let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !counts_unready && groups.missing.is_empty() {
        return Ok(proposal(match tolerance.covers(ratio) {
            true => current,
            false => ceil(ratio * groups.n_counted as f64),
        }));
    }
    for pod in &groups.missing {
        if ratio < 1.0 {
            usage.insert(pod, target.fallback(pod));
        } else if ratio > 1.0 {
            usage.insert(pod, 0);
        }
    }
    if counts_unready {
        usage.extend(groups.unready.iter().map(|pod| (*pod, 0)));
    }
    let (corrected, _, _) = target.ratio(&usage)?;
    let is_reversed = ratio < 1.0 && corrected > 1.0 || ratio > 1.0 && corrected < 1.0;
    if tolerance.covers(corrected) || is_reversed {
        return Ok(proposal(current));
    }
    let replicas = ceil(corrected * usage.len() as f64);
    // More pods were counted than there should be, or fewer.
    let is_reversed =
        corrected < 1.0 && replicas > current || corrected > 1.0 && replicas < current;
    Ok(proposal(if is_reversed { current } else { replicas }))
}

/// The recommendation for one value for all pods together, such that it becomes `target`.
///
/// # Errors
///
/// There are no pods.
pub(super) fn of_value(
    pods: &[PodState],
    usage: i64,
    target: i64,
    current: i32,
    tolerance: Tolerance,
) -> Result<Proposal, String> {
    let ratio = usage as f64 / target as f64;
    let replicas = if current == 0 {
        ceil(ratio)
    } else if tolerance.covers(ratio) {
        current
    } else {
        require(pods).map_err(|error| format!("unable to calculate ready pods: {error}"))?;
        let is_counted = |pod: &&PodState| {
            pod.phase == "Running" && pod.ready.is_some_and(|ready| ready.is_true)
        };
        ceil(ratio * pods.iter().filter(is_counted).count() as f64)
    };
    Ok(Proposal { replicas, utilization: None, usage })
}

/// The recommendation for one value for all pods together, of which each should have `target`.
pub(super) fn of_average(usage: i64, target: i64, current: i32, tolerance: Tolerance) -> Proposal {
    let share = target as f64 * f64::from(current);
    let replicas = match tolerance.covers(usage as f64 / share) {
        true => current,
        false => ceil(usage as f64 / target as f64),
    };
    let usage = match current {
        // Without pods there is no share.
        0 => usage,
        current => to_i64(-(-i128::from(usage)).div_euclid(i128::from(current))),
    };
    Proposal { replicas, utilization: None, usage }
}

fn require(pods: &[PodState]) -> Result<(), String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    Ok(())
}

fn to_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Rounds up; what does not fit becomes the greatest number.
fn ceil(value: f64) -> i32 {
    value.ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOLERANCE: Tolerance = Tolerance { down: 0.1, up: 0.1 };

    fn now() -> Timestamp {
        Timestamp::from_secs(10_000)
    }

    /// A pod that has been ready for long.
    fn pod(name: &str) -> PodState {
        let since = Timestamp::from_secs(100);
        PodState {
            name: name.to_owned(),
            phase: "Running".to_owned(),
            is_being_deleted: false,
            started: Some(since),
            ready: Some(Ready { is_true: true, is_false: false, since }),
        }
    }

    fn pods(n: usize) -> Vec<PodState> {
        (0..n).map(|n| pod(&format!("p{n}"))).collect()
    }

    fn metrics(values: &[(&str, i64)]) -> BTreeMap<String, PodMetric> {
        let metric = |milli| PodMetric { milli, at: now(), window: Duration::from_secs(30) };
        values.iter().map(|(pod, milli)| ((*pod).to_owned(), metric(*milli))).collect()
    }

    fn utilization(percent: i32, request: i64, n: usize) -> Target {
        let requests = (0..n).map(|n| (format!("p{n}"), request)).collect();
        Target::Utilization { percent, requests }
    }

    fn cpu(
        pods: &[PodState],
        metrics: &BTreeMap<String, PodMetric>,
        target: &Target,
        current: i32,
    ) -> Proposal {
        per_pod(pods, metrics, target, current, TOLERANCE, true, now()).unwrap()
    }

    #[test]
    fn ratio_decides_outside_of_the_tolerance() {
        let target = utilization(50, 1000, 3);
        let proposal =
            cpu(&pods(3), &metrics(&[("p0", 300), ("p1", 500), ("p2", 700)]), &target, 3);
        assert_eq!(proposal, Proposal { replicas: 3, utilization: Some(50), usage: 500 });
        for (each, replicas) in [(550, 3), (560, 4), (1000, 6), (450, 3), (440, 3), (300, 2)] {
            let metrics = metrics(&[("p0", each), ("p1", each), ("p2", each)]);
            assert_eq!(cpu(&pods(3), &metrics, &target, 3).replicas, replicas, "{each}");
        }
    }

    #[test]
    fn pods_without_metrics_temper_the_change() {
        let target = utilization(100, 1000, 4);
        // Three need half: the fourth is taken to need all.
        let low = metrics(&[("p0", 500), ("p1", 500), ("p2", 500)]);
        assert_eq!(cpu(&pods(4), &low, &target, 4).replicas, 3);
        // Three need double: the fourth is taken to need nothing.
        let high = metrics(&[("p0", 2000), ("p1", 2000), ("p2", 2000)]);
        assert_eq!(cpu(&pods(4), &high, &target, 4).replicas, 6);
        // One needs a little more: the correction would shrink.
        let one = metrics(&[("p0", 1500)]);
        assert_eq!(cpu(&pods(4), &one, &target, 4).replicas, 4);
    }

    #[test]
    fn unready_pods_count_only_against_growing() {
        let target = utilization(100, 1000, 3);
        let mut pods = pods(3);
        pods[2].ready = None;
        let high = metrics(&[("p0", 3000), ("p1", 3000), ("p2", 9000)]);
        assert_eq!(cpu(&pods, &high, &target, 3).replicas, 6, "two thirds of 300 %");
        let low = metrics(&[("p0", 500), ("p1", 500), ("p2", 9000)]);
        assert_eq!(cpu(&pods, &low, &target, 3).replicas, 1);
        let memory = per_pod(&pods, &low, &target, 3, TOLERANCE, false, now()).unwrap();
        assert_eq!(memory.replicas, 10, "readiness counts for CPU only");
        pods[2].phase = "Pending".to_owned();
        let pending = per_pod(&pods, &high, &target, 3, TOLERANCE, false, now()).unwrap();
        assert_eq!(pending.replicas, 6);
    }

    #[test]
    fn cpu_of_a_new_pod_counts_after_a_window_of_readiness() {
        let metric = |at| PodMetric { milli: 1, at, window: Duration::from_secs(30) };
        let mut new = pod("p");
        let started = Timestamp::from_secs(9_900);
        new.started = Some(started);
        let ready = |is_true, since| Some(Ready { is_true, is_false: !is_true, since });
        let ready_at = Timestamp::from_secs(9_950);
        new.ready = ready(true, ready_at);
        assert!(new.is_starting(&metric(Timestamp::from_secs(9_970)), now()));
        assert!(!new.is_starting(&metric(Timestamp::from_secs(9_980)), now()));
        new.ready = ready(false, ready_at);
        assert!(new.is_starting(&metric(now()), now()));
        // After five minutes only a pod that has never been ready.
        let old = Timestamp::from_secs(1_000);
        new.started = Some(old);
        assert!(!new.is_starting(&metric(now()), now()), "it was ready once");
        new.ready = ready(false, Timestamp::from_secs(1_010));
        assert!(new.is_starting(&metric(now()), now()));
    }

    #[test]
    fn gone_pods_do_not_count() {
        let target = Target::Average(100);
        let mut pods = pods(3);
        pods[0].is_being_deleted = true;
        pods[1].phase = "Failed".to_owned();
        let all = metrics(&[("p0", 900), ("p1", 900), ("p2", 300)]);
        assert_eq!(
            cpu(&pods, &all, &target, 3),
            Proposal { replicas: 3, utilization: None, usage: 300 }
        );
        let refuse = |pods: &[PodState], metrics: &[(&str, i64)]| {
            let metrics = self::metrics(metrics);
            per_pod(pods, &metrics, &target, 1, TOLERANCE, true, now()).unwrap_err()
        };
        assert!(refuse(&[], &[("p0", 1)]).starts_with("no pods returned by selector"));
        assert!(refuse(&pods, &[("p0", 1)]).starts_with("did not receive metrics"));
    }

    #[test]
    fn values_of_objects_are_shared_by_ready_pods() {
        let value = |usage, current| of_value(&pods(4), usage, 1000, current, TOLERANCE).unwrap();
        assert_eq!(value(1050, 4).replicas, 4);
        assert_eq!(value(2000, 4).replicas, 8);
        assert_eq!(value(500, 4).replicas, 2);
        assert_eq!(value(2500, 0).replicas, 3, "from nothing");
        assert!(of_value(&[], 5000, 1000, 4, TOLERANCE).is_err());
        let average = |usage, current| of_average(usage, 1000, current, TOLERANCE);
        assert_eq!(average(10_000, 4), Proposal { replicas: 10, utilization: None, usage: 2500 });
        assert_eq!(average(4_300, 4).replicas, 4);
        assert_eq!(average(3, 2).usage, 2, "rounded up");
        assert_eq!(average(5_000, 0).replicas, 5);
    }

    proptest! {
        /// More usage never recommends fewer replicas, and nothing overflows.
        #[test]
        fn recommendation_grows_with_usage(
            n in 1..20usize, n_metrics in 1..20usize, usage in 0..i64::MAX / 2, more in 0..i64::MAX / 2,
            percent in 1..300i32,
        ) {
            let target = utilization(percent, 1000, n);
            let recommend = |usage: i64| {
                let values: Vec<String> = (0..n_metrics.min(n)).map(|n| format!("p{n}")).collect();
                let values: Vec<(&str, i64)> = values.iter().map(|p| (p.as_str(), usage)).collect();
                let current = i32::try_from(n).unwrap();
                cpu(&pods(n), &metrics(&values), &target, current).replicas
            };
            prop_assert!(recommend(usage) <= recommend(usage.saturating_add(more)));
        }
    }
}
