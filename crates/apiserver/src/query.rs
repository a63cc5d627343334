//! Query strings as Go's `url.ParseQuery` reads them, and the scalar rules of query options.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use setpoint_object::ApiError;
use setpoint_object::field::quote;
use std::borrow::Cow;

/// What Go escapes in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A parsed query: pairs in order. Pairs that cannot be decoded (`%zz`, `;`) are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the text after the question mark.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter_map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((decode_lossy(name)?, decode_lossy(value)?))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter, empty if missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Every value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// A boolean: `false` (in any case) and `0` are false, every other value, the empty one
    /// included, is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A 64-bit integer.
    ///
    /// # Errors
    ///
    /// 400 with the message of Go's `strconv` for anything else, including the empty value.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {}: invalid syntax",
                quote(value)
            )));
        }
        value.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {}: value out of range",
                quote(value)
            ))
        })
    }
}

/// Encodes pairs as Go's `Values.Encode` does. The caller sorts them by name.
pub(crate) fn encode<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        out.extend(utf8_percent_encode(&value, ESCAPED).map(|part| part.replace("%20", "+")));
    }
    out
}

/// Percent-decodes; `None` for a bad escape or text that is not UTF-8. `plus`: `+` means a space,
/// as in queries.
pub(crate) fn decode(text: &str, plus: bool) -> Option<String> {
    let escaped = text.contains('%') || (plus && text.contains('+'));
    if !escaped {
        return Some(text.to_owned());
    }
    String::from_utf8(unescape(text, plus)?).ok()
}

/// Percent-decodes a path; `None` for a bad escape. Bytes that are not UTF-8 become U+FFFD, which
/// no name has.
pub(crate) fn decode_path(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(path.into());
    }
    let bytes = unescape(path, false)?;
    Some(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// Percent-decodes a part of a query. Bytes that are not UTF-8 become U+FFFD, so that the value is
/// not empty.
fn decode_lossy(text: &str) -> Option<String> {
    decode(text, true)
        .or_else(|| Some(String::from_utf8_lossy(&unescape(text, true)?).into_owned()))
}

/// Decodes the escapes to bytes; `None` for a bad one.
fn unescape(text: &str, plus: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecodable_and_unknown_pairs_are_ignored() {
        let query = Query::parse("a=1&b=%zz&c=x%20y+z&a=2&&d");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), None);
        assert_eq!(query.get("c"), Some("x y z"));
        assert_eq!(query.get("d"), Some(""));
    }

    #[test]
    fn pairs_are_encoded_as_in_go() {
        let pairs = [("command", "a b/c~*".to_owned()), ("tty", "1".to_owned())];
        assert_eq!(encode(pairs), "command=a+b%2Fc~%2A&tty=1");
    }

    #[test]
    fn a_value_that_is_not_utf8_differs_from_an_empty_one() {
        assert_eq!(Query::parse("continue=%ff").get("continue"), Some("\u{fffd}"));
    }

    #[test]
    fn only_false_and_zero_are_false() {
        for (text, expected) in [
            ("watch=true", Some(true)),
            ("watch=", Some(true)),
            ("watch", Some(true)),
            ("watch=F", Some(true)),
            ("watch=foo", Some(true)),
            ("watch=FALSE", Some(false)),
            ("watch=0", Some(false)),
            ("", None),
        ] {
            assert_eq!(Query::parse(text).flag("watch"), expected, "{text}");
        }
    }

    #[test]
    fn bad_integers_are_refused_with_the_messages_of_strconv() {
        assert_eq!(Query::parse("limit=-3").integer("limit").unwrap(), Some(-3));
        for (text, message) in [
            ("limit=foo", r#"strconv.ParseInt: parsing "foo": invalid syntax"#),
            ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            (
                "limit=99999999999999999999",
                r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#,
            ),
        ] {
            assert_eq!(Query::parse(text).integer("limit").unwrap_err().0.message, message);
        }
    }
}
