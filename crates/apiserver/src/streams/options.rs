//! Query options of the streams of pods.

use crate::node_agent::{LogOptions, since};
use crate::query::Query;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;

/// The streams of a request for `exec` or `attach`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StreamOptions {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

/// Reads `PodExecOptions` or `PodAttachOptions`.
///
/// # Errors
///
/// 400 if no stream is wanted or a command is missing.
pub(super) fn run(query: &Query, is_attach: bool) -> Result<StreamOptions, ApiError> {
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    let tty = flag("tty");
    let wanted = StreamOptions {
        command: query.all("command").map(str::to_owned).collect(),
        stdin: flag("stdin"),
        stdout: flag("stdout"),
        // A terminal has one output.
        stderr: flag("stderr") && !tty,
        tty,
    };
    if !wanted.stdin && !wanted.stdout && !wanted.stderr {
        return Err(ApiError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if !is_attach && wanted.command.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 command"));
    }
    Ok(wanted)
}

/// Reads `PodLogOptions`.
///
/// # Errors
///
/// 400 for numbers that are none or negative, and for two options of one meaning.
pub(super) fn log(query: &Query, now: Timestamp) -> Result<LogOptions, ApiError> {
    let number = |name: &str, min: i64| match query.integer(name)? {
        Some(n) if n < min => {
            let message = format!("{name}: Invalid value: {n}: must be at least {min}");
            Err(ApiError::bad_request(message))
        }
        found => Ok(found.and_then(|n| u64::try_from(n).ok())),
    };
    let seconds = number("sinceSeconds", 1)?;
    let time = match query.get("sinceTime").filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => match Timestamp::parse(text) {
            Some(time) => Some(time),
            None => {
                let message = format!("sinceTime: Invalid value: {text:?}: must be a time");
                return Err(ApiError::bad_request(message));
            }
        },
    };
    if seconds.is_some() && time.is_some() {
        let message = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        return Err(ApiError::bad_request(message));
    }
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    Ok(LogOptions {
        follow: flag("follow"),
        previous: flag("previous"),
        since: seconds.map(|seconds| since(now, seconds)).or(time),
        tail: number("tailLines", 0)?,
        limit_bytes: number("limitBytes", 1)?,
        timestamps: flag("timestamps"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let now = Timestamp::from_secs(1000);
        let read = |text: &str| log(&Query::parse(text), now);
        let options = read("follow=true&tailLines=5&sinceSeconds=10").unwrap();
        assert!(options.follow && options.tail == Some(5));
        assert_eq!(options.since, Some(Timestamp::from_secs(990)));
        for bad in [
            "tailLines=-1",
            "tailLines=x",
            "limitBytes=0",
            "sinceTime=monday",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
        ] {
            assert_eq!(read(bad).unwrap_err().code(), 400, "{bad}");
        }
        let wanted = run(&Query::parse("command=ls&command=-l&stdout=1&stderr=1&tty=1"), false);
        let wanted = wanted.unwrap();
        assert_eq!(wanted.command, ["ls", "-l"]);
        assert!(wanted.stdout && wanted.tty && !wanted.stderr);
        assert!(run(&Query::parse("stdout=1"), false).is_err());
        assert!(run(&Query::parse("command=ls"), false).is_err());
    }
}
