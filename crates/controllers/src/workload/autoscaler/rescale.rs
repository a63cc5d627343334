//! What is remembered of the last change of a target's size, and targets without replicas (the
//! feature gate `HPAScaleToZero`).

use super::{Run, time};
use setpoint_object::time::Timestamp;

/// The condition that says who took the last replica away.
const SCALED_TO_ZERO: &str = "ScaledToZero";

/// How a target was scaled last.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastScale {
    pub(super) at: Timestamp,
    /// It had replicas before, and none since, as its metrics wanted it.
    pub(super) took_last: bool,
}

/// A change of a target's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rescale {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) at: Timestamp,
}

impl Run<'_> {
    /// Notes that the last write of a scale was carried out, if the target has its size.
    pub(super) fn rescaled(&mut self, size: i32) {
        let attempt = self.with_known(|known| known.attempt.take());
        let attempt = attempt.filter(|attempt| attempt.to == size);
        if let Some(Rescale { from, to, at }) = attempt {
            if let Some(behavior) = self.behavior() {
                self.with_history(|history, _| history.changed(&behavior, from, to, at));
            }
            let took_last = from > 0 && to == 0 && self.may_be_zero();
            self.with_known(|known| known.scaled = Some(LastScale { at, took_last }));
        }
        if let Some(LastScale { at, took_last }) = self.with_known(|known| known.scaled) {
            self.status.last_scale_time = Some(time(at));
            self.show_zero(took_last);
        }
    }

    /// Whether it was this controller that took the last replica away.
    pub(super) fn is_own_zero(&self) -> bool {
        let mut conditions = self.status.conditions.iter().flatten();
        self.pass.scales_to_zero
            && conditions.any(|held| held.type_ == SCALED_TO_ZERO && held.status == "True")
    }

    /// Whether there is a metric that a target without pods can have.
    pub(super) fn may_wake(&self) -> bool {
        let mut metrics = self.autoscaler.spec.metrics.iter().flatten();
        metrics.any(|metric| matches!(metric.type_.as_str(), "Object" | "External"))
    }

    /// Whether the target may have no replicas.
    fn may_be_zero(&self) -> bool {
        self.autoscaler.spec.min_replicas == Some(0) && self.may_wake()
    }

    /// Says whether it was this controller that took the last replica away.
    fn show_zero(&mut self, took_last: bool) {
        if !self.pass.scales_to_zero {
            return self.forget_zero();
        }
        let (reason, message) = match took_last {
            true => ("ScaledToZero", "the HPA controller scaled the workload to zero"),
            false => ("NotScaledToZero", "the HPA controller did not scale the workload to zero"),
        };
        self.set(SCALED_TO_ZERO, took_last, reason, message);
    }

    pub(super) fn forget_zero(&mut self) {
        let conditions = self.status.conditions.iter_mut();
        conditions.for_each(|all| all.retain(|held| held.type_ != SCALED_TO_ZERO));
    }
}
