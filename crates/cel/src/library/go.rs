//! Texts of numbers as Go reads and writes them.

use crate::value::Value;

/// `strconv.ParseInt` of base ten.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.parse().ok())?
}

/// `strconv.ParseUint` of base ten.
pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.parse().ok())?
}

/// `strconv.ParseFloat`, without hexadecimal numbers.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = bare.to_ascii_lowercase();
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    match lower.as_str() {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    if !bare.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// `%g` with the fewest digits that give the number back.
pub(crate) fn general(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Beyond these Go changes to an exponent.
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    format!("{mantissa}e{}", go_exponent(exponent))
}

/// `%f` with so many digits after the point.
pub(crate) fn fixed(value: f64, digits: usize) -> String {
    match special(value) {
        Some(text) => text.to_owned(),
        None => format!("{value:.digits$}"),
    }
}

/// `%e` with so many digits after the point.
pub(crate) fn exponential(value: f64, digits: usize) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}e{}", go_exponent(exponent.parse().unwrap_or(0)))
}

fn go_exponent(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:02}", exponent.abs())
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("+Inf")
    } else if value == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// The most bytes of a text that an error shows: errors may be made, and absorbed, in every round
/// of a loop.
const SHOWN_BYTES_MAX: usize = 1 << 10;

/// A value as errors show it: of a long one, the beginning.
pub(crate) fn display(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => general(*value),
        Value::String(text) => text[..text.floor_char_boundary(SHOWN_BYTES_MAX)].to_owned(),
        Value::Bytes(bytes) => {
            let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
            String::from_utf8_lossy(shown).into_owned()
        }
        Value::Duration(duration) => duration.to_string(),
        Value::Timestamp(time) => time.to_string(),
        value => value.type_name().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_does() {
        for (value, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.5, "-1.5"),
            (f64::INFINITY, "+Inf"),
            (1e-100, "1e-100"),
        ] {
            assert_eq!(general(value), text);
        }
        assert_eq!(exponential(1052.032911275, 6), "1.052033e+03");
        assert_eq!(fixed(2.71528, 2), "2.72");
    }
}
