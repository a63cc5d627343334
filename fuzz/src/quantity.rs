//! Quantities.
use setpoint_object::quantity::Quantity;
use std::cmp::Ordering;

/// A text is refused, or has a canonical form, which is a quantity as large and its own canonical
/// form. The order of two lines is the same both ways.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let all: Vec<Quantity> =
        text.split('\n').take(16).filter_map(|line| Quantity::parse(line).ok()).collect();
    for quantity in &all {
        let again = Quantity::parse(quantity.as_str()).unwrap();
        assert_eq!(again.as_str(), quantity.as_str());
        assert_eq!(again.compare(quantity), Ordering::Equal, "{quantity}");
        let _ = (quantity.value(), quantity.milli_value(), quantity.approximate());
        let _ = quantity.in_thousandths();
        for other in &all {
            assert_eq!(quantity.compare(other), other.compare(quantity).reverse());
        }
    }
}
