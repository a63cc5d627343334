//! One line of a trace.
use crate::source::{
    FRAME_BYTES_MAX, ListHead, ListRequest, SourceError, WatchFrame, WatchRequest,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use setpoint_object::ApiError;
use std::borrow::Cow;
use std::time::Duration;

/// The longest line of a trace, bytes: the largest object of a watch, and the text around it.
pub const TRACE_LINE_BYTES_MAX: usize = FRAME_BYTES_MAX + (64 << 10);

/// The name in the first line.
const NAME: &str = "setpoint-list-watch";

/// The only format version.
const VERSION: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    #[serde(borrow)]
    trace: Cow<'a, str>,
    version: u32,
}

/// The text of the first line.
pub(super) fn header() -> Vec<u8> {
    text(&Header { trace: NAME.into(), version: VERSION })
}

/// Checks the first line.
pub(super) fn check_header(line: &[u8]) -> Result<(), String> {
    let header: Header<'_> =
        serde_json::from_slice(line).map_err(|error| format!("not the header: {error}"))?;
    if header.trace != NAME {
        return Err(format!("the type of trace {:?} is not supported", header.trace));
    }
    if header.version != VERSION {
        return Err(format!("version {} is not supported, only {VERSION}", header.version));
    }
    Ok(())
}

/// The content of a line, without its time and request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TraceEvent {
    List(ListRequest),
    Watch(WatchRequest),
    Item(Bytes),
    End(ListHead),
    Opened,
    Frame(WatchFrame),
    Failed(Failure),
    Closed,
    Dropped,
    /// The end of the recording, after this number of lines.
    Over(u64),
}

impl TraceEvent {
    /// Whether this ends the answer of a request.
    pub(super) fn is_last(&self) -> bool {
        matches!(
            self,
            Self::End(_)
                | Self::Failed(_)
                | Self::Closed
                | Self::Dropped
                | Self::Frame(WatchFrame::Error(_))
        )
    }
}

/// A failure in a form that can be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    Api(ApiError),
    Refused(String),
    Transport(String),
    Protocol(String),
}

impl Failure {
    pub(super) fn of(error: &SourceError) -> Self {
        match error {
            SourceError::Api(error) => Self::Api(error.clone()),
            SourceError::Refused(cause) => Self::Refused(cause.to_string()),
            SourceError::Transport(cause) => Self::Transport(cause.to_string()),
            SourceError::Protocol { what } => Self::Protocol(what.clone()),
            other => Self::Protocol(other.to_string()),
        }
    }

    pub(super) fn into_error(self) -> SourceError {
        match self {
            Self::Api(error) => SourceError::Api(error),
            Self::Refused(message) => SourceError::Refused(message.into()),
            Self::Transport(message) => SourceError::Transport(message.into()),
            Self::Protocol(what) => SourceError::Protocol { what },
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// Since the start of the recording; whole microseconds.
    pub(super) at: Duration,
    /// The request's number.
    pub(super) request: u64,
    pub(super) event: TraceEvent,
}

/// A line as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire<'a> {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<u64>,
    #[serde(borrow)]
    what: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    resource_version: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_false")]
    exact: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(borrow, rename = "continue", default, skip_serializing_if = "Option::is_none")]
    continue_token: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    send_initial_events: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    object: Option<&'a RawValue>,
    /// The text instead of an object, if it is not JSON.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Line {
    /// The line's text, without its end.
    pub(super) fn write(&self) -> Vec<u8> {
        let status;
        let mut object: &[u8] = b"";
        let mut wire = Wire {
            at: u64::try_from(self.at.as_micros()).unwrap_or(u64::MAX),
            request: Some(self.request),
            ..Wire::default()
        };
        match &self.event {
            TraceEvent::List(list) => {
                wire.what = "list".into();
                wire.resource_version = (&*list.resource_version).into();
                wire.exact = list.exact;
                wire.limit = list.limit;
                wire.continue_token = list.continue_token.as_deref().map(Cow::from);
            }
            TraceEvent::Watch(watch) => {
                wire.what = "watch".into();
                wire.resource_version = (&*watch.resource_version).into();
                wire.timeout_seconds = Some(watch.timeout.as_secs());
                wire.send_initial_events = watch.send_initial_events;
            }
            TraceEvent::Item(item) => {
                wire.what = "item".into();
                object = item;
            }
            TraceEvent::End(head) => {
                wire.what = "end".into();
                wire.resource_version = (&*head.resource_version).into();
                wire.continue_token = head.continue_token.as_deref().map(Cow::from);
            }
            TraceEvent::Opened => wire.what = "opened".into(),
            TraceEvent::Closed => wire.what = "closed".into(),
            TraceEvent::Dropped => wire.what = "dropped".into(),
            TraceEvent::Frame(frame) => {
                let (verb, bytes): (&str, &[u8]) = match frame {
                    WatchFrame::Added(bytes) => ("ADDED", bytes),
                    WatchFrame::Modified(bytes) => ("MODIFIED", bytes),
                    WatchFrame::Deleted(bytes) => ("DELETED", bytes),
                    WatchFrame::Bookmark(bytes) => ("BOOKMARK", bytes),
                    WatchFrame::Unknown { verb, object } => (verb, object),
                    WatchFrame::Error(error) => {
                        status = error.to_json();
                        ("ERROR", &status)
                    }
                };
                (wire.what, object) = (verb.into(), bytes);
            }
            TraceEvent::Failed(failure) => {
                wire.what = "failed".into();
                let (error, message) = match failure {
                    Failure::Api(error) => {
                        status = error.to_json();
                        object = &status;
                        ("api", None)
                    }
                    Failure::Refused(message) => ("refused", Some(message)),
                    Failure::Transport(message) => ("transport", Some(message)),
                    Failure::Protocol(message) => ("protocol", Some(message)),
                };
                wire.error = Some(error.into());
                wire.message = message.map(|message| Cow::from(&**message));
            }
            TraceEvent::Over(lines) => {
                wire.what = "over".into();
                (wire.request, wire.lines) = (None, Some(*lines));
            }
        }
        if !object.is_empty() {
            match serde_json::from_slice(object) {
                Ok(raw) => wire.object = Some(raw),
                Err(_) => wire.text = Some(String::from_utf8_lossy(object)),
            }
        }
        let mut text = text(&wire);
        // An object may contain line ends, but only between its values, where a space is
        // equivalent.
        for byte in &mut text {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        text
    }

    /// Reads a line.
    ///
    /// # Errors
    /// When it is not a line of a trace; the text says why.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let wire: Wire<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let object = || match (wire.object, &wire.text) {
            (Some(object), None) => Ok(Bytes::copy_from_slice(object.get().as_bytes())),
            (None, Some(text)) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (None, None) => Ok(Bytes::new()),
            (Some(_), Some(_)) => Err("it has both an object and a text"),
        };
        let status = || match wire.object {
            Some(object) => match serde_json::from_str(object.get()) {
                Ok(status) => Ok(ApiError(Box::new(status))),
                Err(error) => Err(format!("not a Status: {error}")),
            },
            None => Err("no Status".to_owned()),
        };
        let version = wire.resource_version.clone().into_owned();
        let token = wire.continue_token.clone().map(Cow::into_owned);
        let message = || wire.message.clone().unwrap_or_default().into_owned();
        let event = match &*wire.what {
            "list" => TraceEvent::List(ListRequest {
                resource_version: version,
                exact: wire.exact,
                limit: wire.limit,
                continue_token: token,
            }),
            "watch" => TraceEvent::Watch(WatchRequest {
                resource_version: version,
                timeout: Duration::from_secs(wire.timeout_seconds.unwrap_or_default()),
                send_initial_events: wire.send_initial_events,
            }),
            "item" => TraceEvent::Item(object()?),
            "end" => TraceEvent::End(ListHead { resource_version: version, continue_token: token }),
            "opened" => TraceEvent::Opened,
            "closed" => TraceEvent::Closed,
            "dropped" => TraceEvent::Dropped,
            "over" => TraceEvent::Over(wire.lines.ok_or("it has no number of lines")?),
            "ADDED" => TraceEvent::Frame(WatchFrame::Added(object()?)),
            "MODIFIED" => TraceEvent::Frame(WatchFrame::Modified(object()?)),
            "DELETED" => TraceEvent::Frame(WatchFrame::Deleted(object()?)),
            "BOOKMARK" => TraceEvent::Frame(WatchFrame::Bookmark(object()?)),
            "ERROR" => TraceEvent::Frame(WatchFrame::Error(status()?)),
            "failed" => TraceEvent::Failed(match wire.error.as_deref() {
                Some("api") => Failure::Api(status()?),
                Some("refused") => Failure::Refused(message()),
                Some("transport") => Failure::Transport(message()),
                Some("protocol") => Failure::Protocol(message()),
                other => return Err(format!("an unknown failure: {other:?}")),
            }),
            verb => {
                TraceEvent::Frame(WatchFrame::Unknown { verb: verb.to_owned(), object: object()? })
            }
        };
        let request = match event {
            TraceEvent::Over(_) => 0,
            _ => wire.request.ok_or("it has no request number")?,
        };
        Ok(Self { at: Duration::from_micros(wire.at), request, event })
    }
}

/// A value as text. Only strings, numbers and JSON that was read before are in it.
fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
