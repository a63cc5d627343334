//! Schedules of CronJobs: five fields, or one word.
//!
//! The dialect is that of Kubernetes' parser, and so are the messages: minute, hour, day of the
//! month, month, day of the week; lists, ranges, steps and English names; `@daily` and the like;
//! `@every` with a duration; a zone in front (`TZ=Asia/Tokyo`), which Kubernetes has deprecated.
//!
//! # Times
//!
//! A schedule runs at each whole minute whose local time matches. So a time that daylight saving
//! skips has no run, and one that it repeats has two. If both days are restricted, a day matches
//! if either does; `*` and `?` do not restrict.

use crate::time::Timestamp;
use jiff::ToSpan as _;
use jiff::civil::{self, Date};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::time::Duration;

/// How far ahead a run is searched, in days: five years, as Kubernetes. `30 2` in the fields of
/// day and month never comes.
const SEARCH_DAYS_MAX: usize = 5 * 366;

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    zone: Option<String>,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// At matching local times.
    Fields(Fields),
    /// At this distance, in whole seconds.
    Every(Duration),
}

/// The permitted values as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether one of the days is unrestricted: then both must match.
    any_day: bool,
}

/// One of the five fields.
struct Bounds {
    lowest: u32,
    highest: u32,
    /// Names of its values, from the lowest.
    names: &'static [&'static str],
}
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { lowest: 0, highest: 59, names: &[] },
    Bounds { lowest: 0, highest: 23, names: &[] },
    Bounds { lowest: 1, highest: 31, names: &[] },
    Bounds { lowest: 1, highest: 12, names: &MONTHS },
    Bounds { lowest: 0, highest: 6, names: &DAYS },
];
/// Words, and the fields they stand for.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    ///
    /// If it is not one; the message is that of Kubernetes. The zone in front is not checked.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (zone, text) = match text.split_once(char::is_whitespace) {
            Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => {
                (zone.split_once('=').map(|(_, zone)| zone.to_owned()), rest.trim())
            }
            _ => (None, text),
        };
        let rule = if text.starts_with('@') { word(text)? } else { Rule::Fields(fields(text)?) };
        Ok(Self { zone, rule })
    }

    /// The name of the time zone in front of the fields.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The first run after a time, by the local time of `zone`; `None` if there is none within
    /// five years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self.rule {
            Rule::Every(distance) => Some(Timestamp::from_secs(after.0.as_secs()) + distance),
            Rule::Fields(fields) => fields.next(after, zone),
        }
    }

    /// The last run after one time and not after another, and how many there are between them:
    /// counted up to `runs_max`, and then one more.
    pub fn last(
        &self,
        after: Timestamp,
        until: Timestamp,
        zone: &TimeZone,
        runs_max: usize,
    ) -> Option<(Timestamp, usize)> {
        let next = |run: &Timestamp| self.next(*run, zone).filter(|run| *run <= until);
        let first = next(&after)?;
        let mut last = first;
        for n in 1..=runs_max {
            match next(&last) {
                Some(run) => last = run,
                None => return Some((last, n)),
            }
        }
        let many = runs_max.saturating_add(1);
        if let Rule::Every(distance) = self.rule {
            let left = until.since(last).as_secs() % distance.as_secs().max(1);
            return Some((Timestamp::from_secs(until.0.as_secs() - left), many));
        }
        // Looks back twice as far each time, until there is a run.
        let mut back = Duration::from_secs(60);
        loop {
            let from = Timestamp(until.0.saturating_sub(back)).max(last);
            let mut runs = std::iter::successors(next(&from), next);
            if let Some(run) = runs.next() {
                return Some((runs.last().unwrap_or(run), many));
            }
            if from == last {
                return Some((last, many));
            }
            back *= 2;
        }
    }
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let after = jiff::Timestamp::from_second(i64::try_from(after.0.as_secs()).ok()?).ok()?;
        let today = zone.to_datetime(after).date();
        // The local day of a later time is today or later.
        let days = today.series(1.day()).take(SEARCH_DAYS_MAX);
        let next =
            days.filter(|day| self.has_day(*day)).find_map(|day| match only_offset(day, zone) {
                Some(offset) => self.first_of(day, offset, after),
                None => self.runs_of(day, zone).filter(|run| *run > after).min(),
            })?;
        u64::try_from(next.as_second()).ok().map(Timestamp::from_secs)
    }

    /// The first run of a local day after a time, where the day has one offset: its minutes are
    /// runs in their order.
    fn first_of(
        &self,
        day: Date,
        offset: Offset,
        after: jiff::Timestamp,
    ) -> Option<jiff::Timestamp> {
        let local = offset.to_datetime(after);
        let begin = match local.date() < day {
            true => civil::Time::midnight(),
            // The next whole minute; at the end of the day there is none.
            false => local.time().checked_add(1.minute()).ok()?,
        };
        let from = |bits: u64, first: i8| Some(bits >> first << first).filter(|bits| *bits != 0);
        let lowest = |bits: u64| i8::try_from(bits.trailing_zeros()).ok().filter(|_| bits != 0);
        let is_run = |hour: i8| self.hours & (1_u64 << hour) != 0;
        let in_hour = from(self.minutes, begin.minute()).filter(|_| is_run(begin.hour()));
        let (hour, minutes) = match in_hour {
            Some(minutes) => (begin.hour(), minutes),
            None => (lowest(from(self.hours, begin.hour() + 1)?)?, self.minutes),
        };
        offset.to_timestamp(day.at(hour, lowest(minutes)?, 0, 0)).ok()
    }

    fn has_day(&self, day: Date) -> bool {
        let has = |bits: u64, value: i8| bits & (1_u64 << value) != 0;
        let in_month = has(self.days, day.day());
        let in_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        let is_day = if self.any_day { in_month && in_week } else { in_month || in_week };
        has(self.months, day.month()) && is_day
    }

    /// The runs of a local day, not sorted.
    fn runs_of(&self, day: Date, zone: &TimeZone) -> impl Iterator<Item = jiff::Timestamp> {
        let of = |bits: u64, n: i8| (0..n).filter(move |value| bits & (1_u64 << value) != 0);
        let (hours, minutes) = (self.hours, self.minutes);
        let times = of(hours, 24).flat_map(move |hour| of(minutes, 60).map(move |m| (hour, m)));
        times.flat_map(move |(hour, minute)| {
            let time = day.at(hour, minute, 0, 0);
            let offsets = match zone.to_ambiguous_timestamp(time).offset() {
                AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                AmbiguousOffset::Gap { .. } => [None, None],
                AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
            };
            offsets.into_iter().flatten().filter_map(move |offset| offset.to_timestamp(time).ok())
        })
    }
}

/// The offset of a local day that has only one, from its beginning to its end.
fn only_offset(day: Date, zone: &TimeZone) -> Option<Offset> {
    let offset_at = |time: civil::DateTime| match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => Some(offset),
        AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => None,
    };
    let offset = offset_at(day.at(0, 0, 0, 0))?;
    let ends = [day.at(0, 0, 0, 0), day.tomorrow().ok()?.at(0, 0, 0, 0)];
    let [begin, end] = ends.map(|end| offset.to_timestamp(end).ok());
    let has_changes =
        zone.following(begin?).next().is_some_and(|next| Some(next.timestamp()) <= end);
    Some(offset).filter(|_| !has_changes)
}

fn fields(text: &str) -> Result<Fields, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    };
    let [of_minute, of_hour, of_day, of_month, of_weekday] = &FIELDS;
    let (minutes, _) = values(minute, of_minute)?;
    let (hours, _) = values(hour, of_hour)?;
    let (days, every_day) = values(day, of_day)?;
    let (months, _) = values(month, of_month)?;
    let (weekdays, every_weekday) = values(weekday, of_weekday)?;
    Ok(Fields { minutes, hours, days, months, weekdays, any_day: every_day || every_weekday })
}

fn word(text: &str) -> Result<Rule, String> {
    if let Some((_, of)) = WORDS.iter().find(|(word, _)| *word == text) {
        return fields(of).map(Rule::Fields);
    }
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    let nanos = crate::duration::parse(duration)
        .map_err(|error| format!("failed to parse duration {text}: {error}"))?;
    // A second at least, and whole seconds.
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or_default().max(1);
    Ok(Rule::Every(Duration::from_secs(seconds)))
}

/// The values of a field as bits, and whether it permits all of them by `*` or `?`.
fn values(field: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let (mut bits, mut is_any) = (0, false);
    for part in field.split(',').filter(|part| !part.is_empty()) {
        let (of_part, is_star) = range(part, bounds)?;
        bits |= of_part;
        is_any |= is_star;
    }
    Ok((bits, is_any))
}

/// `*`, a number, a name or a range of them, each with a step.
fn range(text: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let mut parts = text.split('/');
    let (ends, step) = (parts.next().unwrap_or_default(), parts.next());
    let mut limits = ends.split('-');
    let (first, last) = (limits.next().unwrap_or_default(), limits.next());
    let is_star = matches!(first, "*" | "?");
    let (start, mut end) = match first {
        _ if is_star => (bounds.lowest, bounds.highest),
        first => {
            let start = number_or_name(first, bounds)?;
            let end = last.map_or(Ok(start), |last| number_or_name(last, bounds))?;
            if limits.next().is_some() {
                return Err(format!("too many hyphens: {text}"));
            }
            (start, end)
        }
    };
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step)?;
            if last.is_none() {
                end = bounds.highest;
            }
            step
        }
    };
    if parts.next().is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    let Bounds { lowest, highest, .. } = bounds;
    if start < *lowest {
        return Err(format!("beginning of range ({start}) below minimum ({lowest}): {text}"));
    }
    if end > *highest {
        return Err(format!("end of range ({end}) above maximum ({highest}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let step_by = usize::try_from(step).unwrap_or(usize::MAX);
    let bits = (start..=end).step_by(step_by).fold(0, |bits, value| bits | 1_u64 << value);
    Ok((bits, is_star && step == 1))
}
fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let place = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match place.and_then(|place| u32::try_from(place).ok()) {
        Some(place) => Ok(bounds.lowest + place),
        None => number(text),
    }
}
fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse() {
        Ok(number) if is_number => Ok(number),
        _ => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: {}",
            crate::field::quote(text),
            if is_number { "value out of range" } else { "invalid syntax" }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is a schedule stays one with other spaces.
        #[test]
        fn any_text_is_a_schedule_or_not(text in r"[-*/,@?a-zA-Z0-9 \u{e9}]{0,24}") {
            let spaced = text.split_whitespace().collect::<Vec<_>>().join("  ");
            prop_assume!(!text.contains('@'));
            prop_assert_eq!(Schedule::parse(&text).is_ok(), Schedule::parse(&spaced).is_ok());
        }
        /// Days without a change of the offset are searched otherwise than those with one.
        #[test]
        fn next_run_is_the_first_of_the_runs_of_its_day(
            minutes in 1_u64..1 << 60, hours in 1_u64..1 << 24, weekdays in 1_u64..1 << 7, after in 0_u64..400 * 24 * 60 * 60,
            zone in prop::sample::select(&["UTC0", "CET-1CEST,M3.5.0,M10.5.0/3", "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "<-02>2<-01>,M3.5.0/-1,M10.5.0/0"][..]),
        ) {
            let zone = TimeZone::posix(zone).unwrap();
            let (days, months) = ((1 << 32) - 2, (1 << 13) - 2);
            let fields = Fields { minutes, hours, days, months, weekdays, any_day: true };
            let after = Timestamp::from_secs(1_767_225_600 + after);
            let exact = jiff::Timestamp::from_second(after.0.as_secs().cast_signed()).unwrap();
            let today = zone.to_datetime(exact).date();
            let days = today.series(1.day()).filter(|day| fields.has_day(*day)).take(3);
            let runs = days.flat_map(|day| fields.runs_of(day, &zone).collect::<Vec<_>>());
            let first = runs.filter(|run| *run > exact).min().map(|run| run.as_second());
            let next = fields.next(after, &zone).map(|next| next.0.as_secs().cast_signed());
            prop_assert_eq!(next, first);
        }
        #[test]
        fn numbers_within_their_bounds_are_schedules(
            minute in 0..60_u32, hour in 0..24_u32, day in 1..32_u32, month in 1..13_u32, weekday in 0..7_u32, step in 1..60_u32,
        ) {
            let text = format!("{minute}/{step} {hour} {day} {month} {weekday}");
            prop_assert!(Schedule::parse(&text).is_ok());
        }
    }

    /// A field of commas permits no value, and is accepted, as it is by Kubernetes.
    #[test]
    fn schedule_without_minutes_or_hours_never_runs() {
        for text in [", * * * *", "* , * * *", ",, ,, ? ? 1", "* * , * ,"] {
            let schedule = Schedule::parse(text).unwrap();
            assert_eq!(schedule.next(Timestamp::from_secs(1_700_000_000), &TimeZone::UTC), None);
        }
    }

    #[test]
    fn schedules() {
        for valid in [
            "* * * * *",
            "*/5 0 1,15 jan-MAR sun",
            "0-59/2 ? * * 1-5",
            "@daily",
            "@every 1h30m",
            "TZ=UTC 0 0 * * *",
        ] {
            assert!(Schedule::parse(valid).is_ok(), "{valid}");
        }
        for (text, error) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* 5-3 * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(Schedule::parse(text), Err(error.to_owned()), "{text}");
        }
    }

    /// The next runs after a time, in a zone of Berlin's rules.
    fn runs(schedule: &str, after: &str, n: usize) -> Vec<String> {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let first = Timestamp::parse(after).unwrap();
        let runs = std::iter::successors(Some(first), |last| schedule.next(*last, &zone));
        runs.skip(1).take(n).map(|run| run.rfc3339()).collect()
    }

    #[test]
    fn runs_come_at_matching_local_times() {
        for (schedule, after, expected) in [
            ("*/20 * * * *", "2026-01-01T00:00:00Z", "00:20 00:40 01:00"),
            ("0 9-17/4 * * *", "2026-01-01T00:00:00Z", "08:00 12:00 16:00"),
            ("5/30 0 * * *", "2026-01-01T00:00:00Z", "23:05 23:35"),
            ("@hourly", "2026-01-01T00:00:59Z", "01:00 02:00"),
        ] {
            let expected: Vec<&str> = expected.split(' ').collect();
            let runs = runs(schedule, after, expected.len());
            let times: Vec<&str> = runs.iter().map(|run| &run[11..16]).collect();
            assert_eq!(times, expected, "{schedule}");
        }
        for (schedule, after, expected) in [
            // Both days are restricted: either matches.
            ("0 1 13 * fri", "2026-02-01T00:00:00Z", "02-06 02-13 02-20 02-27 03-06 03-13"),
            // One is not: both must match. A step leaves a star restricted.
            ("0 1 * * mon", "2026-02-01T00:00:00Z", "02-02 02-09"),
            ("0 1 */10 * mon", "2026-02-01T00:00:00Z", "02-02 02-09 02-11 02-16"),
            ("@monthly", "2026-01-15T00:00:00Z", "01-31 02-28"),
            ("0 12 29 2 *", "2026-01-01T00:00:00Z", "02-29"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", ""),
        ] {
            let expected: Vec<&str> = expected.split(' ').filter(|day| !day.is_empty()).collect();
            let runs = runs(schedule, after, expected.len().max(1));
            let days: Vec<&str> = runs.iter().map(|run| &run[5..10]).collect();
            assert_eq!(days, expected, "{schedule}");
        }
        assert_eq!(
            runs("@every 1h30m", "2026-01-01T00:10:07Z", 2),
            ["2026-01-01T01:40:07Z", "2026-01-01T03:10:07Z"]
        );
    }

    #[test]
    fn skipped_local_time_has_no_run_and_repeated_one_has_two() {
        assert_eq!(
            runs("30 2 * * *", "2026-03-28T00:00:00Z", 2),
            ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            runs("30 2 * * *", "2026-10-24T12:00:00Z", 3),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }

    #[test]
    fn last_run_is_found_and_runs_are_counted() {
        let zone = TimeZone::UTC;
        for (schedule, until, last, n) in [
            ("* * * * *", "2026-01-01T00:00:30Z", None, 0),
            ("* * * * *", "2026-01-01T00:03:30Z", Some("2026-01-01T00:03:00Z"), 3),
            ("* * * * *", "2026-01-01T01:40:00Z", Some("2026-01-01T01:40:00Z"), 100),
            ("* * * * *", "2026-01-01T01:41:00Z", Some("2026-01-01T01:41:00Z"), 101),
            ("* * 1 1 *", "2026-05-01T00:00:00Z", Some("2026-01-01T23:59:00Z"), 101),
            ("@every 7s", "2026-01-02T00:00:00Z", Some("2026-01-01T23:59:54Z"), 101),
        ] {
            let start = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
            let until = Timestamp::parse(until).unwrap();
            let found = Schedule::parse(schedule).unwrap().last(start, until, &zone, 100);
            let found = found.map(|(last, n)| (last.rfc3339(), n));
            assert_eq!(found, last.map(|last| (last.to_owned(), n)), "{schedule} until {until:?}");
        }
    }

    #[test]
    fn zone_in_front_is_returned() {
        assert_eq!(
            Schedule::parse("CRON_TZ=Asia/Tokyo 0 0 * * *").unwrap().zone(),
            Some("Asia/Tokyo")
        );
        assert_eq!(Schedule::parse("0 0 * * *").unwrap().zone(), None);
    }
}
