//! Amounts of a device's capacity: what a request consumes, and what is left.

use crate::labels::{items, text};
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use std::collections::BTreeMap;

/// Amounts by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Reads amounts. `member`: where each is in its value; empty if it is the value.
pub(super) fn amounts(map: &Value, member: &str) -> Amounts {
    let amount = |value: &Value| {
        let value = if member.is_empty() { value } else { &value[member] };
        quantity(value)
    };
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), amount(value))).collect()
}

fn quantity(value: &Value) -> Quantity {
    Quantity::parse(text(value)).unwrap_or_default()
}

fn optional(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

/// Adds amounts.
pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let before = sum.entry(name.clone()).or_default();
        *before = &*before + amount;
    }
}

/// Subtracts amounts.
pub(super) fn subtract(sum: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        let before = sum.entry(name.clone()).or_default();
        *before = &*before - amount;
    }
}

/// How much of something a device has, and what a claim may consume of it.
#[derive(Debug)]
pub(super) struct Capacity {
    whole: Quantity,
    policy: Option<Policy>,
}

#[derive(Debug)]
struct Policy {
    default: Option<Quantity>,
    /// In order; empty if there is no list.
    values: Vec<Quantity>,
    range: Option<Range>,
}

#[derive(Debug)]
struct Range {
    min: Quantity,
    max: Option<Quantity>,
    step: Option<i64>,
}

impl Capacity {
    pub(super) fn read(capacity: &Value) -> Self {
        let policy = &capacity["requestPolicy"];
        let range = &policy["validRange"];
        Self {
            whole: quantity(&capacity["value"]),
            policy: policy.is_object().then(|| Policy {
                default: optional(&policy["default"]),
                values: items(&policy["validValues"]).iter().map(quantity).collect(),
                range: range.is_object().then(|| Range {
                    min: quantity(&range["min"]),
                    max: optional(&range["max"]),
                    // A step of none is no step.
                    step: optional(&range["step"]).map(|step| step.value()).filter(|n| *n > 0),
                }),
            }),
        }
    }

    /// What a request consumes: at least what it asks for, and as the policy allows. `None`: the
    /// policy does not allow as much.
    fn consumed(&self, requested: Option<&Quantity>) -> Option<Quantity> {
        let Some(policy) = &self.policy else {
            return Some(requested.unwrap_or(&self.whole).clone());
        };
        let Some(requested) = requested else {
            return Some(policy.default.as_ref().unwrap_or(&self.whole).clone());
        };
        if let Some(range) = &policy.range {
            return range.round_up(requested);
        }
        match policy.values.is_empty() {
            true => Some(requested.clone()),
            false => policy.values.iter().find(|value| requested.compare(value).is_le()).cloned(),
        }
    }
}

impl Range {
    fn round_up(&self, requested: &Quantity) -> Option<Quantity> {
        let rounded = match self.step {
            _ if requested.compare(&self.min).is_le() => self.min.clone(),
            None => requested.clone(),
            Some(step) => {
                let (min, step) = (i128::from(self.min.value()), i128::from(step));
                let n_steps = (i128::from(requested.value()) - min + step - 1) / step;
                let rounded = min + step * n_steps;
                binary(i64::try_from(rounded).ok()?)
            }
        };
        let is_allowed = self.max.as_ref().is_none_or(|max| rounded.compare(max).is_le());
        is_allowed.then_some(rounded)
    }
}

/// Units that are written with binary suffixes: a sum is written as its first operand.
fn binary(units: i64) -> Quantity {
    const KIBI: i64 = 1024;
    let kibi = Quantity::parse("1Ki").unwrap_or_default();
    &kibi + &Quantity::from_units(units.saturating_sub(KIBI))
}

/// What a request consumes of a device that has these capacities, of which `used` is gone already.
/// `None`: it is more than there is, or of something that the device does not have.
pub(super) fn consumption(
    capacities: &BTreeMap<String, Capacity>,
    requested: &Amounts,
    used: [&Amounts; 2],
) -> Option<Amounts> {
    if !requested.keys().all(|name| capacities.contains_key(name)) {
        return None;
    }
    let consumed = |(name, capacity): (&String, &Capacity)| {
        let consumed = capacity.consumed(requested.get(name))?;
        let mut sum = consumed.clone();
        for before in used.iter().filter_map(|used| used.get(name)) {
            sum = &sum + before;
        }
        sum.compare(&capacity.whole).is_le().then(|| (name.clone(), consumed))
    };
    capacities.iter().map(consumed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a request gets of a memory of 40Gi; empty if it gets nothing.
    fn check(policy: Value, requested: Option<&str>, used: &str, expected: &str) {
        let capacity = Capacity::read(&json!({"value": "40Gi", "requestPolicy": policy}));
        let capacities = BTreeMap::from([("memory".to_owned(), capacity)]);
        let requested = json!({"memory": requested});
        let requested = match requested["memory"].is_null() {
            true => Amounts::new(),
            false => amounts(&requested, ""),
        };
        let used = amounts(&json!({"memory": used}), "");
        let found = consumption(&capacities, &requested, [&used, &Amounts::new()]);
        let found = found.map(|found| found["memory"].to_string()).unwrap_or_default();
        assert_eq!(found, expected, "{policy} {requested:?} {used:?}");
    }

    #[test]
    fn requests_are_rounded_up_as_the_policy_says() {
        check(Value::Null, None, "0", "40Gi");
        check(Value::Null, None, "1", "");
        check(Value::Null, Some("5Gi"), "35Gi", "5Gi");
        check(Value::Null, Some("6Gi"), "35Gi", "");
        check(json!({"default": "10Gi"}), None, "0", "10Gi");
        let values = json!({"default": "10Gi", "validValues": ["10Gi", "20Gi"]});
        check(values.clone(), Some("11Gi"), "0", "20Gi");
        check(values, Some("21Gi"), "0", "");
        let range =
            json!({"default": "4Gi", "validRange": {"min": "4Gi", "max": "12Gi", "step": "2Gi"}});
        check(range.clone(), Some("1Gi"), "0", "4Gi");
        check(range.clone(), Some("5Gi"), "0", "6Gi");
        check(range.clone(), Some("13Gi"), "0", "");
        check(range, None, "37Gi", "");
        let none = json!({"default": "4Gi", "validRange": {"min": "4Gi", "step": "0"}});
        check(none, Some("5Gi"), "0", "5Gi");
    }

    #[test]
    fn what_a_device_does_not_have_is_not_consumed() {
        let requested = amounts(&json!({"other": "1"}), "");
        assert_eq!(consumption(&BTreeMap::new(), &requested, [&Amounts::new(); 2]), None);
        assert_eq!(
            consumption(&BTreeMap::new(), &Amounts::new(), [&Amounts::new(); 2]),
            Some(Amounts::new())
        );
    }
}
