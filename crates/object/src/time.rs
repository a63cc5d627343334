//! Timestamps in the API's formats, and the clock.
//!
//! No code in the project reads the machine's time: the program's edge creates a [`Clock`] and
//! passes it down. It is a start time plus tokio time, so it stands still when a test pauses time
//! and jumps when the test advances it.
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::temporal::DateTimePrinter;
use std::time::Duration;

/// A point in time: the time since the Unix epoch. Times before 1970 cannot be represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub Duration);
impl Timestamp {
    /// A timestamp of whole seconds since the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
    /// RFC 3339 with seconds and `Z`; fractions are truncated.
    pub fn rfc3339(&self) -> String {
        self.print(0)
    }
    /// RFC 3339 with exactly six fractional digits (`MicroTime`); smaller fractions are truncated.
    pub fn rfc3339_micro(&self) -> String {
        self.print(6)
    }
    fn print(&self, precision: u8) -> String {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        let moment = Moment { seconds, nanos: self.0.subsec_nanos() };
        moment.clamped().print(precision).unwrap_or_default()
    }
    /// Parses RFC 3339 with any offset and fraction. `None` for any other text and for times
    /// before 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let Moment { seconds, nanos } = Moment::parse(text)?;
        Some(Self(Duration::new(u64::try_from(seconds).ok()?, nanos)))
    }
    /// The duration from `earlier` to this time; zero if `earlier` is later.
    pub fn since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// The epoch.
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);
/// The first and the last moment that RFC 3339 can say.
const FIRST: Moment = Moment { seconds: -62_167_219_200, nanos: 0 };
const LAST: Moment = Moment { seconds: 253_402_300_799, nanos: 999_999_999 };

/// A time in an object, which may be before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Seconds since the Unix epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds after those seconds.
    pub nanos: u32,
}
impl Moment {
    /// The first second of the year 1. In the API it stands for no time, as Go's zero time.
    pub const ZERO: Self = Self { seconds: -62_135_596_800, nanos: 0 };

    /// Parses RFC 3339 with any offset and fraction, as Go does: an hour may have one digit, the
    /// fraction may begin with a comma and have any number of digits, of which nine count, and an
    /// offset has up to 24 hours and 60 minutes.
    pub fn parse(text: &str) -> Option<Self> {
        // `2026-01-01T2:` for `2026-01-01T02:`.
        let hour = if text.as_bytes().get(12) == Some(&b':') { 11 } else { 12 };
        let (date, time) = (text.get(..11)?, text.get(11..)?);
        let (clock, rest) = (time.get(..hour - 11 + 7)?, time.get(hour - 11 + 7..)?);
        has_shape(date, b"0000-00-00T").then_some(())?;
        has_shape(clock, if hour == 11 { b"0:00:00" } else { b"00:00:00" }).then_some(())?;
        let number = |text: &str| text.parse::<i8>().ok();
        let (hour, minutes) = clock.split_once(':')?;
        let (minute, second) = minutes.split_once(':')?;
        let day: Date = date.get(..10)?.parse().ok()?;
        // Leap seconds are refused.
        let time = Time::new(number(hour)?, number(minute)?, number(second)?, 0).ok()?;
        let (nanos, offset) = fraction(rest)?;
        let seconds = day.to_datetime(time).duration_since(EPOCH).as_secs();
        Some(Self { seconds: seconds - offset_seconds(offset)?, nanos })
    }
    /// RFC 3339 with seconds and `Z`, or with six fractional digits (`MicroTime`). Smaller
    /// fractions are cut. `None` before the year 0 and after the year 9999.
    pub fn rfc3339(&self, is_micro: bool) -> Option<String> {
        self.print(if is_micro { 6 } else { 0 })
    }
    /// The nearest time that RFC 3339 can say: another server may have stored any.
    pub fn clamped(self) -> Self {
        self.clamp(FIRST, LAST)
    }
    fn print(self, precision: u8) -> Option<String> {
        if self < FIRST || self > LAST {
            return None;
        }
        let since = SignedDuration::new(self.seconds, i32::try_from(self.nanos).ok()?);
        let at = EPOCH.checked_add(since).ok()?;
        let printer = DateTimePrinter::new().precision(Some(precision));
        let mut text = printer.datetime_to_string(&at);
        text.push('Z');
        Some(text)
    }
}

/// Whether a text has digits where the shape has zeros, and else the same.
fn has_shape(text: &str, shape: &[u8]) -> bool {
    let is_same = |(byte, wanted): (u8, &u8)| match wanted {
        b'0' => byte.is_ascii_digit(),
        wanted => byte == *wanted,
    };
    text.len() == shape.len() && text.bytes().zip(shape).all(is_same)
}

/// The nanoseconds of a fraction that a text begins with, and the rest of the text.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(digits) = text.strip_prefix(['.', ',']) else { return Some((0, text)) };
    let n = digits.bytes().take_while(u8::is_ascii_digit).count();
    let counted = digits.get(..n.min(9)).filter(|counted| !counted.is_empty())?;
    let scale = 10_u32.pow(u32::try_from(9 - counted.len()).ok()?);
    Some((counted.parse::<u32>().ok()? * scale, digits.get(n..)?))
}

/// The seconds of an offset.
fn offset_seconds(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let text = text.get(1..).filter(|text| has_shape(text, b"00:00"))?;
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// A clock: a start time plus the tokio time that has passed since. Stands still when a test pauses
/// time.
#[derive(Debug, Clone)]
pub struct Clock {
    base: Timestamp,
    started: tokio::time::Instant,
}
impl Clock {
    /// A clock that reads `base` now. Needs no runtime.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: tokio::time::Instant::now() }
    }
    /// A clock that starts at the wall clock's current time. For programs, at their edge. A machine
    /// set before 1970 reads as 1970.
    #[expect(clippy::disallowed_methods, reason = "this is the edge at which programs ask once")]
    pub fn wall() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self::starting_at(Timestamp(since_epoch.unwrap_or_default()))
    }
    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.base + self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_may_be_before_1970() {
        for (text, seconds, nanos) in [
            ("1969-12-31T23:59:59.500000Z", -1, 500_000_000),
            ("1970-01-01T00:00:00.000001Z", 0, 1000),
            ("0001-01-01T00:00:00.000000Z", Moment::ZERO.seconds, 0),
            ("0000-01-01T00:00:00.000000Z", FIRST.seconds, 0),
            ("9999-12-31T23:59:59.999999Z", LAST.seconds, 999_999_000),
        ] {
            let moment = Moment::parse(text).unwrap();
            assert_eq!(moment, Moment { seconds, nanos });
            assert_eq!(moment.rfc3339(true).as_deref(), Some(text));
        }
        let moment = Moment { seconds: -1, nanos: 999_999_999 };
        assert_eq!(moment.rfc3339(false).as_deref(), Some("1969-12-31T23:59:59Z"));
        assert_eq!(Moment { seconds: i64::MIN, nanos: 0 }.rfc3339(false), None);
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59Z"), None);
    }

    #[test]
    fn timestamps_are_formatted_as_in_the_api() {
        let moment = Timestamp(Duration::new(1_700_000_000, 123_456_789));
        assert_eq!(moment.rfc3339(), "2023-11-14T22:13:20Z");
        assert_eq!(moment.rfc3339_micro(), "2023-11-14T22:13:20.123456Z");
        assert_eq!(Timestamp::default().rfc3339_micro(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(Timestamp(Duration::MAX).rfc3339(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn any_offset_and_fraction_parses() {
        let moment = Timestamp::from_secs(1_700_000_000);
        for text in
            ["2023-11-14T22:13:20Z", "2023-11-15T05:13:20+07:00", "2023-11-14T22:13:20.000Z"]
        {
            assert_eq!(Timestamp::parse(text), Some(moment), "{text}");
        }
        let micro = Timestamp::parse("2023-11-14T22:13:20.5Z").unwrap();
        assert_eq!(micro.since(moment), Duration::from_millis(500));
    }

    /// What Go makes of them.
    #[test]
    fn what_go_accepts_parses() {
        for (text, seconds, nanos) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
            ("9999-12-31T23:59:59-01:00", 253_402_304_399, 0),
            ("2023-11-14T2:13:20Z", 1_699_928_000, 0),
            ("2023-11-14T02:13:20,5Z", 1_699_928_000, 500_000_000),
            ("2023-11-14T02:13:20+24:60", 1_699_838_000, 0),
            ("2023-11-14T02:13:20.1234567891234Z", 1_699_928_000, 123_456_789),
            ("2023-11-14T02:13:20-00:00", 1_699_928_000, 0),
        ] {
            assert_eq!(Moment::parse(text), Some(Moment { seconds, nanos }), "{text}");
        }
        assert_eq!(Moment { seconds: LAST.seconds + 1, nanos: 0 }.rfc3339(false), None);
        assert_eq!(Moment { seconds: FIRST.seconds - 1, nanos: 0 }.rfc3339(true), None);
    }

    #[test]
    fn other_formats_do_not_parse() {
        for text in [
            "",
            "2023-11-14",
            "2023-11-14T22:13Z",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0700",
            "2023-11-14T22:13:60Z",
            "2023-11-14T24:13:20Z",
            "2023-02-29T02:13:20Z",
            "2023-11-14t02:13:20z",
            "2023-11-14T02:13:20+25:00",
            "2023-11-14T+2:13:20Z",
            "+023-11-14T02:13:20Z",
            "2023-13-14T22:13:20Z",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20Z[UTC]",
            "é023-11-14T22:13:20Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_follows_tokio_time() {
        let clock = Clock::starting_at(Timestamp::from_secs(100));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), Timestamp::from_secs(105));
    }
}
