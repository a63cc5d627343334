//! From a recommendation to a size: stabilization windows, rates and bounds.
//!
//! # Theory
//!
//! | step | without `spec.behavior` | with |
//! |---|---|---|
//! | stabilize | the greatest recommendation of the last 5 min | the present size, moved into the range between the smallest recommendation of the window of `scaleUp` and the greatest of that of `scaleDown` |
//! | limit | at most the double, but 4 are always allowed | the policies: how much the size may change in their periods |
//! | bound | `minReplicas` to `maxReplicas` | the same |
//!
//! The history of an autoscaler is in memory only, as in kube-controller-manager: it begins with
//! the size that is found first.

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules};
use setpoint_object::time::Timestamp;
use std::time::Duration;

/// How long a recommendation keeps an autoscaler without `spec.behavior` from shrinking: 5 min, as
/// `--horizontal-pod-autoscaler-downscale-stabilization`.
pub(super) const DOWNSCALE_WINDOW: Duration = Duration::from_secs(300);

/// How fast a target may grow without `spec.behavior`.
const UP_FACTOR: i32 = 2;
const UP_MIN: i32 = 4;

/// The period of the default policies.
const DEFAULT_PERIOD_SECONDS: i32 = 15;

/// Recommendations and changes of one autoscaler. Entries that no window reaches are dropped, and
/// there is one per pass: at most 240, because a window is at most an hour.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    recommendations: Vec<Entry>,
    ups: Vec<Entry>,
    downs: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Timestamp,
    /// The recommended size, or the size of a change.
    replicas: i32,
}

/// A size, and why it is not the recommended one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i32,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

impl Limited {
    fn new(replicas: i32, (reason, message): (&'static str, &'static str)) -> Self {
        Self { replicas, reason, message }
    }
}

const WITHIN: (&str, &str) =
    ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

/// The sizes that a pass starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) current: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

/// `spec.behavior`, with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Behavior {
    up: Rules,
    down: Rules,
}

#[derive(Debug, Clone, PartialEq)]
struct Rules {
    window: Duration,
    select: Select,
    policies: Vec<Policy>,
}

/// Which policy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Select {
    MaxChange,
    MinChange,
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    change: Change,
    period: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Pods(i32),
    Percent(i32),
}

impl Behavior {
    /// From `spec.behavior`. The server has usually set the defaults.
    pub(super) fn new(up: Option<&HPAScalingRules>, down: Option<&HPAScalingRules>) -> Self {
        let period = seconds(DEFAULT_PERIOD_SECONDS);
        let pods = Policy { change: Change::Pods(UP_MIN), period };
        let percent = Policy { change: Change::Percent(100), period };
        Self {
            up: Rules::new(up, Duration::ZERO, vec![pods, percent]),
            down: Rules::new(down, DOWNSCALE_WINDOW, vec![percent]),
        }
    }
}

impl Rules {
    fn new(rules: Option<&HPAScalingRules>, window: Duration, policies: Vec<Policy>) -> Self {
        let select = match rules.and_then(|rules| rules.select_policy.as_deref()) {
            Some("Min") => Select::MinChange,
            Some("Disabled") => Select::Disabled,
            _ => Select::MaxChange,
        };
        let own = rules.and_then(|rules| rules.policies.as_ref());
        Self {
            window: rules
                .and_then(|rules| rules.stabilization_window_seconds)
                .map_or(window, seconds),
            select,
            policies: own.map_or(policies, |own| own.iter().filter_map(Policy::new).collect()),
        }
    }

    fn longest_period(&self) -> Duration {
        self.policies.iter().map(|policy| policy.period).max().unwrap_or_default()
    }

    /// The size that the policies allow in one direction.
    fn limit(&self, history: &History, current: i32, now: Timestamp, is_up: bool) -> i32 {
        if self.select == Select::Disabled {
            return current;
        }
        let proposals = self.policies.iter().map(|policy| {
            let added = changed(&history.ups, policy.period, now);
            let deleted = changed(&history.downs, policy.period, now);
            let start = current.saturating_sub(added).saturating_add(deleted);
            policy.applied(start, is_up)
        });
        // The greatest change is the greatest size on the way up, and the smallest down.
        let limit = match (self.select == Select::MaxChange) == is_up {
            true => proposals.max(),
            false => proposals.min(),
        };
        let limit = limit.unwrap_or(current);
        if is_up { limit.max(current) } else { limit.min(current) }
    }
}

impl Policy {
    fn new(policy: &HPAScalingPolicy) -> Option<Self> {
        let change = match policy.type_.as_str() {
            "Pods" => Change::Pods(policy.value),
            "Percent" => Change::Percent(policy.value),
            _ => return None,
        };
        Some(Self { change, period: seconds(policy.period_seconds) })
    }

    /// The size after the greatest change from `start`. Upwards it is rounded up, so that one pod
    /// can become two.
    fn applied(self, start: i32, is_up: bool) -> i32 {
        let (Change::Pods(value) | Change::Percent(value)) = self.change;
        let value = i64::from(if is_up { value } else { value.saturating_neg() });
        let start = i64::from(start);
        let size = match self.change {
            Change::Pods(_) => start + value,
            Change::Percent(_) => {
                let hundredfold = start * (100 + value);
                let whole = hundredfold.div_euclid(100);
                whole + i64::from(is_up && hundredfold.rem_euclid(100) != 0)
            }
        };
        i32::try_from(size).unwrap_or(if size < 0 { i32::MIN } else { i32::MAX })
    }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// The sum of the changes of a period.
fn changed(entries: &[Entry], period: Duration, now: Timestamp) -> i32 {
    let recent = entries.iter().filter(|entry| now.since(entry.at) < period);
    recent.fold(0, |sum: i32, entry| sum.saturating_add(entry.replicas))
}

impl History {
    /// Starts with the size that was found, unless there is a history.
    pub(super) fn start(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push(Entry { at: now, replicas: current });
        }
    }

    /// The greatest of a recommendation and those of the last 5 min, and adds it to them.
    pub(super) fn stabilized(&mut self, desired: i32, now: Timestamp) -> i32 {
        self.recommendations.retain(|entry| now.since(entry.at) <= DOWNSCALE_WINDOW);
        let recent = self.recommendations.iter().map(|entry| entry.replicas);
        let greatest = recent.fold(desired, i32::max);
        self.recommendations.push(Entry { at: now, replicas: desired });
        greatest
    }

    /// The present size, moved into the range of the recommendations of both windows, and adds the
    /// recommendation to them.
    pub(super) fn stabilized_by(
        &mut self,
        behavior: &Behavior,
        current: i32,
        desired: i32,
        now: Timestamp,
    ) -> i32 {
        let (up, down) = (behavior.up.window, behavior.down.window);
        let of = |window: Duration| {
            self.recommendations.iter().filter(move |entry| now.since(entry.at) < window)
        };
        let lowest = of(up).map(|entry| entry.replicas).fold(desired, i32::min);
        let greatest = of(down).map(|entry| entry.replicas).fold(desired, i32::max);
        let stabilized = current.max(lowest).min(greatest);
        self.recommendations.retain(|entry| now.since(entry.at) <= up.max(down));
        self.recommendations.push(Entry { at: now, replicas: desired });
        stabilized
    }

    /// The size that bounds and policies allow.
    pub(super) fn limited(
        &self,
        behavior: &Behavior,
        bounds: Bounds,
        desired: i32,
        now: Timestamp,
    ) -> Limited {
        let Bounds { current, min, max } = bounds;
        if desired > current {
            let limit = behavior.up.limit(self, current, now, true);
            let (allowed, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > allowed {
                return Limited::new(allowed, why);
            }
        } else if desired < current {
            let limit = behavior.down.limit(self, current, now, false);
            let (allowed, why) = if min < limit { (limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < allowed {
                return Limited::new(allowed, why);
            }
        }
        Limited::new(desired, WITHIN)
    }

    /// Remembers a change of the size.
    pub(super) fn changed(&mut self, behavior: &Behavior, from: i32, to: i32, now: Timestamp) {
        let (entries, rules) = match to > from {
            true => (&mut self.ups, &behavior.up),
            false => (&mut self.downs, &behavior.down),
        };
        let longest = rules.longest_period();
        entries.retain(|entry| now.since(entry.at) <= longest);
        let replicas = i32::try_from(to.abs_diff(from)).unwrap_or(i32::MAX);
        entries.push(Entry { at: now, replicas });
    }
}

/// The size that the bounds and the default rate allow.
pub(super) fn limited(bounds: Bounds, desired: i32) -> Limited {
    let Bounds { current, min, max } = bounds;
    let limit = current.saturating_mul(UP_FACTOR).max(UP_MIN);
    let (allowed, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
    if desired < min {
        Limited::new(min, TOO_FEW)
    } else if desired > allowed {
        Limited::new(allowed, why)
    } else {
        Limited::new(desired, WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1000 + secs)
    }

    fn rules(select: &str, window: i32, policies: &[(&str, i32, i32)]) -> HPAScalingRules {
        let policy = |&(kind, value, period): &(&str, i32, i32)| HPAScalingPolicy {
            type_: kind.to_owned(),
            value,
            period_seconds: period,
        };
        HPAScalingRules {
            select_policy: Some(select.to_owned()),
            stabilization_window_seconds: Some(window),
            policies: Some(policies.iter().map(policy).collect()),
            tolerance: None,
        }
    }

    #[test]
    fn default_rate_doubles_and_allows_four() {
        let bounds = |current, min, max| Bounds { current, min, max };
        for (bounds, desired, size, reason) in [
            (bounds(1, 1, 10), 9, 4, "ScaleUpLimit"),
            (bounds(3, 1, 10), 9, 6, "ScaleUpLimit"),
            (bounds(6, 1, 10), 12, 10, "TooManyReplicas"),
            (bounds(6, 1, 10), 12, 10, "TooManyReplicas"),
            (bounds(6, 2, 10), 0, 2, "TooFewReplicas"),
            (bounds(6, 2, 10), 5, 5, "DesiredWithinRange"),
        ] {
            let limited = limited(bounds, desired);
            assert_eq!((limited.replicas, limited.reason), (size, reason), "{bounds:?} {desired}");
        }
    }

    #[test]
    fn target_shrinks_when_no_recent_recommendation_is_greater() {
        let mut history = History::default();
        history.start(5, at(0));
        assert_eq!(history.stabilized(2, at(15)), 5);
        assert_eq!(history.stabilized(3, at(299)), 5);
        assert_eq!(history.stabilized(1, at(301)), 3, "the first one is too old");
        assert_eq!(history.stabilized(1, at(700)), 1);
        assert_eq!(history.stabilized(7, at(701)), 7, "growing waits for nothing");
    }

    #[test]
    fn windows_of_a_behavior_hold_in_both_directions() {
        let up = rules("Max", 60, &[("Percent", 100, 15)]);
        let down = rules("Max", 120, &[("Percent", 100, 15)]);
        let behavior = Behavior::new(Some(&up), Some(&down));
        let mut history = History::default();
        history.start(4, at(0));
        assert_eq!(history.stabilized_by(&behavior, 4, 8, at(15)), 4, "4 was recommended");
        assert_eq!(history.stabilized_by(&behavior, 4, 9, at(70)), 8, "the lowest of a minute");
        assert_eq!(history.stabilized_by(&behavior, 8, 2, at(80)), 8, "9 was recommended");
        assert_eq!(history.stabilized_by(&behavior, 8, 2, at(200)), 2);
    }

    #[test]
    fn policies_limit_the_change_in_their_periods() {
        let up = rules("Min", 0, &[("Pods", 3, 60), ("Percent", 50, 60)]);
        let down = rules("Max", 0, &[("Pods", 2, 30), ("Percent", 10, 30)]);
        let behavior = Behavior::new(Some(&up), Some(&down));
        let mut history = History::default();
        let bounds = |current| Bounds { current, min: 1, max: 100 };
        let size = |history: &History, current, desired, secs| {
            history.limited(&behavior, bounds(current), desired, at(secs)).replicas
        };
        assert_eq!(size(&history, 3, 50, 0), 5, "4.5 rounded up, less than 6");
        history.changed(&behavior, 3, 5, at(0));
        assert_eq!(size(&history, 5, 50, 30), 5, "the period began with 3");
        assert_eq!(size(&history, 5, 50, 60), 8, "the period is over");
        assert_eq!(size(&history, 50, 1, 60), 45, "a tenth is more than 2");
        history.changed(&behavior, 50, 45, at(60));
        let limited = history.limited(&behavior, bounds(45), 1, at(80));
        assert_eq!((limited.replicas, limited.reason), (45, "ScaleDownLimit"));
        assert_eq!(size(&history, 45, 1, 90), 40, "40.5 rounded down");
    }

    #[test]
    fn disabled_direction_keeps_the_size() {
        let off = rules("Disabled", 0, &[("Percent", 100, 15)]);
        let behavior = Behavior::new(Some(&off), Some(&off));
        let history = History::default();
        let bounds = Bounds { current: 5, min: 1, max: 10 };
        for (desired, reason) in [(9, "ScaleUpLimit"), (2, "ScaleDownLimit")] {
            let limited = history.limited(&behavior, bounds, desired, at(0));
            assert_eq!((limited.replicas, limited.reason), (5, reason));
        }
    }

    proptest! {
        /// Whatever the history, a size is within the bounds if the present one is, never beyond
        /// the recommendation, and one step never crosses it.
        #[test]
        fn sizes_stay_between_the_present_and_the_recommended(
            current in 1..50i32, min in 1..5i32, more in 0..60i32, steps in
            prop::collection::vec((0..80i32, 1..40u64), 1..40),
            value in 1..120i32, period in 1..120i32, window in 0..300i32, is_min: bool,
        ) {
            let max = min + more;
            let mut current = current.clamp(min, max);
            let kind = if is_min { "Min" } else { "Max" };
            let rules = rules(kind, window, &[("Pods", value, period), ("Percent", value, 15)]);
            let behavior = Behavior::new(Some(&rules), Some(&rules));
            let mut history = History::default();
            let mut now = 0;
            history.start(current, at(now));
            for (desired, wait) in steps {
                now += wait;
                let stable = history.stabilized_by(&behavior, current, desired, at(now));
                let (low, high) = (current.min(desired), current.max(desired));
                prop_assert!((low..=high).contains(&stable));
                let bounds = Bounds { current, min, max };
                let next = history.limited(&behavior, bounds, stable, at(now)).replicas;
                prop_assert!((min..=max).contains(&next));
                prop_assert!((low.min(max)..=high.max(min)).contains(&next));
                if next != current {
                    history.changed(&behavior, current, next, at(now));
                }
                current = next;
                prop_assert!(history.recommendations.len() <= 301);
            }
        }
    }
}
