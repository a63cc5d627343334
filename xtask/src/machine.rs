//! The date and the machine, for pages with results.

use anyhow::Result;
use std::process::Command;

/// The day, in UTC.
///
/// # Errors
///
/// If `date` cannot be started.
pub(crate) fn date() -> Result<String> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?.stdout;
    Ok(String::from_utf8(date)?.trim().to_owned())
}

/// The processor and its cores.
///
/// # Errors
///
/// If the system does not say how many cores there are.
pub(crate) fn hardware() -> Result<String> {
    let n_cores = std::thread::available_parallelism()?;
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model.trim());
    Ok(format!("{n_cores} cores of {model}, shared with other work"))
}
