//! Schedules of CronJobs.
use jiff::tz::TimeZone;
use setpoint_object::cron::Schedule;
use setpoint_object::time::Timestamp;

/// A text is refused, or is a schedule whose runs come one after the other.
pub fn check(input: &[u8]) {
    let Ok(schedule) = Schedule::parse(&String::from_utf8_lossy(input)) else { return };
    let mut last = Timestamp::from_secs(1_700_000_000);
    for _ in 0..4 {
        let Some(next) = schedule.next(last, &TimeZone::UTC) else { return };
        assert!(next.0 > last.0, "{schedule:?} runs at {next:?} after {last:?}");
        last = next;
    }
}
