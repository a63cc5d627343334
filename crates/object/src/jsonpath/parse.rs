//! The grammar of the dialect.
use super::{Comparison, Filter, JsonPath, JsonPathError, Operand, PATH_BYTES_MAX, Step};
use serde_json::Value;

/// Maximum nesting of filters in filters.
const FILTER_DEPTH_MAX: usize = 8;

type Parsed<T> = Result<T, JsonPathError>;
fn fail<T>(what: impl Into<String>) -> Parsed<T> {
    Err(JsonPathError(what.into()))
}

pub(super) fn parse(text: &str) -> Parsed<JsonPath> {
    if text.len() > PATH_BYTES_MAX {
        return fail(format!("the path is longer than {PATH_BYTES_MAX} bytes"));
    }
    let text = text.trim();
    let inner = match text.strip_prefix('{') {
        Some(rest) => match rest.strip_suffix('}') {
            Some(inner) => inner.trim(),
            None => return fail("unclosed action"),
        },
        None => text,
    };
    path(inner.strip_prefix(['$', '@']).unwrap_or(inner), 0)
}

fn path(text: &str, depth: usize) -> Parsed<JsonPath> {
    if depth > FILTER_DEPTH_MAX {
        return fail("filters nest too deep");
    }
    let (mut steps, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            steps.push(Step::Descendants);
            rest = after;
            if !rest.starts_with('[') {
                rest = member(rest, &mut steps)?;
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            // A lone dot is the value itself.
            if after.is_empty() || after.starts_with('[') {
                rest = after;
            } else {
                rest = member(after, &mut steps)?;
            }
        } else if let Some(after) = rest.strip_prefix('[') {
            let len = bracket_len(after)?;
            steps.push(bracket(after[..len].trim(), depth)?);
            rest = &after[len + 1..];
        } else if steps.is_empty() {
            rest = member(rest, &mut steps)?;
        } else {
            return fail(format!("unexpected text {rest:?}"));
        }
    }
    Ok(JsonPath { steps })
}
/// Parses a member's name, with escapes, up to the next dot or bracket.
fn member<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, c)) => name.push(c),
                None => return fail("a backslash at the end"),
            },
            '.' | '[' => {
                end = at;
                break;
            }
            ' ' | '\t' | '\n' | '\r' | '{' | '}' | ']' | '(' | ')' | '"' | '\'' | '|' | ',' => {
                return fail(format!("unexpected character {c:?}"));
            }
            c => name.push(c),
        }
    }
    match name.as_str() {
        "" => return fail("a name is missing"),
        "*" => steps.push(Step::Wildcard),
        _ => steps.push(Step::Members(vec![name])),
    }
    Ok(&text[end..])
}
/// The position of the closing bracket, ignoring quotes and inner brackets.
fn bracket_len(text: &str) -> Parsed<usize> {
    let (mut depth, mut quote, mut is_escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Ok(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    fail("unterminated array")
}
fn bracket(inner: &str, depth: usize) -> Parsed<Step> {
    if inner == "*" {
        return Ok(Step::Wildcard);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_of(filter.trim(), depth).map(|filter| Step::Filter(Box::new(filter)));
    }
    if inner.starts_with(['"', '\'']) {
        let names = split_outside_quotes(inner, ',').into_iter().map(|part| unquote(part.trim()));
        return names.collect::<Parsed<_>>().map(Step::Members);
    }
    let number = |text: &str| match text.trim().parse::<i64>() {
        Ok(number) => Ok(number),
        Err(_) => fail(format!("invalid array index {inner}")),
    };
    if inner.contains(':') {
        let parts: Vec<_> = inner.split(':').map(str::trim).collect();
        let part = |idx: usize| match parts.get(idx) {
            None | Some(&"") => Ok(None),
            Some(text) => number(text).map(Some),
        };
        let step = part(2)?.unwrap_or(1);
        if parts.len() > 3 || step < 1 {
            return fail(format!("invalid array index {inner}"));
        }
        return Ok(Step::Slice { start: part(0)?, end: part(1)?, step });
    }
    inner.split(',').map(number).collect::<Parsed<_>>().map(Step::Elements)
}
fn filter_of(text: &str, depth: usize) -> Parsed<Filter> {
    const SIGNS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let is_outside = outside(text);
    let places = text.char_indices().filter(|(at, _)| is_outside(*at));
    for (at, _) in places {
        if let Some((sign, comparison)) =
            SIGNS.iter().find(|(sign, _)| text[at..].starts_with(sign))
        {
            let (left, right) = (&text[..at], &text[at + sign.len()..]);
            let left = operand(left.trim(), depth)?;
            return Ok(Filter { left, test: Some((*comparison, operand(right.trim(), depth)?)) });
        }
    }
    Ok(Filter { left: operand(text, depth)?, test: None })
}
fn operand(text: &str, depth: usize) -> Parsed<Operand> {
    if let Some(rest) = text.strip_prefix(['@', '$']) {
        return path(rest, depth + 1).map(Operand::Path);
    }
    if text.starts_with(['"', '\'']) {
        return unquote(text).map(|text| Operand::Literal(Value::String(text)));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => {
            Ok(Operand::Literal(value))
        }
        _ => fail(format!("unrecognized operand {text:?} in a filter")),
    }
}
fn unquote(text: &str) -> Parsed<String> {
    let mut chars = text.chars();
    let (Some(open @ ('"' | '\'')), Some(close)) = (chars.next(), chars.next_back()) else {
        return fail(format!("{text} is not quoted"));
    };
    let mut out = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c if c == open => return fail(format!("unexpected quote in {text}")),
            c => out.push(c),
        }
    }
    if open == close { Ok(out) } else { fail("unterminated quoted string") }
}
fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let is_outside = outside(text);
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, c) in text.char_indices() {
        if c == separator && is_outside(at) {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}
/// Returns a function that reports whether a position is outside quotes and brackets.
fn outside(text: &str) -> impl Fn(usize) -> bool {
    let mut inside = vec![false; text.len()];
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    for (at, c) in text.char_indices() {
        inside[at] = quote.is_some() || depth > 0;
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    move |at| !inside[at]
}
