//! Continue tokens: where the next page of a list starts.
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_schema::decode::{self, Format};
use setpoint_schema::patch::json_type;

/// The version that the token states.
const VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that continues with the newest state.
const NEWEST: i64 = -1;

/// Reads tokens as Go does: bits after the last byte do not count.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// A position in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision of the pages; `None`: the newest.
    pub(super) revision: Option<u64>,
    /// The first key of the next page, relative to the list's prefix.
    pub(super) start: String,
}
#[derive(Debug, Serialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl Wire {
    /// Reads a token.
    ///
    /// # Errors
    ///
    /// The text of Go's decoder.
    fn read(json: &[u8]) -> Result<Self, String> {
        let decoded = decode::parse_typed(json, Format::Json).map_err(|error| error.to_string())?;
        let value = decoded.value;
        if !value.is_object() && !value.is_null() {
            return Err(decode::wrong_type(json_type(&value), "", "storage.continueToken"));
        }
        let member = |name: &str| value.get(name).filter(|value| !value.is_null());
        let wrong = |found: &str, name: &str, ty: &str| {
            decode::wrong_type(found, &format!("continueToken.{name}"), ty)
        };
        let text = |name: &str| match member(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(wrong(json_type(other), name, "string")),
        };
        let rv = match member("rv") {
            None => 0,
            Some(Value::Number(number)) => {
                let written = || decode::number_at(json, "rv").unwrap_or_default();
                number
                    .as_i64()
                    .ok_or_else(|| wrong(&format!("number {}", written()), "rv", "int64"))?
            }
            Some(other) => return Err(wrong(json_type(other), "rv", "int64")),
        };
        Ok(Self { v: text("v")?, rv, start: text("start")? })
    }
}

impl Token {
    /// Encodes the opaque text.
    pub(super) fn encode(&self) -> String {
        let rv = self.revision.map_or(NEWEST, |revision| i64::try_from(revision).unwrap_or(NEWEST));
        let wire = Wire { v: VERSION.to_owned(), rv, start: self.start.clone() };
        // Encoding strings and a number cannot fail.
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }
    /// Decodes the opaque text.
    pub(super) fn decode(text: &str) -> Result<Self, ApiError> {
        let fault = |why: String| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = DECODER.decode(text).map_err(|error| fault(decode_fault(text, &error)))?;
        let wire = Wire::read(&json).map_err(fault)?;
        if wire.v != VERSION {
            let version = &wire.v;
            return Err(fault(format!("server does not recognize this encoded version {version}")));
        }
        let revision = match u64::try_from(wire.rv) {
            Ok(0) => {
                let why = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
                return Err(fault(why.to_owned()));
            }
            Ok(rv) => Some(rv),
            // Any negative one, as for the reference.
            Err(_) => None,
        };
        if wire.start.is_empty() {
            return Err(fault("encoded start key empty (version meta.k8s.io/v1)".to_owned()));
        }
        // Tokens are untrusted: a start that is not a clean path below the list's own prefix must
        // not become a key.
        let rest = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(fault(wire.start));
        }
        Ok(Self { revision, start: rest.to_owned() })
    }
}
fn decode_fault(text: &str, error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        base64::DecodeError::InvalidLastSymbol { offset, .. } => *offset,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
        // Tokens have no padding.
        base64::DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len()),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_the_reference() {
        let token = Token { revision: Some(7), start: "default/a\0".to_owned() };
        let json = BASE64_URL_SAFE_NO_PAD.decode(token.encode()).unwrap();
        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/a\u0000"}"#
        );
        assert_eq!(Token::decode(&token.encode()), Ok(token));
        let newest = Token { revision: None, start: "a\0".to_owned() };
        assert_eq!(Token::decode(&newest.encode()), Ok(newest.clone()));
        let negative = r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a\u0000"}"#;
        assert_eq!(Token::decode(&BASE64_URL_SAFE_NO_PAD.encode(negative)), Ok(newest));
        // The last bits of a text belong to no byte.
        let longer = Token { revision: None, start: "ab\0".to_owned() };
        let mut text = longer.encode();
        assert_eq!(text.pop(), Some('Q'));
        text.push('R');
        assert_eq!(Token::decode(&text), Ok(longer));
    }

    #[test]
    fn an_invalid_token_is_refused() {
        let encode = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
        for (token, why) in [
            ("?".to_owned(), "illegal base64 data at input byte 0"),
            (
                encode(r#"{"v":"x","rv":1,"start":"a"}"#),
                "server does not recognize this encoded version x",
            ),
            ("AAAAA".to_owned(), "illegal base64 data at input byte 4"),
            (encode("x"), "invalid character 'x' looking for beginning of value"),
            (encode("null"), "server does not recognize this encoded version "),
            (
                encode("[]"),
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                encode(r#"{"rv":"1"}"#),
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                encode(r#"{"rv":1.5}"#),
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                encode(r#"{"rv":3.0}"#),
                "json: cannot unmarshal number 3.0 into Go struct field continueToken.rv of type int64",
            ),
            (
                BASE64_URL_SAFE_NO_PAD.encode(b"\xff\xfe"),
                "invalid character 'ÿ' looking for beginning of value",
            ),
            ("eyJ2IjoiYSJ9Cg==".to_owned(), "illegal base64 data at input byte 14"),
            (
                encode(r#"{"v":1}"#),
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets"}"#), "../../secrets"),
        ] {
            assert_eq!(
                Token::decode(&token).unwrap_err().to_string(),
                format!("invalid continue token: continue key is not valid: {why}")
            );
        }
    }
}
