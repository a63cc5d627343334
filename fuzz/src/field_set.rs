//! The sets of managedFields.
use setpoint_schema::apply::FieldSet;
use setpoint_schema::decode::{Format, parse};

/// A tree is refused, or is a set whose own form is the same set. Set arithmetic with another one
/// (the input's second line) holds.
pub fn check(input: &[u8]) {
    let trees: Vec<_> = input
        .split(|byte| *byte == b'\n')
        .take(2)
        .filter_map(|line| parse(line, Format::Json).ok())
        .map(|decoded| decoded.value)
        .collect();
    let sets: Vec<FieldSet<'_>> =
        trees.iter().filter_map(|tree| FieldSet::from_wire(tree).ok()).collect();
    for set in &sets {
        let wire = set.to_wire();
        assert_eq!(FieldSet::from_wire(&wire).as_ref(), Ok(set), "{wire}");
        let mut none = set.clone();
        none.subtract(set);
        assert!(none.paths().is_empty());
    }
    if let [a, b] = &sets[..] {
        let (both, either) = (a.intersection(b), a.clone().union(b.clone()));
        assert!(both.is_within(a) && both.is_within(b) && a.is_within(&either));
        let mut rest = a.clone();
        rest.subtract(b);
        assert!(!rest.meets(b));
    }
}
