use super::*;
use proptest::prelude::*;

fn canonical_of(text: &str) -> String {
    Quantity::parse(text).unwrap().to_string()
}

#[test]
fn texts_are_canonicalized() {
    for (text, canonical) in [
        ("0", "0"),
        ("-0", "0"),
        ("0.000Ki", "0"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("+1.50", "1500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("1.0001Ki", "1024102400u"),
        ("0.1Gi", "107374182400m"),
        ("-1.5Gi", "-1536Mi"),
        ("1000000", "1M"),
        ("1200k", "1200k"),
        ("100", "100"),
        ("1E", "1E"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e5", "1200e3"),
        ("1e2", "100"),
        ("1e-1", "100e-3"),
        ("1e-9", "1e-9"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("1e-1000", "1e-9"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("100E", "100E"),
        // kube-apiserver shows 1, and stores that.
        ("1000E", "1000E"),
        ("1e21", "1e21"),
        ("16Ei", "9223372036854775807"),
        ("-16Ei", "-9223372036854775807"),
        ("99999999999999999999.5Ki", "9223372036854775807"),
        ("-1e400", "-1e27"),
        ("1000000001E", "1000000000E"),
        ("1e9223372036854775807", "1e27"),
        ("0e400", "0"),
    ] {
        assert_eq!(canonical_of(text), canonical, "{text}");
    }
}

#[test]
fn invalid_quantity_has_the_error_of_the_api() {
    for (text, error) in [
        ("", ParseQuantityError::Format),
        ("a", ParseQuantityError::Format),
        ("1.2.3", ParseQuantityError::Format),
        ("1 Mi", ParseQuantityError::Format),
        ("--1", ParseQuantityError::Suffix),
        ("é", ParseQuantityError::Format),
        ("e", ParseQuantityError::Suffix),
        ("1KI", ParseQuantityError::Format),
        ("1mi", ParseQuantityError::Suffix),
        ("1K", ParseQuantityError::Suffix),
        ("1e", ParseQuantityError::Suffix),
        ("1e+", ParseQuantityError::Suffix),
        ("1i3", ParseQuantityError::Suffix),
        ("1e9223372036854775808", ParseQuantityError::Suffix),
    ] {
        assert_eq!(Quantity::parse(text), Err(error), "{text}");
    }
    // No digits are zero.
    for text in [".", "+", "-", "m", "Ki", ".Ki", "e3"] {
        assert!(Quantity::parse(text).unwrap().is_zero(), "{text}");
    }
}

#[test]
fn values_round_away_from_zero_and_compare_across_families() {
    let parse = |text| Quantity::parse(text).unwrap();
    assert_eq!((parse("1500m").value(), parse("-1500m").value()), (2, -2));
    assert_eq!((parse("0.5").milli_value(), parse("1u").milli_value()), (500, 1));
    assert_eq!(parse("8Ei").milli_value(), i64::MAX);
    assert_eq!(parse("1Ki").compare(&parse("1024")), Ordering::Equal);
    assert_eq!(parse("1Ki").compare(&parse("1k")), Ordering::Greater);
    assert_eq!(parse("-1").compare(&parse("1n")), Ordering::Less);
}

#[test]
fn sums_have_the_suffixes_of_the_first_operand() {
    let parse = |text| Quantity::parse(text).unwrap();
    assert_eq!((&parse("1Gi") + &parse("1024Mi")).as_str(), "2Gi");
    assert_eq!((&Quantity::default() + &parse("1Gi")).as_str(), "1Gi");
    assert_eq!((&parse("1") - &parse("1500m")).as_str(), "-500m");
}

#[test]
fn sums_of_the_largest_quantities_are_larger() {
    for text in ["8Ei", "9223372036854775807", "-8Ei", "1e400"] {
        let one = Quantity::parse(text).unwrap();
        let two = &one + &one;
        assert_eq!(two.compare(&one).is_gt(), !text.starts_with('-'), "{text}");
        assert_eq!((&two - &one).compare(&one), Ordering::Equal, "{text}");
        let many = (0..1000).fold(one.clone(), |sum, _| &sum + &one);
        assert_eq!(many.compare(&two), two.compare(&one), "{text}");
    }
    let two = &Quantity::parse("8Ei").unwrap() + &Quantity::parse("8Ei").unwrap();
    assert_eq!((two.as_str(), two.value()), ("18446744073709551614", i64::MAX));
}

proptest! {
    #[test]
    fn canonical_texts_are_fixed_points(
        text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?",
    ) {
        let quantity = Quantity::parse(&text).unwrap();
        let again = Quantity::parse(quantity.as_str()).unwrap();
        prop_assert_eq!(again.as_str(), quantity.as_str());
        prop_assert_eq!(again.compare(&quantity), Ordering::Equal);
    }

    #[test]
    fn a_binary_suffix_is_its_power_of_two(units in 0_i64..1 << 40, power in 0_u32..3) {
        let quantity = Quantity::parse(&format!("{units}{}", BINARY[power as usize])).unwrap();
        prop_assert_eq!(i128::from(quantity.value()), (i128::from(units) << (power * 10 + 10)).min(i128::from(i64::MAX)));
    }

    #[test]
    fn no_text_causes_a_panic(text in "[-+0-9.eEinumkKMGTPé ]{0,12}") {
        _ = Quantity::parse(&text);
    }
}
