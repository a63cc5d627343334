//! URLs as Go reads them: absolute URIs and absolute paths.

use std::any::Any;

use indexmap::IndexMap;

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, String as Text};
use crate::value::{Key, Opaque, Value};
use setpoint_object::field::quote;

type Result<'v> = std::result::Result<Value<'v>, Error>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    scheme: String,
    host: String,
    /// Escaped.
    path: String,
    query: String,
    /// Everything, for comparing.
    whole: String,
}

impl Opaque for Url {
    fn type_of(&self) -> Type {
        Type::URL
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Url>().is_some_and(|other| other.whole == self.whole)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let url = || Type::URL;
    let query = Type::map(Text, Type::list(Text));
    vec![
        global("url", "string_to_url", [Text], url()).cost(Cost::Scan).call(to_url),
        member("getScheme", "url_get_scheme", [url()], Text).call(scheme),
        member("getHost", "url_get_host", [url()], Text).call(host),
        member("getHostname", "url_get_hostname", [url()], Text).call(hostname),
        member("getPort", "url_get_port", [url()], Text).call(port),
        member("getEscapedPath", "url_get_escaped_path", [url()], Text).call(escaped_path),
        member("getQuery", "url_get_query", [url()], query).call(get_query),
        global("isURL", "is_url_string", [Text], Bool).call(is_url),
    ]
}

/// The part of a URL in which a character is, which decides whether it is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Path,
    Query,
}

/// Resolves `%xx`, and in queries `+`.
fn unescape(text: &str, part: Part) -> std::result::Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digit =
                    |index: usize| bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(at), digit(at + 1)) else {
                    let shown: String = text[at - 1..].chars().take(3).collect();
                    return Err(format!("invalid URL escape {}", quote(&shown)));
                };
                // Hosts have no escapes but of characters that are not ASCII, and %25 in zones.
                if part == Part::Host && high < 8 && !(high == 2 && low == 5) {
                    let shown: String = text[at - 1..].chars().take(3).collect();
                    return Err(format!("invalid URL escape {}", quote(&shown)));
                }
                plain.push((high * 16 + low) as u8);
                at += 2;
            }
            b'+' if part == Part::Query => plain.push(b' '),
            byte if part == Part::Host && byte < 0x80 && !host_byte(byte) => {
                let shown = quote(&char::from(byte).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            byte => plain.push(byte),
        }
    }
    Ok(plain)
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

fn host_byte(byte: u8) -> bool {
    unreserved(byte) || b"!$&'()*+,;=:[]<>\"".contains(&byte)
}

/// The path with everything escaped that must be; as it is if it is escaped already.
fn escape_path(path: &str) -> std::result::Result<String, String> {
    let plain = unescape(path, Part::Path)?;
    let as_written =
        path.bytes().all(|byte| unreserved(byte) || b"!$&'()*+,;=:@[]/%".contains(&byte));
    if as_written {
        return Ok(path.to_owned());
    }
    let mut escaped = String::with_capacity(plain.len());
    for byte in plain {
        if unreserved(byte) || b"$&+,/:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(escaped)
}

/// The scheme and what follows its colon.
fn split_scheme(text: &str) -> std::result::Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Reads an absolute URI or an absolute path.
fn parse(text: &str) -> std::result::Result<Url, String> {
    parse_parts(text, true)?;
    // The fragment is cut off only now: a path with one is refused or not as a whole.
    let url = parse_parts(text.split('#').next().unwrap_or(text), false)?;
    Ok(Url { whole: text.to_owned(), ..url })
}

fn parse_parts(text: &str, request: bool) -> std::result::Result<Url, String> {
    let refuse = |why: &str| format!("parse {}: {why}", quote(text));
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(refuse("net/url: invalid control character in URL"));
    }
    if text.is_empty() && request {
        return Err(refuse("empty url"));
    }
    let (scheme, rest) = split_scheme(text).map_err(|why| refuse(&why))?;
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        host: String::new(),
        path: String::new(),
        query: query.to_owned(),
        whole: String::new(),
    };
    if text == "*" {
        url.path = "*".to_owned();
        return Ok(url);
    }
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            // An opaque one: `mailto:a@b.c`.
            return Ok(url);
        }
        if request {
            return Err(refuse("invalid URI for request"));
        }
    }
    if rest.starts_with("//") && (!scheme.is_empty() || !request && !rest.starts_with("///")) {
        let authority = &rest[2..];
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, path) = authority.split_at(end);
        rest = path;
        url.host = authority_host(authority).map_err(|why| refuse(&why))?;
    }
    url.path = escape_path(rest).map_err(|why| refuse(&why))?;
    Ok(url)
}

fn authority_host(authority: &str) -> std::result::Result<String, String> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let valid = |byte: u8| unreserved(byte) || b"!$&'()*+,;=:%@".contains(&byte);
            if !user.bytes().all(valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            host
        }
        None => authority,
    };
    let port = match host.strip_prefix('[') {
        Some(rest) => {
            let (_, port) = rest.rsplit_once(']').ok_or("missing ']' in host")?;
            port
        }
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let digits = port.strip_prefix(':').unwrap_or("");
    let valid = port.is_empty()
        || port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !valid {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    let plain = unescape(host, Part::Host)?;
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

fn text<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a str, Error> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Error::NoSuchOverload),
    }
}

fn url<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a Url, Error> {
    args.first().and_then(Value::downcast).ok_or(Error::NoSuchOverload)
}

/// Whether it is an absolute URI or path, and if not, why.
pub(super) fn check_uri(text: &str) -> std::result::Result<(), String> {
    parse_parts(text, true).map(drop)
}

fn to_url<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let text = text(args)?;
    context.allocate(text.len() * 2)?;
    let url = parse(text).map_err(|error| {
        Error::message(format!("URL parse error during conversion from string: {error}"))
    })?;
    Ok(Value::opaque(url))
}

fn is_url<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(check_uri(text(args)?).is_ok()))
}

fn scheme<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(url(args)?.scheme.clone().into())
}

fn host<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(url(args)?.host.clone().into())
}

/// Name and port of a host.
fn split_host(host: &str) -> (&str, &str) {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':').unwrap_or(""));
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

fn hostname<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(split_host(&url(args)?.host).0.to_owned().into())
}

fn port<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(split_host(&url(args)?.host).1.to_owned().into())
}

fn escaped_path<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(url(args)?.path.clone().into())
}

fn get_query<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let query = &url(args)?.query;
    context.allocate(query.len() + query.matches('&').count() * 4 * size_of::<Value<'_>>())?;
    let mut values: IndexMap<String, Vec<Value<'v>>> = IndexMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(key), Ok(value)) = (unescape(key, Part::Query), unescape(value, Part::Query))
        else {
            continue;
        };
        let value = String::from_utf8_lossy(&value).into_owned();
        let key = String::from_utf8_lossy(&key).into_owned();
        values.entry(key).or_default().push(value.into());
    }
    let entries = values.into_iter().map(|(key, values)| (Key::String(key.into()), values.into()));
    Ok(entries.collect::<IndexMap<Key, Value<'v>>>().into())
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn parts_of_urls_are_taken_out() {
        check("url('https://user:pass@example.com:80/path?a=b').getScheme()", "\"https\"");
        check("url('https://user:pass@example.com:80/path?a=b').getHost()", "\"example.com:80\"");
        check("url('https://[::1]:80/').getHostname()", "\"::1\"");
        check("url('https://[::1]:80/').getPort()", "\"80\"");
        check("url('https://example.com').getPort()", "\"\"");
        check("url('https://example.com/a b/').getEscapedPath()", "\"/a%20b/\"");
        check("url('https://example.com/a%20b#frag').getEscapedPath()", "\"/a%20b\"");
        check("url('/absolute/path').getHost()", "\"\"");
        check(
            "url('https://x.org/?k1=a&k2=b&k2=c%20d&k4').getQuery()",
            "{\"k1\": [\"a\"], \"k2\": [\"b\", \"c d\"], \"k4\": [\"\"]}",
        );
        check("url('https://a.b/') == url('https://a.b/')", "true");
    }

    #[test]
    fn what_is_no_absolute_url_is_refused() {
        check("isURL('https://a:80/')", "true");
        check("isURL('/path')", "true");
        check("isURL('https://a:b/')", "false");
        check("isURL('relative')", "false");
        check("isURL('../x')", "false");
        check("isURL('')", "false");
        check(
            "url('relative').getHost()",
            "error: URL parse error during conversion from string: parse \"relative\": invalid URI for request",
        );
    }
}
