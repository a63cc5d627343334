//! Targets without replicas, with the feature gate `HPAScaleToZero`.

use super::Run;

/// The condition that says who took the last replica away.
const SCALED_TO_ZERO: &str = "ScaledToZero";

impl Run<'_> {
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

    /// Notes whether a rescaling took the last replica away.
    pub(super) fn note_zero(&mut self, current: i32, desired: i32) {
        if !self.pass.scales_to_zero {
            return self.forget_zero();
        }
        let may_be_zero = self.autoscaler.spec.min_replicas == Some(0) && self.may_wake();
        match current > 0 && desired == 0 && may_be_zero {
            true => {
                let message = "the HPA controller scaled the workload to zero";
                self.set(SCALED_TO_ZERO, true, "ScaledToZero", message);
            }
            false => {
                let message = "the HPA controller did not scale the workload to zero";
                self.set(SCALED_TO_ZERO, false, "NotScaledToZero", message);
            }
        }
    }

    pub(super) fn forget_zero(&mut self) {
        let conditions = self.status.conditions.iter_mut();
        conditions.for_each(|all| all.retain(|held| held.type_ != SCALED_TO_ZERO));
    }
}
