//! URLs as Go reads them: absolute URIs and absolute paths.

use std::any::Any;

use indexmap::IndexMap;

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, String as Text};
use crate::value::{Key, Opaque, Value};
use setpoint_object::url::{Url, unescape_query};

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// A URL, and the text that it was read from, for comparing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parsed {
    url: Url,
    whole: String,
}

impl Opaque for Parsed {
    fn type_of(&self) -> Type {
        Type::URL
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Parsed>().is_some_and(|other| other.whole == self.whole)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn text_bytes(&self) -> usize {
        self.whole.len()
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

fn text<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a str, Error> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Error::NoSuchOverload),
    }
}

fn url<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a Url, Error> {
    let parsed: Option<&Parsed> = args.first().and_then(Value::downcast);
    parsed.map(|parsed| &parsed.url).ok_or(Error::NoSuchOverload)
}

/// Whether it is an absolute URI or path, and if not, why.
pub(super) fn check_uri(text: &str) -> std::result::Result<(), String> {
    Url::parse_request(text).map(drop)
}

fn to_url<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let text = text(args)?;
    context.allocate(text.len() * 2)?;
    // A request has no fragment, so it is cut off only then.
    let url = Url::parse_request(text).and_then(|_| Url::parse(text)).map_err(|error| {
        Error::message(format!("URL parse error during conversion from string: {error}"))
    })?;
    Ok(Value::opaque(Parsed { url, whole: text.to_owned() }))
}

fn is_url<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(check_uri(text(args)?).is_ok()))
}

/// A part of a URL as a text of its own.
fn part<'v>(context: &mut Context<'_>, part: &str) -> Result<'v> {
    context.allocate(part.len())?;
    Ok(part.to_owned().into())
}

fn scheme<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(context, &url(args)?.scheme)
}

fn host<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(context, &url(args)?.host)
}

/// Name and port of a host.
fn split_host(host: &str) -> (&str, &str) {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':').unwrap_or(""));
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

fn hostname<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(context, split_host(&url(args)?.host).0)
}

fn port<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    part(context, split_host(&url(args)?.host).1)
}

fn escaped_path<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let path = url(args)?.escaped_path();
    context.allocate(path.len())?;
    Ok(path.into())
}

fn get_query<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let query = &url(args)?.query;
    context.allocate(query.len() + query.matches('&').count() * 4 * size_of::<Value<'_>>())?;
    let mut values: IndexMap<String, Vec<Value<'v>>> = IndexMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(key), Ok(value)) = (unescape_query(key), unescape_query(value)) else {
            continue;
        };
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
        check("url('https://a@b@c/').getHost()", "\"c\"");
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
        check("isURL('https://%zz@a')", "false");
        check(
            "url('relative').getHost()",
            "error: URL parse error during conversion from string: parse \"relative\": invalid URI for request",
        );
    }
}
