//! The grammar of the dialect.
use super::{Comparison, Filter, JsonPath, JsonPathError, Operand, PATH_BYTES_MAX, Step, fail};
use serde_json::Value;

type Parsed<T> = Result<T, JsonPathError>;

pub(super) fn parse(text: &str) -> Parsed<JsonPath> {
    if text.len() > PATH_BYTES_MAX {
        return fail(format!("the path is longer than {PATH_BYTES_MAX} bytes"));
    }
    let inner = match text.trim().strip_prefix('{') {
        Some(rest) => match rest.strip_suffix('}') {
            Some(inner) => inner.trim(),
            None => return fail("unclosed action"),
        },
        None => text,
    };
    // A path of templates may start with a name.
    let starts_with_name = inner.starts_with(|c: char| c.is_alphabetic() || c == '_');
    if starts_with_name {
        let (mut steps, rest) = (Vec::new(), inner);
        let rest = member(rest, &mut steps)?;
        return path(rest, steps);
    }
    path(inner, Vec::new())
}

fn path(text: &str, mut steps: Vec<Step>) -> Parsed<JsonPath> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = if let Some(after) = rest.strip_prefix("[?(") {
            filter(after, &mut steps)?
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Descendants) {
                return fail("invalid multiple recursive descent");
            }
            steps.push(Step::Descendants);
            match after.starts_with(is_alphanumeric) {
                true => member(after, &mut steps)?,
                false => after,
            }
        } else {
            match first {
                ' ' | '@' | '$' => after,
                // The end of the action. What follows is text.
                '}' => break,
                '.' => member(after, &mut steps)?,
                '[' => bracket(after, &mut steps)?,
                '"' | '\'' => {
                    let (text, after) = quoted(after, first)?;
                    steps.push(Step::Literal(text.into()));
                    after
                }
                '+' | '-' => number(rest, &mut steps)?,
                c if c.is_numeric() => number(rest, &mut steps)?,
                c if is_alphanumeric(c) => word(rest, &mut steps),
                c => return fail(format!("unrecognized character in action: {c:?}")),
            }
        };
    }
    Ok(JsonPath { steps })
}
fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
/// Whether a name ends before this character.
fn is_terminator(c: char) -> bool {
    " \t\r\n.,[]$@{}".contains(c)
}
/// Parses a member's name, with escapes. A name may be empty: no member has that name.
fn member<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, '\\')) => {}
                Some((_, c)) => name.push(c),
                None => return fail("a backslash at the end"),
            },
            c if is_terminator(c) => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    match name.as_str() {
        "*" => steps.push(Step::Wildcard),
        _ => steps.push(Step::Member(name)),
    }
    Ok(&text[end..])
}
/// A bare word: `true` and `false` are values.
fn word<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (word, rest) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
    steps.push(match word {
        "true" => Step::Literal(true.into()),
        "false" => Step::Literal(false.into()),
        _ => Step::Word(word.to_owned()),
    });
    rest
}
fn number<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let signs = usize::from(text.starts_with(['+', '-']));
    let digits = text[signs..].find(|c: char| c != '.' && !c.is_numeric());
    let (number, rest) = text.split_at(digits.map_or(text.len(), |len| signs + len));
    let value = match (number.parse::<i64>(), number.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (_, Ok(float)) => Value::from(float),
        _ => return fail(format!("cannot parse number {number}")),
    };
    steps.push(Step::Literal(value));
    Ok(rest)
}
/// What is between brackets, up to the first closing one, also if that is in quotes.
fn bracket<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let Some((inner, rest)) = text.split_once(']').filter(|(inner, _)| !inner.contains('\n'))
    else {
        return fail("unterminated array");
    };
    if inner.contains(',') {
        let paths = inner.split(',').map(|part| {
            let mut steps = Vec::new();
            key_or_index(part.trim_matches(' '), &mut steps)?;
            Ok(JsonPath { steps })
        });
        steps.push(Step::Union(paths.collect::<Parsed<_>>()?));
    } else {
        key_or_index(inner, steps)?;
    }
    Ok(rest)
}
fn key_or_index(inner: &str, steps: &mut Vec<Step>) -> Parsed<()> {
    let key = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    if let Some(key) = key.filter(|key| !key.contains('\'')) {
        // The key is a path of its own, so its dots separate members.
        steps.append(&mut path(&format!(".{key}"), Vec::new())?.steps);
        return Ok(());
    }
    let invalid = || JsonPathError(format!("invalid array index {inner}"));
    let number = |text: &str| -> Parsed<Option<i64>> {
        let is_number = text.strip_prefix('-').unwrap_or(text).bytes().all(|c| c.is_ascii_digit());
        match text {
            "" => Ok(None),
            _ if is_number => text.parse().map(Some).map_err(|_| invalid()),
            _ => Err(invalid()),
        }
    };
    let parts: Vec<&str> = match inner {
        "*" => vec!["", ""],
        _ => inner.split(':').collect(),
    };
    steps.push(match *parts {
        [one] => Step::Element(number(one)?.unwrap_or(0)),
        [start, end] => Step::Slice { start: number(start)?, end: number(end)?, step: 1 },
        [start, end, step] => Step::Slice {
            start: number(start)?,
            end: number(end)?,
            step: number(step)?.unwrap_or(1),
        },
        _ => return Err(invalid()),
    });
    Ok(())
}
/// A filter up to its closing parenthesis, which must be outside the first quotes.
fn filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let (mut quote, mut is_closed, mut before) = (None, false, '\0');
    let mut end = None;
    for (at, c) in text.char_indices() {
        match c {
            '\n' => break,
            '"' | '\'' => match quote {
                None => quote = Some(c),
                Some(open) => is_closed |= before != '\\' && open == c,
            },
            ')' if quote.is_some() == is_closed => {
                end = Some(at);
                break;
            }
            _ => {}
        }
        before = c;
    }
    let Some(end) = end else { return fail("unterminated filter") };
    let (inner, rest) = (&text[..end], &text[end + 1..]);
    let Some(rest) = rest.strip_prefix(']') else { return fail("unclosed array expect ]") };
    let filter = match compared(inner) {
        None => Filter { left: operand(inner)?, test: None },
        Some((left, comparison, right)) => {
            Filter { left: operand(left)?, test: Some((comparison, operand(right)?)) }
        }
    };
    steps.push(Step::Filter(Box::new(filter)));
    Ok(rest)
}
fn operand(text: &str) -> Parsed<Operand> {
    let mut parsed = path(text, Vec::new())?;
    match parsed.steps.pop_if(|step| matches!(step, Step::Literal(_))) {
        Some(Step::Literal(value)) if parsed.steps.is_empty() => Ok(Operand::Literal(value)),
        popped => {
            parsed.steps.extend(popped);
            Ok(Operand::Path(parsed))
        }
    }
}
/// The sides of a comparison and its operator, the first sequence of `!`, `<`, `=` and `>`.
fn compared(text: &str) -> Option<(&str, Comparison, &str)> {
    const SIGNS: [char; 4] = ['!', '<', '=', '>'];
    let start = text.find(SIGNS).filter(|start| *start > 0)?;
    let len = text[start..].find(|c| !SIGNS.contains(&c)).unwrap_or(text.len() - start);
    // A right side must follow: if there is none, the last sign is one.
    let end = if start + len < text.len() { start + len } else { start + len - 1 };
    let comparison = match &text[start..end] {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<=" => Comparison::LessOrEqual,
        ">=" => Comparison::GreaterOrEqual,
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        "" => return None,
        _ => Comparison::Unknown,
    };
    Some((&text[..start], comparison, &text[end..]))
}
/// A text up to its closing quote, with Go's escapes, and what follows.
fn quoted(text: &str, quote: char) -> Parsed<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => break,
            '\\' => out.push(match chars.next() {
                Some((_, c @ ('\\' | '"' | '\''))) if c == quote || c == '\\' => c,
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, 'r')) => '\r',
                _ => return fail("invalid escape in a quoted string"),
            }),
            c if c == quote => return Ok((out, &text[at + 1..])),
            c => out.push(c),
        }
    }
    fail("unterminated quoted string")
}
