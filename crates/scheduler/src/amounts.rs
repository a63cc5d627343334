//! Amounts of resources: what pods request and what nodes have.

use serde_json::Value;
use setpoint_object::quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts of resources. The common ones are fields, so that most pods need no map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Amounts {
    /// Thousandths of a core.
    pub(crate) cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
    /// Bytes.
    pub(crate) ephemeral_storage: i64,
    /// Extended resources and huge pages, in units.
    pub(crate) others: BTreeMap<Arc<str>, i64>,
}

impl Amounts {
    /// The amounts of a list of quantities. Other callers keep track of `pods` themselves.
    pub(crate) fn of(quantities: &BTreeMap<String, Quantity>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in quantities {
            match name.as_str() {
                "cpu" => amounts.cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.ephemeral_storage = quantity.value(),
                "pods" => {}
                _ => _ = amounts.others.insert(name.as_str().into(), quantity.value()),
            }
        }
        amounts
    }

    /// Adds or, with a `sign` of -1, subtracts. Entries of zero are removed. A sum wraps at its
    /// limits, so that what was added can always be subtracted again.
    pub(crate) fn add(&mut self, other: &Self, sign: i64) {
        let add = |sum: &mut i64, amount: i64| *sum = sum.wrapping_add(amount.wrapping_mul(sign));
        add(&mut self.cpu, other.cpu);
        add(&mut self.memory, other.memory);
        add(&mut self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            add(sum, *amount);
            if *sum == 0 {
                self.others.remove(name);
            }
        }
    }

    /// Whether it has more of anything than another one.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        self.cpu > other.cpu
            || self.memory > other.memory
            || self.ephemeral_storage > other.ephemeral_storage
            || self.others.iter().any(|(name, amount)| *amount > other.other(name))
    }

    /// The amount of an extended resource.
    pub(crate) fn other(&self, name: &str) -> i64 {
        self.others.get(name).copied().unwrap_or_default()
    }
}

/// What a pod without requests counts as in scores: a tenth of a core and 200 MiB per container, as
/// in kube-scheduler.
const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

/// The requests of a pod for scores: containers without a request count with a default.
pub(crate) fn scored(spec: &Value, requested: &Amounts) -> (i64, i64) {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let without = |name: &str| {
        let lacks = |container: &&Value| container["resources"]["requests"][name].is_null();
        i64::try_from(containers.iter().filter(lacks).count()).unwrap_or(i64::MAX)
    };
    (
        requested.cpu.saturating_add(DEFAULT_CPU.saturating_mul(without("cpu"))),
        requested.memory.saturating_add(DEFAULT_MEMORY.saturating_mul(without("memory"))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_can_be_subtracted_again() {
        let of = |memory: i64, gpus: i64| Amounts {
            memory,
            others: [("gpus".into(), gpus)].into(),
            ..Amounts::default()
        };
        let mut sum = of(200 << 30, 3);
        let before = sum.clone();
        for huge in [of(i64::MAX, i64::MAX), of(i64::MAX, 1)] {
            sum.add(&huge, 1);
            sum.add(&huge, 1);
            sum.add(&huge, -1);
            sum.add(&huge, -1);
            assert_eq!(sum, before);
        }
    }
}
