//! Query options of the streams of pods.

use crate::node_agent::{LogOptions, LogStream, since};
use crate::query::{Query, encode};
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, GroupKind, field};

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

/// Maximum ports of one WebSocket: a channel is a byte, and a port has two.
const PORTS_MAX: usize = 128;

/// Reads `PodPortForwardOptions`: the ports of a WebSocket with channels.
///
/// # Errors
///
/// 400 if there is no port, or what is none.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, ApiError> {
    let words = query.all("ports").flat_map(|text| text.split(','));
    let mut ports = Vec::new();
    for word in words.take(PORTS_MAX + 1) {
        match word.parse() {
            Ok(port @ 1..) => ports.push(port),
            _ => return Err(ApiError::bad_request(format!("unable to parse {word:?} as a port"))),
        }
    }
    match ports.len() {
        0 => Err(ApiError::bad_request("query parameter \"ports\" is required")),
        1..=PORTS_MAX => Ok(ports),
        _ => Err(ApiError::bad_request(format!("at most {PORTS_MAX} ports are forwarded"))),
    }
}

/// Reads `PodLogOptions` for the log of the pod `name`. `has_streams`: the log may be of one of its
/// outputs (`PodLogsQuerySplitStreams`).
///
/// # Errors
///
/// 400 for texts that are no numbers or times; 422 for numbers that are too small, for two options
/// of one meaning, and for outputs that do not exist.
pub(super) fn log(
    query: &Query,
    name: &str,
    now: Timestamp,
    has_streams: bool,
) -> Result<LogOptions, ApiError> {
    let seconds = query.integer("sinceSeconds")?;
    let tail = query.integer("tailLines")?;
    let limit_bytes = query.integer("limitBytes")?;
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
    let mut errors = Vec::new();
    let mut check = |name: &str, value: Option<i64>, min: i64, detail: &str| {
        if let Some(value) = value.filter(|value| *value < min) {
            errors.push(field::Error::invalid(field::Path::new(name), &value.into(), detail));
        }
    };
    check("tailLines", tail, 0, "must be greater than or equal to 0");
    check("limitBytes", limit_bytes, 1, "must be greater than 0");
    if time.is_none() {
        check("sinceSeconds", seconds, 1, "must be greater than 0");
    } else if seconds.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(field::Error::forbidden(field::Path::new("[]"), detail));
    }
    let stream = match query.get("stream") {
        None => LogStream::All,
        Some(_) if !has_streams => {
            let path = field::Path::new("stream");
            errors.push(field::Error::forbidden(path, "may not be specified"));
            LogStream::All
        }
        Some(given) => {
            let known = LogStream::NAMES.iter().find(|(name, _)| *name == given);
            if known.is_none() {
                let names = LogStream::NAMES.map(|(name, _)| name);
                let path = field::Path::new("stream");
                errors.push(field::Error::not_supported(path, &given.into(), &names));
            }
            if given != "All" && tail.is_some() {
                let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
                errors.push(field::Error::forbidden(field::Path::new("[]"), detail));
            }
            known.map(|(_, stream)| *stream).unwrap_or_default()
        }
    };
    if !errors.is_empty() {
        let kind = GroupKind { group: "".into(), kind: "PodLogOptions".into() };
        return Err(ApiError::invalid(&kind, name, &errors));
    }
    let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    Ok(LogOptions {
        follow: flag("follow"),
        previous: flag("previous"),
        since: unsigned(seconds).map(|seconds| since(now, seconds)).or(time),
        tail: unsigned(tail),
        limit_bytes: unsigned(limit_bytes),
        timestamps: flag("timestamps"),
        stream,
    })
}

/// The query of a log at a kubelet: the options that have been checked.
pub(super) fn log_query(query: &Query, has_streams: bool) -> String {
    let flag = |name| (query.flag(name) == Some(true)).then(|| (name, "true".to_owned()));
    let integer = |name| Some((name, query.integer(name).ok().flatten()?.to_string()));
    let time = query.get("sinceTime").and_then(Timestamp::parse);
    let stream = has_streams.then(|| query.get("stream").unwrap_or("All").to_owned());
    let pairs = [
        flag("follow"),
        integer("limitBytes"),
        flag("previous"),
        integer("sinceSeconds"),
        time.map(|time| ("sinceTime", time.rfc3339())),
        stream.map(|stream| ("stream", stream)),
        integer("tailLines"),
        flag("timestamps"),
    ];
    encode(pairs.into_iter().flatten())
}

/// The query of `exec` or `attach` at a kubelet. `with_command`: it is `exec`.
pub(super) fn run_query(query: &Query, with_command: bool) -> String {
    let commands = query.all("command").filter(|_| with_command);
    let flag = |name, of| (query.flag(of) == Some(true)).then(|| (name, "1".to_owned()));
    let flags = [
        flag("error", "stderr"),
        flag("input", "stdin"),
        flag("output", "stdout"),
        flag("tty", "tty"),
    ];
    let commands = commands.map(|word| ("command", word.to_owned()));
    encode(commands.chain(flags.into_iter().flatten()))
}

/// The query of `portforward` at a kubelet.
pub(super) fn ports_query(query: &Query) -> String {
    let ports: Vec<&str> = query.all("ports").flat_map(|text| text.split(',')).collect();
    encode((!ports.is_empty()).then(|| ("port", ports.join(","))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let now = Timestamp::from_secs(1000);
        let read = |text: &str| log(&Query::parse(text), "p", now, false);
        let options = read("follow=true&tailLines=5&sinceSeconds=10").unwrap();
        assert!(options.follow && options.tail == Some(5));
        assert_eq!(options.since, Some(Timestamp::from_secs(990)));
        for bad in ["tailLines=x", "sinceTime=monday"] {
            assert_eq!(read(bad).unwrap_err().code(), 400, "{bad}");
        }
        for (bad, why) in [
            (
                "tailLines=-1&limitBytes=0",
                "[tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0]",
            ),
            ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
            (
                "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=Stdout", "stream: Forbidden: may not be specified"),
        ] {
            let error = read(bad).unwrap_err();
            let text = format!("PodLogOptions \"p\" is invalid: {why}");
            assert_eq!((error.code(), error.to_string()), (422, text));
        }
        let with_streams = |text: &str| log(&Query::parse(text), "p", now, true);
        for (text, stream) in [
            ("", LogStream::All),
            ("stream=All&tailLines=1", LogStream::All),
            ("stream=Stdout", LogStream::Stdout),
            ("stream=Stderr", LogStream::Stderr),
        ] {
            assert_eq!(with_streams(text).unwrap().stream, stream);
        }
        let error = with_streams("stream=stdout&tailLines=1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "PodLogOptions \"p\" is invalid: [stream: Unsupported value: \"stdout\": supported values: \"All\", \"Stderr\", \"Stdout\", []: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now]"
        );
        let wanted = run(&Query::parse("command=ls&command=-l&stdout=1&stderr=1&tty=1"), false);
        let wanted = wanted.unwrap();
        assert_eq!(wanted.command, ["ls", "-l"]);
        assert!(wanted.stdout && wanted.tty && !wanted.stderr);
        assert!(run(&Query::parse("stdout=1"), false).is_err());
        assert!(run(&Query::parse("command=ls"), false).is_err());
    }

    #[test]
    fn a_kubelet_has_names_of_its_own() {
        let read = Query::parse;
        assert_eq!(
            log_query(
                &read(
                    "timestamps=true&follow=1&sinceTime=2020-01-01T00:00:00.5%2B02:00&tailLines=3&previous=false"
                ),
                false
            ),
            "follow=true&sinceTime=2019-12-31T22%3A00%3A00Z&tailLines=3&timestamps=true"
        );
        assert_eq!(log_query(&read("stream=Stderr"), true), "stream=Stderr");
        assert_eq!(log_query(&read("tailLines=1"), true), "stream=All&tailLines=1");
        let run = read("command=sh&command=-c%20x&stdin=1&stdout=true&stderr=false&tty=1");
        assert_eq!(run_query(&run, true), "command=sh&command=-c+x&input=1&output=1&tty=1");
        assert_eq!(run_query(&run, false), "input=1&output=1&tty=1");
        assert_eq!(ports_query(&read("ports=80,443&ports=1")), "port=80%2C443%2C1");
        assert_eq!(ports_query(&read("")), "");
    }
}
