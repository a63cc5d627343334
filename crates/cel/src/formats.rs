//! Formats of texts that schemas and the library `format` share, as the reference's expressions
//! have them.

use crate::value::Timestamp;

/// Whether it is a UUID, each of whose dashes may be missing.
pub fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..digits) {
            Some(part) if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                rest = &rest[digits..];
            }
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Whether it is base64 with padding. Bits that the last character has too many do not count, and
/// nothing is no base64.
pub fn is_base64(text: &str) -> bool {
    let content =
        text.strip_suffix('=').map_or(text, |rest| rest.strip_suffix('=').unwrap_or(rest));
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !content.is_empty() && text.len().is_multiple_of(4) && content.bytes().all(is_digit)
}

/// Whether it is a date and a time with an offset. An hour of 24 or a second of 60 is none; the
/// offset may be anything.
pub fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    Timestamp::parse_date(date).is_some() && is_time(time)
}

fn is_time(text: &str) -> bool {
    let is_number = |text: Option<&str>, max: &str| {
        text.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()) && text <= max)
    };
    let has_colons = text.get(2..3) == Some(":") && text.get(5..6) == Some(":");
    let is_clock = is_number(text.get(..2), "23")
        && is_number(text.get(3..5), "59")
        && is_number(text.get(6..8), "59");
    let is_offset = |text: &str| {
        let digits = text.strip_prefix(['+', '-']);
        text == "z"
            || digits.is_some_and(|digits| {
                digits.len() == 5
                    && digits.bytes().enumerate().all(|(at, byte)| match at {
                        2 => byte == b':',
                        _ => byte.is_ascii_digit(),
                    })
            })
    };
    // Any character may stand before the fraction.
    let without_fraction = |text: &str| {
        let mut rest = text.chars();
        rest.next();
        let digits = rest.as_str();
        let offset = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        offset.len() < digits.len() && is_offset(offset)
    };
    let rest = text.get(8..).unwrap_or_default();
    has_colons && is_clock && (is_offset(rest) || without_fraction(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_reference() {
        for good in [
            "2020-02-29T23:59:59Z",
            "2020-01-01t00:00:00z",
            "2020-01-01T00:00:00.123456789123+99:99",
            "2020-01-01T00:00:00,5Z",
            "2020-01-01T00:00:00+01-02:00",
        ] {
            assert!(is_date_time(good), "{good}");
        }
        for bad in [
            "",
            "2020-01-01",
            "2020-01-01 00:00:00Z",
            "2021-02-29T00:00:00Z",
            "2020-01-01T24:00:00Z",
            "2020-01-01T00:00:60Z",
            "2020-01-01T00:00:00",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00+1:00",
            "2020-01-01T0é:00:00Z",
        ] {
            assert!(!is_date_time(bad), "{bad}");
        }
        assert!(is_base64("YR==") && is_base64("YWI=") && is_base64("YWJj"));
        for bad in ["", "YQ", "YQ=", "=", "====", "Y===", "Y_==", "YQ==YQ=="] {
            assert!(!is_base64(bad), "{bad}");
        }
        assert!(is_uuid("a8098c1a-f86e11da-bd1a00112444be1e") && !is_uuid("a8098c1a--f86e"));
    }
}
