//! The order of resourceVersions.
use setpoint_object::resource_version::{compare, has_order};
use std::cmp::Ordering;

/// Lines that are integers of any length compare as integers; other lines have no order.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut versions: Vec<&str> = text.split('\n').take(16).collect();
    for a in &versions {
        for b in &versions {
            assert_eq!(compare(a, b), integers(a, b), "{a:?} {b:?}");
            assert_eq!(compare(a, b), compare(b, a).map(Ordering::reverse), "{a:?} {b:?}");
        }
    }
    versions.retain(|version| has_order(version));
    // Panics if this is not a total order.
    versions.sort_by(|a, b| compare(a, b).unwrap());
}

/// Compares digit by digit, from the right.
fn integers(a: &str, b: &str) -> Option<Ordering> {
    let digits = |text: &str| {
        let digits: Option<Vec<u32>> =
            text.chars().rev().map(|c| c.is_ascii().then(|| c.to_digit(10))?).collect();
        digits.filter(|digits| digits.last().is_some_and(|first| *first > 0))
    };
    let (a, b) = (digits(a)?, digits(b)?);
    let mut order = Ordering::Equal;
    for place in 0..a.len().max(b.len()) {
        let digit = |digits: &[u32]| digits.get(place).copied().unwrap_or(0);
        order = digit(&a).cmp(&digit(&b)).then(order);
    }
    Some(order)
}
