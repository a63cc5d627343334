//! Policies of capacities: how much of a shared device a claim may request.
use crate::kind::at::At;
use setpoint_object::quantity::Quantity;
use std::cmp::Ordering;
use std::collections::HashSet;

/// The most values that a policy lists.
const VALUES_MAX: usize = 10;

/// The capacity of a device. `is_shared`: several claims may have it.
pub(super) fn capacity(at: &At<'_, '_>, is_shared: bool) {
    let Some(policy) = at.given("requestPolicy") else { return };
    if !is_shared {
        return policy.forbidden("allowMultipleAllocations must be true");
    }
    let whole = quantity(&at.get("value"));
    let (values, range) = (policy.get("validValues"), policy.get("validRange"));
    if values.len() > 0 && range.is_set() {
        return policy.forbidden(
            r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        );
    }
    let member = match (values.len(), range.is_set()) {
        (1.., _) => "validValues",
        (_, true) => "validRange",
        _ => return,
    };
    let default = policy.get("default");
    if !default.is_set() {
        return default.required(&format!("required when {member} is defined"));
    }
    let default = quantity(&default);
    match member {
        "validValues" => listed(&values, &default, &whole),
        _ => ranged(&range, &default, &whole),
    }
}

/// What decoding has made canonical; missing amounts are zero.
fn quantity(at: &At<'_, '_>) -> Quantity {
    at.quantity().unwrap_or_default()
}
fn is_above(a: &Quantity, b: &Quantity) -> bool {
    a.compare(b) == Ordering::Greater
}

/// A list of amounts in order, one of which is the default one.
fn listed(at: &At<'_, '_>, default: &Quantity, whole: &Quantity) {
    let amounts: Vec<Quantity> = at.items().map(|item| quantity(&item)).collect();
    for (item, pair) in at.items().skip(1).zip(amounts.windows(2)) {
        if is_above(&pair[0], &pair[1]) {
            item.invalid("values must be sorted in ascending order");
        }
    }
    let mut has_default = false;
    if at.at_most(VALUES_MAX) {
        for (item, amount) in at.items().zip(&amounts) {
            if is_above(amount, whole) {
                item.invalid(format!("option is larger than capacity value: {whole}"));
            }
            has_default |= amount.compare(default).is_eq();
        }
        // The API compares whole units.
        let mut seen = HashSet::new();
        for (item, amount) in at.items().zip(&amounts) {
            if !seen.insert(amount.value()) {
                item.duplicate_of(&amount.value().to_string());
            }
        }
    }
    if !has_default {
        at.invalid_as(
            &default.as_str().into(),
            "default value is not valid according to the requestPolicy",
        );
    }
}

/// Amounts from one to another, perhaps in steps. The default is one of them.
fn ranged(at: &At<'_, '_>, default: &Quantity, whole: &Quantity) {
    let invalid = |member: &str, shown: &Quantity, detail: String| {
        at.get(member).invalid_as(&shown.as_str().into(), detail);
    };
    if !at.has("min") {
        return at.get("min").required("required when validRange is defined");
    }
    let min = quantity(&at.get("min"));
    if is_above(&min, whole) {
        invalid("min", &min, format!("min is larger than capacity value: {whole}"));
    }
    if is_above(&min, default) {
        invalid("min", default, format!("default is less than min: {min}"));
    }
    let max = at.given("max").map(|max| quantity(&max));
    if let Some(max) = &max {
        if is_above(&min, max) {
            invalid("max", &min, format!("min is larger than max: {max}"));
        }
        if is_above(max, whole) {
            invalid("max", max, format!("max is larger than capacity value: {whole}"));
        }
        if is_above(default, max) {
            invalid("max", default, format!("default is more than max: {max}"));
        }
    }
    let Some(step) = at.given("step").map(|step| quantity(&step)) else { return };
    let first = &min + &step;
    if is_above(&first, whole) {
        invalid("step", &step, format!("one step {first} is larger than capacity value: {whole}"));
    }
    for amount in std::iter::once(default).chain(&max) {
        // In whole units; kube-apiserver panics at a step of none.
        let distance = amount.value().wrapping_sub(min.value());
        if distance.checked_rem(step.value()) != Some(0) {
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            invalid("step", amount, detail);
        }
    }
}
