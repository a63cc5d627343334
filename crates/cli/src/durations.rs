//! Durations of flags, as kube-apiserver reads them.

use std::time::Duration;

/// Parses `90`, `90s` or `1h0m0s`: whole hours, minutes and seconds, at least one second in all.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = duration_or_zero(text)?;
    if parsed.is_zero() { Err("at least one second".into()) } else { Ok(parsed) }
}

/// The same, which may be `0s`.
fn duration_or_zero(text: &str) -> Result<Duration, String> {
    let duration = Some(any_duration(text)?).filter(|found| found.subsec_nanos() == 0);
    duration.ok_or_else(|| "give hours, minutes and seconds: 1h30m".to_owned())
}

/// Parses any duration that is not negative, such as `1m30s`, `500ms` or `0s`.
pub(crate) fn any_duration(text: &str) -> Result<Duration, String> {
    // A bare number is in seconds.
    let unit = if text.ends_with(|c: char| c.is_ascii_digit()) { "s" } else { "" };
    let parsed = setpoint::object::duration::parse(&format!("{text}{unit}"));
    let nanos = u64::try_from(parsed.map_err(|error| error.to_string())?);
    nanos.map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{any_duration, duration};
    use std::time::Duration;

    #[test]
    fn durations_are_parsed_as_by_kube_apiserver() {
        let seconds = |text| duration(text).map(|ttl| ttl.as_secs()).ok();
        assert_eq!(seconds("1h0m0s"), Some(3600));
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("1m5"), Some(65));
        assert_eq!(seconds("7"), Some(7));
        for bad in ["", "0", "0s", "h", "1d", "-1s", "1.5s", "99999999999999999999h"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        assert_eq!(any_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(any_duration("0"), Ok(Duration::ZERO));
        assert_eq!(any_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(any_duration("-1s").is_err() && any_duration("x").is_err());
    }
}
