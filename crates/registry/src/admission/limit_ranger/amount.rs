//! Amounts of resources, and the bounds that a LimitRange sets for them.
use serde_json::Value;
use setpoint_quota::pod::{self, quantities};

/// What a container or a pod requests, and its limits.
#[derive(Debug, Default)]
pub(super) struct Amounts {
    requests: pod::Amounts,
    limits: pod::Amounts,
}

impl Amounts {
    /// Of a container's `resources`.
    pub(super) fn of(resources: &Value) -> Self {
        Self {
            requests: quantities(&resources["requests"]),
            limits: quantities(&resources["limits"]),
        }
    }
    /// Of a whole pod.
    pub(super) fn of_pod(spec: &Value) -> Self {
        Self { requests: pod::ranged(spec, "requests"), limits: pod::ranged(spec, "limits") }
    }
}

/// The bounds of one type of object.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    of: &'a str,
    min: pod::Amounts,
    max: pod::Amounts,
    ratio: pod::Amounts,
}

impl<'a> Bounds<'a> {
    /// The bounds in an item of `spec.limits`.
    pub(super) fn new(limit: &Value, of: &'a str) -> Self {
        let [min, max, ratio] =
            ["min", "max", "maxLimitRequestRatio"].map(|member| quantities(&limit[member]));
        Self { of, min, max, ratio }
    }
    /// Adds what the amounts violate.
    pub(super) fn check(&self, amounts: &Amounts, faults: &mut Vec<String>) {
        let of = self.of;
        let both = |name: &String| (amounts.requests.get(name), amounts.limits.get(name));
        for (name, min) in &self.min {
            let usage = format!("minimum {name} usage per {of} is {min}");
            match both(name) {
                (None, _) => faults.push(format!("{usage}.  No request is specified")),
                (Some(request), _) if request.compare(min).is_lt() => {
                    faults.push(format!("{usage}, but request is {request}"));
                }
                (_, Some(limit)) if limit.compare(min).is_lt() => {
                    faults.push(format!("{usage}, but limit is {limit}"));
                }
                _ => {}
            }
        }
        for (name, max) in &self.max {
            let usage = format!("maximum {name} usage per {of} is {max}");
            match both(name) {
                (_, None) => faults.push(format!("{usage}.  No limit is specified")),
                (_, Some(limit)) if limit.compare(max).is_gt() => {
                    faults.push(format!("{usage}, but limit is {limit}"));
                }
                (Some(request), _) if request.compare(max).is_gt() => {
                    faults.push(format!("{usage}, but request is {request}"));
                }
                _ => {}
            }
        }
        for (name, most) in &self.ratio {
            let usage = format!("{name} max limit to request ratio per {of} is {most}");
            match both(name) {
                (None, _) => {
                    faults.push(format!("{usage}, but no request is specified or request is 0"));
                }
                (Some(request), _) if request.is_zero() => {
                    faults.push(format!("{usage}, but no request is specified or request is 0"));
                }
                (_, None) => {
                    faults.push(format!("{usage}, but no limit is specified or limit is 0"));
                }
                (_, Some(limit)) if limit.is_zero() => {
                    faults.push(format!("{usage}, but no limit is specified or limit is 0"));
                }
                (Some(request), Some(limit)) => {
                    let ratio = limit.approximate() / request.approximate();
                    if ratio > most.approximate() {
                        faults.push(format!("{usage}, but provided ratio is {ratio:.6}"));
                    }
                }
            }
        }
    }
}
