//! The lines of a recording.

use serde::{Deserialize, Serialize};

/// The maximum length of a line, in bytes. A line holds the body of a request or a piece of an
/// answer, in which each byte may be escaped to six.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// The file's type, in its first line.
const NAME: &str = "setpoint-client";

/// The only format version.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    recording: String,
    version: u32,
    /// The date at which `at` is zero, in RFC 3339 with microseconds.
    pub(super) started: String,
    /// The manager's seed.
    pub(super) seed: u64,
}

impl Header {
    pub(super) fn new(started: String, seed: u64) -> Self {
        Self { recording: NAME.into(), version: VERSION, started, seed }
    }

    /// Reads the first line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let header: Self =
            serde_json::from_slice(line).map_err(|error| format!("not the header: {error}"))?;
        match (&*header.recording, header.version) {
            (NAME, VERSION) => Ok(header),
            (NAME, other) => Err(format!("version {other} is not supported, only {VERSION}")),
            (other, _) => Err(format!("the type of recording {other:?} is not supported")),
        }
    }
}

/// A later line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Microseconds since the start.
    pub(super) at: u64,
    /// The number of the exchange, counted from 0. The last line has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<u64>,
    #[serde(flatten)]
    pub(super) event: RecordedEvent,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RecordedEvent {
    Request(RecordedRequest),
    Answer(Answer),
    /// A piece of the answer's body.
    Data(String),
    /// A piece of the answer's body that is not UTF-8, with one character for each byte.
    Bytes(String),
    /// The answer's body is complete.
    End {},
    /// The request or its answer broke.
    Failed(String),
    /// The caller dropped the request or its answer.
    Dropped {},
    /// The recording is complete.
    Over {
        /// The number of lines before this one.
        lines: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedRequest {
    pub(super) method: String,
    /// Path and parameters.
    pub(super) uri: String,
    /// The pass that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) body: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, String)>,
}

impl RecordedEvent {
    /// Creates a piece of a body.
    pub(super) fn piece(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Data(text.to_owned()),
            Err(_) => Self::Bytes(bytes.iter().copied().map(char::from).collect()),
        }
    }

    /// Returns the bytes of a piece. `None` if this is not a piece, or is an invalid one.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Data(text) => Some(text.clone().into_bytes()),
            Self::Bytes(text) => text.chars().map(|c| u8::try_from(c).ok()).collect(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_round_trip(bytes: Vec<u8>, at: u64, exchange: u64) {
            let line = Line { at, exchange: Some(exchange), event: RecordedEvent::piece(&bytes) };
            let text = serde_json::to_string(&line).unwrap();
            let read: Line = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.event.bytes(), Some(bytes));
            prop_assert_eq!(read, line);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in ".{0,80}") {
            let _ = Header::parse(text.as_bytes());
            let _ = serde_json::from_str::<Line>(&text);
        }
    }

    #[test]
    fn lines_have_the_documented_format() {
        for (event, text) in [
            (
                RecordedEvent::Request(RecordedRequest {
                    method: "GET".into(),
                    uri: "/api/v1/pods".into(),
                    origin: None,
                    body: String::new(),
                }),
                r#"{"at":5,"exchange":1,"request":{"method":"GET","uri":"/api/v1/pods"}}"#,
            ),
            (
                RecordedEvent::Answer(Answer { status: 200, headers: Vec::new() }),
                r#"{"at":5,"exchange":1,"answer":{"status":200}}"#,
            ),
            (RecordedEvent::End {}, r#"{"at":5,"exchange":1,"end":{}}"#),
            (RecordedEvent::Failed("why".into()), r#"{"at":5,"exchange":1,"failed":"why"}"#),
        ] {
            let line = Line { at: 5, exchange: Some(1), event };
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
            assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
        }
        let over = Line { at: 9, exchange: None, event: RecordedEvent::Over { lines: 3 } };
        assert_eq!(serde_json::to_string(&over).unwrap(), r#"{"at":9,"over":{"lines":3}}"#);
        assert!(
            Header::parse(br#"{"recording":"other","version":1,"started":"","seed":0}"#).is_err()
        );
    }
}
