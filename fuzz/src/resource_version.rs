//! The order of resourceVersions.
use setpoint_object::resource_version::{compare, has_order};
use std::cmp::Ordering;

/// Among versions, one in a line, the order is the one of integers of any length; the others have
/// none.
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
    // Panics when this is no total order.
    versions.sort_by(|a, b| compare(a, b).unwrap());
}

/// Digit by digit, from the right.
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
