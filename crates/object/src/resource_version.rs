//! The order of resourceVersions.
//!
//! A resourceVersion is opaque to most who hold one. Where it must be known whether one is older
//! than another, to read back what was just written, those of one resource type compare as decimal
//! integers (KEP-5504). They are of any length, so that nothing is parsed into a word. Those of
//! different types say nothing about each other.
use std::cmp::Ordering;

/// Which of two resourceVersions of one resource type is older; `None` when either is not one that
/// has an order.
///
/// Of two integers without sign or leading zeros, the longer is the larger, and those of equal
/// length compare as text. What is no such integer is unknown, never zero: the empty one, `"0"`
/// (which in a request means *any*), and foreign servers' own.
///
/// ```
/// use setpoint_object::resource_version::compare;
/// use std::cmp::Ordering;
///
/// assert_eq!(compare("99", "100"), Some(Ordering::Less));
/// assert_eq!(compare("7", "v7"), None);
/// ```
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let has_order = has_order(a) && has_order(b);
    has_order.then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// Whether a resourceVersion is an integer that compares with others.
pub fn has_order(resource_version: &str) -> bool {
    let bytes = resource_version.as_bytes();
    bytes.first().is_some_and(|first| *first != b'0') && bytes.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_plain_integer_is_unknown_even_to_itself() {
        for text in
            ["", "0", "00", "07", "+7", "-7", " 7", "7 ", "7.0", "1e3", "0x7", "v7", "٧", "7\0"]
        {
            assert_eq!(compare(text, text), None, "{text:?}");
            assert_eq!((compare(text, "7"), compare("7", text)), (None, None), "{text:?}");
        }
    }

    #[test]
    fn length_has_no_bound() {
        let long = "9".repeat(100);
        assert_eq!(compare(&long, &format!("1{}", "0".repeat(100))), Some(Ordering::Less));
        assert_eq!(compare(&long, "18446744073709551616"), Some(Ordering::Greater));
    }

    proptest! {
        #[test]
        fn integers_compare_as_integers(a: u128, b: u64) {
            let (a, b) = (a >> (b % 128), u128::from(b));
            prop_assume!(a > 0 && b > 0);
            prop_assert_eq!(compare(&a.to_string(), &b.to_string()), Some(a.cmp(&b)));
        }
    }
}
