//! Points in time and lengths of time, with Go's texts and limits.

use std::fmt;

const NANOS: i64 = 1_000_000_000;

/// A length of time in nanoseconds: ±292 years, as Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

impl Duration {
    /// So many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The length in nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The length in seconds, with a fraction.
    pub fn seconds(self) -> f64 {
        (self.0 / NANOS) as f64 + (self.0 % NANOS) as f64 / 1e9
    }

    /// Reads Go's form: `1h30m`, `-1.5s`, `0`. `None` if it is not one or too long.
    pub fn parse(text: &str) -> Option<Self> {
        setpoint_object::duration::parse(text).ok().map(Self)
    }

    /// Reads the format `duration` of a schema: Go's form, or numbers with units up to weeks
    /// (`2 days`).
    pub fn parse_lenient(text: &str) -> Option<Self> {
        if let Some(duration) = Self::parse(text) {
            return Some(duration);
        }
        let mut total: i64 = 0;
        let mut found = false;
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            rest = &rest[start..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            let tail = tail.trim_start();
            let end =
                tail.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            rest = tail;
            if unit.is_empty() {
                continue;
            }
            let number: i64 = number.parse().ok()?;
            let unit = unit.to_lowercase();
            let multiplier = match unit.as_str() {
                "ns" => 1,
                _ if unit.starts_with("nano") => 1,
                "us" | "µs" => 1_000,
                _ if unit.starts_with("micro") => 1_000,
                "ms" => 1_000_000,
                _ if unit.starts_with("milli") => 1_000_000,
                "s" => NANOS,
                _ if unit.starts_with("sec") => NANOS,
                "m" => 60 * NANOS,
                _ if unit.starts_with("min") => 60 * NANOS,
                "h" | "hr" => 3_600 * NANOS,
                _ if unit.starts_with("hour") => 3_600 * NANOS,
                "d" => 86_400 * NANOS,
                _ if unit.starts_with("day") => 86_400 * NANOS,
                "w" | "wk" => 7 * 86_400 * NANOS,
                _ if unit.starts_with("week") => 7 * 86_400 * NANOS,
                _ => continue,
            };
            found = true;
            total = total.checked_add(number.checked_mul(multiplier)?)?;
        }
        found.then_some(Self(total))
    }

    /// The sum; `None` if it is too long.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference; `None` if it is too long.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }
}

/// Seconds with a fraction and `s`: `5400s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.seconds())
    }
}

/// A point in time: years 1 to 9999, in nanoseconds, with the offset it was written with.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    /// Seconds east of UTC; only its text shows it.
    offset: i32,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// The parts of a point in time in some time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
    /// The day of the year, from 1.
    pub year_day: u32,
    /// The day of the week; Sunday is 0.
    pub weekday: u32,
    /// The hour.
    pub hour: u32,
    /// The minute.
    pub minute: u32,
    /// The second.
    pub second: u32,
    /// The fraction of the second.
    pub nanos: u32,
}

impl Timestamp {
    /// The first second of year 1: what Go calls the zero time.
    pub const ZERO: Timestamp = Timestamp { seconds: Self::SECONDS_MIN, nanos: 0, offset: 0 };
    /// 0001-01-01T00:00:00Z.
    pub const SECONDS_MIN: i64 = -62_135_596_800;
    /// 9999-12-31T23:59:59Z.
    pub const SECONDS_MAX: i64 = 253_402_300_799;

    /// A point in time by seconds since 1970 and nanoseconds; `None` outside of years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        ((Self::SECONDS_MIN..=Self::SECONDS_MAX).contains(&seconds) && nanos < 1_000_000_000)
            .then_some(Self { seconds, nanos, offset: 0 })
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// The fraction of the second.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// Reads RFC 3339. `None` if it is not that.
    ///
    /// # Errors
    ///
    /// The inner `Err`: a point in time outside of years 1 to 9999.
    pub fn parse(text: &str) -> Option<Result<Self, OutOfRange>> {
        Self::parse_with(text, false)
    }

    /// Reads the format `date-time` of a schema: RFC 3339, with or without an offset.
    pub fn parse_lenient(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self { seconds: 0, nanos: 0, offset: 0 });
        }
        Self::parse_with(text, true)?.ok()
    }

    fn parse_with(text: &str, lenient: bool) -> Option<Result<Self, OutOfRange>> {
        let date = Self::parse_date_part(text.get(..10)?)?;
        let rest = text.get(10..)?.strip_prefix('T')?;
        let bytes = rest.as_bytes();
        if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
            return None;
        }
        let hour = digits(rest.get(..2)?).filter(|hour| *hour < 24)?;
        let minute = digits(rest.get(3..5)?).filter(|minute| *minute < 60)?;
        let second = digits(rest.get(6..8)?).filter(|second| *second < 60)?;
        let mut rest = rest.get(8..)?;
        let mut nanos = 0u32;
        if let Some(fraction) = rest.strip_prefix('.') {
            let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return None;
            }
            let kept = &fraction[..end.min(9)];
            nanos = digits(kept)? * 10u32.pow(9 - kept.len() as u32);
            rest = &fraction[end..];
        }
        let offset: i32 = match rest {
            "Z" => 0,
            "" if lenient => 0,
            _ => {
                let sign = match rest.as_bytes().first()? {
                    b'+' => 1,
                    b'-' => -1,
                    _ => return None,
                };
                let (hours, minutes) = rest.get(1..)?.split_once(':')?;
                if hours.len() != 2 || minutes.len() != 2 {
                    return None;
                }
                let hours = digits(hours).filter(|hours| *hours <= 24)?;
                let minutes = digits(minutes).filter(|minutes| *minutes < 60)?;
                sign * i32::try_from(hours * 3600 + minutes * 60).ok()?
            }
        };
        let seconds =
            date * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - i64::from(offset);
        Some(Self::new(seconds, nanos).map(|time| Self { offset, ..time }).ok_or(OutOfRange))
    }

    /// Reads the format `date` of a schema: `2006-01-02`, midnight in UTC.
    pub fn parse_date(text: &str) -> Option<Self> {
        Self::new(Self::parse_date_part(text)? * 86_400, 0)
    }

    /// Days since 1970.
    fn parse_date_part(text: &str) -> Option<i64> {
        let bytes = text.as_bytes();
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        let year = digits(text.get(..4)?)?.into();
        let month = digits(text.get(5..7)?).filter(|month| (1..=12).contains(month))?;
        let day = digits(text.get(8..10)?)?;
        (day >= 1 && day <= days_of_month(year, month)).then(|| days(year, month, day))
    }

    /// The sum; `None` outside of years 1 to 9999.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let nanos = i128::from(self.seconds) * i128::from(NANOS)
            + i128::from(self.nanos)
            + i128::from(duration.nanos());
        let seconds = i64::try_from(nanos.div_euclid(NANOS.into())).ok()?;
        let nanos = u32::try_from(nanos.rem_euclid(NANOS.into())).ok()?;
        Some(Self { offset: self.offset, ..Self::new(seconds, nanos)? })
    }

    /// The time from `earlier` to this; `None` if it is too long.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let nanos = i128::from(self.seconds - earlier.seconds) * i128::from(NANOS)
            + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        i64::try_from(nanos).ok().map(Duration)
    }

    /// The parts at an offset, in seconds east of UTC.
    pub fn civil(self, offset: i32) -> Civil {
        let local = self.seconds + i64::from(offset);
        let day_number = local.div_euclid(86_400);
        let second = local.rem_euclid(86_400) as u32;
        let (year, month, day) = date(day_number);
        Civil {
            year,
            month,
            day,
            year_day: (day_number - days(year, 1, 1)) as u32 + 1,
            weekday: (day_number + 4).rem_euclid(7) as u32,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            nanos: self.nanos,
        }
    }

    /// The parts in a time zone: `UTC`, a name such as `Europe/Berlin`, or an offset `-08:00`.
    ///
    /// # Errors
    ///
    /// An unknown name, or what is not an offset.
    pub fn in_zone(self, zone: &str) -> Result<Civil, UnknownZone> {
        let unknown = || UnknownZone(zone.to_owned());
        if let Some((hours, minutes)) = zone.split_once(':') {
            let hours_value: i32 = hours.parse().map_err(|_| unknown())?;
            let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
            if hours_value.abs() > 24 || !(0..60).contains(&minutes) {
                return Err(unknown());
            }
            let minutes = if hours.starts_with('-') { -minutes } else { minutes };
            return Ok(self.civil(hours_value * 3600 + minutes * 60));
        }
        if zone.is_empty() || zone == "UTC" {
            return Ok(self.civil(0));
        }
        let zone = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
        let clamped =
            self.seconds.clamp(jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
        let at = jiff::Timestamp::from_second(clamped).map_err(|_| unknown())?;
        Ok(self.civil(zone.to_offset(at).seconds()))
    }
}

/// A point in time outside of years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timestamp overflow")]
pub struct OutOfRange;

/// An unknown time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub struct UnknownZone(String);

/// RFC 3339 with the fraction it has, at the offset it was written with.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(self.offset);
        let Civil { year, month, day, hour, minute, second, .. } = civil;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A number of nothing but digits.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: u32) -> u32 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date. Years begin in March here, so that the leap day is the last one.
fn days(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from((month + 9) % 12);
    let day_of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date so many days after 1970-01-01.
fn date(number: i64) -> (i64, u32, u32) {
    let shifted = number + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month + 2) / 5 + 1) as u32;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_as_go_does() {
        for (text, nanos, shown) in [
            ("1h30m", 5_400 * NANOS, "5400s"),
            ("-1.5s", -1_500_000_000, "-1.5s"),
            ("0", 0, "0s"),
            ("1.000000001s", 1_000_000_001, "1.000000001s"),
            ("10ms", 10_000_000, "0.01s"),
            (".5s", 500_000_000, "0.5s"),
            ("1µs", 1_000, "0.000001s"),
        ] {
            let duration = Duration::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((duration.nanos(), duration.to_string().as_str()), (nanos, shown), "{text}");
        }
        for text in ["", "1", "s", "1d", "1h-2m", "1..5s", "9999999h", "-"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
        assert_eq!(Duration::parse_lenient("2 days"), Some(Duration(2 * 86_400 * NANOS)));
    }

    #[test]
    fn timestamps_are_read_and_shown_as_go_does() {
        for (text, seconds, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2009-02-13T23:31:30Z", 1_234_567_890, "2009-02-13T23:31:30Z"),
            ("2009-02-14T00:31:30+01:00", 1_234_567_890, "2009-02-14T00:31:30+01:00"),
            ("0001-01-01T00:00:00Z", Timestamp::SECONDS_MIN, "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.9Z", Timestamp::SECONDS_MAX, "9999-12-31T23:59:59.9Z"),
            ("2024-02-29T12:00:00.120Z", 1_709_208_000, "2024-02-29T12:00:00.12Z"),
        ] {
            let time = Timestamp::parse(text).and_then(Result::ok);
            let time = time.unwrap_or_else(|| panic!("{text}"));
            assert_eq!((time.seconds(), time.to_string().as_str()), (seconds, shown), "{text}");
        }
        for text in ["2023-02-29T12:00:00Z", "2024-01-01", "2024-01-01T24:00:00Z", "x"] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
        assert_eq!(Timestamp::parse("0000-12-31T00:00:00Z"), Some(Err(OutOfRange)));
    }

    #[test]
    fn zones_move_the_parts_of_a_time() {
        let time = Timestamp::new(1_234_567_890, 123_000_000).unwrap();
        let civil = time.in_zone("Australia/Sydney").unwrap();
        assert_eq!((civil.day, civil.hour, civil.weekday), (14, 10, 6));
        assert_eq!(time.in_zone("-08:00").unwrap().hour, 15);
        assert_eq!(time.civil(0).year_day, 44);
        assert!(time.in_zone("Nowhere/Town").is_err());
    }
}
