//! Comparing values as field ownership does: integers and floats by magnitude.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// A total order: numbers, strings, booleans, lists, maps, null.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne());
            unequal.unwrap_or(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let unequal = a
                .iter()
                .zip(b)
                .map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare(av, bv)))
                .find(|o| o.is_ne());
            unequal.unwrap_or(a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Deep equality; `1` and `1.0` are equal.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    // There is one zero, without a sign.
    let float = |n: &Number| n.as_f64().unwrap_or(f64::MAX) + 0.0;
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_with_float(a, float(b)),
        (None, Some(b)) => compare_with_float(b, float(a)).reverse(),
        (None, None) => float(a).total_cmp(&float(b)),
    }
}

/// Compares an integer with a float by their exact values. The nearest float of an integer is that
/// of its neighbors, too: compared with that, the order would not be a total one.
fn compare_with_float(integer: i64, float: f64) -> Ordering {
    /// The smallest float that is greater than every integer, 2⁶³.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if float >= END {
        return Ordering::Less;
    }
    if float < -END {
        return Ordering::Greater;
    }
    // In the range of integers, whose cast only drops the fraction.
    integer.cmp(&(float as i64)).then_with(|| 0.0_f64.total_cmp(&(float.fract() + 0.0)))
}

#[cfg(test)]
mod tests {
    use super::compare;
    use serde_json::{Value, json};

    /// A sort of the standard library may panic if its order is not a total one. Two integers may
    /// have the same nearest float, which must not be equal to both.
    #[test]
    fn numbers_have_a_total_order() {
        const EXACT_MAX: i64 = 1 << 53;
        let near = (EXACT_MAX..EXACT_MAX + 6).flat_map(|n| [json!(n), json!(n as f64)]);
        let small = [
            json!(-1),
            json!(-0.5),
            json!(-0.0),
            json!(0),
            json!(0.0),
            json!(0.5),
            json!(1),
            json!(1.0),
        ];
        let ends = [json!(i64::MIN), json!(i64::MAX), json!(u64::MAX), json!(9.3e18), json!(-1e19)];
        let numbers: Vec<Value> = near.chain(small).chain(ends).collect();
        for a in &numbers {
            for b in &numbers {
                assert_eq!(compare(a, b), compare(b, a).reverse(), "{a} and {b}");
                for c in &numbers {
                    if compare(a, b).is_le() && compare(b, c).is_le() {
                        assert!(compare(a, c).is_le(), "{a}, {b} and {c}");
                    }
                    if compare(a, b).is_eq() {
                        assert_eq!(compare(a, c), compare(b, c), "{a} is {b}, and {c}");
                    }
                }
            }
        }
        assert!(compare(&json!(1), &json!(1.0)).is_eq());
        assert!(compare(&json!(0), &json!(-0.5)).is_gt());
        assert!(compare(&json!(EXACT_MAX + 1), &json!(EXACT_MAX as f64)).is_gt());
    }
}
