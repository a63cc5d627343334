//! Logging to standard error for programs: `setpoint` and the examples use it.
//!
//! `RUST_LOG` selects what is logged; the default is `info` and above. Text is colored only on a
//! terminal, and only if the variable `NO_COLOR` is unset or empty (<https://no-color.org>).
//! A line that cannot be written, because a disk is full or the reader of a pipe is gone, is lost;
//! the program goes on.
//!
//! This crate is for the main function of a program. Libraries use `tracing` only. With the feature
//! `testing`, its module of that name keeps what one test's thread logs.

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For humans.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging was already set up.
#[derive(Debug, thiserror::Error)]
#[error("set up logs")]
pub struct LogError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Sets up logging.
///
/// # Errors
///
/// Logging was already set up.
pub fn init(format: LogFormat) -> Result<(), LogError> {
    let is_terminal = std::io::stderr().is_terminal();
    let color = is_colored(is_terminal, std::env::var_os("NO_COLOR").as_deref());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        // The report of a line that cannot be written goes to standard error, too, and panics.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(color).try_init(),
        LogFormat::Json => log.json().with_ansi(false).try_init(),
    }
    .map_err(LogError)
}

fn is_colored(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_is_colored_and_only_without_no_color() {
        let some = |text: &'static str| Some(OsStr::new(text));
        assert!(is_colored(true, None) && is_colored(true, some("")));
        assert!(!is_colored(true, some("1")) && !is_colored(true, some("0")));
        assert!(!is_colored(false, None));
    }
}
