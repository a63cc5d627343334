//! When a CronJob runs.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use setpoint_object::cron::Schedule;
use setpoint_object::time::Timestamp;
use std::time::Duration;

/// How many missed runs are reported as too many: more than 100, as in kube-controller-manager.
const MISSED_MAX: usize = 100;

/// A schedule in its time zone.
#[derive(Debug)]
pub(super) struct Timing {
    schedule: Schedule,
    zone: TimeZone,
}

/// A run that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The last one.
    pub(super) run: Timestamp,
    /// More than [`MISSED_MAX`] were missed.
    pub(super) is_many: bool,
}

impl Timing {
    /// # Errors
    ///
    /// The reason and the note of an event, if the zone is unknown or the schedule is not one.
    pub(super) fn of(schedule: &str, zone: Option<&str>) -> Result<Self, (&'static str, String)> {
        let database = TimeZoneDatabase::bundled();
        let find = |name: &str| {
            let unknown = |_| {
                let quoted = setpoint_object::field::quote(name);
                ("UnknownTimeZone", format!("invalid timeZone: {quoted}: unknown time zone {name}"))
            };
            database.get(name).map_err(unknown)
        };
        let parsed = Schedule::parse(schedule).map_err(|error| {
            let quoted = setpoint_object::field::quote(schedule);
            ("UnparseableSchedule", format!("unparseable schedule: {quoted} : {error}"))
        })?;
        let zone = match parsed.zone().or(zone) {
            Some(name) => find(name)?,
            None => TimeZone::UTC,
        };
        Ok(Self { schedule: parsed, zone })
    }

    /// The last run after `since` and not after `now`. Runs longer ago than the deadline do not
    /// count.
    pub(super) fn due(
        &self,
        since: Timestamp,
        now: Timestamp,
        deadline: Option<Duration>,
    ) -> Option<Due> {
        let earliest = deadline.map(|deadline| Timestamp(now.0.saturating_sub(deadline)));
        let since = since.max(earliest.unwrap_or_default());
        let (run, n) = self.schedule.last(since, now, &self.zone, MISSED_MAX)?;
        Some(Due { run, is_many: n > MISSED_MAX })
    }

    /// The first run after `now`; `None` if there is none within five years.
    pub(super) fn next(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let last = self.schedule.last(since, now, &self.zone, MISSED_MAX);
        let from = last.map_or(since, |(run, _)| run);
        self.schedule.next(from, &self.zone)
    }

    /// A time in the zone, in RFC 3339.
    pub(super) fn local(&self, at: Timestamp) -> String {
        let seconds = i64::try_from(at.0.as_secs()).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        let local = at.to_zoned(self.zone.clone());
        match local.offset().is_zero() {
            true => local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            false => local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn last_run_of_several_is_due() {
        let hourly = Timing::of("0 * * * *", None).unwrap();
        let since = at("2026-01-01T00:00:00Z");
        assert_eq!(hourly.due(since, at("2026-01-01T00:59:59Z"), None), None);
        let due = hourly.due(since, at("2026-01-01T05:30:00Z"), None).unwrap();
        assert_eq!(due, Due { run: at("2026-01-01T05:00:00Z"), is_many: false });
        assert!(hourly.due(since, at("2026-01-06T05:30:00Z"), None).unwrap().is_many);
        // Within the deadline only.
        let deadline = Some(Duration::from_secs(600));
        assert_eq!(hourly.due(since, at("2026-01-01T05:30:00Z"), deadline), None);
        assert!(!hourly.due(since, at("2026-01-06T05:05:00Z"), deadline).unwrap().is_many);
    }

    #[test]
    fn next_run_keeps_the_rhythm_of_every() {
        let every = Timing::of("@every 90s", None).unwrap();
        let since = at("2026-01-01T00:00:10Z");
        assert_eq!(every.next(since, at("2026-01-01T00:01:00Z")), Some(at("2026-01-01T00:01:40Z")));
        assert_eq!(every.next(since, at("2026-01-01T00:02:00Z")), Some(at("2026-01-01T00:03:10Z")));
    }

    #[test]
    fn zone_moves_runs_and_is_shown() {
        let timing = Timing::of("0 9 * * *", Some("Asia/Tokyo")).unwrap();
        let run = timing.next(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(run, at("2026-01-02T00:00:00Z"));
        assert_eq!(timing.local(run), "2026-01-02T09:00:00+09:00");
        let utc = Timing::of("0 9 * * *", None).unwrap();
        assert_eq!(utc.local(run), "2026-01-02T00:00:00Z");
        assert_eq!(Timing::of("0 9 * * *", Some("Foo/Bar")).unwrap_err().0, "UnknownTimeZone");
        assert_eq!(Timing::of("0 9 * *", None).unwrap_err().0, "UnparseableSchedule");
    }
}
