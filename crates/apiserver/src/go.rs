//! Go's notation of durations, which clients send and read.

use setpoint_object::field::quote;
use std::time::Duration;

/// A signed duration, as `time.ParseDuration` reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoDuration {
    /// Whether it has a minus sign.
    pub(crate) negative: bool,
    /// Its size.
    pub(crate) size: Duration,
}

/// Parses `300ms`, `1.5h`, `2h45m`, `0`.
///
/// # Errors
///
/// Go's text, such as `time: missing unit in duration "5"`.
pub(crate) fn parse_duration(text: &str) -> Result<GoDuration, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(GoDuration { negative, size: Duration::ZERO });
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: f64 = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = match unit {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => {
                return Err(format!(
                    "time: unknown unit {} in duration {}",
                    quote(unit),
                    quote(text)
                ));
            }
        };
        nanos += number * scale;
        rest = tail;
    }
    // 2^63 nanoseconds is the limit of Go's type.
    if nanos >= 9.223_372_036_854_775e18 {
        return Err(invalid());
    }
    Ok(GoDuration { negative, size: Duration::from_secs_f64(nanos / 1e9) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        let size = |text: &str| parse_duration(text).map(|d| d.size.as_millis());
        assert_eq!(size("300ms"), Ok(300));
        assert_eq!(size("1m1.5s"), Ok(61_500));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("0s"), Ok(0));
        assert!(parse_duration("-1s").unwrap().negative);
        assert_eq!(size("foo"), Err(r#"time: invalid duration "foo""#.into()));
        assert_eq!(size(""), Err(r#"time: invalid duration """#.into()));
        assert_eq!(size("5"), Err(r#"time: missing unit in duration "5""#.into()));
        assert_eq!(size("5x"), Err(r#"time: unknown unit "x" in duration "5x""#.into()));
        assert_eq!(size("99999999999h"), Err(r#"time: invalid duration "99999999999h""#.into()));
    }
}
