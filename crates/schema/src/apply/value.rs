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
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let float = |n: &Number| n.as_f64().unwrap_or(f64::MAX);
            float(a).total_cmp(&float(b))
        }
    }
}
