//! The order of `fieldsV1`: that of structured-merge-diff's path elements.
//!
//! Items of lists are in the order of their keys, and numbers are compared as numbers: the port 80
//! comes before 443.

use serde_json::Value;
use std::cmp::Ordering;

/// Compares two names of a `fieldsV1`.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let ((a_rank, a_rest), (b_rank, b_rest)) = (rank(a), rank(b));
    a_rank.cmp(&b_rank).then_with(|| match a_rank {
        2..=4 => match (parsed(a_rest), parsed(b_rest)) {
            (Some(a), Some(b)) => values(&a, &b),
            _ => a_rest.cmp(b_rest),
        },
        _ => a_rest.cmp(b_rest),
    })
}

/// The set itself, fields, keys, values, positions.
fn rank(name: &str) -> (u8, &str) {
    let ranks = [("f:", 1), ("k:", 2), ("v:", 3), ("i:", 4)];
    let of = |(start, rank)| Some((rank, name.strip_prefix(start)?));
    ranks.into_iter().find_map(of).unwrap_or((0, name))
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn values(a: &Value, b: &Value) -> Ordering {
    let kind = |value: &Value| match value {
        Value::Number(_) => 0_u8,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => pairs(a.iter().zip(b), a.len(), b.len()),
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().zip(b.keys()).map(|(a, b)| a.cmp(b));
            let values = a.values().zip(b.values()).map(|(a, b)| values(a, b));
            let both = names.zip(values).map(|(name, value)| name.then(value));
            both.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
        }
        _ => kind(a).cmp(&kind(b)),
    }
}

fn pairs<'v>(
    pairs: impl Iterator<Item = (&'v Value, &'v Value)>,
    a_len: usize,
    b_len: usize,
) -> Ordering {
    let all = pairs.map(|(a, b)| values(a, b));
    all.fold(Ordering::Equal, Ordering::then).then(a_len.cmp(&b_len))
}
