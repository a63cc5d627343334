//! Resource usage of this process.
use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::time::Duration;

/// Returns the allocated bytes; 0 in a program that does not count.
pub(crate) type Heap = fn() -> u64;

/// CPU.
pub(super) struct Usage;

impl Usage {
    /// User and system time of all threads.
    pub(super) fn cpu() -> anyhow::Result<Duration> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Ok(Duration::from_micros(micros.try_into()?))
    }
}

/// The resident set, bytes.
pub(super) struct Resident {
    pub(super) now: u64,
    pub(super) peak: u64,
}

/// The resident set of this process.
pub(super) fn resident() -> anyhow::Result<Resident> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let of = |name: &str| -> anyhow::Result<u64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    };
    Ok(Resident { now: of("VmRSS:")?, peak: of("VmHWM:")? })
}
