//! URLs as Go's `net/url` reads them, with its errors.
use setpoint_object::field::quote;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    /// In lower case; empty if there is none.
    pub(super) scheme: String,
    /// With its port; empty if there is none.
    pub(super) host: String,
    /// What stands before `@`.
    pub(super) user: Option<String>,
    /// Without the question mark.
    pub(super) query: String,
    /// Without the hash sign.
    pub(super) fragment: String,
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong, in Go's words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let in_text = |text: &str, fault| format!("parse {}: {fault}", quote(text));
        let url = Self::without_fragment(before).map_err(|fault| in_text(before, fault))?;
        let fragment = unescape(fragment, false).map_err(|fault| in_text(text, fault))?;
        Ok(Self { fragment, ..url })
    }

    fn without_fragment(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = scheme(text)?;
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme, query: query.to_owned(), ..Self::default() };
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().unwrap_or_default().contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !url.scheme.is_empty() || !rest.starts_with("///");
        let authority = rest.strip_prefix("//").filter(|_| has_authority);
        let path = match authority {
            None => rest,
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let (user, host) = match authority.rsplit_once('@') {
                    None => (None, authority),
                    Some((user, host)) => (Some(user), host),
                };
                url.host = self::host(host)?;
                url.user = user.map(userinfo).transpose()?;
                path
            }
        };
        unescape(path, false)?;
        Ok(url)
    }
}

/// The scheme, and what stands after its colon.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
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

fn userinfo(text: &str) -> Result<String, String> {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !text.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(text, false)?;
    Ok(text.to_owned())
}

fn host(text: &str) -> Result<String, String> {
    let port = match text.starts_with('[') {
        true => match text.rfind(']') {
            None => return Err("missing ']' in host".to_owned()),
            Some(end) => &text[end + 1..],
        },
        false => text.rfind(':').map_or("", |at| &text[at..]),
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    unescape(text, true)
}

/// A text without its escapes.
fn unescape(text: &str, is_host: bool) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            if is_host && first.is_ascii() && !is_of_host(first) {
                let found = quote(&char::from(first).to_string());
                return Err(format!("invalid character {found} in host name"));
            }
            bytes.push(first);
            rest = after;
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        let escape = || {
            let shown = String::from_utf8_lossy(&rest[..rest.len().min(3)]);
            format!("invalid URL escape {}", quote(&shown))
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(escape()) };
        // A host has escapes of what is not ASCII, and of a percent sign.
        if is_host && high < 8 && (high, low) != (2, 5) {
            return Err(escape());
        }
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
        rest = &after[2..];
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a character stands in a host as it is.
fn is_of_host(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-_.~".contains(&b)
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
            ("https://a#%z", r#"parse "https://a#%z": invalid URL escape "%z""#),
        ] {
            assert_eq!(Url::parse(text), Err(fault.to_owned()), "{text}");
        }
    }
}
