//! The lines of a recording.

use serde::{Deserialize, Serialize};

/// The longest line that is read, in bytes: the body of a request, or a piece of an answer, in
/// which every byte may be escaped to six.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// What the first line calls the file.
const NAME: &str = "setpoint-client";

/// The only version there is.
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
            (NAME, other) => Err(format!("version {other}, and only {VERSION} is known")),
            (other, _) => Err(format!("a recording of {other:?}")),
        }
    }
}

/// A later line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Microseconds since the start.
    pub(super) at: u64,
    /// Which exchange, counted from 0. The last line belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<u64>,
    #[serde(flatten)]
    pub(super) what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum What {
    Request(Asked),
    Answer(Answer),
    /// A piece of the answer's body.
    Data(String),
    /// A piece of the answer's body that is not UTF-8: a character for each byte.
    Bytes(String),
    /// The answer's body is complete.
    End {},
    /// The request or its answer broke.
    Failed(String),
    /// The caller dropped the request or its answer.
    Dropped {},
    /// The recording is complete.
    Over {
        /// How many lines are before this one.
        lines: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) method: String,
    /// Path and parameters.
    pub(super) uri: String,
    /// Which pass sent it.
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

impl What {
    /// A piece of a body.
    pub(super) fn piece(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Data(text.to_owned()),
            Err(_) => Self::Bytes(bytes.iter().copied().map(char::from).collect()),
        }
    }

    /// The bytes of a piece; `None` when it is no piece, or not one that can have been written.
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
        fn pieces_come_back_as_they_were(bytes: Vec<u8>, at: u64, exchange: u64) {
            let line = Line { at, exchange: Some(exchange), what: What::piece(&bytes) };
            let text = serde_json::to_string(&line).unwrap();
            let read: Line = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.what.bytes(), Some(bytes));
            prop_assert_eq!(read, line);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = Header::parse(text.as_bytes());
            let _ = serde_json::from_str::<Line>(&text);
        }
    }

    #[test]
    fn lines_read_as_the_module_shows_them() {
        for (what, text) in [
            (
                What::Request(Asked {
                    method: "GET".into(),
                    uri: "/api/v1/pods".into(),
                    origin: None,
                    body: String::new(),
                }),
                r#"{"at":5,"exchange":1,"request":{"method":"GET","uri":"/api/v1/pods"}}"#,
            ),
            (
                What::Answer(Answer { status: 200, headers: Vec::new() }),
                r#"{"at":5,"exchange":1,"answer":{"status":200}}"#,
            ),
            (What::End {}, r#"{"at":5,"exchange":1,"end":{}}"#),
            (What::Failed("why".into()), r#"{"at":5,"exchange":1,"failed":"why"}"#),
        ] {
            let line = Line { at: 5, exchange: Some(1), what };
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
            assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
        }
        let over = Line { at: 9, exchange: None, what: What::Over { lines: 3 } };
        assert_eq!(serde_json::to_string(&over).unwrap(), r#"{"at":9,"over":{"lines":3}}"#);
        assert!(
            Header::parse(br#"{"recording":"other","version":1,"started":"","seed":0}"#).is_err()
        );
    }
}
