//! URLs as Go's `net/url` reads them, with its errors: of webhooks, and in CEL.

use crate::field::quote;
use std::borrow::Cow;

/// The parts of a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url {
    /// In lower case; empty if there is none.
    pub scheme: String,
    /// What stands before `@`, as written.
    pub user: Option<String>,
    /// With its port, without escapes; empty if there is none.
    pub host: String,
    /// As written; empty for what has a scheme and no slash: `mailto:a@b.c`.
    pub path: String,
    /// Without the question mark, as written.
    pub query: String,
    /// Without the hash sign and without escapes.
    pub fragment: String,
}

/// What a URL may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Anything, without a fragment.
    Reference,
    /// An absolute URI or an absolute path. There is no fragment: a hash sign is like any other.
    Request,
}

impl Url {
    /// Reads a URL, absolute or relative.
    ///
    /// # Errors
    /// What is wrong, in Go's words: `parse ":a": missing protocol scheme`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = Self::read(before, Form::Reference).map_err(|fault| in_text(before, &fault))?;
        let fragment = unescape(fragment, Part::Plain).map_err(|fault| in_text(text, &fault))?;
        Ok(Self { fragment, ..url })
    }

    /// Reads an absolute URI or an absolute path, as in the first line of an HTTP request.
    ///
    /// # Errors
    /// As [`Self::parse`]; also for a text that is neither.
    pub fn parse_request(text: &str) -> Result<Self, String> {
        Self::read(text, Form::Request).map_err(|fault| in_text(text, &fault))
    }

    fn read(text: &str, form: Form) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && form == Form::Request {
            return Err("empty url".to_owned());
        }
        let (scheme, rest) = split_scheme(text)?;
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        let mut url = Self { scheme, query: query.to_owned(), ..Self::default() };
        if text == "*" {
            return Ok(Self { path: "*".to_owned(), ..url });
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            if form == Form::Request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().unwrap_or_default().contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority =
            !url.scheme.is_empty() || form == Form::Reference && !rest.starts_with("///");
        if let Some(authority) = rest.strip_prefix("//").filter(|_| has_authority) {
            let end = authority.find('/').unwrap_or(authority.len());
            let (authority, path) = authority.split_at(end);
            let (user, host) = match authority.rsplit_once('@') {
                None => (None, authority),
                Some((user, host)) => (Some(user), host),
            };
            url.host = read_host(host)?;
            url.user = user.map(read_user).transpose()?;
            rest = path;
        }
        unescape(rest, Part::Plain)?;
        url.path = rest.to_owned();
        Ok(url)
    }

    /// The path with everything escaped that must be; as it is if it is escaped already.
    pub fn escaped_path(&self) -> String {
        let is_escaped = |byte: u8| is_unreserved(byte) || b"!$&'()*+,;=:@[]/%".contains(&byte);
        if self.path == "*" || self.path.bytes().all(is_escaped) {
            return self.path.clone();
        }
        // The path was read, so its escapes are right.
        let plain = unescape_bytes(&self.path, Part::Plain).unwrap_or_default();
        let mut escaped = String::with_capacity(plain.len());
        for byte in plain {
            if is_unreserved(byte) || b"$&+,/:;=@".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }
}

/// A name as one segment of a path, with everything escaped that must be, as in Go. Most names of
/// objects need no escape; those of roles may have any character but `/` and `%`.
///
/// ```
/// use setpoint_object::url::escape_segment;
///
/// assert_eq!(escape_segment("system:node"), "system:node");
/// assert_eq!(escape_segment("a role?"), "a%20role%3F");
/// ```
pub fn escape_segment(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| is_unreserved(byte) || b"$&+:=@".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match is_plain(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped.into()
}

/// A key or a value of a query without its escapes; `+` is a space. What is no UTF-8 is replaced.
///
/// # Errors
/// An incomplete escape, in Go's words.
pub fn unescape_query(text: &str) -> Result<String, String> {
    unescape(text, Part::Query)
}

fn in_text(text: &str, fault: &str) -> String {
    format!("parse {}: {fault}", quote(text))
}

/// The scheme, and what follows its colon.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    match text.split_once(':') {
        Some(("", _)) => Err("missing protocol scheme".to_owned()),
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(is_inner) =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", text)),
    }
}

fn read_user(text: &str) -> Result<String, String> {
    let is_valid = |byte: u8| is_unreserved(byte) || b"!$&'()*+,;=:%@".contains(&byte);
    if !text.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(text, Part::Plain)?;
    Ok(text.to_owned())
}

fn read_host(text: &str) -> Result<String, String> {
    let port = match text.strip_prefix('[') {
        Some(rest) => rest.rsplit_once(']').ok_or("missing ']' in host")?.1,
        None => text.rfind(':').map_or("", |at| &text[at..]),
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    unescape(text, Part::Host)
}

/// The part of a URL in which a character is, which decides whether it is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Query,
    /// Any other.
    Plain,
}

/// A text without its escapes. What is no UTF-8 then is replaced.
fn unescape(text: &str, part: Part) -> Result<String, String> {
    unescape_bytes(text, part).map(|plain| String::from_utf8_lossy(&plain).into_owned())
}

/// Resolves `%xx`, and in queries `+`.
fn unescape_bytes(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let refused = || {
                    let shown: String = text[at - 1..].chars().take(3).collect();
                    format!("invalid URL escape {}", quote(&shown))
                };
                let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
                let (Some(high), Some(low)) = (digit(at), digit(at + 1)) else {
                    return Err(refused());
                };
                // Hosts have no escapes but of characters that are not ASCII, and %25 in zones.
                if part == Part::Host && high < 8 && (high, low) != (2, 5) {
                    return Err(refused());
                }
                plain.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 2;
            }
            b'+' if part == Part::Query => plain.push(b' '),
            byte if part == Part::Host && byte.is_ascii() && !is_of_host(byte) => {
                let shown = quote(&char::from(byte).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            byte => plain.push(byte),
        }
    }
    Ok(plain)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// Whether a character stands in a host as it is.
fn is_of_host(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn parts_are_read() {
        let url = Url::parse("HTTPS://u:p@a.example:80/b%20c?d=e#f%20g").unwrap();
        assert_eq!((&*url.scheme, &*url.host), ("https", "a.example:80"));
        assert_eq!((url.user.as_deref(), &*url.query, &*url.fragment), (Some("u:p"), "d=e", "f g"));
        for text in ["", "a", "/a:b", "mailto:a", "///a", "https://[::1]:8443", "1a/b:c"] {
            Url::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        }
    }

    #[test]
    fn requests_are_absolute() {
        for text in ["https://a:80/", "/path", "/a?b#c", "*"] {
            Url::parse_request(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        }
        for (text, fault) in [("", "empty url"), ("a", "invalid URI for request")] {
            assert_eq!(Url::parse_request(text), Err(format!("parse {text:?}: {fault}")));
        }
    }

    #[test]
    fn faults_have_the_words_of_go() {
        for (text, fault) in [
            ("%%%", r#"parse "%%%": invalid URL escape "%%%""#),
            ("https://a/%4", r#"parse "https://a/%4": invalid URL escape "%4""#),
            ("a\nb", r#"parse "a\nb": net/url: invalid control character in URL"#),
            (":a#b", r#"parse ":a": missing protocol scheme"#),
            ("1:a", r#"parse "1:a": first path segment in URL cannot contain colon"#),
            ("https://a b", r#"parse "https://a b": invalid character " " in host name"#),
            ("https://a:b", r#"parse "https://a:b": invalid port ":b" after host"#),
            ("https://[::1", r#"parse "https://[::1": missing ']' in host"#),
            ("https://%41", r#"parse "https://%41": invalid URL escape "%41""#),
            ("https://a b@c", r#"parse "https://a b@c": net/url: invalid userinfo"#),
            ("https://%z@c", r#"parse "https://%z@c": invalid URL escape "%z""#),
            ("https://a#%z", r#"parse "https://a#%z": invalid URL escape "%z""#),
        ] {
            assert_eq!(Url::parse(text), Err(fault.to_owned()), "{text}");
        }
    }
}
