//! Continue tokens: where the next page of a list starts.
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use setpoint_object::ApiError;
use setpoint_object::field::quote;

/// The version that the token states.
const VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that continues with the newest state.
const NEWEST: i64 = -1;

/// A position in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision of the pages; `None`: the newest.
    pub(super) revision: Option<u64>,
    /// The first key of the next page, relative to the list's prefix.
    pub(super) start: String,
}
#[derive(Debug, Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
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
        let json =
            BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| fault(decode_fault(&error)))?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|error| fault(error.to_string()))?;
        if wire.v != VERSION {
            let version = quote(&wire.v);
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
fn decode_fault(error: &base64::DecodeError) -> String {
    match error {
        base64::DecodeError::InvalidByte(at, _)
        | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => {
            format!("illegal base64 data at input byte {at}")
        }
        other => other.to_string(),
    }
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
    }

    #[test]
    fn an_invalid_token_is_refused() {
        let encode = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
        for (token, why) in [
            ("?".to_owned(), "illegal base64 data at input byte 0"),
            (
                encode(r#"{"v":"x","rv":1,"start":"a"}"#),
                r#"server does not recognize this encoded version "x""#,
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
