//! Timestamps in the API's formats, and the clock.
//!
//! No code in the project reads the machine's time: the program's edge creates a [`Clock`] and
//! passes it down. It is a start time plus tokio time, so it stands still when a test pauses time
//! and jumps when the test advances it.
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
        let nanos = i32::try_from(self.0.subsec_nanos()).unwrap_or(0);
        print(jiff::Timestamp::new(seconds, nanos).unwrap_or(jiff::Timestamp::MAX), precision)
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
fn print(moment: jiff::Timestamp, precision: u8) -> String {
    jiff::fmt::temporal::DateTimePrinter::new()
        .precision(Some(precision))
        .timestamp_to_string(&moment)
}

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

    /// Parses RFC 3339 with any offset and fraction.
    pub fn parse(text: &str) -> Option<Self> {
        let moment: jiff::Timestamp = text.parse().ok().filter(|_| has_shape(text.as_bytes()))?;
        let (nanos, second) = (moment.as_nanosecond(), 1_000_000_000);
        Some(Self {
            seconds: i64::try_from(nanos.div_euclid(second)).ok()?,
            nanos: u32::try_from(nanos.rem_euclid(second)).ok()?,
        })
    }
    /// RFC 3339 with seconds and `Z`, or with six fractional digits (`MicroTime`). Smaller
    /// fractions are cut. `None` before the year 0 and after the year 9999.
    pub fn rfc3339(&self, is_micro: bool) -> Option<String> {
        let (nanos, precision) =
            if is_micro { (self.nanos - self.nanos % 1000, 6) } else { (0, 0) };
        let moment = jiff::Timestamp::new(self.seconds, i32::try_from(nanos).ok()?).ok()?;
        Some(print(moment, precision)).filter(|text| !text.starts_with('-'))
    }
}

/// Whether the text has the separators of RFC 3339: the underlying parser also accepts other forms
/// of ISO 8601.
fn has_shape(text: &[u8]) -> bool {
    let (Some(head), Some(tail)) = (text.get(..19), text.get(19..)) else { return false };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let head_ok = (0..19).all(|at| match separators.iter().find(|(place, _)| *place == at) {
        Some((_, separator)) => head[at] == *separator,
        None => head[at].is_ascii_digit(),
    });
    let fraction_len = match tail {
        [b'.', rest @ ..] => 1 + rest.iter().take_while(|b| b.is_ascii_digit()).count(),
        _ => 0,
    };
    let tail_ok = fraction_len != 1
        && match &tail[fraction_len..] {
            [b'Z'] => true,
            [b'+' | b'-', h1, h2, b':', m1, m2] => digits(&[*h1, *h2, *m1, *m2]),
            _ => false,
        };
    // The API does not accept leap seconds.
    head_ok && tail_ok && &head[17..] != b"60"
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
        assert_eq!(Timestamp(Duration::MAX).rfc3339().len(), "9999-12-30T22:00:00Z".len());
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
