//! The cost of an evaluation: [`Cost`] at run time.
//!
//! The rules of Kubernetes go by the function and hold always. Those of cel-go itself go by the
//! overload: where the types of operands are known only at run time and several overloads fit, such
//! a call costs one.

use crate::eval::EXPRESSION_COST_MAX;
use crate::library::{Cost, Overload};
use crate::value::Value;

/// Making a list.
pub const LIST: u64 = 10;
/// Making a map.
pub const MAP: u64 = 30;
/// Making an object.
pub const STRUCT: u64 = 40;

/// Going through a text once, for each character.
const TRAVERSAL: f64 = 0.1;
/// A pattern, for each of its characters.
const PATTERN: f64 = 0.25;
/// The most parts of a tree that are visited: a list of more empty texts, which cost nothing, does
/// not fit into a request.
const VISITED_MAX: u64 = 2_000_000;
/// An authorization check: two fit into an expression.
const CHECK: u64 = 350_000;

/// Going through so many characters `times` times, rounded up.
fn scan(size: u64, times: f64) -> u64 {
    (size as f64 * times * TRAVERSAL).ceil() as u64
}

/// Trying a pattern on a text.
fn search(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TRAVERSAL).ceil() as u64;
    text.saturating_mul((pattern as f64 * PATTERN).ceil() as u64)
}

/// A call that makes a list of what it compares `size` times.
fn list_call(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST)
}

/// Comparing all elements of a list with each other.
fn compare_all(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return list_call(2.0, 0) };
    let size = list.len() as u64;
    let texts = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    list_call(if texts { 2.0 + TRAVERSAL } else { 2.0 }, size.saturating_mul(size))
}

/// The cost of `==` and `!=`. Values of Kubernetes' libraries are equal for one; `!=` does not know
/// them.
pub(crate) fn equality(operands: &[Value<'_>; 2], negated: bool) -> u64 {
    if !negated && matches!(operands[0], Value::Opaque(_)) {
        return 1;
    }
    scan(operands[0].smaller_size(&operands[1]), 1.0)
}

/// The cost of a call whose operands have been counted.
pub(crate) fn call(
    overload: &Overload,
    resolved: bool,
    args: &[Value<'_>],
    result: &Value<'_>,
) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    let per_overload = |cost: u64| if resolved { cost } else { 1 };
    match overload.cost {
        Cost::One | Cost::Includes | Cost::AddList | Cost::IndexList | Cost::IndexMap => 1,
        Cost::Logical | Cost::Conditional => 0,
        Cost::Compare => match args {
            [a, b] => per_overload(scan(a.smaller_size(b), 1.0)),
            _ => per_overload(scan(1, 1.0)),
        },
        Cost::Concat => per_overload(scan(size(0).saturating_add(size(1)), 1.0)),
        Cost::InList => per_overload(size(1)),
        // The receiver's size counts, and the argument's does not.
        Cost::Affix | Cost::StringToBytes | Cost::BytesToString | Cost::Format | Cost::Quote => {
            per_overload(scan(size(0), 1.0))
        }
        Cost::Contains => per_overload(scan(size(0), 1.0).saturating_mul(scan(size(1), 1.0))),
        Cost::Matches => per_overload(search(size(0), size(1))),
        Cost::Scan | Cost::Parse => scan(size(0), 1.0),
        Cost::Replace | Cost::Split | Cost::ParseTwice => scan(size(0), 2.0),
        Cost::Join => scan(result.size(), 2.0),
        Cost::Find => search(size(0), size(1)),
        Cost::Aggregate => args.first().map_or(0, |value| traversal(value, 0, &mut 0)),
        Cost::Sets => per_overload(size(0).saturating_mul(size(1)).saturating_add(1)),
        Cost::SetsEquivalent => {
            per_overload(size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(1))
        }
        Cost::Slice | Cost::Range | Cost::Reverse => per_overload(list_call(1.0, result.size())),
        Cost::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => *depth as f64,
                _ => 1.0,
            };
            per_overload(list_call(depth, size(0)))
        }
        Cost::Distinct | Cost::Sort => per_overload(compare_all(args.first())),
        Cost::SortBy => per_overload(compare_all(args.get(1))),
        Cost::ContainsIp(text) => {
            let cost = scan(size(0).saturating_mul(2), 1.0);
            cost + if text { scan(size(1), 1.0) } else { 0 }
        }
        Cost::ContainsCidr(text) => {
            let cost = scan(size(0).saturating_mul(2), 1.0) + scan(size(0), 1.0) + 1;
            cost + if text { scan(size(1), 1.0) } else { 0 }
        }
        Cost::Validate => {
            let pattern = args.first().map_or(1, crate::library::format_pattern_size);
            search(size(1), pattern)
        }
        Cost::Check => CHECK,
        Cost::Selector => {
            // Requirements of two characters, each with a struct and a list.
            let size = size(1);
            LIST + scan(size, 1.0) + (size.div_ceil(2)).saturating_mul(LIST + STRUCT)
        }
    }
}

/// Going through a tree: a tenth for each byte of text, rounded down for each text, one for
/// everything else. Trees that share their parts are cut off. `visited`: the parts so far, which
/// may cost nothing.
fn traversal(value: &Value<'_>, depth: usize, visited: &mut u64) -> u64 {
    const DEPTH_MAX: usize = 32;
    *visited += 1;
    if depth > DEPTH_MAX || *visited > VISITED_MAX {
        return u64::from(u32::MAX);
    }
    let mut cost = 0u64;
    match value {
        Value::String(text) => cost = (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => cost = (bytes.len() as f64 * TRAVERSAL) as u64,
        Value::List(list) => {
            for item in list.iter().flatten() {
                cost = cost.saturating_add(traversal(&item, depth + 1, visited));
                if cost > EXPRESSION_COST_MAX {
                    break;
                }
            }
        }
        Value::Map(map) => {
            for key in map.keys() {
                cost = cost.saturating_add(traversal(&key, depth + 1, visited));
                if let Some(Ok(value)) = map.get(&key) {
                    cost = cost.saturating_add(traversal(&value, depth + 1, visited));
                }
                if cost > EXPRESSION_COST_MAX {
                    break;
                }
            }
        }
        Value::Object(object) => {
            for key in object.keys() {
                cost = cost.saturating_add((key.len() as f64 * TRAVERSAL) as u64);
                if let Some(Ok(value)) = object.get(&key) {
                    cost = cost.saturating_add(traversal(&value, depth + 1, visited));
                }
                if cost > EXPRESSION_COST_MAX {
                    break;
                }
            }
        }
        _ => cost = 1,
    }
    cost
}
