//! Moments as ages: `5m`, `2m30s`, `6y325d`.

use setpoint_object::time::Timestamp;

/// The age of an unknown time.
pub(crate) const UNKNOWN: &str = "<unknown>";
/// The age of a time in the future, or of invalid text.
pub(crate) const INVALID: &str = "<invalid>";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Whole seconds in short form, with two units if the first is small: up to two minutes in seconds,
/// up to ten minutes `2m30s`, up to three hours in minutes, up to eight hours `3h20m`, up to two
/// days in hours, up to eight days `2d4h`, up to two years in days, up to eight years `6y325d`,
/// then years. More than a second below zero is `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    let two = |first: i64, first_unit: &str, second: i64, second_unit: &str| match second {
        0 => format!("{first}{first_unit}"),
        second => format!("{first}{first_unit}{second}{second_unit}"),
    };
    match seconds {
        ..-1 => INVALID.to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The age of an RFC 3339 time: `<unknown>` if the text is empty, `<invalid>` if it is not a time
/// or is in the future.
pub fn age_of(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        return UNKNOWN.to_owned();
    }
    match Timestamp::parse(text) {
        Some(moment) => human_duration(seconds_between(moment, now)),
        None => INVALID.to_owned(),
    }
}

/// Whole seconds between two times, negative if the second is earlier.
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    let seconds =
        |a: Timestamp, b: Timestamp| i64::try_from(b.since(a).as_secs()).unwrap_or(i64::MAX);
    if to >= from {
        seconds(from, to)
    } else {
        -seconds(to, from) - i64::from(to.since(from).as_secs() == 0)
    }
}
