//! Go's notation of durations (`1h30m`, `-1.5s`, `0`), which clients send and objects contain.

use crate::field::quote;
use std::fmt;
use std::time::Duration;

/// A text that is no duration. Its message is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is malformed, or longer than 2^63 nanoseconds (292 years).
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A unit is none of `ns`, `us`, `ms`, `s`, `m` and `h`.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// What stands in place of the unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Parses a duration as Go's `time.ParseDuration` does. The result is in nanoseconds; digits below
/// a nanosecond are cut off. Takes linear time.
///
/// # Errors
///
/// [`DurationError`] for anything else.
///
/// ```
/// use setpoint_object::duration;
///
/// assert_eq!(duration::parse("1m0.5s"), Ok(60_500_000_000));
/// assert_eq!(duration::parse("-2us"), Ok(-2_000));
/// let error = duration::parse("5").unwrap_err();
/// assert_eq!(error.to_string(), r#"time: missing unit in duration "5""#);
/// ```
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    // The magnitude of the smallest value is one more than that of the largest.
    let limit = 1u128 << 63;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (whole, tail) = split_digits(rest);
        let (fraction, tail) = tail.strip_prefix('.').map_or(("", tail), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_end = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit: u128 = match unit {
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => {
                return Err(DurationError::UnknownUnit {
                    unit: unit.to_owned(),
                    text: text.to_owned(),
                });
            }
        };
        let whole: u128 = match whole {
            "" => 0,
            _ => whole.parse().ok().filter(|number| *number <= limit).ok_or_else(invalid)?,
        };
        let mut part = whole * unit;
        let mut scale = unit;
        // The longest unit has 13 digits of nanoseconds.
        for digit in fraction.bytes().take(13) {
            part += scale * u128::from(digit - b'0') / 10;
            scale /= 10;
        }
        total += part;
        if total > limit {
            return Err(invalid());
        }
        rest = tail;
    }
    let total = i128::try_from(total).map_err(|_| invalid())?;
    i64::try_from(if is_negative { -total } else { total }).map_err(|_| invalid())
}

/// The digits at the start of a text, and what follows.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A duration as Go's `Duration.String` writes it.
///
/// ```
/// use setpoint_object::duration::Text;
/// use std::time::Duration;
///
/// assert_eq!(Text(Duration::from_millis(120_250)).to_string(), "2m0.25s");
/// assert_eq!(Text(Duration::from_micros(12_500)).to_string(), "12.5ms");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text(pub Duration);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = self.0.as_secs();
        if seconds == 0 {
            return match nanos {
                0 => f.write_str("0s"),
                1..1_000 => write!(f, "{nanos}ns"),
                1_000..1_000_000 => write!(f, "{}µs", decimal(nanos, 3)),
                _ => write!(f, "{}ms", decimal(nanos, 6)),
            };
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % 60_000_000_000, 9))
    }
}

/// A number with so many places after its point, without zeros at the end.
fn decimal(number: u128, places: u32) -> String {
    let one = 10_u128.pow(places);
    let fraction = format!("{:0width$}", number % one, width = places as usize);
    match fraction.trim_end_matches('0') {
        "" => (number / one).to_string(),
        fraction => format!("{}.{fraction}", number / one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        for (text, nanos) in [
            ("300ms", 300_000_000),
            ("1m1.5s", 61_500_000_000),
            ("0", 0),
            ("0s", 0),
            ("-0", 0),
            ("+5s", 5_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            ("2h45m", 9_900_000_000_000),
            ("1.us", 1_000),
            (".5\u{b5}s", 500),
            ("5\u{3bc}s", 5_000),
            ("0.000000001s", 1),
            ("0.0000000019s", 1),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let shown = |nanos| Text(Duration::from_nanos(nanos)).to_string();
        assert_eq!(
            [0, 1, 1_500, 2_000_000, 1_234_567, 1_000_000_000, 61_250_000_000, 3_600_000_000_001]
                .map(shown),
            ["0s", "1ns", "1.5µs", "2ms", "1.234567ms", "1s", "1m1.25s", "1h0m0.000000001s"]
        );
    }

    #[test]
    fn errors_have_the_texts_of_go() {
        for (text, message) in [
            ("foo", r#"time: invalid duration "foo""#),
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            (".s", r#"time: invalid duration ".s""#),
            ("s", r#"time: invalid duration "s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("1 s", r#"time: unknown unit " s" in duration "1 s""#),
            ("99999999999h", r#"time: invalid duration "99999999999h""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("-9223372036854775809ns", r#"time: invalid duration "-9223372036854775809ns""#),
            (
                "99999999999999999999999999999999999999999s",
                "time: invalid duration \"99999999999999999999999999999999999999999s\"",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
