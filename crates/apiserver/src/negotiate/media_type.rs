//! Media types in headers, as the reference reads them: lists in `Accept` as the package
//! `goautoneg`, routes as `go-restful`, and one type in `Content-Type` as Go's package `mime`.
//!
//! The three differ. A list trims spaces only, skips what it cannot read, and compares types in the
//! case that they have. A route compares the text before the first semicolon. One type is read in
//! full, in any case, and one mistake makes it unreadable.

use super::Encoding;
use http::HeaderMap;
use http::header::HeaderName;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Lists up to this length are sorted as Go's `sort.Sort` does, by insertion: the reference's order
/// of clauses is no order, so that the result depends on the way. Longer lists are sorted by
/// quality.
const INSERTION_MAX: usize = 12;
/// How many bytes of a header count: 16 KiB, which take less than a millisecond.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// One clause of an `Accept` header.
#[derive(Debug)]
pub(crate) struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// The value of a parameter: the last one. There are no empty values.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Type and subtype as written.
    pub(crate) fn media_type(&self) -> (&str, &str) {
        (self.main, self.sub)
    }

    /// Whether the clause means an encoding; wildcards mean each.
    pub(crate) fn means(&self, encoding: Encoding) -> bool {
        match (self.main, self.sub) {
            ("*" | "application", "*") => true,
            (main, sub) => encoding.media_type().split_once('/') == Some((main, sub)),
        }
    }

    /// The encoding that a clause names, JSON or YAML; wildcards mean JSON.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        [Encoding::Json, Encoding::Yaml].into_iter().find(|encoding| self.means(*encoding))
    }

    /// Whether a document can be what the clause asks for: it has no versions of the server, and no
    /// stream but that of a watch, which YAML has not.
    pub(crate) fn is_of_document(&self, encoding: Encoding) -> bool {
        self.param("sv").is_none() && self.has_stream(encoding)
    }

    /// Whether there is the stream that the clause asks for.
    pub(super) fn has_stream(&self, encoding: Encoding) -> bool {
        self.param("stream").is_none_or(|name| name == "watch" && encoding != Encoding::Yaml)
    }

    /// Whether the reference's order has this clause before another one.
    fn is_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || self.main != "*" && other.main == "*"
            || self.sub != "*" && other.sub == "*"
    }
}

/// Parses an `Accept` header into clauses, best first.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(clause).collect();
    if clauses.len() > INSERTION_MAX {
        clauses.sort_by(|a, b| {
            let wildcards = |c: &Clause<'_>| (c.main == "*", c.sub == "*");
            let quality = b.quality.total_cmp(&a.quality);
            quality.then_with(|| wildcards(a).cmp(&wildcards(b)))
        });
        return clauses;
    }
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].is_before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';');
    let media_type = parts.next()?;
    let (main, sub) = match media_type.split_once('/') {
        Some((main, sub)) if !sub.is_empty() => (trim(main), sub.strip_suffix('/').unwrap_or(sub)),
        _ if trim(media_type.trim_end_matches('/')) == "*" => ("*", "*"),
        _ => return None,
    };
    if sub.contains('/') {
        return None;
    }
    let (mut params, mut quality) = (Vec::new(), 1.0);
    for part in parts {
        let Some((name, value)) = part.split_once('=') else { continue };
        // A second equals sign may end the parameter.
        let value = value.strip_suffix('=').unwrap_or(value);
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match trim(name) {
            // Spaces are not trimmed here. What is no number is zero.
            "q" => quality = value.parse().unwrap_or(0.0),
            name => params.push((name, trim(value))),
        }
    }
    Some(Clause { main, sub: trim(sub), params, quality })
}

fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

/// Whether a route that has these media types takes such a list of them. Parameters are not looked
/// at, and the only wildcard is `*/*`, in a list that may have some (`Accept`).
pub(crate) fn is_routed(list: &str, types: &[&str], has_wildcards: bool) -> bool {
    list.split(',').any(|item| {
        let item = trim(item.split(';').next().unwrap_or_default());
        has_wildcards && item == "*/*" || types.contains(&item)
    })
}

/// The first line of a header, of a long one the beginning; empty if it is missing. Bytes that are
/// no UTF-8 are replaced.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Cow<'a, str> {
    let Some(value) = headers.get(name) else { return Cow::default() };
    let bytes = value.as_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(HEADER_BYTES_MAX)])
}

/// Parses one media type with its parameters: the type in lower case; `None` if it is malformed.
pub(crate) fn parse(text: &str) -> Option<String> {
    let (base, mut rest) = match text.find(';') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let media_type = base.trim().to_lowercase();
    let (main, sub) = media_type.split_once('/')?;
    if !is_token(main) || !is_token(sub) {
        return None;
    }
    let mut params: BTreeMap<String, Cow<'_, str>> = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some(media_type);
        }
        let Some((name, value, after)) = param(rest) else {
            // A semicolon may end the list.
            return (rest.trim() == ";").then_some(media_type);
        };
        if params.get(&name).is_some_and(|former| *former != value) {
            return None;
        }
        params.insert(name, value);
        rest = after;
    }
}

/// A parameter after its semicolon: its name in lower case, its value, and what follows.
fn param(text: &str) -> Option<(String, Cow<'_, str>, &str)> {
    let text = text.strip_prefix(';')?.trim_start();
    let (name, rest) = token(text)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted_string(quoted)?,
        None => token(rest).map(|(value, rest)| (value.into(), rest))?,
    };
    Some((name.to_lowercase(), value, rest))
}

/// The text before the closing quote, and what follows it.
fn quoted_string(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value.into(), &text[at + 1..])),
            // Only what has to be escaped is unescaped: the paths of Windows are sent without.
            '\\' => match text[at + 1..].chars().next() {
                Some(next) if is_special(next) => {
                    value.push(next);
                    chars.next();
                }
                _ => value.push('\\'),
            },
            '\r' | '\n' => return None,
            char => value.push(char),
        }
    }
    None
}

/// A token and what follows it; `None` for an empty one.
fn token(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|char: char| !is_token_char(char)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_char)
}

/// RFC 2045, section 5.1.
fn is_token_char(char: char) -> bool {
    char.is_ascii_graphic() && !is_special(char)
}

fn is_special(char: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(accept: &str) -> String {
        let clauses = clauses(accept);
        let shown = clauses.iter().map(|clause| {
            let params = clause.params.iter().map(|(name, value)| format!(";{name}={value}"));
            format!("{}/{}{}", clause.main, clause.sub, params.collect::<String>())
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists_are_read_as_by_goautoneg() {
        for (accept, expected) in [
            ("a/b", "a/b"),
            ("*", "*/*"),
            ("*/", "*/*"),
            ("a", ""),
            ("a/", ""),
            ("a/b/c", ""),
            ("a/b/", "a/b"),
            (",,a/b,", "a/b"),
            (" a / b ; c = d ;e", "a/b;c=d"),
            ("a/b;c=;d=e=f;g==;h=i=", "a/b;h=i"),
            ("a/b;c=\"d\"", "a/b;c=\"d\""),
            // A tab is part of the word.
            ("\ta/b", "\ta/b"),
        ] {
            assert_eq!(shown(accept), expected, "{accept:?}");
        }
        assert_eq!(clauses("a/b;c=1;c=2")[0].param("c"), Some("2"));
    }

    #[test]
    fn clauses_have_the_order_of_goautoneg() {
        for (accept, expected) in [
            ("a/b;q=0.1,c/d", "c/d a/b"),
            ("a/b;q=0.5,c/d;q=.5", "a/b c/d"),
            // A wildcard is behind a type, whatever their qualities, unless it was moved past it.
            ("*/*,a/b;q=0.1", "a/b */*"),
            ("a/b;q=0.1,*/*", "*/* a/b"),
            ("a/*,a/b;q=0.1", "a/b a/*"),
            ("a/b;q=x,c/d;q=0.1", "c/d a/b"),
            ("a/b;q= 1,c/d;q=0.1", "c/d a/b"),
            ("a/b;q=,c/d;q=0.5", "a/b c/d"),
            ("a/b;q=0,c/d;q=-1", "a/b c/d"),
        ] {
            assert_eq!(shown(accept), expected, "{accept}");
        }
        let many: Vec<_> = (0..20).map(|n| format!("a/{n};q=0.{n:02}")).collect();
        assert!(shown(&many.join(",")).starts_with("a/19 a/18 "));
    }

    #[test]
    fn routes_compare_the_text_before_the_semicolon() {
        let types = ["a/b", "c/d"];
        for (list, expected) in [
            ("a/b", true),
            (" c/d ;q=0,x", true),
            ("*/*", true),
            ("*", false),
            ("a/*", false),
            ("A/b", false),
            ("a / b", false),
            ("", false),
        ] {
            assert_eq!(is_routed(list, &types, true), expected, "{list}");
        }
        assert!(!is_routed("*/*", &types, false));
    }

    /// Not a number has a place, too: sorting ends whatever the qualities are.
    #[test]
    fn qualities_that_are_no_numbers_can_be_sorted() {
        let words = ["nan", "1", "-nan", "0.5", "inf", "x", "0"];
        let list: Vec<String> =
            (0..200).map(|n| format!("a/b{n};q={}", words[n * n % words.len()])).collect();
        assert_eq!(clauses(&list.join(",")).len(), 200);
    }

    #[test]
    fn the_beginning_of_a_long_header_counts() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", "a/b,".repeat(100_000).parse().unwrap());
        assert_eq!(header_text(&headers, &http::header::ACCEPT).len(), HEADER_BYTES_MAX);
    }

    #[test]
    fn one_type_is_read_as_by_gos_mime() {
        for (text, expected) in [
            ("a/b", Some("a/b")),
            (" A/B ", Some("a/b")),
            ("a/b;", Some("a/b")),
            ("a/b ; ", Some("a/b")),
            ("a/b; c=d; e = \"f;g\\\"\" ;", Some("a/b")),
            ("a/b; c=\"\"", Some("a/b")),
            ("a/b; c=d; C=d", Some("a/b")),
            ("", None),
            ("a", None),
            ("a/", None),
            ("/b", None),
            ("a/b c", None),
            ("a/b, c/d", None),
            ("a/b;;", None),
            ("a/b; c", None),
            ("a/b; c=", None),
            ("a/b; c=d e", None),
            ("a/b; c=\"d", None),
            ("a/b; c=d; c=e", None),
            ("a/b; c=é", None),
            ("a/b; c=\"é\"", Some("a/b")),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }
}
