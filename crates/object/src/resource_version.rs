//! The order of resourceVersions.
//!
//! A resourceVersion is opaque to most clients. A client that must know which of two is older, for
//! example to read its own write, may compare those of one resource type as decimal integers
//! (KEP-5504). They may have any length, so nothing is parsed into a machine word. Those of
//! different types cannot be compared.
use std::cmp::Ordering;

/// Compares two resourceVersions of one resource type; `None` if either has no order.
///
/// Of two integers without sign or leading zeros, the longer is larger; those of equal length
/// compare as text. Anything else has no order and is not treated as zero: the empty string, `"0"`
/// (which means *any* in a request), and other servers' formats.
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

/// Whether a resourceVersion is an integer that can be compared.
pub fn has_order(resource_version: &str) -> bool {
    let bytes = resource_version.as_bytes();
    bytes.first().is_some_and(|first| *first != b'0') && bytes.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn non_integers_have_no_order_even_with_themselves() {
        for text in
            ["", "0", "00", "07", "+7", "-7", " 7", "7 ", "7.0", "1e3", "0x7", "v7", "٧", "7\0"]
        {
            assert_eq!(compare(text, text), None, "{text:?}");
            assert_eq!((compare(text, "7"), compare("7", text)), (None, None), "{text:?}");
        }
    }

    #[test]
    fn length_is_unbounded() {
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
